//! What another number of workers would do, from the first steps of a run.
//!
//! # Model
//!
//! ```text
//! T(W) = (n(W) c + w(W) d + x(W) / x(W0) e) s(W) / s(W0) + n(W) l + u + r
//! w(W) = a(W) n(W)^(1/2) - a(W0) n(W) / n(W0)^(1/2)
//! ```
//!
//! | symbol  | meaning                                                                      | unit |
//! |---------|------------------------------------------------------------------------------|------|
//! | T(W)    | mean step with W workers                                                     | s    |
//! | W0      | workers of the observed steps                                                | 1    |
//! | n(W)    | virtual nodes of the worker that has most of them: V / W, rounded up         | 1    |
//! | c       | mean time of one virtual node of the slowest worker                          | s    |
//! | d       | standard deviation of one virtual node; 0 where it is not known              | s    |
//! | l       | mean time that a virtual node waited for its samples                         | s    |
//! | a(W)    | mean of the largest of W standard normal numbers                             | 1    |
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
//! The exchange is bound by bytes; on one machine it is the work of its processors, as computing is. Virtual nodes take
//! equally long but for an independent normal spread, so the slowest of more workers is slower. At W = W0 the
//! prediction is that things go on as they began, so its error says how steady the run was; elsewhere it is a
//! prediction proper.
//!
//! # Valid
//!
//! With one observed worker nothing is known of the exchange, so more workers are not predicted. The interval is that
//! of the mean of the observed steps and, beyond W0, of [`crate::predict::LINK_UNCERTAINTY`] on the exchange.
//!
//! # Checked by
//!
//! `tests/it/rescale.rs`; `bellwether run` prints it beside what was measured.
//!
//! ```
//! use bellwether_core::record::StepRecord;
//! use bellwether_model::rescale::Rescale;
//! // 2 workers, 2 virtual nodes of 0.1 s each, 0.05 s of exchange, 0.01 s of the rest.
//! let nodes_s = vec![0.1, 0.1];
//! let step = StepRecord { duration_s: 0.26, nodes_s, exchange_s: 0.05, ..StepRecord::default() };
//! let model = Rescale::fit(2, &[step.clone(), step], 4, 1 << 20, None).unwrap();
//! // 4 workers: one virtual node each; 2 (3/4) over 2 (1/2) of the bytes: 0.1 + 0.075 + 0.01.
//! assert!((model.step_s(4).unwrap() - 0.185).abs() < 1e-9);
//! ```

use bellwether_core::InputError;
use bellwether_core::prediction::Bottleneck;
use bellwether_core::record::StepRecord;
use bellwether_des::statistics::Tally;

use crate::collective::DirectExchange;
use crate::compute::most_virtual_nodes;
use crate::predict::{LEVEL_95, LINK_UNCERTAINTY};

const PLACE: &str = "first steps";

/// The least that remains of observed computing where workers wait less for the slowest, relative.
const COMPUTE_MIN: f64 = 0.1;

/// Steps in the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Means {
    /// Seconds from boundary to boundary.
    pub duration_s: f64,
    /// Standard error of `duration_s`.
    pub error_s: f64,
    /// Seconds of one virtual node of the slowest worker.
    pub node_s: f64,
    /// Standard deviation of one virtual node among those of the same worker and step; 0 where it is not known.
    pub spread_s: f64,
    /// Seconds that a virtual node of the slowest worker waited for its samples, beside `node_s`.
    pub data_wait_s: f64,
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
    spread_s: f64,
    data_wait_s: f64,
    /// Mean exchange, and the workers between whom it was; `None` where no exchange is known.
    exchange: Option<(f64, u32)>,
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
    /// Returns an error for fewer than two steps, steps that took no time or computed nothing, more workers than
    /// virtual nodes.
    pub fn fit(
        workers: u32,
        steps: &[StepRecord],
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
        let count = steps.len() as f64;
        let mean = |value: fn(&StepRecord) -> f64| steps.iter().map(value).sum::<f64>() / count;
        let durations: Tally = steps.iter().map(|step| step.duration_s).collect();
        let means = Means {
            duration_s: mean(|step| step.duration_s),
            error_s: (durations.variance() / count).sqrt(),
            node_s: mean(|step| step.nodes_s.iter().sum()) / mean(|step| step.nodes_s.len() as f64),
            spread_s: 0.0,
            data_wait_s: mean(|step| step.data_wait_s) / mean(|step| step.nodes_s.len() as f64),
            exchange_s: mean(|step| step.exchange_s),
            update_s: mean(|step| step.update_s),
        };
        Rescale::from_means(workers, means, virtual_nodes, bytes, processors)
    }

    /// The same from steps that the caller has added up.
    ///
    /// # Errors
    ///
    /// Returns an error for steps that took no time or computed nothing, more workers than virtual nodes.
    pub fn from_means(
        workers: u32,
        means: Means,
        virtual_nodes: u32,
        bytes: u64,
        processors: Option<u32>,
    ) -> Result<Rescale, InputError> {
        let most = most_virtual_nodes(virtual_nodes, workers)?;
        let Means { duration_s, error_s, node_s, spread_s, data_wait_s, exchange_s, update_s } = means;
        if !(duration_s.is_finite() && duration_s > 0.0 && node_s.is_finite()) {
            return Err(InputError::new(PLACE, "the steps took no time or computed nothing"));
        }
        let rest_s = duration_s - (node_s + data_wait_s) * f64::from(most) - exchange_s - update_s;
        let exchange = (workers > 1).then_some((exchange_s, workers));
        Ok(Rescale {
            workers,
            virtual_nodes,
            bytes,
            processors,
            node_s,
            spread_s,
            data_wait_s,
            exchange,
            update_s,
            rest_s,
            error_s,
        })
    }

    /// The same on devices of `relative` times the speed: only computing gets faster or slower.
    #[must_use]
    pub fn at_speed(self, relative: f64) -> Rescale {
        let slower = 1.0 / relative;
        Rescale {
            node_s: self.node_s * slower,
            spread_s: self.spread_s * slower,
            error_s: self.error_s * slower,
            ..self
        }
    }

    /// With an exchange of `exchange_s` between `workers`, where none was observed.
    #[must_use]
    pub fn or_exchange(self, exchange_s: f64, workers: u32) -> Rescale {
        Rescale { exchange: self.exchange.or(Some((exchange_s, workers))), ..self }
    }

    /// Mean seconds of one virtual node.
    pub fn node_s(&self) -> f64 {
        self.node_s
    }

    /// Mean seconds of the exchange, and the workers between whom it was; `None` where none is known.
    pub fn exchange(&self) -> Option<(f64, u32)> {
        self.exchange
    }

    /// Mean seconds of a step of `workers`; `None` where the observed steps cannot tell.
    pub fn step_s(&self, workers: u32) -> Option<f64> {
        let (compute_s, exchange_s) = self.parts_s(workers)?;
        let waiting_s = self.waiting_s(workers)?;
        Some((compute_s + waiting_s + exchange_s + self.update_s + self.rest_s).max(f64::MIN_POSITIVE))
    }

    /// What the worker with the most virtual nodes waits for their samples in a step of `workers`.
    fn waiting_s(&self, workers: u32) -> Option<f64> {
        let most = most_virtual_nodes(self.virtual_nodes, workers).ok()?;
        Some(f64::from(most) * self.data_wait_s)
    }

    /// What computing and exchanging take of a step of `workers`.
    fn parts_s(&self, workers: u32) -> Option<(f64, f64)> {
        let most = most_virtual_nodes(self.virtual_nodes, workers).ok()?;
        let crowd = |workers: u32| match self.processors {
            Some(processors) => (f64::from(workers) / f64::from(processors.max(1))).max(1.0),
            None => 1.0,
        };
        let mut compute_s = f64::from(most) * self.node_s;
        if self.spread_s > 0.0 && workers != self.workers {
            let (most, own) =
                (f64::from(most), f64::from(most_virtual_nodes(self.virtual_nodes, self.workers).ok()?));
            let waiting = largest_of(workers) * most.sqrt() - largest_of(self.workers) * most / own.sqrt();
            // However far nodes spread, they take some time.
            compute_s = (compute_s + waiting * self.spread_s).max(compute_s * COMPUTE_MIN);
        }
        let link_bytes = |workers| {
            let exchange = DirectExchange::new(self.virtual_nodes, workers, self.bytes).ok();
            exchange.map(|exchange| exchange.link_bytes())
        };
        let exchange_s = match (workers, self.exchange) {
            (1, _) => 0.0,
            (_, None) => return None,
            (_, Some((exchange_s, between))) => {
                exchange_s * link_bytes(workers)? / link_bytes(between)?.max(1.0)
            }
        };
        let crowding = crowd(workers) / crowd(self.workers);
        Some((compute_s * crowding, exchange_s * crowding))
    }

    /// What bounds the throughput of `workers`.
    pub fn bottleneck(&self, workers: u32) -> Bottleneck {
        let waiting_s = self.waiting_s(workers).unwrap_or(0.0);
        match self.parts_s(workers) {
            Some((compute_s, exchange_s)) if exchange_s > compute_s + waiting_s => Bottleneck::Link,
            Some((compute_s, _)) if waiting_s > compute_s => Bottleneck::Data,
            _ => Bottleneck::Compute,
        }
    }

    /// Steps per second of `workers`, with the interval of a mean over as many steps as were observed or more.
    pub fn rate(&self, workers: u32) -> Option<Rate> {
        let step_s = self.step_s(workers)?;
        let exchange_s = self.exchange.map_or(0.0, |(exchange_s, _)| exchange_s);
        let link_s = if workers == self.workers { 0.0 } else { LINK_UNCERTAINTY * exchange_s };
        // What will be measured is a mean too, and errs as much.
        let error_s = (std::f64::consts::SQRT_2 * self.error_s).hypot(link_s) * LEVEL_95;
        let steps_per_s = 1.0 / step_s;
        let error = error_s / step_s;
        Some(Rate { steps_per_s, low: steps_per_s / (1.0 + error), high: steps_per_s * (1.0 + error) })
    }
}

/// Mean of the largest of `count` standard normal numbers.
fn largest_of(count: u32) -> f64 {
    const STEP: f64 = 0.1;
    let below = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let power = |base: f64| base.powf(f64::from(count));
    // The part of the mean above 0 less the part below, by the trapezoidal rule: 8 standard deviations are all.
    let inside = |x: f64| 1.0 - power(below(x)) - power(below(-x));
    let rest: f64 = (1..80).map(|place| inside(f64::from(place) * STEP)).sum();
    STEP * (inside(0.0) / 2.0 + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_normal_numbers() {
        // 1 / sqrt(pi); 3 / (2 sqrt(pi)); Harter, Biometrika 48, 1961.
        for (count, mean) in [(1, 0.0), (2, 0.564_190), (3, 0.846_284), (8, 1.423_600), (100, 2.507_594)] {
            assert!((largest_of(count) - mean).abs() < 1e-3, "{count}: {}", largest_of(count));
        }
    }
}
