//! The step time and the checkpoint time of a network that was never run, from networks that were.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use bellwether_core::profile::{
    MeasuredApart, MeasuredStep, Operation, OperationKind, PROFILE_VERSION, Part, Profile,
};
use bellwether_core::units::Bytes;
use bellwether_core::{InputError, ParseError};
use bellwether_model::regression::{Candidate, Chosen, Sample, Scale, choose, step_time_candidates};
use serde::Serialize;

use crate::table::{Cells, Table};

/// Networks that others measured: see the README beside the file.
const KNOWN: &str = include_str!("../../../data/cm-dare/networks.csv");

const COLUMNS: [&str; 7] =
    ["network", "device", "operations", "tensors", "parameter_bytes", "step_s", "checkpoint_s"];

/// Samples of a step where none are said: those of the built-in measurements.
const BATCH: u64 = 128;

const LEVEL: f64 = 0.95;

/// Half the width of a normal interval of that level, in standard deviations.
const DEVIATIONS: f64 = 1.96;

/// A network, by what its step time depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Floating-point operations of a sample.
    pub operations: f64,
    /// Tensors of its parameters.
    pub tensors: u64,
    /// Bytes of its parameters.
    pub bytes: u64,
    /// The device that it would run on.
    pub device: String,
    /// Samples of a step.
    pub batch: u64,
}

impl FromStr for Network {
    type Err = ParseError;

    /// ```
    /// use bellwether_answers::network::Network;
    /// let network: Network = "operations=1.7G,tensors=104,bytes=7.4MB,device=k80".parse().unwrap();
    /// assert_eq!((network.operations, network.bytes), (1.7e9, 7_400_000));
    /// ```
    fn from_str(text: &str) -> Result<Network, ParseError> {
        let expected = "operations=N,tensors=N,bytes=SIZE,device=NAME, for example \
                        operations=1.7G,tensors=104,bytes=7.4MB,device=k80";
        let wrong = || ParseError::new("network", text, expected);
        let mut fields = std::collections::BTreeMap::new();
        for field in text.split(',') {
            let (key, value) = field.split_once('=').ok_or_else(wrong)?;
            let key = key.trim();
            let is_known = ["operations", "tensors", "bytes", "device", "batch"].contains(&key);
            if !is_known || fields.insert(key, value.trim()).is_some() {
                return Err(wrong());
            }
        }
        let whole = |value: &str| value.parse::<u64>().ok().filter(|count| (1..=1 << 40).contains(count));
        let tensors = fields.get("tensors").and_then(|value| whole(value)).ok_or_else(wrong)?;
        let Bytes(bytes) = fields.get("bytes").ok_or_else(wrong)?.parse()?;
        Ok(Network {
            operations: fields.get("operations").and_then(|value| operations(value)).ok_or_else(wrong)?,
            tensors,
            bytes: Some(bytes).filter(|bytes| *bytes > 0).ok_or_else(wrong)?,
            device: fields.get("device").filter(|name| !name.is_empty()).ok_or_else(wrong)?.to_lowercase(),
            batch: fields.get("batch").map_or(Some(BATCH), |value| whole(value)).ok_or_else(wrong)?,
        })
    }
}

/// A number with a suffix of a thousand, a million and so on.
fn operations(text: &str) -> Option<f64> {
    let factors = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    let suffixed = factors.iter().find_map(|(end, factor)| Some((text.strip_suffix(end)?, *factor)));
    let (digits, factor) = suffixed.unwrap_or((text, 1.0));
    digits
        .parse::<f64>()
        .ok()
        .map(|number| number * factor)
        .filter(|number| number.is_finite() && *number > 0.0)
}

/// A network that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    name: String,
    device: String,
    operations: f64,
    tensors: u64,
    bytes: u64,
    step_s: f64,
    checkpoint_s: Option<f64>,
}

/// The networks of a table, or those that this program brings along.
///
/// # Errors
///
/// A file that cannot be read, or holds something else.
pub fn known(path: Option<&Path>) -> Result<Vec<Known>, InputError> {
    let Some(path) = path else { return read(KNOWN, "data/cm-dare/networks.csv") };
    let place = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|error| InputError::new(&place, format!("the table cannot be read: {error}")))?;
    read(&text, &place)
}

fn read(text: &str, place: &str) -> Result<Vec<Known>, InputError> {
    let needs = "the first line names the columns: network,device,operations,tensors,parameter_bytes,step_s";
    let table = Table::read(text, place, &COLUMNS, needs)?;
    table.must_have(&COLUMNS[..6])?;
    let row = |cells: Cells<'_>| {
        let text = |column| cells.text(column).map(String::from).ok_or_else(|| cells.missing(column));
        let whole = |column| cells.whole(column, 1 << 50)?.ok_or_else(|| cells.missing(column));
        let positive = |column| cells.positive(column)?.ok_or_else(|| cells.missing(column));
        Ok(Known {
            name: text("network")?,
            device: text("device")?.to_lowercase(),
            operations: positive("operations")?,
            tensors: whole("tensors")?,
            bytes: whole("parameter_bytes")?,
            step_s: positive("step_s")?,
            checkpoint_s: cells.positive("checkpoint_s")?,
        })
    };
    table.rows().map(row).collect()
}

/// A time with its interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Time {
    /// Seconds.
    pub seconds: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The regression that predicted left-out networks best.
    pub by: String,
    /// Networks that it was fitted to.
    pub networks: usize,
    /// Mean relative error of each network as the others predict it.
    pub left_out_error: f64,
    /// Why it is an extrapolation; absent where it is none.
    pub beyond: Option<String>,
}

/// What regressions say of a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// Of a training step on one device.
    pub step: Time,
    /// Of a checkpoint, where any was measured.
    pub checkpoint: Option<Time>,
}

/// Estimates the times of a network from those of `known` networks.
///
/// # Errors
///
/// A device on which none was measured, or fewer than three networks.
pub fn estimate(network: &Network, known: &[Known]) -> Result<Estimate, InputError> {
    let there: Vec<&Known> = known.iter().filter(|one| one.device == network.device).collect();
    if there.is_empty() {
        let mut devices: Vec<&str> = known.iter().map(|one| one.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        let what = format!("no network was measured on `{}`", network.device);
        let hint = format!("there is {}; --known TABLE.csv adds your own measurements", devices.join(", "));
        return Err(InputError::new("--network", what).hint(hint));
    }
    let step = |one: &&Known| Sample {
        group: one.name.clone(),
        features: vec![one.operations, one.tensors as f64],
        target: one.step_s,
    };
    let steps: Vec<Sample> = there.iter().map(step).collect();
    let features = [network.operations, network.tensors as f64];
    let names = ["operations", "tensors"];
    let step = time(&steps, &step_time_candidates(), &features, &names)?;
    let checkpoint = |one: &Known| {
        let (group, features) = (one.name.clone(), vec![one.bytes as f64]);
        one.checkpoint_s.map(|target| Sample { group, features, target })
    };
    let checkpoints: Vec<Sample> = known.iter().filter_map(checkpoint).collect();
    // Of checkpoints a plain line predicts left-out networks best, better than any choice among more: see
    // docs/accuracy.md.
    let line = Candidate::least_squares("least squares of bytes", &[0], Scale::Plain);
    let checkpoint = match checkpoints.is_empty() {
        true => None,
        false => Some(time(&checkpoints, &[line], &[network.bytes as f64], &["bytes"])?),
    };
    Ok(Estimate { step, checkpoint })
}

fn time(
    samples: &[Sample],
    candidates: &[Candidate],
    features: &[f64],
    names: &[&str],
) -> Result<Time, InputError> {
    let chosen = choose(samples, candidates)?;
    let (seconds, low, high) = chosen.interval(features, LEVEL)?;
    if !(seconds.is_finite() && seconds > 0.0) {
        let what = "such a network lies so far beyond the measured ones that its time comes out below 0";
        return Err(InputError::new("--network", what).hint("measure networks like it for --known"));
    }
    let beyond = chosen.outside(features).map(|number| {
        let (name, value, (low, high)) = (names[number], features[number], chosen.ranges[number]);
        format!("{name} of {value:.3e}; networks with {low:.3e} to {high:.3e} were measured")
    });
    let Chosen { fitted, left_out_error, left_out_ratios, .. } = chosen;
    Ok(Time {
        seconds,
        low,
        high,
        by: fitted.candidate.name,
        networks: left_out_ratios.len(),
        left_out_error,
        beyond,
    })
}

/// The estimate as a profile, so that all that takes a profile takes it: one part, one operation that computes, and the
/// uncertainty of the estimate as that of every step.
pub fn profile(network: &Network, estimate: &Estimate) -> Profile {
    let operation =
        |name: &str, kind, after: &[u32]| Operation { name: name.into(), kind, after: after.to_vec() };
    let seconds = estimate.step.seconds;
    Profile {
        version: PROFILE_VERSION,
        job: format!("network of {:.3e} operations", network.operations),
        source: "regression over measured networks".into(),
        computation: None,
        device: network.device.clone(),
        batch: network.batch,
        virtual_nodes: 1,
        parameter_bytes: network.bytes,
        parts: vec![Part { name: "all".into(), bytes: network.bytes, server: None }],
        operations: vec![
            operation("compute", OperationKind::Compute, &[]),
            operation("upload", OperationKind::Upload(0), &[0]),
            operation("update", OperationKind::Update(0), &[1]),
        ],
        steps: vec![MeasuredStep {
            step_s: seconds,
            operations_s: vec![seconds, 0.0, 0.0],
            data_wait_s: 0.0,
        }],
        collective: None,
        batches: Vec::new(),
        network: None,
        shared_memory: None,
        parsing: None,
        checkpoint_s: estimate.checkpoint.as_ref().map(|time| time.seconds),
        tail_s: None,
        sharding: None,
        peak_resident_bytes: None,
        processor_wait: None,
        boot: None,
        apart: Some(MeasuredApart {
            step_error: (estimate.step.high / seconds).ln() / DEVIATIONS,
            ..MeasuredApart::default()
        }),
    }
}
