//! Gavel's table of steps per second.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};
use serde::Deserialize;

use super::listed;
use crate::common::answer::{exact, least_kept, not_known, own_devices, slowest_type};
use crate::common::check;

/// What the name of a type ends in that was measured with its devices spread over nodes.
const SPREAD: &str = "_unconsolidated";

/// Steps per second by type of device, kind of job and number of devices.
///
/// The kind of a job is [`JobDescription::model`], in the words of the table: `Transformer (batch size 32)`.
#[derive(Debug, Clone, PartialEq)]
pub struct GavelTable {
    types: BTreeMap<String, DeviceType>,
    by_nodes: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct DeviceType {
    in_node: Jobs,
    spread: Jobs,
}

/// By count, by kind of job.
type Jobs = BTreeMap<String, BTreeMap<u32, Cell>>;

/// Steps per second of one kind of job on some devices.
#[derive(Debug, Clone, Default, PartialEq)]
struct Cell {
    alone: f64,
    /// By kind of the job that uses the same devices: this one's and that one's; zeros where they cannot share them.
    beside: BTreeMap<String, [f64; 2]>,
}

/// What the file says of one kind of job and count.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "null")]
    alone: Option<f64>,
    #[serde(flatten)]
    beside: BTreeMap<String, [f64; 2]>,
}

impl GavelTable {
    /// Reads the table from its JSON; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for malformed text, or a throughput that cannot be.
    pub fn parse(json: &[u8], place: &str) -> Result<GavelTable, InputError> {
        let file: BTreeMap<String, BTreeMap<String, Entry>> =
            serde_json::from_slice(json).map_err(|error| {
                InputError::new(place, format!("not a table of throughputs: {error}"))
                    .hint("expected is {type of device: {\"('kind of job', devices)\": {\"null\": steps/s}}}")
            })?;
        let mut types: BTreeMap<String, DeviceType> = BTreeMap::new();
        for (device, entries) in file {
            let spread = device.strip_suffix(SPREAD);
            let of_type = types.entry(spread.unwrap_or(&device).to_string()).or_default();
            let jobs = if spread.is_some() { &mut of_type.spread } else { &mut of_type.in_node };
            for (key, entry) in entries {
                let at = format!("{place}: {device}: {key}");
                let (kind, devices) = kind_and_devices(&key).ok_or_else(|| {
                    InputError::new(&at, "this key names no kind of job and devices")
                        .hint("write it as ('ResNet-18 (batch size 32)', 2)")
                })?;
                let Some(alone) = entry.alone else { continue };
                check::negative(&at, "the throughput in steps/s", alone)?;
                let cell = Cell { alone, beside: pairs(&at, entry.beside, devices)? };
                jobs.entry(kind.to_string()).or_default().insert(devices, cell);
            }
        }
        if types.is_empty() {
            return Err(InputError::new(place, "the table is empty").hint("give one with a type of device"));
        }
        Ok(GavelTable { types, by_nodes: false })
    }

    /// The same table, which reads what was measured with devices spread over nodes for configurations that are.
    #[must_use]
    pub fn by_nodes(self) -> GavelTable {
        GavelTable { by_nodes: true, ..self }
    }

    /// Types of device, in the order of their names.
    pub fn device_types(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(String::as_str)
    }

    /// Steps per second of a kind of job on `devices` devices of one type, all in one node or (`spread`) not.
    ///
    /// # Errors
    ///
    /// Returns what was not measured, and what was; a job that does not run there.
    pub fn steps_per_s(
        &self,
        device: &str,
        kind: &str,
        devices: u32,
        spread: bool,
    ) -> Result<f64, PredictError> {
        self.cell(device, kind, devices, spread).map(|cell| cell.alone)
    }

    /// The parts of their speeds alone that two kinds of job keep on the same `devices` devices of a type, in one node;
    /// `None` when they cannot share them.
    ///
    /// # Errors
    ///
    /// Same errors as [`steps_per_s`](GavelTable::steps_per_s), of either; also for a pair that was not measured.
    pub fn kept(
        &self,
        device: &str,
        kinds: [&str; 2],
        devices: u32,
    ) -> Result<Option<[f64; 2]>, PredictError> {
        let [first, second] = kinds;
        let (own, other) =
            (self.cell(device, first, devices, false)?, self.cell(device, second, devices, false)?);
        let together = own.beside.get(second).ok_or_else(|| {
            let why = format!("`{first}` was not measured beside `{second}` on {devices} {device}");
            PredictError::Unsupported(why)
        })?;
        // No job is helped by another: a speed above the speed alone is noise.
        let part = |place: usize, alone: f64| (together[place] / alone).min(1.0);
        Ok((together[0] > 0.0 && together[1] > 0.0).then(|| [part(0, own.alone), part(1, other.alone)]))
    }

    /// Kinds of job that run on one device of a type, in the order of their names.
    pub fn kinds(&self, device: &str) -> impl Iterator<Item = &str> {
        let runs = |counts: &BTreeMap<u32, Cell>| counts.get(&1).is_some_and(|cell| cell.alone > 0.0);
        let jobs = self.types.get(device).into_iter().flat_map(|of_type| &of_type.in_node);
        jobs.filter(move |(_, counts)| runs(counts)).map(|(kind, _)| kind.as_str())
    }

    /// What was measured on devices where the job runs.
    fn cell(&self, device: &str, kind: &str, devices: u32, spread: bool) -> Result<&Cell, PredictError> {
        let of_type = self
            .types
            .get(device)
            .ok_or_else(|| not_known(device, "type of device of this table", self.device_types()))?;
        let jobs = if spread { &of_type.spread } else { &of_type.in_node };
        let counts = jobs.get(kind).ok_or_else(|| {
            not_known(kind, &format!("job that was measured on {device}"), jobs.keys().map(String::as_str))
        })?;
        let how = if spread { " in several nodes" } else { "" };
        match counts.get(&devices) {
            Some(cell) if cell.alone > 0.0 => Ok(cell),
            Some(_) => {
                Err(PredictError::DoesNotFit(format!("`{kind}` does not run on {devices} {device}{how}")))
            }
            None => Err(PredictError::Unsupported(format!(
                "`{kind}` was measured on {} {device}{how}, not on {devices}",
                listed(counts.keys())
            ))),
        }
    }
}

/// Of jobs on the same number of devices; others never share.
fn pairs(
    at: &str,
    beside: BTreeMap<String, [f64; 2]>,
    devices: u32,
) -> Result<BTreeMap<String, [f64; 2]>, InputError> {
    let mut pairs = BTreeMap::new();
    for (key, speeds) in beside {
        let (kind, others) = kind_and_devices(&key)
            .ok_or_else(|| InputError::new(at, format!("`{key}` names no kind of job and devices")))?;
        for steps_per_s in speeds {
            check::negative(at, format!("the throughput in steps/s with {key}"), steps_per_s)?;
        }
        if others == devices {
            pairs.insert(kind.to_string(), speeds);
        }
    }
    Ok(pairs)
}

impl StepModel for GavelTable {
    /// Its `examples_per_s` are steps per second.
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let devices = own_devices(configuration)?;
        let spread = self.by_nodes && configuration.nodes() > 1;
        let of_type = |device: &str| Ok((self.steps_per_s(device, &job.model, devices, spread)?, None));
        let (steps_per_s, validity) = slowest_type(configuration, of_type)?;
        exact(steps_per_s, 1.0, validity)
    }

    fn shared(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        beside: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        let devices = own_devices(configuration)?;
        least_kept(configuration, |device| {
            Ok(self.kept(device, [&job.model, &beside.model], devices)?.map(|[own, _]| own))
        })
    }
}

/// Reads `('ResNet-18 (batch size 32)', 2)`.
fn kind_and_devices(key: &str) -> Option<(&str, u32)> {
    let (kind, devices) = key.strip_prefix("('")?.strip_suffix(')')?.rsplit_once("', ")?;
    let devices = devices.parse().ok().filter(|&devices| devices > 0)?;
    Some((kind, devices))
}
