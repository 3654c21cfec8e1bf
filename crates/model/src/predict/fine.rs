//! What the fine-grained model says of a configuration: several simulations, as workers whose steps hardly vary
//! keep the phase in which they happen to begin.
//!
//! A single simulation does not know this of itself: of 8 workers that fill a link, with steps that vary by 1 %, ten
//! simulations of 2,000 steps differed by 9 % (one standard deviation), while each took itself to be exact to 5 %.

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, Prediction, Protocol};
use bellwether_des::statistics::Tally;

use super::{LEVEL, ProfileModel, Step};
use crate::event::{self, Outcome, Resource, Setting, TransmissionOrder, with_pieces};

/// Simulations of a configuration.
const REPLICATIONS: u64 = 5;

/// Steps of each, of all workers together, at least ...
const STEPS_MIN: u32 = 2_000;

/// ... and of each worker.
const STEPS_OF_EACH: u32 = 8;

/// Most workers that are told apart; the simulation itself takes fewer.
const WORKERS_MAX: u32 = 1 << 20;

impl ProfileModel {
    /// Throughput and step time by the fine-grained model ([`crate::event`]), of training through parameter servers.
    ///
    /// The interval holds both how much simulations differ that begin otherwise, and how exact the profile is. Equal
    /// seeds give equal predictions.
    ///
    /// # Errors
    ///
    /// Returns an error for a configuration without workers, samples, servers or bandwidth, of unknown devices, too
    /// large to simulate, or of gossip.
    pub fn predict_fine(
        &self,
        configuration: &Configuration,
        order: &TransmissionOrder,
        seed: u64,
    ) -> Result<Prediction, InputError> {
        Ok(self.predict_staleness(configuration, order, seed)?.0)
    }

    /// The same, and the mean staleness of an update: of the updates of each part by others, between the moment a
    /// server heard that a worker wanted it and the moment the gradient from it was applied. `None` where all wait for
    /// all.
    ///
    /// # Errors
    ///
    /// Same errors as [`predict_fine`](ProfileModel::predict_fine).
    pub fn predict_staleness(
        &self,
        configuration: &Configuration,
        order: &TransmissionOrder,
        seed: u64,
    ) -> Result<(Prediction, Option<f64>), InputError> {
        if let Some((model, there)) = self.measured_there(configuration) {
            return model.predict_staleness(&there, order, seed);
        }
        let workers = f64::from(configuration.workers());
        let (mut rates, mut busy, mut staleness) = (Tally::new(), Tally::new(), Tally::new());
        let mut bottleneck = None;
        for replication in 0..REPLICATIONS {
            let seed = seed.wrapping_mul(REPLICATIONS).wrapping_add(replication);
            let outcome = self.simulate(configuration, order, seed, 0)?;
            let computing = outcome.utilisation.iter().filter(|u| matches!(u.resource, Resource::Compute(_)));
            busy.add(computing.map(|u| u.busy).sum::<f64>() / workers);
            rates.add(outcome.examples_per_s);
            outcome.mean_staleness().into_iter().for_each(|mean| staleness.add(mean));
            bottleneck.get_or_insert(outcome.bottleneck());
        }
        let simulated_s = configuration.batch as f64 / rates.mean();
        let bottleneck = bottleneck.expect("there is at least one replication");
        let step = Step { step_s: simulated_s, link_s: simulated_s * (1.0 - busy.mean()), bottleneck };
        let Step { step_s, link_s, bottleneck } = self
            .with_handling(configuration, step)
            .map_err(|why| InputError::new("predict", why.to_string()))?;
        let measured = self.most(configuration, |model| model.uncertainty_at(configuration, step_s, link_s));
        let error = measured.hypot(rates.interval(LEVEL).relative());
        let prediction = self
            .prediction(configuration, step_s, error, bottleneck)
            .map_err(|why| InputError::new("predict", why.to_string()))?;
        Ok((prediction, (staleness.count() > 0).then(|| staleness.mean())))
    }

    /// The first `rows` operations of one simulation, as a trace for Chrome or Perfetto.
    ///
    /// # Errors
    ///
    /// Same errors as [`predict_fine`](ProfileModel::predict_fine).
    pub fn trace(
        &self,
        configuration: &Configuration,
        order: &TransmissionOrder,
        seed: u64,
        rows: usize,
    ) -> Result<String, InputError> {
        if let Some((model, there)) = self.measured_there(configuration) {
            return model.trace(&there, order, seed, rows);
        }
        let seed = seed.wrapping_mul(REPLICATIONS);
        let outcome = self.simulate(configuration, order, seed, rows)?;
        let turn = self.turn(configuration)?.0;
        let (profile, _) = with_pieces(&turn, configuration.servers)?;
        Ok(event::trace::chrome_json(&profile, &outcome.trace))
    }

    fn simulate(
        &self,
        configuration: &Configuration,
        order: &TransmissionOrder,
        seed: u64,
        trace_rows: usize,
    ) -> Result<Outcome, InputError> {
        let workers = configuration.workers();
        if configuration.batch == 0 {
            return Err(InputError::new("batch", "a step has at least one sample"));
        }
        if workers > WORKERS_MAX {
            let what = format!("{workers} workers are more than can be simulated one by one");
            return Err(InputError::new("workers", what).hint("use the coarse model"));
        }
        // Each worker computes its part of the batch: what its virtual nodes do not make smaller is computed faster, as
        // by a faster device.
        let per_worker = configuration.batch as f64 / f64::from(workers);
        let factor = self.profile.batch as f64 / per_worker;
        let computed = self.compute_factor(configuration);
        let (mut turn, nodes) = self.turn(configuration)?;
        let work = match configuration.protocol {
            // Of workers with unequal numbers of virtual nodes those with the most count.
            Protocol::Bsp if nodes < 1.0 => 1.0 / computed,
            Protocol::Bsp => factor * nodes * self.batch_factor(configuration) / computed,
            _ => nodes / computed,
        };
        let mean_speed = self.mean_speed(configuration).unwrap_or(1.0);
        self.add_rest(&mut turn, mean_speed * work);
        let mut speeds = Vec::new();
        for group in &configuration.devices {
            let class = self.class(group).map_err(|why| InputError::new("devices", why.to_string()))?;
            let speed = self.relative(&class, configuration);
            speeds.resize(speeds.len() + group.count as usize, speed * work);
        }
        let (profile, origins) = with_pieces(&turn, configuration.servers)?;
        let order = match order {
            TransmissionOrder::Priority(levels) if levels.len() == turn.parts.len() => {
                TransmissionOrder::Priority(origins.iter().map(|part| levels[*part as usize]).collect())
            }
            other => other.clone(),
        };
        let bandwidth_bytes_per_s = configuration.link.bandwidth_bytes_per_s;
        let setting = Setting {
            workers,
            servers: configuration.servers,
            server_link_bytes_per_s: bandwidth_bytes_per_s,
            worker_link_bytes_per_s: bandwidth_bytes_per_s,
            latency_s: configuration.link.latency_s,
            protocol: configuration.protocol,
            order,
            speeds,
            steps: STEPS_MIN.max(STEPS_OF_EACH.saturating_mul(workers)),
            relative_half_width: 0.0,
            seed,
            trace_rows,
            ..Setting::default()
        };
        let mut outcome = event::simulate(&profile, &setting)?;
        for value in [&mut outcome.examples_per_s, &mut outcome.low, &mut outcome.high] {
            *value /= factor;
        }
        Ok(outcome)
    }
}
