//! The number of workers of a job on one machine, where there is no catalogue to choose from.

use std::fmt;

use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_core::prediction::{Configuration, JobDescription, Prediction, StepModel};
use bellwether_core::units::DollarsPerHour;
use bellwether_core::words::count;
use serde::Serialize;

use super::format::figure;

/// Of the numbers that are so near to the fastest the fewest workers are taken: more would hardly be noticed.
pub const NEARLY_FASTEST: f64 = 0.05;

/// The chosen number of workers, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Local {
    /// The range that was asked for.
    #[serde(skip)]
    pub asked: WorkerRange,
    /// Workers to begin with.
    pub workers: u32,
    /// What they are expected to do.
    pub prediction: Prediction,
    /// The fewest workers that are fastest of all.
    pub fastest_workers: u32,
    /// Samples per second of the fastest.
    pub fastest_examples_per_s: f64,
    /// What the chosen workers cost in dollars per hour, if a worker has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars_per_hour: Option<f64>,
}

/// Chooses how many of `workers` a job should have: of those whose expected throughput is within [`NEARLY_FASTEST`] of
/// the best the fewest. A `price` of a worker does not move the choice, as without a deadline or a budget the worth of
/// time is unknown; it is reported. `configuration` says where this many workers run; numbers of which the model cannot
/// speak are left out, and so is what lies [`WORKERS_MAX`](super::WORKERS_MAX) or more above the fewest.
///
/// # Errors
///
/// Returns why the fewest workers cannot be predicted if no number of workers can.
///
/// ```
/// # use bellwether_core::job::WorkerRange;
/// # use bellwether_core::prediction::{Bottleneck, Configuration, DeviceGroup, JobDescription, Link, Prediction};
/// # use bellwether_core::prediction::{PredictError, StepModel, Validity};
/// # use bellwether_sched::plan::local;
/// # struct Saturating;
/// # impl StepModel for Saturating {
/// #     fn predict(&self, _: &JobDescription, c: &Configuration) -> Result<Prediction, PredictError> {
/// #         let rate = 100.0 * f64::from(c.workers().min(3)) + 1.0 * f64::from(c.workers());
/// #         Ok(Prediction { examples_per_s: rate, low: rate, high: rate, step_s: 64.0 / rate,
/// #             bottleneck: Bottleneck::Compute, validity: Validity::Interpolated })
/// #     }
/// # }
/// # let job = JobDescription { name: "job".into(), model: "m".into(), batch: 64, devices: 1 };
/// # let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };
/// # let on = |count| Configuration::synchronous(vec![DeviceGroup { node: 0, device: "cpu".into(), count }], 64, link);
/// // A device that is full with three workers, and gains 1 % with each further one.
/// let chosen = local(&Saturating, &job, on, WorkerRange { min: 1, max: 6 }, None)?;
/// assert_eq!((chosen.workers, chosen.fastest_workers), (3, 6));
/// assert_eq!(
///     chosen.to_string(),
///     "3 workers of 1..6: 303.0 examples/s are expected; 6 workers would be no more than 1 % faster"
/// );
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
pub fn local(
    model: &dyn StepModel,
    job: &JobDescription,
    configuration: impl Fn(u32) -> Configuration,
    workers: WorkerRange,
    price: Option<DollarsPerHour>,
) -> Result<Local, InputError> {
    let mut known: Vec<(u32, Prediction)> = Vec::new();
    let mut refused = None;
    for count in (workers.min..=workers.max).take(super::WORKERS_MAX as usize) {
        match model.predict(job, &configuration(count)) {
            Ok(prediction) => known.push((count, prediction)),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    let fastest = known.iter().map(|(_, prediction)| prediction.examples_per_s).fold(0.0, f64::max);
    let first = |least: f64| known.iter().find(|(_, prediction)| prediction.examples_per_s >= least);
    let (Some((fastest_workers, _)), Some((chosen, prediction))) =
        (first(fastest), first(fastest * (1.0 - NEARLY_FASTEST)))
    else {
        let what = format!("no number of workers in {workers} can be predicted");
        return Err(
            InputError::new("workers", what).hint(refused.map_or_else(String::new, |why| why.to_string()))
        );
    };
    Ok(Local {
        asked: workers,
        workers: *chosen,
        prediction: prediction.clone(),
        fastest_workers: *fastest_workers,
        fastest_examples_per_s: fastest,
        dollars_per_hour: price.map(|price| price.get() * f64::from(*chosen)),
    })
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Local { asked, workers, fastest_workers, .. } = self;
        let rate = self.prediction.examples_per_s;
        let chosen = count(*workers as usize, "worker");
        write!(f, "{chosen} of {asked}: {} examples/s are expected", figure(rate))?;
        if let Some(dollars) = self.dollars_per_hour {
            write!(f, " for {}", DollarsPerHour::new(dollars))?;
        }
        if fastest_workers == workers {
            return write!(f, ", and no other number is faster");
        }
        let gain = (self.fastest_examples_per_s / rate - 1.0) * 100.0;
        write!(f, "; {fastest_workers} workers would be no more than {gain:.0} % faster")
    }
}
