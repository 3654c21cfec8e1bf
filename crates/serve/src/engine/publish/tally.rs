//! How many jobs are in which state, in all and by queue, counted as jobs change.

use std::collections::BTreeMap;

use bellwether_core::cluster::JobId;

use crate::snapshot::Phase;

/// Jobs by state.
pub(super) type Counts = BTreeMap<Phase, u64>;

/// Counts of jobs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Of each job what it is counted as.
    jobs: BTreeMap<JobId, (Phase, Option<String>)>,
    /// All jobs.
    pub(super) all: Counts,
    /// By name of the queue where jobs are.
    pub(super) by_queue: BTreeMap<String, Counts>,
}

impl Tally {
    /// A job is in this state and in this queue from now on.
    pub(super) fn count(&mut self, job: JobId, phase: Phase, queue: Option<&String>) {
        if let Some((before, queue)) = self.jobs.insert(job, (phase, queue.cloned())) {
            less(&mut self.all, before);
            if let Some(counts) = queue.and_then(|queue| self.by_queue.get_mut(&queue)) {
                less(counts, before);
            }
        }
        *self.all.entry(phase).or_default() += 1;
        if let Some(queue) = queue {
            *self.by_queue.entry(queue.clone()).or_default().entry(phase).or_default() += 1;
        }
    }
}

fn less(counts: &mut Counts, phase: Phase) {
    if let Some(count) = counts.get_mut(&phase) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&phase);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_counted_once_as_what_it_was_last() {
        let mut tally = Tally::default();
        let (a, b) = ("a".to_owned(), "b".to_owned());
        tally.count(JobId(0), Phase::Queued, Some(&a));
        tally.count(JobId(1), Phase::Queued, None);
        tally.count(JobId(0), Phase::Running, Some(&a));
        assert_eq!(tally.all, BTreeMap::from([(Phase::Queued, 1), (Phase::Running, 1)]));
        assert_eq!(tally.by_queue[&a], BTreeMap::from([(Phase::Running, 1)]));
        tally.count(JobId(0), Phase::Finished, Some(&b));
        assert!(tally.by_queue[&a].is_empty());
        assert_eq!(tally.by_queue[&b], BTreeMap::from([(Phase::Finished, 1)]));
    }
}
