//! What models answer that know one number for a configuration, and no interval.

use bellwether_core::ParseError;
use bellwether_core::prediction::{Bottleneck, Configuration, PredictError, Prediction, Validity};

/// A prediction of steps of `samples` each at `examples_per_s`, taken as exact.
///
/// # Errors
///
/// Returns an error if a prediction may not hold these numbers: a step would take no time, or for ever.
pub(crate) fn exact(
    examples_per_s: f64,
    samples: f64,
    validity: Validity,
) -> Result<Prediction, PredictError> {
    let step_s = samples / examples_per_s;
    let fits = |value: f64| value.is_finite() && value > 0.0;
    if !fits(examples_per_s) || !fits(step_s) {
        return Err(PredictError::OutOfRange(format!(
            "no step has {samples} samples at {examples_per_s} samples/s"
        )));
    }
    Ok(Prediction {
        examples_per_s,
        low: examples_per_s,
        high: examples_per_s,
        step_s,
        bottleneck: Bottleneck::Compute,
        validity,
    })
}

/// Devices of a configuration that no other job uses.
///
/// # Errors
///
/// Returns an error if there are none, or when others use them too.
pub(crate) fn own_devices(configuration: &Configuration) -> Result<u32, PredictError> {
    if !configuration.shared_with.is_empty() {
        let why = "this model knows only jobs that have their devices for themselves";
        return Err(PredictError::Unsupported(why.into()));
    }
    match configuration.workers() {
        0 => Err(no_device()),
        count => Ok(count),
    }
}

/// The throughput of the slowest type of device that a configuration holds, where `of_type` gives that of as many
/// devices of one type; whatever is not `None` beside it says why it is an extrapolation.
///
/// # Errors
///
/// Same errors as `of_type`.
pub(crate) fn slowest_type(
    configuration: &Configuration,
    of_type: impl Fn(&str) -> Result<(f64, Option<String>), PredictError>,
) -> Result<(f64, Validity), PredictError> {
    let mut types = configuration.devices.iter().filter(|group| group.count > 0).map(|group| &group.device);
    let first = types.next().ok_or_else(no_device)?;
    let (mut rate, mut why) = of_type(first)?;
    for device in types.filter(|device| *device != first) {
        rate = rate.min(of_type(device)?.0);
        why = Some("no gang over several types of device was measured".into());
    }
    Ok((rate, why.map_or(Validity::Interpolated, Validity::Extrapolated)))
}

/// The least part of its speed alone that a job keeps beside another, over the types of device of a configuration,
/// where `of_type` gives that on one type; `None` when they cannot share one of them.
///
/// # Errors
///
/// Same errors as `of_type`; also if there is no device.
pub(crate) fn least_kept(
    configuration: &Configuration,
    of_type: impl Fn(&str) -> Result<Option<f64>, PredictError>,
) -> Result<Option<f64>, PredictError> {
    let mut least: Option<f64> = None;
    for group in configuration.devices.iter().filter(|group| group.count > 0) {
        let Some(kept) = of_type(&group.device)? else { return Ok(None) };
        least = Some(least.map_or(kept, |least| least.min(kept)));
    }
    least.map_or_else(|| Err(no_device()), |least| Ok(Some(least)))
}

fn no_device() -> PredictError {
    PredictError::Incomplete("no device is given".into())
}

/// A word that a model has nothing on.
pub(crate) fn not_known<'a>(word: &str, what: &str, known: impl Iterator<Item = &'a str>) -> PredictError {
    PredictError::Unknown(ParseError::one_of(what, word, known).to_string())
}
