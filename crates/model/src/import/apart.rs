//! What was measured apart from a trace: steps without the profiler, and bare exchanges over one link.
//!
//! A profiler slows what it records, by up to a fifth where operators are small. Its trace says how a step
//! is composed; plain times of steps, of one run or of several, say how long it takes, how much that varies from step
//! to step, and how much from run to run.
//!
//! # Model
//!
//! ```text
//! all-reduce      t = 2 (W-1)/W S x + 2 (W-1) l
//!   processor     h = 2 (W-1)/W S a + (W-1) f
//! pull and push   t = (1 + 1/n) S x + 4 l + 2 n g
//!   processor     h = S a + n f
//! ```
//!
//! | symbol     | meaning                                                                      | unit |
//! |------------|------------------------------------------------------------------------------|------|
//! | t, h       | time of an exchange; processor time of it at the busier end, at the pace of the job's processes | s |
//! | W, S, n    | processes; bytes of the vector; parts that it is in                          | 1, B, 1 |
//! | x, l       | inverse rate of the link as the exchange uses it; latency                    | s/B, s |
//! | g          | getting a part ready                                                         | s    |
//! | a, f       | processor time per byte; per peer, or per part                               | s/B, s |
//!
//! The push of a part runs while others are still pulled, so all but one part go both ways at once.

use bellwether_core::error::InputError;
use bellwether_core::profile::{CollectiveCost, MeasuredApart, MeasuredStep, Network, Parsing, Profile};
use bellwether_des::statistics::{Tally, mean, student_quantile};
use bellwether_numerics::least_squares::{Range, least_squares};
use serde::Deserialize;

use crate::predict::LEVEL_95;

/// Version of the file format that this program reads.
const VERSION: u32 = 1;

/// What was measured apart from a trace, as its file says it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apart {
    version: u32,
    /// Samples of a step, where the trace does not say or is misread.
    #[serde(default)]
    samples: Option<u64>,
    /// Seconds of steps of the lone process without profiler, run by run.
    #[serde(default)]
    steps_s: Vec<Vec<f64>>,
    /// Bare all-reduces over the link.
    #[serde(default)]
    all_reduce: Vec<AllReduce>,
    /// Bare pulls and pushes through one parameter server by one worker, over the link.
    #[serde(default)]
    pull_push: Vec<PullPush>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllReduce {
    workers: u32,
    bytes: u64,
    seconds: f64,
    handling_s: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PullPush {
    parts: u32,
    bytes: u64,
    seconds: f64,
    handling_s: f64,
}

impl Apart {
    /// Reads such a file; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for text that is not JSON, another version, times that are none, exchanges of nothing or of
    /// both kinds.
    pub fn read(text: &str, place: &str) -> Result<Apart, InputError> {
        let wrong = |what: String| {
            InputError::new(place, what)
                .hint("data/frameworks/README.md describes the file and how it is made")
        };
        let apart: Apart = serde_json::from_str(text).map_err(|error| wrong(format!("invalid: {error}")))?;
        if apart.version != VERSION {
            return Err(wrong(format!("it has version {}, and this program reads {VERSION}", apart.version)));
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        if let Some(bad) = apart.steps_s.iter().flatten().find(|seconds| !is_time(**seconds)) {
            return Err(wrong(format!("a step cannot take {bad} s")));
        }
        if apart.samples == Some(0) || apart.steps_s.iter().any(Vec::is_empty) {
            return Err(wrong("a step has at least one sample, and a run one step".into()));
        }
        let reduced = apart.all_reduce.iter();
        let reduced = reduced.map(|row| (row.workers > 1, row.bytes, row.seconds, row.handling_s));
        let pulled =
            apart.pull_push.iter().map(|row| (row.parts > 0, row.bytes, row.seconds, row.handling_s));
        for (counts, bytes, seconds, handling_s) in reduced.chain(pulled) {
            if !(counts && bytes != 0 && is_time(seconds) && handling_s.is_finite() && handling_s >= 0.0) {
                let what = format!(
                    "an exchange of {bytes} bytes in {seconds} s, with {handling_s} s of processor time, is none: it \
                     has two workers or one part at least, and takes time"
                );
                return Err(wrong(what));
            }
        }
        if !(apart.all_reduce.is_empty() || apart.pull_push.is_empty()) {
            return Err(wrong("it has all-reduces and parameter servers: a job uses one of them".into()));
        }
        Ok(apart)
    }

    /// Puts what it says into the profile of a trace.
    ///
    /// # Errors
    ///
    /// Returns an error for exchanges that do not determine a link: fewer sizes than there are unknowns.
    pub fn complete(&self, profile: &mut Profile, place: &str) -> Result<(), InputError> {
        profile.batch = self.samples.unwrap_or(profile.batch);
        let mut apart = MeasuredApart::default();
        if !self.steps_s.is_empty() {
            apart.step_error = self.step_error();
            profile.steps = self.steps_like(&profile.steps);
        }
        if !self.all_reduce.is_empty() {
            let ring = |row: &AllReduce| {
                let workers = f64::from(row.workers);
                (2.0 * (workers - 1.0) / workers * row.bytes as f64, workers - 1.0)
            };
            let rows = self.all_reduce.iter();
            let times = rows.clone().map(|row| (vec![ring(row).0, 2.0 * ring(row).1], row.seconds));
            let (link, error) = fit(&times.collect::<Vec<_>>(), place)?;
            let handled = rows.map(|row| (vec![ring(row).0, ring(row).1], row.handling_s));
            let (cost, _) = fit(&handled.collect::<Vec<_>>(), place)?;
            profile.network = Some(network(link[0], link[1], place)?);
            profile.collective = Some(CollectiveCost { s_per_byte: cost[0], fixed_s: cost[1] });
            apart.link_error = error;
        }
        if !self.pull_push.is_empty() {
            let rows = self.pull_push.iter();
            let both_ways = |row: &PullPush| (1.0 + 1.0 / f64::from(row.parts)) * row.bytes as f64;
            let times =
                rows.clone().map(|row| (vec![both_ways(row), 4.0, 2.0 * f64::from(row.parts)], row.seconds));
            let (link, error) = fit(&times.collect::<Vec<_>>(), place)?;
            let handled = rows.map(|row| (vec![row.bytes as f64, f64::from(row.parts)], row.handling_s));
            let (cost, _) = fit(&handled.collect::<Vec<_>>(), place)?;
            profile.network = Some(network(link[0], link[1], place)?);
            // The wire hides what is handled per byte; what it does not hide bounds the throughput (`apart.handling`).
            profile.parsing = Some(Parsing { fixed_s: link[2], s_per_byte: 0.0 });
            apart.handling = Some(Parsing { fixed_s: cost[1], s_per_byte: cost[0] });
            apart.link_error = error;
        }
        profile.apart = Some(apart);
        Ok(())
    }

    /// How far the mean of another run may be from that of these, by Student's distribution: 0 for a lone run, which
    /// does not say.
    fn step_error(&self) -> f64 {
        let runs: Tally = self.steps_s.iter().map(|steps_s| mean(steps_s)).collect();
        let count = runs.count() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let quantile = student_quantile(0.975, count - 1.0) / LEVEL_95;
        quantile * (runs.variance() * (1.0 + 1.0 / count)).sqrt() / runs.mean()
    }

    /// A step of mean composition for each plain step, as long as that.
    fn steps_like(&self, traced: &[MeasuredStep]) -> Vec<MeasuredStep> {
        let count = traced.len() as f64;
        let step_s = traced.iter().map(|step| step.step_s).sum::<f64>() / count;
        let operations = traced.first().map_or(0, |step| step.operations_s.len());
        let mean_s = |place: usize| traced.iter().map(|step| step.operations_s[place]).sum::<f64>() / count;
        let means_s: Vec<f64> = (0..operations).map(mean_s).collect();
        let like = |seconds: &f64| MeasuredStep {
            step_s: *seconds,
            operations_s: means_s.iter().map(|mean_s| mean_s * seconds / step_s).collect(),
            data_wait_s: 0.0,
        };
        self.steps_s.iter().flatten().map(like).collect()
    }
}

fn network(s_per_byte: f64, latency_s: f64, place: &str) -> Result<Network, InputError> {
    if s_per_byte <= 0.0 {
        let what = "larger exchanges took no longer than small ones, so the link's rate is not known";
        return Err(
            InputError::new(place, what).hint("measure exchanges of several sizes, some of megabytes")
        );
    }
    Ok(Network { bandwidth_bytes_per_s: 1.0 / s_per_byte, latency_s })
}

/// Coefficients, none negative, with the smallest relative errors; and the relative standard error.
fn fit(rows: &[(Vec<f64>, f64)], place: &str) -> Result<(Vec<f64>, f64), InputError> {
    let count = rows.first().map_or(0, |(features, _)| features.len());
    // Each begins as if it explained everything; the largest row tells its scale.
    let scale = |which: usize| {
        rows.iter()
            .map(|(row, target)| target / row[which])
            .fold(f64::INFINITY, f64::min)
            .max(f64::MIN_POSITIVE)
    };
    let scales: Vec<f64> = (0..count).map(scale).collect();
    let ranges = vec![Range { start: 0.5, low: 0.0, high: 1e6 }; count];
    let rows: Vec<&(Vec<f64>, f64)> = rows.iter().filter(|(_, target)| *target > 0.0).collect();
    let found = least_squares(&ranges, rows.len(), |parameters, residuals| {
        for (residual, (row, target)) in residuals.iter_mut().zip(&rows) {
            let terms = row.iter().zip(parameters).zip(&scales);
            let value: f64 = terms.map(|((feature, parameter), scale)| feature * parameter * scale).sum();
            *residual = value / target - 1.0;
        }
    });
    let found = found.map_err(|why| {
        InputError::new(place, format!("the exchanges do not determine a link: {why}"))
            .hint("measure more sizes, from kilobytes to megabytes")
    })?;
    let freedom = found.degrees_of_freedom().max(1) as f64;
    let error = (found.sum_of_squares() / freedom).sqrt();
    Ok((found.parameters.iter().zip(&scales).map(|(parameter, scale)| parameter * scale).collect(), error))
}
