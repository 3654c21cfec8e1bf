//! What is wrong with a field of a custom resource.

use std::fmt;

use bellwether_core::InputError;

/// Something wrong with a custom resource, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, as `spec.elastic.maxReplicas`.
    pub field: String,
    /// What is wrong, in one sentence.
    pub what: String,
    /// What to do about it; empty where the sentence says it.
    pub hint: String,
}

impl FieldError {
    /// An error at `field`, without a hint.
    pub fn new(field: impl Into<String>, what: impl fmt::Display) -> FieldError {
        FieldError { field: field.into(), what: what.to_string(), hint: String::new() }
    }

    /// The same error with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> FieldError {
        self.hint = hint.into();
        self
    }

    /// An error about user input whose place is a key below `field`.
    pub fn below(field: &str, error: InputError) -> FieldError {
        let InputError { what, place, hint, .. } = error;
        FieldError { field: format!("{field}.{place}"), what, hint }
    }

    /// All of them as one message, a line each.
    ///
    /// ```
    /// use bellwether_operator::crd::FieldError;
    /// let missing = FieldError::new("spec.job", "it is missing").hint("write a job");
    /// let errors = [missing, FieldError::new("spec.work", "x")];
    /// assert_eq!(FieldError::message(&errors), "spec.job: it is missing (write a job)\nspec.work: x");
    /// ```
    pub fn message(errors: &[FieldError]) -> String {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldError {}
