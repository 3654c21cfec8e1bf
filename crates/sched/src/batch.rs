//! How large the batch of one job that runs should be: as large as trains fastest.
//!
//! An update that covers a steps of B samples takes their gradients, and one exchange and one update of the parameters.
//! More samples per update make more of them per second, and each teaches less:
//!
//! ```text
//! goodput(a) = throughput(a) efficiency(a)
//! throughput(a) = a B / (a g + u)             efficiency(a) = (s + B) / (s + a B)
//! ```
//!
//! | symbol | meaning                                                      | unit    |
//! |--------|--------------------------------------------------------------|---------|
//! | g      | gradients of a step                                          | s       |
//! | u      | all that an update takes once                                | s       |
//! | s      | noise scale: trace of the covariance over the squared norm of the gradient | samples |
//!
//! Goodput rises up to a = sqrt(u s / (g B)) and falls beyond it. Source: Qiao et al., Pollux, OSDI 2021, for a fixed
//! number of workers; the efficiency is that of McCandlish et al., 2018. Progress is measured against the job's own
//! batch, and the learning rate is taken to follow as AdaScale has it.
//!
//! What one batch size shows is split by what the workers tell of it. That is a guess: part of what seems to come once
//! per update may be waiting that grows with the work. As soon as two sizes are known, the line through them counts; a
//! size that proved useless is tried again only after thousands of updates.

use std::collections::VecDeque;

/// Updates that the times are taken from, at most; the median of them counts.
const WINDOW: usize = 64;

/// Updates after which what another size took is forgotten.
const REMEMBERED: u64 = 4000;

/// When a batch changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Most steps that an update may cover, at least 1.
    pub most: u32,
    /// Updates with the present batch and the present workers before another is chosen, at least 1.
    pub pause: u32,
    /// Steps of the job before the first change: the noise is not known before.
    pub first: u64,
    /// Gain in goodput below which nothing changes, as a share.
    pub least_gain: f64,
}

impl Limits {
    /// Changes after 40 updates at the earliest, for a gain of 5 %, up to `most` steps per update.
    pub fn up_to(most: u32) -> Limits {
        Limits { most: most.max(1), pause: 40, first: 200, least_gain: 0.05 }
    }
}

/// What an update took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Seconds for the gradients of each step.
    pub gradients_s: f64,
    /// Seconds for all else.
    pub update_s: f64,
}

/// A batch, and what is expected of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Steps that an update covers.
    pub accumulation: u32,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Progress per sample, relative to the job's own batch: 0…1.
    pub efficiency: f64,
}

impl Choice {
    /// An update over this many steps of `batch` samples, at a noise scale in samples.
    ///
    /// ```
    /// use bellwether_sched::batch::{Choice, Times};
    /// let times = Times { gradients_s: 0.01, update_s: 0.03 };
    /// let choice = Choice::of(3, 64, times, 192.0);
    /// assert!((choice.examples_per_s - 3200.0).abs() < 1e-9);
    /// assert!((choice.efficiency - 256.0 / 384.0).abs() < 1e-12);
    /// ```
    pub fn of(accumulation: u32, batch: u64, times: Times, noise_scale: f64) -> Choice {
        let (steps, batch) = (f64::from(accumulation), batch as f64);
        Choice {
            accumulation,
            examples_per_s: steps * batch / (steps * times.gradients_s + times.update_s),
            efficiency: (noise_scale + batch) / (noise_scale + steps * batch),
        }
    }

    /// The best of 1…`most` steps.
    ///
    /// ```
    /// use bellwether_sched::batch::{Choice, Times};
    /// let times = Times { gradients_s: 0.01, update_s: 0.03 };
    /// assert_eq!(Choice::best(64, times, 192.0, 16).accumulation, 3);
    /// assert_eq!(Choice::best(64, times, 0.0, 16).accumulation, 1);
    /// ```
    pub fn best(batch: u64, times: Times, noise_scale: f64, most: u32) -> Choice {
        let peak = (times.update_s * noise_scale / (times.gradients_s * batch as f64)).sqrt();
        let below = if peak.is_nan() { 1 } else { (peak as u32).clamp(1, most.max(1)) };
        let above = below.saturating_add(1).min(most.max(1));
        let [below, above] = [below, above].map(|steps| Choice::of(steps, batch, times, noise_scale));
        if above.goodput() > below.goodput() { above } else { below }
    }

    /// Samples per second, each for what it is worth.
    pub fn goodput(&self) -> f64 {
        self.examples_per_s * self.efficiency
    }
}

/// Watches the updates of a job and says when another batch is better.
#[derive(Debug, Clone)]
pub struct Governor {
    limits: Limits,
    batch: u64,
    /// Updates with the present batch and workers.
    window: VecDeque<Times>,
    seen: u32,
    present: u32,
    noise_scale: Option<f64>,
    /// Updates of all sizes.
    updates: u64,
    /// The size before the present one: steps of its updates, seconds that one took, updates by then.
    other: Option<(u32, f64, u64)>,
}

impl Governor {
    /// A governor for a job with steps of `batch` samples.
    pub fn new(batch: u64, limits: Limits) -> Governor {
        Governor {
            limits,
            batch,
            window: VecDeque::new(),
            seen: 0,
            present: 0,
            noise_scale: None,
            updates: 0,
            other: None,
        }
    }

    /// Other workers compute from now on: times that were measured say nothing any more.
    pub fn changed(&mut self) {
        self.begin();
        self.other = None;
    }

    fn begin(&mut self) {
        self.window.clear();
        self.seen = 0;
    }

    /// Takes in an update over this many steps, and the noise scale after it in samples.
    pub fn saw(&mut self, accumulation: u32, times: Times, noise_scale: f64) {
        if accumulation != self.present {
            if self.window.len() >= WINDOW.min(self.limits.pause as usize) {
                let Times { gradients_s, update_s } = self.median();
                let duration_s = f64::from(self.present) * gradients_s + update_s;
                self.other = Some((self.present, duration_s, self.updates));
            }
            self.begin();
            self.present = accumulation;
        }
        self.updates += 1;
        self.noise_scale = Some(noise_scale);
        self.seen = self.seen.saturating_add(1);
        self.window.push_back(times);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
    }

    /// The present batch as it is measured and a better one, after this many steps of the job; `None` while nothing
    /// should change. A batch at most doubles at a time, because the noise is measured with the present one.
    pub fn decide(&mut self, step: u64) -> Option<(Choice, Choice)> {
        let Limits { most, pause, first, least_gain } = self.limits;
        let noise_scale = self.noise_scale.filter(|_| self.seen >= pause && step >= first)?;
        self.other = self.other.filter(|(.., at)| self.updates - at < REMEMBERED);
        let times = self.times();
        let now = Choice::of(self.present, self.batch, times, noise_scale);
        let better = Choice::best(self.batch, times, noise_scale, most.min(self.present.saturating_mul(2)));
        let gain = better.goodput() / now.goodput() - 1.0;
        if better.accumulation == self.present || gain.is_nan() || gain < least_gain {
            return None;
        }
        // What was asked for takes a boundary or two to come.
        self.seen = 0;
        Some((now, better))
    }

    /// Medians of what the workers told.
    fn median(&self) -> Times {
        let median = |of: fn(&Times) -> f64| {
            let mut values: Vec<f64> = self.window.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(0.0).max(0.0)
        };
        Times { gradients_s: median(|t| t.gradients_s), update_s: median(|t| t.update_s) }
    }

    /// What the sizes that were tried say of all.
    fn times(&self) -> Times {
        let told = self.median();
        let Some((other, other_s, _)) = self.other.filter(|(steps, ..)| *steps != self.present) else {
            return told;
        };
        let (here, there) = (f64::from(self.present), f64::from(other));
        let here_s = here * told.gradients_s + told.update_s;
        // Gradients take at least what was spent on them, and an update at least nothing.
        let gradients_s = ((here_s - other_s) / (here - there)).max(told.gradients_s).min(here_s / here);
        Times { gradients_s, update_s: here_s - here * gradients_s }
    }
}
