//! Slurm as a provider: a machine is a job, known by its comment.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use bellwether_core::machines::{Machine, Notice, Offer, Phase, Provider, ProviderError, Request, Tag};

use super::ways::{Ways, of_program, way};
use crate::programs::{Call, ProgramError};
use crate::slurm::answers::{JobStage, NodeState, QueuedJob, submitted};
use crate::slurm::clerk::{cancel, jobs_of, nodes_of};

const NAME: &str = "Slurm";

/// The beginning of the comments of jobs that are machines.
const MARK: &str = "bellwether machine ";

/// Seconds that a job on a drained node is told to have: as long as a run may look for another.
const DRAINED_S: f64 = 60.0;

/// Seconds before a time limit from which on it is a notice; of a short one, in the last part of it only.
const LIMIT_S: f64 = 600.0;
const LIMIT_PART: f64 = 0.4;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SlurmMachines {
    ways: Ways,
    /// Machines that were requested before: the answer may have been lost.
    requested: BTreeSet<Tag>,
    /// The whole time limit of each job, as it was seen first.
    limits_s: BTreeMap<u64, f64>,
}

impl SlurmMachines {
    pub(super) fn new(ways: Ways) -> SlurmMachines {
        SlurmMachines { ways, requested: BTreeSet::new(), limits_s: BTreeMap::new() }
    }

    fn jobs(beginning: &str) -> Result<Vec<(Tag, QueuedJob)>, ProviderError> {
        let jobs = jobs_of(&format!("{MARK}{beginning}")).map_err(|error| unanswered(&error))?;
        let tagged =
            |job: QueuedJob| Some((job.comment.strip_prefix(MARK)?.trim().parse::<Tag>().ok()?, job));
        Ok(jobs.into_iter().filter_map(tagged).collect())
    }
}

/// What a list that cannot be had says: nothing is known then.
fn unanswered(error: &ProgramError) -> ProviderError {
    ProviderError::Unanswered { provider: NAME, why: error.to_string() }
}

impl Provider for SlurmMachines {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn settle_s(&self) -> f64 {
        // As long as `sbatch` may take, and its job to be listed.
        45.0
    }

    fn offers(&mut self) -> Result<Vec<Offer>, ProviderError> {
        Ok(Vec::new())
    }

    fn request(&mut self, request: &Request) -> Result<(), ProviderError> {
        let options = way(&self.ways, &request.pool, NAME)?.slurm_of(request.pool.market);
        if !self.requested.insert(request.tag.clone()) {
            let jobs = SlurmMachines::jobs(&request.tag.to_string())?;
            if jobs.iter().any(|(tag, _)| *tag == request.tag) {
                return Ok(());
            }
        }
        let mut arguments: Vec<OsString> = vec!["--parsable".into()];
        arguments.extend(["--nodes=1", "--ntasks=1", "--no-requeue", "--output=/dev/null"].map(Into::into));
        arguments.push(format!("--job-name=bellwether-{}", request.tag).into());
        arguments.extend(options.iter().map(Into::into));
        arguments.push(format!("--comment={MARK}{}", request.tag).into());
        let secrets = request.secrets.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let answer =
            Call::new("sbatch", arguments).reading(request.script.clone()).variables(secrets).answer();
        let answer = answer.map_err(|error| of_program(NAME, &error))?;
        submitted(&answer).map(drop).map_err(|why| ProviderError::Unanswered { provider: NAME, why })
    }

    fn list(&mut self, lease: &str) -> Result<Vec<Machine>, ProviderError> {
        let jobs = SlurmMachines::jobs(&format!("{lease}-"))?;
        let runs = jobs.iter().any(|(_, job)| job.state.stage() == JobStage::Runs);
        // What is wrong with nodes is told by them alone; without an answer none is known to be drained.
        let nodes = if runs { nodes_of(None).unwrap_or_default() } else { Vec::new() };
        let drained = nodes.into_iter().filter(|node| node.state == NodeState::Drains);
        let drained: BTreeMap<String, String> = drained.map(|node| (node.name, node.reason)).collect();
        let mut machine = |(tag, job): (Tag, QueuedJob)| {
            let whole_s = job.left_s.map(|left_s| *self.limits_s.entry(job.job).or_insert(left_s));
            Machine { tag, phase: phase(&job, whole_s, &drained) }
        };
        Ok(jobs.into_iter().map(&mut machine).collect())
    }

    fn release(&mut self, tag: &Tag) -> Result<(), ProviderError> {
        let jobs = SlurmMachines::jobs(&tag.to_string())?;
        let of_tag = jobs.into_iter().filter(|(other, _)| other == tag).map(|(_, job)| job.job);
        let numbers: Vec<u64> = of_tag.collect();
        if numbers.is_empty() {
            return Ok(());
        }
        cancel(&numbers, &[]).map_err(|error| unanswered(&error))
    }
}

fn phase(job: &QueuedJob, whole_s: Option<f64>, drained: &BTreeMap<String, String>) -> Phase {
    let limit_s = whole_s.map_or(LIMIT_S, |whole_s| LIMIT_S.min(LIMIT_PART * whole_s));
    let notice = match (job.left_s, drained.get(&job.nodes)) {
        _ if job.is_preempted => Some((0.0, "a job of higher priority takes its place".to_owned())),
        (Some(left_s), _) if left_s < limit_s => Some((left_s, "its time limit comes".to_owned())),
        (_, Some(reason)) if reason.is_empty() => Some((DRAINED_S, format!("{} is drained", job.nodes))),
        (_, Some(reason)) => Some((DRAINED_S, format!("{} is drained ({reason})", job.nodes))),
        (_, None) => None,
    };
    match job.state.stage() {
        JobStage::Waits => Phase::Waits { reason: job.reason.clone() },
        // Processes that end are still there.
        JobStage::Runs | JobStage::Leaves => {
            let notice = notice.map(|(left_s, why)| Notice { left_s, why });
            Phase::Runs { place: job.nodes.clone(), notice }
        }
        JobStage::Over => Phase::Ended { how: format!("its Slurm job {} is over: {}", job.job, job.state) },
    }
}
