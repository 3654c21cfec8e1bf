//! Gives back what a run has left of a provider's machines, once no process leads it.
//!
//! A coordinator gives its machines back by itself, after its last word. It may die while it does, or its provider may
//! not answer for longer than it waits; what is left then stands in its lease.

use std::path::PathBuf;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_runtime::run_dir::RunDir;
use bellwether_session::machines::{holding, release_run};
use bellwether_session::process::{Life, RunProcess};

use super::Closing;
use super::patience::RELEASING_PATIENCE;
use super::supervisor::Supervisor;
use crate::runner::Report;

/// How long it is tried after that.
const PATIENCE: Duration = Duration::from_secs(600);

/// Time between two looks at the coordinator, and between two tries.
const LOOK: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(5);

/// Tries to give back what jobs that are over have left.
const TRIES: u32 = 60;

impl Supervisor {
    /// Waits until the run holds nothing of a provider's any more.
    pub(super) fn give_back(&self, process: &mut RunProcess, job: JobId) -> Result<(), Closing> {
        let since = Instant::now();
        let mut is_killed = false;
        while process.look() != Life::Gone {
            if since.elapsed() > RELEASING_PATIENCE && !std::mem::replace(&mut is_killed, true) {
                let known = process.run().history().ok().and_then(|history| history.process);
                process.kill(known);
            }
            self.post.pause(LOOK)?;
        }
        let (since, mut trouble) = (Instant::now(), "another process holds its lease".to_owned());
        while since.elapsed() < PATIENCE {
            match self.try_release(process.run())? {
                Ok(true) => return Ok(()),
                // Another process gives it back just now.
                Ok(false) => {}
                Err(error) => trouble = error.to_string(),
            }
            self.post.pause(PAUSE)?;
        }
        (self.tell)(Report::Left { job, why: trouble });
        Ok(())
    }

    /// One try, in a thread of its own: a daemon that ends does not wait for a provider.
    fn try_release(&self, run: &RunDir) -> Result<Result<bool, InputError>, Closing> {
        let (sender, receiver) = mpsc::channel();
        let run = run.clone();
        let thread = std::thread::Builder::new().name("release".into());
        let started = thread.spawn(move || {
            // Who asked may be gone.
            let _ = sender.send(release_run(&run));
        });
        if let Err(error) = started {
            return Ok(Err(InputError::new("machines", format!("no thread can be started: {error}"))));
        }
        loop {
            match receiver.try_recv() {
                Ok(released) => return Ok(released),
                Err(TryRecvError::Empty) => self.post.pause(LOOK)?,
                Err(TryRecvError::Disconnected) => {
                    return Ok(Err(InputError::new("machines", "what gives them back has panicked")));
                }
            }
        }
    }
}

/// Gives back what jobs have left that are over, in a thread of its own.
pub(super) fn of_jobs_that_are_over(runs: Vec<PathBuf>) {
    let give_back = move || {
        // Of many jobs that are over few have left anything.
        let mut left = holding(runs.into_iter().map(RunDir::at).collect());
        for _ in 0..TRIES {
            left.retain(|run| !release_run(run).unwrap_or(false));
            if left.is_empty() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    };
    // Without a thread they are left to the next daemon, or to `bellwether machines release --orphaned`.
    let _ = std::thread::Builder::new().name("release".into()).spawn(give_back);
}
