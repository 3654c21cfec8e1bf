//! The speed of jobs as it was observed while they ran; what was not observed follows from what was.
//!
//! # Model
//!
//! ```text
//! observed there       T(W) = m(W)
//! below or above all   T(W) = R0(W), of the nearest number of workers W0 that was observed
//! between W0 and W1    T(W) = m(W0) + p (m(W1) - m(W0)),   p = (m(W0) - R0(W)) / (m(W0) - R0(W1)), from 0 to 1
//! no worker waits      T(W) by crate::calibrate::asynchronous, from all numbers of workers that were observed
//! one worker observed  T(W) = P(W) m(1) / P(1)      where the job was profiled
//! nothing observed     T(W) = P(W); where it was not profiled n(W) c
//! c, nothing declared  exp(a + b ln(w)) by least squares over 4 or more known kinds of the same network
//! ```
//!
//! | symbol | meaning                                                                                   | unit |
//! |--------|-------------------------------------------------------------------------------------------|------|
//! | T(W)   | predicted mean step with W workers                                                        | s    |
//! | m(W)   | mean of the steps observed with W workers, each counting 1 - 1/500 of the one after it    | s    |
//! | R0(W)  | step with W workers by [`Rescale`] from those observed with W0                            | s    |
//! | p      | part of the way from W0 to W1 that R0 has gone; by log W where R0 gets no faster          | 1    |
//! | P(W)   | step with W workers by the job's profile, where it was [told](Observed::foresee)           | s    |
//! | n(W)   | virtual nodes of the worker that has most of them: V / W, rounded up                      | 1    |
//! | c      | time of a virtual node: declared, by regression, or the geometric mean of all kinds; else 1 s | s |
//! | w      | work of a virtual node: its samples times the bytes that are exchanged                    | byte |
//!
//! On a device of speed s, c and the computing within R0 are divided by s. Of several speeds at which a number of
//! workers was observed, the nearest to s speaks.
//!
//! # Source
//!
//! [`crate::rescale`]; the rest is bookkeeping. Weighted moments: West, Communications of the ACM 22(9), 1979.
//!
//! # Assumes
//!
//! Every slot is a device of its own: workers do not crowd each other's processors. A gang over several types of device
//! is as slow as if all were of the slowest. A step takes longer in proportion to its batch. A job that was only seen
//! with one worker and was not profiled has no exchange, unless a larger number of workers was seen, too. Where one
//! worker is slower than its profile says, several are by the same factor.
//!
//! What is predicted between two observed numbers lies between their means and follows the lower one's own forecast in
//! order: it never says that a worker more makes a step slower unless that forecast or the two means say so.
//! Two forecasts side by side, each from its own measurement, would.
//!
//! # Valid
//!
//! Interpolated where or between where steps were observed at that speed; else extrapolated, with the reason.
//! The interval is that of [`Rescale::rate`], its ends moved outwards by [`ELSEWHERE`] for a number of workers that was
//! not observed; between two observed numbers it also spans what each of them would
//! predict; without a known exchange it goes down to the speed of one worker; a guess spans all known kinds, or three
//! orders of magnitude. It knows nothing of slow changes from outside, and of a declared time it has no width. Where a
//! machine was busy for the part b of the time in which steps were observed, [`BUSY`] or more, both ends are a factor
//! of 1 + b further away.
//!
//! # Checked by
//!
//! `tests/it/observed.rs`: by hand, the laws of [`StepModel`], and held-out numbers of workers of recorded runs, whose
//! errors are in docs/accuracy.md.
//!
//! ```
//! use bellwether_core::prediction::{Configuration, DeviceGroup, JobDescription, Link, StepModel};
//! use bellwether_model::observed::Observed;
//! use bellwether_core::record::StepRecord;
//! let mut belief = Observed::default();
//! belief.describe("digits", 16, 4, 1 << 20, Some(0.2));
//! let job = JobDescription { name: "a".into(), model: "digits".into(), batch: 16, devices: 1 };
//! let on = |count| {
//!     let devices = vec![DeviceGroup { node: 0, device: "slot".into(), count }];
//!     Configuration::synchronous(devices, 16, Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 })
//! };
//! // Declared: 4 virtual nodes of 0.2 s on 3 workers are 2 on one of them.
//! assert!((belief.predict(&job, &on(3)).unwrap().step_s - 0.4).abs() < 1e-12);
//! // 2 workers: 2 virtual nodes of 0.1 s each, 0.05 s of exchange, 0.01 s of the rest.
//! let nodes_s = vec![0.1, 0.1];
//! let step = StepRecord { duration_s: 0.26, nodes_s, exchange_s: 0.05, ..StepRecord::default() };
//! belief.observe("digits", 2, 1.0, &vec![step; 8]);
//! assert!((belief.predict(&job, &on(2)).unwrap().step_s - 0.26).abs() < 1e-12);
//! // 4 workers: one virtual node each; 2 (3/4) over 2 (1/2) of the bytes: 0.1 + 0.075 + 0.01.
//! assert!((belief.predict(&job, &on(4)).unwrap().step_s - 0.185).abs() < 1e-12);
//! ```

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, PredictError, Prediction, ProfiledRate, Protocol, StepModel,
    Validity,
};
use bellwether_core::record::{BUSY, StepRecord};
use serde::{Deserialize, Serialize};

use crate::common::answer::{not_known, own_devices};
use crate::compute::most_virtual_nodes;
use crate::regression::{Candidate, Sample, Scale, choose};
use crate::rescale::Rate;

pub use calm::{Calm, SETTLING_STEPS, STEPS_MIN, WARM_UP_STEPS};
use kind::{Declared, Forecast, Kind};

mod calm;
mod kind;
mod units;

#[cfg(doc)]
use crate::rescale::Rescale;

/// Part by which the ends of an interval move outwards where another number of workers was observed.
///
/// What 95 % of the recorded forecasts of one emulated job need (`examples/accuracy_observed.rs` prints it, also as
/// chosen without each number of workers). It says nothing of jobs whose workers crowd one machine's processors.
pub const ELSEWHERE: f64 = 0.094;

/// Seconds of a virtual node where nothing at all is known of any, ...
const GUESS_S: f64 = 1.0;

/// ... give or take this factor.
const GUESS_FACTOR: f64 = 1e3;

/// Known kinds of a network from which on a regression over them speaks of a new one.
const NETWORK_KINDS_MIN: usize = 4;

/// What is known of the speed of jobs, by [kind](JobDescription::model).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Relative speed by type of device; 1 for a type that is not named.
    device_speeds: BTreeMap<String, f64>,
    kinds: BTreeMap<String, Kind>,
    /// Jobs whose ways are open, by their own name: which kind they are of in each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    open: BTreeMap<String, Vec<(Protocol, u32, String)>>,
}

impl Observed {
    /// Nothing known of any job, on devices of these relative speeds; 1 for a type that is not named, or whose speed is
    /// not finite and above 0.
    pub fn new(device_speeds: BTreeMap<String, f64>) -> Observed {
        Observed { device_speeds, ..Observed::default() }
    }

    /// Relative speed of a type of device.
    fn device_speed(&self, device: &str) -> f64 {
        self.device_speeds.get(device).copied().filter(|speed| is_positive(*speed)).unwrap_or(1.0)
    }

    /// Introduces a kind of job: samples of a step, the virtual nodes that share them, bytes that workers exchange in
    /// every step, and seconds of one virtual node on a device of speed 1, where it was declared or measured.
    ///
    /// What was observed of a kind that is known already stays, unless it is cut otherwise now. A time that is not
    /// finite and above 0 is ignored.
    pub fn describe(&mut self, kind: &str, batch: u64, virtual_nodes: u32, bytes: u64, node_s: Option<f64>) {
        let declared =
            Declared { batch, virtual_nodes, bytes, node_s: node_s.filter(|node_s| is_positive(*node_s)) };
        match self.kinds.get_mut(kind) {
            Some(known) => known.declare(declared),
            None => {
                self.kinds.insert(kind.into(), Kind::new(declared));
            }
        }
    }

    /// Says which network a kind trains: where nothing is known of the kind itself, those of the same network speak.
    pub fn name_network(&mut self, kind: &str, network: &str) {
        if let Some(known) = self.kinds.get_mut(kind) {
            network.clone_into(&mut known.network);
        }
    }

    /// Says of jobs whose protocol and number of servers are still open, under the name `open`, which kind they are of
    /// in each of their ways.
    pub fn leave_open(&mut self, open: &str, kinds: Vec<(Protocol, u32, String)>) {
        self.open.insert(open.into(), kinds);
    }

    /// The kind that a job under this name is of as it is configured.
    fn kind_of<'a>(&'a self, name: &'a str, configuration: &Configuration) -> &'a str {
        let kinds = self.open.get(name).map_or(&[][..], Vec::as_slice);
        let (protocol, servers) = (configuration.protocol, configuration.servers);
        kinds.iter().find(|kind| (kind.0, kind.1) == (protocol, servers)).map_or(name, |(.., kind)| kind)
    }

    /// Takes in what a profile says of a kind that was described, in place of what an earlier one said. A rate that is
    /// not finite and above 0, or lies outside its interval, is ignored.
    pub fn foresee(&mut self, kind: &str, rates: &[ProfiledRate]) {
        let Some(known) = self.kinds.get_mut(kind) else { return };
        let holds = |rate: &&ProfiledRate| {
            [rate.speed, rate.low, rate.examples_per_s, rate.high].into_iter().all(is_positive)
                && rate.low <= rate.examples_per_s
                && rate.examples_per_s <= rate.high
        };
        known.profiled = rates.iter().filter(holds).copied().collect();
    }

    /// Adds steps of `workers` on devices of relative speed `speed`.
    ///
    /// Nothing is learnt from what cannot be: a kind that was not described, more workers than it has virtual nodes, a
    /// speed that is not finite and above 0; steps that took no time or computed nothing. Steps that were done unit by
    /// unit, without waiting, teach how long a step is in all; of one kind either all steps are such, or none.
    pub fn observe(&mut self, kind: &str, workers: u32, speed: f64, steps: &[StepRecord]) {
        self.observe_beside(kind, workers, speed, steps, 0.0);
    }

    /// The same on a machine where, for the part `processor_wait` of the time, some process had no processor: from
    /// [`BUSY`] on, a step may have waited all that time or none of it, and what is predicted from it says so.
    pub fn observe_beside(
        &mut self,
        kind: &str,
        workers: u32,
        speed: f64,
        steps: &[StepRecord],
        processor_wait: f64,
    ) {
        if let Some(known) = self.kinds.get_mut(kind).filter(|_| is_positive(speed)) {
            known.observe(workers, speed, steps, processor_wait);
        }
    }

    /// Whether predictions for this kind rest on its own steps, on a profile, on a declared time or on a regression
    /// over kinds of its network, rather than on a guess.
    pub fn knows(&self, kind: &str) -> bool {
        let knows = |name: &str| {
            self.kinds
                .get(name)
                .is_some_and(|kind| kind.node_s().is_some() || self.by_network(kind).is_some())
        };
        self.open.get(kind).map_or_else(|| knows(kind), |kinds| kinds.iter().any(|(.., kind)| knows(kind)))
    }

    /// Smallest, typical and largest time of a virtual node of `kind` on a device of speed 1, in seconds, by a
    /// regression over kinds of the same network, and over how many; `None` where they are too few.
    fn by_network(&self, kind: &Kind) -> Option<((f64, f64, f64), usize)> {
        if kind.network.is_empty() {
            return None;
        }
        let same = self.kinds.iter().filter(|(_, other)| other.network == kind.network);
        let sample = |(name, other): (&String, &Kind)| {
            let (group, features) = (name.clone(), vec![other.work()]);
            Some(Sample { group, features, target: other.node_s()? })
        };
        let samples: Vec<Sample> = same.filter_map(sample).collect();
        if samples.len() < NETWORK_KINDS_MIN {
            return None;
        }
        let line = Candidate::least_squares("power of the work", &[0], Scale::Log);
        let (typical, low, high) = choose(&samples, &[line]).ok()?.interval(&[kind.work()], 0.95).ok()?;
        (is_positive(low) && is_positive(high)).then_some(((low, typical, high), samples.len()))
    }

    /// Smallest, typical and largest time of a virtual node on a device of speed 1, of all kinds of the same network if
    /// there are any, else of all, in seconds.
    fn guess_s(&self, kind: &Kind) -> (f64, f64, f64) {
        let of = |is_one: &dyn Fn(&&Kind) -> bool| -> Vec<f64> {
            self.kinds.values().filter(is_one).filter_map(Kind::node_s).collect()
        };
        let same = of(&|other| !kind.network.is_empty() && other.network == kind.network);
        let known = if same.is_empty() { of(&|_| true) } else { same };
        if known.is_empty() {
            return (GUESS_S / GUESS_FACTOR, GUESS_S, GUESS_S * GUESS_FACTOR);
        }
        let mean = (known.iter().map(|node_s| node_s.ln()).sum::<f64>() / known.len() as f64).exp();
        known
            .iter()
            .fold((mean, mean, mean), |(low, mean, high), &node_s| (low.min(node_s), mean, high.max(node_s)))
    }

    /// A forecast for a kind of which no step was observed.
    fn unobserved(&self, kind: &Kind, workers: u32, speed: f64) -> Result<Forecast, InputError> {
        let most = f64::from(most_virtual_nodes(kind.declared.virtual_nodes, workers)?);
        let ((fast_s, node_s, slow_s), why) = match kind.declared.node_s {
            Some(node_s) => {
                ((node_s, node_s, node_s), "no step was observed: this is the declared time".to_string())
            }
            None => match self.by_network(kind) {
                Some((times_s, count)) => {
                    let network = &kind.network;
                    let why = format!(
                        "no step was observed: this is a regression over {count} kinds of `{network}`"
                    );
                    (times_s, why)
                }
                None => (self.guess_s(kind), "nothing is known of such a job: this is a guess".to_string()),
            },
        };
        let rate = |node_s: f64| speed / (most * node_s);
        // The exchange is unknown, so more workers may be no faster than one.
        let alone = speed / (f64::from(kind.declared.virtual_nodes) * slow_s);
        Ok(Forecast {
            rate: Rate { steps_per_s: rate(node_s), low: alone.min(rate(slow_s)), high: rate(fast_s) },
            bottleneck: Bottleneck::Compute,
            why: Some(why),
            assumes_no_exchange: true,
        })
    }
}

impl StepModel for Observed {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let workers = own_devices(configuration)?;
        let name = self.kind_of(&job.model, configuration);
        let kind = self
            .kinds
            .get(name)
            .ok_or_else(|| not_known(name, "kind of job", self.kinds.keys().map(String::as_str)))?;
        if configuration.batch == 0 {
            return Err(PredictError::Incomplete("a step without samples takes no time".into()));
        }
        let held = configuration.devices.iter().filter(|group| group.count > 0);
        let speeds: Vec<f64> = held.map(|group| self.device_speed(&group.device)).collect();
        let slowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let batch = configuration.batch as f64;
        let share = kind.declared.batch as f64 / batch;
        let forecast = match kind.forecast(workers, slowest, share) {
            Some(forecast) if !forecast.assumes_no_exchange => forecast,
            observed => match kind.by_profile(workers, slowest, share).or(observed) {
                Some(forecast) => forecast,
                None => self.unobserved(kind, workers, slowest * share)?,
            },
        };
        let mut why = forecast.why;
        if share != 1.0 {
            why = Some(format!("another batch than {} was not observed", kind.declared.batch));
        }
        if speeds.iter().any(|speed| *speed != slowest) {
            why = Some("no gang over several types of device was observed".into());
        }
        let Rate { steps_per_s, mut low, mut high } = forecast.rate;
        if let Some(part) = kind.processor_wait(workers, slowest).filter(|part| *part > BUSY) {
            (low, high) = (low / (1.0 + part), high * (1.0 + part));
            let busy = format!(
                "the machine was busy when its steps were observed: {:.0} % of that time some process had no processor",
                100.0 * part
            );
            why = Some(why.map_or(busy.clone(), |why| format!("{why}; {busy}")));
        }
        let prediction = Prediction {
            examples_per_s: batch * steps_per_s,
            low: batch * low,
            high: batch * high,
            step_s: 1.0 / steps_per_s,
            bottleneck: forecast.bottleneck,
            validity: why.map_or(Validity::Interpolated, Validity::Extrapolated),
        };
        let Prediction { examples_per_s, low, high, step_s, .. } = prediction;
        if [examples_per_s, low, high, step_s].iter().all(|value| value.is_finite() && *value > 0.0) {
            Ok(prediction)
        } else {
            Err(PredictError::OutOfRange(format!(
                "no step has {batch} samples at {examples_per_s} samples/s"
            )))
        }
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}
