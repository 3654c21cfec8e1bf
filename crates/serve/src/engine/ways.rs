//! The ways in which the workers of a submitted job may be kept together, where its author left several.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job, SyncPolicy, WorkerRange};

use crate::state::server_slots;

/// Most ways of a job: while each is predicted from its profile for every number of slots, the daemon does nothing
/// else.
const WAYS_MAX: usize = 16;

/// The job with each of `protocols`, else its own, and each number of servers where a protocol has them, else its own.
///
/// # Errors
///
/// Returns an error if the job cannot be trained in one of these ways, if servers are wished that no protocol needs, or
/// if there are too many ways.
pub(super) fn variants(
    job: &CheckedJob,
    protocols: &[SyncPolicy],
    servers: Option<WorkerRange>,
    total_steps: u64,
) -> Result<Vec<CheckedJob>, InputError> {
    let own = [job.sync.policy.clone()];
    let policies = if protocols.is_empty() { &own[..] } else { protocols };
    let is_one = |policy: &&SyncPolicy| policy.shares().is_some_and(|shares| shares.len() == 1);
    if let Some(policy) = policies.iter().find(|policy| policies.len() > 1 && !is_one(policy)) {
        let what = format!("`{policy}` has several phases, and its first does not say how fast it is in all");
        return Err(InputError::new("protocols", what).hint("name it alone, or only words such as `asp`"));
    }
    if let Some(servers) = servers
        && !policies.iter().any(|policy| has_servers(job, policy, total_steps))
    {
        let what = format!("{servers} servers, and no protocol of the job has any");
        return Err(InputError::new("servers", what).hint("name `asp` or `ssp:K` among its protocols"));
    }
    let mut variants: Vec<CheckedJob> = Vec::new();
    for policy in policies {
        let own = WorkerRange { min: job.sync.servers, max: job.sync.servers };
        let counts = if has_servers(job, policy, total_steps) { servers.unwrap_or(own) } else { own };
        for servers in counts.min..=counts.max {
            if variants.len() == WAYS_MAX {
                let what = format!("the job would have more than {WAYS_MAX} ways to be trained");
                return Err(InputError::new("servers", what).hint("name fewer numbers of servers"));
            }
            let variant = job.clone().edit(|job| {
                policy.clone_into(&mut job.sync.policy);
                job.sync.servers = servers;
            })?;
            if variants.iter().all(|known| known.sync != variant.sync) {
                variants.push(variant);
            }
        }
    }
    Ok(variants)
}

fn has_servers(job: &Job, policy: &SyncPolicy, total_steps: u64) -> bool {
    let mut job = job.clone();
    policy.clone_into(&mut job.sync.policy);
    server_slots(&job, total_steps) > 0
}
