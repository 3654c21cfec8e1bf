//! What follows when two workers computed a virtual node differently.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Job;
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

/// What follows a difference needs something that is compared. Where that cannot be, the table of modes says.
pub(super) fn check(job: &Job) -> Result<(), InputError> {
    if job.verify_every == 0 && job.on_mismatch == OnMismatch::Quarantine {
        return Err(InputError::new("on_mismatch", "nothing is verified")
            .hint("set verify_every, for example to 100 (steps)"));
    }
    Ok(())
}
