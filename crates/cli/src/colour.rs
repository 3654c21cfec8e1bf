//! When output has colours.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_last_word() {
        assert!(When::Always.applies(false) && !When::Never.applies(true) && !When::Auto.applies(false));
    }
}
