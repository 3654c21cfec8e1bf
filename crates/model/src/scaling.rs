//! Throughput of synchronous training at counts of devices that were not measured, from a handful that were.
//!
//! # Model
//!
//! Several laws are fitted to the same rows, and the prediction is their weighted geometric mean: the few rows do not
//! tell which law holds, and where the laws part the prediction is less sure.
//!
//! ```text
//! T_grad(b) = a_c + b_c b
//! T_net     = 0                                                              one replica
//!           = a + b (K - 2)                                                  replicas
//!           = a 2 (K - 1)/K + b (K - 1)                                      ring
//!           = a + b ln(K/2)                                                  logarithm
//!           = a_r 2 (k - 1)/k + b_r (k - 1) + a_n 2 (N - 1)/N + b_n (N - 1)  hierarchy, k = K/N rounded up
//!           = a_r 2 (K - 1)/K + b_r (K - 1)                                  shared, one node
//!           = a_n (K/N)^u (N/2)^v e^(w [N > 2])                              shared, several nodes
//! T         = s T_grad + (T_grad^g + T_net^g)^(1/g)
//! ln T~     = weighted mean over the laws of ln T
//! interval  = T~ exp(-+ q sqrt(f^2 + r^2 + v^2))
//! ```
//!
//! | symbol | meaning                                                               | unit     |
//! |--------|-----------------------------------------------------------------------|----------|
//! | K, N   | replicas, nodes that hold them                                        | 1        |
//! | b      | samples of a micro-batch of one replica                               | samples  |
//! | s      | micro-batches accumulated before the exchanged one                    | 1        |
//! | a, b   | parameters of an exchange: a_r, b_r in a node, a_n, b_n over nodes    | s        |
//! | u, v, w | exponents of `shared`: replicas that share a node's link, nodes, the third node | 1 |
//! | a_c, b_c | parameters of the gradient                                          | s, s/sample |
//! | g      | overlap of gradient and exchange, 1 to 10                             | 1        |
//! | r      | root mean square of the cross-validated errors of ln T~               | 1        |
//! | v (of the interval) | standard deviation of ln T over the laws                 | 1        |
//! | q, f   | quantile and floor of the interval, see [`Belief`]                    | 1        |
//!
//! A law's parameters minimise `sum huber(ln(T/measured)/0.05) + ((g - 1)/2)^2 + ((b_r/a_r)^2 + (b_n/a_n)^2)/0.3^2`,
//! where the sum has a second term for the gradient time of rows that measured it; for `shared` also the squared
//! distance of u, v and w from what [`Belief`] expects, in its standard deviations. Beliefs matter where the rows leave
//! parameters open: those about u, v and w do nearly always, as few jobs are measured on several kinds of placement.
//!
//! # Source
//!
//! Qiao et al., Pollux, OSDI 2021, for the law in replicas and the overlap; Patarasuk and Yuan, J. Parallel
//! Distrib. Comput. 69(2), 2009, for the ring; the logarithm is the cost of a tree, and of the largest of K
//! exponential delays (Renyi 1953). Huber, Ann. Math. Stat. 35, 1964. The law `shared`, the expected exponents and the
//! quantile are this project's own, from the tables of `data/synchronous-scaling`. Quantiles of what was left out:
//! Barber et al., Ann. Stat. 49, 2021.
//!
//! # Assumes
//!
//! Equal devices and no other traffic on the links. Links enter only by what was measured on them.
//!
//! # Valid
//!
//! Between the smallest and the largest count and local batch that were measured, each kind of placement (in a
//! node, over nodes) for itself; elsewhere a prediction is marked as extrapolated. Public tables hold single
//! placements that no law follows, by a third and more: see `docs/accuracy.md`. The interval is calibrated on networks
//! that were left out, of two clusters; on a cluster of another kind it may hold much less often. Where only one node
//! was measured, the interval over several is at least as wide as that was off on these tables.
//!
//! # Checked by
//!
//! `tests/it/scaling.rs`, on rows that were not fitted: 13 tables of ElasticFlow and 4 of Pollux, against linear
//! scaling and log-log interpolation; coverage of the intervals; recovery of exact laws.
//! `examples/accuracy_synchronous/main.rs` prints the figures.
//!
//! ```
//! use bellwether_model::{elastic::Row, scaling::Scaling};
//! // Steps of 1 s for 100 samples, and no exchange: two replicas do it in half the time.
//! let row = |replicas, local_batch, step_s| Row { nodes: 1, replicas, local_batch, step_s, exchange_s: None };
//! let rows = [row(1, 100.0, 1.0), row(1, 200.0, 2.0), row(4, 25.0, 0.25), row(4, 50.0, 0.5)];
//! let forecast = Scaling::fit(&rows).expect("the rows are good").predict(1, 2, 50.0, 0);
//! assert!((forecast.step_s - 0.5).abs() < 1e-3 && (forecast.examples_per_s - 200.0).abs() < 0.5);
//! ```

mod baseline;
mod belief;
mod fit;
mod fitted;
mod form;
mod validity;

use bellwether_core::error::InputError;
use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, PredictError, Prediction, Protocol, StepModel, Validity,
};
use bellwether_des::statistics::student_quantile;

pub use baseline::{linear_scaling_s, log_log};
pub use belief::{About, Belief};
pub use fitted::MODEL;
pub use form::Form;

use crate::common::SPREAD_MAX;
use crate::elastic::{self, Row, check_rows};
use fit::Observed;
use form::Law;
use validity::Ranges;

/// Rows are left out in at most this many groups.
const FOLDS: usize = 8;
/// Error that is believed when no row can be left out: about what the public tables show.
const UNTESTED_SD: f64 = 0.15;

/// A fitted model of synchronous scaling.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    laws: Vec<Law>,
    /// Root mean square of the cross-validated logarithmic errors.
    residual_sd: f64,
    interval: Interval,
    ranges: Ranges,
    relative_residuals: Vec<f64>,
    /// Gradient noise scale in samples, when it is known.
    noise_scale: Option<f64>,
}

/// How wide the interval is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Interval {
    /// Student's, with as many degrees of freedom as counts were left out: files of earlier versions.
    Student { freedom: u32 },
    /// As [`Belief`] has it.
    Calibrated { floor: f64, quantile: f64, unmeasured: f64 },
}

/// What the model says of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Seconds of a step.
    pub step_s: f64,
    /// Samples per second of all replicas together.
    pub examples_per_s: f64,
    /// Ends of the 95 % interval of `examples_per_s`.
    pub interval: (f64, f64),
    /// What takes longer, alone.
    pub bottleneck: Bottleneck,
    /// Whether rows were measured around it.
    pub validity: Validity,
}

impl Scaling {
    /// Fits all laws to rows without accumulation, and tests them on rows left out.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no rows, or for an invalid one: no replica, a time or batch that is not positive.
    pub fn fit(rows: &[Row]) -> Result<Scaling, InputError> {
        Scaling::fit_believing(rows, &Form::ALL, &Belief::default())
    }

    /// The same with some of the laws only.
    ///
    /// # Errors
    ///
    /// Same errors as [`Scaling::fit`]; also if there is no law at all.
    pub fn fit_forms(rows: &[Row], forms: &[Form]) -> Result<Scaling, InputError> {
        Scaling::fit_believing(rows, forms, &Belief::default())
    }

    /// The same with other beliefs: to test what was chosen from some tables on others.
    ///
    /// # Errors
    ///
    /// Same errors as [`Scaling::fit_forms`]; also for a belief that is not a distribution, a weight outside 0 to 1, or
    /// an interval that is not finite.
    pub fn fit_believing(rows: &[Row], forms: &[Form], belief: &Belief) -> Result<Scaling, InputError> {
        check_rows(rows)?;
        belief.check()?;
        if forms.is_empty() {
            return Err(InputError::new("laws", "there are none").hint("give at least one"));
        }
        let weighted =
            |&form: &Form| Law { weight: belief.weight(form, forms), ..fit::fit(form, rows, belief, None) };
        let laws: Vec<Law> = forms.iter().map(weighted).collect();
        let residual_sd = cross_validate(&laws, rows, belief);
        let residual =
            |row: &Row| row.step_s / mean_step_s(&laws, row.nodes, row.replicas, row.local_batch, 0).0 - 1.0;
        let relative_residuals = rows.iter().map(residual).collect();
        let ranges = Ranges::of(rows);
        let &Belief { floor, quantile, unmeasured, .. } = belief;
        let interval = Interval::Calibrated { floor, quantile, unmeasured };
        Ok(Scaling { laws, residual_sd, interval, ranges, relative_residuals, noise_scale: None })
    }

    /// The same model for a job whose gradient noise scale is known, in samples.
    #[must_use]
    pub fn with_noise_scale(mut self, noise_scale: f64) -> Scaling {
        self.noise_scale = Some(noise_scale);
        self
    }

    /// What a step of `replicas` replicas on `nodes` nodes takes, each with `local_batch` samples in a
    /// micro-batch and `accumulation_steps` micro-batches before the exchanged one.
    pub fn predict(&self, nodes: u32, replicas: u32, local_batch: f64, accumulation_steps: u32) -> Forecast {
        let (step_s, spread) = mean_step_s(&self.laws, nodes, replicas, local_batch, accumulation_steps);
        let half = self.half_width(nodes, spread).min(SPREAD_MAX);
        let examples = f64::from(replicas) * local_batch * (f64::from(accumulation_steps) + 1.0);
        let examples_per_s = examples / step_s;
        let bound_by_link = |law: &&Law| law.exchange_s(nodes, replicas) > law.gradient_s(local_batch);
        let links: f64 = self.laws.iter().filter(bound_by_link).map(|law| law.weight).sum();
        Forecast {
            step_s,
            examples_per_s,
            interval: (examples_per_s * (-half).exp(), examples_per_s * half.exp()),
            bottleneck: if 2.0 * links > 1.0 { Bottleneck::Link } else { Bottleneck::Compute },
            validity: self.ranges.validity(nodes, replicas, local_batch),
        }
    }

    /// Half of the interval of the logarithm where the laws differ by `spread`.
    fn half_width(&self, nodes: u32, spread: f64) -> f64 {
        match self.interval {
            Interval::Student { freedom } => {
                let count = self.laws.len() as f64;
                let spread = spread * (count / (count - 1.0).max(1.0)).sqrt();
                student_quantile(0.975, f64::from(freedom.max(1))) * self.residual_sd.hypot(spread)
            }
            Interval::Calibrated { floor, quantile, unmeasured } => {
                let half = quantile * floor.hypot(self.residual_sd).hypot(spread);
                let is_unmeasured = nodes > 1 && self.ranges.over_nodes.1 == 0;
                if is_unmeasured { half.max(unmeasured) } else { half }
            }
        }
    }

    /// Exponents of [`Form::Shared`], in the order of [`Belief::exponents`]; `None` without that law.
    pub fn exponents(&self) -> Option<[f64; 3]> {
        self.laws.iter().find(|law| law.form == Form::Shared).map(|law| law.exponents)
    }

    /// Mean absolute relative error of the step times that the model was fitted to.
    pub fn mean_absolute_residual(&self) -> f64 {
        let count = self.relative_residuals.len().max(1) as f64;
        self.relative_residuals.iter().map(|residual| residual.abs()).sum::<f64>() / count
    }

    /// Root mean square of the logarithmic errors of rows that were left out, one group after another.
    pub fn cross_validated_error(&self) -> f64 {
        self.residual_sd
    }
}

impl StepModel for Scaling {
    fn predict(
        &self,
        _job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let replicas = configuration.workers();
        if configuration.protocol != Protocol::Bsp || configuration.servers > 0 {
            let why = "this model knows only synchronous training without parameter servers";
            return Err(PredictError::Unsupported(why.into()));
        }
        if replicas == 0 || configuration.batch == 0 || configuration.accumulation == 0 {
            let why = "no device, no sample or no micro-batch: give at least one of each";
            return Err(PredictError::Incomplete(why.into()));
        }
        if !configuration.shared_with.is_empty() {
            let why = "this model was measured on devices that no other job used";
            return Err(PredictError::Unsupported(why.into()));
        }
        let mut used =
            configuration.devices.iter().filter(|group| group.count > 0).map(|group| &group.device);
        let first = used.next();
        if used.any(|device| Some(device) != first) {
            let why = "this model was measured on equal devices; the configuration mixes types";
            return Err(PredictError::Unsupported(why.into()));
        }
        let pieces = f64::from(replicas) * f64::from(configuration.accumulation);
        let local_batch = configuration.batch as f64 / pieces;
        let forecast =
            self.predict(configuration.nodes(), replicas, local_batch, configuration.accumulation - 1);
        Ok(Prediction {
            examples_per_s: forecast.examples_per_s,
            low: forecast.interval.0,
            high: forecast.interval.1,
            step_s: forecast.step_s,
            bottleneck: forecast.bottleneck,
            validity: forecast.validity,
        })
    }

    fn efficiency(&self, job: &JobDescription, batch: u64, _progress: f64) -> f64 {
        self.noise_scale.map_or(1.0, |scale| elastic::efficiency(scale, job.batch as f64, batch as f64))
    }
}

/// Weighted geometric mean of the laws' step times, and the standard deviation of their logarithms.
fn mean_step_s(
    laws: &[Law],
    nodes: u32,
    replicas: u32,
    local_batch: f64,
    accumulation_steps: u32,
) -> (f64, f64) {
    let ln_s = |law: &Law| law.step_s(nodes, replicas, local_batch, accumulation_steps).ln();
    let mean = laws.iter().map(|law| law.weight * ln_s(law)).sum::<f64>();
    let squares = laws.iter().map(|law| law.weight * (ln_s(law) - mean).powi(2)).sum::<f64>();
    (mean.exp(), squares.sqrt())
}

/// Root mean square of the logarithmic errors of rows left out in turn. A group is not left out when nothing else
/// observes what it observes.
fn cross_validate(laws: &[Law], rows: &[Row], belief: &Belief) -> f64 {
    let observed = Observed::of(rows);
    let folds = rows.len().min(FOLDS);
    let (mut squares, mut count) = (0.0, 0_u32);
    for fold in 0..folds {
        let part = |left_out: bool| -> Vec<Row> {
            let chosen = rows.iter().enumerate().filter(|(index, _)| (index % folds == fold) == left_out);
            chosen.map(|(_, row)| *row).collect()
        };
        let (kept, out) = (part(false), part(true));
        if kept.is_empty() || Observed::of(&kept) != observed {
            continue;
        }
        let refit = |law: &Law| Law { weight: law.weight, ..fit::fit(law.form, &kept, belief, Some(law)) };
        let refitted: Vec<Law> = laws.iter().map(refit).collect();
        for row in &out {
            let step_s = mean_step_s(&refitted, row.nodes, row.replicas, row.local_batch, 0).0;
            squares += (step_s / row.step_s).ln().powi(2);
            count += 1;
        }
    }
    if count == 0 { UNTESTED_SD } else { (squares / f64::from(count)).sqrt() }
}
