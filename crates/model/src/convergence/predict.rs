//! Prediction from the beginning of a curve.

use bellwether_core::error::InputError;
use bellwether_core::fitted::FittedModel;
use bellwether_core::prediction::Validity;
use bellwether_des::statistics::student_quantile;

use super::curve::{Curve, Form, Observation, fit, jitter};
use crate::common::check::negative;
use crate::common::parameter::parameter;

/// Parts of the curve that are left out one after another.
const PARTS: usize = 8;
/// Fewest points of a curve that can be fitted: as many as a form has parameters.
const FEWEST: usize = 4;

/// A form that weighs less than this against the chosen one has no say in whether a target is reached.
const NEGLIGIBLE: f64 = 0.05;

/// A fitted loss curve.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveFit {
    /// The forms with their weights, which sum to 1; the first is the chosen one.
    curves: Vec<(f64, Curve)>,
    /// The chosen form fitted without one part of the curve after another.
    without_part: Vec<Curve>,
    jitter: f64,
    floor: f64,
    last: f64,
    relative_residuals: Vec<f64>,
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
    /// Whether that lies in the observed part.
    pub validity: Validity,
}

/// The loss at some progress.
#[derive(Debug, Clone, PartialEq)]
pub struct LossForecast {
    /// Its expectation.
    pub loss: f64,
    /// Ends of the 95 % interval of a single measurement.
    pub interval: (f64, f64),
    /// Whether that lies in the observed part.
    pub validity: Validity,
}

impl CurveFit {
    /// Fits every form to `points` and keeps the one that predicts their last quarter best from what is before. The
    /// others count for the interval, by the inverse square of that error and of the curve's own jitter. No loss is
    /// believed to fall below `floor`: 0 for errors and missing accuracy.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer than 4 points, one that is not finite or below the floor, or progress that does not
    /// grow.
    pub fn fit(points: &[Observation], floor: f64) -> Result<CurveFit, InputError> {
        check(points, floor)?;
        let jitter = jitter(points);
        let before = (points.len() * 3 / 4).max(FEWEST - 1);
        let (head, tail) = points.split_at(before);
        let weigh = |&form: &Form| -> (f64, Curve) {
            let early = fit(form, head, floor, None);
            let error = tail.iter().map(|point| (early.loss(point.progress) - point.loss).abs()).sum::<f64>();
            let error = error / tail.len() as f64;
            (1.0 / (error * error + jitter * jitter), fit(form, points, floor, None))
        };
        let mut curves: Vec<(f64, Curve)> = Form::ALL.iter().map(weigh).collect();
        let total: f64 = curves.iter().map(|(weight, _)| weight).sum();
        curves.iter_mut().for_each(|(weight, _)| *weight /= total);
        curves.sort_by(|a, b| b.0.total_cmp(&a.0));
        let parts = PARTS.min(points.len());
        let chosen = curves[0].1;
        let without = |part: usize| {
            // Whole phases, because neighbours share their luck.
            let phase = points.len() * part / parts..points.len() * (part + 1) / parts;
            let kept: Vec<Observation> =
                points.iter().enumerate().filter(|(i, _)| !phase.contains(i)).map(|(_, p)| *p).collect();
            fit(chosen.form, &kept, floor, Some(&chosen))
        };
        let residual =
            |point: &Observation| point.loss / chosen.loss(point.progress).max(f64::MIN_POSITIVE) - 1.0;
        Ok(CurveFit {
            without_part: (0..parts).map(without).collect(),
            jitter,
            floor,
            last: points[points.len() - 1].progress,
            relative_residuals: points.iter().map(residual).collect(),
            curves,
        })
    }

    /// The chosen curve.
    pub fn curve(&self) -> &Curve {
        &self.curves[0].1
    }

    /// Progress at which the loss comes down to `target`; `None` when the curve never does.
    pub fn progress_to(&self, target: f64) -> Option<TimeToTarget> {
        let ln = |curve: &Curve| Some(curve.progress_to(target)?.max(f64::MIN_POSITIVE).ln());
        let progress = self.curve().progress_to(target)?.max(f64::MIN_POSITIVE);
        let parts: Vec<f64> = self.without_part.iter().filter_map(ln).collect();
        let forms: Vec<(f64, f64)> =
            self.curves.iter().filter_map(|(weight, curve)| Some((*weight, ln(curve)?))).collect();
        let half = self.half_width(progress.ln(), &parts, &forms);
        let doubt = 1.0 - forms.iter().map(|form| form.0).sum::<f64>();
        let reached = parts.len() == self.without_part.len() && doubt < NEGLIGIBLE;
        Some(TimeToTarget {
            progress,
            low: progress * (-half).exp(),
            high: (reached && half < 10.0).then(|| progress * half.exp()),
            validity: self.validity(progress),
        })
    }

    /// The loss at `progress`.
    pub fn loss_at(&self, progress: f64) -> LossForecast {
        let loss = self.curve().loss(progress);
        let parts: Vec<f64> = self.without_part.iter().map(|curve| curve.loss(progress)).collect();
        let forms: Vec<(f64, f64)> =
            self.curves.iter().map(|(weight, curve)| (*weight, curve.loss(progress))).collect();
        let half = self.half_width(loss, &parts, &forms).hypot(2.0 * self.jitter);
        let interval = ((loss - half).max(self.floor), loss + half);
        LossForecast { loss, interval, validity: self.validity(progress) }
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
        if progress <= self.last {
            return Validity::Interpolated;
        }
        Validity::Extrapolated(format!("the curve was observed up to {:.0}, not {progress:.0}", self.last))
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
        let curve =
            |asymptote| Curve { form: Form::Hyperbola, height: 1.0, scale: 1.0, exponent: 1.0, asymptote };
        let fit = CurveFit {
            curves: vec![(1.0, curve(2.0))],
            without_part: [1.9, 2.1, 1.9, 2.1].map(curve).to_vec(),
            jitter: 0.0,
            floor: 0.0,
            last: 1.0,
            relative_residuals: Vec::new(),
        };
        let (low, high) = fit.loss_at(1.0).interval;
        // Squares of 4 · 0.01, times 3/4.
        assert!(((high - low) / 2.0 - 3.182_446 * 0.03_f64.sqrt()).abs() < 1e-6, "{low} {high}");
    }
}
