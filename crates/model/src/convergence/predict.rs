//! Prediction from the beginning of a curve.

use bellwether_core::error::InputError;
use bellwether_core::fitted::FittedModel;
use bellwether_core::prediction::Validity;
use bellwether_des::statistics::student_quantile;

use super::breaks::{self, After, Break};
use super::curve::{Curve, Form, Observation, fit, jitter};
use super::smooth::{between, smoothed};
use crate::common::check::negative;
use crate::common::parameter::parameter;

/// Parts of the curve that are left out one after another.
const PARTS: usize = 8;
/// Fewest points of a curve that can be fitted: as many as a form has parameters.
const FEWEST: usize = 4;

/// A form that weighs less than this against the chosen one has no say in whether a target is reached.
const NEGLIGIBLE: f64 = 0.05;

/// What a smoothed loss must be above the lowest one to be a rise, in units of jitter. A median of five errs by 0.54 of
/// them, and the lowest of hundreds by three times that.
const RISE: f64 = 4.0;

/// A fitted curve that comes down by less than this many units of jitter does not fall.
const NO_FALL: f64 = 2.0;

/// A fitted loss curve.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveFit {
    /// The forms with their weights, which sum to 1; the first is the chosen one.
    curves: Vec<(f64, Curve)>,
    /// The chosen form fitted without one part of the curve after another.
    without_part: Vec<Curve>,
    breaks: Vec<Break>,
    trend: Trend,
    /// Of the part that was fitted.
    jitter: f64,
    floor: f64,
    /// The observed curve without its jitter.
    smoothed: Vec<Observation>,
    relative_residuals: Vec<f64>,
}

/// Where a loss goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trend {
    /// Down, or nowhere.
    Falls,
    /// Up: the last loss is above the lowest one by more than jitter, and does not fall. The forms do not describe
    /// that, and a loss below the lowest is not promised.
    Diverges {
        /// Progress of the lowest loss.
        since: f64,
        /// That loss, smoothed.
        lowest: f64,
        /// The last loss, smoothed.
        last: f64,
    },
}

/// When a loss is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeToTarget {
    /// Progress at which it is, from the beginning.
    pub progress: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end; `None` when the target may well never be reached.
    pub high: Option<f64>,
    /// Whether the observed curve has come down to it: `progress` is then that of the first such point, and `low` that
    /// of the point before.
    pub reached: bool,
    /// Whether that lies in the observed part.
    pub validity: Validity,
}

/// The loss at some progress.
#[derive(Debug, Clone, PartialEq)]
pub struct LossForecast {
    /// Its expectation: never above the last smoothed loss beyond the observed part, unless `trend` diverges.
    pub loss: f64,
    /// Ends of the 95 % interval of a single measurement; the upper one is infinite beyond a curve that diverges.
    pub interval: (f64, f64),
    /// Where the observed loss goes.
    pub trend: Trend,
    /// Whether that lies in the observed part.
    pub validity: Validity,
}

impl CurveFit {
    /// Fits every form to `points` and keeps the one that predicts their last quarter best from what is before. The
    /// others count for the interval, by the inverse square of that error and of the curve's own jitter. No loss is
    /// believed to fall below `floor`: 0 for errors and missing accuracy. The fit begins again where it breaks.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer than 4 points, one that is not finite or below the floor, or progress that does not
    /// grow.
    pub fn fit(points: &[Observation], floor: f64) -> Result<CurveFit, InputError> {
        CurveFit::fit_with_falls(points, floor, &[])
    }

    /// The same, where the learning rate is known to fall at each progress of `falls`, in rising order.
    ///
    /// # Errors
    ///
    /// See [`CurveFit::fit`].
    pub fn fit_with_falls(points: &[Observation], floor: f64, falls: &[f64]) -> Result<CurveFit, InputError> {
        check(points, floor)?;
        let (mut segment, mut origin, mut from) = (points.to_vec(), 0.0, 0);
        let mut breaks = Vec::new();
        let (curves, jitter) = loop {
            let jitter = jitter(&segment);
            let curves = weighed(&segment, origin, floor, jitter);
            let forms: Vec<Curve> = curves.iter().map(|(_, curve)| *curve).collect();
            let found = breaks::find(&segment, from, floor, jitter, &forms, falls);
            let Some((at, reason, after)) = found else { break (curves, jitter) };
            let progress = segment[at - 1].progress;
            breaks.push(Break { progress, reason });
            // Each turn leaves fewer places for a break, so that this ends.
            match after {
                After::Alone => {
                    segment.drain(..at);
                    (origin, from) = (progress, 0);
                }
                After::Scaled(factor) => {
                    segment[..at].iter_mut().for_each(|point| point.loss = (point.loss * factor).max(floor));
                    from = at + breaks::FEWEST_BESIDE;
                }
            }
        };
        let chosen = curves[0].1;
        let parts = PARTS.min(segment.len());
        let without = |part: usize| {
            // Whole phases, because neighbours share their luck.
            let phase = segment.len() * part / parts..segment.len() * (part + 1) / parts;
            let kept: Vec<Observation> =
                segment.iter().enumerate().filter(|(i, _)| !phase.contains(i)).map(|(_, p)| *p).collect();
            fit(chosen.form, &kept, origin, floor, Some(&chosen))
        };
        let residual =
            |point: &Observation| point.loss / chosen.loss(point.progress).max(f64::MIN_POSITIVE) - 1.0;
        let smoothed = smoothed(points);
        let fall = chosen.loss(segment[0].progress) - chosen.loss(segment[segment.len() - 1].progress);
        Ok(CurveFit {
            without_part: (0..parts).map(without).collect(),
            breaks,
            trend: trend(&smoothed, fall, jitter),
            jitter,
            floor,
            smoothed,
            relative_residuals: segment.iter().map(residual).collect(),
            curves,
        })
    }

    /// The chosen curve; it describes what comes after the last break.
    pub fn curve(&self) -> &Curve {
        &self.curves[0].1
    }

    /// Where the curve stopped following its form, first to last.
    pub fn breaks(&self) -> &[Break] {
        &self.breaks
    }

    /// Where the loss goes.
    pub fn trend(&self) -> Trend {
        self.trend
    }

    /// The least loss that the curve shows or comes down to.
    pub fn least(&self) -> f64 {
        let shown = lowest(&self.smoothed).loss;
        match self.trend {
            Trend::Falls => shown.min(self.curve().asymptote),
            Trend::Diverges { .. } => shown,
        }
    }

    /// Progress at which the loss comes down to `target`, or came down to it; `None` when the curve never does.
    pub fn progress_to(&self, target: f64) -> Option<TimeToTarget> {
        if let Some(first) = self.smoothed.iter().position(|point| point.loss <= target) {
            let progress = self.smoothed[first].progress;
            let low = if first > 0 { self.smoothed[first - 1].progress } else { 0.0 };
            let validity = Validity::Interpolated;
            return Some(TimeToTarget { progress, low, high: Some(progress), reached: true, validity });
        }
        if self.trend != Trend::Falls {
            return None;
        }
        // It has not come down to it so far, whatever the fitted curve says.
        let (origin, seen) = (self.curve().origin, self.last().progress);
        let beyond =
            |curve: &Curve| Some((curve.progress_to(target)?.max(seen) - origin).max(f64::MIN_POSITIVE));
        let ln = |curve: &Curve| Some(beyond(curve)?.ln());
        let progress = beyond(self.curve())?;
        let parts: Vec<f64> = self.without_part.iter().filter_map(ln).collect();
        let forms: Vec<(f64, f64)> =
            self.curves.iter().filter_map(|(weight, curve)| Some((*weight, ln(curve)?))).collect();
        let half = self.half_width(progress.ln(), &parts, &forms);
        let doubt = 1.0 - forms.iter().map(|form| form.0).sum::<f64>();
        let certain = parts.len() == self.without_part.len() && doubt < NEGLIGIBLE;
        Some(TimeToTarget {
            progress: origin + progress,
            low: (origin + progress * (-half).exp()).max(seen),
            high: (certain && half < 10.0).then(|| origin + progress * half.exp()),
            reached: false,
            validity: self.validity(origin + progress),
        })
    }

    /// The loss at `progress`; before the last break, what was observed.
    pub fn loss_at(&self, progress: f64) -> LossForecast {
        let (last, trend, validity) = (self.last(), self.trend, self.validity(progress));
        if self.breaks.last().is_some_and(|broken| progress <= broken.progress) {
            let loss = between(&self.smoothed, progress);
            let half = 2.0 * self.jitter;
            return LossForecast {
                loss,
                interval: ((loss - half).max(self.floor), loss + half),
                trend,
                validity,
            };
        }
        let expected = self.curve().loss(progress);
        let parts: Vec<f64> = self.without_part.iter().map(|curve| curve.loss(progress)).collect();
        let forms: Vec<(f64, f64)> =
            self.curves.iter().map(|(weight, curve)| (*weight, curve.loss(progress))).collect();
        let half = self.half_width(expected, &parts, &forms).hypot(2.0 * self.jitter);
        if progress <= last.progress {
            let interval = ((expected - half).max(self.floor), expected + half);
            return LossForecast { loss: expected, interval, trend, validity };
        }
        if let Trend::Diverges { lowest, .. } = trend {
            let interval = ((lowest - half).max(self.floor), f64::INFINITY);
            return LossForecast { loss: last.loss, interval, trend, validity };
        }
        let loss = expected.min(last.loss);
        let half = half.hypot(expected - loss);
        LossForecast { loss, interval: ((loss - half).max(self.floor), loss + half), trend, validity }
    }

    fn last(&self) -> Observation {
        self.smoothed[self.smoothed.len() - 1]
    }

    /// Half of the interval around `value`, from the values without one part each and from those of the forms with
    /// their weights; Student's, as parts less one are independent.
    fn half_width(&self, value: f64, parts: &[f64], forms: &[(f64, f64)]) -> f64 {
        let count = parts.len().max(1) as f64;
        let jackknife = parts.iter().map(|part| (part - value).powi(2)).sum::<f64>() * (count - 1.0) / count;
        let spread: f64 = forms.iter().map(|(weight, form)| weight * (form - value).powi(2)).sum();
        let freedom = self.without_part.len() - 1;
        student_quantile(0.975, freedom as f64) * (jackknife + spread).sqrt()
    }

    fn validity(&self, progress: f64) -> Validity {
        let seen = self.last().progress;
        if progress <= seen {
            return Validity::Interpolated;
        }
        Validity::Extrapolated(format!("the curve was observed up to {seen:.0}, not {progress:.0}"))
    }

    /// The curves as data, `<form>.<parameter>`; workers and batch are left open, because a curve knows neither.
    pub fn to_fitted(&self) -> FittedModel {
        let mut parameters = Vec::new();
        let mut push = |name: String, unit: &str, value: f64| {
            parameters.push(parameter(name, unit, value));
        };
        for (weight, curve) in &self.curves {
            let form = match curve.form {
                Form::Hyperbola => "hyperbola",
                Form::Power => "power",
                Form::Exponential => "exponential",
            };
            push(format!("{form}.weight"), "1", *weight);
            push(format!("{form}.origin"), "progress", curve.origin);
            push(format!("{form}.height"), "loss", curve.height);
            push(format!("{form}.scale"), "progress", curve.scale);
            push(format!("{form}.exponent"), "1", curve.exponent);
            push(format!("{form}.asymptote"), "loss", curve.asymptote);
        }
        push("jitter".into(), "loss", self.jitter);
        FittedModel {
            model: "convergence".into(),
            parameters,
            covariance: Vec::new(),
            relative_residuals: self.relative_residuals.clone(),
            workers: (0, 0),
            batch: (0, 0),
        }
    }
}

/// Every form fitted to `points` with its weight, the heaviest first: how well it predicts their last quarter from what
/// is before.
fn weighed(points: &[Observation], origin: f64, floor: f64, jitter: f64) -> Vec<(f64, Curve)> {
    let before = (points.len() * 3 / 4).max(FEWEST - 1);
    let (head, tail) = points.split_at(before);
    let weigh = |&form: &Form| -> (f64, Curve) {
        let early = fit(form, head, origin, floor, None);
        let error = tail.iter().map(|point| (early.loss(point.progress) - point.loss).abs()).sum::<f64>();
        let error = error / tail.len() as f64;
        (1.0 / (error * error + jitter * jitter), fit(form, points, origin, floor, None))
    };
    let mut curves: Vec<(f64, Curve)> = Form::ALL.iter().map(weigh).collect();
    let total: f64 = curves.iter().map(|(weight, _)| weight).sum();
    curves.iter_mut().for_each(|(weight, _)| *weight /= total);
    curves.sort_by(|a, b| b.0.total_cmp(&a.0));
    curves
}

/// Where the curve `smoothed` goes, of which the last part was fitted by a curve that comes down by `fall` over it.
fn trend(smoothed: &[Observation], fall: f64, jitter: f64) -> Trend {
    let (least, last) = (lowest(smoothed), smoothed[smoothed.len() - 1]);
    if last.loss > least.loss + RISE * jitter && fall < NO_FALL * jitter {
        return Trend::Diverges { since: least.progress, lowest: least.loss, last: last.loss };
    }
    Trend::Falls
}

/// The first of the lowest points.
fn lowest(points: &[Observation]) -> Observation {
    points
        .iter()
        .copied()
        .reduce(|low, point| if point.loss < low.loss { point } else { low })
        .expect("checked")
}

fn check(points: &[Observation], floor: f64) -> Result<(), InputError> {
    if points.len() < FEWEST {
        let what = format!("it has {} points; at least {FEWEST} are needed", points.len());
        return Err(InputError::new("loss curve", what).hint("train longer before asking"));
    }
    for (index, point) in points.iter().enumerate() {
        let place = format!("loss curve, point {}", index + 1);
        negative(&place, "its progress", point.progress)?;
        negative(&place, format_args!("its loss, less the floor of {floor},"), point.loss - floor)?;
        if index > 0 && point.progress <= points[index - 1].progress {
            return Err(InputError::new(place, "its progress is not above that of the point before")
                .hint("give the points in the order of the training"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four parts are three degrees of freedom, whose 97.5 % point is 3.182.
    #[test]
    fn few_parts_widen_the_interval() {
        let curve = |asymptote| Curve {
            form: Form::Hyperbola,
            origin: 0.0,
            height: 1.0,
            scale: 1.0,
            exponent: 1.0,
            asymptote,
        };
        let fit = CurveFit {
            curves: vec![(1.0, curve(2.0))],
            without_part: [1.9, 2.1, 1.9, 2.1].map(curve).to_vec(),
            breaks: Vec::new(),
            trend: Trend::Falls,
            jitter: 0.0,
            floor: 0.0,
            smoothed: vec![Observation { progress: 1.0, loss: 3.0 }],
            relative_residuals: Vec::new(),
        };
        let (low, high) = fit.loss_at(1.0).interval;
        // Squares of 4 · 0.01, times 3/4.
        assert!(((high - low) / 2.0 - 3.182_446 * 0.03_f64.sqrt()).abs() < 1e-6, "{low} {high}");
    }
}
