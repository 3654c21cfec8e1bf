//! The options of a session, each with what holds without it.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, CheckpointUrl, Job, WorkerRange};
use bellwether_core::plan::Plan;
use bellwether_core::units::DollarsPerHour;
use bellwether_runtime::control::Token;
use bellwether_runtime::coordinator::Director;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_runtime::workload::Workload;

use super::Session;
use crate::director::autoscale::Autoscale;
use crate::director::lead::Bereaved;
use crate::director::revocations::Vanishing;
use crate::director::shares::Sharing;
use crate::options::Timeouts;
use crate::script::LeadWatch;
use crate::{Spawn, WorkloadBuilder};

/// A job that needs what it trains to become a [`Session`].
#[derive(Debug)]
pub struct Builder(CheckedJob);

impl Builder {
    /// What is trained. `build` makes it from the job: once here, where nothing is begun yet, so that what
    /// cannot be built is refused, and once in each worker that is a thread.
    pub fn workload(
        self,
        build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
    ) -> Session {
        Session {
            job: self.0,
            workload: WorkloadBuilder::new(build),
            state_dir: None,
            resumed: None,
            spawn: Spawn::Threads,
            workers: None,
            origin: None,
            start: None,
            chooses: false,
            schedule: Vec::new(),
            speeds: Vec::new(),
            sharing: None,
            plan: None,
            price: None,
            listen: None,
            autoscale: None,
            stragglers_per_hour: None,
            vanishing: None,
            directors: Vec::new(),
            timeouts: Timeouts::default(),
            replaces_alone: false,
            accept_other_data: false,
            plain_transport: None,
            token: None,
        }
    }
}

impl Session {
    /// A session that trains `job`.
    pub fn builder(job: CheckedJob) -> Builder {
        Builder(job)
    }

    /// Begins a new run from the weights in this file: all parameters in the order of the layout, then all model state,
    /// as little-endian `f32`. Without it: as the workload's seed says.
    #[must_use]
    pub fn initial_weights(self, file: Option<PathBuf>) -> Session {
        Session { workload: self.workload.with_initial_weights(file), ..self }
    }

    /// Keeps the run in a folder of this directory. Without it: in `bellwether` in the user's state
    /// directory.
    #[must_use]
    pub fn state_dir(self, state_dir: StateDir) -> Session {
        Session { state_dir: Some(state_dir), ..self }
    }

    /// Takes this run up again, where its workers or its checkpoints are; the session's job is that of the
    /// run. Without it a new run begins.
    #[must_use]
    pub fn resume(self, run: RunDir) -> Session {
        Session { resumed: Some(run), ..self }
    }

    /// Begins a new run from the newest checkpoint in slices of this job at a URL: that of runs, as `checkpoint.url`
    /// named it, or the folder of one run.
    #[must_use]
    pub fn resume_from(self, url: CheckpointUrl) -> Session {
        Session { origin: Some(url), ..self }
    }

    /// Starts the workers so. Without it: as threads.
    #[must_use]
    pub fn spawn(self, spawn: Spawn) -> Session {
        Session { spawn, ..self }
    }

    /// The numbers of workers that are allowed. Without it: those of the job.
    #[must_use]
    pub fn workers(self, workers: impl Into<WorkerRange>) -> Session {
        Session { workers: Some(workers.into()), ..self }
    }

    /// Begins with this number of workers. Without it: with 2 where they are allowed.
    #[must_use]
    pub fn start(self, workers: u32) -> Session {
        Session { start: Some(workers), ..self }
    }

    /// Measures the job before it begins, and begins with the number of workers that is best by a model, where there is
    /// a choice that was not made.
    #[must_use]
    pub fn choose_start(self) -> Session {
        Session { chooses: true, ..self }
    }

    /// Changes the number of workers at these steps, exactly; the steps rise.
    #[must_use]
    pub fn schedule(self, schedule: Vec<(u64, u32)>) -> Session {
        Session { schedule, ..self }
    }

    /// How fast workers compute, in the order in which they start, relative to each other: they share the
    /// virtual nodes by it. Without it: all as fast.
    #[must_use]
    pub fn speeds(self, speeds: Vec<f64>) -> Session {
        Session { speeds, ..self }
    }

    /// How the workers share the virtual nodes. Without it: by what each takes in mode `mixed`, else evenly or by the
    /// speeds that are known.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> Session {
        Session { sharing: Some(sharing), ..self }
    }

    /// Sends parts in the order of this plan. What else it says is of the job: see
    /// [`apply_plan`](crate::apply_plan).
    #[must_use]
    pub fn plan(self, plan: Plan) -> Session {
        Session { plan: Some(plan), ..self }
    }

    /// What a worker costs, for the report.
    #[must_use]
    pub fn price(self, price: DollarsPerHour) -> Session {
        Session { price: Some(price), ..self }
    }

    /// Listens here, so that workers on other machines can join. Without it: on loopback, or where the run
    /// that is taken up did.
    #[must_use]
    pub fn listen(self, address: SocketAddr) -> Session {
        Session { listen: Some(address), ..self }
    }

    /// Lets the run find its best number of workers within its range.
    #[must_use]
    pub fn autoscale(self, autoscale: Autoscale) -> Session {
        Session { autoscale: Some(autoscale), ..self }
    }

    /// Replaces workers that compute slower than the others for no known reason: at most this many within an hour.
    #[must_use]
    pub fn replace_stragglers(self, per_hour: u32) -> Session {
        Session { stragglers_per_hour: Some(per_hour), ..self }
    }

    /// Takes the workers' servers away as a law says.
    #[must_use]
    pub fn revocations(self, vanishing: Vanishing) -> Session {
        Session { vanishing: Some(vanishing), ..self }
    }

    /// Lets this director steer the run, beside those that other options bring.
    #[must_use]
    pub fn director(mut self, director: Box<dyn Director>) -> Session {
        self.directors.push(director);
        self
    }

    /// Stops the run with a checkpoint where its workers wait for the verdict of this lead, and it is gone.
    #[must_use]
    pub fn led_by(self, lead: LeadWatch) -> Session {
        self.director(Box::new(Bereaved(lead)))
    }

    /// How long the run waits for what.
    #[must_use]
    pub fn timeouts(self, timeouts: Timeouts) -> Session {
        Session { timeouts, ..self }
    }

    /// Replaces a worker that hangs even if the run cannot go on without it; the run goes back to its last checkpoint.
    #[must_use]
    pub fn replace_lone_worker(self) -> Session {
        Session { replaces_alone: true, ..self }
    }

    /// Goes on with a run though data or kernels are not those that it was trained with so far.
    #[must_use]
    pub fn accept_other_data(self) -> Session {
        Session { accept_other_data: true, ..self }
    }

    /// Lets those join a new run who know this token, which was drawn before it began. Without it: one of its own.
    #[must_use]
    pub fn token(self, token: Token) -> Session {
        Session { token: Some(token), ..self }
    }

    /// Encrypts nothing between the machines of the run, for this reason, which the journal keeps.
    #[must_use]
    pub fn plain_transport(self, reason: String) -> Session {
        Session { plain_transport: Some(reason), ..self }
    }
}
