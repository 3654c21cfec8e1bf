//! What a worker does until its script has said what it trains: it waits, and tells the run how far the script is.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bellwether_core::job::Job;
use bellwether_runtime::membership::Activity;
use bellwether_runtime::worker::{BUILDING, IMPORTING, Stages};
use bellwether_runtime::workload::{Workload, WorkloadError};

use crate::ask::Asker;
use crate::declaration::Declaration;
use crate::workload::{Memory, PythonWorkload};

/// Time between two looks at the clock, and at whether the run still waits for this worker.
const LOOK: Duration = Duration::from_millis(50);

/// How much longer than this worker itself the coordinator waits: it knows less of what it is that takes so long.
const MARGIN: Duration = Duration::from_secs(2);

/// What the script has come to.
pub(crate) enum News<M> {
    /// It makes what it trains.
    Builds,
    /// It says what it trains.
    Declares(Box<Declared<M>>),
    /// It failed, by its own fault.
    Failed(String),
}

/// What a script trains, and with what.
pub(crate) struct Declared<M> {
    pub(crate) declaration: Declaration,
    /// The user's line that says so.
    pub(crate) line: String,
    /// What computes.
    pub(crate) framework: String,
    pub(crate) memory: M,
    /// Whether the main thread can add up gradients itself.
    pub(crate) keeps_sums: bool,
}

/// The runtime's end of what a worker is made of.
pub(crate) struct Waiting<M> {
    /// Called when the run has let this worker in, and the script may begin.
    pub(crate) entered: Box<dyn FnOnce() + Send>,
    pub(crate) news: Receiver<News<M>>,
    pub(crate) asker: Asker,
    /// The user's line at which the script stands, as far as it can be found out.
    pub(crate) place: fn() -> Option<String>,
}

impl<M: Memory + 'static> Waiting<M> {
    /// Waits until the script has said what it trains, and makes the workload of it. An inference has no stages: it
    /// waits for as long as its coordinator does.
    pub(crate) fn workload(
        self,
        job: &Job,
        stages: Option<&Stages<'_>>,
    ) -> Result<Box<dyn Workload>, WorkloadError> {
        let own = job.stage_allowance();
        let mut stage = Stage::begin(stages, Activity::Importing, own.unwrap_or(IMPORTING));
        (self.entered)();
        loop {
            match self.news.recv_timeout(LOOK) {
                Ok(News::Builds) => {
                    stage = Stage::begin(stages, Activity::Building, own.unwrap_or(BUILDING));
                }
                Ok(News::Declares(declared)) => {
                    let Declared { declaration, line, framework, memory, keeps_sums } = *declared;
                    let place = if line.is_empty() { line } else { format!("{line}: ") };
                    let agreed = declaration.agrees(job);
                    agreed.map_err(|error| WorkloadError::of_user(format!("{place}{}", error.what)))?;
                    let workload = PythonWorkload::new(self.asker, memory, &declaration, framework, job);
                    return Ok(Box::new(workload.keeping_sums(keeps_sums)));
                }
                Ok(News::Failed(what)) => return Err(WorkloadError::of_user(what)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(WorkloadError::new("the Python program is at its end"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((_, why)) = stages.and_then(Stages::farewell) {
                        return Err(WorkloadError::new(why));
                    }
                    stage.check(self.place)?;
                }
            }
        }
    }
}

/// The stage that a script is in.
struct Stage {
    activity: Activity,
    since: Instant,
    allowance: Duration,
}

impl Stage {
    fn begin(stages: Option<&Stages<'_>>, activity: Activity, allowance: Duration) -> Stage {
        if let Some(stages) = stages {
            stages.begin(activity, allowance.saturating_add(MARGIN));
        }
        Stage { activity, since: Instant::now(), allowance }
    }

    /// Fails where it takes too long.
    fn check(&self, place: fn() -> Option<String>) -> Result<(), WorkloadError> {
        if self.since.elapsed() <= self.allowance {
            return Ok(());
        }
        let place = place().map_or(String::new(), |line| format!(", at {line}"));
        let allowance_s = self.allowance.as_secs_f64();
        Err(WorkloadError::new(format!("it was still {} after {allowance_s} s{place}", self.activity)))
    }
}
