//! The batch of a run in mode `goodput`: tells `sched` what the updates took, and the coordinator what is
//! better.

use bellwether_core::job::Job;
use bellwether_core::record::{Event, StepRecord};
use bellwether_runtime::coordinator::{BatchPlan, Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_sched::batch::{Governor, Limits, Times};

/// Who chooses the batch of this job; `None` where it never moves or is fixed in advance.
pub(crate) fn director(job: &Job) -> Option<Box<dyn Director>> {
    let goodput = job.mode.goodput().filter(|goodput| goodput.schedule.is_empty())?;
    let batch = job.batch.size;
    let limits = Limits::up_to(goodput.max_accumulation(batch));
    Some(Box::new(BatchDirector {
        governor: Governor::new(batch, limits),
        batch,
        since: 0,
        shares: Default::default(),
    }))
}

/// Lets the batch grow and shrink.
struct BatchDirector {
    governor: Governor,
    batch: u64,
    /// The boundary at which the present workers began: updates before it were done by others.
    since: u64,
    /// Who has which virtual nodes, and who receives the state meanwhile.
    shares: (Vec<u64>, Vec<u32>, Vec<u64>),
}

impl BatchDirector {
    fn committed(&mut self, records: &[StepRecord], step: u64) -> Option<DirectorCommand> {
        // One that was handed on to a worker has no times.
        for record in records.iter().filter(|r| r.step >= self.since && r.compute_s > 0.0) {
            let gradients_s = record.gradients_s() / record.steps() as f64;
            let times = Times { gradients_s, update_s: record.duration_s - record.gradients_s() };
            self.governor.saw(record.accumulation.max(1), times, record.noise_scale?);
        }
        let (now, better) = self.governor.decide(step)?;
        let samples = |accumulation: u32| self.batch * u64::from(accumulation);
        let reason = format!(
            "with {} samples per update {:.0} samples/s are expected, each worth {:.0} % of one in the job's own batch: \
             {:+.0} % progress per second over {} samples",
            samples(better.accumulation),
            better.examples_per_s,
            better.efficiency * 100.0,
            (better.goodput() / now.goodput() - 1.0) * 100.0,
            samples(now.accumulation),
        );
        Some(DirectorCommand::Accumulate(BatchPlan {
            accumulation: better.accumulation,
            expected_examples_per_s: better.examples_per_s,
            expected_efficiency: better.efficiency,
            reason,
        }))
    }
}

impl Director for BatchDirector {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        match seen {
            RunEvent::Journal(Event::Membership { step, workers, bounds, shadows, .. }) => {
                let shares = (workers.clone(), bounds.clone(), shadows.clone());
                if shares != self.shares {
                    (self.since, self.shares) = (*step, shares);
                    self.governor.changed();
                }
                Vec::new()
            }
            RunEvent::Committed(records) => self.committed(records, now.step).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}
