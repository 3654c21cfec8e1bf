//! What an evaluation says of a model: intervals, classes, and which class is taken for which.

use bellwether_runtime::workload::{Evaluation, Examined};
use serde::Serialize;

/// Standard deviations of a 95 % interval of a normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// Most classes that are compared one by one.
const CLASSES_MAX: usize = 200;

/// All that is known of the held-out samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Metrics {
    pub(super) samples: u64,
    pub(super) loss: f64,
    pub(super) loss_interval: Option<[f64; 2]>,
    pub(super) predictions: u64,
    pub(super) correct: u64,
    pub(super) accuracy: Option<f64>,
    pub(super) accuracy_interval: Option<[f64; 2]>,
    /// exp(loss) of a text.
    pub(super) perplexity: Option<f64>,
    pub(super) perplexity_interval: Option<[f64; 2]>,
    pub(super) classes: Vec<Class>,
    /// Rows by what is right, columns by what is predicted.
    pub(super) confusion: Vec<Vec<u64>>,
}

/// How well one class is told from the others; nothing where there is nothing to be part of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Class {
    pub(super) name: String,
    /// Of those that were predicted to be of it, the share that is.
    pub(super) precision: Option<f64>,
    /// Of those that are of it, the share that was found.
    pub(super) recall: Option<f64>,
    /// The harmonic mean of both.
    pub(super) f1: Option<f64>,
    /// Samples of it.
    pub(super) samples: u64,
}

/// Metrics of the sums over `samples` samples, and of each prediction where those are known.
///
/// `names`: of a classifier those of its classes, of a text none.
pub(super) fn metrics(sums: Evaluation, samples: u64, examined: &[Examined], names: &[String]) -> Metrics {
    let Evaluation { loss_sum, correct, predictions } = sums;
    let loss = loss_sum / samples as f64;
    let loss_interval = interval(loss, &sample_losses(examined, samples));
    let is_text = names.is_empty() && !examined.is_empty();
    let confusion = if is_text { Vec::new() } else { confusion(examined, names.len()) };
    Metrics {
        samples,
        loss,
        loss_interval,
        predictions,
        correct,
        accuracy: (predictions > 0).then(|| correct as f64 / predictions as f64),
        accuracy_interval: wilson(correct, predictions),
        perplexity: is_text.then(|| loss.exp()),
        perplexity_interval: loss_interval.filter(|_| is_text).map(|ends| ends.map(f64::exp)),
        classes: classes(&confusion, names),
        confusion,
    }
}

/// The mean loss of each sample's predictions.
fn sample_losses(examined: &[Examined], samples: u64) -> Vec<f64> {
    let each =
        usize::try_from(samples).ok().and_then(|samples| examined.len().checked_div(samples)).unwrap_or(0);
    let mean = |predictions: &[Examined]| predictions.iter().map(|one| one.loss).sum::<f64>() / each as f64;
    if each == 0 { Vec::new() } else { examined.chunks_exact(each).map(mean).collect() }
}

/// A normal 95 % interval around the mean of values; none of fewer than two.
fn interval(mean: f64, values: &[f64]) -> Option<[f64; 2]> {
    let count = values.len() as f64;
    if count < 2.0 {
        return None;
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = Z95 * (variance / count).sqrt();
    Some([mean - half, mean + half])
}

/// Wilson's 95 % interval of a share (Wilson 1927); none of nothing.
pub(super) fn wilson(part: u64, all: u64) -> Option<[f64; 2]> {
    if all == 0 {
        return None;
    }
    let (n, p) = (all as f64, part as f64 / all as f64);
    let scale = 1.0 / (1.0 + Z95 * Z95 / n);
    let centre = scale * (p + Z95 * Z95 / (2.0 * n));
    let half = scale * Z95 * (p * (1.0 - p) / n + Z95 * Z95 / (4.0 * n * n)).sqrt();
    Some([(centre - half).max(0.0), (centre + half).min(1.0)])
}

fn confusion(examined: &[Examined], classes: usize) -> Vec<Vec<u64>> {
    if classes > CLASSES_MAX || examined.is_empty() {
        return Vec::new();
    }
    let mut matrix = vec![vec![0; classes]; classes];
    for Examined { target, predicted, .. } in examined {
        if let Some(cell) = matrix.get_mut(*target as usize).and_then(|row| row.get_mut(*predicted as usize))
        {
            *cell += 1;
        }
    }
    matrix
}

fn classes(confusion: &[Vec<u64>], names: &[String]) -> Vec<Class> {
    let class = |(place, row): (usize, &Vec<u64>)| {
        let (right, samples) = (row[place], row.iter().sum::<u64>());
        let predicted: u64 = confusion.iter().map(|row| row[place]).sum();
        let share = |all: u64| (all > 0).then(|| right as f64 / all as f64);
        // 2PR/(P+R) without the division by what may be nothing.
        let f1 = (samples + predicted > 0).then(|| 2.0 * right as f64 / (samples + predicted) as f64);
        Class { name: names[place].clone(), precision: share(predicted), recall: share(samples), f1, samples }
    };
    confusion.iter().enumerate().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(target: u32, predicted: u32, loss: f64) -> Examined {
        Examined { loss, target, predicted }
    }

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // 81 of 263: 0.2553 to 0.3662 (Newcombe 1998, Statistics in Medicine 17, table I, method 3).
        let [low, high] = wilson(81, 263).expect("there are some");
        assert!((low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5, "{low} {high}");
        // 0 of 20: 0 to 0.1611.
        let [low, high] = wilson(0, 20).expect("there are some");
        assert!(low == 0.0 && (high - 0.1611).abs() < 5e-5, "{low} {high}");
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn classes_are_counted_by_hand() {
        let examined = [one(0, 0, 0.1), one(0, 1, 2.0), one(1, 1, 0.3), one(1, 1, 0.4)];
        let sums = Evaluation { loss_sum: 2.8, correct: 3, predictions: 4 };
        let found = metrics(sums, 4, &examined, &["a".into(), "b".into(), "c".into()]);
        assert_eq!(found.confusion, [[1, 1, 0], [0, 2, 0], [0, 0, 0]]);
        let [a, b, c] = &found.classes[..] else { panic!("three classes") };
        assert_eq!((a.precision, a.recall, a.f1, a.samples), (Some(1.0), Some(0.5), Some(2.0 / 3.0), 2));
        assert_eq!((b.precision, b.recall, b.f1), (Some(2.0 / 3.0), Some(1.0), Some(0.8)));
        assert_eq!((c.precision, c.recall, c.f1, c.samples), (None, None, None, 0));
        // Mean 0.7; squares of the differences 0.36, 1.69, 0.16, 0.09: variance 2.3 / 3, half 1.96 · 0.43780.
        let [low, high] = found.loss_interval.expect("four samples");
        assert!((0.7 - low - 0.858_07).abs() < 1e-4 && (high - 0.7 - 0.858_07).abs() < 1e-4, "{low} {high}");
        assert_eq!((found.accuracy, found.perplexity), (Some(0.75), None));
    }

    #[test]
    fn a_text_has_a_perplexity_of_its_windows() {
        // Two windows of two bytes; the interval is of windows, whose bytes depend on each other.
        let examined = [one(1, 1, 1.0), one(2, 2, 1.0), one(3, 3, 3.0), one(4, 4, 3.0)];
        let sums = Evaluation { loss_sum: 4.0, correct: 4, predictions: 4 };
        let found = metrics(sums, 2, &examined, &[]);
        assert_eq!((found.loss, found.perplexity), (2.0, Some(2f64.exp())));
        let [low, _] = found.loss_interval.expect("two windows");
        assert!((2.0 - low - Z95).abs() < 1e-12, "{low}");
        assert!(found.confusion.is_empty() && found.classes.is_empty());
    }

    #[test]
    fn sums_alone_have_no_interval_of_the_loss() {
        let found = metrics(Evaluation { loss_sum: 5.0, correct: 0, predictions: 0 }, 10, &[], &[]);
        assert_eq!(
            (found.loss, found.loss_interval, found.accuracy, found.perplexity),
            (0.5, None, None, None)
        );
    }
}
