//! One increment more in each round, until one does not pay.
//!
//! # Idea
//!
//! The last increment is tested by its throughput scaling efficiency; the first that fails is taken back.
//!
//! # Bad when
//!
//! The job begins with too many workers, as it never looks below; and where few steps are enough for a wrong test.

use super::search::{Test, efficiency, tests};
use super::{Decision, Heuristic, Reason, Situation};

/// One increment at a time.
#[derive(Debug, Clone, Copy)]
pub struct LinearIncrease {
    /// The least efficiency that is paid for, 0 to 1.
    pub threshold: f64,
}

impl Heuristic for LinearIncrease {
    fn decide(&self, situation: &Situation) -> Decision {
        let most = situation.bounds.most;
        let tests = tests(situation, |smaller, larger| Test {
            gain: efficiency(smaller, larger),
            needed: self.threshold,
        });
        let up = |workers: u32| workers.saturating_add(situation.bounds.increment).min(most);
        let Some(&((smaller, _), (larger, _), test)) = tests.last() else {
            return Decision::Resize(up(situation.workers), Reason::TooFewSizes { known: 1 });
        };
        let Test { gain, needed } = test;
        if !test.passes() {
            return Decision::Resize(smaller, Reason::Settled { smaller, larger, gain, needed });
        }
        if larger >= most {
            return Decision::Resize(most, Reason::AtMost { most });
        }
        Decision::Resize(up(larger), Reason::StillRising { smaller, larger, gain, needed })
    }
}
