//! Fitted models by kind of job, for schedulers and for predictions.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedFile, FittedKind};
use bellwether_core::prediction::{
    Configuration, JobDescription, PredictError, Prediction, Protocol, StepModel, Validity,
};

use super::predict;
use crate::common::answer::{not_known, own_devices};
use crate::compute::most_virtual_nodes;

/// The models of a file, asked by [kind](JobDescription::model), on devices of these relative speeds.
///
/// A job of which no batch is said (or 1) has the one that was measured. A device of another speed is taken to make the
/// whole step faster or slower.
#[derive(Debug, Clone)]
pub struct FittedKinds {
    kinds: BTreeMap<String, FittedKind>,
    speeds: BTreeMap<String, f64>,
}

impl FittedKinds {
    /// The models of `file`; of a type of device that `speeds` does not name the speed is 1.
    pub fn new(file: FittedFile, speeds: BTreeMap<String, f64>) -> FittedKinds {
        let kinds = file.kinds.into_iter().map(|kind| (kind.name.clone(), kind)).collect();
        FittedKinds { kinds, speeds }
    }
}

/// The configuration of `workers` as a kind was measured: its protocol, batch and servers.
pub fn as_measured(kind: &FittedKind, configuration: &Configuration) -> Configuration {
    let synchronous = kind.servers == 0;
    let workers = configuration.workers();
    let each = if synchronous { 1 } else { u64::from(workers) };
    let said = synchronous && configuration.batch > 1;
    Configuration {
        batch: if said { configuration.batch } else { kind.batch * each },
        protocol: if synchronous { Protocol::Bsp } else { Protocol::Asp },
        servers: match (synchronous, configuration.servers) {
            (true, _) => 0,
            (false, 0) => kind.servers,
            (false, servers) => servers,
        },
        ..configuration.clone()
    }
}

/// The batch with which each of `workers` would compute as much as the one that has most of the virtual nodes. Where
/// there are none, or the workers share them equally, the batch itself.
///
/// # Errors
///
/// More workers than virtual nodes.
pub fn padded_batch(batch: u64, virtual_nodes: Option<u32>, workers: u32) -> Result<u64, InputError> {
    let Some(nodes) = virtual_nodes.filter(|nodes| *nodes > 0) else { return Ok(batch) };
    let slots = f64::from(most_virtual_nodes(nodes, workers)?) * f64::from(workers);
    Ok((batch as f64 * slots / f64::from(nodes)).round() as u64)
}

/// Predicts a kind in a configuration whose batch may be left open (1) and whose protocol is the measured one.
///
/// # Errors
///
/// Same errors as [`predict`] and [`padded_batch`].
pub fn predict_kind(kind: &FittedKind, configuration: &Configuration) -> Result<Prediction, InputError> {
    let asked = as_measured(kind, configuration);
    if kind.servers > 0 {
        return predict(&kind.model, &asked);
    }
    let batch = padded_batch(asked.batch, kind.virtual_nodes, asked.workers())?;
    let mut prediction = predict(&kind.model, &Configuration { batch, ..asked.clone() })?;
    let part = asked.batch as f64 / batch as f64;
    for rate in [&mut prediction.examples_per_s, &mut prediction.low, &mut prediction.high] {
        *rate *= part;
    }
    Ok(prediction)
}

impl StepModel for FittedKinds {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let names = self.kinds.keys().map(String::as_str);
        let kind = self.kinds.get(&job.model).ok_or_else(|| not_known(&job.model, "fitted kind", names))?;
        own_devices(configuration)?;
        let measured = if kind.servers == 0 { Protocol::Bsp } else { Protocol::Asp };
        if configuration.protocol != measured {
            let why =
                format!("`{}` was measured under {measured}, not {}", kind.name, configuration.protocol);
            return Err(PredictError::Unsupported(why));
        }
        let mut prediction = predict_kind(kind, configuration)?;
        let speed = |device: &str| self.speeds.get(device).copied().unwrap_or(1.0);
        let slowest =
            configuration.devices.iter().map(|group| speed(&group.device)).fold(f64::INFINITY, f64::min);
        if slowest != 1.0 {
            prediction.examples_per_s *= slowest;
            (prediction.low, prediction.high) = (prediction.low * slowest, prediction.high * slowest);
            prediction.step_s /= slowest;
            prediction.validity = Validity::Extrapolated("a device of another speed".into());
        }
        Ok(prediction)
    }
}
