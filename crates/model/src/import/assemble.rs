//! A profile from what was found in each step of a trace.

use std::collections::BTreeMap;

use bellwether_core::error::InputError;
use bellwether_core::profile::{MeasuredStep, Operation, OperationKind, PROFILE_VERSION, Part, Profile};

use super::Imported;

/// What one step of a trace holds, in seconds of the worker's own time: without waiting for others.
#[derive(Debug, Clone, Default)]
pub(super) struct TracedStep {
    /// Before the forward pass: whatever is neither of the passes nor the update.
    pub(super) between_s: f64,
    /// The forward pass and the loss.
    pub(super) forward_s: f64,
    /// The backward pass until each part was ready, from the one before; one per part.
    pub(super) ready_s: Vec<f64>,
    /// The backward pass after the last part was ready.
    pub(super) rest_s: f64,
    /// The update of all parameters.
    pub(super) update_s: f64,
    /// Name and bytes of each part, in the order in which they were ready.
    pub(super) parts: Vec<(String, u64)>,
}

/// What holds for the whole trace.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) source: &'static str,
    pub(super) device: String,
    /// Samples of a step, where the trace says.
    pub(super) batch: Option<u64>,
    /// Whether each step fetches all parts before it begins.
    pub(super) downloads: bool,
    /// Bytes of each pull of a variable beyond its first, where workers pull from servers.
    pub(super) pulled_again: Vec<u64>,
    pub(super) notes: Vec<String>,
}

/// Puts the profile together.
pub(super) fn assemble(
    steps: Vec<TracedStep>,
    mut about: Description,
    place: &str,
) -> Result<Imported, InputError> {
    let steps = alike(steps, &mut about.notes, place)?;
    let parts = &steps[0].parts;
    let batch = about.batch.unwrap_or(1);
    if about.batch.is_none() {
        about.notes.push(
            "the trace does not say how many samples a step has; the profile says 1, so throughput counts steps"
                .into(),
        );
    }
    let again: Vec<(String, u64)> = (1..)
        .zip(&about.pulled_again)
        .map(|(number, bytes)| (format!("read again {number}"), *bytes))
        .collect();
    let downloads = about.downloads || !again.is_empty();
    let operations = operations(parts, downloads, &again);
    let measured = |step: &TracedStep| {
        let operations_s = durations(step, downloads, again.len());
        MeasuredStep { step_s: operations_s.iter().sum(), operations_s, data_wait_s: 0.0 }
    };
    let part = |(name, bytes): &(String, u64)| Part { name: name.clone(), bytes: *bytes, server: None };
    let profile = Profile {
        version: PROFILE_VERSION,
        job: job(place),
        source: about.source.to_string(),
        computation: None,
        device: about.device,
        batch,
        virtual_nodes: 1,
        parameter_bytes: parts.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes)),
        parts: parts.iter().chain(&again).map(part).collect(),
        operations,
        steps: steps.iter().map(measured).filter(|step| step.step_s > 0.0).collect(),
        collective: None,
        network: None,
        shared_memory: None,
        parsing: None,
        checkpoint_s: None,
        tail_s: None,
        sharding: None,
        peak_resident_bytes: None,
        processor_wait: None,
        boot: None,
        apart: None,
        batches: Vec::new(),
    };
    profile.check().map_err(|error| {
        InputError::new(place, format!("the trace gives no usable profile: {}: {}", error.place, error.what))
    })?;
    Ok(Imported { profile, notes: about.notes })
}

/// The steps with the same parts as most, without the first where three or more are left: a profiler's own
/// start disturbs it.
fn alike(
    steps: Vec<TracedStep>,
    notes: &mut Vec<String>,
    place: &str,
) -> Result<Vec<TracedStep>, InputError> {
    let mut counts: BTreeMap<&[(String, u64)], usize> = BTreeMap::new();
    for step in steps.iter().filter(|step| !step.parts.is_empty()) {
        *counts.entry(&step.parts).or_default() += 1;
    }
    let Some((parts, count)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
        return Err(InputError::new(place, "no step of the trace has a backward pass with gradients in it"));
    };
    if count < steps.len() {
        notes.push(format!(
            "{} of {} steps were left out: they have other gradients than most",
            steps.len() - count,
            steps.len()
        ));
    }
    let mut kept: Vec<TracedStep> = steps.iter().filter(|step| step.parts == parts).cloned().collect();
    if kept.len() >= 3 {
        kept.remove(0);
        notes.push("the first step was left out as warm-up".into());
    }
    Ok(kept)
}

/// The file's name without folders and endings.
fn job(place: &str) -> String {
    let file = place.rsplit(['/', '\\']).next().unwrap_or(place);
    let stem = file.split('.').find(|piece| !piece.is_empty());
    stem.unwrap_or("imported").to_string()
}

/// The graph: passes and updates one after another, and each part on its way as soon as it is ready.
///
/// Parts that are only read `again` follow the others, and do not change.
fn operations(parts: &[(String, u64)], downloads: bool, again: &[(String, u64)]) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut add = |name: String, kind: OperationKind, after: Vec<u32>| {
        operations.push(Operation { name, kind, after });
        operations.len() as u32 - 1
    };
    let numbered = || parts.iter().enumerate().map(|(number, (name, _))| (number as u32, name));
    let mut fetched = Vec::new();
    if downloads {
        let pulled = parts.iter().chain(again).enumerate().map(|(number, (name, _))| (number as u32, name));
        fetched.extend(
            pulled.map(|(number, name)| {
                add(format!("fetch {name}"), OperationKind::Download(number), Vec::new())
            }),
        );
    }
    let between = add("between steps".into(), OperationKind::Compute, Vec::new());
    fetched.push(between);
    let mut last = add("forward".into(), OperationKind::Compute, fetched);
    let mut sent = Vec::new();
    for (number, name) in numbered() {
        last = add(format!("backward until {name}"), OperationKind::Compute, vec![last]);
        sent.push(add(format!("send {name}"), OperationKind::Upload(number), vec![last]));
    }
    last = add("backward, rest".into(), OperationKind::Compute, vec![last]);
    sent.push(last);
    // The optimizer starts when all gradients have come back.
    let mut before = sent;
    for (number, name) in numbered() {
        before = vec![add(format!("update {name}"), OperationKind::Update(number), before)];
    }
    operations
}

/// Durations in the order of [`operations`].
fn durations(step: &TracedStep, downloads: bool, again: usize) -> Vec<f64> {
    let mut seconds = if downloads { vec![0.0; step.parts.len() + again] } else { Vec::new() };
    seconds.extend([step.between_s, step.forward_s]);
    for ready_s in &step.ready_s {
        seconds.extend([*ready_s, 0.0]);
    }
    seconds.push(step.rest_s);
    // A trace has one duration for the whole update: it is shared out by bytes.
    let total: f64 = step.parts.iter().map(|(_, bytes)| *bytes as f64).sum();
    seconds.extend(step.parts.iter().map(|(_, bytes)| step.update_s * *bytes as f64 / total.max(1.0)));
    seconds
}
