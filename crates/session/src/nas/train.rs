//! Trains the supernets of a search, each as a job, and takes up again what was begun.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::record::RunOutcome;
use bellwether_runtime::checkpoint::Store;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_runtime::workload::{Layout, Workload};

use super::{Member, NasError};
use crate::error::at;
use crate::export::weights;
use crate::{Session, Spawn};

/// A supernet that was trained to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// Its run.
    pub run: String,
    /// Its last checkpoint, with which its parts begin.
    pub checkpoint: PathBuf,
    /// Its parameters, in the order of the layout.
    pub parameters: Vec<f32>,
    /// Its state, in the order of the layout.
    pub state: Vec<f32>,
    /// Mean accuracy of some of its paths at the end, where it was evaluated.
    pub accuracy: Option<f64>,
    /// Seconds that its training took, those of all coordinators together.
    pub seconds: f64,
}

/// What happens while supernets are trained.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<'a> {
    /// One begins, or goes on.
    Begins {
        /// Which.
        member: &'a Member,
        /// Its run.
        run: String,
    },
    /// One is trained, maybe by an earlier search.
    Trained {
        /// Which.
        member: &'a Member,
        /// The result.
        trained: &'a Trained,
    },
}

/// Hears what happens, from several threads.
pub type Tell<'t> = dyn Fn(Progress<'_>) + Sync + 't;

/// Trains a job, wherever that is, and says what came of it: the seam to what shares machines among jobs.
pub trait Trainer: Sync {
    /// Trains `job` to its end as the run `name`. A run that is finished is not trained again, and one that was begun
    /// goes on.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be trained to its end.
    fn train(&self, name: &str, job: &CheckedJob) -> Result<Trained, NasError>;
}

/// Builds what a job trains.
type Build = dyn Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync;

/// Runs of this process, in a folder of their own.
#[derive(Clone)]
pub struct Sessions {
    folder: StateDir,
    spawn: Spawn,
    build: Arc<Build>,
}

impl Sessions {
    /// Keeps the runs in `folder`, and starts their workers as `spawn` says.
    pub fn new(
        folder: StateDir,
        spawn: Spawn,
        build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
    ) -> Sessions {
        Sessions { folder, spawn, build: Arc::new(build) }
    }

    /// Trains the run, or what is left of it.
    fn run(&self, run: &RunDir, job: &CheckedJob) -> Result<(), NasError> {
        let build = Arc::clone(&self.build);
        let session = Session::builder(job.clone())
            .workload(move |job| build(job))
            .state_dir(self.folder.clone())
            .spawn(self.spawn.clone())
            .resume(run.clone());
        match session.run(&mut |_| {})?.1 {
            RunOutcome::Finished => Ok(()),
            RunOutcome::Stopped => Err(NasError::Stopped { run: run.name.clone() }),
            other => Err(NasError::failed(run, other.to_string())),
        }
    }
}

impl Trainer for Sessions {
    fn train(&self, name: &str, job: &CheckedJob) -> Result<Trained, NasError> {
        self.folder.make()?;
        let run = self.folder.named(name);
        if run.is_run() && run.job()?.identity() != job.identity() {
            let what = "its run is there already, and was begun for another supernet";
            let hint = format!("name another --folder, or remove {}", run.path.display());
            return Err(InputError::new(name, what).hint(hint).into());
        }
        let run = self.folder.create_named(name, job)?;
        if run.is_alive().map_err(|error| at(run.path.display().to_string(), error))? {
            let what = "it is being trained by another process";
            return Err(InputError::new(name, what).hint("wait until that has ended").into());
        }
        if run.history()?.outcome() != Some(&RunOutcome::Finished) {
            self.run(&run, job)?;
        }
        Trained::of(&run, (self.build)(job)?.layout())
    }
}

impl Trained {
    /// What came of a run that has ended, whose checkpoints are in its folder.
    ///
    /// # Errors
    ///
    /// Returns an error if it has no checkpoint that can be read.
    pub fn of(run: &RunDir, layout: &Layout) -> Result<Trained, NasError> {
        let (job, history) = (run.job()?, run.history()?);
        let found = weights(run, &job, layout)?;
        let (parameters, state) = found.values;
        Ok(Trained {
            run: run.name.clone(),
            checkpoint: Store::new(run.checkpoints(), 1, &job.identity()).path(found.step),
            parameters,
            state,
            accuracy: history.evaluation.and_then(|last| last.accuracy),
            seconds: history.lived_s(),
        })
    }
}

/// Trains a whole family, parents before their children, up to `at_once` at a time. Children begin with what they have
/// of their parent's weights.
///
/// # Errors
///
/// The first error of any of them, once those that were under way have ended.
pub fn train_all(
    family: &[Member],
    name: &str,
    trainer: &dyn Trainer,
    at_once: usize,
    tell: &Tell<'_>,
) -> Result<Vec<Trained>, NasError> {
    let mut trained: Vec<Trained> = Vec::with_capacity(family.len());
    while trained.len() < family.len() {
        let (first, level) = (trained.len(), family[trained.len()].level);
        let members: Vec<&Member> =
            family[first..].iter().take_while(|member| member.level == level).collect();
        let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..members.len()).collect());
        let results: Mutex<Vec<Option<Trained>>> = Mutex::new(vec![None; members.len()]);
        let fault: Mutex<Option<NasError>> = Mutex::new(None);
        let one_by_one = || {
            while lock(&fault).is_none() {
                let Some(next) = lock(&waiting).pop_front() else { break };
                match train_one(members[next], &trained, name, trainer, tell) {
                    Ok(result) => lock(&results)[next] = Some(result),
                    Err(error) => {
                        lock(&fault).get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..at_once.min(members.len()) {
                scope.spawn(one_by_one);
            }
            one_by_one();
        });
        if let Some(error) = fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        trained.extend(results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten());
    }
    Ok(trained)
}

/// No code panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn train_one(
    member: &Member,
    trained: &[Trained],
    name: &str,
    trainer: &dyn Trainer,
    tell: &Tell<'_>,
) -> Result<Trained, NasError> {
    let name = member.name(name);
    let begins = |job: &mut Job| {
        job.initial_weights = member.parent.map(|parent| trained[parent].checkpoint.clone());
    };
    let job = member.job.clone().edit(begins)?;
    tell(Progress::Begins { member, run: name.clone() });
    let result = trainer.train(&name, &job)?;
    tell(Progress::Trained { member, trained: &result });
    Ok(result)
}
