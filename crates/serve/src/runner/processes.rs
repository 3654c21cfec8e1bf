//! Real processes: for each job that is wanted, a thread that watches over its coordinator.
//!
//! A job's coordinator is a process of its own, which goes on when this one ends: see [`bellwether_session::process`].
//! What it does is read from the files it writes; it is steered over its control plane.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_core::cluster::JobId;

use super::follow::Tell;
use super::{JobRunner, Report, Wanted};
pub use patience::Patience;
use supervisor::Supervisor;

mod give_back;
mod patience;
mod supervisor;

/// The processes of this machine.
///
/// Dropping it ends the threads, not the processes: the next one takes them over. A speed counts from the next start of
/// a job's coordinator on.
pub struct Processes {
    program: PathBuf,
    patience: Patience,
    tell: Tell,
    posts: BTreeMap<JobId, Arc<Mailbox>>,
    /// Workers of all jobs.
    crowd: Arc<AtomicU32>,
    threads: Vec<JoinHandle<()>>,
}

impl Processes {
    /// Coordinators are processes of `program`, which is this same command; `tell` is called from many threads and must
    /// not wait.
    pub fn new(program: PathBuf, tell: impl Fn(Report) + Send + Sync + 'static) -> Processes {
        let patience = Patience::default();
        let (tell, posts) = (Arc::new(tell), BTreeMap::new());
        Processes { program, patience, tell, posts, crowd: Arc::default(), threads: Vec::new() }
    }

    /// The same with another patience.
    pub fn with_patience(mut self, patience: Patience) -> Processes {
        self.patience = patience;
        self
    }

    /// Starts a thread that sees to a job until it has ended.
    fn attend(&mut self, job: JobId, post: Arc<Mailbox>) {
        self.threads.retain(|thread| !thread.is_finished());
        let (program, tell) = (self.program.clone(), Arc::clone(&self.tell));
        let supervisor =
            Supervisor::new(program, self.patience, tell, Arc::clone(&post), Arc::clone(&self.crowd));
        let thread = std::thread::Builder::new().name(format!("job {}", job.0));
        match thread.spawn(move || supervisor.attend()) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                post.lock().attended = false;
                (self.tell)(Report::Lost { job, why: format!("no thread can be started: {error}") });
            }
        }
    }
}

impl JobRunner for Processes {
    fn want(&mut self, mut wanted: Wanted) {
        let job = wanted.job;
        let known = self.posts.contains_key(&job);
        let post = Arc::clone(self.posts.entry(job).or_default());
        let mut inbox = post.lock();
        // Machines of its own may be left of a job that has ended.
        let leaves_nothing = wanted.workers == 0 && known && wanted.provision.is_none();
        if !inbox.attended && (!wanted.begins || leaves_nothing) {
            // It has ended, which was reported, and that report is on its way.
            return;
        }
        // That it begins must not be lost with a wish that no thread has seen yet.
        wanted.begins |= inbox.wish.as_ref().is_some_and(|wish| wish.begins);
        inbox.wish = Some(wanted);
        let attended = std::mem::replace(&mut inbox.attended, true);
        drop(inbox);
        post.news.notify_one();
        if !attended {
            self.attend(job, post);
        }
    }

    fn release(&mut self, runs: Vec<PathBuf>) {
        give_back::of_jobs_that_are_over(runs);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for post in self.posts.values() {
            post.lock().closing = true;
            post.news.notify_one();
        }
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Where the wishes for a job arrive.
#[derive(Debug, Default)]
struct Mailbox {
    inbox: Mutex<Inbox>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The newest wish that no thread has seen yet.
    wish: Option<Wanted>,
    /// Whether a thread sees to the job.
    attended: bool,
    /// No receiver of reports is left.
    closing: bool,
}

/// No receiver of reports is left.
#[derive(Debug)]
struct Closing;

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("no holder of this lock panics")
    }

    /// Waits for a wish, at most for `patience`.
    fn wait(&self, patience: Duration) -> Result<Option<Wanted>, Closing> {
        let mut inbox = self.lock();
        if inbox.wish.is_none() && !inbox.closing {
            inbox = self.news.wait_timeout(inbox, patience).expect("no holder of this lock panics").0;
        }
        if inbox.closing { Err(Closing) } else { Ok(inbox.wish.take()) }
    }

    /// Waits that long, whatever is wished meanwhile.
    fn pause(&self, patience: Duration) -> Result<(), Closing> {
        let until = Instant::now() + patience;
        let mut inbox = self.lock();
        while !inbox.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            inbox = self.news.wait_timeout(inbox, left).expect("no holder of this lock panics").0;
        }
        Err(Closing)
    }

    /// The wish that is there to begin again; without one, no thread attends to the job from now on.
    fn leave(&self) -> Option<Wanted> {
        let mut inbox = self.lock();
        let wish = inbox.wish.take().filter(|wish| wish.begins && !inbox.closing);
        inbox.attended = wish.is_some();
        wish
    }
}
