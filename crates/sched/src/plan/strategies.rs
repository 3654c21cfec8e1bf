//! How workers may be kept together: what each way makes of the speed of a whole run.
//!
//! A run that switches is as fast as its phases in their shares of the work. With a target loss, samples in a phase
//! with stale updates count less, by [`Sensitivity::work_factor`] for the mean staleness that is expected there.

use bellwether_core::InputError;
use bellwether_core::job::{AsyncMomentum, Job, Optimizer, SyncPolicy};
use bellwether_core::plan::{Candidate, Plan, SyncStrategy, Synchronisation, TransmissionOrder};
use bellwether_core::prediction::{Configuration, PredictError, Protocol, StepModel};
use bellwether_core::profile::Profile;
use bellwether_model::event::{priority, with_downloads};
use bellwether_model::hybrid::{self, Phase};
use bellwether_model::staleness::{self, Sensitivity};

use super::Question;

/// What decides how much staleness costs a job that trains to a target loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Staleness {
    /// Gradient noise scale in samples; 0, the most cautious, where it is not known.
    pub noise_scale: f64,
    /// Momentum in synchronous phases.
    pub synchronous_momentum: f64,
    /// Momentum in asynchronous phases.
    pub momentum: f64,
}

impl Staleness {
    /// For a job, if it is known, whose updates through servers are each of this many virtual nodes, of all.
    pub fn of(job: Option<&Job>, noise_scale: f64, nodes_per_update: u32, virtual_nodes: u32) -> Staleness {
        let (synchronous_momentum, momentum) =
            job.map_or((0.0, 0.0), |job| momenta(job, nodes_per_update, virtual_nodes));
        Staleness { noise_scale, synchronous_momentum, momentum }
    }
}

/// Momentum of a job in synchronous and in asynchronous phases; that of Adam is its first decay rate.
fn momenta(job: &Job, nodes_per_update: u32, virtual_nodes: u32) -> (f64, f64) {
    let own = match &job.optimizer {
        Optimizer::Sgd { momentum, .. } => *momentum,
        Optimizer::Adam { betas, .. } | Optimizer::Adamw { betas, .. } => betas[0],
        // It is refused where gradients are stale.
        Optimizer::Own { .. } => 0.0,
    };
    let stale = match job.sync.momentum {
        AsyncMomentum::Keep => own,
        AsyncMomentum::Scale => own * f64::from(nodes_per_update) / f64::from(virtual_nodes.max(1)),
        AsyncMomentum::Zero => 0.0,
    };
    (own, stale)
}

/// Lets parts travel in the order in which computing needs them, where the profile tells it.
pub fn order_parts(plan: &mut Plan, profile: &Profile) {
    let Some(way) = plan.synchronisation.as_mut().filter(|way| way.servers > 0) else { return };
    let profile = with_downloads(profile);
    let bandwidth = profile.network.map_or(1e9, |network| network.bandwidth_bytes_per_s);
    // One part has no order, and where the operations tell none it stays as it was.
    if profile.parts.len() > 1
        && let Ok(levels) = priority::tac(&profile, bandwidth)
    {
        way.order = TransmissionOrder::Priority(levels);
    }
}

/// What a way makes of a run.
pub(super) struct Run {
    pub(super) examples_per_s: f64,
    pub(super) staleness: Option<f64>,
    pub(super) work_factor: Option<f64>,
    pub(super) extrapolated: Option<String>,
}

/// Every policy with every number of servers that it may have: those without asynchronous phases through servers have
/// none.
pub fn list(policies: &[SyncPolicy], servers: std::ops::RangeInclusive<u32>) -> Vec<SyncStrategy> {
    let of = |policy: &SyncPolicy| {
        let shares = policy.shares().unwrap_or_default();
        let needs = shares.iter().any(|(_, protocol)| protocol.needs_servers());
        let counts = if needs { servers.clone() } else { 0..=0 };
        let policy = policy.clone();
        counts.map(move |servers| SyncStrategy { policy: policy.clone(), servers })
    };
    policies.iter().flat_map(of).collect()
}

/// Whether all wait for all, all the time, without servers.
pub(super) fn is_together(way: &SyncStrategy) -> bool {
    let shares = way.policy.shares().unwrap_or_default();
    way.servers == 0 && !shares.is_empty() && shares.iter().all(|(_, protocol)| *protocol == Protocol::Bsp)
}

/// Refuses ways of which nothing can be said.
pub(super) fn check(question: &Question) -> Result<(), InputError> {
    let wrong = |what: String, hint: &str| Err(InputError::new("--protocols", what).hint(hint));
    for (place, way) in question.ways.iter().enumerate() {
        let Some(shares) = way.policy.shares() else {
            return wrong("when `auto` switches is known only while it trains".into(), "say switch:SHARE");
        };
        if question.ways[..place].contains(way) {
            return wrong(format!("`{way}` is named twice"), "name each once");
        }
        let unknown = shares.iter().find(|(_, protocol)| staleness::expected(*protocol, 1).is_none());
        if let Some((_, protocol)) = unknown.filter(|_| question.staleness.is_some()) {
            let what = format!("how many samples {protocol} takes to a loss is not known");
            return wrong(what, "leave it out, or say --steps");
        }
        if way.servers == 0 && shares.iter().any(|(_, protocol)| protocol.needs_servers()) {
            let hint = "ask for 1 or more";
            return Err(InputError::new("--servers", format!("missing servers: `{way}`")).hint(hint));
        }
    }
    Ok(())
}

/// A run in one way; `plain` is the same synchronous and without servers.
pub(super) fn run(
    question: &Question,
    way: &SyncStrategy,
    plain: &Configuration,
    model: &dyn StepModel,
) -> Result<Run, PredictError> {
    let shares = way.policy.shares().unwrap_or_default();
    let mut phases = Vec::with_capacity(shares.len());
    let mut extrapolated: Option<String> = None;
    let (mut staleness, mut work) = (None, 0.0);
    for (share, protocol) in shares {
        let mut configuration = Configuration { protocol, ..plain.clone() };
        if !protocol.waits_for_all() {
            configuration.servers = if protocol.needs_servers() { way.servers } else { 0 };
            let nodes = question.nodes_per_update;
            configuration = configuration.in_units(question.batch, question.virtual_nodes, nodes);
        }
        let prediction = model.predict(question.job, &configuration)?;
        let longer = prediction.validity.beyond().map(str::to_owned);
        extrapolated = [extrapolated, longer].into_iter().flatten().max_by_key(String::len);
        let workers = plain.workers();
        let stale = staleness::expected(protocol, workers).filter(|_| protocol != Protocol::Bsp);
        let factor = match (question.staleness, stale) {
            (Some(known), Some(stale)) => {
                let job = Sensitivity {
                    batch: plain.batch as f64,
                    update: configuration.batch as f64 / f64::from(workers),
                    noise_scale: known.noise_scale,
                    synchronous_momentum: known.synchronous_momentum,
                    momentum: known.momentum,
                };
                job.work_factor(stale)?
            }
            _ => 1.0,
        };
        staleness = stale.into_iter().chain(staleness).reduce(f64::max);
        work += share * factor;
        phases.push(Phase { share, units_per_s: prediction.examples_per_s / factor });
    }
    let examples_per_s = 1.0 / hybrid::time_s(1.0, &phases, 0.0)?;
    let work_factor = question.staleness.and(staleness).map(|_| work);
    Ok(Run { examples_per_s, staleness, work_factor, extrapolated })
}

/// The words of a chosen strategy, as the run's command line takes them.
pub(super) fn synchronisation(question: &Question, chosen: &Candidate) -> Synchronisation {
    let Some(way) = &chosen.way else { return Synchronisation::default() };
    let own = if question.shares_batch() { 1 } else { u64::from(chosen.workers) };
    let steps = question.samples / (question.batch * own) as f64;
    Synchronisation {
        phases: way.policy.phases((steps.round() as u64).max(1)),
        servers: way.servers,
        reduce_at_servers: false,
        replica: false,
        order: TransmissionOrder::Fifo,
    }
}
