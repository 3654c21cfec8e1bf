//! Output statistics: means with intervals of replications and batches, warm-up removal, time averages.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Degrees of freedom from which on Student's t is computed from the normal distribution: with this many, the inverse
/// of the beta function loses digits, and the first terms of the series are exact to about 1e-11.
const SERIES_FROM: f64 = 1e3;

/// A mean and how far the true one may be from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The mean of the samples.
    pub mean: f64,
    /// Half the width of the interval; infinite for fewer than two samples.
    pub half_width: f64,
}

impl Interval {
    /// Lower end.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width
    }

    /// Upper end.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width
    }

    /// Whether a value lies in it.
    pub fn contains(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }

    /// Half-width over mean.
    pub fn relative(&self) -> f64 {
        self.half_width / self.mean.abs()
    }
}

/// Mean and variance of samples, kept in one pass (Welford's recurrence).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Tally {
    /// Without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: f64) {
        self.count += 1;
        let from_old = sample - self.mean;
        self.mean += from_old / self.count as f64;
        self.squares += from_old * (sample - self.mean);
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 when there are none.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their variance with divisor n - 1; 0 for fewer than two.
    pub fn variance(&self) -> f64 {
        if self.count < 2 { 0.0 } else { self.squares / (self.count - 1) as f64 }
    }

    /// Student's interval of the mean at a confidence `level` between 0 and 1, for independent samples.
    ///
    /// # Panics
    ///
    /// When the level is not between 0 and 1.
    pub fn interval(&self, level: f64) -> Interval {
        assert!(level > 0.0 && level < 1.0, "a confidence of {level}");
        let half_width = if self.count < 2 {
            f64::INFINITY
        } else {
            student_quantile(0.5 + level / 2.0, (self.count - 1) as f64)
                * (self.variance() / self.count as f64).sqrt()
        };
        Interval { mean: self.mean, half_width }
    }
}

impl Extend<f64> for Tally {
    fn extend<T: IntoIterator<Item = f64>>(&mut self, samples: T) {
        samples.into_iter().for_each(|sample| self.add(sample));
    }
}

impl FromIterator<f64> for Tally {
    fn from_iter<T: IntoIterator<Item = f64>>(samples: T) -> Self {
        let mut tally = Tally::new();
        tally.extend(samples);
        tally
    }
}

/// The value below which Student's t with this many degrees of freedom lies with a probability.
///
/// # Panics
///
/// When the probability is not between 0 and 1, or the degrees of freedom are not positive.
pub fn student_quantile(probability: f64, degrees_of_freedom: f64) -> f64 {
    assert!(probability > 0.0 && probability < 1.0, "a probability of {probability}");
    assert!(degrees_of_freedom > 0.0, "{degrees_of_freedom} degrees of freedom");
    if degrees_of_freedom < SERIES_FROM {
        return student(degrees_of_freedom).inverse_cdf(probability);
    }
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    let z = Normal::standard().inverse_cdf(probability);
    let (z2, step) = (z * z, 1.0 / degrees_of_freedom);
    let first = z * (z2 + 1.0) / 4.0;
    let second = z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let third = z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    z + step * (first + step * (second + step * third))
}

/// The probability that Student's t with this many degrees of freedom lies below a value.
///
/// # Panics
///
/// When the degrees of freedom are not positive.
pub fn student_probability(value: f64, degrees_of_freedom: f64) -> f64 {
    student(degrees_of_freedom).cdf(value)
}

fn student(degrees_of_freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).expect("positive degrees of freedom")
}

/// The mean of `values`; no number when there are none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The value that a share `p` of `sorted` does not exceed, on the straight line between its neighbours; `p` is
/// clamped to 0..=1. `None` without values.
///
/// ```
/// use bellwether_des::statistics::percentile;
/// assert_eq!(percentile(&[1.0, 2.0, 4.0, 9.0], 0.5), Some(3.0));
/// assert_eq!(percentile(&[], 0.5), None);
/// ```
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let share = at - below as f64;
    Some(sorted[below] * (1.0 - share) + sorted[above] * share)
}

/// Runs independent replications, numbered from 0, and returns the interval of their mean.
///
/// # Panics
///
/// When the level is not between 0 and 1.
pub fn replications(count: u64, level: f64, run: impl FnMut(u64) -> f64) -> Interval {
    (0..count).map(run).collect::<Tally>().interval(level)
}

/// The interval of the mean of a stationary series, by batch means: the series is cut into `batches` of equal
/// length (what does not divide is left out at the beginning), whose means are taken as independent.
///
/// Batches must be much longer than the correlation of the series, or the interval is too narrow. The
/// interval is infinite when there are fewer samples than batches.
///
/// # Panics
///
/// When there are fewer than two batches, or the level is not between 0 and 1.
pub fn batch_means(series: &[f64], batches: usize, level: f64) -> Interval {
    assert!(batches >= 2, "{batches} batches have no variance");
    let length = series.len() / batches;
    if length == 0 {
        let mean = series.iter().copied().collect::<Tally>().mean();
        return Interval { mean, half_width: f64::INFINITY };
    }
    let used = &series[series.len() - length * batches..];
    used.chunks_exact(length).map(mean).collect::<Tally>().interval(level)
}

/// How many samples at the beginning of a series belong to the warm-up, by the marginal standard error rule
/// over means of `group` samples (MSER-5 for 5; White, Simulation 69(6), 1997): the cut after which the
/// standard error of the mean is least. Never more than half of the series.
///
/// # Panics
///
/// When `group` is 0.
pub fn warm_up(series: &[f64], group: usize) -> usize {
    assert!(group > 0, "a mean of no samples");
    let means: Vec<f64> = series.chunks_exact(group).map(mean).collect();
    // From the end, so that each suffix's variance comes from the one before.
    let mut suffix = Tally::new();
    let mut best = (f64::INFINITY, 0);
    for (cut, mean) in means.iter().enumerate().rev() {
        suffix.add(*mean);
        let count = suffix.count() as f64;
        let squared_error = suffix.squares / (count * count);
        if cut <= means.len() / 2 && squared_error <= best.0 {
            best = (squared_error, cut);
        }
    }
    best.1 * group
}

/// The average over time of a value that changes in steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeAverage {
    value: f64,
    since_s: f64,
    begin_s: f64,
    area: f64,
}

impl TimeAverage {
    /// Begins at a time with a value.
    pub fn new(now_s: f64, value: f64) -> Self {
        TimeAverage { value, since_s: now_s, begin_s: now_s, area: 0.0 }
    }

    /// From now on the value is another.
    ///
    /// # Panics
    ///
    /// When `now_s` lies before the last change.
    pub fn set(&mut self, now_s: f64, value: f64) {
        assert!(now_s >= self.since_s, "the time cannot go back from {} s to {now_s} s", self.since_s);
        self.area += self.value * (now_s - self.since_s);
        self.value = value;
        self.since_s = now_s;
    }

    /// The value now.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Forgets what was before: the end of the warm-up.
    pub fn restart(&mut self, now_s: f64) {
        *self = TimeAverage::new(now_s, self.value);
    }

    /// The average from the beginning until `now_s`; the value itself when no time has passed.
    pub fn average(&self, now_s: f64) -> f64 {
        let passed_s = now_s - self.begin_s;
        if passed_s <= 0.0 {
            return self.value;
        }
        (self.area + self.value * (now_s - self.since_s)) / passed_s
    }
}
