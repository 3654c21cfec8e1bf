//! What follows when two workers computed a virtual node differently.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Job, Reduce};
use crate::error::InputError;

/// What follows when two workers computed a virtual node differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnMismatch {
    /// The run ends as failed, with the state from before the step.
    #[default]
    Stop,
    /// A third worker computes the virtual node too; a worker whose result no other confirms is sent away and replaced.
    /// Where that cannot be told, the run ends as with `stop`.
    Quarantine,
}

impl OnMismatch {
    // Serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn is_stop(&self) -> bool {
        *self == OnMismatch::Stop
    }
}

/// Only what has equal bits can be computed again and compared.
pub(super) fn check(job: &Job) -> Result<(), InputError> {
    if job.verify_every == 0 {
        return match job.on_mismatch {
            OnMismatch::Stop => Ok(()),
            OnMismatch::Quarantine => Err(InputError::new("on_mismatch", "nothing is verified")
                .hint("set verify_every, for example to 100 (steps)")),
        };
    }
    if !job.sync.is_synchronous() {
        let what = "asynchronous updates have no equal bits: a gradient depends on when its worker took the parameters, so \
                    that no other worker can compute it again";
        return Err(InputError::new("verify_every", what)
            .hint("leave it out, or use sync.policy = \"bsp\" (without sync.stragglers = \"greedy\")"));
    }
    if job.sync.reduce == Reduce::Servers {
        let what = "gradients leave for the servers tensor by tensor while they are computed, so that they cannot be \
                    compared before they are applied";
        return Err(
            InputError::new("verify_every", what).hint("leave it out, or use sync.reduce = \"all-reduce\"")
        );
    }
    Ok(())
}
