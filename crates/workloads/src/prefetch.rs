//! A thread that reads the samples of the next micro-batches while one is computed.
//!
//! Which samples come next is a function of step and virtual node, so that it is known as long as a worker keeps its
//! virtual nodes. It decides no bits: a micro-batch that was not read ahead is read when it is asked for.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use bellwether_runtime::order::{SampleOrder, micro_batch_seed};
use bellwether_runtime::workload::WorkloadError;

use crate::data::{Batch, Dataset, Part};

/// Bytes of samples that may lie ready, unless one micro-batch has more.
const READY_BYTES: usize = 64 << 20;

/// Micro-batches that may lie ready.
const READY_MAX: usize = 64;

/// Samples that are read ahead.
pub(crate) struct Prefetch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    waited_s: f64,
}

struct Shared {
    data: Arc<Dataset>,
    order: SampleOrder,
    /// Steps beyond the one that is computed whose micro-batches may be asked for before it is over.
    steps_ahead: u64,
    state: Mutex<State>,
    /// Something lies ready, or there is room for more.
    changed: Condvar,
}

/// A micro-batch by step and virtual node.
type Place = (u64, u32);

#[derive(Default)]
struct State {
    nodes: Range<u32>,
    /// What is read next, or is being read.
    next: Place,
    is_reading: bool,
    ready: VecDeque<(Place, Result<Batch, WorkloadError>)>,
    ready_bytes: usize,
    /// Asked for before they were read.
    taken: BTreeSet<Place>,
    is_over: bool,
}

impl Prefetch {
    /// Reads ahead in this order; a worker that adds several steps up asks for `steps_ahead` beyond the first.
    pub(crate) fn new(data: Arc<Dataset>, order: SampleOrder, steps_ahead: u64) -> Prefetch {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { data, order, steps_ahead, state, changed });
        Prefetch { shared, thread: None, waited_s: 0.0 }
    }

    /// These virtual nodes are computed from `step` on.
    pub(crate) fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        let mut state = self.shared.lock();
        // What is being read belongs to another plan by then, and is dropped.
        *state = State { next: (step, nodes.start), nodes, is_over: state.is_over, ..State::default() };
        drop(state);
        self.shared.changed.notify_all();
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let read_ahead = move || {
                let _end = End(&shared);
                shared.read_ahead();
            };
            // Without a thread samples are read when they are asked for.
            self.thread = std::thread::Builder::new().name("samples".into()).spawn(read_ahead).ok();
        }
    }

    /// The samples of a micro-batch, whose seed tells it from others. What it is waited for is counted.
    pub(crate) fn batch(&mut self, samples: &[u64], seed: u64) -> Result<Batch, WorkloadError> {
        if let Some(ready) = self.shared.ready(seed) {
            return ready;
        }
        let began = Instant::now();
        let batch =
            self.shared.awaited(seed).unwrap_or_else(|| self.shared.data.batch(Part::Training, samples));
        self.waited_s += began.elapsed().as_secs_f64();
        batch
    }

    /// Seconds that were waited for samples since the last call.
    pub(crate) fn take_waited_s(&mut self) -> f64 {
        std::mem::take(&mut self.waited_s)
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whatever ends the thread, what it was reading is not waited for.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.0.lock() = State { is_over: true, ..State::default() };
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seed_of(&self, (step, node): Place) -> u64 {
        micro_batch_seed(self.order.seed, step, node)
    }

    /// A micro-batch that lies ready.
    fn ready(&self, seed: u64) -> Option<Result<Batch, WorkloadError>> {
        let mut state = self.lock();
        let index = state.ready.iter().position(|(place, _)| self.seed_of(*place) == seed)?;
        let ((step, _), batch) = state.ready.remove(index)?;
        state.forget_before(step.saturating_sub(self.steps_ahead));
        state.ready_bytes = state.ready.iter().map(|(_, batch)| size(batch)).sum();
        drop(state);
        self.changed.notify_all();
        Some(batch)
    }

    /// A micro-batch that is being read; one that is still far away is not read ahead any more.
    fn awaited(&self, seed: u64) -> Option<Result<Batch, WorkloadError>> {
        let mut state = self.lock();
        while state.is_reading && self.seed_of(state.next) == seed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if let Some(batch) = self.ready(seed) {
            return Some(batch);
        }
        let mut state = self.lock();
        let (step, _) = state.next;
        let coming = (step..=step + self.steps_ahead)
            .flat_map(|step| state.nodes.clone().map(move |node| (step, node)))
            .find(|place| self.seed_of(*place) == seed);
        state.taken.extend(coming);
        None
    }

    fn read_ahead(&self) {
        let mut samples = Vec::new();
        let mut state = self.lock();
        loop {
            let full = state.ready_bytes >= READY_BYTES || state.ready.len() >= READY_MAX;
            if state.is_over {
                return;
            }
            if (full && !state.ready.is_empty()) || state.nodes.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (place, nodes) = (state.next, state.nodes.clone());
            if state.taken.remove(&place) {
                state.advance();
                continue;
            }
            state.is_reading = true;
            drop(state);
            self.order.micro_batch(place.0, place.1, &mut samples);
            let batch = self.data.batch(Part::Training, &samples);
            state = self.lock();
            if state.next == place && state.nodes == nodes && state.is_reading {
                state.is_reading = false;
                state.ready_bytes += size(&batch);
                state.ready.push_back((place, batch));
                state.advance();
            }
            self.changed.notify_all();
        }
    }
}

impl State {
    /// Goes on to the next micro-batch.
    fn advance(&mut self) {
        let (step, node) = self.next;
        self.next = if node + 1 < self.nodes.end { (step, node + 1) } else { (step + 1, self.nodes.start) };
    }

    /// Steps before `step` are over.
    fn forget_before(&mut self, step: u64) {
        self.ready.retain(|(place, _)| place.0 >= step);
        self.taken.retain(|place| place.0 >= step);
        if self.next.0 < step && !self.is_reading {
            self.next = (step, self.nodes.start);
        }
    }
}

fn size(batch: &Result<Batch, WorkloadError>) -> usize {
    batch.as_ref().map_or(0, Batch::bytes)
}

#[cfg(test)]
mod tests {
    use bellwether_core::job::Data;
    use proptest::prelude::*;

    use super::*;
    use crate::data::Access;

    fn digits() -> Arc<Dataset> {
        let data = Data::Digits { held_out: 0.2, order: None };
        Arc::new(Dataset::load(&data, 1, Access::Whole(&|_| unreachable!("no file is read"))).unwrap())
    }

    fn order(data: &Dataset) -> SampleOrder {
        let samples = data.count(Part::Training);
        SampleOrder { samples, batch: 32, virtual_nodes: 4, seed: 5, block: None }
    }

    /// Asks for a micro-batch and compares it with what it is.
    fn ask(prefetch: &mut Prefetch, (step, node): Place) {
        let (data, order) = (Arc::clone(&prefetch.shared.data), prefetch.shared.order);
        let mut samples = Vec::new();
        order.micro_batch(step, node, &mut samples);
        let batch = prefetch.batch(&samples, micro_batch_seed(order.seed, step, node)).unwrap();
        assert_eq!(batch, data.batch(Part::Training, &samples).unwrap(), "step {step}, node {node}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn whatever_is_asked_for_comes(
            asked in prop::collection::vec((0u64..40, 0u32..4, 0u8..8), 1..60), steps_ahead in 0u64..3,
        ) {
            let data = digits();
            let mut prefetch = Prefetch::new(Arc::clone(&data), order(&data), steps_ahead);
            let mut step = 0;
            for (number, node, what) in asked {
                match what {
                    // A step in order, one by another worker's node, or one that is done again.
                    0..4 => {
                        (0..4).for_each(|node| ask(&mut prefetch, (step, node)));
                        step += 1;
                    }
                    4 => ask(&mut prefetch, (number, node)),
                    5 => std::thread::yield_now(),
                    _ => {
                        step = number;
                        prefetch.assigned(step, node..4);
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_read_ahead_is_not_waited_for() {
        let data = digits();
        let mut prefetch = Prefetch::new(Arc::clone(&data), order(&data), 0);
        ask(&mut prefetch, (0, 0));
        assert!(prefetch.take_waited_s() > 0.0, "nothing was read ahead");
        prefetch.assigned(0, 0..4);
        let is_full = |prefetch: &Prefetch| prefetch.shared.lock().ready.len() == READY_MAX;
        while !is_full(&prefetch) {
            std::thread::yield_now();
        }
        for step in 0..100 {
            (0..4).for_each(|node| ask(&mut prefetch, (step, node)));
            while !is_full(&prefetch) {
                std::thread::yield_now();
            }
        }
        assert_eq!(prefetch.take_waited_s(), 0.0);
    }
}
