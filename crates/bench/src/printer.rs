//! Owns the streams: the report goes to stdout, all else to stderr. Nothing else in the program prints.

use std::fmt::Display;
use std::io::Write;

/// Writes for people and for programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer;

impl Printer {
    /// The report. A reader that hung up wants no more; that does not count as a fault.
    pub(crate) fn out(&self, text: impl Display) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// What goes on meanwhile.
    pub(crate) fn note(&self, text: impl Display) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}
