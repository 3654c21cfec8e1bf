//! What was observed of one kind of job, and what it says of other numbers of workers.

use bellwether_core::prediction::{Bottleneck, ProfiledRate};
use bellwether_core::record::StepRecord;
use bellwether_des::statistics::Tally;
use serde::{Deserialize, Serialize};

use super::{ELSEWHERE, STEPS_MIN, is_positive};
use crate::compute::most_virtual_nodes;
use crate::rescale::{Means, Rate, Rescale};

/// A step counts this part of the one after it: of the last 500 steps in the mean, so that a slow change is followed.
const KEPT: f64 = 1.0 - 1.0 / 500.0;

/// What a job file says of a kind of job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Declared {
    /// Samples of a step, of all workers together.
    pub(super) batch: u64,
    /// Virtual nodes that share them: as many workers at most.
    pub(super) virtual_nodes: u32,
    /// Bytes that workers exchange in every step.
    pub(super) bytes: u64,
    /// Seconds of one virtual node on a device of speed 1, where it was declared or measured before.
    pub(super) node_s: Option<f64>,
}

/// A kind of job: what was declared and what was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kind {
    pub(super) declared: Declared,
    /// By number of workers, then speed.
    seen: Vec<Seen>,
    /// The network that it trains, where it is named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) network: String,
    /// What a profile says, where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) profiled: Vec<ProfiledRate>,
}

/// The steps of one number of workers on devices of one speed, in running sums.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) workers: u32,
    pub(super) speed: f64,
    /// Steps, however long ago.
    steps: u64,
    /// Sum of the steps' weights, ...
    weight: f64,
    /// ... and of their squares.
    weight_squares: f64,
    pub(super) duration_s: f64,
    /// Sum of the weighted squares of what durations are from their mean.
    squares: f64,
    /// 0 for steps that were done unit by unit.
    node_s: f64,
    /// Variance of virtual nodes among those of the same worker and step.
    node_variance: f64,
    /// Mean waiting of a virtual node for its samples.
    data_wait_s: f64,
    exchange_s: f64,
    update_s: f64,
    /// Part of the time in which some process of the machine had no processor.
    #[serde(default)]
    processor_wait: f64,
}

/// A throughput, and how far it can be believed.
pub(super) struct Forecast {
    pub(super) rate: Rate,
    pub(super) bottleneck: Bottleneck,
    /// Why it is an extrapolation, where it is one.
    pub(super) why: Option<String>,
    /// Whether more workers were predicted from one, whose exchange is nothing.
    pub(super) assumes_no_exchange: bool,
}

impl Seen {
    fn new(workers: u32, speed: f64) -> Seen {
        Seen {
            workers,
            speed,
            steps: 0,
            weight: 0.0,
            weight_squares: 0.0,
            duration_s: 0.0,
            squares: 0.0,
            node_s: 0.0,
            node_variance: 0.0,
            data_wait_s: 0.0,
            exchange_s: 0.0,
            update_s: 0.0,
            processor_wait: 0.0,
        }
    }

    fn add(&mut self, step: &StepRecord, processor_wait: f64) {
        let nodes: Tally = step.nodes_s.iter().copied().collect();
        let node_s = nodes.mean();
        let others = [step.data_wait_s, step.exchange_s, step.update_s];
        let is_sound = others.iter().all(|value| value.is_finite() && *value >= 0.0);
        let in_units = step.unit_count > 0 && step.nodes_s.is_empty();
        if !(is_sound && is_positive(step.duration_s) && (in_units || is_positive(node_s))) {
            return;
        }
        self.steps += 1;
        self.weight = self.weight * KEPT + 1.0;
        self.weight_squares = self.weight_squares * KEPT * KEPT + 1.0;
        let toward = |mean: &mut f64, value: f64| *mean += (value - *mean) / self.weight;
        let before_s = self.duration_s;
        toward(&mut self.duration_s, step.duration_s);
        toward(&mut self.processor_wait, processor_wait.clamp(0.0, 1.0));
        let moved = (step.duration_s - before_s) * (step.duration_s - self.duration_s);
        self.squares = self.squares * KEPT + moved;
        if in_units {
            return;
        }
        toward(&mut self.node_s, node_s);
        toward(&mut self.node_variance, nodes.variance());
        toward(&mut self.data_wait_s, step.data_wait_s / step.nodes_s.len() as f64);
        toward(&mut self.exchange_s, step.exchange_s);
        toward(&mut self.update_s, step.update_s);
    }

    /// Standard error of the mean duration, in seconds.
    pub(super) fn error_s(&self) -> f64 {
        let variance = self.squares / (self.weight - self.weight_squares / self.weight);
        (variance.max(0.0) * self.weight_squares).sqrt() / self.weight
    }

    /// What it says of devices of relative speed `speed` where a step has `1 / share` times the samples.
    ///
    /// Virtual nodes spread with `variation`, their standard deviation over their mean.
    fn rescale(&self, declared: &Declared, variation: f64, speed: f64, share: f64) -> Option<Rescale> {
        let means = Means {
            duration_s: self.duration_s,
            error_s: self.error_s(),
            node_s: self.node_s,
            spread_s: self.node_s * variation,
            data_wait_s: self.data_wait_s,
            exchange_s: self.exchange_s,
            update_s: self.update_s,
        };
        let model =
            Rescale::from_means(self.workers, means, declared.virtual_nodes, declared.bytes, None).ok()?;
        Some(if speed == self.speed && share == 1.0 {
            model
        } else {
            model.at_speed(speed / self.speed * share)
        })
    }
}

impl Kind {
    pub(super) fn new(declared: Declared) -> Kind {
        Kind { declared, seen: Vec::new(), network: String::new(), profiled: Vec::new() }
    }

    /// What a virtual node has to do, up to a factor: samples times bytes of parameters.
    pub(super) fn work(&self) -> f64 {
        let Declared { batch, virtual_nodes, bytes, .. } = self.declared;
        batch as f64 / f64::from(virtual_nodes.max(1)) * bytes.max(1) as f64
    }

    /// Seconds of one virtual node on a device of speed 1, as observed most often, else as profiled or declared.
    pub(super) fn node_s(&self) -> Option<f64> {
        let most = self.enough().max_by_key(|seen| (seen.steps, seen.workers));
        let profiled = self.profiled.iter().min_by_key(|rate| rate.workers).map(|rate| {
            let batch = self.declared.batch as f64 / f64::from(self.declared.virtual_nodes);
            batch * f64::from(rate.workers) * rate.speed / rate.examples_per_s
        });
        let nodes = f64::from(self.declared.virtual_nodes);
        let node_s = |seen: &Seen| match seen.node_s {
            0.0 => seen.duration_s * f64::from(seen.workers) / nodes,
            node_s => node_s,
        };
        most.map(|seen| node_s(seen) * seen.speed).or(profiled).or(self.declared.node_s)
    }

    /// Whether its steps are done unit by unit, as no worker waits for the others.
    fn is_in_units(&self) -> bool {
        self.enough().any(|seen| seen.node_s == 0.0)
    }

    /// What the profile says of `workers` on devices of relative speed `speed` where a step has `1 / share` times the
    /// declared samples: as much slower or faster as one worker was than profiled, where that was observed.
    pub(super) fn by_profile(&self, workers: u32, speed: f64, share: f64) -> Option<Forecast> {
        let distance = |rate: &ProfiledRate| (rate.speed / speed).ln().abs();
        let nearest = |workers: u32| {
            let rates = self.profiled.iter().filter(|rate| rate.workers == workers);
            rates.min_by(|one, other| distance(one).total_cmp(&distance(other)))
        };
        let rate = nearest(workers)?;
        let mut factor = speed / rate.speed * share / self.declared.batch as f64;
        let mut why = "no step was observed: this is what the profile says".to_string();
        if let Some((observed, count, one)) = self.observed_and(&nearest, speed, share) {
            let profiled = one.examples_per_s * speed / one.speed * share / self.declared.batch as f64;
            factor *= observed.rate.steps_per_s / profiled;
            let word = if count == 1 { "worker was" } else { "workers were" };
            why = format!("{count} {word} observed, and what others make of it is what the profile says");
        } else if rate.speed != speed {
            why = format!("the profile speaks of devices of speed {}, not of {speed}", rate.speed);
        }
        Some(Forecast {
            rate: Rate {
                steps_per_s: rate.examples_per_s * factor,
                low: rate.low * factor,
                high: rate.high * factor,
            },
            bottleneck: rate.bottleneck,
            why: Some(why),
            assumes_no_exchange: false,
        })
    }

    /// What was observed with the fewest workers, their number, and what the profile says of as many.
    fn observed_and<'r>(
        &self,
        profiled: &impl Fn(u32) -> Option<&'r ProfiledRate>,
        speed: f64,
        share: f64,
    ) -> Option<(Forecast, u32, &'r ProfiledRate)> {
        let count = self.enough().map(|seen| seen.workers).min()?;
        let observed = self.forecast(count, speed, share);
        Some((observed.filter(|forecast| forecast.why.is_none())?, count, profiled(count)?))
    }

    /// Standard deviation of virtual nodes over their mean, where most of them were observed in one worker.
    fn variation(&self) -> f64 {
        let fewest = self.enough().min_by_key(|seen| seen.workers);
        fewest.map_or(0.0, |seen| seen.node_variance.sqrt() / seen.node_s)
    }

    pub(super) fn declare(&mut self, declared: Declared) {
        let cut = |declared: &Declared| (declared.batch, declared.virtual_nodes);
        if cut(&declared) != cut(&self.declared) {
            self.seen.clear();
        }
        self.declared = declared;
    }

    pub(super) fn observe(&mut self, workers: u32, speed: f64, steps: &[StepRecord], processor_wait: f64) {
        if most_virtual_nodes(self.declared.virtual_nodes, workers).is_err() {
            return;
        }
        let order = |seen: &Seen| seen.workers.cmp(&workers).then(seen.speed.total_cmp(&speed));
        let place = self.seen.binary_search_by(order).unwrap_or_else(|place| {
            self.seen.insert(place, Seen::new(workers, speed));
            place
        });
        steps.iter().for_each(|step| self.seen[place].add(step, processor_wait));
    }

    /// What was observed often enough to say something.
    fn enough(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(|seen| seen.steps >= STEPS_MIN as u64)
    }

    /// Of the observed steps that speak of `workers` first, the part of the time in which some process had no
    /// processor.
    pub(super) fn processor_wait(&self, workers: u32, speed: f64) -> Option<f64> {
        let seen = self.nearest(speed);
        let nearest = seen.iter().min_by_key(|seen| seen.workers.abs_diff(workers));
        nearest.map(|seen| seen.processor_wait)
    }

    /// For each number of workers what was observed at the speed nearest to `speed`.
    pub(super) fn nearest(&self, speed: f64) -> Vec<&Seen> {
        let distance = |seen: &Seen| (seen.speed / speed).ln().abs();
        let mut nearest: Vec<&Seen> = Vec::new();
        for seen in self.enough() {
            match nearest.last_mut() {
                Some(last) if last.workers == seen.workers => {
                    if distance(seen) < distance(last) {
                        *last = seen;
                    }
                }
                _ => nearest.push(seen),
            }
        }
        nearest
    }

    /// What the observed steps say of `workers` on devices of relative speed `speed` where a step has `1 / share` times
    /// the declared samples; `None` where none were, or the workers are too many.
    pub(super) fn forecast(&self, workers: u32, speed: f64, share: f64) -> Option<Forecast> {
        if self.is_in_units() {
            return self.in_units(workers, speed, share);
        }
        let seen = self.nearest(speed);
        let variation = self.variation();
        let model = |seen: &Seen| seen.rescale(&self.declared, variation, speed, share);
        let split = seen.partition_point(|seen| seen.workers < workers);
        let above = seen.get(split).copied();
        let below = split.checked_sub(1).map(|place| seen[place]);
        let (nearest, rate, model) = match (below, above) {
            (Some(below), Some(above)) if above.workers > workers => {
                let upper = model(above)?;
                let (exchange_s, between) = upper.exchange()?;
                let lower = model(below)?.or_exchange(exchange_s, between);
                let rate = between_two((&lower, below.workers), (&upper, above.workers), workers)?;
                let away = if above.speed == speed { below } else { above };
                (away, rate, upper)
            }
            (_, Some(above)) => (above, model(above)?.rate(workers)?, model(above)?),
            (Some(below), None) => {
                let model = model(below)?;
                let Some(rate) = model.rate(workers) else { return alone(model, workers) };
                (below, rate, model)
            }
            (None, None) => return None,
        };
        let is_observed = above.is_some_and(|above| above.workers == workers);
        let rate = if is_observed { rate } else { elsewhere(rate) };
        let inside = above.is_some() && (below.is_some() || nearest.workers == workers);
        let why = if nearest.speed != speed {
            Some(format!("devices of speed {} were observed, not of {speed}", nearest.speed))
        } else if !inside {
            Some(format!("{} workers were observed, not {workers}", nearest.workers))
        } else {
            None
        };
        Some(Forecast { rate, bottleneck: model.bottleneck(workers), why, assumes_no_exchange: false })
    }
}

/// With what numbers of workers differ in beyond all that the formula knows.
fn elsewhere(rate: Rate) -> Rate {
    Rate { low: rate.low / (1.0 + ELSEWHERE), high: rate.high * (1.0 + ELSEWHERE), ..rate }
}

/// What one worker says of more.
fn alone(model: Rescale, workers: u32) -> Option<Forecast> {
    let one = model.rate(1)?;
    // Any number will do, as nothing is exchanged.
    let rate = elsewhere(model.or_exchange(0.0, 2).rate(workers)?);
    let why = "1 worker was observed, so nothing is known of the exchange: none is assumed";
    let rate = Rate { low: rate.low.min(one.low), ..rate };
    Some(Forecast { rate, bottleneck: Bottleneck::Compute, why: Some(why.into()), assumes_no_exchange: true })
}

/// Between two numbers of workers that were observed, the step lies between theirs.
fn between_two(lower: (&Rescale, u32), upper: (&Rescale, u32), workers: u32) -> Option<Rate> {
    let (first_s, last_s) = (lower.0.step_s(lower.1)?, upper.0.step_s(upper.1)?);
    let (own_s, end_s) = (lower.0.step_s(workers)?, lower.0.step_s(upper.1)?);
    let part = if end_s < first_s {
        ((first_s - own_s) / (first_s - end_s)).clamp(0.0, 1.0)
    } else {
        let log = |workers: u32| f64::from(workers).ln();
        (log(workers) - log(lower.1)) / (log(upper.1) - log(lower.1))
    };
    let steps_per_s = 1.0 / (first_s + part * (last_s - first_s));
    let (one, other) = (lower.0.rate(workers)?, upper.0.rate(workers)?);
    Some(Rate {
        steps_per_s,
        low: one.low.min(other.low).min(steps_per_s),
        high: one.high.max(other.high).max(steps_per_s),
    })
}
