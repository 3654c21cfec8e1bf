//! Kinds of jobs of a trace, as a generator draws them.

use std::collections::BTreeMap;

use super::Class;
use super::law::{Amount, Law};
use super::write::ways;
use crate::trace::{Entry, Trace};

/// More kinds than this are told apart by their devices only.
const CLASSES_MAX: usize = 64;

/// This many samples stand for the work of a class.
const SAMPLES_MAX: usize = 100;

/// What jobs of a class have in common. Bits of the weight, so that it can be compared.
type Key = (u32, String, u64, u32, u32, u64, Vec<u16>, bool, bool, [String; 4], Option<String>);

fn key(entry: &Entry) -> Key {
    let job = &entry.job;
    let description = &job.description;
    let kinds = (job.adaptive_batch, job.deadline_s.is_some());
    let types = job.device_types.clone();
    let model = description.model.clone();
    (
        job.asked(),
        model,
        description.batch,
        job.min_devices,
        job.max_devices,
        job.weight.to_bits(),
        types,
        kinds.0,
        kinds.1,
        ways(job),
        job.queue.clone(),
    )
}

/// Jobs that are alike but for their work; where there are very many kinds, jobs that ask for as many devices. Beside
/// them the class of each job of the trace.
pub(super) fn of(trace: &Trace, timed: bool) -> (Vec<Class>, Vec<usize>) {
    let mut kinds = by_key(trace, key);
    if kinds.len() > CLASSES_MAX {
        kinds = by_key(trace, |entry| {
            let asked = entry.job.asked();
            (
                asked,
                String::new(),
                1,
                asked,
                asked,
                1.0_f64.to_bits(),
                Vec::new(),
                false,
                false,
                Default::default(),
                None,
            )
        });
    }
    let mut which = vec![0; trace.entries.len()];
    for (class, places) in kinds.values().enumerate() {
        places.iter().for_each(|place| which[*place] = class);
    }
    let jobs = trace.entries.len() as f64;
    let classes = kinds.into_iter().map(|(key, places)| {
        let entries: Vec<&Entry> = places.iter().map(|place| &trace.entries[*place]).collect();
        class(key, &entries, jobs, trace, timed)
    });
    (classes.collect(), which)
}

/// The places of the jobs of each key.
fn by_key(trace: &Trace, key: impl Fn(&Entry) -> Key) -> BTreeMap<Key, Vec<usize>> {
    let mut kinds: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (place, entry) in trace.entries.iter().enumerate() {
        kinds.entry(key(entry)).or_default().push(place);
    }
    kinds
}

fn class(key: Key, entries: &[&Entry], jobs: f64, trace: &Trace, timed: bool) -> Class {
    let (gpus, model, batch, least, most, weight, types, adaptive_batch, deadlines, ways, queue) = key;
    let [protocol, servers, nodes_per_update, switch_at] =
        ways.map(|cell| Some(cell).filter(|cell| !cell.is_empty()));
    let law = samples(entries.iter().map(|entry| entry.work).filter(|work| work.is_finite()).collect());
    let weight = f64::from_bits(weight);
    let slack = |entry: &&Entry| {
        let allowed_s = entry.job.deadline_s? - entry.job.arrival_s;
        Some(allowed_s / entry.work).filter(|slack| slack.is_finite() && *slack > 0.0)
    };
    let slacks: Vec<f64> = entries.iter().filter_map(slack).collect();
    Class {
        share: entries.len() as f64 / jobs,
        gpus,
        duration: timed.then(|| law.clone()),
        work: (!timed).then_some(law),
        model: (!model.is_empty()).then_some(model),
        batch: (batch != 1).then_some(batch),
        min_gpu: (least != gpus).then_some(least),
        max_gpu: (most != gpus).then_some(most),
        weight: (weight != 1.0).then_some(weight),
        slack: (deadlines && timed && !slacks.is_empty()).then(|| samples(slacks)),
        devices: types.iter().filter_map(|at| trace.device_types.get(usize::from(*at)).cloned()).collect(),
        adaptive_batch,
        protocol,
        servers,
        nodes_per_update: nodes_per_update.and_then(|cell| cell.parse().ok()),
        switch_at: switch_at.and_then(|cell| cell.parse().ok()),
        queue,
    }
}

/// Numbers that stand for many: the means of equal parts of the sorted ones, so that the mean is the same.
fn samples(mut values: Vec<f64>) -> Law {
    // No law draws more than 1e12.
    values.iter_mut().for_each(|value| *value = value.min(1e12));
    values.sort_unstable_by(f64::total_cmp);
    if values.last().is_none_or(|largest| *largest == 0.0) {
        // A law needs something positive: nothing is known of the work, or there is none.
        return Law::Fixed { value: Amount(1e-3) };
    }
    let parts = values.len().min(SAMPLES_MAX);
    if parts == values.len() {
        return Law::Samples { values: values.into_iter().map(Amount).collect() };
    }
    // The integral of the quantiles up to a share of the numbers.
    let mut sums = vec![0.0];
    for value in &values {
        sums.push(sums[sums.len() - 1] + value);
    }
    let up_to = |share: f64| {
        let at = share * values.len() as f64;
        let whole = (at.floor() as usize).min(values.len());
        sums[whole] + values.get(whole).unwrap_or(&0.0) * (at - whole as f64)
    };
    let width = values.len() as f64 / parts as f64;
    let mean =
        |part: usize| (up_to((part + 1) as f64 / parts as f64) - up_to(part as f64 / parts as f64)) / width;
    Law::Samples { values: (0..parts).map(|part| Amount(mean(part).max(0.0))).collect() }
}
