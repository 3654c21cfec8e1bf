//! Keeps the operator's copy of the files of a run, on a thread of its own.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bellwether_core::job::CheckedJob;
use bellwether_runtime::run_dir::{RunDir, RunFile};

use super::outset;
use super::said::{Fault, Said};
use crate::exchange::{CHUNK_BYTES, Client, ClientError, Sent};
use crate::pod::patience::Patience;
use crate::pod::say;

/// Time between two looks at the files while they grow, and the longest while they do not.
const LOOK: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(1);

/// The thread, as the others see it.
pub(super) struct Copier {
    /// How long it may take to send the rest, once that is wanted.
    finish: Sender<Duration>,
}

impl Copier {
    /// Makes the folder what it should be, says so, and sends what is added to it from then on.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub(super) fn start(
        client: Arc<Client>,
        run: RunDir,
        job: CheckedJob,
        tell: impl Fn(Said) + Send + 'static,
    ) -> io::Result<Copier> {
        let (finish, finishing) = channel();
        let work = move || {
            let begun = outset::find(&client, &run, &job);
            let last = begun.and_then(|offsets| {
                tell(Said::Ready);
                let files = RunFile::ALL.into_iter().zip(offsets);
                let senders = files.map(|(file, offset)| Follower::new(&run, file, offset)).collect();
                Thread { client, senders, finishing }.work()
            });
            tell(last.map_or_else(|said| said, |()| Said::Sent));
        };
        std::thread::Builder::new().name("copier".into()).spawn(work)?;
        Ok(Copier { finish })
    }

    /// Lets it send what is left, and end: it says then that it has.
    pub(super) fn finish(&self, patience: Duration) {
        // One that has ended has said why.
        let _ = self.finish.send(patience);
    }
}

struct Thread {
    client: Arc<Client>,
    senders: Vec<Follower>,
    finishing: Receiver<Duration>,
}

impl Thread {
    fn work(mut self) -> Result<(), Said> {
        let mut patience = Patience::with("the operator's copy of the run");
        let (mut pause, mut until) = (LOOK, None::<Instant>);
        loop {
            let passed = self.pass(until.is_some());
            pause = match &passed {
                // Nothing is written any more.
                Ok(_) if until.is_some() => return Ok(()),
                Ok(true) => LOOK,
                Ok(false) => (pause * 5 / 4).min(QUIET),
                Err(Fault::Passing(why)) => patience.failed(why),
                Err(Fault::Lasting(said)) => return Err(*said),
            };
            if passed.is_ok() {
                patience.went_well();
            }
            if let Some(until) = until {
                let Some(left) = until.checked_duration_since(Instant::now()) else { return Ok(()) };
                std::thread::sleep(pause.min(left));
                continue;
            }
            match self.finishing.recv_timeout(pause) {
                Ok(patience) => until = Some(Instant::now() + patience),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Sends what is new of all files; says whether there was anything. `all`: also what may become a line yet.
    fn pass(&mut self, all: bool) -> Result<bool, Fault> {
        let mut news = false;
        for sender in &mut self.senders {
            while sender.send_next(&self.client, all)? {
                news = true;
            }
        }
        Ok(news)
    }
}

/// A file of which the operator has the beginning.
struct Follower {
    file: RunFile,
    path: PathBuf,
    /// Where what was not sent yet begins.
    offset: u64,
    /// It is sent no more: the operator has no room.
    is_given_up: bool,
}

impl Follower {
    fn new(run: &RunDir, file: RunFile, offset: u64) -> Follower {
        Follower { file, path: run.file(file), offset, is_given_up: false }
    }

    /// Sends the next bytes; says whether there were any.
    fn send_next(&mut self, client: &Client, all: bool) -> Result<bool, Fault> {
        if self.is_given_up {
            return Ok(false);
        }
        let bytes = self.next(all)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        match client.send(self.file, self.offset, &bytes) {
            Ok(Sent::Here(_)) => self.offset += bytes.len() as u64,
            Ok(Sent::Elsewhere(have)) if have <= self.offset + bytes.len() as u64 => self.offset = have,
            Ok(Sent::Elsewhere(_) | Sent::Differs) => return Err(Fault::Lasting(Said::Astray(self.file))),
            Err(ClientError::Full) => self.give_up("the operator has no room for more of it"),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn give_up(&mut self, why: &str) {
        say(format_args!("the {} is copied no further: {why}", self.file));
        self.is_given_up = true;
    }

    /// What comes next: whole lines. Of what is printed also a line without an end, if it is long or the last.
    fn next(&mut self, all: bool) -> io::Result<Vec<u8>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let there = file.metadata()?.len().saturating_sub(self.offset);
        let mut bytes = vec![0; usize::try_from(there).unwrap_or(usize::MAX).min(CHUNK_BYTES)];
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], self.offset + read as u64) {
                // The child takes back a line that it could not write whole.
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(read);
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let is_full = bytes.len() == CHUNK_BYTES;
        match self.file.has_lines() {
            true if whole == 0 && is_full => self.give_up("a line of it is longer than 1 MiB"),
            false if whole == 0 && (all || is_full) => return Ok(bytes),
            false if all && !is_full => return Ok(bytes),
            _ => {}
        }
        bytes.truncate(whole);
        Ok(bytes)
    }
}
