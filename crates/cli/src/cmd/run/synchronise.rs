//! Who waits for whom in a run, as its job says.

use bellwether_core::job::{Job, Order, Reduce};
use bellwether_core::plan::{Synchronisation, TransmissionOrder};
use bellwether_runtime::membership::TraineeDescription;

/// The stretches of the run, its servers, and in which order parts travel.
pub(super) fn synchronisation(job: &Job, trainee: &TraineeDescription) -> Synchronisation {
    let total_steps = job.total_steps(trainee.training_samples);
    let order = match job.sync.order {
        Order::Fifo => TransmissionOrder::Fifo,
        Order::Window(window_bytes) => TransmissionOrder::RoundRobin { window_bytes },
        // The forward pass needs the tensors in the order of the layout.
        Order::Priority => TransmissionOrder::Priority((0..trainee.layout.parameters.len() as u32).collect()),
    };
    Synchronisation {
        stretches: job.sync.policy.stretches(total_steps),
        servers: job.sync.servers,
        reduce_at_servers: job.sync.reduce == Reduce::Servers,
        replica: job.sync.replica,
        order,
    }
}
