//! Values of keys on a scale from 0 to 1.

use bellwether_core::sweep::{Domain, Sample, Space, Value};

/// Significant digits of numbers that are drawn: people copy them, and every one of them reads back as itself.
const DIGITS: usize = 6;

/// A number with `digits` significant digits.
fn rounded(number: f64, digits: usize) -> f64 {
    format!("{number:.*e}", digits - 1).parse().unwrap_or(number)
}

/// The range of a numeric domain where equal distances are equally likely; integers have half a step on either side.
/// `None` for choices.
pub(super) fn range(domain: &Domain) -> Option<(f64, f64)> {
    Some(match domain {
        Domain::Choice(_) => return None,
        Domain::Real { low, high, .. } => (inner(domain, *low), inner(domain, *high)),
        Domain::Integer { low, high, step, .. } => {
            let half = *step as f64 / 2.0;
            (inner(domain, *low as f64 - half), inner(domain, *high as f64 + half))
        }
        Domain::Steps { low, step, steps } => (low - step / 2.0, low + (f64::from(*steps) + 0.5) * step),
    })
}

/// The place of a number on that scale.
pub(super) fn inner(domain: &Domain, number: f64) -> f64 {
    match domain {
        Domain::Real { log: true, .. } | Domain::Integer { log: true, .. } => libm::log(number),
        _ => number,
    }
}

/// The values that are one, as ends on that scale; equal ends where values are a continuum.
pub(super) fn cell(domain: &Domain, number: f64) -> (f64, f64) {
    let half = match domain {
        Domain::Integer { step, .. } => *step as f64 / 2.0,
        Domain::Steps { step, .. } => step / 2.0,
        Domain::Real { .. } | Domain::Choice(_) => 0.0,
    };
    (inner(domain, number - half), inner(domain, number + half))
}

/// The value nearest to a place on that scale.
pub(super) fn value(domain: &Domain, place: f64) -> Value {
    match domain {
        Domain::Real { low, high, log, .. } => {
            let number = if *log { libm::exp(place) } else { place };
            Value::Number(rounded(number, DIGITS).clamp(*low, *high))
        }
        Domain::Integer { low, high, step, log, .. } => {
            let number = if *log { libm::exp(place) } else { place };
            let steps = ((number - *low as f64) / *step as f64).round().max(0.0);
            let most = (high - low) / step;
            Value::Integer(low + (steps as i64).min(most) * step)
        }
        Domain::Steps { low, step, steps } => {
            let number = ((place - low) / step).round().clamp(0.0, f64::from(*steps));
            Value::Number(rounded(low + number * step, 2 * DIGITS))
        }
        Domain::Choice(choices) => choices[(place as usize).min(choices.len() - 1)].clone(),
    }
}

/// The value at a share 0 ≤ u < 1 of the domain.
pub(super) fn at(domain: &Domain, u: f64) -> Value {
    match (range(domain), domain) {
        (Some((from, to)), _) => value(domain, from + u * (to - from)),
        (None, Domain::Choice(choices)) => value(domain, (u * choices.len() as f64).floor()),
        (None, _) => value(domain, u),
    }
}

/// A sample whose active keys have the values at the shares that `share` says: by the place of the key, and the keys
/// before it.
pub(super) fn sample(space: &Space, mut share: impl FnMut(usize, &Sample) -> f64) -> Sample {
    let mut sample = Sample::new();
    for (place, parameter) in space.parameters.iter().enumerate() {
        if parameter.is_active(&sample) {
            let value = at(&parameter.domain, share(place, &sample));
            sample.insert(parameter.key.clone(), value);
        }
    }
    sample
}
