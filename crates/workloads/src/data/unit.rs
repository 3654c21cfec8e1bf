//! Rows that are computed together.

use bellwether_core::job::Separator;

/// Some rows of a file, as they stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// Number of the first one, from 0.
    pub first: u64,
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Line on which they begin, from 1, where they stand on lines.
    pub(super) line: u64,
    /// What stands between two fields of them.
    pub(super) separator: Separator,
    /// Fields of each.
    pub(super) columns: usize,
    /// The field that holds a label, which is not looked at.
    pub(super) label: Option<usize>,
}
