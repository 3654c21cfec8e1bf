//! Every combination of values, in order: the last key changes fastest, and a key that is not active has no values.

use bellwether_core::sweep::{Domain, Sample, Space, Value};

use super::scale;

/// The values of a key on a grid, in order.
pub fn values(domain: &Domain) -> Vec<Value> {
    let spread = |points: u32| {
        let (from, to) = match domain {
            Domain::Integer { low, high, .. } => (*low as f64, *high as f64),
            Domain::Real { low, high, .. } => (*low, *high),
            Domain::Steps { .. } | Domain::Choice(_) => (0.0, 0.0),
        };
        let (from, to) = (scale::inner(domain, from), scale::inner(domain, to));
        let place = move |point: u32| from + (to - from) * f64::from(point) / f64::from(points.max(2) - 1);
        let mut values: Vec<Value> = (0..points).map(|point| scale::value(domain, place(point))).collect();
        // Few integers have no room for many points.
        values.dedup();
        values
    };
    match domain {
        Domain::Real { points, .. } => spread(points.unwrap_or(2)),
        Domain::Integer { points: Some(points), .. } => spread(*points),
        Domain::Integer { low, high, step, .. } => {
            (0..=(high - low) / step).map(|k| Value::Integer(low + k * step)).collect()
        }
        Domain::Steps { low, step, steps } => {
            (0..=*steps).map(|k| scale::value(domain, low + f64::from(k) * step)).collect()
        }
        Domain::Choice(choices) => choices.clone(),
    }
}

/// All samples.
pub fn all(space: &Space) -> Vec<Sample> {
    let mut samples = vec![Sample::new()];
    for parameter in &space.parameters {
        let values = values(&parameter.domain);
        samples = samples
            .into_iter()
            .flat_map(|sample| {
                if !parameter.is_active(&sample) {
                    return vec![sample];
                }
                let with = |value: &Value| {
                    let mut sample = sample.clone();
                    sample.insert(parameter.key.clone(), value.clone());
                    sample
                };
                values.iter().map(with).collect()
            })
            .collect();
    }
    samples
}
