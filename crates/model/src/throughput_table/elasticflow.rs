//! ElasticFlow's tables of iterations per second, by global batch and count.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};

use super::listed;
use crate::common::answer::{exact, not_known, own_devices, slowest_type};

/// Steps per second by type of device, network, number of devices and global batch.
///
/// The network of a job is [`JobDescription::model`], in the words of [`add`](ElasticFlowTables::add).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ElasticFlowTables {
    types: BTreeMap<String, BTreeMap<String, Counts>>,
}

/// Measured cells by count; of each count at least one, by ascending batch.
type Counts = BTreeMap<u32, Vec<Cell>>;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    batch: f64,
    step_s: f64,
}

impl ElasticFlowTables {
    /// Reads the table of one network on one type of device: `global_batch_size`, then a column of steps per second
    /// for each count. A cell that is empty, `0` or `nan` was not measured. A table that was there before is replaced.
    ///
    /// # Errors
    ///
    /// Returns the line and what is wrong with it.
    pub fn add(&mut self, device: &str, network: &str, csv: &str, place: &str) -> Result<(), InputError> {
        let mut lines = csv.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let head = lines.next().map_or("", |(_, line)| line);
        let columns =
            head.split(',').skip(1).map(|field| field.trim().parse().ok().filter(|&count: &u32| count > 0));
        let columns: Vec<u32> = columns
            .collect::<Option<_>>()
            .filter(|columns: &Vec<u32>| !columns.is_empty())
            .ok_or_else(|| {
                InputError::new(format!("{place}, line 1"), format!("invalid table head `{head}`"))
                    .hint("write global_batch_size,1,2,4: after the first column numbers of devices")
            })?;
        let mut counts = Counts::new();
        for (number, line) in lines {
            let at = || format!("{place}, line {}", number + 1);
            let (batch, fields) = line.split_once(',').unwrap_or((line, ""));
            let batch: u32 = batch.trim().parse().ok().filter(|&batch| batch > 0).ok_or_else(|| {
                InputError::new(at(), format!("invalid global batch `{batch}`"))
                    .hint("write a whole number of samples above 0")
            })?;
            if fields.split(',').count() > columns.len() {
                return Err(InputError::new(
                    at(),
                    format!("more than {} columns of throughput", columns.len()),
                )
                .hint("the head names the devices of each"));
            }
            for (&count, field) in columns.iter().zip(fields.split(',')) {
                if let Some(steps_per_s) = measured(field, at)? {
                    let cell = Cell { batch: batch.into(), step_s: 1.0 / steps_per_s };
                    insert(counts.entry(count).or_default(), cell, at)?;
                }
            }
        }
        if counts.is_empty() {
            return Err(InputError::new(place, "no cell was measured").hint("give at least one above 0"));
        }
        self.types.entry(device.to_string()).or_default().insert(network.to_string(), counts);
        Ok(())
    }

    /// Samples per second on `devices` devices of one type, and, for a batch outside of what was measured, why this
    /// is an extrapolation.
    ///
    /// # Errors
    ///
    /// Returns what was not measured, and what was.
    pub fn examples_per_s(
        &self,
        device: &str,
        network: &str,
        devices: u32,
        batch: u64,
    ) -> Result<(f64, Option<String>), PredictError> {
        let networks = self.types.get(device).ok_or_else(|| {
            not_known(device, "type of device of these tables", self.types.keys().map(String::as_str))
        })?;
        let counts = networks.get(network).ok_or_else(|| {
            not_known(
                network,
                &format!("network that was measured on {device}"),
                networks.keys().map(String::as_str),
            )
        })?;
        if batch == 0 {
            return Err(PredictError::Incomplete("a step has no sample".into()));
        }
        let batch = batch as f64;
        if let Some(cells) = counts.get(&devices) {
            return Ok(at_batch(cells, batch));
        }
        let below = counts.range(..devices).next_back();
        let above = counts.range(devices..).next();
        let (Some((&fewer, below)), Some((&more, above))) = (below, above) else {
            let known = listed(counts.keys());
            let why = format!("`{network}` was measured on {known} {device}, not on {devices}");
            return Err(PredictError::Unsupported(why));
        };
        let ((slow, why), (fast, why_above)) = (at_batch(below, batch), at_batch(above, batch));
        let (from, to) = (f64::from(fewer), f64::from(more));
        let rate = between(f64::from(devices), (from, slow), (to, fast));
        Ok((rate, why.or(why_above)))
    }
}

impl StepModel for ElasticFlowTables {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let devices = own_devices(configuration)?;
        let of_type = |device: &str| self.examples_per_s(device, &job.model, devices, configuration.batch);
        let (examples_per_s, validity) = slowest_type(configuration, of_type)?;
        exact(examples_per_s, configuration.batch as f64, validity)
    }
}

/// The number of a cell; `None` where nothing was measured.
fn measured(field: &str, at: impl Fn() -> String) -> Result<Option<f64>, InputError> {
    let field = field.trim();
    if field.is_empty() || field.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    match field.parse::<f64>() {
        Ok(0.0) => Ok(None),
        // Outside of these a step would overflow.
        Ok(rate) if (1e-100..1e100).contains(&rate) => Ok(Some(rate)),
        _ => Err(InputError::new(at(), format!("invalid throughput `{field}`"))
            .hint("write a number above 0, or leave the cell empty")),
    }
}

/// Keeps the cells in the order of their batches.
fn insert(cells: &mut Vec<Cell>, cell: Cell, at: impl Fn() -> String) -> Result<(), InputError> {
    let place = cells.partition_point(|other| other.batch < cell.batch);
    if cells.get(place).is_some_and(|other| other.batch == cell.batch) {
        return Err(InputError::new(at(), format!("there are two rows of batch {}", cell.batch))
            .hint("keep one of them"));
    }
    cells.insert(place, cell);
    Ok(())
}

/// Samples per second at a batch, and why that is an extrapolation if it is one.
fn at_batch(cells: &[Cell], batch: f64) -> (f64, Option<String>) {
    let above = cells.partition_point(|cell| cell.batch < batch);
    let outside = |cell: &Cell| Some(format!("no batch beyond {} samples was measured", cell.batch));
    match (above.checked_sub(1).map(|below| &cells[below]), cells.get(above)) {
        (_, Some(cell)) if cell.batch == batch => (batch / cell.step_s, None),
        (Some(low), Some(high)) => {
            (batch / between(batch, (low.batch, low.step_s), (high.batch, high.step_s)), None)
        }
        // No step is shorter than that of the smallest batch, and no sample faster than in the largest.
        (None, Some(high)) => (batch / high.step_s, outside(high)),
        (Some(low), None) => (low.batch / low.step_s, outside(low)),
        (None, None) => (f64::NAN, None),
    }
}

/// The value at `x` on the straight line through two points, all by their logarithms.
fn between(x: f64, (x0, y0): (f64, f64), (x1, y1): (f64, f64)) -> f64 {
    let part = (x / x0).ln() / (x1 / x0).ln();
    y0 * (part * (y1 / y0).ln()).exp()
}
