//! How many workers one job that runs should have, decided from what its steps took so far.
//!
//! A heuristic is a plain function of a [`Situation`]: it keeps nothing, so all state is the [`History`], and a
//! decision can be made again from what was written down. [`decide`] is what a runtime calls at a step boundary when no
//! resize is under way; [`named`] finds a heuristic as a user writes it: `efficiency:0.1`.
//!
//! - [`efficiency`]: grow while a further worker still does a given part of its work;
//! - [`cost_benefit`]: grow while finishing earlier is worth more than the workers cost;
//! - [`linear_increase`]: one step up at a time, until one does not pay;
//! - [`curve_fitting`]: follow a curve through the measured sizes;
//! - [`fitted`]: weigh every size by a model of the step that knows how little it knows.
//!
//! Source of the first four: Or, Zhang and Freedman, Resource Elasticity in Distributed Deep Learning, MLSys 2020.
//! Unlike theirs the times are of samples left, not of batches, and measurements age.

mod belief;
pub mod cost_benefit;
pub mod curve_fitting;
pub mod efficiency;
pub mod fitted;
pub mod history;
pub mod linear_increase;
mod reason;
mod search;
pub mod utility;

use bellwether_core::{InputError, ParseError};
use serde::{Deserialize, Serialize};

pub use history::{History, Measured};
pub use reason::{Decision, Reason};
pub use utility::{Economy, Utility};

use crate::options::{Options, usage};

/// Steps at one size before anything is decided.
pub const LEAST_STEPS: u64 = 10;

/// Sizes that a job may have: `least`, then steps of `increment` up to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Fewest workers; at least 1.
    pub least: u32,
    /// Most workers; at least `least`.
    pub most: u32,
    /// Workers that a heuristic adds at a time; at least 1.
    pub increment: u32,
}

/// The global batch by the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchRule {
    /// This many samples, whatever the workers.
    Fixed(u64),
    /// This many samples for each worker, up to a maximum.
    Rising {
        /// Samples of a worker.
        per_worker: u64,
        /// Samples of all.
        most: u64,
    },
}

/// What a resize costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResizeCost {
    /// Seconds that new workers take until they join: they are paid, and the others train on.
    pub boot_s: f64,
    /// Seconds in which no worker trains when workers join.
    pub grow_stall_s: f64,
    /// Seconds in which no worker trains when workers leave.
    pub shrink_stall_s: f64,
}

/// All that a heuristic may look at.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What was measured.
    pub history: &'a History,
    /// Workers now.
    pub workers: u32,
    /// Workers that there may be.
    pub bounds: Bounds,
    /// Seconds since the job began.
    pub elapsed_s: f64,
    /// Samples that it has yet to process.
    pub remaining_samples: f64,
    /// Its batch by size.
    pub batch: BatchRule,
    /// Equal parts that the batch is cut into, where it is: each is computed by one worker, and a step takes as long as
    /// the worker with the most of them.
    pub virtual_nodes: Option<u32>,
    /// What a resize costs.
    pub resize: ResizeCost,
    /// What time is worth and workers cost, where the user said so.
    pub economy: Option<&'a Economy>,
}

impl Situation<'_> {
    /// Samples of the worker that has the most, of `batch` among this many workers.
    fn share(&self, batch: u64, workers: u32) -> f64 {
        let batch = batch as f64;
        match self.virtual_nodes {
            Some(nodes) => batch * f64::from(nodes.div_ceil(workers)) / f64::from(nodes),
            None => batch / f64::from(workers),
        }
    }
}

/// A way to choose the number of workers.
pub trait Heuristic: std::fmt::Debug + Send {
    /// Decides in a situation whose present size was measured for [`LEAST_STEPS`] or more. Sizes outside the bounds may
    /// be answered: [`decide`] brings them inside.
    fn decide(&self, situation: &Situation) -> Decision;
}

impl Bounds {
    /// Bounds that make sense.
    ///
    /// # Errors
    ///
    /// Returns an error if `least` or `increment` is 0, or `most` is below `least`.
    pub fn new(least: u32, most: u32, increment: u32) -> Result<Bounds, InputError> {
        if least == 0 || most < least || increment == 0 {
            let what = format!("{least} to {most} workers in steps of {increment}");
            return Err(
                InputError::new("autoscale", what).hint("give 1 <= least <= most, and steps of 1 or more")
            );
        }
        Ok(Bounds { least, most, increment })
    }

    /// Every size: `least`, steps of the increment, and `most`.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = (self.least..=self.most).step_by(self.increment.max(1) as usize).collect();
        if sizes.last() != Some(&self.most) {
            sizes.push(self.most);
        }
        sizes
    }
}

impl BatchRule {
    /// Samples of a step of `workers` workers; at least 1.
    pub fn samples(&self, workers: u32) -> u64 {
        match *self {
            BatchRule::Fixed(samples) => samples.max(1),
            BatchRule::Rising { per_worker, most } => {
                per_worker.saturating_mul(u64::from(workers)).clamp(1, most.max(1))
            }
        }
    }
}

/// What to do now: inside the bounds at once, then nothing until the present size is measured, then as the heuristic
/// says.
pub fn decide(heuristic: &dyn Heuristic, situation: &Situation) -> Decision {
    let Situation { workers, bounds, history, .. } = *situation;
    let inside = workers.clamp(bounds.least, bounds.most);
    if inside != workers {
        return Decision::Resize(
            inside,
            Reason::OutOfBounds { workers, least: bounds.least, most: bounds.most },
        );
    }
    if history.steps_since_change(workers) < LEAST_STEPS {
        let steps = history.steps_since_change(workers);
        return Decision::Stay(Reason::Measuring { workers, steps, needed: LEAST_STEPS });
    }
    match heuristic.decide(situation) {
        Decision::Resize(target, reason) => {
            let target = target.clamp(bounds.least, bounds.most);
            if target == workers { Decision::Stay(reason) } else { Decision::Resize(target, reason) }
        }
        stay @ Decision::Stay(_) => stay,
    }
}

/// A heuristic of the catalogue.
pub struct Entry {
    /// What a user writes.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// Options: name, default and meaning.
    pub options: &'static [(&'static str, f64, &'static str)],
    /// What it makes of an [`Economy`].
    pub economy: Use,
    make: fn(&Options) -> Box<dyn Heuristic>,
}

/// What a heuristic makes of utility and price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It decides nothing without them.
    Needed,
    /// It weighs them where they are known.
    Weighed,
    /// It never looks at them.
    Ignored,
}

/// All heuristics.
pub const CATALOGUE: [Entry; 5] = [
    Entry {
        name: "efficiency",
        about: "grows while a further worker does more than a given part of its work",
        options: &[THRESHOLD],
        economy: Use::Ignored,
        make: |options| Box::new(efficiency::Efficiency { threshold: options.get("threshold") }),
    },
    Entry {
        name: "cost-benefit",
        about: "grows while finishing earlier is worth more than the workers cost",
        options: &[],
        economy: Use::Needed,
        make: |_| Box::new(cost_benefit::CostBenefit),
    },
    Entry {
        name: "linear",
        about: "one increment at a time, until one does not pay",
        options: &[THRESHOLD],
        economy: Use::Ignored,
        make: |options| Box::new(linear_increase::LinearIncrease { threshold: options.get("threshold") }),
    },
    Entry {
        name: "curve",
        about: "follows a curve through the measured sizes, at most doubling",
        options: &[THRESHOLD],
        economy: Use::Ignored,
        make: |options| Box::new(curve_fitting::CurveFitting { threshold: options.get("threshold") }),
    },
    Entry {
        name: "fitted",
        about: "weighs every size by a fitted model of the step, and tries one only when that is worth its cost",
        options: &[THRESHOLD],
        economy: Use::Weighed,
        make: |options| Box::new(fitted::Fitted { threshold: options.get("threshold") }),
    },
];

const THRESHOLD: (&str, f64, &str) =
    ("threshold", 0.1, "part of a worker's work below which it is not paid for, 0 to 1");

/// The heuristic that a user names, with its options after a colon.
///
/// ```
/// use bellwether_sched::autoscale::named;
/// assert!(named("efficiency:0.2").is_ok() && named("fitted").is_ok());
/// assert!(named("efficiency:2").is_err() && named("guess").is_err());
/// ```
///
/// # Errors
///
/// Returns an error for an unknown name or option, or a threshold outside 0 to 1.
pub fn named(text: &str) -> Result<Box<dyn Heuristic>, InputError> {
    let options = text.split_once(':').map_or("", |(_, options)| options);
    let entry = entry(text)?;
    let bad = |error: ParseError| error.at(format!("heuristic `{text}`")).hint(usage(entry.options));
    let options = Options::read(entry.options, options).map_err(bad)?;
    if !entry.options.is_empty() && !(0.0..=1.0).contains(&options.get("threshold")) {
        return Err(bad(options.out_of_range("threshold", "a number from 0 to 1")));
    }
    Ok((entry.make)(&options))
}

/// The entry of the heuristic that a user names, whatever stands after the colon.
///
/// # Errors
///
/// Returns an error for an unknown name.
pub fn entry(text: &str) -> Result<&'static Entry, InputError> {
    let name = text.split(':').next().unwrap_or(text);
    let names = CATALOGUE.iter().map(|entry| entry.name);
    let found = CATALOGUE.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| ParseError::one_of("heuristic", name, names).at(format!("heuristic `{text}`")))
}
