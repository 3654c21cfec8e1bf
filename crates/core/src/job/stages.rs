//! How long the stages of a worker's start may take, where a job says so.

use std::time::Duration;

use super::{Job, Model};

impl Job {
    /// How long each stage of a worker's start may take, where the job says so.
    pub fn stage_allowance(&self) -> Option<Duration> {
        match &self.model {
            Model::Python { stage_allowance, .. } => {
                stage_allowance.and_then(|allowance| Duration::try_from_secs_f64(allowance.get()).ok())
            }
            _ => None,
        }
    }
}
