//! What a run's steps tell: how fast it is now, and which of them a model may learn from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bellwether_core::record::StepRecord;
use bellwether_model::observed::{Calm, SETTLING_STEPS};

/// Seconds of steps over which a rate is taken, and the fewest of them that tell one.
const RATE_S: f64 = 5.0;
const RATE_STEPS_MIN: usize = 3;

/// Calm steps that are kept until they are handed over; more of the same tell nothing new.
const LESSON_STEPS_MAX: usize = 200;

/// Samples per second since the number of workers changed.
#[derive(Debug, Default)]
pub(super) struct Pace {
    workers: u32,
    seen: usize,
    /// Seconds and samples of the last updates, oldest first.
    updates: VecDeque<(f64, f64)>,
    seconds: f64,
}

impl Pace {
    /// From now on this many workers train.
    pub(super) fn changed(&mut self, workers: u32) {
        *self = Pace { workers, ..Pace::default() };
    }

    /// Takes an update in; of other numbers of workers than the present one nothing is wanted any more.
    pub(super) fn see(&mut self, line: &StepRecord, batch: u64) {
        // One that was handed on to a worker has no times.
        if line.workers != self.workers || line.compute_s <= 0.0 {
            return;
        }
        self.seen += 1;
        if self.seen <= SETTLING_STEPS {
            return;
        }
        self.seconds += line.duration_s;
        self.updates.push_back((line.duration_s, batch as f64 * line.steps() as f64));
        while self.updates.len() > RATE_STEPS_MIN && self.seconds - self.updates[0].0 >= RATE_S {
            self.seconds -= self.updates.pop_front().map_or(0.0, |(seconds, _)| seconds);
        }
    }

    /// Samples per second; `None` where too few steps tell.
    pub(super) fn examples_per_s(&self) -> Option<f64> {
        let samples: f64 = self.updates.iter().map(|(_, samples)| samples).sum();
        (self.updates.len() >= RATE_STEPS_MIN && self.seconds > 0.0).then(|| samples / self.seconds)
    }
}

/// Picks the steps that a model may learn from: calm ones, of the job's own batch.
#[derive(Debug, Default)]
pub(super) struct CalmSteps {
    calm: Calm,
    workers: u32,
    steps: Vec<StepRecord>,
}

impl CalmSteps {
    /// A coordinator began: what follows is warm-up.
    pub(super) fn started(&mut self) {
        *self = CalmSteps::default();
    }

    /// Takes an update in. Answers with the steps of other numbers of workers before it, if there are any.
    pub(super) fn see(&mut self, line: StepRecord) -> Option<(u32, Vec<StepRecord>)> {
        let before = (line.workers != self.workers).then(|| self.take()).flatten();
        self.workers = line.workers;
        // One that was handed on to a worker has no times.
        let has_times = !line.nodes_s.is_empty() || line.unit_count > 0;
        let told = line.steps() == 1 && line.duration_s > 0.0 && has_times;
        if self.calm.tells(line.workers, line.shadows) && told && self.steps.len() < LESSON_STEPS_MAX {
            // How much each worker exchanged with which other teaches nothing here, nor do single units.
            self.steps.push(StepRecord { traffic: Vec::new(), units: Vec::new(), ..line });
        }
        before
    }

    /// The steps picked since the last time, with their number of workers; `None` when there are none.
    pub(super) fn take(&mut self) -> Option<(u32, Vec<StepRecord>)> {
        (!self.steps.is_empty()).then(|| (self.workers, std::mem::take(&mut self.steps)))
    }
}

/// The workers of a job, counted with those of all jobs until it is dropped.
pub(super) struct InCrowd {
    crowd: Arc<AtomicU32>,
    own: u32,
}

impl InCrowd {
    /// None yet.
    pub(super) fn new(crowd: &Arc<AtomicU32>) -> InCrowd {
        InCrowd { crowd: Arc::clone(crowd), own: 0 }
    }

    /// From now on the job has this many.
    pub(super) fn set(&mut self, workers: u32) {
        let before = std::mem::replace(&mut self.own, workers);
        self.crowd.fetch_add(workers, Ordering::Relaxed);
        self.crowd.fetch_sub(before, Ordering::Relaxed);
    }

    /// Workers of all jobs.
    pub(super) fn all(&self) -> u32 {
        self.crowd.load(Ordering::Relaxed)
    }
}

impl Drop for InCrowd {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, workers: u32, shadows: u32) -> StepRecord {
        StepRecord {
            step,
            duration_s: 0.5,
            compute_s: 0.4,
            exchange_s: 0.1,
            nodes_s: vec![0.4],
            workers,
            shadows,
            ..StepRecord::default()
        }
    }

    #[test]
    fn a_rate_is_of_the_present_workers() {
        let mut pace = Pace::default();
        pace.changed(1);
        (0..4).for_each(|step| pace.see(&line(step, 1, 0), 10));
        assert_eq!(pace.examples_per_s(), None, "2 of 4 steps settle, and 2 tell nothing");
        pace.see(&line(4, 1, 0), 10);
        assert_eq!(pace.examples_per_s(), Some(20.0));
        (5..100).for_each(|step| pace.see(&StepRecord { duration_s: 1.0, ..line(step, 1, 0) }, 10));
        assert_eq!((pace.examples_per_s(), pace.updates.len()), (Some(10.0), 5), "the last five seconds");
        pace.changed(2);
        (0..100).for_each(|step| pace.see(&line(step, 1, 0), 10));
        assert_eq!(pace.examples_per_s(), None, "late news of one worker");
    }

    #[test]
    fn steps_to_learn_from_are_calm() {
        let mut lesson = CalmSteps::default();
        let see = |lesson: &mut CalmSteps, steps: u64, workers, shadows| -> Vec<(u32, usize)> {
            let handed = (0..steps).filter_map(|step| lesson.see(line(step, workers, shadows)));
            handed.map(|(workers, steps)| (workers, steps.len())).collect()
        };
        see(&mut lesson, 10, 1, 0);
        assert_eq!(lesson.take(), None, "warm-up");
        see(&mut lesson, 3, 1, 0);
        assert_eq!(lesson.take().map(|(workers, steps)| (workers, steps.len())), Some((1, 3)));
        see(&mut lesson, 5, 1, 1);
        assert_eq!(lesson.take(), None, "a newcomer");
        see(&mut lesson, 3, 1, 0);
        assert_eq!(see(&mut lesson, 4, 2, 0), [(1, 1)]);
        assert_eq!(lesson.take().map(|(workers, steps)| (workers, steps.len())), Some((2, 2)));
        see(&mut lesson, 500, 2, 0);
        assert_eq!(lesson.take().map(|(_, steps)| steps.len()), Some(LESSON_STEPS_MAX));
    }

    #[test]
    fn the_workers_of_all_jobs_are_counted_while_they_run() {
        let crowd = Arc::default();
        let (mut one, mut other) = (InCrowd::new(&crowd), InCrowd::new(&crowd));
        one.set(3);
        other.set(1);
        one.set(2);
        assert_eq!(other.all(), 3);
        drop(one);
        assert_eq!(other.all(), 1);
    }

    #[test]
    fn warm_up_begins_again_with_a_coordinator() {
        let mut lesson = CalmSteps::default();
        (0..20).for_each(|step| assert!(lesson.see(line(step, 1, 0)).is_none()));
        lesson.started();
        assert_eq!(lesson.take(), None);
        (0..10).for_each(|step| assert!(lesson.see(line(step, 1, 0)).is_none()));
        assert_eq!(lesson.take(), None);
    }
}
