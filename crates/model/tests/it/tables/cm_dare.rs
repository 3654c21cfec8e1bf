//! The measurements of CM-DARE: throughput of asynchronous training, with what models say of it that were not told,
//! and step and checkpoint times of networks.

use bellwether_core::InputError;
use bellwether_core::fitted::Measurement;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, Protocol};
use bellwether_des::statistics::student_quantile;
use bellwether_model::calibrate::asynchronous::{self, Prior};
use bellwether_model::calibrate::{IntervalScore, Noise};
use bellwether_model::regression::Sample;

use super::{data, lines, number};

/// Step times on a K80 and on a P100, and checkpoint times.
pub const K80: &str = data!("cm-dare/0latency_k80_new.csv");
pub const P100: &str = data!("cm-dare/0latency_p100_new2.csv");
const CHECKPOINTS: &str = data!("cm-dare/whole_data.csv");

/// One network on one kind of device, with 1 to 8 workers.
pub struct Series {
    /// Network, device, number of servers.
    pub name: String,
    /// Number of parameter servers.
    pub servers: u32,
    /// Steps per second with 1, 2, ... workers.
    pub steps_per_s: Vec<f64>,
}

/// All series, in the order of the file.
pub fn series() -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for fields in lines(data!("cm-dare/cluster-speed.csv")) {
        let name = format!("{} {}, {} PS", fields[0], fields[1], fields[2]);
        if all.last().is_none_or(|series| series.name != name) {
            all.push(Series { name, servers: number(fields[2]) as u32, steps_per_s: Vec::new() });
        }
        let series = all.last_mut().expect("a series was just pushed");
        series.steps_per_s.push(number(fields[4]));
        assert_eq!(series.steps_per_s.len() as f64, number(fields[3]), "rows go from 1 worker upwards");
    }
    all
}

impl Series {
    /// Measured steps per second of all workers together.
    pub fn measured(&self, workers: u32) -> f64 {
        self.steps_per_s[workers as usize - 1]
    }

    /// The configuration of a row; a step counts as one sample, so that throughput is steps per second.
    pub fn configuration(&self, workers: u32) -> Configuration {
        Configuration {
            devices: (0..workers).map(|node| DeviceGroup { node, device: "gpu".into(), count: 1 }).collect(),
            batch: u64::from(workers),
            accumulation: 1,
            protocol: Protocol::Asp,
            servers: self.servers,
            link: Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 },
            local_link: None,
            shared_with: Vec::new(),
        }
    }

    /// The rows with these numbers of workers, as measurements.
    pub fn measurements(&self, workers: &[u32]) -> Vec<Measurement> {
        let of = |&count: &u32| Measurement {
            configuration: self.configuration(count),
            step_s: f64::from(count) / self.measured(count),
            exchange_s: None,
        };
        workers.iter().map(of).collect()
    }

    /// Relative errors of `predict` at these numbers of workers.
    pub fn errors(
        &self,
        workers: impl Iterator<Item = u32>,
        mut predict: impl FnMut(u32) -> Result<f64, InputError>,
    ) -> Result<Vec<f64>, InputError> {
        workers.map(|count| Ok(predict(count)? / self.measured(count) - 1.0)).collect()
    }

    /// Errors with 2 to 7 workers of the queueing model that was fitted to 1 and 8.
    pub fn errors_between(&self, squared_variation: f64) -> Result<Vec<f64>, InputError> {
        let prior = Prior { squared_variation, ..Prior::default() };
        let fitted = asynchronous::fit(&self.measurements(&[1, 8]), &prior)?;
        self.errors(2..=7, |count| {
            Ok(asynchronous::predict(&fitted, &self.configuration(count))?.examples_per_s)
        })
    }

    /// Errors with 2 to 7 workers of the asymptotes through 1 and 8: a line, then a plateau.
    pub fn errors_of_asymptotes(&self) -> Vec<f64> {
        let plateau = self.measured(8);
        let predict = |count| Ok((f64::from(count) * self.measured(1)).min(plateau));
        self.errors(2..=7, predict).expect("the asymptotes refuse nothing")
    }

    /// Errors with 2 to 7 workers of a power law through 1 and 8.
    pub fn errors_of_power_law(&self) -> Vec<f64> {
        let exponent = (self.measured(8) / self.measured(1)).ln() / 8f64.ln();
        let predict = |count| Ok(self.measured(1) * f64::from(count).powf(exponent));
        self.errors(2..=7, predict).expect("a power law refuses nothing")
    }
}

/// Mean of the absolute values.
pub fn mean_absolute(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

/// Intervals at 4 to 8 workers from 1 to 3, of one method.
pub type Intervals = Vec<(f64, f64)>;

/// Intervals of the queueing model that was fitted to 1, 2 and 3 workers.
pub fn queueing_intervals(series: &Series, prior: &Prior) -> Result<Intervals, InputError> {
    let fitted = asynchronous::fit(&series.measurements(&[1, 2, 3]), prior)?;
    let interval = |count| {
        let prediction = asynchronous::predict(&fitted, &series.configuration(count))?;
        Ok((prediction.low, prediction.high))
    };
    (4..=8).map(interval).collect()
}

/// Intervals of linear scaling: the mean of throughput per worker, with its residuals' prediction interval
/// (of logarithms); with `noise`, as if that prior were known to it too.
pub fn linear_intervals(series: &Series, noise: Option<Noise>) -> Intervals {
    let logs: Vec<f64> = (1..=3).map(|w| (series.measured(w) / f64::from(w)).ln()).collect();
    let mean = logs.iter().sum::<f64>() / 3.0;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let (variance, freedom) = match noise {
        None => (squares / 2.0, 2.0),
        // The weight of the default prior, 3, and 2 of the residuals.
        Some(noise) => ((3.0 * noise.relative_deviation.powi(2) + squares) / 5.0, 5.0),
    };
    let spread = student_quantile(0.975, freedom) * (variance * (1.0 + 1.0 / 3.0)).sqrt();
    let interval = |count: u32| {
        let centre = f64::from(count) * mean.exp();
        (centre * (-spread).exp(), centre * spread.exp())
    };
    (4..=8).map(interval).collect()
}

/// Scores intervals in units of the series' measured throughput of one worker, so that all series count alike.
pub fn score(series: &Series, intervals: &Intervals, into: &mut IntervalScore) {
    for ((low, high), count) in intervals.iter().zip(4..) {
        let unit = series.measured(1);
        into.add(low / unit, high / unit, series.measured(count) / unit);
    }
}

/// One measured training speed of a network.
pub struct StepRow {
    pub network: String,
    /// Speed of the device, in 10¹² floating-point operations per second.
    pub device_tflops: f64,
    /// Floating-point operations of the network.
    pub operations: f64,
    /// Its number of tensors; absent where the table does not say.
    pub tensors: Option<f64>,
    /// Seconds of a training step.
    pub step_s: f64,
}

/// One measured checkpoint.
pub struct CheckpointRow {
    pub network: String,
    /// Size of all files, in 10⁶ bytes.
    pub megabytes: f64,
    /// Size of the weights, in 10⁶ bytes.
    pub weight_megabytes: f64,
    /// Size of the graph's description, in 10⁶ bytes.
    pub graph_megabytes: f64,
    /// Seconds until it stands in the remote storage.
    pub checkpoint_s: f64,
}

/// Where the columns of these names stand.
fn columns<const N: usize>(table: &str, names: [&str; N]) -> [usize; N] {
    let head: Vec<&str> = table.lines().next().expect("a head").split(',').map(str::trim).collect();
    names.map(|name| head.iter().position(|column| *column == name).expect("a column of this name"))
}

/// The rows of a table of step times.
pub fn step_rows(table: &str) -> Vec<StepRow> {
    let names = ["Model (temp)", "GPU TFLOPS", "Model FLOPs", "Number of Tensors", "Step Time (s)"];
    let [network, device_tflops, operations, tensors, step_s] = columns(table, names);
    let row = |fields: Vec<&str>| StepRow {
        network: fields[network].to_owned(),
        device_tflops: number(fields[device_tflops]),
        operations: number(fields[operations]),
        tensors: (!fields[tensors].is_empty()).then(|| number(fields[tensors])),
        step_s: number(fields[step_s]),
    };
    lines(table).map(row).collect()
}

/// All measured checkpoints.
pub fn checkpoint_rows() -> Vec<CheckpointRow> {
    let names = ["Model", "Checkpoint Size (MB)", "Weight File Size", "Meta File Size", "Duration"];
    let [network, megabytes, weights, graph, checkpoint_s] = columns(CHECKPOINTS, names);
    let row = |fields: Vec<&str>| CheckpointRow {
        network: fields[network].to_owned(),
        megabytes: number(fields[megabytes]),
        weight_megabytes: number(fields[weights]),
        graph_megabytes: number(fields[graph]),
        checkpoint_s: number(fields[checkpoint_s]),
    };
    lines(CHECKPOINTS).map(row).collect()
}

/// Normalised complexity, and seconds, of each row of a table of step times.
pub fn normalised(table: &str) -> (Vec<Vec<f64>>, Vec<f64>) {
    let rows = step_rows(table);
    let operations: Vec<f64> = rows.iter().map(|row| row.operations).collect();
    (to_unit(&operations), rows.iter().map(|row| row.step_s).collect())
}

/// Each value as the only feature of a row, shifted and scaled to 0..1.
pub fn to_unit(values: &[f64]) -> Vec<Vec<f64>> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    values.iter().map(|value| vec![(value - low) / (high - low)]).collect()
}

/// Operations and tensors of each row of a table of step times. The networks are the same on both devices; only the
/// table of the K80 has the tensors of all.
pub fn step_samples(table: &str) -> Vec<Sample> {
    let known = step_rows(K80);
    let tensors = |network: &str| {
        let same = known.iter().find(|row| row.network == network);
        same.and_then(|row| row.tensors).expect("the tensors of every network are known")
    };
    let of = |row: &StepRow| Sample {
        group: row.network.clone(),
        features: vec![row.operations, tensors(&row.network)],
        target: row.step_s,
    };
    step_rows(table).iter().map(of).collect()
}

/// Bytes in all, of the weights and of the graph, of each checkpoint.
pub fn checkpoint_samples() -> Vec<Sample> {
    let of = |row: &CheckpointRow| Sample {
        group: row.network.clone(),
        features: vec![row.megabytes, row.weight_megabytes, row.graph_megabytes],
        target: row.checkpoint_s,
    };
    checkpoint_rows().iter().map(of).collect()
}
