//! Draws a trace from a workload.
//!
//! The n-th number of each stream belongs to the n-th job, so two workloads that differ in one thing share the luck of
//! all others. Times are rounded to milliseconds.

use std::sync::Arc;

use bellwether_core::cluster::Job;
use bellwether_core::prediction::JobDescription;
use bellwether_core::{InputError, ParseError};
use bellwether_des::Streams;

use super::arrivals::Clock;
use super::law::chosen;
use super::{Class, JOBS_MAX, Workload};
use crate::trace::{Entry, Format, Trace};

/// Draws a trace: the same seed gives the same jobs. Indices of types of device are those of `device_types`, or where
/// that is empty, of the types that the classes name.
///
/// # Errors
///
/// Returns an error if the workload makes no sense, names a type that is not there, or no job arrives before its
/// horizon.
pub fn generate(workload: &Workload, seed: u64, device_types: &[String]) -> Result<Trace, InputError> {
    workload.check()?;
    let device_types = types_of(workload, device_types);
    let accepted: Vec<Vec<u16>> =
        workload.classes.iter().map(|class| indices(class, &device_types)).collect::<Result<_, _>>()?;
    let streams = Streams::new(seed);
    let stream = |name: &str| streams.stream(name, 0);
    let [mut kinds, mut branches, mut sizes, mut slack_branches, mut slacks] =
        ["kinds", "branches", "sizes", "slack branches", "slacks"].map(stream);
    let mut clock = Clock::new(&workload.arrivals, workload.scale(), &streams)?;
    let shares: Vec<f64> = workload.classes.iter().map(|class| class.share).collect();
    let end_s = workload.horizon.map_or(f64::INFINITY, |horizon| horizon.0);
    let jobs = workload.jobs.unwrap_or(JOBS_MAX) as usize;
    let mut entries = Vec::new();
    while entries.len() < jobs {
        let arrival_s = milliseconds(clock.next(end_s));
        if arrival_s > end_s {
            break;
        }
        if arrival_s > 1e12 {
            return Err(InputError::new("arrivals", "jobs are so rare that the last arrive after 1e12 s"));
        }
        let kind = chosen(clock.classes().unwrap_or(&shares), kinds.uniform());
        let class = &workload.classes[kind];
        let work = class.draw_work(sizes_of(class).draw(&mut sizes, &mut branches));
        let slack = match &class.slack {
            Some(law) => Some(law.draw(&mut slacks, &mut slack_branches)),
            None => {
                slacks.number();
                slack_branches.number();
                None
            }
        };
        let deadline_s = slack.map(|slack| milliseconds(arrival_s + slack * work).min(1e12));
        let job = class.job(entries.len(), arrival_s, deadline_s, accepted[kind].clone());
        // The row in which `write_csv` writes it.
        let is_duration = class.duration.is_some();
        entries.push(Entry { job: Arc::new(job), work, is_duration, row: entries.len() + 2 });
    }
    if entries.is_empty() {
        return Err(InputError::new("horizon", "no job arrives in this time"));
    }
    Ok(Trace { entries, repairs: Vec::new(), refused: Vec::new(), format: Format::Csv, device_types })
}

fn milliseconds(seconds: f64) -> f64 {
    if seconds < 1e12 { (seconds * 1000.0).round() / 1000.0 } else { seconds }
}

/// The types given, or those that the classes name.
fn types_of(workload: &Workload, given: &[String]) -> Vec<String> {
    let mut types = given.to_vec();
    if given.is_empty() {
        for name in workload.classes.iter().flat_map(|class| &class.devices) {
            if !types.contains(name) {
                types.push(name.clone());
            }
        }
    }
    types
}

/// The types that a class may run on; of several the cluster needs to have one.
fn indices(class: &Class, types: &[String]) -> Result<Vec<u16>, InputError> {
    let place = |name: &String| types.iter().position(|known| known == name);
    let mut found: Vec<u16> =
        class.devices.iter().filter_map(place).filter_map(|at| u16::try_from(at).ok()).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() && !class.devices.is_empty() {
        return Err(ParseError::one_of("device", &class.devices[0], types).at("devices"));
    }
    Ok(found)
}

fn sizes_of(class: &Class) -> &super::Law {
    let law = class.duration.as_ref().or(class.work.as_ref());
    law.expect("a class that was checked has one of them")
}

impl Class {
    /// Durations are whole milliseconds, and steps are whole.
    fn draw_work(&self, drawn: f64) -> f64 {
        match (drawn, self.duration.is_some()) {
            (0.0, _) => 0.0,
            (drawn, true) => milliseconds(drawn).clamp(0.001, 1e12),
            (drawn, false) => drawn.round().max(1.0),
        }
    }

    fn job(&self, number: usize, arrival_s: f64, deadline_s: Option<f64>, device_types: Vec<u16>) -> Job {
        let (least, most) = self.range();
        let (ways, switch, needed) = self.ways().expect("a class that was checked names ways");
        Job {
            description: JobDescription {
                name: number.to_string(),
                model: self.model.clone().unwrap_or_default(),
                batch: self.batch.unwrap_or(1),
                // Its servers need devices too, and a trace can say no fewer.
                devices: self.gpus.max(needed),
            },
            arrival_s,
            min_devices: least.max(needed),
            max_devices: most,
            device_types,
            weight: self.weight.unwrap_or(1.0),
            deadline_s,
            adaptive_batch: self.adaptive_batch,
            ways,
            switch,
            workers: None,
            queue: self.queue.clone(),
        }
    }
}
