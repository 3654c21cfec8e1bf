//! The plan of a run's machines.

use std::path::PathBuf;

use bellwether_core::plan::Plan;

use super::{RunDir, RunDirError, write_json};

const PLAN: &str = "plan.json";

impl RunDir {
    /// `plan.json`: the machines that a daemon's job obtains from a provider.
    pub fn plan_file(&self) -> PathBuf {
        self.path.join(PLAN)
    }

    /// Keeps the plan of the machines that the run obtains; one that is kept already stays.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep_plan(&self, plan: &Plan) -> Result<(), RunDirError> {
        if self.plan_file().exists() {
            return Ok(());
        }
        write_json(&self.plan_file(), plan, false)
    }
}
