//! A resume point: what a journal tells up to some line, so that a reader need not start at its beginning.
//!
//! A point is an aid and no record. It is used only if it is whole, of this release, and its journal still holds what
//! it held there; otherwise the whole journal is read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Tail;
use super::history::RunHistory;
use super::reader::Reader;
use crate::checkpoint::write_atomically;
use crate::tail;

/// Changes with what a history holds, or makes of its lines.
const FORMAT: u32 = 1;

/// Bytes of the journal before the point that must be the same.
const END_BYTES: u64 = 1 << 16;

/// What a journal tells up to here.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResumePoint {
    format: u32,
    release: String,
    /// Where in the journal it is.
    bytes: u64,
    /// Digest of the journal's last bytes before it.
    end: String,
    history: RunHistory,
}

impl ResumePoint {
    pub(super) fn new(bytes: u64, history: RunHistory) -> ResumePoint {
        let release = env!("CARGO_PKG_VERSION").into();
        ResumePoint { format: FORMAT, release, bytes, end: String::new(), history }
    }

    /// Writes it to `path`, of this journal. Should be called after what is before it was made durable.
    pub(super) fn keep(mut self, journal: &File, path: &Path) -> io::Result<()> {
        self.end = end(journal, self.bytes)?;
        let text = serde_json::to_string(&self)?;
        let temporary = path.with_extension("part");
        let digest = blake3::hash(text.as_bytes()).to_hex();
        write_atomically(&temporary, path, format!("{digest}\n{text}").as_bytes())
    }

    fn read(path: &Path, journal: &Path) -> Option<ResumePoint> {
        let content = fs::read_to_string(path).ok()?;
        let (digest, text) = content.split_once('\n')?;
        let point: ResumePoint = serde_json::from_str(text).ok()?;
        let is_ours = digest == blake3::hash(text.as_bytes()).to_hex().as_str()
            && (point.format, point.release.as_str()) == (FORMAT, env!("CARGO_PKG_VERSION"));
        let end = end(&File::open(journal).ok()?, point.bytes).ok()?;
        (is_ours && end == point.end).then_some(point)
    }
}

/// Digest of the last of the first `bytes` bytes of a journal.
fn end(journal: &File, bytes: u64) -> io::Result<String> {
    let length = bytes.min(END_BYTES);
    let mut end = vec![0; length as usize];
    journal.read_exact_at(&mut end, bytes - length)?;
    Ok(blake3::hash(&end).to_hex().to_string())
}

/// What the journal at `path` tells, read from the resume point at `point` on where there is one that fits.
///
/// # Errors
///
/// Returns the file system's error; a missing journal is an error.
pub fn history(path: &Path, point: &Path) -> io::Result<RunHistory> {
    let (mut history, mut reader) = match ResumePoint::read(point, path) {
        Some(point) => {
            let reader = Reader::open_behind(path, point.bytes, point.history.lines())?;
            (point.history, reader)
        }
        None => (RunHistory::default(), Reader::open(path)?),
    };
    for entry in reader.by_ref() {
        history.take(entry?);
    }
    history.set_lines(reader.number());
    Ok(history)
}

/// Follows the journal at `path` from the resume point at `point` on, if one fits, and else from its first line: what
/// the journal tells up to there, and what comes next.
pub fn follow(path: PathBuf, point: &Path) -> (RunHistory, Tail) {
    match ResumePoint::read(point, &path) {
        Some(ResumePoint { bytes, history, .. }) => (history, Tail(tail::Tail::from(path, bytes))),
        None => (RunHistory::default(), Tail::of(path)),
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::record::Event;

    use super::*;
    use crate::journal::Journal;

    /// A journal with this many commits, with some damage in it, and a point in its middle.
    fn kept(folder: &Path) -> RunHistory {
        let (journal, point) = (folder.join("journal"), folder.join("point"));
        fs::write(&journal, "damage\n").unwrap();
        let history = history(&journal, &point).unwrap();
        let mut writer = Journal::resume(&journal, history).unwrap();
        for step in 0..2000 {
            writer.write(1.5, &Event::Committed { first: step, last: step, accumulation: 1 }).unwrap();
            if step == 1000 {
                let file = File::open(&journal).unwrap();
                writer.resume_point().unwrap().keep(&file, &point).unwrap();
            }
        }
        writer.history().clone()
    }

    #[test]
    fn what_is_read_from_a_point_on_is_what_the_whole_journal_tells() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, point) = (folder.path().join("journal"), folder.path().join("point"));
        let written = kept(folder.path());
        assert!(ResumePoint::read(&point, &journal).is_some_and(|point| point.history.committed() == 1001));
        assert_eq!(history(&journal, &point).unwrap(), written);
        assert_eq!(history(&journal, &folder.path().join("none")).unwrap(), written);
        // Damage behind the point has its number in the whole journal.
        let mut file = File::options().append(true).open(&journal).unwrap();
        io::Write::write_all(&mut file, b"more\n").unwrap();
        let numbers = history(&journal, &point)
            .unwrap()
            .damage
            .first
            .iter()
            .map(|line| line.number)
            .collect::<Vec<_>>();
        assert_eq!(numbers, [1, 2002]);
    }

    #[test]
    fn a_journal_is_followed_from_its_point_on() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, point) = (folder.path().join("journal"), folder.path().join("point"));
        let written = kept(folder.path());
        for (point, first_step) in [(point, 1001), (folder.path().join("none"), 0)] {
            let (mut history, mut tail) = follow(journal.clone(), &point);
            assert_eq!(history.committed(), first_step);
            let mut lines = tail.read().unwrap();
            let is_first = matches!(lines[0].event, Event::Committed { first, .. } if first == first_step);
            assert!(is_first, "{:?}", lines[0]);
            while !lines.is_empty() {
                lines.iter().for_each(|line| history.take_line(line));
                lines = tail.read().unwrap();
            }
            assert_eq!(history.committed(), written.committed());
        }
        // There is no journal yet.
        let (history, mut tail) = follow(folder.path().join("later"), &journal);
        assert!(history == RunHistory::default() && tail.read().unwrap().is_empty());
    }

    #[test]
    fn a_point_that_is_damaged_or_of_another_journal_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, point) = (folder.path().join("journal"), folder.path().join("point"));
        let written = kept(folder.path());
        let whole = fs::read(&point).unwrap();
        for place in [0, 70, 100, whole.len() / 2, whole.len() - 2] {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&point, &damaged).unwrap();
            assert!(ResumePoint::read(&point, &journal).is_none(), "byte {place}");
            assert_eq!(history(&journal, &point).unwrap(), written);
        }
        fs::write(&point, &whole[..whole.len() / 2]).unwrap();
        assert!(ResumePoint::read(&point, &journal).is_none());
        fs::write(&point, &whole).unwrap();
        let text = fs::read(&journal).unwrap();
        fs::write(&journal, &text[..text.len() / 4]).unwrap();
        assert!(ResumePoint::read(&point, &journal).is_none(), "the journal is shorter");
        let other = String::from_utf8(text).unwrap().replace("1.5", "2.5");
        fs::write(&journal, other).unwrap();
        assert!(ResumePoint::read(&point, &journal).is_none(), "it is another journal");
        fs::remove_file(&journal).unwrap();
        assert!(history(&journal, &point).is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
    }
}
