//! The errors of bad input: what is wrong, where, and what to do about it.

use std::fmt;

use crate::spelling::nearest;

/// Input that a user gave and that cannot be used. The command line renders it and exits with 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// What is wrong, in one sentence.
    pub what: String,
    /// Where: a file, a key, a flag.
    pub place: String,
    /// What the user can do about it; empty when the sentence already says it.
    pub hint: String,
    /// What kind of error it is.
    pub kind: InputErrorKind,
}

/// A kind of [`InputError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputErrorKind {
    /// A value is malformed, out of range or missing.
    #[default]
    Invalid,
    /// A name is not known: of a key, a policy, a device. Another name may be.
    Unknown,
    /// Every value is valid, but this combination is not supported.
    Unsupported,
}

impl InputError {
    /// An error at `place`, without a hint.
    pub fn new(place: impl Into<String>, what: impl fmt::Display) -> Self {
        let kind = InputErrorKind::default();
        InputError { what: what.to_string(), place: place.into(), hint: String::new(), kind }
    }

    /// The same error with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same error as one of this kind.
    #[must_use]
    pub fn of_kind(mut self, kind: InputErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Whether a name is not known, so that another name may help.
    pub fn is_unknown(&self) -> bool {
        self.kind == InputErrorKind::Unknown
    }

    /// Whether every value is valid, but not their combination.
    pub fn is_unsupported(&self) -> bool {
        self.kind == InputErrorKind::Unsupported
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}

/// Text that cannot be read as what it stands for: a word of an option, a quantity with its unit.
///
/// ```
/// use bellwether_core::{ParseError, ParseErrorKind};
/// let error = ParseError::one_of("policy", "gandva", ["fifo", "gandiva"]);
/// let message = "invalid policy \"gandva\": expected one of fifo, gandiva; did you mean `gandiva`?";
/// assert_eq!(error.to_string(), message);
/// assert_eq!(error.kind, ParseErrorKind::Unknown(vec!["fifo".into(), "gandiva".into()]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// What the text stands for, such as `policy`.
    pub what: String,
    /// The text.
    pub text: String,
    /// What would be right, to be said after "expected".
    pub expected: String,
    /// What kind of error it is.
    pub kind: ParseErrorKind,
}

/// A kind of [`ParseError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// The text has another form.
    Malformed,
    /// The text has the right form, but its value is too small or too large.
    OutOfRange,
    /// The text is a name, but none of these.
    Unknown(Vec<String>),
}

impl ParseError {
    /// `text` does not have the form of a `what`.
    pub fn new(what: impl Into<String>, text: impl fmt::Display, expected: impl Into<String>) -> ParseError {
        let (text, kind) = (text.to_string(), ParseErrorKind::Malformed);
        ParseError { what: what.into(), text, expected: expected.into(), kind }
    }

    /// `text` is a `what`, but too small or too large.
    pub fn out_of_range(
        what: impl Into<String>,
        text: impl fmt::Display,
        expected: impl Into<String>,
    ) -> ParseError {
        ParseError { kind: ParseErrorKind::OutOfRange, ..ParseError::new(what, text, expected) }
    }

    /// `text` is none of the names `known`.
    pub fn one_of(
        what: impl Into<String>,
        text: &str,
        known: impl IntoIterator<Item: AsRef<str>>,
    ) -> ParseError {
        let mut known: Vec<String> = known.into_iter().map(|name| name.as_ref().to_string()).collect();
        known.dedup();
        let error = ParseError::new(what, text, format!("one of {}", known.join(", ")));
        ParseError { kind: ParseErrorKind::Unknown(known), ..error }
    }

    /// The same error as that of a user's input at `place`.
    pub fn at(self, place: impl Into<String>) -> InputError {
        let error = InputError::new(place, self.message());
        match self.kind {
            ParseErrorKind::Unknown(_) => error
                .hint(self.nearest().map_or_else(String::new, |near| format!("did you mean `{near}`?")))
                .of_kind(InputErrorKind::Unknown),
            ParseErrorKind::Malformed | ParseErrorKind::OutOfRange => error,
        }
    }

    /// The known name that is spelt most like the text, if any is near.
    pub fn nearest(&self) -> Option<&str> {
        let ParseErrorKind::Unknown(known) = &self.kind else { return None };
        nearest(&self.text, known).map(String::as_str)
    }

    /// The message without the nearest name.
    fn message(&self) -> String {
        format!("invalid {} {:?}: expected {}", self.what, self.text, self.expected)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        self.nearest().map_or(Ok(()), |near| write!(f, "; did you mean `{near}`?"))
    }
}

impl std::error::Error for ParseError {}
