//! Jobs of measured applications as step models: believed and true.

use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, PredictError, Prediction, Progress, StepModel, Validity,
};

use super::{Application, Applications};
use crate::common::answer::own_devices;
use crate::elastic::goodput::best;
use crate::elastic::{Goodput, Optimum};

/// Half the width of a 95 % interval, in standard deviations.
const SPREAD: f64 = 1.96;

/// What a scheduler may believe of measured applications: fitted throughput, noise scale of the initial batch. The
/// application of a job is [`JobDescription::model`].
#[derive(Debug, Clone, PartialEq)]
pub struct FittedJobs(pub Applications);

/// What measured applications do: measured steps, noise scale of the batch itself. The application of a job is
/// [`JobDescription::model`].
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredJobs(pub Applications);

/// How a configuration shares out a step.
struct Shares {
    replicas: u32,
    /// Samples of one micro-batch of one replica.
    local_batch: f64,
    /// Micro-batches of one replica.
    accumulation: f64,
}

impl Application {
    fn shares(&self, configuration: &Configuration) -> Result<Shares, PredictError> {
        let replicas = own_devices(configuration)?;
        let share = configuration.batch as f64 / f64::from(replicas);
        if share < 1.0 {
            let why = format!("{replicas} devices cannot share a batch of {} samples", configuration.batch);
            return Err(PredictError::DoesNotFit(why));
        }
        let fewest = (share / self.limits.local.1 as f64).ceil();
        // No micro-batch is smaller than a sample.
        let accumulation = f64::from(configuration.accumulation).max(fewest).min(share.floor());
        Ok(Shares { replicas, local_batch: share / accumulation, accumulation })
    }

    /// The epoch of a job, and its end where another follows.
    fn under_way(&self, job: &JobDescription, progress: f64) -> (usize, Option<f64>) {
        let epoch = self.epoch(job.batch, progress);
        let another = epoch + 1 < self.ends.len();
        let end = || {
            if job.batch == self.limits.initial {
                self.ends.get(epoch).copied()
            } else {
                self.ends_at(job.batch).nth(epoch)
            }
        };
        (epoch, if another { end() } else { None })
    }

    /// The answer of `best_batch`: what is best, with the efficiency relative to that at the job's own batch.
    fn progress(
        &self,
        replicas: u32,
        best: Option<Optimum>,
        own_efficiency: f64,
    ) -> Result<Progress, PredictError> {
        let best = best.ok_or_else(|| {
            let largest = self.limits.largest;
            let why = format!("{replicas} devices cannot share the largest batch of {largest} samples");
            PredictError::DoesNotFit(why)
        })?;
        Ok(Progress {
            batch: u64::from(replicas) * best.local_batch * u64::from(best.accumulation_steps + 1),
            accumulation: best.accumulation_steps + 1,
            examples_per_s: best.examples_per_s,
            efficiency: best.efficiency / own_efficiency,
        })
    }
}

/// Relative efficiencies of jobs whose application is unknown are 1: [`StepModel::predict`] has refused them.
const UNKNOWN: f64 = 1.0;

impl StepModel for FittedJobs {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.predict_on_part(job, configuration, 1.0)
    }

    /// Over several nodes all of the fitted exchange waits for the links.
    fn predict_on_part(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        part: f64,
    ) -> Result<Prediction, PredictError> {
        let application = self.0.get(&job.model)?;
        let Shares { replicas, local_batch, accumulation } = application.shares(configuration)?;
        let fitted = &application.fitted;
        let nodes = configuration.nodes();
        let throughput = fitted.throughput.on_part(part);
        let step_s = throughput.step_s(nodes, replicas, local_batch, accumulation as u32 - 1);
        let exchange_s = throughput.exchange_s(nodes, replicas);
        let bound_by_link = exchange_s > throughput.gradient_s(local_batch) * accumulation;
        let validity = if replicas > fitted.most_replicas {
            Validity::Extrapolated(format!("at most {} devices were measured", fitted.most_replicas))
        } else {
            of_batch(local_batch >= application.limits.local.0 as f64)
        };
        prediction(configuration, step_s, fitted.error, bound_by_link, validity)
    }

    fn efficiency(&self, job: &JobDescription, batch: u64, progress: f64) -> f64 {
        let Ok(application) = self.0.get(&job.model) else { return UNKNOWN };
        let noise = application.noise(application.limits.initial, application.epoch(job.batch, progress));
        application.efficiency(batch, noise) / application.efficiency(job.batch, noise)
    }

    fn efficiency_changes_at(&self, job: &JobDescription, progress: f64) -> Option<f64> {
        self.0.get(&job.model).ok()?.under_way(job, progress).1
    }

    fn best_batch(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        progress: f64,
    ) -> Result<Progress, PredictError> {
        let application = self.0.get(&job.model)?;
        let replicas = own_devices(configuration)?;
        let noise = application.noise(application.limits.initial, application.epoch(job.batch, progress));
        let goodput = Goodput::new(application.fitted.throughput, noise, application.limits)?;
        let best = goodput.optimum(configuration.nodes(), replicas);
        application.progress(replicas, best, application.efficiency(job.batch, noise))
    }
}

impl StepModel for MeasuredJobs {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.predict_on_part(job, configuration, 1.0)
    }

    /// Over several nodes all of the measured exchange waits for the links.
    fn predict_on_part(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        part: f64,
    ) -> Result<Prediction, PredictError> {
        let application = self.0.get(&job.model)?;
        let Shares { local_batch, accumulation, .. } = application.shares(configuration)?;
        let step = application.steps.around(&placement(configuration))?.at(local_batch);
        let gradients_s = accumulation * (step.step_s - step.exchange_s);
        let exchange_s = if configuration.nodes() > 1 { step.exchange_s / part } else { step.exchange_s };
        let validity = of_batch(step.measured);
        prediction(configuration, gradients_s + exchange_s, 0.0, exchange_s > gradients_s, validity)
    }

    fn efficiency(&self, job: &JobDescription, batch: u64, progress: f64) -> f64 {
        let Ok(application) = self.0.get(&job.model) else { return UNKNOWN };
        let epoch = application.epoch(job.batch, progress);
        let at = |batch| application.efficiency(batch, application.noise(batch, epoch));
        at(batch) / at(job.batch)
    }

    fn efficiency_changes_at(&self, job: &JobDescription, progress: f64) -> Option<f64> {
        self.0.get(&job.model).ok()?.under_way(job, progress).1
    }

    fn best_batch(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        progress: f64,
    ) -> Result<Progress, PredictError> {
        let application = self.0.get(&job.model)?;
        let replicas = own_devices(configuration)?;
        let epoch = application.epoch(job.batch, progress);
        let at = |batch| application.efficiency(batch, application.noise(batch, epoch));
        let around = application.steps.around(&placement(configuration))?;
        let measured = |(local_batch, accumulation_steps): (u64, u32)| {
            let step = around.at(local_batch as f64);
            let step_s = step.step_s + f64::from(accumulation_steps) * (step.step_s - step.exchange_s);
            let batch = u64::from(replicas) * local_batch * u64::from(accumulation_steps + 1);
            let (examples_per_s, efficiency) = (batch as f64 / step_s, at(batch));
            let goodput = examples_per_s * efficiency;
            Optimum { local_batch, accumulation_steps, examples_per_s, efficiency, goodput }
        };
        let best = best(application.limits.candidates(replicas).map(measured));
        application.progress(replicas, best, at(job.batch))
    }
}

/// Replicas of each node, in the order of the nodes' first groups.
fn placement(configuration: &Configuration) -> Vec<u32> {
    let mut nodes: Vec<(u32, u32)> = Vec::with_capacity(configuration.devices.len());
    for group in configuration.devices.iter().filter(|group| group.count > 0) {
        match nodes.iter_mut().find(|(node, _)| *node == group.node) {
            Some((_, count)) => *count = count.saturating_add(group.count),
            None => nodes.push((group.node, group.count)),
        }
    }
    nodes.into_iter().map(|(_, count)| count).collect()
}

fn of_batch(measured: bool) -> Validity {
    if measured {
        Validity::Interpolated
    } else {
        Validity::Extrapolated("no micro-batch of this size was measured".into())
    }
}

/// A prediction from a step and its logarithmic standard error.
fn prediction(
    configuration: &Configuration,
    step_s: f64,
    error: f64,
    bound_by_link: bool,
    validity: Validity,
) -> Result<Prediction, PredictError> {
    let examples_per_s = configuration.batch as f64 / step_s;
    let factor = (SPREAD * error).exp();
    let (low, high) = (examples_per_s / factor, examples_per_s * factor);
    if !(low > 0.0 && high.is_finite() && step_s > 0.0 && step_s.is_finite()) {
        let why = format!("no step has {} samples and takes {step_s} s", configuration.batch);
        return Err(PredictError::OutOfRange(why));
    }
    let bottleneck = if bound_by_link { Bottleneck::Link } else { Bottleneck::Compute };
    Ok(Prediction { examples_per_s, low, high, step_s, bottleneck, validity })
}
