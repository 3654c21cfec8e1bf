//! Whether each worker holds the whole optimizer state, or a share of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Job;
use super::ensure::{Check, ensure};

/// Most workers that hold the same part.
pub(super) const COPIES_MAX: u32 = 16;

/// The optimizer's state is cut into virtual shards, which the workers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sharding {
    /// Workers that hold each virtual shard, at most as many as there are. With 1 the run goes back to the last
    /// checkpoint when a worker dies; with 2 or more it loses nothing while fewer workers than that die at once.
    #[serde(default = "one")]
    pub copies: u32,
}

fn one() -> u32 {
    1
}

/// Copies, and an update rule that treats each parameter by itself.
pub(super) fn check(job: &Job) -> Check {
    let Some(Sharding { copies }) = job.sharding else { return Ok(()) };
    ensure(
        (1..=COPIES_MAX).contains(&copies),
        "sharding.copies",
        format!("{copies} is not in 1…{COPIES_MAX}"),
        "write copies = 2 to survive the loss of one worker at a time",
    )?;
    ensure(
        !job.optimizer.is_own(),
        "sharding",
        "the update rule is the program's own, and may need more than a share of the state",
        "leave the table [sharding] out, or use a rule of the job file",
    )?;
    ensure(
        job.checkpoint.url.is_none(),
        "sharding",
        "slices of a checkpoint (checkpoint.url) are cut from the whole optimizer state",
        "leave checkpoint.url out: the workers send their shards to the coordinator",
    )
}
