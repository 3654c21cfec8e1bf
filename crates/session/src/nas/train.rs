//! Trains the supernets of a search, each as a job, and takes up again what was begun.

use std::collections::VecDeque;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::record::RunOutcome;
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_runtime::workload::{Layout, Workload};

use super::{Member, NasError, TransferError, transfer};
use crate::error::at;
use crate::export::newest;
use crate::{Session, Spawn};

/// A supernet that was trained to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// Its run.
    pub run: String,
    /// Names and shapes of its tensors.
    pub layout: Layout,
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
    /// What the job trains, before it is trained: its tensors, their first values and its first state.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be built.
    fn untrained(&self, job: &Job) -> Result<(Layout, Vec<f32>, Vec<f32>), InputError>;

    /// Trains `job` to its end as the run `name`, from these weights (parameters, then state) or its seed. A run that
    /// is finished is not trained again, and one that was begun goes on.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be trained to its end.
    fn train(&self, name: &str, job: &CheckedJob, weights: Option<&[f32]>) -> Result<Trained, NasError>;
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
    fn run(&self, run: &RunDir, job: &CheckedJob, weights: Option<&[f32]>) -> Result<(), NasError> {
        let file = run.path.with_extension("weights");
        if let Some(weights) = weights {
            let bytes: Vec<u8> = weights.iter().flat_map(|value| value.to_le_bytes()).collect();
            fs::write(&file, bytes).map_err(|error| at(file.display().to_string(), error))?;
        }
        let build = Arc::clone(&self.build);
        let session = Session::builder(job.clone())
            .workload(move |job| build(job))
            .initial_weights(weights.map(|_| file.clone()))
            .state_dir(self.folder.clone())
            .spawn(self.spawn.clone())
            .resume(run.clone());
        let ended = session.run(&mut |_| {});
        // The run has a copy; what cannot be removed is written over by the next attempt.
        let _ = fs::remove_file(&file);
        let (_, outcome) = ended?;
        match outcome {
            RunOutcome::Finished => Ok(()),
            RunOutcome::Stopped => Err(NasError::Stopped { run: run.name.clone() }),
            other => Err(NasError::Failed {
                run: run.name.clone(),
                folder: run.path.clone(),
                why: other.to_string(),
            }),
        }
    }
}

impl Trainer for Sessions {
    fn untrained(&self, job: &Job) -> Result<(Layout, Vec<f32>, Vec<f32>), InputError> {
        let mut workload = (self.build)(job)?;
        let layout = workload.layout().clone();
        let (mut parameters, mut state) =
            (vec![0.0; layout.parameter_count()], vec![0.0; layout.state_count()]);
        workload.initialize(job.seed, &mut parameters, &mut state);
        Ok((layout, parameters, state))
    }

    fn train(&self, name: &str, job: &CheckedJob, weights: Option<&[f32]>) -> Result<Trained, NasError> {
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
            self.run(&run, job, weights)?;
        }
        let (layout, ..) = self.untrained(job)?;
        let history = run.history()?;
        let optimizer = Optimizer::new(job, 0);
        let found = newest(&run, job, &layout, &optimizer.slots()).map_err(|error| at(name, error))?;
        let (trained, _) = found.ok_or_else(|| at(name, "its run has no checkpoint"))?;
        Ok(Trained {
            run: run.name.clone(),
            layout,
            parameters: trained.parameters,
            state: trained.model_state,
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
    let weights = match member.parent {
        None => None,
        Some(parent) => {
            let (layout, _, state) = trainer.untrained(&member.job)?;
            let parent = &trained[parent];
            let of_parent = (&parent.layout, &parent.parameters[..]);
            let mut weights =
                transfer(of_parent, &layout).map_err(|error: TransferError| at(name.clone(), error))?;
            weights.extend(state);
            Some(weights)
        }
    };
    tell(Progress::Begins { member, run: name.clone() });
    let result = trainer.train(&name, &member.job, weights.as_deref())?;
    tell(Progress::Trained { member, trained: &result });
    Ok(result)
}
