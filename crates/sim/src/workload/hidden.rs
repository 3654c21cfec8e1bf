//! Counts whose rate is that of a hidden state: the two-state Poisson hidden Markov model.
//!
//! It stands for a modulated Poisson law that is looked at in bins. Parameters are fitted by expectation and
//! maximisation (Baum and Welch), from several beginnings; see W. Zucchini and I. MacDonald, Hidden Markov Models for
//! Time Series, chapters 2 and 4. A bin is taken to be in one state, so stays must be long against bins: what is
//! shorter blurs both rates.

/// The count of a bin, and how much of the bin was looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bin {
    /// Arrivals.
    pub(super) count: f64,
    /// Seconds of it.
    pub(super) exposure_s: f64,
    /// The hour since the beginning of day 0 in which it lies.
    pub(super) hour: u64,
}

/// A fitted model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TwoStates {
    /// Arrivals per second in each state.
    pub(super) rates: [f64; 2],
    /// Probability that a bin of each state is followed by one of the other.
    pub(super) leave: [f64; 2],
    pub(super) log_likelihood: f64,
}

const STEPS_MAX: usize = 500;

/// The best of several fits; `None` where counts cannot tell two states.
pub(super) fn fit(bins: &[Bin]) -> Option<TwoStates> {
    let mut rates: Vec<f64> = bins.iter().map(|bin| bin.count / bin.exposure_s).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let fits = [0.25, 0.5, 0.75, 0.9, 0.97].into_iter().filter_map(|share| {
        let threshold = rates[((rates.len() - 1) as f64 * share) as usize];
        climb(bins, begin(bins, threshold)?)
    });
    fits.max_by(|a, b| a.log_likelihood.total_cmp(&b.log_likelihood))
}

/// States by a threshold between them.
fn begin(bins: &[Bin], threshold: f64) -> Option<TwoStates> {
    let state = |bin: &Bin| usize::from(bin.count / bin.exposure_s > threshold);
    let [mut counts, mut exposures, mut bins_of, mut left] = [[0.0_f64; 2]; 4];
    for bin in bins {
        counts[state(bin)] += bin.count;
        exposures[state(bin)] += bin.exposure_s;
        bins_of[state(bin)] += 1.0;
    }
    for pair in bins.windows(2) {
        if state(&pair[0]) != state(&pair[1]) {
            left[state(&pair[0])] += 1.0;
        }
    }
    if bins_of.contains(&0.0) {
        return None;
    }
    let leave = [0, 1].map(|s| ((left[s] + 0.5) / (bins_of[s] + 1.0)).clamp(1e-6, 0.9));
    let rates = [0, 1].map(|s| (counts[s] + 1e-3) / exposures[s]);
    Some(TwoStates { rates, leave, log_likelihood: f64::NEG_INFINITY })
}

fn climb(bins: &[Bin], mut model: TwoStates) -> Option<TwoStates> {
    let mut room = Room::new(bins.len());
    for _ in 0..STEPS_MAX {
        let log_likelihood = room.expect(bins, &model);
        let gained = log_likelihood - model.log_likelihood;
        if !log_likelihood.is_finite() {
            return None;
        }
        model.log_likelihood = log_likelihood;
        // Infinite in the first step.
        if gained.abs() < 1e-9 * log_likelihood.abs() {
            break;
        }
        let next = room.maximise(bins);
        model = TwoStates { log_likelihood, ..next };
    }
    model.log_likelihood = room.expect(bins, &model);
    if model.rates[0] > model.rates[1] {
        model.rates.reverse();
        model.leave.reverse();
    }
    Some(model)
}

/// Probabilities of the states of each bin, and the log of each bin's scale.
struct Room {
    emitted: Vec<[f64; 2]>,
    forward: Vec<[f64; 2]>,
    /// Probability of each state given all counts.
    state: Vec<[f64; 2]>,
    /// Expected changes from each state to the other, and bins in each but the last.
    left: [f64; 2],
    stood: [f64; 2],
}

impl Room {
    fn new(bins: usize) -> Room {
        let empty = vec![[0.0; 2]; bins];
        Room { emitted: empty.clone(), forward: empty.clone(), state: empty, left: [0.0; 2], stood: [0.0; 2] }
    }

    /// Forward and backward through all bins; the log likelihood, without the terms that depend on counts only.
    fn expect(&mut self, bins: &[Bin], model: &TwoStates) -> f64 {
        let TwoStates { leave, .. } = *model;
        let change = [[1.0 - leave[0], leave[0]], [leave[1], 1.0 - leave[1]]];
        let mut log_likelihood = 0.0;
        let mut before = [leave[1] / (leave[0] + leave[1]), leave[0] / (leave[0] + leave[1])];
        for (at, bin) in bins.iter().enumerate() {
            let logs = model.rates.map(|rate| log_poisson(bin, rate));
            let largest = logs[0].max(logs[1]);
            self.emitted[at] = logs.map(|log| libm::exp(log - largest));
            let joint = [before[0] * self.emitted[at][0], before[1] * self.emitted[at][1]];
            let scale = joint[0] + joint[1];
            self.forward[at] = joint.map(|probability| probability / scale);
            log_likelihood += largest + libm::log(scale);
            let now = self.forward[at];
            before = [0, 1].map(|to| now[0] * change[0][to] + now[1] * change[1][to]);
        }
        let mut behind = [1.0; 2];
        (self.left, self.stood) = ([0.0; 2], [0.0; 2]);
        for at in (0..bins.len()).rev() {
            let forward = self.forward[at];
            let joint = [forward[0] * behind[0], forward[1] * behind[1]];
            self.state[at] = joint.map(|probability| probability / (joint[0] + joint[1]));
            let Some(earlier) = at.checked_sub(1) else { break };
            let seen = [self.emitted[at][0] * behind[0], self.emitted[at][1] * behind[1]];
            let from = self.forward[earlier];
            let mut pairs = [[0.0; 2]; 2];
            for (s, row) in pairs.iter_mut().enumerate() {
                *row = [0, 1].map(|to| from[s] * change[s][to] * seen[to]);
            }
            let all = pairs.as_flattened().iter().sum::<f64>();
            for s in [0, 1] {
                self.left[s] += pairs[s][1 - s] / all;
                self.stood[s] += (pairs[s][0] + pairs[s][1]) / all;
            }
            behind = [0, 1].map(|s| (change[s][0] * seen[0] + change[s][1] * seen[1]) / all);
        }
        log_likelihood
    }

    fn maximise(&self, bins: &[Bin]) -> TwoStates {
        let (mut counts, mut exposures) = ([0.0; 2], [0.0; 2]);
        for (bin, state) in bins.iter().zip(&self.state) {
            for s in [0, 1] {
                counts[s] += state[s] * bin.count;
                exposures[s] += state[s] * bin.exposure_s;
            }
        }
        let rates = [0, 1].map(|s| counts[s] / exposures[s]);
        let leave = [0, 1].map(|s| (self.left[s] / self.stood[s]).clamp(1e-9, 1.0 - 1e-9));
        TwoStates { rates, leave, log_likelihood: f64::NEG_INFINITY }
    }
}

/// The log of a Poisson probability, without the factorial of the count.
pub(super) fn log_poisson(bin: &Bin, rate_per_s: f64) -> f64 {
    let expected = rate_per_s * bin.exposure_s;
    // A rate of 0 explains a count of 0.
    let log = if bin.count > 0.0 { bin.count * libm::log(expected) } else { 0.0 };
    log - expected
}

impl TwoStates {
    /// Seconds for which each state lasts on average, in a chain of continuous time that is looked at every `bin_s`.
    pub(super) fn stays_s(&self, bin_s: f64) -> [f64; 2] {
        let sum = (self.leave[0] + self.leave[1]).min(1.0 - 1e-9);
        let rate = -libm::log1p(-sum) / bin_s;
        self.leave.map(|leave| sum / (leave * rate))
    }
}
