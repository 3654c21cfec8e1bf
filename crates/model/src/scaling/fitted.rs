//! The fitted model as data, and back.

use bellwether_core::error::InputError;
use bellwether_core::fitted::FittedModel;

use super::form::{EXPONENT_RANGE, EXPONENTS, Form, Law, PARAMETERS};
use super::validity::Ranges;
use super::{Interval, Scaling};
use crate::common::parameter::{kind, needed, parameter};

/// What a fitted model of this module is called.
pub const MODEL: &str = "scaling";

impl Scaling {
    /// The model as data: `<form>.<parameter>` for each law, then what the interval and the range of validity need.
    ///
    /// The covariance is left open: parameters of different laws are not drawn from one distribution, and the interval
    /// comes from rows left out.
    pub fn to_fitted(&self) -> FittedModel {
        let mut parameters = Vec::new();
        for law in &self.laws {
            for ((name, unit), value) in PARAMETERS.iter().zip(law.values) {
                parameters.push(parameter(format!("{}.{name}", law.form.name()), unit, value));
            }
            parameters.push(parameter(format!("{}.weight", law.form.name()), "1", law.weight));
            if law.form == Form::Shared {
                for (name, value) in EXPONENTS.iter().zip(law.exponents) {
                    parameters.push(parameter(format!("{}.{name}", law.form.name()), "1", value));
                }
            }
        }
        let ranges = &self.ranges;
        let rest = [
            ("residual_sd", "1", self.residual_sd),
            ("in_node_least", "workers", f64::from(ranges.in_node.0)),
            ("in_node_most", "workers", f64::from(ranges.in_node.1)),
            ("over_nodes_least", "workers", f64::from(ranges.over_nodes.0)),
            ("over_nodes_most", "workers", f64::from(ranges.over_nodes.1)),
            ("local_batch_least", "samples", ranges.local_batch.0),
            ("local_batch_most", "samples", ranges.local_batch.1),
        ];
        parameters.extend(rest.map(|(name, unit, value)| parameter(name, unit, value)));
        let interval = match self.interval {
            Interval::Student { freedom } => vec![("freedom", f64::from(freedom))],
            Interval::Calibrated { floor, quantile, unmeasured } => vec![
                ("interval_floor", floor),
                ("interval_quantile", quantile),
                ("interval_unmeasured", unmeasured),
            ],
        };
        parameters.extend(interval.into_iter().map(|(name, value)| parameter(name, "1", value)));
        parameters.extend(self.noise_scale.map(|scale| parameter("noise_scale", "samples", scale)));
        let counts = [ranges.in_node, ranges.over_nodes];
        let measured = || counts.iter().filter(|(_, most)| *most > 0);
        FittedModel {
            model: MODEL.into(),
            parameters,
            covariance: Vec::new(),
            relative_residuals: self.relative_residuals.clone(),
            workers: (
                measured().map(|count| count.0).min().unwrap_or(0),
                measured().map(|count| count.1).max().unwrap_or(0),
            ),
            batch: ranges.batch,
        }
    }

    /// The model that [`Scaling::to_fitted`] wrote.
    ///
    /// # Errors
    ///
    /// Returns an error for another model, or a missing or invalid parameter.
    pub fn from_fitted(fitted: &FittedModel) -> Result<Scaling, InputError> {
        kind(MODEL, fitted, MODEL)?;
        let value = |name: &str| needed(MODEL, fitted, name, 0.0);
        let mut laws: Vec<Law> = Vec::new();
        for form in Form::ALL {
            let name = |parameter: &str| format!("{}.{parameter}", form.name());
            if fitted.value(&name("gamma")).is_none() {
                continue;
            }
            let weight_name = name("weight");
            let weight = fitted.value(&weight_name).map(|_| value(&weight_name)).transpose()?;
            // A file from before laws had weights: all count the same.
            let mut law = Law { form, weight: weight.unwrap_or(1.0), values: [0.0; 7], exponents: [0.0; 3] };
            for (slot, (parameter, _)) in law.values.iter_mut().zip(PARAMETERS) {
                *slot = value(&name(parameter))?;
            }
            if form == Form::Shared {
                for (slot, exponent) in law.exponents.iter_mut().zip(EXPONENTS) {
                    *slot = exponent_of(fitted, &name(exponent))?;
                }
            }
            if law.values[6] < 1.0 || law.values[0] + law.values[1] <= 0.0 {
                let what = format!("the law `{}` has no gradient time, or gamma below 1", form.name());
                return Err(InputError::new(MODEL, what).hint("fit it again"));
            }
            laws.push(law);
        }
        if laws.is_empty() {
            return Err(InputError::new(MODEL, "the fitted model holds no law").hint("fit it again"));
        }
        let total: f64 = laws.iter().map(|law| law.weight).sum();
        if !(total.is_finite() && total > 0.0) {
            let what = format!("the weights of its laws sum to {total}");
            return Err(InputError::new(MODEL, what).hint("fit it again"));
        }
        laws.iter_mut().for_each(|law| law.weight /= total);
        let count = |name: &str| value(name).map(|value| value as u32);
        Ok(Scaling {
            laws,
            residual_sd: value("residual_sd")?,
            interval: interval_of(fitted)?,
            ranges: Ranges {
                in_node: (count("in_node_least")?, count("in_node_most")?),
                over_nodes: (count("over_nodes_least")?, count("over_nodes_most")?),
                local_batch: (value("local_batch_least")?, value("local_batch_most")?),
                batch: fitted.batch,
            },
            relative_residuals: fitted.relative_residuals.clone(),
            noise_scale: fitted.value("noise_scale").map(|_| value("noise_scale")).transpose()?,
        })
    }
}

/// An exponent of [`Form::Shared`], within the bounds of the fit: beyond them a time may exceed every number.
fn exponent_of(fitted: &FittedModel, name: &str) -> Result<f64, InputError> {
    let exponent = needed(MODEL, fitted, name, EXPONENT_RANGE.0)?;
    if exponent > EXPONENT_RANGE.1 {
        return Err(InputError::new(MODEL, format!("`{name}` is {exponent}")).hint("fit it again"));
    }
    Ok(exponent)
}

/// The interval; a file of an earlier version has only the degrees of freedom of Student's.
fn interval_of(fitted: &FittedModel) -> Result<Interval, InputError> {
    let value = |name: &str| needed(MODEL, fitted, name, 0.0);
    if fitted.value("interval_quantile").is_none() {
        return Ok(Interval::Student { freedom: value("freedom")? as u32 });
    }
    Ok(Interval::Calibrated {
        floor: value("interval_floor")?,
        quantile: value("interval_quantile")?,
        unmeasured: value("interval_unmeasured")?,
    })
}
