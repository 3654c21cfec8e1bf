//! The lines of a ledger, and what may be wrong with them.

use std::io::{self, BufRead, BufReader, Read};

use super::Line;

/// No line is longer, in bytes: a job file is at most a mebibyte, and a burst of decisions is shorter than this.
const LINE_MAX_BYTES: u64 = 64 << 20;

/// Why a ledger cannot be opened as it is.
#[derive(Debug)]
pub(super) enum Unread {
    /// Whatever keeps it fails.
    Store(io::Error),
    /// A line is not what it should be: its number, and what is wrong.
    Line(u64, String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread::Store(error)
    }
}

impl From<Unread> for io::Error {
    fn from(unread: Unread) -> io::Error {
        match unread {
            Unread::Store(error) => error,
            Unread::Line(number, what) => {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number} {what}"))
            }
        }
    }
}

/// The entry in a line.
pub(super) fn parse(text: &[u8]) -> Result<Line, String> {
    serde_json::from_slice(text).map_err(|error| format!("is not an entry: {error}"))
}

/// Takes the number and the text of a line.
type EachText<'a> = dyn FnMut(u64, &[u8]) -> Result<(), Unread> + 'a;

/// Gives whole lines to `each` with their numbers, and says how many bytes they were.
pub(super) fn lines(from: impl Read, each: &mut EachText<'_>) -> Result<u64, Unread> {
    let mut reader = BufReader::with_capacity(1 << 16, from);
    let (mut whole, mut number, mut text) = (0, 0_u64, Vec::new());
    loop {
        text.clear();
        number += 1;
        let length = Read::take(&mut reader, LINE_MAX_BYTES).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            let is_torn = (length as u64) < LINE_MAX_BYTES;
            return if is_torn { Ok(whole) } else { Err(Unread::Line(number, "is too long".into())) };
        }
        each(number, &text)?;
        whole += length as u64;
    }
}
