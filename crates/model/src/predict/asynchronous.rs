//! What the coarse models say of training in which no worker waits, or not all do.

use bellwether_core::prediction::{Bottleneck, Configuration, PredictError, Protocol};
use bellwether_core::profile::{MeasuredStep, Profile};

use super::devices::Class;
use super::slowest::expected_maximum_s;
use super::{ProfileModel, Step};
use crate::compute::Durations;
use crate::event::{FEWEST_STEPS, Setting, simulate, with_pieces};
use crate::phase::Gossip;
use crate::queueing::{self, ClosedNetwork, exact, fork_join, multiclass};

/// Workers of one speed, and how each circulates.
struct Circulating {
    workers: u32,
    /// Seconds of a step away from the servers.
    delay_s: f64,
    network: ClosedNetwork,
}

/// How workers circulate between computing and their servers.
struct Circulation {
    classes: Vec<Circulating>,
    /// Seconds of a step at the largest server: the pull, the push and the update.
    visits_s: [f64; 3],
}

/// Seconds from one step of a worker to its next, and those of them away from the servers, as the mean of all steps.
///
/// Exponential stations, although transfers are steady: layers that overlap with computing come in bursts, and with one
/// measured server steady stations would be 10 to 20 % further off (docs/accuracy.md).
fn circulate(classes: &[Circulating]) -> Result<(f64, f64), PredictError> {
    if let [only] = classes {
        return Ok((exact(&only.network, only.workers)?.cycle_s, only.delay_s));
    }
    let of_class = |class: &Circulating| queueing::Class {
        workers: class.workers,
        delay_s: class.network.delay_s(),
        demands_s: class.network.demands_s().to_vec(),
    };
    let solution = multiclass(&classes.iter().map(of_class).collect::<Vec<_>>())?;
    let steps_per_s: f64 = solution.throughput_per_s.iter().sum();
    let workers: f64 = classes.iter().map(|class| f64::from(class.workers)).sum();
    let away = classes.iter().zip(&solution.throughput_per_s).map(|(class, rate)| class.delay_s * rate);
    Ok((workers / steps_per_s, away.sum::<f64>() / steps_per_s))
}

impl ProfileModel {
    pub(super) fn asynchronous(&self, configuration: &Configuration) -> Result<Step, PredictError> {
        if configuration.servers == 0 {
            let why = "asynchronous training needs parameter servers; say how many";
            return Err(PredictError::Incomplete(why.into()));
        }
        let workers = configuration.workers();
        let waiting_s = self.waiting_s(configuration, self.profile.virtual_nodes);
        if configuration.protocol == Protocol::Ssp(0) {
            let compute_s = self.bounded_s(configuration, 0)? + waiting_s + self.rest_s;
            // All begin each unit together, as in a synchronous step; only every gradient is applied by itself.
            let update_s = self.update_s * f64::from(workers);
            let phase = self.through_servers(configuration, compute_s, 1, update_s)?;
            let link_s = (phase.step_s - compute_s).max(0.0);
            return Ok(Step { step_s: phase.step_s, link_s, bottleneck: phase.bottleneck });
        }
        let Circulation { classes, visits_s } = self.circulation(configuration)?;
        let (cycle_s, delay_s) = circulate(&classes)?;
        let at_servers_s = (cycle_s - delay_s).max(0.0);
        let [pull_s, push_s, update_s] = visits_s;
        let bottleneck = match at_servers_s > delay_s {
            false => Bottleneck::Compute,
            true if pull_s + push_s >= update_s => Bottleneck::Link,
            true => Bottleneck::Server,
        };
        Ok(Step { step_s: cycle_s, link_s: at_servers_s, bottleneck })
    }

    /// Seconds from one step of a worker to its next if all fall into step where that is to be feared: all wait at the
    /// largest server at once, for their pulls and then for their pushes.
    pub(super) fn in_step_s(
        &self,
        configuration: &Configuration,
        bottleneck: Bottleneck,
    ) -> Result<Option<f64>, PredictError> {
        let waits_for_servers = matches!(bottleneck, Bottleneck::Link | Bottleneck::Server);
        if !waits_for_servers || !matches!(configuration.protocol, Protocol::Asp | Protocol::Ssp(1..)) {
            return Ok(None);
        }
        let Circulation { classes, visits_s } = self.circulation(configuration)?;
        let delay_s = classes.iter().map(|class| class.delay_s).fold(0.0, f64::max);
        Ok(Some(delay_s + f64::from(configuration.workers()) * visits_s.iter().sum::<f64>()))
    }

    fn circulation(&self, configuration: &Configuration) -> Result<Circulation, PredictError> {
        let waiting_s = self.waiting_s(configuration, self.profile.virtual_nodes);
        let shares = self.shares(configuration.servers)?;
        let one_way_s = self.profile.upload_bytes() as f64 / configuration.link.bandwidth_bytes_per_s;
        let pull_s = self.profile.download_bytes() as f64 / configuration.link.bandwidth_bytes_per_s;
        // All servers together are no faster to a worker than its own link, each way.
        let own_link_s = (pull_s + one_way_s) * (1.0 - shares.largest());
        let visits_s = [pull_s, one_way_s, self.update_s];
        let at_largest_s = visits_s.map(|visit_s| visit_s * shares.largest());
        let delay_s = |own_s: f64| -> Result<f64, PredictError> {
            if !self.downloads {
                return Ok(own_s + waiting_s + self.rest_s + own_link_s + 2.0 * configuration.link.latency_s);
            }
            // What one worker hides behind its computing costs it nothing.
            let at_servers_s = shares.largest() * visits_s.iter().sum::<f64>();
            Ok((self.lone_step_s(configuration, own_s)? - at_servers_s).max(0.0))
        };
        let mut classes = Vec::new();
        for (workers, own_s) in self.own_times_s(configuration)? {
            let delay_s = delay_s(own_s)?;
            let network = fork_join(delay_s, &visits_s, &shares)?;
            classes.push(Circulating { workers, delay_s, network });
        }
        let stations = |class: &Circulating| class.network.demands_s().len();
        if classes.iter().any(|class| stations(class) != stations(&classes[0])) {
            // For one of them only the largest server is a station: then it is for all.
            for class in &mut classes {
                class.network = ClosedNetwork::new(class.delay_s, &at_largest_s)?;
            }
        }
        Ok(Circulation { classes, visits_s: at_largest_s })
    }

    /// Workers of each speed, and seconds for which each computes a step.
    fn own_times_s(&self, configuration: &Configuration) -> Result<Vec<(u32, f64)>, PredictError> {
        if let Protocol::Ssp(bound) = configuration.protocol {
            return Ok(vec![(configuration.workers(), self.bounded_s(configuration, bound)?)]);
        }
        let own_s = self.mean_compute_s() * self.compute_factor(configuration);
        let speeds = self.worker_speeds(configuration)?;
        Ok(speeds.into_iter().map(|(workers, speed)| (workers, own_s / speed)).collect())
    }

    /// Seconds of the mean step of a lone worker that computes `own_s` of it, as the fine-grained model says.
    fn lone_step_s(&self, configuration: &Configuration, own_s: f64) -> Result<f64, PredictError> {
        let profile = self.with_waiting(self.mean_speed(configuration)?);
        let steps = &profile.steps;
        let mut operations_s = vec![0.0; self.profile.operations.len()];
        for step in steps {
            let each = operations_s.iter_mut().zip(&step.operations_s);
            each.for_each(|(sum, seconds)| *sum += seconds / steps.len() as f64);
        }
        let step_s = steps.iter().map(|step| step.step_s).sum::<f64>() / steps.len() as f64;
        let steps = vec![MeasuredStep { step_s, operations_s, data_wait_s: 0.0 }];
        let mean = Profile { steps, ..profile.as_ref().clone() };
        let setting = Setting {
            servers: configuration.servers,
            server_link_bytes_per_s: configuration.link.bandwidth_bytes_per_s,
            worker_link_bytes_per_s: configuration.link.bandwidth_bytes_per_s,
            latency_s: configuration.link.latency_s,
            speeds: vec![self.mean_compute_s() / own_s],
            random_start: false,
            steps: FEWEST_STEPS,
            relative_half_width: 0.0,
            ..Setting::default()
        };
        Ok(simulate(&with_pieces(&mean, configuration.servers)?.0, &setting)?.step_s)
    }

    /// Mean seconds of a unit's computing where all wait for all after every `bound + 1` units.
    fn bounded_s(&self, configuration: &Configuration, bound: u32) -> Result<f64, PredictError> {
        let nodes = self.unit_nodes(configuration);
        let share = f64::from(self.profile.virtual_nodes) / f64::from(nodes);
        let spread = 1.0 / (f64::from(bound) + 1.0).sqrt();
        let mut means = Vec::new();
        for Class { workers, model, speed } in self.classes(configuration)? {
            let durations = model.durations(nodes)?;
            let (mean_s, rest) = (durations.mean_s(), model.compute_factor(configuration) * share / speed);
            let mean_of = |seconds: &f64| (mean_s + (seconds - mean_s) * spread) * rest;
            let means_s: Vec<f64> = durations.sorted_s().iter().map(mean_of).collect();
            means.push((workers, Durations::new(&means_s)?));
        }
        Ok(expected_maximum_s(&means))
    }

    pub(super) fn gossip(&self, configuration: &Configuration) -> Result<Step, PredictError> {
        let workers = configuration.workers();
        let own_s = self.mean_compute_s() * self.compute_factor(configuration);
        let compute_s = own_s / self.mean_speed(configuration)?
            + self.waiting_s(configuration, self.profile.virtual_nodes)
            + self.rest_s
            + self.update_s;
        let gossip = Gossip {
            compute_s,
            bytes: self.profile.upload_bytes(),
            link: configuration.link,
            overlapped: false,
            begun_by_others: 1.0,
        };
        let phase = gossip.step(workers)?;
        let link_s = (phase.step_s - compute_s).max(0.0);
        Ok(Step { step_s: phase.step_s, link_s, bottleneck: phase.bottleneck })
    }
}
