//! Parameters of a fitted model, written and read by name.

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedModel, Parameter};

/// A parameter without a standard error: a constant, or one that the data do not determine.
pub(crate) fn parameter(name: impl Into<String>, unit: &str, value: f64) -> Parameter {
    Parameter { name: name.into(), unit: unit.to_owned(), value, standard_error: None }
}

/// The value of a parameter that the model at `place` cannot do without: finite, and at least `least`.
pub(crate) fn needed(place: &str, fitted: &FittedModel, name: &str, least: f64) -> Result<f64, InputError> {
    let what = match fitted.value(name) {
        Some(value) if value.is_finite() && value >= least => return Ok(value),
        Some(value) => format!("`{name}` of the fitted model `{}` is {value}", fitted.model),
        None => format!("the fitted model `{}` has no `{name}`", fitted.model),
    };
    Err(InputError::new(place, what).hint("fit it again; the file may be of another version"))
}

/// Refuses a fitted model of another kind than `model`.
pub(crate) fn kind(place: &str, fitted: &FittedModel, model: &str) -> Result<(), InputError> {
    if fitted.model == model {
        return Ok(());
    }
    Err(InputError::new(place, format!("`{}` is not the model `{model}`", fitted.model))
        .hint("ask the module that fitted it"))
}
