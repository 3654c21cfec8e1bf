//! Jobs whose batch may change, as measured tables describe them: how fast, how efficient, how much work.
//!
//! # Work and efficiency
//!
//! ```text
//! phi(M, e)  = M0 var / sqr               of epoch e with batch M, straight between the logarithms of two batches
//! E(M, e)    = (phi + M0) / (phi + M)     progress per sample, relative to that at M0
//! efficiency = E(M, e) / E(B, e)          B the batch of the job's author
//! end(e)     = sum over the epochs to e of (their progress at M0 in samples) / E(B, e)
//! ```
//!
//! Progress is counted in samples at the batch B; when it reaches `end` of the last epoch the job is done.
//!
//! # Steps
//!
//! [`FittedJobs`] is what a scheduler may believe: the throughput model of [`elastic`](crate::elastic), fitted to all
//! rows of the tables, and the noise scale phi of the initial batch, the only one that can be known before another
//! was tried. [`MeasuredJobs`] is what happens: measured steps and the noise scale of the batch itself.
//!
//! A measured step is that of its placement (replicas of each node, as a ring) between the neighbouring local
//! batches. A placement that was not measured, over more nodes, goes as an even one of as many nodes and replicas per
//! node: straight between the neighbouring numbers of replicas per node, then of nodes. With accumulation a step takes
//! `step + (micro-batches - 1) (step - exchange)`: micro-batches that nothing is exchanged after take their gradient.
//!
//! In both a share of the batch that is larger than the largest micro-batch is split into as many as it needs, and
//! every device is of the one type that was measured. The largest micro-batch is the largest that one replica was
//! measured with, or a lower cap ([`Applications::cap_local_batches`]).

mod predict;
mod read;
mod steps;

use bellwether_core::prediction::PredictError;
use std::collections::BTreeMap;

use bellwether_core::InputError;

use self::steps::Steps;
use super::{BatchLimits, Throughput, efficiency};
use crate::common::answer::not_known;

pub use predict::{FittedJobs, MeasuredJobs};

/// The files of one application.
#[derive(Debug, Clone)]
pub struct Sources<'a> {
    /// `placements.csv`: `placement,local_bsz,step_time,sync_time`.
    pub placements: &'a str,
    /// `scalability.csv`: `num_nodes,num_replicas,local_bsz,step_time,sync_time`; empty for none.
    pub scalability: &'a str,
    /// `validation-B.csv` by batch B: `progress,iteration,metric,grad_sqr,grad_var`, one row per epoch.
    pub validation: &'a [(u64, &'a str)],
}

/// Applications by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applications {
    by_name: BTreeMap<String, Application>,
}

/// What the tables say of one application.
#[derive(Debug, Clone, PartialEq)]
struct Application {
    limits: BatchLimits,
    fitted: Fitted,
    steps: Steps,
    /// Progress at the end of each epoch, in samples at the initial batch.
    ends: Vec<f64>,
    /// Noise scales in samples by epoch, by ascending batch; at least one.
    curves: Vec<Curve>,
}

/// A throughput model with what it was fitted to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fitted {
    throughput: Throughput,
    /// Root mean square of the logarithmic errors of its steps.
    error: f64,
    most_replicas: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Curve {
    ln_batch: f64,
    /// As many as epochs.
    noise: Vec<f64>,
}

impl Applications {
    /// Reads the tables of an application and fits its throughput; `place` names their folder in errors. An
    /// application that was there before is replaced.
    ///
    /// # Errors
    ///
    /// Returns the file and line, and what is wrong with it.
    pub fn add(&mut self, name: &str, sources: &Sources, place: &str) -> Result<(), InputError> {
        self.by_name.insert(name.to_string(), read::application(sources, place)?);
        Ok(())
    }

    /// Caps the local batches of applications that were added: rows of `application,max_local_bsz`, samples of one
    /// micro-batch of one replica, as Pollux's own simulator has them. A larger share is split into micro-batches. A
    /// cap above the largest local batch that was measured changes nothing; `place` names the file in errors.
    ///
    /// # Errors
    ///
    /// Returns the line, and what is wrong with it: an unknown application, one that is named twice, or a cap below the
    /// smallest local batch that was measured. Then nothing is capped.
    pub fn cap_local_batches(&mut self, csv: &str, place: &str) -> Result<(), InputError> {
        for (name, most) in read::caps(csv, place, &self.by_name)? {
            if let Some(application) = self.by_name.get_mut(&name) {
                let largest = &mut application.limits.local.1;
                *largest = most.min(*largest);
            }
        }
        Ok(())
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All the work of an application for a job whose author chose `batch`, in samples at that batch.
    pub fn work(&self, application: &str, batch: u64) -> Option<f64> {
        self.by_name.get(application)?.ends_at(batch).last()
    }

    /// Between what the batch of an application may lie.
    pub fn limits(&self, application: &str) -> Option<BatchLimits> {
        self.by_name.get(application).map(|application| application.limits)
    }

    /// Gradient noise scale in samples, with this batch and after `progress` samples at the initial batch.
    pub fn noise_scale(&self, application: &str, batch: u64, progress: f64) -> Option<f64> {
        let application = self.by_name.get(application)?;
        Some(application.noise(batch, application.epoch(application.limits.initial, progress)))
    }

    /// The fitted throughput of an application.
    pub fn throughput(&self, application: &str) -> Option<Throughput> {
        self.by_name.get(application).map(|application| application.fitted.throughput)
    }

    fn get(&self, name: &str) -> Result<&Application, PredictError> {
        self.by_name.get(name).ok_or_else(|| not_known(name, "application of these tables", self.names()))
    }
}

impl Application {
    /// The epoch that is under way after `progress` samples at `batch`, from 0; the last one when all are over.
    fn epoch(&self, batch: u64, progress: f64) -> usize {
        let over = if batch == self.limits.initial {
            self.ends.partition_point(|end| *end <= progress)
        } else {
            self.ends_at(batch).take_while(|end| *end <= progress).count()
        };
        over.min(self.ends.len() - 1)
    }

    /// Progress at the ends of the epochs, in samples at `batch`.
    fn ends_at(&self, batch: u64) -> impl Iterator<Item = f64> {
        self.ends.iter().enumerate().scan((0.0, 0.0), move |(begin, total), (epoch, end)| {
            *total += (end - *begin) / self.efficiency(batch, self.noise(batch, epoch));
            *begin = *end;
            Some(*total)
        })
    }

    /// Progress per sample, relative to that at the initial batch.
    fn efficiency(&self, batch: u64, noise: f64) -> f64 {
        efficiency(noise, self.limits.initial as f64, batch as f64)
    }

    /// Noise scale of an epoch with `batch`: on the straight line between the logarithms of two batches.
    fn noise(&self, batch: u64, epoch: usize) -> f64 {
        if batch <= self.limits.initial {
            return self.curves[0].noise[epoch];
        }
        let ln_batch = (batch as f64).ln();
        let above = self.curves.partition_point(|curve| curve.ln_batch < ln_batch);
        match (self.curves[..above].last(), self.curves.get(above)) {
            (Some(low), Some(high)) => {
                let part = (ln_batch - low.ln_batch) / (high.ln_batch - low.ln_batch);
                low.noise[epoch] + part * (high.noise[epoch] - low.noise[epoch])
            }
            (Some(only), None) | (None, Some(only)) => only.noise[epoch],
            // There is at least one curve.
            (None, None) => 0.0,
        }
    }
}
