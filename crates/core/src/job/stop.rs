//! `[stop]`: when a run ends before its last step.
//!
//! What is decided by held-out results is part of the job's bits: the results are the same for any number of workers,
//! and so is the step at which the run ends. A limit of time or money depends on machines; where it ends a run, the run
//! is stopped with a checkpoint and can be resumed.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ensure::{Check, ensure};
use super::{Data, Job};
use crate::error::InputError;
use crate::units::{Dollars, DollarsPerHour, Seconds};

/// When a run ends before its last step. Whichever rule holds first ends it; without any, only its length does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Share of held-out predictions, 0…1: the run ends when it makes as many right ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Held-out loss: the run ends when it is as low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Evaluations: the run ends when as many in a row did not improve on the best one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// How much better than the best one an evaluation must be to count as an improvement, for `patience`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_delta: f64,
    /// The run ends when its held-out result hardly moves any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<Plateau>,
    /// What `patience` and `plateau` look at: `"loss"` (the default) or `"accuracy"`.
    #[serde(default, skip_serializing_if = "Metric::is_loss")]
    pub metric: Metric,
    /// Factor above 1: the run ends when its held-out loss is more than this times the lowest one so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<f64>,
    /// Time that the run may train; then it is stopped with a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Seconds>,
    /// Money that its workers may cost at `price`; then it is stopped with a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Dollars>,
    /// What one worker costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<DollarsPerHour>,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// A held-out result that hardly moves any more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// The last evaluations that are compared, 2 or more.
    pub evaluations: u32,
    /// The most by which the highest of them may exceed the lowest, as a share of their mean.
    pub change: f64,
}

/// A held-out result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The mean loss; lower is better.
    #[default]
    Loss,
    /// The share of right predictions; higher is better.
    Accuracy,
}

impl Metric {
    // Serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_loss(&self) -> bool {
        *self == Metric::Loss
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Loss => "loss",
            Metric::Accuracy => "accuracy",
        }
    }

    /// The result as a cost, of which less is better; the same again gives the result.
    pub fn cost(self, result: f64) -> f64 {
        match self {
            Metric::Loss => result,
            Metric::Accuracy => -result,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A limit that stops a run, which can be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopLimit {
    /// Of the time that it trains (`stop.time`).
    Time,
    /// Of what its workers cost (`stop.money`).
    Money,
}

impl fmt::Display for StopLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopLimit::Time => "the limit of time (stop.time)",
            StopLimit::Money => "the limit of money (stop.money)",
        })
    }
}

/// What one evaluation of the held-out samples gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOut {
    /// Mean loss.
    pub loss: f64,
    /// Right predictions, as a share; absent where it does not apply.
    pub accuracy: Option<f64>,
}

impl HeldOut {
    /// The result; `None` for an accuracy that does not apply.
    pub fn of(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Loss => Some(self.loss),
            Metric::Accuracy => self.accuracy,
        }
    }
}

impl Stop {
    pub(super) fn is_never(&self) -> bool {
        *self == Stop::default()
    }

    /// Whether held-out results may end the run.
    pub fn by_results(&self) -> bool {
        self.accuracy.is_some()
            || self.loss.is_some()
            || self.patience.is_some()
            || self.plateau.is_some()
            || self.divergence.is_some()
    }

    /// Whether time or money may end the run.
    pub fn by_cost(&self) -> bool {
        self.time.is_some() || self.money.is_some()
    }

    /// What of the rules decides bits: a limit of time or money decides when a run is stopped, and the one that goes on
    /// from there trains the same.
    pub(super) fn identity(&self) -> Stop {
        Stop { time: None, money: None, price: None, ..*self }
    }

    /// Why the run ends after the last of these evaluations, which are all of its evaluations in their order; `None`
    /// where it goes on. A loss that is not a number ends it under any rule.
    ///
    /// ```
    /// use bellwether_core::job::{HeldOut, Stop};
    /// let rule = Stop { patience: Some(2), ..Stop::default() };
    /// let losses = |losses: &[f64]| -> Vec<HeldOut> {
    ///     losses.iter().map(|loss| HeldOut { loss: *loss, accuracy: None }).collect()
    /// };
    /// assert_eq!(rule.verdict(&losses(&[0.9, 0.5, 0.6])), None);
    /// let reason = rule.verdict(&losses(&[0.9, 0.5, 0.6, 0.5])).unwrap();
    /// assert_eq!(reason, "the held-out loss has not improved on 0.5 in 2 evaluations (stop.patience)");
    /// ```
    pub fn verdict(&self, evaluations: &[HeldOut]) -> Option<String> {
        let last = evaluations.last().filter(|_| self.by_results())?;
        if !last.loss.is_finite() {
            return Some(format!("the held-out loss is {}", last.loss));
        }
        self.diverged(evaluations, last)
            .or_else(|| self.reached(last))
            .or_else(|| self.impatient(evaluations).or_else(|| self.levelled(evaluations)))
    }

    fn diverged(&self, evaluations: &[HeldOut], last: &HeldOut) -> Option<String> {
        let factor = self.divergence?;
        let lowest = evaluations.iter().map(|one| one.loss).fold(f64::INFINITY, f64::min);
        (last.loss > factor * lowest).then(|| {
            format!(
                "the held-out loss of {} is more than {factor} times the lowest one, {} (stop.divergence)",
                short(last.loss),
                short(lowest)
            )
        })
    }

    fn reached(&self, last: &HeldOut) -> Option<String> {
        let accuracy = self.accuracy.zip(last.accuracy).filter(|(target, reached)| reached >= target);
        let loss = self.loss.filter(|target| last.loss <= *target);
        match (accuracy, loss) {
            (Some((target, reached)), _) => {
                Some(format!("the held-out accuracy of {} reaches {target} (stop.accuracy)", short(reached)))
            }
            (None, Some(target)) => {
                Some(format!("the held-out loss of {} reaches {target} (stop.loss)", short(last.loss)))
            }
            (None, None) => None,
        }
    }

    /// The results that `patience` and `plateau` look at, as costs.
    fn watched(&self, evaluations: &[HeldOut]) -> Vec<f64> {
        let results = evaluations.iter().filter_map(|one| one.of(self.metric));
        results.map(|result| self.metric.cost(result)).collect()
    }

    fn impatient(&self, evaluations: &[HeldOut]) -> Option<String> {
        let patience = self.patience?;
        let (mut best, mut since) = (f64::INFINITY, 0);
        for value in self.watched(evaluations) {
            if value < best - self.min_delta {
                (best, since) = (value, 0);
            } else {
                since += 1;
            }
        }
        (since >= patience && best.is_finite()).then(|| {
            let (metric, best) = (self.metric, short(best.abs()));
            format!("the held-out {metric} has not improved on {best} in {since} evaluations (stop.patience)")
        })
    }

    fn levelled(&self, evaluations: &[HeldOut]) -> Option<String> {
        let Plateau { evaluations: count, change } = self.plateau?;
        let watched = self.watched(evaluations);
        let last = &watched[watched.len().checked_sub(count as usize)?..];
        let highest = last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lowest = last.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = last.iter().sum::<f64>() / f64::from(count);
        (highest - lowest <= change * mean.abs()).then(|| {
            format!(
                "the last {count} held-out results of {} differ by {} at most (stop.plateau)",
                self.metric,
                short(highest - lowest)
            )
        })
    }
}

/// A result as people read it.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Job {
    /// Steps between two boundaries at which the workers wait until it is decided whether the run goes on; 0 never
    /// waits. A script decides (`verdict`), or held-out results do (`stop`).
    pub fn verdict_every(&self) -> u64 {
        if self.stop.by_results() { self.evaluation.every_steps } else { self.verdict.every_steps }
    }
}

pub(super) fn check(job: &Job) -> Check {
    let stop = &job.stop;
    numbers(stop)?;
    ensure(
        stop.patience.is_some() || stop.min_delta == 0.0,
        "stop.min_delta",
        "it says what an improvement is, and no rule looks for one",
        "set stop.patience, for example to 5 (evaluations)",
    )?;
    ensure(
        stop.money.is_none() || stop.price.is_some(),
        "stop.price",
        "money cannot be counted without the price of a worker",
        "write stop.price in dollars per worker and hour, such as \"$0.35/h\"",
    )?;
    if !stop.by_results() {
        return Ok(());
    }
    ensure(
        job.evaluation.every_steps > 0,
        "evaluation.every_steps",
        "[stop] decides by held-out results, and the run evaluates at its end only",
        "set evaluation.every_steps, for example to the steps of an epoch",
    )?;
    ensure(
        job.verdict.every_steps == 0,
        "verdict.every_steps",
        "either a script decides whether the run goes on, or [stop] does",
        "leave out one of the two",
    )?;
    measured(job)
}

fn numbers(stop: &Stop) -> Check {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let limits = [
        ("stop.loss", stop.loss, "a loss above 0"),
        ("stop.time", stop.time.map(Seconds::get), "a time such as \"2h\""),
        ("stop.money", stop.money.map(Dollars::get), "money such as \"$5\""),
        ("stop.price", stop.price.map(DollarsPerHour::get), "a price such as \"$0.35/h\""),
    ];
    for (key, value, hint) in limits {
        let holds = value.is_none_or(positive);
        ensure(
            holds,
            key,
            format!("{} is not a positive number", value.unwrap_or(0.0)),
            &format!("write {hint}"),
        )?;
    }
    if let Some(share) = stop.accuracy {
        let hint = "write a share such as 0.95";
        ensure(share > 0.0 && share <= 1.0, "stop.accuracy", format!("{share} is not in 0…1"), hint)?;
    }
    if let Some(factor) = stop.divergence {
        let hint = "write how many times the lowest loss is too much, such as 3.0";
        let holds = factor.is_finite() && factor > 1.0;
        ensure(holds, "stop.divergence", format!("{factor} is not above 1"), hint)?;
    }
    ensure(
        stop.patience != Some(0),
        "stop.patience",
        "0 evaluations end every run at once",
        "use at least 1",
    )?;
    let delta = stop.min_delta;
    let holds = delta.is_finite() && delta >= 0.0;
    ensure(holds, "stop.min_delta", format!("{delta} is negative or not finite"), "")?;
    if let Some(Plateau { evaluations, change }) = stop.plateau {
        let hint = "a plateau is seen in 2 evaluations or more";
        ensure(evaluations >= 2, "stop.plateau.evaluations", format!("{evaluations} is below 2"), hint)?;
        let holds = change.is_finite() && change >= 0.0;
        ensure(holds, "stop.plateau.change", format!("{change} is negative or not finite"), "")?;
    }
    Ok(())
}

/// A rule about something that is never measured would never hold.
fn measured(job: &Job) -> Check {
    let watches_accuracy = job.stop.metric == Metric::Accuracy;
    ensure(
        !watches_accuracy || job.stop.patience.is_some() || job.stop.plateau.is_some(),
        "stop.metric",
        "no rule looks at it",
        "set stop.patience or stop.plateau; stop.accuracy is a target of its own",
    )?;
    if !job.data.holds_nothing_out() {
        return Ok(());
    }
    let (why, hint) = match &job.data {
        Data::Indices { .. } => {
            ("a synthetic device has no held-out samples", "only stop.time and stop.money work without them")
        }
        Data::Python { .. } => (
            "only the script itself evaluates",
            "give the workers held-out samples (held_out=… in the script), or let the script decide (hold=True)",
        ),
        _ => ("data.held_out is 0", "hold out a share of the samples, such as 0.2"),
    };
    Err(never_measured(why).hint(hint))
}

/// A rule on held-out results cannot hold.
fn never_measured(why: &str) -> InputError {
    InputError::new("stop", format!("the held-out results that it decides by are never measured: {why}"))
}

impl Stop {
    /// Refuses rules on held-out results for a workload with this many held-out samples, where there are none.
    ///
    /// # Errors
    ///
    /// Says so.
    pub fn check_measured(&self, held_out_samples: u64) -> Result<(), InputError> {
        if self.by_results() && held_out_samples == 0 {
            let hint = "hold out some samples, or leave out the rules on held-out results";
            return Err(never_measured("what is trained has no held-out samples").hint(hint));
        }
        Ok(())
    }

    /// What a person should know of the rules once a first evaluation is there: those that look at an accuracy which
    /// the model does not report never hold.
    pub fn unreported(&self, first: &HeldOut) -> Option<String> {
        let watches = self.metric == Metric::Accuracy && (self.patience.is_some() || self.plateau.is_some());
        (first.accuracy.is_none() && (self.accuracy.is_some() || watches)).then(|| {
            "the model reports no held-out accuracy, so that the rules of [stop] that look at it never hold; \
             use stop.loss, or stop.metric = \"loss\""
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(values: &[(f64, f64)]) -> Vec<HeldOut> {
        values.iter().map(|(loss, accuracy)| HeldOut { loss: *loss, accuracy: Some(*accuracy) }).collect()
    }

    /// The evaluation, from 1, after which each rule ends a run.
    fn ends_at(stop: Stop, evaluations: &[HeldOut]) -> Option<usize> {
        (1..=evaluations.len()).find(|count| stop.verdict(&evaluations[..*count]).is_some())
    }

    #[test]
    fn each_rule_ends_a_run_at_its_evaluation() {
        let run = results(&[(2.0, 0.3), (1.0, 0.6), (0.8, 0.7), (0.81, 0.75), (0.79, 0.74), (1.7, 0.5)]);
        let never = Stop::default();
        assert_eq!(ends_at(never, &run), None);
        assert_eq!(ends_at(Stop { accuracy: Some(0.7), ..never }, &run), Some(3));
        assert_eq!(ends_at(Stop { accuracy: Some(0.9), ..never }, &run), None);
        assert_eq!(ends_at(Stop { loss: Some(0.8), ..never }, &run), Some(3));
        assert_eq!(ends_at(Stop { patience: Some(1), ..never }, &run), Some(4));
        assert_eq!(ends_at(Stop { patience: Some(2), ..never }, &run), None);
        assert_eq!(ends_at(Stop { patience: Some(2), min_delta: 0.05, ..never }, &run), Some(5));
        let accuracy = Stop { metric: Metric::Accuracy, ..never };
        assert_eq!(ends_at(Stop { patience: Some(2), ..accuracy }, &run), Some(6));
        assert_eq!(ends_at(Stop { divergence: Some(2.0), ..never }, &run), Some(6));
        let plateau = |evaluations, change| Stop { plateau: Some(Plateau { evaluations, change }), ..never };
        assert_eq!(ends_at(plateau(3, 0.03), &run), Some(5));
        assert_eq!(ends_at(plateau(2, 0.02), &run), Some(4));
        assert_eq!(ends_at(plateau(3, 0.001), &run), None);
    }

    #[test]
    fn rules_that_nothing_measures_are_told() {
        let stop = |accuracy, metric, patience| Stop { accuracy, metric, patience, ..Stop::default() };
        let (loss, with) =
            (HeldOut { loss: 1.0, accuracy: None }, HeldOut { loss: 1.0, accuracy: Some(0.5) });
        assert!(stop(Some(0.9), Metric::Loss, None).unreported(&loss).is_some());
        assert!(stop(None, Metric::Accuracy, Some(2)).unreported(&loss).is_some());
        assert_eq!(stop(None, Metric::Loss, Some(2)).unreported(&loss), None);
        assert_eq!(stop(Some(0.9), Metric::Loss, None).unreported(&with), None);
        assert!(stop(Some(0.9), Metric::Loss, None).check_measured(0).is_err());
        assert!(stop(Some(0.9), Metric::Loss, None).check_measured(1).is_ok());
        assert!(Stop::default().check_measured(0).is_ok());
    }

    #[test]
    fn a_loss_that_is_not_a_number_ends_a_run_under_any_rule() {
        let run = results(&[(1.0, 0.5), (f64::NAN, 0.1)]);
        let rules = Stop { accuracy: Some(0.9), ..Stop::default() };
        assert_eq!(rules.verdict(&run).unwrap(), "the held-out loss is NaN");
        assert_eq!(Stop { time: Some(Seconds::new(3.0)), ..Stop::default() }.verdict(&run), None);
    }
}
