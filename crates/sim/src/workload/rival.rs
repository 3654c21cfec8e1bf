//! How likely a law of rates finds the gaps between arrivals, so that it can be compared with a law of gaps.
//!
//! Gaps come in kinds, from short to long. For each job, the law says how likely each kind was, given all arrivals
//! before; the log of what it said of the kind that came, summed over all jobs, is its log-likelihood.

use super::arrivals::Arrivals;

const HOUR_S: f64 = 3600.0;

/// What never happens by a law counts as this probability, so that one such gap does not decide alone.
const LEAST: f64 = 1e-300;

/// Kinds of gaps as intervals: `ends_s[k]` lies between the gaps of kind k and those of kind k + 1.
pub(super) struct Kinds<'a> {
    pub(super) ends_s: &'a [f64],
}

impl Kinds<'_> {
    /// The probability of a kind, given how likely it is that no job comes within some seconds.
    fn probability(&self, kind: usize, nothing_within: impl Fn(f64) -> f64) -> f64 {
        let above = kind.checked_sub(1).map_or(1.0, |before| nothing_within(self.ends_s[before]));
        let beyond = self.ends_s.get(kind).map_or(0.0, |end_s| nothing_within(*end_s));
        (above - beyond).max(LEAST)
    }

    /// The log-likelihood of a run of arrivals, of whose gaps the kinds are given.
    pub(super) fn log_likelihood(&self, law: &Arrivals, arrivals_s: &[f64], kinds: &[usize]) -> f64 {
        match law {
            Arrivals::Diurnal { per_hour, days } => self.diurnal(per_hour, days, arrivals_s, kinds),
            Arrivals::Mmpp { states } if states.len() == 2 => {
                let rates = [0, 1].map(|state| states[state].per_hour / HOUR_S);
                let leave = [0, 1].map(|state| 1.0 / states[state].stay.0);
                self.modulated(&TwoRates { rates, leave }, arrivals_s, kinds)
            }
            // The other laws that are fitted have one rate.
            _ => {
                let rate = law.mean_per_s();
                let log = |kind: &usize| libm::log(self.probability(*kind, |gap_s| libm::exp(-rate * gap_s)));
                kinds.iter().map(log).sum()
            }
        }
    }

    fn diurnal(&self, per_hour: &[f64], days: &[f64], arrivals_s: &[f64], kinds: &[usize]) -> f64 {
        // Jobs that are expected up to the beginning of each hour of a week.
        let mut expected = vec![0.0];
        for hour in 0..168 {
            let factor = days.get(hour / 24).unwrap_or(&1.0);
            expected.push(expected[hour] + per_hour[hour % 24] * factor);
        }
        let up_to = |time_s: f64| {
            let (weeks, hours) = ((time_s / HOUR_S / 168.0).floor(), time_s / HOUR_S % 168.0);
            let hour = (hours as usize).min(167);
            let part = (hours - hour as f64) * (expected[hour + 1] - expected[hour]);
            weeks * expected[168] + expected[hour] + part
        };
        let log = |(begin_s, kind): (&f64, &usize)| {
            let begin = up_to(*begin_s);
            let nothing_within = |gap_s: f64| libm::exp(begin - up_to(begin_s + gap_s));
            libm::log(self.probability(*kind, nothing_within))
        };
        arrivals_s.iter().zip(kinds).map(log).sum()
    }

    fn modulated(&self, law: &TwoRates, arrivals_s: &[f64], kinds: &[usize]) -> f64 {
        // No job within each end, by the state at the beginning.
        let nothing: Vec<[f64; 2]> = self.ends_s.iter().map(|end_s| law.nothing_within(*end_s)).collect();
        let mut state = law.at_an_arrival();
        let mut log_likelihood = 0.0;
        for (pair, kind) in arrivals_s.windows(2).zip(kinds) {
            let of = |at: usize| state[0] * nothing[at][0] + state[1] * nothing[at][1];
            let above = kind.checked_sub(1).map_or(1.0, of);
            let beyond = if *kind < nothing.len() { of(*kind) } else { 0.0 };
            log_likelihood += libm::log((above - beyond).max(LEAST));
            state = law.after(state, pair[1] - pair[0]);
        }
        log_likelihood
    }
}

/// Two states of a modulated law, in continuous time: jobs per second in each, and changes per second.
struct TwoRates {
    rates: [f64; 2],
    leave: [f64; 2],
}

impl TwoRates {
    /// How likely each state is at an arrival of which nothing else is known.
    fn at_an_arrival(&self) -> [f64; 2] {
        // The time in a state is as that until the other is left.
        let [first, second] = [self.rates[0] * self.leave[1], self.rates[1] * self.leave[0]];
        [first / (first + second), second / (first + second)]
    }

    /// `[from][to]`: no job comes within some seconds, and the state behind them is `to`; over the exponential that is
    /// returned beside it, so that long gaps do not vanish.
    fn without_jobs(&self, gap_s: f64) -> ([[f64; 2]; 2], f64) {
        // The exponential of a matrix of two rows, by its eigenvalues, which are real: centre ± root.
        let stays = [0, 1].map(|state| -self.rates[state] - self.leave[state]);
        let (centre, half) = (f64::midpoint(stays[0], stays[1]), (stays[0] - stays[1]) / 2.0);
        let root = (half * half + self.leave[0] * self.leave[1]).sqrt();
        let fast = libm::exp(-2.0 * root * gap_s);
        let even = f64::midpoint(1.0, fast);
        let odd = if root > 0.0 { (1.0 - fast) / (2.0 * root) } else { gap_s };
        let matrix = [[even + odd * half, odd * self.leave[0]], [odd * self.leave[1], even - odd * half]];
        (matrix, libm::exp((centre + root) * gap_s))
    }

    /// The probability that no job comes within some seconds, by the state at their beginning.
    fn nothing_within(&self, gap_s: f64) -> [f64; 2] {
        let (matrix, scale) = self.without_jobs(gap_s);
        matrix.map(|row| (row[0] + row[1]) * scale)
    }

    /// How likely each state is at an arrival, given how likely each was at the arrival a gap before.
    fn after(&self, state: [f64; 2], gap_s: f64) -> [f64; 2] {
        let (matrix, _) = self.without_jobs(gap_s);
        let odds = [0, 1].map(|to| (state[0] * matrix[0][to] + state[1] * matrix[1][to]) * self.rates[to]);
        let sum = odds[0] + odds[1];
        if sum > 0.0 { odds.map(|odd| odd / sum) } else { self.at_an_arrival() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, State};
    use super::*;

    const KINDS: Kinds<'static> = Kinds { ends_s: &[1.0, 60.0, 3000.0] };

    fn mmpp(rates: [f64; 2], stay_s: f64) -> Arrivals {
        Arrivals::Mmpp { states: rates.map(|per_hour| State { per_hour, stay: Amount(stay_s) }).to_vec() }
    }

    /// By any law, some kind comes.
    #[test]
    fn all_kinds_together_are_certain() {
        let per_hour: Vec<f64> = (0..24).map(f64::from).collect();
        let laws = [
            Arrivals::Poisson { per_hour: Some(40.0) },
            mmpp([5.0, 900.0], 1800.0),
            Arrivals::Diurnal { per_hour, days: vec![1.0, 2.0, 0.0, 1.0, 1.0, 0.5, 0.5] },
        ];
        for law in laws {
            let of = |kind: usize| KINDS.log_likelihood(&law, &[40_000.0, 40_200.0], &[kind]).exp();
            let sum: f64 = (0..4).map(of).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{law:?}: {sum}");
        }
    }

    #[test]
    fn equal_rates_are_one_rate() {
        let (arrivals_s, kinds) = ([0.0, 0.0, 70.0, 5000.0, 5001.0], [0, 2, 3, 0]);
        let one = KINDS.log_likelihood(&Arrivals::Poisson { per_hour: Some(30.0) }, &arrivals_s, &kinds);
        let two = KINDS.log_likelihood(&mmpp([30.0, 30.0], 600.0), &arrivals_s, &kinds);
        let day = Arrivals::Diurnal { per_hour: vec![30.0; 24], days: vec![] };
        let day = KINDS.log_likelihood(&day, &arrivals_s, &kinds);
        assert!((one - two).abs() < 1e-9 && (one - day).abs() < 1e-9, "{one} {two} {day}");
    }

    /// After a burst, the next gap is likely a short one.
    #[test]
    fn a_modulated_law_remembers() {
        let law = mmpp([1.0, 3600.0], 3600.0);
        let next = |arrivals_s: &[f64]| {
            let before: Vec<usize> = vec![1; arrivals_s.len() - 1];
            let with: Vec<usize> = before.iter().copied().chain([0]).collect();
            let longer: Vec<f64> =
                arrivals_s.iter().copied().chain([arrivals_s[arrivals_s.len() - 1]]).collect();
            KINDS.log_likelihood(&law, &longer, &with) - KINDS.log_likelihood(&law, arrivals_s, &before)
        };
        // A gap of less than a second has the probability 1 - 1/e in the fast state, and hardly any in the other.
        assert!((next(&[0.0, 2.0, 4.0]).exp() - 0.632).abs() < 0.01);
        assert!(next(&[0.0, 7200.0, 14_400.0]).exp() < 0.6);
    }
}
