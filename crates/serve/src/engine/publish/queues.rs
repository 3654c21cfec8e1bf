//! The queues as clients see them.

use std::collections::BTreeMap;

use bellwether_core::queue::DEFAULT_QUEUE;

use super::tally::{Counts, Tally};
use crate::snapshot::{QueueSlots, QueueState};
use crate::state::{Queues, Record, State};

/// The queue of a job, where queues divide the slots.
pub(super) fn queue_of(state: &State, record: &Record) -> Option<String> {
    // On machines of its own it takes no queue's slots.
    state.queues.as_ref().filter(|_| record.submitted.provision.is_none())?;
    Some(record.submitted.queue.clone().unwrap_or_else(|| DEFAULT_QUEUE.into()))
}

/// All queues, one after the queue above it.
pub(super) fn queues(state: &State, tally: &Tally) -> Vec<QueueState> {
    let Some(queues) = &state.queues else { return Vec::new() };
    let Queues { tree, history, .. } = queues;
    let view = &state.view;
    let by_kind: Vec<(Vec<u32>, Vec<u32>)> = (0..view.device_types.len() as u16)
        .map(|kind| {
            let name = &view.device_types[usize::from(kind)];
            let whole = view.devices_with_down(kind);
            (tree.guarantees(name, view.devices(Some(kind))), tree.limits(name, whole))
        })
        .collect();
    let slots = |at: usize| {
        by_kind.iter().enumerate().map(move |(kind, (guarantees, limits))| QueueSlots {
            device_type: view.device_types[kind].clone(),
            guaranteed: guarantees[at],
            limit: Some(limits[at]).filter(|limit| *limit < u32::MAX),
            held: queues.held_of(at, kind),
        })
    };
    let mut jobs: Vec<Counts> = vec![BTreeMap::new(); tree.queues().len()];
    for (name, counts) in &tally.by_queue {
        let Some(at) = tree.find(name) else { continue };
        for above in tree.path(at) {
            for (phase, count) in counts {
                *jobs[above].entry(*phase).or_default() += count;
            }
        }
    }
    let state = |((at, queue), jobs): ((usize, &bellwether_core::queue::Queue), Counts)| QueueState {
        name: queue.name.clone(),
        weight: queue.weight,
        slots: slots(at).collect(),
        jobs,
        recent_slot_s: history.device_s(at),
    };
    tree.queues().iter().enumerate().zip(jobs).map(state).collect()
}
