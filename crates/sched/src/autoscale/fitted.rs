//! Our own: every size weighed by a model of the step that knows how little it knows.
//!
//! # Idea
//!
//! ```text
//! worth of a plan   = U(e + T) - U(e) - P W                with utility and price
//!                   = -T^(1-S) W^S                         with a threshold S only
//! stay              : E[ worth of staying ]
//! go to k           : E[ worth of going to k ]                          where k was measured
//!                     sum over outcomes o at k: p(o) max_j E[ worth of k, then j | o ]    where it was not
//! ```
//!
//! | symbol | meaning                                                                          | unit |
//! |--------|----------------------------------------------------------------------------------|------|
//! | T      | time until the end: boot, stall and trial included                               | s    |
//! | W      | worker-seconds until then: booting workers are paid                              | s    |
//! | e      | time since the beginning                                                         | s    |
//! | S      | exchange rate: k times the workers are worth k^S times the speed; near an optimum the same as a throughput scaling efficiency of S | 1 |
//!
//! The expectation is over step models that agree with what was measured, see `super::belief`. An outcome is a group
//! of models that say much the same of k, so that going there tells which group is right, and the size after it may be
//! chosen knowing that. A trial is charged with everything that it costs, hence one is made only if the information is
//! worth it. A measured size must save more than two standard deviations, so noise does not move the size.
//!
//! # Bad when
//!
//! A step has cliffs that no smooth model has; the true step lies outside the prior; one trial alone is worth nothing
//! and two are (the look ahead is one trial deep).

use super::belief::{Belief, Hypothesis};
use super::{Decision, Heuristic, LEAST_STEPS, Reason, Situation};

/// Groups of equal weight that the outcomes of a trial are told apart by.
const OUTCOMES: usize = 8;
/// Sizes that are weighed, at most; of more a geometric selection is.
const SIZES: usize = 48;
/// Sizes that are tried, at most; of more a geometric selection is.
const TRIALS: usize = 12;
/// The margin in standard deviations that a size needs to be taken without a trial.
const SURE: f64 = 2.0;

/// Chooses the size with the best expected worth.
#[derive(Debug, Clone, Copy)]
pub struct Fitted {
    /// Part of a worker's work below which it is not paid for, where no economy is given; 0 to 1.
    pub threshold: f64,
}

/// A plan while it is followed.
#[derive(Debug, Clone, Copy)]
struct Course {
    workers: u32,
    rate: f64,
    remaining: f64,
    time_s: f64,
    worker_s: f64,
}

impl Heuristic for Fitted {
    fn decide(&self, situation: &Situation) -> Decision {
        let workers = situation.workers;
        let sizes = selection(situation, SIZES);
        if sizes.len() < 2 || situation.history.at(workers).is_none() {
            return Decision::Stay(Reason::OneSize);
        }
        let trials = selection(situation, TRIALS);
        let belief = Belief::new(situation, sizes);
        let weighing = Weighing { situation, belief: &belief, threshold: self.threshold };
        let here = weighing.place(workers);
        let stay = belief.mean(|hypothesis| weighing.stay(hypothesis, here)).0;
        if stay >= 0.0 {
            return Decision::Stay(Reason::NothingBetter { target: workers, gain: 0.0 });
        }
        let mut best: Option<(f64, Reason)> = None;
        let mut offer = |worth: f64, reason: Reason| {
            if best.is_none_or(|(known, _)| worth > known) {
                best = Some((worth, reason));
            }
        };
        let mut other = (f64::NEG_INFINITY, workers);
        for place in (0..belief.sizes.len()).filter(|place| *place != here) {
            let target = belief.sizes[place];
            let difference = |hypothesis: &Hypothesis| {
                weighing.go(hypothesis, here, place) - weighing.stay(hypothesis, here)
            };
            let (gain, deviation) = belief.mean(difference);
            // What is still to be paid errs about as much, relatively, as the measured steps do.
            let noise = belief.errors[here].unwrap_or(0.0).hypot(belief.errors[place].unwrap_or(0.0));
            let (gain, deviation) = (gain / stay.abs(), (deviation / stay.abs()).hypot(noise));
            other = if gain > other.0 { (gain, target) } else { other };
            let sure = gain > SURE * deviation;
            if sure {
                offer(stay + gain * stay.abs(), Reason::Better { target, gain, deviation });
            }
            if belief.errors[place].is_none() && trials.contains(&target) {
                let worth = weighing.try_out(here, place);
                let gain = (worth - stay) / stay.abs();
                if !sure && gain > 0.0 {
                    offer(worth, Reason::WorthTrying { target, gain });
                }
            }
        }
        match best {
            Some((_, reason @ (Reason::Better { target, .. } | Reason::WorthTrying { target, .. }))) => {
                Decision::Resize(target, reason)
            }
            _ => Decision::Stay(Reason::NothingBetter { target: other.1, gain: other.0 }),
        }
    }
}

/// What the worth of plans depends on.
struct Weighing<'a> {
    situation: &'a Situation<'a>,
    belief: &'a Belief,
    threshold: f64,
}

impl Weighing<'_> {
    fn place(&self, workers: u32) -> usize {
        self.belief.sizes.partition_point(|size| *size < workers)
    }

    fn start(&self, hypothesis: &Hypothesis, place: usize) -> Course {
        Course {
            workers: self.belief.sizes[place],
            rate: hypothesis.rates[place],
            remaining: self.situation.remaining_samples,
            time_s: 0.0,
            worker_s: 0.0,
        }
    }

    fn stay(&self, hypothesis: &Hypothesis, here: usize) -> f64 {
        self.worth(self.start(hypothesis, here))
    }

    fn go(&self, hypothesis: &Hypothesis, here: usize, place: usize) -> f64 {
        self.worth(self.resized(self.start(hypothesis, here), hypothesis, place))
    }

    /// Expected worth of a trial at a size, and of what is best after it.
    fn try_out(&self, here: usize, place: usize) -> f64 {
        let steps = LEAST_STEPS as f64 * self.situation.batch.samples(self.belief.sizes[place]) as f64;
        let mut order: Vec<&Hypothesis> = self.belief.hypotheses.iter().collect();
        order.sort_by(|a, b| a.rates[place].total_cmp(&b.rates[place]));
        let mut sum = 0.0;
        for outcome in groups(&order) {
            let tried: Vec<(f64, &Hypothesis, Course)> = outcome
                .iter()
                .map(|hypothesis| {
                    let there = self.resized(self.start(hypothesis, here), hypothesis, place);
                    (hypothesis.weight, *hypothesis, there.trained(steps))
                })
                .collect();
            let then = |next: usize| -> f64 {
                let worth = |(weight, hypothesis, there): &(f64, &Hypothesis, Course)| {
                    let course = if next == place { *there } else { self.resized(*there, hypothesis, next) };
                    weight * self.worth(course)
                };
                tried.iter().map(worth).sum()
            };
            sum += (0..self.belief.sizes.len()).map(then).fold(f64::NEG_INFINITY, f64::max);
        }
        sum
    }

    /// The course after a resize: present workers train on while others boot.
    fn resized(&self, course: Course, hypothesis: &Hypothesis, place: usize) -> Course {
        let workers = self.belief.sizes[place];
        let resize = &self.situation.resize;
        let (boot_s, stall_s) = if workers > course.workers {
            (resize.boot_s, resize.grow_stall_s)
        } else {
            (0.0, resize.shrink_stall_s)
        };
        let booting = Course { workers, ..course }.trained(boot_s * course.rate);
        Course {
            rate: hypothesis.rates[place],
            time_s: booting.time_s + stall_s,
            worker_s: booting.worker_s + stall_s * f64::from(workers),
            ..booting
        }
    }

    /// What the course is worth when it goes on to the end: less than zero by the cost still to come.
    fn worth(&self, course: Course) -> f64 {
        let Course { time_s, worker_s, .. } = course.trained(course.remaining);
        let Some(economy) = self.situation.economy else {
            return -time_s.powf(1.0 - self.threshold) * worker_s.powf(self.threshold);
        };
        let Situation { elapsed_s, remaining_samples, history, .. } = *self.situation;
        let slowest_s = elapsed_s + history.slowest_s(remaining_samples);
        let lost =
            economy.utility.at(elapsed_s, slowest_s) - economy.utility.at(elapsed_s + time_s, slowest_s);
        -lost - economy.price_per_worker_s * worker_s
    }
}

impl Course {
    fn trained(self, samples: f64) -> Course {
        let samples = samples.min(self.remaining);
        let time_s = samples / self.rate;
        Course {
            remaining: self.remaining - samples,
            time_s: self.time_s + time_s,
            worker_s: self.worker_s + time_s * f64::from(self.workers),
            ..self
        }
    }
}

/// Hypotheses in an order, cut into groups of about equal weight.
fn groups<'a, 'b>(order: &'b [&'a Hypothesis]) -> Vec<&'b [&'a Hypothesis]> {
    let mut groups = Vec::with_capacity(OUTCOMES);
    let (mut from, mut weight) = (0, 0.0);
    for (place, hypothesis) in order.iter().enumerate() {
        weight += hypothesis.weight;
        if weight * OUTCOMES as f64 >= (groups.len() + 1) as f64 {
            groups.push(&order[from..=place]);
            from = place + 1;
        }
    }
    if from < order.len() {
        groups.push(&order[from..]);
    }
    groups
}

/// At most `count` sizes: the present one, its neighbours, and the others spread geometrically.
fn selection(situation: &Situation, count: usize) -> Vec<u32> {
    let (bounds, workers) = (situation.bounds, situation.workers);
    let mut sizes = bounds.sizes();
    if sizes.len() > count {
        let ratio = (f64::from(bounds.most) / f64::from(bounds.least)).powf(1.0 / (count - 1) as f64);
        let near = |step: usize| {
            let wanted = f64::from(bounds.least) * ratio.powi(step as i32);
            let nearest = sizes.partition_point(|size| f64::from(*size) < wanted * (1.0 - 1e-9));
            sizes[nearest.min(sizes.len() - 1)]
        };
        let mut chosen: Vec<u32> = (0..count).map(near).collect();
        let place = sizes.partition_point(|size| *size < workers);
        chosen.extend(&sizes[place.saturating_sub(1)..(place + 2).min(sizes.len())]);
        sizes = chosen;
    }
    sizes.push(workers);
    sizes.extend(
        situation
            .history
            .sizes()
            .map(|(size, _)| size)
            .filter(|size| (bounds.least..=bounds.most).contains(size)),
    );
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
