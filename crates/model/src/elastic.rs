//! Throughput and goodput of synchronous data-parallel training at any number of devices and any batch.
//!
//! # Model
//!
//! ```text
//! T_grad(b)       = a_c + b_c b                  or as measured by size (`Goodput::with_batch_times`)
//! T_net(1)        = 0
//! T_net(K)        = a_r + b_r max(K - 2, 0)                      all replicas in one node
//!                 = a_n + b_n max(K - 2, 0)                      replicas in several nodes
//! T_iter(K, b, s) = s T_grad + (T_grad^g + T_net^g)^(1/g)
//! throughput      = K b (s + 1) / T_iter
//! phi             = M0 var / sqr
//! efficiency(M)   = (phi + M0) / (phi + M)
//! goodput         = throughput * efficiency(K b (s + 1))
//! ```
//!
//! | symbol | meaning                                                        | unit      |
//! |--------|----------------------------------------------------------------|-----------|
//! | K      | replicas, one per device                                       | 1         |
//! | b      | samples of one micro-batch of one replica                      | samples   |
//! | s      | micro-batches accumulated before the one that is exchanged     | 1         |
//! | a_c    | time of a micro-batch that does not depend on its size         | s         |
//! | b_c    | time of one sample                                             | s/sample  |
//! | a_r, a_n | time of exchanging gradients between two replicas            | s         |
//! | b_r, b_n | and for each further replica                                 | s/replica |
//! | g      | overlap: 1 adds compute and exchange, 10 hides the shorter one | 1         |
//! | M0     | global batch that the job's author chose                       | samples   |
//! | M      | global batch, K b (s + 1)                                      | samples   |
//! | sqr    | squared norm of the mean gradient                              | any u     |
//! | var    | variance of the gradient of a batch M0                         | same u    |
//! | phi    | gradient noise scale                                           | samples   |
//!
//! # Source
//!
//! Qiao et al., Pollux, OSDI 2021, for throughput, goodput and the objective of the fit; McCandlish et al.,
//! arXiv 1812.06162, for the noise scale; Johnson et al., AdaScale SGD, ICML 2020, for the gain of a batch.
//!
//! # Assumes
//!
//! Equal devices, no other traffic on the links, learning rate scaled with the batch by the gain rule. Replicas beyond
//! two slow an exchange linearly; how they are spread over several nodes does not matter.
//!
//! # Valid
//!
//! Within the counts and batches that it was fitted to. Where a part was never observed the fit is
//! optimistic on purpose, so that a scheduler tries what it does not know: see [`fit`].
//!
//! # Checked by
//!
//! `tests/it/elastic_jobs.rs`: [`jobs`] whose batch may change, against the tables that describe them.
//! `tests/it/elastic.rs`: throughput, efficiency and optimum of reference cases to 1e-6, and the objective of
//! the fit on the same measured rows. `tests/it/scaling.rs` checks predictions on rows that were not fitted.
//!
//! ```
//! use bellwether_model::elastic::Throughput;
//! let model = Throughput { alpha_c: 0.1, beta_c: 0.01, alpha_n: 0.4, beta_n: 0.0, alpha_r: 0.2, beta_r: 0.05, gamma: 2.0 };
//! // 4 replicas in one node, 20 samples each: compute 0.3 s, exchange 0.2 + 2 * 0.05 = 0.3 s, so
//! // sqrt(0.09 + 0.09) = 0.424264 s for 80 samples.
//! assert!((model.step_s(1, 4, 20.0, 0) - 0.424264).abs() < 1e-6);
//! assert!((model.examples_per_s(1, 4, 20.0, 0) - 80.0 / 0.424264).abs() < 1e-3);
//! ```

mod fit;
mod fitted;
mod goodput;
pub mod jobs;
mod table;

pub(crate) use fit::{BETWEEN_NODES, GAMMA, LEAST_S, MOST_S, check_rows, mean_step_s};
pub use fit::{Fit, Row, fit, objective};
pub use fitted::{MODEL, predict};
pub use goodput::{BatchLimits, Goodput, Optimum, efficiency, noise_scale};
pub use table::MeasuredTable;

/// The parameters of the throughput model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Seconds of a micro-batch that do not depend on its size.
    pub alpha_c: f64,
    /// Seconds per sample.
    pub beta_c: f64,
    /// Seconds of an exchange between two replicas in different nodes.
    pub alpha_n: f64,
    /// Seconds per replica beyond two, over several nodes.
    pub beta_n: f64,
    /// Seconds of an exchange between two replicas of one node.
    pub alpha_r: f64,
    /// Seconds per replica beyond two, in one node.
    pub beta_r: f64,
    /// Overlap of compute and exchange, 1 to 10.
    pub gamma: f64,
}

impl Throughput {
    /// Seconds of the gradient of one micro-batch of `local_batch` samples.
    pub fn gradient_s(&self, local_batch: f64) -> f64 {
        self.alpha_c + self.beta_c * local_batch
    }

    /// Seconds of an exchange that nothing hides.
    pub fn exchange_s(&self, nodes: u32, replicas: u32) -> f64 {
        let beyond_two = f64::from(replicas.saturating_sub(2));
        match (nodes, replicas) {
            (_, 0 | 1) => 0.0,
            (0 | 1, _) => self.alpha_r + self.beta_r * beyond_two,
            _ => self.alpha_n + self.beta_n * beyond_two,
        }
    }

    /// The same while the links between nodes carry this part of their bandwidth: all of an exchange over several nodes
    /// waits for them.
    pub(crate) fn on_part(self, part: f64) -> Throughput {
        Throughput { alpha_n: self.alpha_n / part, beta_n: self.beta_n / part, ..self }
    }

    /// Seconds of one step of `replicas` replicas, each with `local_batch` samples and
    /// `accumulation_steps` further micro-batches before it.
    pub fn step_s(&self, nodes: u32, replicas: u32, local_batch: f64, accumulation_steps: u32) -> f64 {
        let gradient_s = self.gradient_s(local_batch);
        let exchange_s = self.exchange_s(nodes, replicas);
        f64::from(accumulation_steps) * gradient_s + overlapped(gradient_s, exchange_s, self.gamma)
    }

    /// Samples per second of all replicas together.
    pub fn examples_per_s(
        &self,
        nodes: u32,
        replicas: u32,
        local_batch: f64,
        accumulation_steps: u32,
    ) -> f64 {
        let samples = f64::from(replicas) * local_batch * (f64::from(accumulation_steps) + 1.0);
        samples / self.step_s(nodes, replicas, local_batch, accumulation_steps)
    }
}

/// Time of two activities that overlap in part: `(a^g + b^g)^(1/g)`, without overflow for any g.
pub(crate) fn overlapped(a: f64, b: f64, gamma: f64) -> f64 {
    let (long, short) = if a >= b { (a, b) } else { (b, a) };
    if short <= 0.0 {
        return long;
    }
    long * ((gamma * (short / long).ln()).exp().ln_1p() / gamma).exp()
}
