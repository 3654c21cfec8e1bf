//! Features brought to one size, by what the training samples hold: held-out ones tell nothing of themselves.

use bellwether_core::InputError;
use bellwether_core::job::Normalise;

/// What is taken from each feature, and by what it is divided then. A feature that is the same in all training samples
/// becomes 0.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scaling(Vec<[f64; 2]>);

/// Visits the features of all training samples, in order.
type Visit<'a> = dyn Fn(&mut dyn FnMut(&[f32])) -> Result<(), InputError> + 'a;

impl Scaling {
    /// What brings samples of `width` features to one size; nothing where they stay as they are.
    pub(super) fn of(how: Normalise, width: usize, visit: &Visit<'_>) -> Result<Option<Scaling>, InputError> {
        let middles = match how {
            Normalise::None => return Ok(None),
            Normalise::Range => range(width, visit)?,
            Normalise::Standard => standard(width, visit)?,
        };
        Ok(middles.map(Scaling))
    }

    /// Changes the features of one sample.
    pub(super) fn apply(&self, features: &mut [f32]) {
        for (value, [middle, size]) in features.iter_mut().zip(&self.0) {
            *value = if *size > 0.0 { ((f64::from(*value) - middle) / size) as f32 } else { 0.0 };
        }
    }

    /// Its numbers, as bits.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.0.iter().flatten().map(|number| number.to_bits()).collect()
    }

    /// It from these numbers, if they are as many as `width` features need.
    pub(super) fn from_numbers(numbers: &[u64], width: usize) -> Option<Scaling> {
        let (pairs, []) = numbers.as_chunks::<2>() else { return None };
        (pairs.len() == width).then(|| Scaling(pairs.iter().map(|pair| pair.map(f64::from_bits)).collect()))
    }
}

/// Least value of each feature, and how far its largest one is away; nothing without samples.
fn range(width: usize, visit: &Visit<'_>) -> Result<Option<Vec<[f64; 2]>>, InputError> {
    let mut bounds = vec![[f64::MAX, f64::MIN]; width];
    let mut count = 0u64;
    visit(&mut |features| {
        count += 1;
        for (bounds, value) in bounds.iter_mut().zip(features) {
            let value = f64::from(*value);
            *bounds = [bounds[0].min(value), bounds[1].max(value)];
        }
    })?;
    Ok((count > 0).then(|| bounds.into_iter().map(|[low, high]| [low, high - low]).collect()))
}

/// Mean and standard deviation of each feature; nothing without samples. Sums run over the samples in order, so that
/// they are the same bits however the samples are stored.
fn standard(width: usize, visit: &Visit<'_>) -> Result<Option<Vec<[f64; 2]>>, InputError> {
    let (mut means, mut count) = (vec![0.0; width], 0u64);
    visit(&mut |features| {
        count += 1;
        means.iter_mut().zip(features).for_each(|(sum, value)| *sum += f64::from(*value));
    })?;
    if count == 0 {
        return Ok(None);
    }
    means.iter_mut().for_each(|sum| *sum /= count as f64);
    let mut squares = vec![0.0; width];
    visit(&mut |features| {
        for ((sum, mean), value) in squares.iter_mut().zip(&means).zip(features) {
            *sum += (f64::from(*value) - mean).powi(2);
        }
    })?;
    let deviation = |square: f64| (square / count as f64).sqrt();
    Ok(Some(means.into_iter().zip(squares).map(|(mean, square)| [mean, deviation(square)]).collect()))
}
