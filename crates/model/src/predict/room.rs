//! Memory: what a worker needs, and whether it fits.

use bellwether_core::prediction::{Configuration, PredictError};

use super::ProfileModel;
use crate::memory::Need;

impl ProfileModel {
    /// What the largest worker of a configuration needs; `None` where too little was measured.
    pub fn memory(&self, configuration: &Configuration) -> Option<Need> {
        let mut largest: Option<Need> = None;
        for model in self.models(configuration) {
            let (batch, virtual_nodes, workers) = model.shared(configuration);
            let need = model.memory.as_ref()?.worker(batch, virtual_nodes, workers)?;
            largest = largest.filter(|known| known.bytes >= need.bytes).or(Some(need));
        }
        largest
    }

    /// Refuses a configuration whose largest worker needs more than `room_bytes`, as far as it is known.
    pub(super) fn check_room(
        &self,
        configuration: &Configuration,
        room_bytes: f64,
    ) -> Result<(), PredictError> {
        for model in self.models(configuration) {
            let (batch, virtual_nodes, workers) = model.shared(configuration);
            let Some(law) = &model.memory else { continue };
            law.fits(batch.round() as u64, virtual_nodes, workers, room_bytes)
                .map_err(|short| PredictError::DoesNotFit(short.to_string()))?;
        }
        Ok(())
    }

    /// The samples that are cut into virtual nodes, how many these are, and the workers that share them.
    fn shared(&self, configuration: &Configuration) -> (f64, u32, u32) {
        let nodes = self.profile.virtual_nodes;
        let Some((samples, _, _)) = self.micro_batch(configuration) else {
            let same =
                (self.batch_factor(configuration) - 1.0).abs() < 1e-9 || self.is_whole_units(configuration);
            let factor = if same { 1.0 } else { self.batch_factor(configuration) };
            return (factor * self.profile.batch as f64, nodes, self.sharing(configuration));
        };
        (samples * f64::from(nodes), nodes, self.sharing(configuration))
    }

    /// Workers that share a batch. Those of parameter servers, and of other frameworks, are taken to need what a lone
    /// one does.
    fn sharing(&self, configuration: &Configuration) -> u32 {
        match self.shares_batch() && configuration.servers == 0 {
            true => configuration.workers().min(self.profile.virtual_nodes),
            false => 1,
        }
    }
}
