//! What a run's journal tells of it, line by line.

use bellwether_core::record::{Event, Line, RunOutcome};

/// What is known of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// Process of the last coordinator that began.
    pub(super) process: Option<u32>,
    /// Committed steps.
    pub(super) committed: u64,
    /// Samples of a full step, and parameters of the model; 0 until they are known.
    pub(super) batch: u64,
    pub(super) parameters: u64,
    /// Workers of the membership that this coordinator began last, and since when; 0 before the first.
    pub(super) workers: u32,
    pub(super) since_s: f64,
    /// How the last coordinator ended, if it said so.
    pub(super) ending: Option<Ending>,
}

/// A coordinator's last word.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ending {
    pub(super) outcome: RunOutcome,
    pub(super) step: u64,
    pub(super) digest: Option<String>,
    pub(super) unix_s: f64,
}

impl Past {
    /// Takes a line in.
    pub(super) fn take(&mut self, line: &Line) {
        match &line.event {
            Event::CoordinatorStarted { process, .. } => {
                (self.process, self.workers, self.ending) = (Some(*process), 0, None);
            }
            Event::TaskKnown { batch, parameters, .. } => {
                (self.batch, self.parameters) = (*batch, *parameters)
            }
            Event::Membership { workers, .. } => {
                let count = workers.len() as u32;
                if count != self.workers {
                    (self.workers, self.since_s) = (count, line.time_s);
                }
            }
            Event::Committed { last, .. } => self.committed = last + 1,
            Event::RolledBack { to } => self.committed = *to,
            Event::Ended { step, outcome, params_digest } => {
                let (outcome, digest) = (outcome.clone(), params_digest.clone());
                self.ending = Some(Ending { outcome, step: *step, digest, unix_s: line.time_s });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(events: Vec<Event>) -> Past {
        let mut past = Past::default();
        let lines =
            events.into_iter().zip(1..).map(|(event, second)| Line { time_s: f64::from(second), event });
        lines.for_each(|line| past.take(&line));
        past
    }

    fn began(process: u32) -> Event {
        Event::CoordinatorStarted { process, version: String::new(), resumed: false }
    }

    fn ended(outcome: RunOutcome) -> Event {
        Event::Ended { step: 7, outcome, params_digest: None }
    }

    #[test]
    fn an_end_counts_until_the_next_coordinator() {
        let past = told(vec![began(1), ended(RunOutcome::Broken("why".into()))]);
        let ending = past.ending.expect("it ended");
        assert_eq!((ending.outcome, ending.unix_s), (RunOutcome::Broken("why".into()), 2.0));
        let past = told(vec![began(1), ended(RunOutcome::Stopped), began(2)]);
        assert_eq!((past.ending, past.process), (None, Some(2)));
    }

    #[test]
    fn workers_count_since_they_changed() {
        let members = |workers: &[u64], shadows: &[u64]| Event::Membership {
            epoch: 1,
            step: 0,
            workers: workers.to_vec(),
            bounds: Vec::new(),
            shadows: shadows.to_vec(),
            accumulation: 1,
            reason: String::new(),
        };
        let past = told(vec![began(1), members(&[1], &[]), members(&[1], &[2]), members(&[1, 2], &[])]);
        assert_eq!((past.workers, past.since_s), (2, 4.0));
        assert_eq!(told(vec![began(1), members(&[1], &[]), began(2)]).workers, 0);
    }
}
