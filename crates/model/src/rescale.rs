//! What another number of workers would do, from the first steps of a run.
//!
//! # Model
//!
//! ```text
//! T(W) = (n(W) c + x(W) / x(W0) e) s(W) / s(W0) + u + r
//! ```
//!
//! | symbol  | meaning                                                                      | unit |
//! |---------|------------------------------------------------------------------------------|------|
//! | T(W)    | mean step with W workers                                                     | s    |
//! | W0      | workers of the observed steps                                                | 1    |
//! | n(W)    | virtual nodes of the worker that has most of them: V / W, rounded up         | 1    |
//! | c       | mean time of one virtual node of the slowest worker                          | s    |
//! | s(W)    | workers per processor, at least 1, where they share a machine's processors   | 1    |
//! | x(W)    | bytes through the busiest link of the direct exchange                        | B    |
//! | e, u, r | mean exchange, update, and rest of the observed steps                        | s    |
//!
//! # Source
//!
//! This project's own exchange, [`crate::collective::DirectExchange`]; the rest is bookkeeping.
//!
//! # Assumes
//!
//! The exchange is bound by bytes; on one machine it is the work of its processors, as computing is. Virtual nodes
//! take equally long. At W = W0 the prediction is that things go on as they began, so its error says how steady the
//! run was; elsewhere it is a prediction proper.
//!
//! # Valid
//!
//! With one observed worker nothing is known of the exchange, so more workers are not predicted. The interval is that
//! of the mean of the observed steps and, beyond W0, of [`crate::predict::LINK_UNCERTAINTY`] on the exchange.
//!
//! # Checked by
//!
//! `tests/rescale.rs`; `bellwether run` prints it beside what was measured.
//!
//! ```
//! use bellwether_model::rescale::{ObservedStep, Rescale};
//! // 2 workers, 2 virtual nodes of 0.1 s each, 0.05 s of exchange, 0.01 s of the rest.
//! let step = ObservedStep { duration_s: 0.26, nodes_s: vec![0.1, 0.1], exchange_s: 0.05, update_s: 0.0 };
//! let model = Rescale::fit(2, &[step.clone(), step], 4, 1 << 20, None).unwrap();
//! // 4 workers: one virtual node each; 2 (3/4) over 2 (1/2) of the bytes: 0.1 + 0.075 + 0.01.
//! assert!((model.step_s(4).unwrap() - 0.185).abs() < 1e-9);
//! ```

use bellwether_core::InputError;
use bellwether_des::statistics::Tally;
use serde::{Deserialize, Serialize};

use crate::collective::DirectExchange;
use crate::compute::most_virtual_nodes;
use crate::predict::{LEVEL_95, LINK_UNCERTAINTY};

const PLACE: &str = "first steps";

/// One step of a run, as its slowest worker saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedStep {
    /// Seconds from boundary to boundary.
    pub duration_s: f64,
    /// Seconds of each of its virtual nodes.
    pub nodes_s: Vec<f64>,
    /// Seconds of the exchange, without waiting for slower workers.
    pub exchange_s: f64,
    /// Seconds of the update.
    pub update_s: f64,
}

/// A throughput with its 95 % interval, in steps per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Steps per second.
    pub steps_per_s: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The observed steps in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescale {
    workers: u32,
    virtual_nodes: u32,
    bytes: u64,
    processors: Option<u32>,
    node_s: f64,
    exchange_s: f64,
    update_s: f64,
    rest_s: f64,
    /// Standard error of the mean step.
    error_s: f64,
}

impl Rescale {
    /// Takes the first steps of `workers` that share `virtual_nodes` and exchange `bytes`.
    ///
    /// `processors` is how many the workers share, when they compute on one machine's.
    ///
    /// # Errors
    ///
    /// Fewer than two steps, steps that took no time or computed nothing, more workers than virtual nodes.
    pub fn fit(
        workers: u32,
        steps: &[ObservedStep],
        virtual_nodes: u32,
        bytes: u64,
        processors: Option<u32>,
    ) -> Result<Rescale, InputError> {
        if steps.len() < 2 {
            return Err(InputError::new(
                PLACE,
                format!("{} steps tell nothing of their spread", steps.len()),
            ));
        }
        let most = most_virtual_nodes(virtual_nodes, workers)?;
        let count = steps.len() as f64;
        let mean = |value: fn(&ObservedStep) -> f64| steps.iter().map(value).sum::<f64>() / count;
        let duration_s = mean(|step| step.duration_s);
        let compute_s = mean(|step| step.nodes_s.iter().sum());
        let nodes = mean(|step| step.nodes_s.len() as f64);
        if !(duration_s.is_finite() && duration_s > 0.0 && compute_s.is_finite() && nodes > 0.0) {
            return Err(InputError::new(PLACE, "the steps took no time or computed nothing"));
        }
        let (exchange_s, update_s) = (mean(|step| step.exchange_s), mean(|step| step.update_s));
        let node_s = compute_s / nodes;
        let rest_s = duration_s - node_s * f64::from(most) - exchange_s - update_s;
        let durations: Tally = steps.iter().map(|step| step.duration_s).collect();
        let error_s = (durations.variance() / count).sqrt();
        Ok(Rescale {
            workers,
            virtual_nodes,
            bytes,
            processors,
            node_s,
            exchange_s,
            update_s,
            rest_s,
            error_s,
        })
    }

    /// Mean seconds of a step of `workers`; `None` where the observed steps cannot tell.
    pub fn step_s(&self, workers: u32) -> Option<f64> {
        let most = most_virtual_nodes(self.virtual_nodes, workers).ok()?;
        let crowd = |workers: u32| match self.processors {
            Some(processors) => (f64::from(workers) / f64::from(processors.max(1))).max(1.0),
            None => 1.0,
        };
        let compute_s = f64::from(most) * self.node_s;
        let link_bytes = |workers| {
            let exchange = DirectExchange::new(self.virtual_nodes, workers, self.bytes).ok();
            exchange.map(|exchange| exchange.link_bytes())
        };
        let exchange_s = match (workers, self.workers) {
            (1, _) => 0.0,
            (_, 1) => return None,
            _ => self.exchange_s * link_bytes(workers)? / link_bytes(self.workers)?.max(1.0),
        };
        let crowding = crowd(workers) / crowd(self.workers);
        Some(((compute_s + exchange_s) * crowding + self.update_s + self.rest_s).max(f64::MIN_POSITIVE))
    }

    /// Steps per second of `workers`, with the interval of a mean over as many steps as were observed or more.
    pub fn rate(&self, workers: u32) -> Option<Rate> {
        let step_s = self.step_s(workers)?;
        let link_s = if workers == self.workers { 0.0 } else { LINK_UNCERTAINTY * self.exchange_s };
        // What will be measured is a mean too, and errs as much.
        let error_s = (std::f64::consts::SQRT_2 * self.error_s).hypot(link_s) * LEVEL_95;
        let steps_per_s = 1.0 / step_s;
        let error = error_s / step_s;
        Some(Rate { steps_per_s, low: steps_per_s / (1.0 + error), high: steps_per_s * (1.0 + error) })
    }
}
