//! Laws from which a number is drawn.

use bellwether_core::InputError;
use bellwether_core::units::Seconds;
use bellwether_des::random::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number, or a time with its unit, which is seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Written", into = "f64")]
#[schemars(with = "Written")]
pub struct Amount(pub f64);

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a time with its unit as in \"2h\"")]
enum Written {
    Number(f64),
    Time(Seconds),
}

impl From<Written> for Amount {
    fn from(written: Written) -> Amount {
        match written {
            Written::Number(number) => Amount(number),
            Written::Time(time) => Amount(time.get()),
        }
    }
}

impl From<Amount> for f64 {
    fn from(amount: Amount) -> f64 {
        amount.0
    }
}

/// A law of positive numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Law {
    /// Always the same.
    Fixed {
        /// What.
        value: Amount,
    },
    /// Each number between two alike.
    Uniform {
        /// The smallest.
        least: Amount,
        /// The largest.
        most: Amount,
    },
    /// Without memory.
    Exponential {
        /// Its mean.
        mean: Amount,
    },
    /// The logarithm is normal.
    Lognormal {
        /// Mean of the number itself.
        mean: Amount,
        /// Its standard deviation over its mean.
        variation: f64,
    },
    /// One of several exponential laws.
    HyperExponential {
        /// How often each of them, relative to the others.
        shares: Vec<f64>,
        /// Their means.
        means: Vec<Amount>,
    },
    /// A power law between two ends.
    BoundedPareto {
        /// The smallest.
        least: Amount,
        /// The largest.
        most: Amount,
        /// The exponent of the tail.
        shape: f64,
    },
    /// One of these, each as likely.
    Samples {
        /// What was seen.
        values: Vec<Amount>,
    },
}

impl Law {
    /// Whether numbers can be drawn; `key` names the law in the error.
    pub(super) fn check(&self, key: &str) -> Result<(), InputError> {
        let proper = |number: f64| number.is_finite() && number > 0.0 && number <= 1e12;
        let between = |least: &Amount, most: &Amount| proper(least.0) && proper(most.0) && least < most;
        let (fine, needed) = match self {
            Law::Fixed { value } => (proper(value.0), "a positive value"),
            Law::Exponential { mean } => (proper(mean.0), "a positive mean"),
            Law::Uniform { least, most } => (between(least, most), "a positive `least` and a larger `most`"),
            Law::Lognormal { mean, variation } => {
                (proper(mean.0) && (0.0..=1e12).contains(variation), "a positive mean and variation")
            }
            Law::HyperExponential { shares, means } => {
                let alike = shares.len() == means.len() && shares.iter().sum::<f64>() > 0.0;
                let shares = shares.iter().all(|share| share.is_finite() && *share >= 0.0);
                (
                    alike && shares && means.iter().all(|mean| proper(mean.0)),
                    "as many shares as positive means",
                )
            }
            Law::BoundedPareto { least, most, shape } => {
                let fine = between(least, most) && (1e-3..=1e3).contains(shape);
                (fine, "a positive `least`, a larger `most`, and a positive shape")
            }
            // A trace may hold jobs of no duration.
            Law::Samples { values } => {
                let fine = values.iter().all(|value| value.0 == 0.0 || proper(value.0));
                (fine && values.iter().any(|value| value.0 > 0.0), "values of which one is positive")
            }
        };
        if fine { Ok(()) } else { Err(InputError::new(key, format!("the law needs {needed}, up to 1e12"))) }
    }

    /// The mean.
    pub(super) fn mean(&self) -> f64 {
        match self {
            Law::Fixed { value } => value.0,
            Law::Uniform { least, most } => f64::midpoint(least.0, most.0),
            Law::Exponential { mean } | Law::Lognormal { mean, .. } => mean.0,
            Law::HyperExponential { shares, means } => {
                let weighted: f64 = shares.iter().zip(means).map(|(share, mean)| share * mean.0).sum();
                weighted / shares.iter().sum::<f64>()
            }
            Law::BoundedPareto { least, most, shape } => {
                let ratio = libm::log(most.0 / least.0);
                // The integral of x^-shape over [1, most / least], which at shape 1 is a logarithm.
                let integral = match 1.0 - shape {
                    power if (power * ratio).abs() < 1e-9 => ratio,
                    power => libm::expm1(power * ratio) / power,
                };
                least.0 * shape * integral / -libm::expm1(-shape * ratio)
            }
            Law::Samples { values } => values.iter().map(|value| value.0).sum::<f64>() / values.len() as f64,
        }
    }

    /// Draws a number. Both streams move by one number, whatever the law.
    pub(super) fn draw(&self, stream: &mut Stream, branches: &mut Stream) -> f64 {
        let branch = branches.uniform();
        match self {
            Law::Fixed { value } => {
                stream.uniform();
                value.0
            }
            Law::Uniform { least, most } => stream.uniform_in(least.0, most.0),
            Law::Exponential { mean } => stream.exponential(mean.0),
            Law::Lognormal { mean, variation } => stream.lognormal(mean.0, *variation),
            Law::HyperExponential { shares, means } => stream.exponential(means[chosen(shares, branch)].0),
            Law::BoundedPareto { least, most, shape } => {
                let tail = libm::expm1(-shape * libm::log(most.0 / least.0));
                (least.0 * libm::exp(-libm::log1p(stream.uniform() * tail) / shape)).clamp(least.0, most.0)
            }
            Law::Samples { values } => stream.choice(values).0,
        }
    }
}

/// The share into which a number between 0 and 1 falls when the shares are laid out in a row.
pub(super) fn chosen(shares: &[f64], at: f64) -> usize {
    let mut left = at * shares.iter().sum::<f64>();
    for (index, share) in shares.iter().enumerate() {
        left -= share;
        if left < 0.0 {
            return index;
        }
    }
    shares.iter().rposition(|share| *share > 0.0).unwrap_or(0)
}
