//! The walk over sizes that the tests of neighbouring sizes share.

use super::{Decision, Measured, Reason, Situation};

/// Consecutive passes from the smallest size that prove the curve is still rising there.
const PASSES: usize = 3;
/// Steps at the larger side of a failing test before it is believed.
const CONFIRMING_STEPS: u64 = 100;

/// What the workers between two sizes gained, and what they had to gain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test {
    pub(super) gain: f64,
    pub(super) needed: f64,
}

/// A measured size.
pub(super) type Size<'a> = (u32, &'a Measured);

impl Test {
    pub(super) fn passes(&self) -> bool {
        self.gain > self.needed
    }
}

/// Throughput scaling efficiency: what each of the further workers does, relative to each of those before.
pub(super) fn efficiency(smaller: Size, larger: Size) -> f64 {
    let (before, after) = (smaller.1.examples_per_s(), larger.1.examples_per_s());
    (after - before) / f64::from(larger.0 - smaller.0) / (before / f64::from(smaller.0))
}

/// Tests of all neighbouring sizes that were measured, from the smallest.
pub(super) fn tests<'a>(
    situation: &Situation<'a>,
    test: impl Fn(Size, Size) -> Test,
) -> Vec<(Size<'a>, Size<'a>, Test)> {
    let sizes: Vec<Size> = situation.history.sizes().collect();
    let pair = |pair: &[Size<'a>]| (pair[0], pair[1], test(pair[0], pair[1]));
    sizes.windows(2).map(pair).collect()
}

/// Up while every test passes; down until the curve surely rises at the bottom; else to the smaller side of the first
/// test that fails.
pub(super) fn walk(situation: &Situation, test: impl Fn(Size, Size) -> Test) -> Decision {
    let (bounds, workers) = (situation.bounds, situation.workers);
    if bounds.least == bounds.most {
        return Decision::Stay(Reason::OneSize);
    }
    let tests = tests(situation, test);
    let Some(((smallest, _), ..)) = tests.first().copied() else {
        let up = workers.saturating_add(bounds.increment).min(bounds.most);
        let target = if workers < bounds.most { up } else { workers.saturating_sub(bounds.increment) };
        return Decision::Resize(target, Reason::TooFewSizes { known: 1 });
    };
    let fails = tests.iter().position(|(.., test)| !test.passes());
    if let (None, Some(&((smaller, _), (larger, _), Test { gain, needed }))) = (fails, tests.last()) {
        let reason = Reason::StillRising { smaller, larger, gain, needed };
        if larger < bounds.most {
            return Decision::Resize(larger.saturating_add(bounds.increment), reason);
        }
    }
    if fails.is_some_and(|place| place < PASSES) && smallest > bounds.least {
        let target = smallest.saturating_sub(bounds.increment).max(bounds.least);
        return Decision::Resize(target, Reason::LookingDown { smallest });
    }
    let Some(place) = fails else {
        return Decision::Resize(bounds.most, Reason::AtMost { most: bounds.most });
    };
    let ((smaller, _), (larger, measured), Test { gain, needed }) = tests[place];
    if measured.steps < CONFIRMING_STEPS {
        let reason = Reason::Measuring { workers: larger, steps: measured.steps, needed: CONFIRMING_STEPS };
        return Decision::Resize(larger, reason);
    }
    Decision::Resize(smaller, Reason::Settled { smaller, larger, gain, needed })
}
