//! What a job can ask for in each of its training modes: the one table of it.
//!
//! [`Feature::check`] answers from this table, so a combination is refused in one place and with one reason. The page
//! `docs/modes.md` is made of it (`cargo xtask modes`), and `cargo xtask tidy` fails on a page that differs, an empty
//! cell, or a test that does not exist.

use super::{Job, Mode, Precision, Reduce, StragglerPolicy, SyncPolicy};
use crate::error::{InputError, InputErrorKind};
use crate::prediction::Protocol;

mod reasons;
mod table;

use table::TABLE;

/// How gradients become updates. A job that has several phases may have several of these modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainingMode {
    /// All workers wait for all, every step, and sum their gradients among themselves.
    Exact,
    /// The same, and an update may cover several steps (`[mode.goodput]`).
    Goodput,
    /// All workers wait for all, and gradients are summed at parameter servers (`reduce = "servers"`).
    Servers,
    /// Workers update parameter servers without waiting for each other (`"asp"`, `"ssp:K"`).
    Asynchronous,
    /// Workers update their own parameters, and pairs average them (`"gossip"`).
    Gossip,
    /// Virtual nodes train by themselves for some steps, and an outer step follows what they moved (`"local:H"`).
    Local,
    /// Workers of any kernel class train together (mode `mixed`); beside one of the others.
    Mixed,
}

/// Something that may be asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// The trained parameters are the same bytes for any number of workers.
    SameBits,
    /// The batch changes while the job is trained.
    MovingBatch,
    /// Another worker computes a virtual node again, and the bytes are compared (`verify_every`).
    Verify,
    /// The Euclidean norm of the gradient is limited (`optimizer.clip_norm`).
    ClipNorm,
    /// Workers join and leave (`scale`, `--resize`).
    Resize,
    /// Workers die.
    WorkerLoss,
    /// The coordinator dies, and the run is taken up again (`run --resume`).
    CoordinatorLoss,
    /// The run is stopped in good order and taken up again.
    StopAndResume,
    /// Each server has a replica (`sync.replica`).
    Replicas,
    /// Something is done about slow workers (`sync.stragglers`).
    StragglerPolicy,
    /// Slow workers are replaced (`--replace-stragglers`).
    ReplaceStragglers,
    /// Workers that hang are named and replaced.
    Liveness,
    /// The run finds its number of workers (`--autoscale`).
    Autoscale,
    /// Servers of the provider vanish as a law says (`--revocations`).
    Revocations,
    /// The provider's notice makes a worker leave in good order.
    Notices,
    /// The journal proves that each sample of an epoch was used once (`audit`).
    Audit,
    /// The job is measured (`profile`).
    Profile,
    /// Throughput is predicted from a profile (`predict`).
    Predict,
    /// The least share of synchronous steps is searched for (`tune sync`).
    TuneSync,
    /// A daemon trains the job beside others (`serve`).
    Serve,
    /// Workers are threads of the program that begins the run.
    Threads,
    /// What is trained is written in Python.
    Python,
    /// The update rule is the trained program's own (`optimizer.kind = "own"`).
    OwnRule,
    /// The workers wait at boundaries for a verdict on whether the run goes on (`verdict.every_steps`).
    Verdicts,
    /// Held-out results end the run before its last step (`[stop]`).
    StopRules,
    /// Gradients are summed and travel in 16 bits (`exchange.precision`).
    Bfloat16,
    /// Each worker writes its slice of a checkpoint to a shared folder or an object store (`checkpoint.url`).
    SlicedCheckpoints,
    /// The workers share the optimizer's state (`[sharding]`).
    Sharding,
    /// Workers of unlike kernel classes train together.
    UnlikeKernels,
    /// The workers share the virtual nodes by their measured speeds (`--shares measured`).
    MeasuredShares,
}

/// Whether a mode has a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It has, and this test shows it.
    Supported {
        /// The name of the test's function.
        test: &'static str,
    },
    /// It cannot have it.
    Refused {
        /// The key of the job file that is refused.
        key: &'static str,
        /// Why, in one sentence.
        reason: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
    /// It is accepted and changes nothing.
    NoEffect {
        /// Why.
        reason: &'static str,
    },
    /// Do not rely on it yet.
    Later {
        /// What is missing.
        what: &'static str,
    },
}

impl TrainingMode {
    /// The modes of a job, those first that decide most of it. What may be decided only while it is trained counts too.
    pub fn of(job: &Job) -> impl Iterator<Item = TrainingMode> {
        let phases = match &job.sync.policy {
            SyncPolicy::Auto => &[(0.0, Protocol::Bsp), (1.0, Protocol::Asp)][..],
            SyncPolicy::Phases(phases) => phases,
        };
        let is_greedy = job.sync.stragglers == StragglerPolicy::Greedy;
        let has = |wanted: &dyn Fn(&Protocol) -> bool| phases.iter().any(|(_, protocol)| wanted(protocol));
        let is_asynchronous = is_greedy || has(&|protocol| protocol.needs_servers());
        let at_servers = job.sync.reduce == Reduce::Servers;
        let moves = matches!(job.mode, Mode::Goodput(_));
        let is_mixed = job.mode.is_mixed();
        let among_workers = has(&|protocol| *protocol == Protocol::Bsp) && !at_servers;
        [
            (is_asynchronous, TrainingMode::Asynchronous),
            (has(&|protocol| *protocol == Protocol::Gossip), TrainingMode::Gossip),
            (job.sync.has_outer_steps(), TrainingMode::Local),
            (at_servers, TrainingMode::Servers),
            (moves, TrainingMode::Goodput),
            (is_mixed, TrainingMode::Mixed),
            (among_workers && !moves && !is_mixed, TrainingMode::Exact),
        ]
        .into_iter()
        .filter_map(|(is_so, mode)| is_so.then_some(mode))
    }

    /// Whether this mode has a feature.
    pub fn support(self, feature: Feature) -> Support {
        let row = &TABLE[feature as usize];
        debug_assert_eq!(row.feature, feature, "{}", row.title);
        row.cells[self as usize]
    }
}

impl Feature {
    /// Refuses a job one of whose modes cannot have this feature.
    ///
    /// # Errors
    ///
    /// The key, the reason and what to do instead, of the first such mode.
    pub fn check(self, job: &Job) -> Result<(), InputError> {
        TrainingMode::of(job).try_for_each(|mode| match mode.support(self) {
            Support::Refused { key, reason, hint } => {
                Err(InputError::new(key, reason).hint(hint).of_kind(InputErrorKind::Unsupported))
            }
            Support::Supported { .. } | Support::NoEffect { .. } | Support::Later { .. } => Ok(()),
        })
    }

    /// What the job's file asks for. Other features belong to how it is run.
    pub(super) fn asked(job: &Job) -> impl Iterator<Item = Feature> {
        [
            (job.optimizer.clip_norm().is_some(), Feature::ClipNorm),
            (job.optimizer.is_own(), Feature::OwnRule),
            (matches!(job.mode, Mode::Goodput(_)), Feature::MovingBatch),
            (job.verify_every > 0, Feature::Verify),
            (job.verdict.every_steps > 0, Feature::Verdicts),
            (job.stop.by_results(), Feature::StopRules),
            (job.exchange.precision == Precision::Bf16, Feature::Bfloat16),
            (job.checkpoint.url.is_some(), Feature::SlicedCheckpoints),
            (job.sharding.is_some(), Feature::Sharding),
            (job.sync.stragglers != StragglerPolicy::Ignore, Feature::StragglerPolicy),
        ]
        .into_iter()
        .filter_map(|(is_so, feature)| is_so.then_some(feature))
    }
}
