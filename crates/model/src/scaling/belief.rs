//! What is believed of a job before it is measured.

use bellwether_core::InputError;

use super::form::Form;
use crate::common::check;

/// A number that is believed to be about so much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct About {
    /// What is expected.
    pub mean: f64,
    /// Standard deviation of the belief; positive.
    pub sd: f64,
}

/// What is believed before a job is measured: how networks that were measured elsewhere behaved.
///
/// [`Belief::default`] is what `examples/accuracy_synchronous/main.rs` chooses from all tables of
/// `data/synchronous-scaling/protocol.csv`, and prints. Its errors there are those of beliefs that were chosen without
/// the network, or without the cluster, that they were tested on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Belief {
    /// Exponents of [`Form::Shared`]: u of the replicas in a node, v of the nodes, and w from the third node on.
    pub exponents: [About; 3],
    /// Weight of [`Form::Shared`] in the mean of the laws, 0 to 1; the other laws share the rest equally.
    pub shared_weight: f64,
    /// Deviation of a logarithm where all laws agree and hit rows left out: the interval is `quantile` times the root
    /// of `floor^2 + r^2 + v^2` on either side.
    pub floor: f64,
    /// See [`Belief::floor`].
    pub quantile: f64,
    /// Half of that interval at least, over several nodes where only one was measured.
    pub unmeasured: f64,
}

impl About {
    /// Squared distance of `value`, in standard deviations.
    pub(super) fn misfit(self, value: f64) -> f64 {
        ((value - self.mean) / self.sd).powi(2)
    }
}

impl Belief {
    /// Before any table was seen: nothing is known of the form [`Form::Shared`] but that the replicas of a node share
    /// its link or do not, all laws count the same, and the interval is that of the rows left out.
    pub const VAGUE: Belief = Belief {
        exponents: [About { mean: 0.5, sd: 0.5 }, About { mean: 0.0, sd: 0.5 }, About { mean: 0.0, sd: 0.5 }],
        shared_weight: 0.2,
        floor: 0.05,
        quantile: 2.0,
        unmeasured: 0.5,
    };

    /// Refuses what is not a belief.
    pub(super) fn check(&self) -> Result<(), InputError> {
        const PLACE: &str = "belief";
        for about in self.exponents {
            check::not_positive(PLACE, "the deviation of an exponent", about.sd)?;
            if !about.mean.is_finite() {
                return Err(InputError::new(PLACE, format!("an exponent is about {}", about.mean)));
            }
        }
        if !(0.0..=1.0).contains(&self.shared_weight) {
            let what = format!("the weight of a law is {}", self.shared_weight);
            return Err(InputError::new(PLACE, what).hint("it is between 0 and 1"));
        }
        for width in [self.floor, self.quantile, self.unmeasured] {
            check::negative(PLACE, "the width of an interval", width)?;
        }
        Ok(())
    }

    /// Weight of a law beside the others of `forms`, which is not 0 for all of them.
    pub(super) fn weight(&self, form: Form, forms: &[Form]) -> f64 {
        let of = |form: &Form| match form {
            Form::Shared => self.shared_weight,
            _ => (1.0 - self.shared_weight) / (Form::ALL.len() - 1) as f64,
        };
        let total: f64 = forms.iter().map(of).sum();
        if total > 0.0 { of(&form) / total } else { 1.0 / forms.len() as f64 }
    }
}

impl Default for Belief {
    /// From nine networks in 17 tables on two clusters; the last row of "What is chosen" that the example prints.
    fn default() -> Self {
        Belief {
            exponents: [
                About { mean: 0.311, sd: 0.141 },
                About { mean: 0.270, sd: 0.161 },
                About { mean: -0.283, sd: 0.337 },
            ],
            shared_weight: 0.9,
            floor: 0.05,
            quantile: 2.308,
            unmeasured: 0.908,
        }
    }
}
