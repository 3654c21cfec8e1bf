//! Rounds: the steps after which all workers wait for all, where virtual nodes train by themselves in between.

use bellwether_core::job::Job;
use bellwether_core::prediction::Protocol;

/// The rounds of a job. All members know them, so that they end theirs at the same boundaries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rounds {
    /// The first step of each phase, and its protocol.
    phases: Vec<(u64, Protocol)>,
    /// Steps between boundaries at which the members wait for a verdict: a round ends there, too; 0 never.
    verdict_every: u64,
}

impl Rounds {
    /// Those of a job that runs for `total_steps`; none where all wait for all in every step.
    pub fn of(job: &Job, total_steps: u64) -> Option<Rounds> {
        let phases = || job.sync.policy.phases(total_steps);
        job.sync.has_outer_steps().then(|| Rounds { phases: phases(), verdict_every: job.verdict_every() })
    }

    /// Whether virtual nodes train by themselves in this step.
    pub fn are_local(&self, step: u64) -> bool {
        self.local_steps(step).is_some()
    }

    /// Steps of a round that begins at `step`, if virtual nodes train by themselves then.
    pub fn local_steps(&self, step: u64) -> Option<u64> {
        let place = self.phases.iter().rposition(|(from, _)| *from <= step)?;
        let (_, Protocol::Local(most)) = self.phases[place] else { return None };
        let end = self.phases.get(place + 1).map_or(u64::MAX, |(from, _)| *from);
        let verdict = (step + 1).checked_next_multiple_of(self.verdict_every).unwrap_or(u64::MAX);
        Some(u64::from(most).min(end.min(verdict) - step).max(1))
    }

    /// Most steps of a round.
    pub fn longest(&self) -> u32 {
        self.phases.iter().map(|(_, protocol)| protocol.steps_per_round()).max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_where_a_phase_or_a_verdict_does() {
        let phases = vec![(0, Protocol::Bsp), (10, Protocol::Local(4)), (21, Protocol::Bsp)];
        let rounds = Rounds { phases: phases.clone(), verdict_every: 0 };
        let steps: Vec<_> = [0, 9, 10, 14, 18, 20, 21].map(|step| rounds.local_steps(step)).into();
        assert_eq!(steps, [None, None, Some(4), Some(4), Some(3), Some(1), None]);
        assert_eq!(rounds.longest(), 4);
        let rounds = Rounds { phases, verdict_every: 6 };
        let steps: Vec<_> = [10, 12, 16, 18].map(|step| rounds.local_steps(step)).into();
        assert_eq!(steps, [Some(2), Some(4), Some(2), Some(3)]);
    }
}
