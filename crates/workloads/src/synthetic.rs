//! The synthetic device: it sleeps as long as a micro-batch would take, and fills a gradient.
//!
//! Time of a micro-batch of n samples, with step time T, saturation s and spread σ:
//!
//! ```text
//! t = T · max(n, s) / s · exp(σ·z)    (s ≥ 1)
//! t = T · exp(σ·z)                    (s = 0)
//! ```
//!
//! with z standard normal, drawn from the seed of the call: a repeated call takes as long again.
//!
//! The gradient is that of Σᵢ ½‖p − cᵢ‖², where sample i draws its point cᵢ from [-1, 1). It is exact and
//! depends on which samples were summed, and training moves the parameters to the samples' mean
//! without ever diverging at a rate below 2 (times one minus momentum, roughly).

use std::time::{Duration, Instant};

use bellwether_runtime::trainee::{
    Evaluation, Layout, Loss, MicroBatch, Tensor, Trainee, TraineeError, Weights,
};

use crate::random::Stream;

/// Keys of the three uses of randomness.
const INITIAL_PURPOSE: u64 = 3;
const TIME_PURPOSE: u64 = 4;
const POINT_PURPOSE: u64 = 5;
/// A sample's point repeats after this many coordinates, so that filling costs little.
const LANES: usize = 16;

/// The device, with its fixed sizes.
pub(crate) struct Synthetic {
    layout: Layout,
    samples: u64,
    step_time_seconds: f64,
    spread: f64,
    saturation: usize,
}

impl Synthetic {
    /// A device with `parameter_bytes` of parameters and `samples` samples per epoch.
    pub(crate) fn new(
        step_time_seconds: f64,
        spread: f64,
        parameter_bytes: u64,
        saturation: usize,
        samples: u64,
    ) -> Self {
        let len = (parameter_bytes / 4).max(1) as usize;
        let parameters = vec![Tensor { name: "parameters".to_owned(), shape: vec![len] }];
        let layout = Layout { parameters, state: vec![] };
        Synthetic { layout, samples, step_time_seconds, spread, saturation }
    }

    /// Time that a micro-batch takes.
    fn seconds(&self, samples: usize, seed: u64) -> f64 {
        let shape = match self.saturation {
            0 => 1.0,
            saturation => samples.max(saturation) as f64 / saturation as f64,
        };
        let factor = match self.spread {
            0.0 => 1.0,
            spread => libm::exp(spread * Stream::new(seed, TIME_PURPOSE).normal(0)),
        };
        self.step_time_seconds * shape * factor
    }

    /// Coordinates of the sum of the samples' points, and the sum of their squares.
    fn points(samples: &[u64]) -> ([f64; LANES], f64) {
        let stream = Stream::new(0, POINT_PURPOSE);
        let (mut sums, mut squares) = ([0.0; LANES], 0.0);
        for sample in samples {
            let point = stream.child(*sample);
            for (lane, sum) in sums.iter_mut().enumerate() {
                let value = f64::from(point.signed_unit(lane as u64));
                *sum += value;
                squares += value * value;
            }
        }
        (sums, squares)
    }

    /// Sum over the samples of ½‖p − cᵢ‖² over the first coordinates, divided by their number.
    fn loss(parameters: &[f32], samples: usize, sums: &[f64; LANES], squares: f64) -> f64 {
        let mut total = squares;
        for (lane, sum) in sums.iter().enumerate() {
            let value = f64::from(parameters[lane % parameters.len()]);
            total += samples as f64 * value * value - 2.0 * value * sum;
        }
        0.5 * total / LANES as f64
    }
}

impl Trainee for Synthetic {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn training_samples(&self) -> u64 {
        self.samples
    }

    fn held_out_samples(&self) -> u64 {
        0
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], _state: &mut [f32]) {
        let stream = Stream::new(seed, INITIAL_PURPOSE);
        parameters
            .iter_mut()
            .enumerate()
            .for_each(|(place, value)| *value = stream.signed_unit(place as u64));
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        _state_out: &mut [f32],
    ) -> Result<Loss, TraineeError> {
        let start = Instant::now();
        let (sums, squares) = Self::points(batch.samples);
        let count = batch.samples.len() as f32;
        let lanes = sums.map(|sum| sum as f32);
        for (out, values) in gradient_out.chunks_mut(LANES).zip(weights.parameters.chunks(LANES)) {
            for ((slot, value), lane) in out.iter_mut().zip(values).zip(&lanes) {
                *slot = count * value - lane;
            }
        }
        let loss = Self::loss(weights.parameters, batch.samples.len(), &sums, squares);
        // What the filling took is part of the step, not beside it.
        let time = Duration::try_from_secs_f64(self.seconds(batch.samples.len(), seed))
            .map_err(|error| TraineeError(format!("the synthetic step time: {error}")))?;
        std::thread::sleep(time.saturating_sub(start.elapsed()));
        Ok(Loss { sum: loss })
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, TraineeError> {
        let (sums, squares) = Self::points(batch.samples);
        let loss_sum = Self::loss(weights.parameters, batch.samples.len(), &sums, squares);
        Ok(Evaluation { loss_sum, correct: 0, predictions: 0 })
    }

    fn fingerprint(&self) -> String {
        let len = self.layout.parameter_count();
        // No kernel decides bits here: additions and products of f32 are the same everywhere.
        format!("synthetic; {len} parameters; {} samples", self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(step_time_seconds: f64, spread: f64, saturation: usize) -> Synthetic {
        Synthetic::new(step_time_seconds, spread, 4 * 100, saturation, 1000)
    }

    #[test]
    fn time_follows_the_law() {
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-12, "{left} {right}");
        near(device(0.02, 0.0, 8).seconds(4, 0), 0.02);
        near(device(0.02, 0.0, 8).seconds(12, 0), 0.03);
        near(device(0.02, 0.0, 0).seconds(500, 0), 0.02);
        let noisy = device(1.0, 0.3, 0);
        assert_eq!(noisy.seconds(1, 7), noisy.seconds(1, 7));
        let logs: Vec<f64> = (0..2000).map(|seed| noisy.seconds(1, seed).ln()).collect();
        let mean = logs.iter().sum::<f64>() / 2000.0;
        let deviation = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 2000.0).sqrt();
        assert!(mean.abs() < 0.03 && (deviation - 0.3).abs() < 0.02, "{mean} {deviation}");
    }

    #[test]
    fn a_call_takes_its_time() {
        let mut device = device(0.05, 0.0, 0);
        let (parameters, mut gradient) = (vec![0.5; 100], vec![0.0; 100]);
        let weights = Weights { parameters: &parameters, state: &[], version: 0 };
        let start = Instant::now();
        device.gradient(weights, MicroBatch { samples: &[1] }, 0, &mut gradient, &mut []).unwrap();
        let took = start.elapsed().as_secs_f64();
        // The upper bound is loose: the machine may be busy.
        assert!((0.05..0.5).contains(&took), "{took}");
    }

    #[test]
    fn training_stays_finite_and_settles() {
        let mut device = device(0.0, 0.0, 0);
        let mut parameters = vec![0.0; 100];
        device.initialize(1, &mut parameters, &mut []);
        let before = parameters.clone();
        let mut gradient = vec![f32::NAN; 100];
        let mut losses = vec![];
        for step in 0..100_000u64 {
            let samples = [step % 1000, (step * 7) % 1000];
            let weights = Weights { parameters: &parameters, state: &[], version: step };
            let loss = device.gradient(weights, MicroBatch { samples: &samples }, 0, &mut gradient, &mut []);
            losses.push(loss.unwrap().sum);
            parameters.iter_mut().zip(&gradient).for_each(|(value, slope)| *value -= 0.1 * slope / 2.0);
        }
        assert!(losses.iter().all(|loss| loss.is_finite()));
        assert!(parameters.iter().all(|value| value.abs() < 1.0));
        assert_ne!(parameters, before);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(mean(&losses[..5]) > mean(&losses[99_000..]));
    }

    #[test]
    fn the_gradient_depends_on_the_samples_and_adds_up() {
        let mut device = device(0.0, 0.0, 0);
        let parameters: Vec<f32> = (0..100).map(|place| place as f32 / 100.0).collect();
        let weights = Weights { parameters: &parameters, state: &[], version: 0 };
        let mut run = |samples: &[u64]| {
            let mut gradient = vec![f32::NAN; 100];
            device.gradient(weights, MicroBatch { samples }, 0, &mut gradient, &mut []).unwrap();
            gradient
        };
        let (first, second, both) = (run(&[3]), run(&[4]), run(&[3, 4]));
        assert_ne!(first, second);
        for place in 0..100 {
            assert!((first[place] + second[place] - both[place]).abs() < 1e-5);
        }
    }
}
