//! Owns the streams: data to stdout, all else to stderr. Nothing else in the program prints.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use bellwether_render::colour::Colour;

use crate::colour::When;

/// Writes for people and for programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    /// Whether stderr is a terminal, where a line can be rewritten.
    pub(crate) interactive: bool,
    /// Whether progress is not shown.
    pub(crate) quiet: bool,
    /// Whether stdout and stderr have colours.
    colours: (bool, bool),
}

impl Printer {
    /// `when` says whether it has colours.
    pub(crate) fn new(when: When) -> Printer {
        let quiet = std::env::var_os("BELLWETHER_NO_PROGRESS").is_some();
        let (stdout, stderr) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        let colours = (when.applies(stdout), when.applies(stderr));
        Printer { interactive: stderr && !quiet, quiet, colours }
    }

    /// A part of a result, in a colour where there are any.
    pub(crate) fn painted(&self, text: &str, colour: Colour) -> String {
        if self.colours.0 { colour.paint(text) } else { text.to_owned() }
    }

    /// A result in which the lines that end with `mark` stand out.
    pub(crate) fn marked(&self, text: &str, mark: &str) -> String {
        let line = |line: &str| match line.ends_with(mark) {
            true => self.painted(line, Colour::Chosen),
            false => line.to_owned(),
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The result of a verb. A reader that hung up wants no more of it: that is not a fault.
    pub(crate) fn out(&self, text: impl Display) {
        self.line(text);
    }

    /// A line of a result that goes on; false when the reader hung up.
    pub(crate) fn line(&self, text: impl Display) -> bool {
        writeln!(std::io::stdout().lock(), "{text}").is_ok()
    }

    /// What goes on meanwhile.
    pub(crate) fn note(&self, text: impl Display) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Why it failed.
    pub(crate) fn error(&self, text: &impl Display) {
        let error = if self.colours.1 { Colour::Bad.paint("error:") } else { "error:".to_owned() };
        self.note(format_args!("{error} {text}"));
    }
}
