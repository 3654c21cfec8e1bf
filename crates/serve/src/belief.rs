//! What policies believe of the speed of jobs: what was observed, on the daemon's clock.

use std::sync::{Arc, PoisonError, RwLock};

use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};
use bellwether_model::observed::Observed;

/// A step model that learns while a policy holds it. Between two moments nothing is learnt.
#[derive(Debug, Clone)]
pub struct Belief {
    observed: Arc<RwLock<Observed>>,
    time_scale: f64,
}

impl Belief {
    /// Nothing is known yet; a real second is `time_scale` seconds of the daemon's clock.
    pub fn new(observed: Observed, time_scale: f64) -> Belief {
        Belief { observed: Arc::new(RwLock::new(observed)), time_scale }
    }

    /// Learns.
    pub fn learn<T>(&self, how: impl FnOnce(&mut Observed) -> T) -> T {
        // What a thread that panicked left is whole: every change is one call.
        how(&mut self.observed.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is predicted in real time.
    ///
    /// # Errors
    ///
    /// Same errors as [`StepModel::predict`].
    pub fn in_real_time(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.observed.read().unwrap_or_else(PoisonError::into_inner).predict(job, configuration)
    }

    /// Whether what is predicted of a kind is more than a guess.
    pub fn knows(&self, kind: &str) -> bool {
        self.observed.read().unwrap_or_else(PoisonError::into_inner).knows(kind)
    }

    /// What is predicted in real time, if it is more than a guess.
    pub fn well_founded(&self, job: &JobDescription, configuration: &Configuration) -> Option<Prediction> {
        self.in_real_time(job, configuration).ok().filter(|_| self.knows(&job.model))
    }

    /// What is believed now, and stays so whatever is learnt.
    #[must_use]
    pub fn as_of_now(&self) -> Belief {
        Belief::new(self.observed(), self.time_scale)
    }

    /// What is known now, for a simulation.
    pub fn observed(&self) -> Observed {
        self.observed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StepModel for Belief {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let mut prediction = self.in_real_time(job, configuration)?;
        prediction.examples_per_s /= self.time_scale;
        prediction.low /= self.time_scale;
        prediction.high /= self.time_scale;
        prediction.step_s *= self.time_scale;
        Ok(prediction)
    }
}
