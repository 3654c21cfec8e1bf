//! Fits hidden states to a sequence of gaps and classes, by the likelihood of both (Baum and Welch's method).
//!
//! Each job has a state. Given it, the kind of the gap before the job and the class of the job are independent; the
//! state of the next job depends on this one only. Each step of the method raises the likelihood. It begins with states
//! that prefer gaps of different lengths, so the same trace gives the same states.

/// Steps after which the likelihood is taken as it is.
const STEPS_MAX: usize = 100;

/// A step that raises the log of the likelihood by less than this, per job, is the last one.
const GAIN_MIN: f64 = 1e-4;

/// What is seen of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The kind of the gap before it.
    pub(super) gap: usize,
    /// Its class.
    pub(super) class: usize,
}

/// Shares of gaps, classes and next states, one row per state; every row sums to 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hidden {
    pub(super) gaps: Vec<Vec<f64>>,
    pub(super) classes: Vec<Vec<f64>>,
    pub(super) next: Vec<Vec<f64>>,
}

/// Fits `states` states to runs of jobs; each run begins in any of them. Returns the log of the likelihood too.
pub(super) fn fit(runs: &[&[Seen]], gaps: usize, classes: usize, states: usize) -> (Hidden, f64) {
    let mut law = Hidden::begin(runs, gaps, classes, states);
    let jobs: usize = runs.iter().map(|run| run.len()).sum();
    let (mut best, mut reached) = (law.clone(), f64::NEG_INFINITY);
    for _ in 0..STEPS_MAX {
        let mut counts = Hidden::zero(gaps, classes, states);
        let log_likelihood: f64 = runs.iter().map(|run| law.count(run, &mut counts)).sum();
        let gain = log_likelihood - reached;
        if gain > 0.0 {
            (best, reached) = (law, log_likelihood);
        }
        if gain.is_nan() || gain < GAIN_MIN * jobs as f64 {
            break;
        }
        law = counts.normalised();
    }
    (best, reached)
}

impl Hidden {
    fn zero(gaps: usize, classes: usize, states: usize) -> Hidden {
        let rows = |length: usize| vec![vec![0.0; length]; states];
        Hidden { gaps: rows(gaps), classes: rows(classes), next: rows(states) }
    }

    /// The first state prefers the shortest gaps, the last the longest; classes are as they are overall.
    fn begin(runs: &[&[Seen]], gaps: usize, classes: usize, states: usize) -> Hidden {
        let mut law = Hidden::zero(gaps, classes, states);
        for job in runs.iter().copied().flatten() {
            law.classes.iter_mut().for_each(|row| row[job.class] += 1.0);
        }
        let width = gaps as f64 / states as f64;
        for state in 0..states {
            let middle = (state as f64 + 0.5) * width - 0.5;
            for (gap, share) in law.gaps[state].iter_mut().enumerate() {
                let off = (gap as f64 - middle) / width;
                *share = libm::exp(-off * off / 2.0) + 0.02;
            }
            law.next[state].fill(0.3);
            law.next[state][state] = 0.7 * states as f64;
        }
        law.normalised()
    }

    /// Rows that sum to 1. What was never seen stays barely possible, so that no later step divides by nothing.
    fn normalised(mut self) -> Hidden {
        for row in self.gaps.iter_mut().chain(&mut self.classes).chain(&mut self.next) {
            row.iter_mut().for_each(|share| *share += 1e-9);
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|share| *share /= sum);
        }
        self
    }

    fn likelihood(&self, state: usize, job: Seen) -> f64 {
        self.gaps[state][job.gap] * self.classes[state][job.class]
    }

    /// Adds how often each gap, class and change is expected in each state, given the whole run; returns the log of its
    /// likelihood.
    fn count(&self, run: &[Seen], counts: &mut Hidden) -> f64 {
        let states = self.next.len();
        // Probabilities of the states given what was seen up to each job, and the scale that each job adds.
        let mut forward = vec![0.0; run.len() * states];
        let mut scales = Vec::with_capacity(run.len());
        let mut log_likelihood = 0.0;
        for (at, job) in run.iter().enumerate() {
            let (before, here) = forward.split_at_mut(at * states);
            let here = &mut here[..states];
            match at.checked_sub(1) {
                None => here.fill(1.0 / states as f64),
                Some(at_before) => {
                    for (share, next) in before[at_before * states..].iter().zip(&self.next) {
                        here.iter_mut().zip(next).for_each(|(to, odd)| *to += share * odd);
                    }
                }
            }
            for (state, share) in here.iter_mut().enumerate() {
                *share *= self.likelihood(state, *job);
            }
            let scale: f64 = here.iter().sum();
            here.iter_mut().for_each(|share| *share /= scale);
            scales.push(scale);
            log_likelihood += libm::log(scale);
        }
        // Backwards: how much likelier each state makes what came after the job.
        let (mut behind, mut onwards) = (vec![1.0; states], vec![0.0; states]);
        for (at, job) in run.iter().enumerate().rev() {
            let here = &forward[at * states..(at + 1) * states];
            for state in 0..states {
                let share = here[state] * behind[state];
                counts.gaps[state][job.gap] += share;
                counts.classes[state][job.class] += share;
            }
            let Some(at_before) = at.checked_sub(1) else { break };
            for (to, onwards) in onwards.iter_mut().enumerate() {
                *onwards = self.likelihood(to, *job) * behind[to] / scales[at];
            }
            for from in 0..states {
                let share = forward[at_before * states + from];
                behind[from] = 0.0;
                for (to, onwards) in onwards.iter().enumerate() {
                    let weight = self.next[from][to] * onwards;
                    behind[from] += weight;
                    counts.next[from][to] += share * weight;
                }
            }
        }
        log_likelihood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two states that are told apart by their gaps and their classes, and change every tenth job.
    #[test]
    fn states_are_found_again() {
        let mut random = bellwether_des::Streams::new(5).stream("hidden", 0);
        let mut state = 0;
        let mut draw = |_| {
            if random.uniform() < 0.1 {
                state = 1 - state;
            }
            let gap = if random.uniform() < 0.8 { state } else { 1 - state };
            let class = usize::from(random.uniform() < if state == 0 { 0.1 } else { 0.6 });
            Seen { gap, class }
        };
        let jobs: Vec<Seen> = (0..40_000).map(&mut draw).collect();
        let (law, log_likelihood) = fit(&[&jobs[..20_000], &jobs[20_000..]], 2, 2, 2);
        let near = |found: f64, truth: f64| assert!((found - truth).abs() < 0.03, "{law:?}");
        (0..2).for_each(|state| near(law.gaps[state][state], 0.8));
        (0..2).for_each(|state| near(law.next[state][state], 0.9));
        near(law.classes[0][1], 0.1);
        near(law.classes[1][1], 0.6);
        let (_, alone) = fit(&[&jobs], 2, 2, 1);
        assert!(log_likelihood > alone + 1000.0, "{log_likelihood} {alone}");
    }

    #[test]
    fn one_state_is_the_shares_of_what_was_seen() {
        let jobs = [(0, 0), (0, 1), (1, 1), (0, 1)].map(|(gap, class)| Seen { gap, class });
        let (law, log_likelihood) = fit(&[&jobs], 2, 2, 1);
        assert!((law.gaps[0][0] - 0.75).abs() < 1e-6 && (law.classes[0][0] - 0.25).abs() < 1e-6);
        let hand = 2.0 * (3.0 * 0.75_f64.ln() + 0.25_f64.ln());
        assert!((log_likelihood - hand).abs() < 1e-6, "{log_likelihood} {hand}");
    }
}
