//! What was observed of a kind of job whose workers do not wait for each other: its steps have no virtual nodes of
//! their own, only a duration.

use bellwether_core::fitted::Measurement;
use bellwether_core::prediction::{Bottleneck, Configuration, DeviceGroup, Link, Protocol};

use super::kind::{Forecast, Kind, Seen};
use crate::calibrate::asynchronous::{Prior, fit, predict};
use crate::predict::LEVEL_95;
use crate::rescale::Rate;

impl Kind {
    /// What the observed steps say of `workers` on devices of relative speed `speed` where a step has `1 / share` times
    /// the declared samples.
    ///
    /// From two numbers of workers on, [`crate::calibrate::asynchronous`] says what lies between and beyond. One number
    /// says little: fewer workers are in proportion, or as fast; more may add as much each, or nothing.
    pub(super) fn in_units(&self, workers: u32, speed: f64, share: f64) -> Option<Forecast> {
        let seen = self.nearest(speed);
        // As if the devices were of `speed` and the batch the asked one.
        let seconds = |seen: &Seen| seen.duration_s * seen.speed / speed / share;
        let nearest = *seen.iter().min_by_key(|seen| seen.workers.abs_diff(workers))?;
        let mut why = (nearest.speed != speed)
            .then(|| format!("devices of speed {} were observed, not of {speed}", nearest.speed));
        if nearest.workers == workers {
            let error = std::f64::consts::SQRT_2 * LEVEL_95 * nearest.error_s() / nearest.duration_s;
            return Some(forecast(seconds(nearest), 1.0 + error, 1.0 + error, why, false));
        }
        why = why.or(Some(format!("{} workers were observed, not {workers}", nearest.workers)));
        if seen.len() == 1 {
            let part = f64::from(workers) / f64::from(nearest.workers);
            let (down, up) = if part < 1.0 { (1.0, 1.0 / part) } else { (part, 1.0) };
            return Some(forecast(seconds(nearest) / part, down, up, why, true));
        }
        let nodes = f64::from(self.declared.virtual_nodes);
        let measured = |seen: &&Seen| Measurement {
            configuration: one_node_each(seen.workers),
            step_s: seconds(seen) * f64::from(seen.workers) / nodes,
            exchange_s: None,
        };
        let fitted = fit(&seen.iter().map(measured).collect::<Vec<_>>(), &Prior::default()).ok()?;
        let predicted = predict(&fitted, &one_node_each(workers)).ok()?;
        let step_s = nodes / predicted.examples_per_s;
        let (down, up) =
            (predicted.examples_per_s / predicted.low, predicted.high / predicted.examples_per_s);
        let inside =
            seen.iter().any(|seen| seen.workers < workers) && seen.iter().any(|seen| seen.workers > workers);
        let mut forecast = forecast(step_s, down, up, why.filter(|_| !inside), false);
        forecast.bottleneck = predicted.bottleneck;
        Some(forecast)
    }
}

fn forecast(step_s: f64, down: f64, up: f64, why: Option<String>, assumes_no_exchange: bool) -> Forecast {
    let steps_per_s = 1.0 / step_s;
    let rate = Rate { steps_per_s, low: steps_per_s / down, high: steps_per_s * up };
    Forecast { rate, bottleneck: Bottleneck::Compute, why, assumes_no_exchange }
}

/// Workers that each compute one virtual node, taken as a sample, between two exchanges with a server.
fn one_node_each(workers: u32) -> Configuration {
    let devices = vec![DeviceGroup { node: 0, device: String::new(), count: workers }];
    let link = Link::UNLIMITED;
    let synchronous = Configuration::synchronous(devices, u64::from(workers), link);
    Configuration { protocol: Protocol::Asp, servers: 1, ..synchronous }
}
