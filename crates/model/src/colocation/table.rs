//! Jobs of Gavel's table, whose speed alone is measured and whose sharing is predicted.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};

use super::{Demand, Newcomers, Pair, RESOURCES, fit, together};
use crate::common::answer::{least_kept, not_known, own_devices};
use crate::throughput_table::GavelTable;

/// Speeds alone from a table, and what jobs keep of them beside others from demands that were fitted to some of its
/// pairs.
///
/// Only jobs on one device share it: gangs that do were not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Colocated {
    table: GavelTable,
    /// By type of device and kind of job.
    demands: BTreeMap<String, BTreeMap<String, Demand>>,
}

impl Colocated {
    /// Fits the demands of the table's jobs to those of its pairs that `keep` accepts, by type of device and both kinds
    /// in the order of their names. What no accepted pair tells of a job is expected from its speeds alone.
    ///
    /// # Errors
    ///
    /// Returns an error for a type of device of which no accepted pair tells.
    pub fn fit(table: GavelTable, keep: impl Fn(&str, [&str; 2]) -> bool) -> Result<Colocated, InputError> {
        let mut demands = BTreeMap::new();
        for device in table.device_types() {
            let kinds: Vec<&str> = table.kinds(device).collect();
            let mut pairs = Vec::new();
            for first in 0..kinds.len() {
                for second in first..kinds.len() {
                    let names = [kinds[first], kinds[second]];
                    if let Ok(shares) = table.kept(device, names, 1)
                        && keep(device, names)
                    {
                        pairs.push(Pair { jobs: [first, second], shares });
                    }
                }
            }
            let of_device = of_device(&table, &kinds, &pairs)?;
            demands.insert(device.to_owned(), of_device);
        }
        Ok(Colocated { table, demands })
    }

    /// What a kind of job demands of a type of device.
    ///
    /// # Errors
    ///
    /// Returns an error for a type or kind that the table does not hold.
    pub fn demand(&self, device: &str, kind: &str) -> Result<&Demand, PredictError> {
        let of_device = self
            .demands
            .get(device)
            .ok_or_else(|| not_known(device, "type of device of this table", self.table.device_types()))?;
        let known = || of_device.keys().map(String::as_str);
        of_device
            .get(kind)
            .ok_or_else(|| not_known(kind, &format!("job that was measured on {device}"), known()))
    }
}

fn of_device(
    table: &GavelTable,
    kinds: &[&str],
    pairs: &[Pair],
) -> Result<BTreeMap<String, Demand>, InputError> {
    let is_known = |job: &usize| pairs.iter().any(|pair| pair.shares.is_some() && pair.jobs.contains(job));
    let (known, new): (Vec<usize>, Vec<usize>) = (0..kinds.len()).partition(is_known);
    let place = |job: usize| known.binary_search(&job).ok();
    let among_known = |pair: &Pair| {
        let [Some(first), Some(second)] = pair.jobs.map(place) else { return None };
        Some(Pair { jobs: [first, second], ..*pair })
    };
    let pairs: Vec<Pair> = pairs.iter().filter_map(among_known).collect();
    let fitted = fit(known.len(), &pairs, RESOURCES)?;
    let profiles: Vec<Vec<f64>> = known.iter().map(|&job| profile(table, kinds[job])).collect();
    let newcomers = Newcomers::fit(&fitted, &profiles)?;
    let expected =
        new.iter().map(|&job| (kinds[job].to_owned(), newcomers.expect(&profile(table, kinds[job]))));
    let fitted = known.iter().zip(fitted).map(|(&job, demand)| (kinds[job].to_owned(), demand));
    Ok(fitted.chain(expected).collect())
}

/// What is known of a kind of job that was only measured alone: the logarithm of its steps per second on the first type
/// of device, and of how much faster it is on each next one. Where it does not run it counts as fast as on the one
/// before.
pub fn profile(table: &GavelTable, kind: &str) -> Vec<f64> {
    let mut before = None;
    let one = |device: &str| {
        let logarithm = table.steps_per_s(device, kind, 1, false).map(libm::log).ok();
        let value = logarithm.map_or(0.0, |logarithm| logarithm - before.unwrap_or(0.0));
        before = logarithm.or(before);
        value
    };
    table.device_types().map(one).collect()
}

impl StepModel for Colocated {
    /// As the table.
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.table.predict(job, configuration)
    }

    fn shared(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        beside: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        if own_devices(configuration)? != 1 {
            return Ok(None);
        }
        least_kept(configuration, |device| {
            let (own, other) = (self.demand(device, &job.model)?, self.demand(device, &beside.model)?);
            Ok(together(own, other).map(|[kept, _]| kept))
        })
    }
}
