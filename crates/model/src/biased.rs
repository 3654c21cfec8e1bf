//! A model with a known error: what a scheduler believes where it does not know the truth.
//!
//! # Model
//!
//! ```text
//! throughput' = throughput exp(e z)
//! ```
//!
//! | symbol | meaning                                                                            | unit |
//! |--------|------------------------------------------------------------------------------------|------|
//! | e      | standard deviation of the logarithm: about the relative error                      | 1    |
//! | z      | standard normal number of a model that is trained, on a number of devices, by seed | 1    |
//!
//! The same kind of job on as many devices is always wrong by the same factor, for every caller; half of the factors
//! are above 1. Step and interval follow the throughput; efficiency stays.
//!
//! # Source
//!
//! This project's own, for experiments on how a policy bears wrong predictions.
//!
//! # Assumes
//!
//! Errors of different counts have nothing to do with each other, which is harsher than what a fitted model does: a
//! believed speed may fall with another device.
//!
//! # Valid
//!
//! For experiments only.
//!
//! # Checked by
//!
//! `tests/it/named.rs`: the spread of the factors, the laws of [`StepModel`].

use bellwether_core::InputError;
use bellwether_core::prediction::{
    Configuration, JobDescription, PredictError, Prediction, Progress, StepModel,
};
use bellwether_des::Streams;

/// Largest error: beyond it throughput is arbitrary.
const MOST: f64 = 3.0;

/// A model whose throughput is wrong by a factor for each kind of job and number of devices.
#[derive(Debug, Clone)]
pub struct Biased<M: ?Sized> {
    error: f64,
    streams: Streams,
    model: Box<M>,
}

impl<M: ?Sized> Biased<M> {
    /// `model` with factors drawn from `seed`; `error` is the standard deviation of their logarithms.
    ///
    /// # Errors
    ///
    /// Returns an error for an error outside of 0 to 3.
    pub fn new(model: Box<M>, error: f64, seed: u64) -> Result<Biased<M>, InputError> {
        if !(0.0..=MOST).contains(&error) {
            return Err(InputError::new("noisy model", format!("the relative error is {error}"))
                .hint(format!("it must be from 0 to {MOST}, for example 0.2")));
        }
        Ok(Biased { error, streams: Streams::new(seed), model })
    }

    /// The factor by which the throughput of a kind of job on `devices` devices is wrong.
    pub fn factor(&self, kind: &str, devices: u32) -> f64 {
        self.streams.stream(kind, devices.into()).normal(0.0, self.error).exp()
    }
}

impl<M: StepModel + ?Sized> Biased<M> {
    fn wrong(
        &self,
        right: Prediction,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let factor = self.factor(&job.model, configuration.workers());
        let wrong = Prediction {
            examples_per_s: right.examples_per_s * factor,
            low: right.low * factor,
            high: right.high * factor,
            step_s: right.step_s / factor,
            ..right
        };
        let fits = |value: f64| value.is_finite() && value > 0.0;
        if [wrong.low, wrong.high, wrong.step_s].into_iter().all(fits) {
            Ok(wrong)
        } else {
            Err(PredictError::OutOfRange(format!("{} samples/s are out of range", wrong.examples_per_s)))
        }
    }
}

impl<M: StepModel + ?Sized> StepModel for Biased<M> {
    fn is_relative(&self) -> bool {
        self.model.is_relative()
    }

    fn is_by_count(&self) -> bool {
        self.model.is_by_count()
    }

    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.wrong(self.model.predict(job, configuration)?, job, configuration)
    }

    /// A part of the links slows a job down as it truly does: all parts are wrong by the same factor.
    fn predict_on_part(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        part: f64,
    ) -> Result<Prediction, PredictError> {
        self.wrong(self.model.predict_on_part(job, configuration, part)?, job, configuration)
    }

    /// What a job keeps beside another is right: it is a part of a speed that is wrong already.
    fn shared(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        beside: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        self.model.shared(job, configuration, beside)
    }

    fn efficiency(&self, job: &JobDescription, batch: u64, progress: f64) -> f64 {
        self.model.efficiency(job, batch, progress)
    }

    fn efficiency_changes_at(&self, job: &JobDescription, progress: f64) -> Option<f64> {
        self.model.efficiency_changes_at(job, progress)
    }

    /// All batches on as many devices are wrong by the same factor, so the best one stays.
    fn best_batch(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        progress: f64,
    ) -> Result<Progress, PredictError> {
        let right = self.model.best_batch(job, configuration, progress)?;
        let factor = self.factor(&job.model, configuration.workers());
        Ok(Progress { examples_per_s: right.examples_per_s * factor, ..right })
    }
}
