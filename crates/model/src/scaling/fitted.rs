//! The fitted model as data, and back.

use bellwether_core::error::InputError;
use bellwether_core::fitted::FittedModel;

use super::Scaling;
use super::form::{Form, Law, PARAMETERS};
use super::validity::Ranges;
use crate::common::parameter::{kind, needed, parameter};

const MODEL: &str = "scaling";

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
        }
        let ranges = &self.ranges;
        let rest = [
            ("residual_sd", "1", self.residual_sd),
            ("freedom", "1", f64::from(self.freedom)),
            ("in_node_least", "workers", f64::from(ranges.in_node.0)),
            ("in_node_most", "workers", f64::from(ranges.in_node.1)),
            ("over_nodes_least", "workers", f64::from(ranges.over_nodes.0)),
            ("over_nodes_most", "workers", f64::from(ranges.over_nodes.1)),
            ("local_batch_least", "samples", ranges.local_batch.0),
            ("local_batch_most", "samples", ranges.local_batch.1),
        ];
        parameters.extend(rest.map(|(name, unit, value)| parameter(name, unit, value)));
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
        let mut laws = Vec::new();
        for form in Form::ALL {
            let name = |parameter: &str| format!("{}.{parameter}", form.name());
            if fitted.value(&name("gamma")).is_none() {
                continue;
            }
            let mut law = Law { form, values: [0.0; 7] };
            for (slot, (parameter, _)) in law.values.iter_mut().zip(PARAMETERS) {
                *slot = value(&name(parameter))?;
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
        let count = |name: &str| value(name).map(|value| value as u32);
        Ok(Scaling {
            laws,
            residual_sd: value("residual_sd")?,
            freedom: count("freedom")?,
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
