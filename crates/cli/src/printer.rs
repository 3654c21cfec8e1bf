//! Owns the streams: data to stdout, all else to stderr. Nothing else in the program prints.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// Writes for people and for programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    /// Whether stderr is a terminal, where a line can be rewritten.
    pub(crate) interactive: bool,
    /// Whether nobody wants to hear how far a run is.
    pub(crate) quiet: bool,
}

impl Printer {
    pub(crate) fn new() -> Printer {
        let quiet = std::env::var_os("BELLWETHER_NO_PROGRESS").is_some();
        Printer { interactive: std::io::stderr().is_terminal() && !quiet, quiet }
    }

    /// The result of a verb. A reader that hung up wants no more of it, and is no fault.
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
        self.note(format_args!("error: {text}"));
    }
}
