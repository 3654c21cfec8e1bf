//! Measured asynchronous training (CM-DARE), and how well models say what they were not told.

use bellwether_core::InputError;
use bellwether_core::fitted::Measurement;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, Protocol};
use bellwether_model::calibrate::asynchronous::{self, Prior};
use bellwether_model::calibrate::{IntervalScore, Noise};

const TABLE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/cm-dare/cluster-speed.csv"));

/// 97.5 % points of Student's distribution with 2 and 5 degrees of freedom (any table of it).
const STUDENT_2: f64 = 4.302_652_7;
const STUDENT_5: f64 = 2.570_581_8;

/// One network on one kind of device, with 1 to 8 workers.
pub(crate) struct Series {
    /// Network, device, number of servers.
    pub(crate) name: String,
    /// Number of parameter servers.
    pub(crate) servers: u32,
    /// Steps per second with 1, 2, ... workers.
    pub(crate) steps_per_s: Vec<f64>,
}

/// All series, in the order of the file.
pub(crate) fn series() -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for line in TABLE.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().expect("the table holds numbers");
        let name = format!("{} {}, {} PS", fields[0], fields[1], fields[2]);
        if all.last().is_none_or(|series| series.name != name) {
            all.push(Series { name, servers: number(2) as u32, steps_per_s: Vec::new() });
        }
        let series = all.last_mut().expect("a series was just pushed");
        series.steps_per_s.push(number(4));
        assert_eq!(series.steps_per_s.len() as f64, number(3), "rows go from 1 worker upwards");
    }
    all
}

impl Series {
    /// Measured steps per second of all workers together.
    pub(crate) fn measured(&self, workers: u32) -> f64 {
        self.steps_per_s[workers as usize - 1]
    }

    /// The configuration of a row; a step counts as one sample, so that throughput is steps per second.
    pub(crate) fn configuration(&self, workers: u32) -> Configuration {
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
    pub(crate) fn measurements(&self, workers: &[u32]) -> Vec<Measurement> {
        let of = |&count: &u32| Measurement {
            configuration: self.configuration(count),
            step_s: f64::from(count) / self.measured(count),
            exchange_s: None,
        };
        workers.iter().map(of).collect()
    }

    /// Relative errors of `predict` at these numbers of workers.
    pub(crate) fn errors(
        &self,
        workers: impl Iterator<Item = u32>,
        mut predict: impl FnMut(u32) -> Result<f64, InputError>,
    ) -> Result<Vec<f64>, InputError> {
        workers.map(|count| Ok(predict(count)? / self.measured(count) - 1.0)).collect()
    }

    /// Errors with 2 to 7 workers of the queueing model that was fitted to 1 and 8.
    pub(crate) fn errors_between(&self, squared_variation: f64) -> Result<Vec<f64>, InputError> {
        let prior = Prior { squared_variation, ..Prior::default() };
        let fitted = asynchronous::fit(&self.measurements(&[1, 8]), &prior)?;
        self.errors(2..=7, |count| {
            Ok(asynchronous::predict(&fitted, &self.configuration(count))?.examples_per_s)
        })
    }

    /// Errors with 2 to 7 workers of the asymptotes through 1 and 8: a line, then a plateau.
    pub(crate) fn errors_of_asymptotes(&self) -> Vec<f64> {
        let plateau = self.measured(8);
        let predict = |count| Ok((f64::from(count) * self.measured(1)).min(plateau));
        self.errors(2..=7, predict).expect("the asymptotes refuse nothing")
    }

    /// Errors with 2 to 7 workers of a power law through 1 and 8.
    pub(crate) fn errors_of_power_law(&self) -> Vec<f64> {
        let exponent = (self.measured(8) / self.measured(1)).ln() / 8f64.ln();
        let predict = |count| Ok(self.measured(1) * f64::from(count).powf(exponent));
        self.errors(2..=7, predict).expect("a power law refuses nothing")
    }
}

/// Mean of the absolute values.
pub(crate) fn mean_absolute(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

/// Intervals at 4 to 8 workers from 1 to 3, of one method.
pub(crate) type Intervals = Vec<(f64, f64)>;

/// Intervals of the queueing model that was fitted to 1, 2 and 3 workers.
pub(crate) fn queueing_intervals(series: &Series, prior: &Prior) -> Result<Intervals, InputError> {
    let fitted = asynchronous::fit(&series.measurements(&[1, 2, 3]), prior)?;
    let interval = |count| {
        let prediction = asynchronous::predict(&fitted, &series.configuration(count))?;
        Ok((prediction.low, prediction.high))
    };
    (4..=8).map(interval).collect()
}

/// Intervals of linear scaling: the mean of throughput per worker, with its residuals' prediction interval
/// (of logarithms); with `noise`, as if that prior were known to it too.
pub(crate) fn linear_intervals(series: &Series, noise: Option<Noise>) -> Intervals {
    let logs: Vec<f64> = (1..=3).map(|w| (series.measured(w) / f64::from(w)).ln()).collect();
    let mean = logs.iter().sum::<f64>() / 3.0;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let (variance, point) = match noise {
        None => (squares / 2.0, STUDENT_2),
        // The weight of the default prior, 3, and 2 of the residuals.
        Some(noise) => ((3.0 * noise.relative_deviation.powi(2) + squares) / 5.0, STUDENT_5),
    };
    let spread = point * (variance * (1.0 + 1.0 / 3.0)).sqrt();
    let interval = |count: u32| {
        let centre = f64::from(count) * mean.exp();
        (centre * (-spread).exp(), centre * spread.exp())
    };
    (4..=8).map(interval).collect()
}

/// Scores intervals in units of the series' measured throughput of one worker, so that all series count alike.
pub(crate) fn score(series: &Series, intervals: &Intervals, into: &mut IntervalScore) {
    for ((low, high), count) in intervals.iter().zip(4..) {
        let unit = series.measured(1);
        into.add(low / unit, high / unit, series.measured(count) / unit);
    }
}
