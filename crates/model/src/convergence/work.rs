//! The work that a batch size or staleness asks for.

use bellwether_core::error::InputError;

use crate::common::check::not_positive;

/// Steps to a given loss with batches of `batch` samples, where `least_steps` would do with an infinite batch
/// and gradients are applied `staleness` updates after their parameters were read.
pub fn steps_to_target(least_steps: f64, noise_scale: f64, batch: f64, staleness: f64) -> f64 {
    least_steps * (1.0 + staleness + noise_scale / batch)
}

/// Progress of one step of `batch` samples, in steps of `initial` samples.
pub fn gain(noise_scale: f64, initial: f64, batch: f64) -> f64 {
    batch / initial * (noise_scale + initial) / (noise_scale + batch)
}

/// Steps of `batch` samples that make the progress from 0 to `progress`, where the noise scale changes on the way.
///
/// `noise_scales` holds the progress up to which a noise scale holds, and that noise scale, in ascending order; the
/// last one holds for the rest. Progress is counted in steps of `initial` samples. `None` without a noise scale.
pub fn steps_of_progress(
    noise_scales: &[(f64, f64)],
    initial: f64,
    batch: f64,
    progress: f64,
) -> Option<f64> {
    let last = noise_scales.last()?.1;
    let (mut done, mut steps) = (0.0, 0.0);
    for &(end, noise_scale) in noise_scales {
        let end = end.min(progress);
        if end > done {
            steps += (end - done) / gain(noise_scale, initial, batch);
            done = end;
        }
    }
    Some(steps + (progress - done).max(0.0) / gain(last, initial, batch))
}

/// Least steps and noise scale in samples from the steps that several batch sizes took to the same loss:
/// least squares of relative errors of `steps_to_target` without staleness, neither below 0.
///
/// # Errors
///
/// Returns an error for fewer than two different batches, or a number that is not positive.
pub fn fit_steps(measured: &[(f64, f64)]) -> Result<(f64, f64), InputError> {
    let place = "steps by batch";
    for (batch, steps) in measured {
        not_positive(place, "a batch in samples", *batch)?;
        not_positive(place, "the steps that a batch took", *steps)?;
    }
    let different = "give at least two different batches";
    if !measured.iter().any(|(batch, _)| *batch != measured[0].0) {
        return Err(InputError::new(place, "one batch says nothing of others").hint(different));
    }
    // 1 = S_min u + S_min phi v with u = 1/steps, v = 1/(steps batch).
    let mut sums = [0.0; 5];
    for (batch, steps) in measured {
        let (u, v) = (1.0 / steps, 1.0 / (steps * batch));
        for (sum, term) in sums.iter_mut().zip([u * u, u * v, v * v, u, v]) {
            *sum += term;
        }
    }
    let [uu, uv, vv, u, v] = sums;
    let determinant = uu * vv - uv * uv;
    let (least, noise) = ((u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant);
    if !(least.is_finite() && noise.is_finite()) {
        return Err(
            InputError::new(place, "the batches are too near each other to be told apart").hint(different)
        );
    }
    if noise <= 0.0 {
        return Ok((u / uu, 0.0));
    }
    if least <= 0.0 {
        return Err(InputError::new(place, "steps fall faster than batches grow")
            .hint("no noise scale explains that; look for what else changed with the batch"));
    }
    Ok((least, noise / least))
}
