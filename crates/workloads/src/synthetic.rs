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
//!
//! With layers, a third of t goes forwards through them and two thirds backwards, evenly. By parts, a layer's
//! parameters are taken when its forward pass begins and its gradient is given when its backward pass ends; time
//! that passes in there is no time of the device.

use std::ops::Range;
use std::time::{Duration, Instant};

use bellwether_runtime::workload::{
    Evaluation, Layout, Loss, MicroBatch, Parameters, Tensor, TensorExchange, Weights, Workload,
    WorkloadError, tensor_ranges,
};

use crate::random::Stream;

/// Keys of the three uses of randomness.
const INITIAL_PURPOSE: u64 = 3;
const TIME_PURPOSE: u64 = 4;
const POINT_PURPOSE: u64 = 5;
/// A sample's point repeats after this many coordinates, so that filling costs little.
const LANES: usize = 16;
/// The forward pass's share of the time; the backward pass computes two gradients for its one output.
const FORWARD: f64 = 1.0 / 3.0;

/// The device, with its fixed sizes.
pub(crate) struct Synthetic {
    layout: Layout,
    samples: u64,
    step_time_seconds: f64,
    spread: f64,
    saturation: usize,
}

impl Synthetic {
    /// A device with `parameter_bytes` of parameters in `layers` tensors and `samples` samples per epoch.
    pub(crate) fn new(
        step_time_seconds: f64,
        spread: f64,
        parameter_bytes: u64,
        layers: u32,
        saturation: usize,
        samples: u64,
    ) -> Self {
        let (len, layers) = ((parameter_bytes / 4).max(1) as usize, layers.max(1) as usize);
        let each = len / layers;
        let parameters = match layers {
            1 => vec![Tensor { name: "parameters".to_owned(), shape: vec![len] }],
            _ => (0..layers)
                .map(|layer| {
                    let shape = vec![if layer + 1 == layers { len - layer * each } else { each }];
                    Tensor { name: format!("layer.{layer}"), shape }
                })
                .collect(),
        };
        let layout = Layout { parameters, state: vec![] };
        Synthetic { layout, samples, step_time_seconds, spread, saturation }
    }

    /// Time that a micro-batch takes.
    fn time(&self, samples: usize, seed: u64) -> Result<Duration, WorkloadError> {
        Duration::try_from_secs_f64(self.seconds(samples, seed))
            .map_err(|error| WorkloadError::new(format!("the synthetic step time: {error}")))
    }

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

    /// Writes these places of the gradient of `count` samples whose points sum up to `sums`.
    fn fill(parameters: &[f32], places: Range<usize>, count: usize, sums: &[f64; LANES], out: &mut [f32]) {
        let mut lanes = sums.map(|sum| sum as f32);
        lanes.rotate_left(places.start % LANES);
        for (out, values) in out[places.clone()].chunks_mut(LANES).zip(parameters[places].chunks(LANES)) {
            for ((slot, value), lane) in out.iter_mut().zip(values).zip(&lanes) {
                *slot = count as f32 * value - lane;
            }
        }
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

/// The device at work on one micro-batch. It sleeps until moments, not for durations: what a sleep takes too long
/// and what filling a gradient takes come off the next one.
struct Device {
    began: Instant,
    time: Duration,
}

impl Device {
    fn start(time: Duration) -> Self {
        Device { began: Instant::now(), time }
    }

    /// Sleeps until this share of the micro-batch is computed.
    fn compute_until(&self, share: f64) {
        std::thread::sleep(self.time.mul_f64(share).saturating_sub(self.began.elapsed()));
    }

    /// Does something that the device does not compute meanwhile.
    fn outside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        self.began += begin.elapsed();
        result
    }
}

impl Workload for Synthetic {
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
    ) -> Result<Loss, WorkloadError> {
        let device = Device::start(self.time(batch.samples.len(), seed)?);
        let (sums, squares) = Self::points(batch.samples);
        let places = 0..weights.parameters.len();
        Self::fill(weights.parameters, places, batch.samples.len(), &sums, gradient_out);
        let loss = Self::loss(weights.parameters, batch.samples.len(), &sums, squares);
        device.compute_until(1.0);
        Ok(Loss { sum: loss, weight: batch.samples.len() as f64 })
    }

    fn gradient_by_parts(
        &mut self,
        parts: &mut dyn TensorExchange,
        mut parameters: Parameters<'_>,
        _state: &[f32],
        _version: u64,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        _state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        let mut device = Device::start(self.time(batch.samples.len(), seed)?);
        let (sums, squares) = Self::points(batch.samples);
        let ranges = tensor_ranges(&self.layout);
        let part = 1.0 / ranges.len() as f64;
        for (layer, range) in ranges.iter().enumerate() {
            if let Parameters::Coming(parameters) = &mut parameters {
                device.outside(|| parts.pull(layer, &mut parameters[range.clone()]))?;
            }
            device.compute_until(FORWARD * part * (layer + 1) as f64);
        }
        let parameters = match parameters {
            Parameters::Here(parameters) => parameters,
            Parameters::Coming(parameters) => parameters,
        };
        let loss = Self::loss(parameters, batch.samples.len(), &sums, squares);
        for (layer, range) in ranges.iter().enumerate().rev() {
            Self::fill(parameters, range.clone(), batch.samples.len(), &sums, gradient_out);
            device.compute_until(FORWARD + (1.0 - FORWARD) * part * (ranges.len() - layer) as f64);
            device.outside(|| parts.push(layer, &gradient_out[range.clone()]))?;
        }
        Ok(Loss { sum: loss, weight: batch.samples.len() as f64 })
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
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
        Synthetic::new(step_time_seconds, spread, 4 * 100, 1, saturation, 1000)
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

    /// Parameters that are all here, and the calls for them: which, and the seconds of computing before it.
    struct Recorded {
        ranges: Vec<Range<usize>>,
        parameters: Vec<f32>,
        calls: Vec<(char, usize, f64)>,
        returned: Instant,
        wait: Duration,
    }

    impl Recorded {
        fn call(&mut self, kind: char, tensor: usize) {
            self.calls.push((kind, tensor, self.returned.elapsed().as_secs_f64()));
            std::thread::sleep(self.wait);
            self.returned = Instant::now();
        }
    }

    impl TensorExchange for Recorded {
        fn pull(&mut self, tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
            out.copy_from_slice(&self.parameters[self.ranges[tensor].clone()]);
            self.call('<', tensor);
            Ok(())
        }

        fn push(&mut self, tensor: usize, gradient: &[f32]) -> Result<(), WorkloadError> {
            assert_eq!(gradient.len(), self.ranges[tensor].len());
            self.call('>', tensor);
            Ok(())
        }
    }

    #[test]
    fn layers_are_taken_forwards_and_given_backwards_in_the_time_of_the_whole() {
        let mut device = Synthetic::new(0.06, 0.0, 4 * 100, 3, 0, 1000);
        let names: Vec<_> = device.layout().parameters.iter().map(|t| (t.name.as_str(), t.len())).collect();
        assert_eq!(names, [("layer.0", 33), ("layer.1", 33), ("layer.2", 34)]);
        let parameters: Vec<f32> = (0..100).map(|place| place as f32 / 100.0).collect();
        let weights = Weights { parameters: &parameters, state: &[], version: 0 };
        let (batch, mut whole) = (MicroBatch { samples: &[3, 4] }, vec![f32::NAN; 100]);
        let loss = device.gradient(weights, batch, 7, &mut whole, &mut []).unwrap();
        for wait in [Duration::ZERO, Duration::from_millis(10)] {
            let mut recorded = Recorded {
                ranges: tensor_ranges(device.layout()),
                parameters: parameters.clone(),
                calls: vec![],
                returned: Instant::now(),
                wait,
            };
            let (mut taken, mut gradient) = (vec![f32::NAN; 100], vec![f32::NAN; 100]);
            let by_parts = device
                .gradient_by_parts(
                    &mut recorded,
                    Parameters::Coming(&mut taken),
                    &[],
                    0,
                    batch,
                    7,
                    &mut gradient,
                    &mut [],
                )
                .unwrap();
            assert_eq!((taken, gradient, by_parts), (parameters.clone(), whole.clone(), loss));
            let order: String =
                recorded.calls.iter().map(|(kind, tensor, _)| format!("{kind}{tensor}")).collect();
            assert_eq!(order, "<0<1<2>2>1>0");
            // Nothing before the first; 60 ms / 9 of forward computing and twice that of backward computing.
            let part = 0.06 / 9.0;
            let least = [0.0, part, part, 3.0 * part, 2.0 * part, 2.0 * part];
            let (mut computing, mut due) = (0.0, 0.0);
            for ((_, tensor, seconds), least) in recorded.calls.iter().zip(least) {
                (computing, due) = (computing + seconds, due + least);
                // No part is done early. A sleep that ends late is made up for by the next, so single parts say
                // nothing.
                assert!(computing > due - 0.0001, "{tensor}: {:?}", recorded.calls);
            }
            assert!((0.0599..0.3).contains(&computing), "{computing}");
        }
    }

    #[test]
    fn layers_do_not_change_the_parameters_or_the_time() {
        let (mut one, mut many) = (device(0.5, 0.3, 0), Synthetic::new(0.5, 0.3, 4 * 100, 7, 0, 1000));
        assert_eq!(one.layout().parameters[0].name, "parameters");
        assert_eq!(one.seconds(3, 9), many.seconds(3, 9));
        let mut parameters = [vec![0.0; 100], vec![0.0; 100]];
        one.initialize(5, &mut parameters[0], &mut []);
        many.initialize(5, &mut parameters[1], &mut []);
        assert_eq!(parameters[0], parameters[1]);
    }
}
