//! Colours of a terminal, where it has them and somebody wants them.

use std::env;

use clap::ValueEnum;

/// When output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    /// As it should be.
    Good,
    /// Worth a look.
    Doubtful,
    /// Wrong.
    Bad,
    /// What is chosen of several.
    Chosen,
}

impl When {
    /// Whether a stream has colours; `is_terminal` says what it is.
    pub(crate) fn applies(self, is_terminal: bool) -> bool {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                is_terminal && !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

impl Colour {
    /// `text` in this colour.
    pub(crate) fn paint(self, text: &str) -> String {
        let code = match self {
            Colour::Good => "32",
            Colour::Doubtful => "33",
            Colour::Bad => "1;31",
            Colour::Chosen => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Characters of a text that are seen: escape sequences are not.
pub(crate) fn width(text: &str) -> usize {
    let mut hidden = false;
    let seen = |letter: &char| {
        let was_hidden = hidden;
        hidden = *letter == '\x1b' || (hidden && *letter != 'm');
        !was_hidden && !hidden
    };
    text.chars().filter(seen).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_room() {
        assert_eq!(width("← knee"), 6);
        assert_eq!(width(&Colour::Bad.paint("failed")), 6);
        assert_eq!(width(&format!("a {} b", Colour::Good.paint("x"))), 5);
    }

    #[test]
    fn a_user_has_the_last_word() {
        assert!(When::Always.applies(false) && !When::Never.applies(true) && !When::Auto.applies(false));
    }
}
