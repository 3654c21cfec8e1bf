//! A choice among regressions by leaving out one group after another, and what it says of the next group.

use bellwether_core::InputError;
use bellwether_des::statistics::mean;

use super::validate::by_group;
use super::{Kernel, LeastSquares, PLACE, SupportVector, SupportVectorParameters, check, check_width};

/// Features and a target, with the group (for example the network) whose rows resemble each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The group.
    pub group: String,
    /// Features, the same in every sample; their units are the caller's.
    pub features: Vec<f64>,
    /// What was measured; positive.
    pub target: f64,
}

/// Whether a number is used as it is, or its logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// As it is.
    Plain,
    /// Its natural logarithm.
    Log,
}

/// How a candidate is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Least squares of the residuals.
    LeastSquares,
    /// Least squares of the residuals divided by the target.
    RelativeLeastSquares,
    /// Support vectors on features and target brought to mean 0 and standard deviation 1.
    SupportVector {
        /// The kernel, in standardised features.
        kernel: Kernel,
        /// Cost.
        cost: f64,
        /// Half width of the zone, in standard deviations of the target.
        epsilon: f64,
    },
}

/// One way to predict the target.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Name for reports.
    pub name: String,
    /// Numbers of the features that it uses.
    pub columns: Vec<usize>,
    /// How features are used.
    pub inputs: Scale,
    /// How the target is used; a prediction is always the target itself.
    pub target: Scale,
    /// How it is fitted.
    pub method: Method,
}

/// A candidate with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Which one.
    pub candidate: Candidate,
    form: Form,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Line(LeastSquares),
    /// The model, mean and deviation of each feature, and of the target.
    Vectors(SupportVector, Vec<(f64, f64)>, (f64, f64)),
}

/// The candidate that predicts left-out groups best, fitted to all groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The fit.
    pub fitted: Fitted,
    /// Mean absolute relative error over the left-out groups.
    pub left_out_error: f64,
    /// `|ln(measured / predicted)|` of each left-out group, ascending; by the candidate that the other groups choose.
    pub left_out_ratios: Vec<f64>,
    /// Smallest and largest value of each feature.
    pub ranges: Vec<(f64, f64)>,
}

impl Scale {
    fn of(self, value: f64) -> Result<f64, InputError> {
        match self {
            Scale::Plain => Ok(value),
            Scale::Log if value > 0.0 => Ok(value.ln()),
            Scale::Log => Err(InputError::new(PLACE, format!("{value} has no logarithm"))
                .hint("take a candidate on the plain scale")),
        }
    }
}

impl Candidate {
    /// Least squares of these features, with features and target on this scale.
    pub fn least_squares(name: &str, columns: &[usize], scale: Scale) -> Candidate {
        Candidate {
            name: name.into(),
            columns: columns.to_vec(),
            inputs: scale,
            target: scale,
            method: Method::LeastSquares,
        }
    }

    fn row(&self, features: &[f64]) -> Result<Vec<f64>, InputError> {
        let of = |column: &usize| {
            let value = features.get(*column).ok_or_else(|| {
                InputError::new(PLACE, format!("there is no feature {column}"))
                    .hint(format!("`{}` needs it", self.name))
            })?;
            self.inputs.of(*value)
        };
        self.columns.iter().map(of).collect()
    }

    /// Fits to `samples`, each as it is.
    ///
    /// # Errors
    ///
    /// Same errors as the methods' own fits; also for a logarithm of what is not positive, or a feature that does not
    /// exist.
    pub fn fit(&self, samples: &[Sample]) -> Result<Fitted, InputError> {
        let rows: Vec<Vec<f64>> = samples.iter().map(|s| self.row(&s.features)).collect::<Result<_, _>>()?;
        let targets: Vec<f64> = samples.iter().map(|s| self.target.of(s.target)).collect::<Result<_, _>>()?;
        let form = match self.method {
            Method::LeastSquares => Form::Line(LeastSquares::fit(&rows, &targets)?),
            Method::RelativeLeastSquares => {
                let factors: Vec<f64> = targets.iter().map(|target| 1.0 / target).collect();
                Form::Line(LeastSquares::fit_weighted(&rows, &targets, &factors)?)
            }
            Method::SupportVector { kernel, cost, epsilon } => {
                let columns = 0..self.columns.len();
                let inputs: Vec<(f64, f64)> =
                    columns.map(|c| moments(&rows.iter().map(|row| row[c]).collect::<Vec<_>>())).collect();
                let output = moments(&targets);
                let rows: Vec<Vec<f64>> = rows.iter().map(|row| standardise(row, &inputs)).collect();
                let targets: Vec<f64> = targets.iter().map(|y| (y - output.0) / output.1).collect();
                let parameters = SupportVectorParameters { kernel, cost, epsilon, tolerance: 1e-4 };
                Form::Vectors(SupportVector::fit(&rows, &targets, parameters)?, inputs, output)
            }
        };
        Ok(Fitted { candidate: self.clone(), form })
    }
}

impl Fitted {
    /// The predicted target.
    ///
    /// # Errors
    ///
    /// Returns an error for a feature that does not exist, or a logarithm of what is not positive.
    pub fn predict(&self, features: &[f64]) -> Result<f64, InputError> {
        let row = self.candidate.row(features)?;
        let value = match &self.form {
            Form::Line(line) => line.predict(&row),
            Form::Vectors(vectors, inputs, output) => {
                output.0 + output.1 * vectors.predict(&standardise(&row, inputs))
            }
        };
        Ok(if self.candidate.target == Scale::Log { value.exp() } else { value })
    }
}

impl Chosen {
    /// The predicted target.
    ///
    /// # Errors
    ///
    /// Same errors as [`Fitted::predict`].
    pub fn predict(&self, features: &[f64]) -> Result<f64, InputError> {
        self.fitted.predict(features)
    }

    /// Prediction and the interval that holds the target of a new group with probability `level`: the
    /// prediction over and times the quantile of the left-out groups' ratios of rank `ceil((n + 1) level)`. Where
    /// n groups are too few for that rank, the largest ratio is taken, and the level is n/(n + 1).
    ///
    /// # Errors
    ///
    /// Same errors as [`Fitted::predict`].
    pub fn interval(&self, features: &[f64], level: f64) -> Result<(f64, f64, f64), InputError> {
        let value = self.predict(features)?;
        let count = self.left_out_ratios.len();
        let rank = (((count + 1) as f64 * level).ceil() as usize).clamp(1, count);
        let ratio = self.left_out_ratios[rank - 1].exp();
        Ok((value, value / ratio, value * ratio))
    }

    /// The number of the first feature that lies outside of those that it was fitted to; `None` where all lie inside.
    pub fn outside(&self, features: &[f64]) -> Option<usize> {
        let mut placed = features.iter().zip(&self.ranges);
        placed.position(|(value, (low, high))| !(*low..=*high).contains(value))
    }

    /// Why the features lie outside of those that it was fitted to; `None` where they lie inside.
    pub fn beyond(&self, features: &[f64]) -> Option<String> {
        let number = self.outside(features)?;
        let (value, (low, high)) = (features[number], self.ranges[number]);
        Some(format!("feature {number} is {value}, and was fitted in {low}..={high}"))
    }
}

/// One sample per group: the mean of its targets, at the features of its first sample.
pub fn group_means(samples: &[Sample]) -> Vec<Sample> {
    let groups: Vec<String> = samples.iter().map(|sample| sample.group.clone()).collect();
    let mean = |rows: &Vec<usize>| {
        let total: f64 = rows.iter().map(|row| samples[*row].target).sum();
        Sample { target: total / rows.len() as f64, ..samples[rows[0]].clone() }
    };
    by_group(&groups).iter().map(mean).collect()
}

/// Pairs (measured, predicted) of each sample, by `candidate` fitted to the samples of all other groups.
///
/// # Errors
///
/// Same errors as [`Candidate::fit`].
pub fn leave_one_group_out(candidate: &Candidate, samples: &[Sample]) -> Result<Vec<(f64, f64)>, InputError> {
    let groups: Vec<String> = samples.iter().map(|sample| sample.group.clone()).collect();
    let mut pairs = Vec::with_capacity(samples.len());
    for rows in by_group(&groups) {
        let left_out = &groups[rows[0]];
        let others: Vec<Sample> = samples.iter().filter(|s| s.group != *left_out).cloned().collect();
        let fitted = candidate.fit(&others)?;
        for row in rows {
            pairs.push((samples[row].target, fitted.predict(&samples[row].features)?));
        }
    }
    Ok(pairs)
}

/// Chooses among `candidates` by the mean absolute relative error over left-out groups (the first of equals),
/// and fits the choice to the means of all groups. Nothing outside of `samples` takes part: to test the choice,
/// leave groups out before the call.
///
/// # Errors
///
/// Returns an error for fewer than three groups, a target that is not positive, samples with different numbers of
/// features, or no candidate that can be fitted.
pub fn choose(samples: &[Sample], candidates: &[Candidate]) -> Result<Chosen, InputError> {
    for sample in samples {
        let place = format!("{PLACE}, `{}`", sample.group);
        check::not_positive(&place, "the target", sample.target)?;
        check_width(&place, samples[0].features.len(), sample.features.len())?;
    }
    let means = group_means(samples);
    if means.len() < 3 {
        let what = format!("{} groups are too few to leave one out", means.len());
        return Err(InputError::new(PLACE, what).hint("three are needed"));
    }
    // Of each candidate its number, and of each group left out the relative error and the logarithmic ratio.
    let mut tried: Vec<(usize, Vec<(f64, f64)>)> = Vec::new();
    let mut last_error = InputError::new(PLACE, "there is no candidate").hint("give at least one");
    for (number, candidate) in candidates.iter().enumerate() {
        let pairs = match leave_one_group_out(candidate, &means) {
            Ok(pairs) => pairs,
            Err(error) => {
                last_error = InputError { place: format!("{}: {}", candidate.name, error.place), ..error };
                continue;
            }
        };
        // A prediction that is not positive has no ratio: such a candidate knows nothing of this target.
        let usable = pairs.iter().all(|(y, f)| f.is_finite() && *f > 0.0 && (f / y).is_finite());
        if usable {
            let of = |(y, f): &(f64, f64)| (((f - y) / y).abs(), (y / f).ln().abs());
            tried.push((number, pairs.iter().map(of).collect()));
        }
    }
    let best = |without: Option<usize>| {
        let error = |(_, groups): &&(usize, Vec<(f64, f64)>)| {
            let kept = groups.iter().enumerate().filter(|(group, _)| Some(*group) != without);
            kept.map(|(_, (relative, _))| relative).sum::<f64>()
        };
        tried.iter().min_by(|one, other| error(one).total_cmp(&error(other)))
    };
    let Some((number, groups)) = best(None) else { return Err(last_error) };
    let (number, left_out_error) =
        (*number, groups.iter().map(|(relative, _)| relative).sum::<f64>() / groups.len() as f64);
    // A group must not have helped to choose the candidate that is tested on it, or its ratio flatters.
    let ratio = |group: usize| best(Some(group)).map(|(_, groups)| groups[group].1);
    let mut left_out_ratios: Vec<f64> = (0..means.len()).filter_map(ratio).collect();
    left_out_ratios.sort_by(f64::total_cmp);
    let range = |column: usize| {
        let values = means.iter().map(|mean| mean.features[column]);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let ranges = (0..means[0].features.len()).map(range).collect();
    Ok(Chosen { fitted: candidates[number].fit(&means)?, left_out_error, left_out_ratios, ranges })
}

/// Mean and standard deviation; 1 where all values are equal, so that they become 0.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
}

fn standardise(row: &[f64], moments: &[(f64, f64)]) -> Vec<f64> {
    row.iter().zip(moments).map(|(value, (mean, deviation))| (value - mean) / deviation).collect()
}
