//! Public measurements of a step by its batch, cut into those that a law is fitted to and those that it predicts.

use bellwether_model::batch_times::BatchTimes;
use bellwether_model::throughput_table::GavelTable;

use super::{ELASTICFLOW, POLLUX, data, elasticflow, placements};

/// Devices of a node in ElasticFlow's tables; only whose exchange is which depends on it.
const NODE: u32 = 8;

/// What repeated measurements of a step are taken to differ by, relative: the tables do not say.
const NOISE: f64 = 0.02;

/// Measured (samples, seconds) of one job on one number of devices, by ascending samples.
pub struct Series {
    /// Where it is from: `pollux`, `elasticflow` or `gavel`.
    pub source: &'static str,
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// All series with at least three batches.
pub fn series() -> Vec<Series> {
    let mut all = Vec::new();
    for job in POLLUX {
        let lone = placements(job.placements).into_iter().filter(|placed| placed.placement == [1]);
        let points = lone.map(|placed| (placed.row.local_batch, placed.row.step_s)).collect();
        all.push(Series { source: "pollux", name: job.name.into(), points });
    }
    for (device, model, table) in ELASTICFLOW {
        let rows = elasticflow(table, NODE);
        let mut counts: Vec<u32> = rows.iter().map(|(_, row)| row.replicas).collect();
        counts.sort_unstable();
        counts.dedup();
        for count in counts {
            let same = rows.iter().filter(|(_, row)| row.replicas == count);
            let points = same.map(|(batch, row)| (*batch as f64, row.step_s)).collect();
            all.push(Series {
                source: "elasticflow",
                name: format!("{device} {model}, {count} GPUs"),
                points,
            });
        }
    }
    let gavel =
        GavelTable::parse(data!("gavel/simulation_throughputs.json").as_bytes(), "gavel").expect("a table");
    for device in gavel.device_types() {
        let mut jobs: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for kind in gavel.kinds(device) {
            let Some((name, batch)) = kind.strip_suffix(')').and_then(|k| k.split_once(" (batch size "))
            else {
                continue;
            };
            let seconds = 1.0 / gavel.steps_per_s(device, kind, 1, false).expect("the kind runs there");
            let place = jobs.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
                jobs.push((name.into(), Vec::new()));
                jobs.len() - 1
            });
            jobs[place].1.push((super::number(batch), seconds));
        }
        let named = |(name, points)| Series { source: "gavel", name: format!("{device} {name}"), points };
        all.extend(jobs.into_iter().map(named));
    }
    for series in &mut all {
        series.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    all.retain(|series| series.points.len() >= 3);
    all
}

/// Relative errors of the throughput of what was not fitted.
#[derive(Default)]
pub struct Errors {
    /// By the law.
    pub law: Vec<f64>,
    /// By the straight line through the smallest and the largest batch.
    pub line: Vec<f64>,
    /// In proportion to the middle fitted batch, or the larger of two.
    pub proportional: Vec<f64>,
    /// Whether the law's own error, with some noise, holds the truth.
    pub inside: Vec<bool>,
}

impl Errors {
    pub fn add(&mut self, other: Errors) {
        self.law.extend(other.law);
        self.line.extend(other.line);
        self.proportional.extend(other.proportional);
        self.inside.extend(other.inside);
    }
}

/// Fits to the smallest, the largest and, of four batches or more, the one nearest to the middle of both (by its
/// logarithm), and predicts all others.
pub fn held_out(series: &Series) -> Errors {
    let points = &series.points;
    let last = points.len() - 1;
    let middle = (points[0].0 * points[last].0).sqrt();
    let far = |place: &usize| (points[*place].0 / middle).ln().abs();
    let nearest = (1..last).min_by(|one, other| far(one).total_cmp(&far(other))).filter(|_| last >= 3);
    let fitted: Vec<(f64, f64)> =
        (0..=last).filter(|i| [0, last].contains(i) || Some(*i) == nearest).map(|i| points[i]).collect();
    let law = BatchTimes::new(&fitted).expect("a table's numbers are sound");
    let ends = BatchTimes::new(&[points[0], points[last]]).expect("a table's numbers are sound");
    let (known, known_s) = fitted[fitted.len() / 2];
    let mut errors = Errors::default();
    for &(samples, seconds) in points.iter().filter(|point| !fitted.contains(point)) {
        let estimate = law.at(samples);
        let error = |predicted_s: f64| seconds / predicted_s - 1.0;
        errors.law.push(error(estimate.seconds));
        errors.line.push(error(ends.at(samples).seconds));
        errors.proportional.push(error(known_s * samples / known));
        errors.inside.push(error(estimate.seconds).abs() <= estimate.error.hypot(NOISE));
    }
    errors
}
