//! A ledger with lines that are damaged, or that cannot be true after one that is missing: what can be kept of it.

use std::collections::BTreeSet;
use std::io::{self, Read};

use super::lines::{Unread, lines, parse};
use super::{Entry, Line};

/// Lines that are named; of others only the number of them is told.
const NAMED: usize = 20;

/// What a ledger has lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    /// How many lines were set aside.
    pub lines: u64,
    /// The numbers of the first of them, and what was wrong.
    pub first: Vec<(u64, String)>,
    /// Where the ledger is kept as it was.
    pub kept_as: String,
}

/// Makes something of a line.
type Each<'a, S> = dyn FnMut(&mut Option<S>, &Line) -> Result<(), String> + 'a;

/// A ledger without what cannot be.
type Kept<S> = ((Vec<u8>, Damage), Option<S>);

/// Keeps every line that can be true after those kept before it.
///
/// A line whose time is later than that of the next one, which fits those before both, has a wrong time: else all that
/// comes after it would have to go.
pub(super) fn repair<S>(from: Box<dyn Read>, each: &mut Each<'_, S>) -> io::Result<Kept<S>> {
    let mut mender = Mender {
        made: None,
        bytes: Vec::new(),
        damage: Damage::default(),
        last_s: 0.0,
        versions: BTreeSet::new(),
    };
    let mut before: Option<(u64, Vec<u8>, Line)> = None;
    lines(from, &mut |number, text| {
        let line = match mender.read(text) {
            Ok(line) => line,
            Err(what) => {
                mender.set_aside(number, what)?;
                return Ok(());
            }
        };
        if let Some((number, text, earlier)) = before.take() {
            mender.take(number, &text, &earlier, Some(line.time_s), each)?;
        }
        before = Some((number, text.to_vec(), line));
        Ok(())
    })?;
    if let Some((number, text, line)) = before {
        mender.take(number, &text, &line, None, each)?;
    }
    // Together with what it repairs: a daemon that dies now leaves nothing half known.
    let line = Line { time_s: mender.last_s, entry: Entry::Repaired { lines: mender.damage.lines } };
    each(&mut mender.made, &line).map_err(io::Error::other)?;
    serde_json::to_writer(&mut mender.bytes, &line)?;
    mender.bytes.push(b'\n');
    Ok(((mender.bytes, mender.damage), mender.made))
}

struct Mender<S> {
    made: Option<S>,
    bytes: Vec<u8>,
    damage: Damage,
    /// The time of the last line that was kept.
    last_s: f64,
    /// Versions of the program that wrote the ledger.
    versions: BTreeSet<String>,
}

impl<S> Mender<S> {
    fn read(&mut self, text: &[u8]) -> Result<Line, String> {
        let line = parse(text)?;
        if let Entry::Opened { version, .. }
        | Entry::Compacted { version, .. }
        | Entry::Reopened { version, .. } = &line.entry
        {
            self.versions.insert(version.clone());
        }
        Ok(line)
    }

    fn set_aside(&mut self, number: u64, what: String) -> Result<(), Unread> {
        if number == 1 {
            let what = format!(
                "is the first one, with the slots and the clock, and is damaged ({what}); if it says \
                 \"compacted\", ledger.jsonl.before beside it holds what was known until then; else move the folder \
                 of the ledger away to start over: each job is a run in a folder of its own, which \
                 `bellwether run --resume NAME` goes on with"
            );
            return Err(Unread::Line(number, what));
        }
        if let Some(other) = self.versions.iter().find(|version| *version != env!("CARGO_PKG_VERSION")) {
            let what = format!(
                "{what}; version {other} of this program was at work there: it may understand the line"
            );
            return Err(Unread::Line(number, what));
        }
        self.damage.lines += 1;
        if self.damage.first.len() < NAMED {
            self.damage.first.push((number, what));
        }
        Ok(())
    }

    fn take(
        &mut self,
        number: u64,
        text: &[u8],
        line: &Line,
        next_s: Option<f64>,
        each: &mut Each<'_, S>,
    ) -> Result<(), Unread> {
        if self.made.is_some() && next_s.is_some_and(|next_s| line.time_s > next_s && next_s >= self.last_s) {
            return self.set_aside(number, "has a time after that of the next line".into());
        }
        match each(&mut self.made, line) {
            Ok(()) => {
                self.last_s = line.time_s;
                self.bytes.extend_from_slice(text);
                Ok(())
            }
            Err(what) => self.set_aside(number, format!("cannot be: {what}")),
        }
    }
}
