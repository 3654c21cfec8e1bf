//! The same job with its batch cut into another number of virtual nodes.

use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::profile::{Operation, OperationKind, Profile};

use super::ProfileModel;
use super::devices::Device;

const PLACE: &str = "virtual nodes";

impl ProfileModel {
    /// The same batch in another number of virtual nodes: micro-batches of another size, which take what
    /// [`crate::batch_times`] says of it. To the person who trains it is another job: sums are added up in another
    /// order, and what a layer takes from its micro-batch (batch normalisation) is of another size.
    ///
    /// # Errors
    ///
    /// Returns an error for a number that does not divide the batch, for a micro-batch beyond the measured ones, and
    /// for a profile whose workers share no batch or that is not of virtual nodes one after another.
    pub fn with_virtual_nodes(&self, virtual_nodes: u32) -> Result<ProfileModel, InputError> {
        let wrong = |what: String, hint: &str| Err(InputError::new(PLACE, what).hint(hint));
        let profile = &self.profile;
        if virtual_nodes == profile.virtual_nodes {
            return Ok(self.clone());
        }
        let cut = profile.virtual_nodes as usize;
        let (computing, others) = profile.operations.split_at(cut.min(profile.operations.len()));
        let computes = |operation: &Operation| operation.kind == OperationKind::Compute;
        if !self.shares_batch() || !computing.iter().all(computes) || others.iter().any(computes) {
            let what = "the profile is not of virtual nodes that are computed one after another".into();
            return wrong(what, "leave their number as it is");
        }
        if virtual_nodes == 0 || !profile.batch.is_multiple_of(u64::from(virtual_nodes)) {
            let what = format!("a batch of {} is not cut into {virtual_nodes} equal parts", profile.batch);
            return wrong(what, "name a number that divides the batch");
        }
        let samples = profile.batch as f64 / f64::from(virtual_nodes);
        let Some(estimate) = self.batches.as_ref().map(|times| times.at(samples)).filter(|at| at.inside)
        else {
            let what = format!("nothing was measured of micro-batches of {samples} samples");
            return wrong(what, "measure them too: bellwether profile JOB --batches 16,64,256");
        };
        let known_s = self.batches.as_ref().map_or(1.0, |times| times.at(profile.micro_batch()).seconds);
        let mut model = ProfileModel::new(recut(profile, virtual_nodes, estimate.seconds / known_s))?;
        for (name, device) in &self.devices {
            let cut = match device {
                Device::Relative(speed) => Device::Relative(*speed),
                Device::Measured(measured) => {
                    let place =
                        |error: InputError| InputError { what: format!("`{name}`: {}", error.what), ..error };
                    Device::Measured(Arc::new(measured.with_virtual_nodes(virtual_nodes).map_err(place)?))
                }
            };
            model.devices.insert(name.clone(), cut);
        }
        // It was measured with the virtual nodes of the profile.
        model.memory.clone_from(&self.memory);
        Ok(model)
    }
}

/// The profile with other virtual nodes, each of which takes `factor` times as long as one that was measured.
fn recut(profile: &Profile, virtual_nodes: u32, factor: f64) -> Profile {
    let before = profile.virtual_nodes as usize;
    let nodes = virtual_nodes as usize;
    let place = |number: &u32| match *number as usize {
        number if number < before => virtual_nodes - 1,
        number => (number - before + nodes) as u32,
    };
    let computing = (0..virtual_nodes).map(|node| Operation {
        name: format!("virtual node {node}"),
        kind: OperationKind::Compute,
        after: node.checked_sub(1).into_iter().collect(),
    });
    let others = profile.operations[before..].iter().map(|operation| {
        let mut after: Vec<u32> = operation.after.iter().map(place).collect();
        after.dedup();
        Operation { after, ..operation.clone() }
    });
    let mut cut = Profile { operations: computing.chain(others).collect(), virtual_nodes, ..profile.clone() };
    cut.computation = None;
    for step in &mut cut.steps {
        let (measured_s, others_s) = step.operations_s.split_at(before);
        let nodes_s: Vec<f64> =
            measured_s.iter().cycle().take(nodes).map(|seconds| seconds * factor).collect();
        step.step_s += nodes_s.iter().sum::<f64>() - measured_s.iter().sum::<f64>();
        step.operations_s = [nodes_s, others_s.to_vec()].concat();
    }
    cut
}
