//! What a run goes on from, the newest checkpoint that can be used; and what it could go on from later.

use bellwether_core::record::Event as Journaled;

use super::checkpoints::Stored;
use super::{CoordinatorError, Run, system};
use crate::membership::WorkloadDescription;
use crate::membership::coordinator::Event;

impl Run {
    /// Finds the checkpoint that the run begins from, if there is one, once the layout is known.
    pub(super) fn find_checkpoint(&mut self, workload: &WorkloadDescription) -> Result<(), CoordinatorError> {
        if self.slices.is_some() {
            return self.find_slices(workload);
        }
        // A new run begins from its seed or its initial weights, whatever lies in the folder.
        let newest = if self.resumed { self.planes.checkpoints.newest()? } else { None };
        if let Some(loaded) = newest {
            let accepts = self.options.accept_other_data;
            self.past.check_class(&loaded.path, &loaded.kernel_class, &workload.fingerprint, accepts)?;
            for error in &loaded.skipped {
                let event =
                    Journaled::CheckpointFailed { step: loaded.state.step, reason: error.to_string() };
                self.write(&event);
            }
            self.last_checkpoint = Some(loaded.path.display().to_string());
            self.machine.set_checkpoint(Some(loaded.state.step));
        } else if let Some(file) = &self.options.initial_weights {
            let kept = self.planes.checkpoints.keep_initial(file);
            kept.map_err(system(format!("take the initial weights in {}", file.display())))?;
            // The checkpoint holds them now.
            let _ = std::fs::remove_file(file);
            self.machine.set_checkpoint(Some(0));
        }
        Ok(())
    }

    /// The same of checkpoints in slices.
    fn find_slices(&mut self, workload: &WorkloadDescription) -> Result<(), CoordinatorError> {
        let Some(slices) = &self.slices else { return Ok(()) };
        let (found, skipped) = slices.candidates(self.resumed)?;
        let accepts = self.options.accept_other_data;
        let mut steps = Vec::new();
        for candidate in &found {
            let class = &candidate.manifest.kernel_class;
            match self.past.check_class(&candidate.path, class, &workload.fingerprint, accepts) {
                Ok(()) => steps.push(candidate.manifest.step),
                Err(error) if steps.is_empty() => return Err(error),
                // An older one of other kernels cannot be used either.
                Err(_) => {}
            }
        }
        for error in &skipped {
            let step = steps.first().copied().unwrap_or(0);
            self.write(&Journaled::CheckpointFailed { step, reason: error.to_string() });
        }
        let Some(newest) = found.first().filter(|_| !steps.is_empty()) else { return Ok(()) };
        self.last_checkpoint = Some(newest.path.display().to_string());
        self.machine.set_checkpoint(Some(steps.remove(0)));
        self.machine.set_older_checkpoints(steps);
        Ok(())
    }

    /// A checkpoint was written, or could not be.
    pub(super) fn stored(&mut self, stored: Stored) {
        let step = stored.step;
        let result = match stored.result {
            Ok((path, bytes)) => {
                let path = path.display().to_string();
                self.last_checkpoint = Some(path.clone());
                let Stored { seconds, stall_s, .. } = stored;
                self.write(&Journaled::Checkpointed { step, path, bytes, seconds, stall_s });
                // Whatever a power cut takes, the journal knows of this point.
                self.lines.sync_in_background();
                Ok(())
            }
            Err(reason) => {
                self.write(&Journaled::CheckpointFailed { step, reason: reason.clone() });
                Err(reason)
            }
        };
        self.handle(Event::Checkpoint(step, result));
    }
}
