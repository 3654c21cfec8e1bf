//! Medians and other quantiles, the clock, the machine's load, and dice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwether_runtime::order::mix;

use crate::failure::Failure;

pub(super) use bellwether_runtime::journal::now_s;

/// The value below which `share` of the samples lie, interpolated; NaN without samples.
pub(super) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

pub(super) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

pub(super) fn largest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::max)
}

pub(super) fn smallest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::min)
}

pub(super) fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Quantiles of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
}

impl Spread {
    /// Those of `samples`, of which there must be some.
    pub(super) fn of(samples: &[f64]) -> Result<Spread, Failure> {
        if samples.is_empty() {
            return Err(Failure::at("a measurement", "no sample was taken"));
        }
        let at = |share| quantile(samples, share);
        Ok(Spread { median: at(0.5), p10: at(0.1), p90: at(0.9) })
    }
}

/// Runnable processes on average over 1, 5 and 15 minutes, where the system tells.
pub(super) fn load_average() -> Option<[f64; 3]> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([words.next()?, words.next()?, words.next()?])
}

/// Random moments and victims. They need not be unpredictable, only spread evenly.
#[derive(Debug)]
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    pub(super) fn new() -> Dice {
        Dice { state: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64) }
    }

    /// Dice that fall the same way for the same seed.
    pub(super) fn seeded(seed: u64) -> Dice {
        Dice { state: mix(seed, 0x7365_6564) }
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.state, 0x6469_6365)
    }

    /// One of `choices`; `None` when there are none.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let count = choices.len() as u64;
        (count > 0).then(|| choices[(self.next() % count) as usize])
    }

    /// A number between 0 and 1, and neither of the two.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.below(1 << 30) as f64 + 0.5) / f64::from(1 << 30)
    }

    /// A number of an exponential law with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    /// A time from nothing to `most_s` seconds.
    pub(super) fn time(&mut self, most_s: f64) -> Duration {
        Duration::from_secs_f64(most_s * (self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        let samples = [4.0, 1.0, 3.0, 2.0];
        assert!((median(&samples) - 2.5).abs() < 1e-12);
        assert!((quantile(&samples, 1.0) - 4.0).abs() < 1e-12);
        assert!((quantile(&[7.0], 0.9) - 7.0).abs() < 1e-12);
        assert!(Spread::of(&[]).is_err());
        let spread = Spread::of(&(0..=100).rev().map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(spread, Spread { median: 50.0, p10: 10.0, p90: 90.0 });
        assert!(median(&[]).is_nan() && largest(&[]).is_nan());
        assert!((largest(&samples) - 4.0).abs() < 1e-12 && (smallest(&samples) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn dice_reach_every_side() {
        let mut dice = Dice::new();
        let mut seen = [false; 3];
        (0..200).for_each(|_| seen[dice.pick(&[0, 1, 2]).unwrap()] = true);
        assert_eq!(seen, [true; 3]);
        assert_eq!(dice.pick::<u8>(&[]), None);
        assert!((0..100).all(|_| dice.time(0.5) <= Duration::from_millis(500)));
    }
}
