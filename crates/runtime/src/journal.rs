//! The journal of a run: JSON lines, appended as things happen, read back by a coordinator that restarts.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_core::record::{Event, Line};

use crate::append::{Appender, Medium};
use crate::membership::coordinator::Resumed;

mod ledger;

pub use ledger::{Ledger, Stretch, ledger};

/// Seconds since the Unix epoch: the clock of a journal's lines.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// More lines than this wait for no disk; those that neither a restart nor the ledger needs go first.
const WAITING_MAX: usize = 10_000;

/// An open journal. Lines that its disk does not take wait in memory, and are written first once it does.
#[derive(Debug)]
pub struct Journal<M = File> {
    appender: Appender<M>,
    waiting: VecDeque<Line>,
    /// Lines that found no room among those that wait.
    dropped: u64,
}

impl Journal {
    /// Opens `path` for appending. A last line that a crash cut short is removed.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn open(path: &Path) -> io::Result<Journal> {
        Appender::open(path).map(Journal::over)
    }

    /// Makes what was written durable, from a thread of its own: a power cut after that costs none of it. Nobody waits,
    /// and a system that refuses costs no more than the guarantee.
    pub fn sync_in_background(&self) {
        if let Ok(file) = self.appender.again() {
            let _ = std::thread::Builder::new().name("sync".into()).spawn(move || file.sync_data());
        }
    }

    /// The same at once.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn sync(&self) -> io::Result<()> {
        self.appender.again()?.sync_data()
    }
}

impl<M: Medium> Journal<M> {
    fn over(appender: Appender<M>) -> Journal<M> {
        Journal { appender, waiting: VecDeque::new(), dropped: 0 }
    }

    /// Appends an event with the time at which it happened.
    ///
    /// # Errors
    ///
    /// As the file system says; the line waits then for the next call of this or of [`Journal::flush`].
    pub fn write(&mut self, time_s: f64, event: &Event) -> io::Result<()> {
        self.wait(Line { time_s, event: event.clone() });
        self.flush()
    }

    /// Lines that the disk did not take yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Writes what waits, oldest first.
    ///
    /// # Errors
    ///
    /// As the file system says; what could not be written still waits.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.front() {
            self.appender.append(&text(line)?)?;
            self.waiting.pop_front();
        }
        if self.dropped > 0 {
            let message = format!("{} lines were dropped: the disk took none for too long", self.dropped);
            self.appender.append(&text(&Line { time_s: now_s(), event: Event::Warning { message } })?)?;
            self.dropped = 0;
        }
        Ok(())
    }

    fn wait(&mut self, line: Line) {
        if let Some(last) = self.waiting.back_mut()
            && joined(&mut last.event, &line.event)
        {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            let needless = self.waiting.iter().position(|line| !is_needed(&line.event));
            let at = needless.unwrap_or(0);
            self.waiting.remove(at);
            self.dropped += 1;
            // What it kept apart may belong together.
            if let Some(next) = self.waiting.get(at).map(|line| line.event.clone())
                && let Some(before) = at.checked_sub(1)
                && joined(&mut self.waiting[before].event, &next)
            {
                self.waiting.remove(at);
            }
        }
        self.waiting.push_back(line);
    }
}

fn text(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Makes one of two commits that follow each other; says whether it did.
fn joined(last: &mut Event, next: &Event) -> bool {
    match (last, next) {
        (
            Event::Committed { last, accumulation, .. },
            Event::Committed { first, last: end, accumulation: same },
        ) if *first == *last + 1 && accumulation == same => {
            *last = *end;
            true
        }
        _ => false,
    }
}

/// Whether a coordinator that takes over, or whoever proves the ledger, cannot do without it.
fn is_needed(event: &Event) -> bool {
    matches!(
        event,
        Event::CoordinatorStarted { .. }
            | Event::TaskKnown { .. }
            | Event::Membership { .. }
            | Event::Committed { .. }
            | Event::RolledBack { .. }
            | Event::Checkpointed { .. }
            | Event::Ended { .. }
    )
}

/// What a journal holds.
#[derive(Debug, Default)]
pub struct Content {
    /// Its events, in order.
    pub lines: Vec<Line>,
    /// What is none.
    pub unreadable: Vec<Unreadable>,
}

impl Content {
    /// What a restarted coordinator must know; nothing of a run that had not begun.
    pub fn resumed(&self) -> Option<Resumed> {
        let mut resumed = resumed(&self.lines);
        if !self.unreadable.is_empty() {
            // They may have given numbers away, which are never given twice.
            resumed.epoch += PROPOSALS_MAX;
            resumed.last_worker += NUMBERS_SKIPPED;
        }
        (!self.lines.is_empty() || !self.unreadable.is_empty()).then_some(resumed)
    }
}

/// A line of a journal that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which: the first is 1.
    pub number: u64,
    /// Why.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} cannot be read and is left out: {}", self.number, self.why)
    }
}

/// Reads the events of a journal. What cannot be read is left out, see [`read_all`].
///
/// # Errors
///
/// As the file system says.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    read_all(path).map(|content| content.lines)
}

/// Reads a journal, and says what in it cannot be read: damage, a part of a line, an event that this release does not
/// know. A last line without its end is ignored.
///
/// # Errors
///
/// As the file system says.
pub fn read_all(path: &Path) -> io::Result<Content> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut content, mut text, mut number) = (Content::default(), Vec::new(), 0);
    loop {
        text.clear();
        number += 1;
        if reader.read_until(b'\n', &mut text)? == 0 || text.last() != Some(&b'\n') {
            return Ok(content);
        }
        match serde_json::from_slice(&text) {
            Ok(line) => content.lines.push(line),
            Err(error) => {
                content.unreadable.push(Unreadable { number, why: error.to_string() });
                content.lines.extend(glued(&text));
            }
        }
    }
}

/// The whole line behind a torn one: earlier releases went on in the same line once the disk had room again.
fn glued(text: &[u8]) -> Option<Line> {
    const BEGIN: &[u8] = br#"{"time_s":"#;
    let at = text.windows(BEGIN.len()).rposition(|window| window == BEGIN).filter(|at| *at > 0)?;
    serde_json::from_slice(&text[at..]).ok()
}

/// Follows a journal that grows.
#[derive(Debug)]
pub struct Tail(crate::tail::Tail);

impl Tail {
    /// From the first line of the run in `folder` on; the file may not be there yet.
    pub fn new(folder: &Path) -> Tail {
        Tail(crate::tail::Tail::new(folder.join("journal.jsonl")))
    }

    /// See [`crate::tail::Tail::skip_to_last`].
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn skip_to_last(&mut self, lines: usize) -> io::Result<()> {
        self.0.skip_to_last(lines)
    }

    /// Lines that were added, a chunk of them at most; none when there are no more. What is no event that this release
    /// knows is left out.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        self.0.values()
    }
}

/// More memberships than one coordinator proposes between two that begin.
const PROPOSALS_MAX: u64 = 1000;

/// More workers than lines that cannot be read have named.
const NUMBERS_SKIPPED: u64 = 1000;

impl Resumed {
    /// Of a run whose journal is gone: numbers that it may have given away are not given again.
    pub(crate) fn of_lost_journal() -> Resumed {
        Resumed { epoch: PROPOSALS_MAX * NUMBERS_SKIPPED, last_worker: NUMBERS_SKIPPED, ..Resumed::default() }
    }
}

/// What a restarted coordinator must know.
pub fn resumed(lines: &[Line]) -> Resumed {
    let mut resumed = Resumed::default();
    for line in lines {
        match &line.event {
            Event::Membership { epoch, workers, shadows, accumulation, .. } => {
                resumed.accumulation = *accumulation;
                resumed.epoch = resumed.epoch.max(*epoch);
                resumed.active = workers.clone();
                let newest = workers.iter().chain(shadows).copied().max().unwrap_or(0);
                resumed.last_worker = resumed.last_worker.max(newest);
            }
            Event::WorkerStarted { worker: number }
            | Event::WorkerAttached { worker: number, .. }
            | Event::ServerStarted { server: number }
            | Event::ServerAttached { server: number, .. } => {
                resumed.last_worker = resumed.last_worker.max(*number);
            }
            // Only memberships that began are in the journal; the numbers of those proposed stay theirs.
            Event::CoordinatorStarted { .. } => resumed.epoch += PROPOSALS_MAX,
            Event::Committed { last, .. } => resumed.committed = last + 1,
            Event::RolledBack { to } => resumed.committed = *to,
            Event::Quarantined { worker, .. } => drop(resumed.quarantined.insert(*worker)),
            Event::Ended { .. } => resumed.active.clear(),
            _ => {}
        }
    }
    resumed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::append::tests::Disk;

    fn committed(first: u64) -> Event {
        Event::Committed { first, last: first, accumulation: 1 }
    }

    fn commits(content: &Content) -> Vec<(u64, u64)> {
        let span = |line: &Line| match line.event {
            Event::Committed { first, last, .. } => Some((first, last)),
            _ => None,
        };
        content.lines.iter().filter_map(span).collect()
    }

    /// What is on the disk, as a reader sees it.
    fn content(disk: &Disk) -> Content {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        std::fs::write(&path, &disk.content).unwrap();
        read_all(&path).unwrap()
    }

    /// Ten steps, of which the disk takes four at first.
    fn torn(is_stubborn: bool) -> Journal<Disk> {
        let disk = Disk { room: 4 * 60, is_stubborn, ..Disk::default() };
        let mut journal = Journal::over(Appender::new(disk));
        let results: Vec<bool> = (0..10).map(|step| journal.write(1e9, &committed(step)).is_ok()).collect();
        assert!(results[0] && !results[9], "{results:?}");
        journal
    }

    #[test]
    fn what_a_full_disk_refuses_is_written_first_once_it_has_room() {
        for is_stubborn in [false, true] {
            let mut journal = torn(is_stubborn);
            assert!(journal.waiting() > 0);
            journal.appender_mut().room = 10_000;
            journal.write(2e9, &Event::RolledBack { to: 3 }).unwrap();
            let content = content(journal.appender_mut());
            assert_eq!(content.unreadable.len(), usize::from(is_stubborn), "{:?}", content.unreadable);
            let commits = commits(&content);
            assert!(commits.windows(2).all(|pair| pair[1].0 == pair[0].1 + 1), "{commits:?}");
            assert_eq!((commits[0].0, commits[commits.len() - 1].1), (0, 9));
            assert_eq!(content.lines.last().unwrap().event, Event::RolledBack { to: 3 });
        }
    }

    #[test]
    fn of_more_than_can_wait_what_the_ledger_needs_stays() {
        let mut journal = Journal::over(Appender::new(Disk::default()));
        for step in 0..2 * WAITING_MAX as u64 {
            journal.write(1e9, &committed(step)).unwrap_err();
            journal.write(1e9, &Event::WorkerStarted { worker: step }).unwrap_err();
        }
        assert!(journal.waiting() <= WAITING_MAX);
        journal.appender_mut().room = usize::MAX;
        journal.flush().unwrap();
        let content = content(journal.appender_mut());
        let warned =
            |line: &Line| matches!(&line.event, Event::Warning { message } if message.contains("dropped"));
        assert!(content.lines.last().is_some_and(warned));
        let commits = commits(&content);
        assert!(commits.windows(2).all(|pair| pair[1].0 == pair[0].1 + 1), "{commits:?}");
        assert_eq!((commits[0].0, commits[commits.len() - 1].1), (0, 2 * WAITING_MAX as u64 - 1));
    }

    #[test]
    fn a_line_that_an_earlier_release_glued_to_a_torn_one_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let whole = |step| text(&Line { time_s: 1.5, event: committed(step) }).unwrap();
        let damaged =
            [&whole(0), &whole(1)[..17], &whole(2), b"\0\0\n\xff\xfe\n".as_slice(), &whole(3)].concat();
        std::fs::write(&path, &damaged).unwrap();
        let content = read_all(&path).unwrap();
        assert_eq!(commits(&content), [(0, 0), (2, 2), (3, 3)]);
        let numbers: Vec<u64> = content.unreadable.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 3, 4]);
        assert!(content.unreadable[0].to_string().starts_with("line 2 cannot be read and is left out: "));
    }

    impl Journal<Disk> {
        fn appender_mut(&mut self) -> &mut Disk {
            self.appender.medium_mut()
        }
    }
}
