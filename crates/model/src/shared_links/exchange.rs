//! What a part of the links makes of a job's step.

use bellwether_core::prediction::{Configuration, JobDescription, PredictError, StepModel};

/// Stretches at which a model is asked, after 1.
const STRETCHES: [f64; 6] = [1.5, 2.0, 3.0, 4.0, 6.0, 8.0];

/// Two more, at which no computing hides any of the exchange.
const FAR: [f64; 2] = [256.0, 1024.0];

/// An exchange shorter than this, in steps, is rounding of the model's.
const LEAST: f64 = 1e-9;

/// A job's step by the part of its links' bandwidth that it gets while it exchanges.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Stretches of the exchange and what they make of the step, rising; straight between them and beyond.
    points: Vec<(f64, f64)>,
    /// The exchange with all of the bandwidth, in steps.
    alone: f64,
}

impl Exchange {
    /// What `model` says of `job` in `configuration`.
    ///
    /// # Errors
    ///
    /// Same errors as [`StepModel::predict`].
    pub fn of(
        model: &dyn StepModel,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Exchange, PredictError> {
        let rate = |stretch: f64| {
            let prediction = model.predict_on_part(job, configuration, 1.0 / stretch);
            prediction.map(|prediction| prediction.examples_per_s)
        };
        let alone = rate(1.0)?;
        let mut points = vec![(1.0, 1.0)];
        for stretch in STRETCHES.into_iter().chain(FAR) {
            let (_, before) = points[points.len() - 1];
            // Less of a link makes no step shorter, whatever a model's rounding says.
            points.push((stretch, (alone / rate(stretch)?).max(before)));
        }
        Ok(Exchange::through(points))
    }

    /// A job that computes and exchanges in turn; `part` of its step alone, up to 1, is exchange.
    pub fn in_turn(part: f64) -> Exchange {
        let at = |stretch: f64| (stretch, 1.0 + part * (stretch - 1.0));
        Exchange { points: vec![at(1.0), at(2.0)], alone: part }
    }

    fn through(points: Vec<(f64, f64)>) -> Exchange {
        let [.., (stretch, step), (last_stretch, last_step)] = points[..] else {
            return Exchange { points, alone: 0.0 };
        };
        let slope = (last_step - step) / (last_stretch - stretch);
        Exchange { points, alone: if slope > LEAST { slope } else { 0.0 } }
    }

    /// Whether the links change anything.
    pub fn waits_for_links(&self) -> bool {
        self.alone > 0.0
    }

    /// The step when the exchange takes `stretch` times as long as alone, relative to the step alone.
    pub fn step(&self, stretch: f64) -> f64 {
        let upper =
            self.points.partition_point(|(known, _)| *known < stretch).clamp(1, self.points.len() - 1);
        let ((from, low), (to, high)) = (self.points[upper - 1], self.points[upper]);
        (low + (stretch - from) / (to - from) * (high - low)).max(1.0)
    }

    /// The part of that step in which nothing is exchanged, in steps alone.
    pub(super) fn idle(&self, stretch: f64) -> f64 {
        (self.step(stretch) - self.alone * stretch).max(0.0)
    }

    /// The exchange with all of the bandwidth, in steps alone.
    pub(super) fn alone(&self) -> f64 {
        self.alone
    }
}
