//! The run's two files of lines, its journal and its metrics, also while their disk takes none.

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_core::record::Event as Journaled;

use super::{Run, RunEvent};
use crate::append::Appender;
use crate::journal::{self, Damage, Journal, RunHistory};
use crate::run_dir::RunDir;

/// Time between two tries to write what waits, when nothing new comes.
const RETRY: Duration = Duration::from_secs(1);

/// More bytes of metrics than this wait for no disk.
const METRICS_WAITING_BYTES_MAX: usize = 4 << 20;

/// The journal and the metrics of a run.
pub(super) struct Lines {
    pub(super) journal: Journal,
    metrics: Metrics,
    /// The thread that makes the journal durable, or did so last.
    syncing: Option<JoinHandle<()>>,
    resume_point: PathBuf,
    /// Since when a line waits.
    waits_since: Option<Instant>,
    tried: Instant,
}

/// Lines of metrics that found no room wait as well, up to a bound.
struct Metrics {
    appender: Appender,
    waiting: Vec<u8>,
    dropped: u64,
}

impl Lines {
    pub(super) fn open(dir: &RunDir, history: RunHistory) -> io::Result<Lines> {
        let metrics =
            Metrics { appender: Appender::open(&dir.metrics_file())?, waiting: Vec::new(), dropped: 0 };
        let journal = Journal::resume(&dir.journal_file(), history)?;
        let resume_point = dir.resume_point_file();
        let (syncing, waits_since, tried) = (None, None, Instant::now());
        Ok(Lines { journal, metrics, syncing, resume_point, waits_since, tried })
    }

    /// What the journal tells so far.
    pub(super) fn history(&self) -> &RunHistory {
        self.journal.history()
    }

    /// Makes the journal durable, and keeps a resume point unless the last one is still being written. It does not
    /// block.
    pub(super) fn sync_in_background(&mut self) {
        let is_busy = self.syncing.as_ref().is_some_and(|thread| !thread.is_finished());
        let syncing = self.journal.sync_in_background((!is_busy).then(|| self.resume_point.clone()));
        if !is_busy {
            self.syncing = syncing;
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        if let Some(thread) = self.syncing.take() {
            // It writes the same file.
            let _ = thread.join();
        }
        self.journal.sync(&self.resume_point)
    }

    /// Whether everything is in the files.
    pub(super) fn are_written(&self) -> bool {
        self.journal.waiting() == 0 && self.metrics.waiting.is_empty()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tried = Instant::now();
        self.journal.flush()?;
        self.metrics.flush()
    }
}

impl Metrics {
    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.waiting.len() + text.len() <= METRICS_WAITING_BYTES_MAX {
            self.waiting.extend(text.as_bytes());
        } else {
            self.dropped += text.lines().count() as u64;
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.appender.append(&self.waiting)?;
            self.waiting = Vec::new();
        }
        Ok(())
    }
}

impl Run {
    /// What the journal's damage means for the run: a person hears of it, and the run goes on.
    pub(super) fn tell_damage(&mut self, damage: &Damage) {
        for line in &damage.first {
            let message = format!("{}: {line}", self.journal_path.display());
            self.write(&Journaled::Warning { message });
        }
        let more = damage.lines - damage.first.len() as u64;
        if more > 0 {
            let message = format!("{more} more lines cannot be read");
            self.write(&Journaled::Warning { message });
        }
    }

    /// Who the run is, and what is other than it was.
    pub(super) fn tell_past(&mut self) {
        if let Some(id) = self.past.id.clone() {
            self.write(&Journaled::RunIdentity { id });
        }
        if self.past.journal_lost {
            let message = format!(
                "{} is gone; the run goes on from its newest checkpoint, and nothing tells of the steps before that",
                self.journal_path.display()
            );
            self.write(&Journaled::Warning { message });
        }
        if let Some(reason) = self.past.plain_transport.clone() {
            self.write(&Journaled::PlainTransport { reason });
        }
        if let Some((before, now)) = self.past.accepted.clone() {
            self.write(&Journaled::OtherDataAccepted { before, now });
        }
    }

    pub(super) fn write(&mut self, event: &Journaled) {
        if let Journaled::Membership { step, workers, shadows, .. } = event {
            // A recovery may begin at an earlier boundary than the membership before it.
            self.sizes.retain(|(from, ..)| from < step);
            self.sizes.push((*step, workers.len(), shadows.len()));
        }
        if matches!(event, Journaled::Membership { .. }) && self.training_since.is_none() {
            self.training_since = Some((Instant::now(), self.machine.progress().committed()));
        }
        let written = self.lines.journal.write(journal::now_s(), event);
        self.note(written);
        self.observer.journal(event);
        self.direct(RunEvent::Journal(event));
    }

    /// Metrics are for people and models; a run is not stopped for them.
    pub(super) fn write_metrics(&mut self, text: &str) {
        let written = self.lines.metrics.write(text);
        self.note(written);
    }

    /// Writes commits that have waited for long enough, and tries again what the disk did not take.
    pub(super) fn retry_lines(&mut self) {
        if self.lines.waits_since.is_none() {
            let written = self.lines.journal.flush_due(journal::now_s());
            self.note(written);
        } else if self.lines.tried.elapsed() >= RETRY {
            let written = self.lines.flush();
            self.note(written);
        }
    }

    /// The disk took a line, or it did not: the observer hears of the first that it did not take, and of the end.
    fn note(&mut self, written: io::Result<()>) {
        let folder = self.options.folder.display();
        let message = match (written, self.lines.waits_since) {
            (Err(error), None) => {
                self.lines.waits_since = Some(Instant::now());
                format!("the run's records in {folder} cannot be written: {error}; they wait until they can")
            }
            (Ok(()), Some(since)) if self.lines.are_written() => {
                self.lines.waits_since = None;
                let dropped = std::mem::take(&mut self.lines.metrics.dropped);
                let lost =
                    if dropped > 0 { format!(", but for {dropped} lines of metrics") } else { String::new() };
                format!(
                    "the run's records in {folder} could not be written for {:.1} s; now all of them are there{lost}",
                    since.elapsed().as_secs_f64()
                )
            }
            _ => return,
        };
        let told = Journaled::Warning { message };
        if self.lines.waits_since.is_none() {
            // It holds a line that was just written; a second one that is refused waits like others.
            let _ = self.lines.journal.write(journal::now_s(), &told);
        }
        self.observer.journal(&told);
    }

    /// The last lines, before this process ends.
    pub(super) fn close_lines(&mut self) {
        let written = self.lines.flush().and_then(|()| self.lines.sync());
        if let Err(error) = written {
            let (path, waiting) = (self.journal_path.display(), self.lines.journal.waiting());
            let message = format!("the last {waiting} lines of {path} are lost: {error}");
            self.observer.journal(&Journaled::Warning { message });
        }
    }
}
