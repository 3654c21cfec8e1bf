//! The journal of a run: JSON lines, appended as things happen, read back by a coordinator that restarts.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_core::record::{Event, Line};

use crate::append::{Appender, Medium};

mod held;
mod history;
mod ledger;
mod point;
mod reader;

use held::Held;
pub use history::{Ending, Evaluation, RunHistory, Task};
pub use ledger::{Audit, Ledger, LedgerError, Segment, ledger};
pub use point::{ResumePoint, follow, history};
pub use reader::{Damage, Entry, Reader, Unreadable, read};

/// Seconds since the Unix epoch: the clock of a journal's lines.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// More lines than this wait for no disk; those that neither a restart nor the ledger needs go first.
const WAITING_MAX: usize = 10_000;

/// An open journal. Lines that its disk does not take wait in memory, and are written first once it does. Of a run
/// that is older than a minute commits wait for those that follow, a second at most: [`Journal::flush_due`] writes
/// them then.
#[derive(Debug)]
pub struct Journal<M = File> {
    appender: Appender<M>,
    waiting: VecDeque<Line>,
    held: Held,
    /// Lines that found no room among those that wait.
    dropped: u64,
    /// What the lines in the file tell.
    history: RunHistory,
    /// Whether the file may hold a part of a line of which the history knows nothing.
    has_rest: bool,
}

impl Journal {
    /// Opens `path` for appending. A last line that a crash cut short is removed.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn open(path: &Path) -> io::Result<Journal> {
        Journal::resume(path, RunHistory::default())
    }

    /// The same for a journal that tells this so far.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn resume(path: &Path, history: RunHistory) -> io::Result<Journal> {
        Ok(Journal { history, ..Journal::over(Appender::open(path)?) })
    }

    /// What its lines tell, where it was opened with what they told before.
    pub fn history(&self) -> &RunHistory {
        &self.history
    }

    /// The point at which it is; none while lines wait.
    pub fn resume_point(&self) -> Option<ResumePoint> {
        let is_written = self.waiting.is_empty() && self.dropped == 0 && !self.has_rest;
        let bytes = self.appender.length().ok().filter(|_| is_written)?;
        Some(ResumePoint::new(bytes, self.history.clone()))
    }

    /// Makes what was written durable, and then keeps a point from which it can be read on, if `point` names a file:
    /// from a thread of its own, which is returned. The caller does not wait, and a system that refuses costs no more
    /// than the guarantee.
    pub fn sync_in_background(&self, point: Option<PathBuf>) -> Option<JoinHandle<()>> {
        let (file, point) = (self.appender.again().ok()?, point.zip(self.resume_point()));
        let work = move || {
            let synced = file.sync_data();
            if let (Ok(()), Some((path, point))) = (synced, point) {
                let _ = point.keep(&file, &path);
            }
        };
        std::thread::Builder::new().name("sync".into()).spawn(work).ok()
    }

    /// The same at once.
    ///
    /// # Errors
    ///
    /// Returns an error if what was written cannot be made durable. A point that cannot be kept does not count as an
    /// error.
    pub fn sync(&self, point: &Path) -> io::Result<()> {
        let file = self.appender.again()?;
        file.sync_data()?;
        if let Some(kept) = self.resume_point() {
            let _ = kept.keep(&file, point);
        }
        Ok(())
    }
}

impl<M: Medium> Journal<M> {
    fn over(appender: Appender<M>) -> Journal<M> {
        let history = RunHistory::default();
        let (waiting, held) = (VecDeque::new(), Held::default());
        Journal { appender, waiting, held, dropped: 0, history, has_rest: false }
    }

    /// Appends an event with the time at which it happened.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; the line waits then for the next call of this or of [`Journal::flush`].
    pub fn write(&mut self, time_s: f64, event: &Event) -> io::Result<()> {
        self.held.take(Line { time_s, event: event.clone() }).for_each(|line| self.wait(line));
        self.write_waiting()
    }

    /// Writes commits that have waited for long enough for the next ones.
    ///
    /// # Errors
    ///
    /// Same errors as [`Journal::write`].
    pub fn flush_due(&mut self, now_s: f64) -> io::Result<()> {
        match self.held.due(now_s) {
            Some(line) => {
                self.wait(line);
                self.write_waiting()
            }
            None => Ok(()),
        }
    }

    /// Lines that the disk did not take yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Writes what waits, oldest first.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; what could not be written still waits.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(line) = self.held.release() {
            self.wait(line);
        }
        self.write_waiting()
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.pop_front() {
            if let Err(error) = self.append(&line) {
                self.waiting.push_front(line);
                return Err(error);
            }
        }
        if self.dropped > 0 {
            let message = format!("{} lines were dropped: the disk took none for too long", self.dropped);
            self.append(&Line { time_s: now_s(), event: Event::Warning { message } })?;
            self.dropped = 0;
        }
        Ok(())
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        self.has_rest |= self.appender.is_torn();
        self.appender.append(&text(line)?)?;
        self.history.take_line(line);
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

/// Whether a coordinator that takes over, or the check of the ledger, cannot do without it.
fn is_needed(event: &Event) -> bool {
    matches!(
        event,
        Event::CoordinatorStarted { .. }
            | Event::Restored { .. }
            | Event::TaskKnown { .. }
            | Event::Membership { .. }
            | Event::Committed { .. }
            | Event::RolledBack { .. }
            | Event::Checkpointed { .. }
            | Event::Verdict { .. }
            | Event::Ended { .. }
    )
}

/// Follows a journal that grows.
#[derive(Debug)]
pub struct Tail(crate::tail::Tail);

impl Tail {
    /// From the first line of the journal at `path` on; the file may not be there yet.
    pub fn of(path: PathBuf) -> Tail {
        Tail(crate::tail::Tail::new(path))
    }

    /// See [`crate::tail::Tail::skip_to_last`].
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn skip_to_last(&mut self, lines: usize) -> io::Result<()> {
        self.0.skip_to_last(lines)
    }

    /// Lines that were added, a chunk of them at most; empty when there are no more. Events that this release does not
    /// know are left out.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::append::tests::Disk;

    fn committed(first: u64) -> Event {
        Event::Committed { first, last: first, accumulation: 1 }
    }

    /// What is on a disk, as a reader sees it.
    #[derive(Default)]
    struct Content {
        lines: Vec<Line>,
        unreadable: Vec<Unreadable>,
    }

    impl Content {
        fn of(bytes: &[u8]) -> Content {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            std::fs::write(&path, bytes).unwrap();
            let mut content = Content::default();
            for entry in Reader::open(&path).unwrap() {
                match entry.unwrap() {
                    Entry::Line(line) => content.lines.push(line),
                    Entry::Unreadable(unreadable) => content.unreadable.push(unreadable),
                }
            }
            content
        }

        fn commits(&self) -> Vec<(u64, u64)> {
            let span = |line: &Line| match line.event {
                Event::Committed { first, last, .. } => Some((first, last)),
                _ => None,
            };
            self.lines.iter().filter_map(span).collect()
        }
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
            let content = Content::of(&journal.appender_mut().content);
            assert_eq!(content.unreadable.len(), usize::from(is_stubborn), "{:?}", content.unreadable);
            let commits = content.commits();
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
        let content = Content::of(&journal.appender_mut().content);
        let warned =
            |line: &Line| matches!(&line.event, Event::Warning { message } if message.contains("dropped"));
        assert!(content.lines.last().is_some_and(warned));
        let commits = content.commits();
        assert!(commits.windows(2).all(|pair| pair[1].0 == pair[0].1 + 1), "{commits:?}");
        assert_eq!((commits[0].0, commits[commits.len() - 1].1), (0, 2 * WAITING_MAX as u64 - 1));
    }

    #[test]
    fn a_line_that_an_earlier_release_glued_to_a_torn_one_is_found() {
        let whole = |step| text(&Line { time_s: 1.5, event: committed(step) }).unwrap();
        let damaged =
            [&whole(0), &whole(1)[..17], &whole(2), b"\0\0\n\xff\xfe\n".as_slice(), &whole(3)].concat();
        let content = Content::of(&damaged);
        assert_eq!(content.commits(), [(0, 0), (2, 2), (3, 3)]);
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
