//! Colours of a terminal.

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// As it should be.
    Good,
    /// Worth a look.
    Doubtful,
    /// Wrong.
    Bad,
    /// What is chosen of several.
    Chosen,
}

impl Colour {
    /// `text` in this colour, by escape sequences.
    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Colour::Good => "32",
            Colour::Doubtful => "33",
            Colour::Bad => "1;31",
            Colour::Chosen => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The number of characters of `text` that are seen: escape sequences are not.
pub fn width(text: &str) -> usize {
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
}
