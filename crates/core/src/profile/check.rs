//! What makes a profile usable, and what to say when it is not.

use serde::Deserialize;

use super::{MeasuredBatch, Network, OperationKind, PROFILE_VERSION, Profile};
use crate::error::InputError;

const AGAIN: &str = "measure again with `bellwether profile`";

/// Samples of a step, at most: what is worked out from them must not overflow.
const BATCH_MAX: u64 = 1 << 40;

/// Bytes that a step exchanges, and bytes of all parts, at most.
const BYTES_MAX: u64 = 1 << 60;

/// Only the version, so that a profile of another version is not called malformed.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

pub(super) fn read(text: &str, place: &str) -> Result<Profile, InputError> {
    let version: Version = serde_json::from_str(text).map_err(|error| {
        InputError::new(place, format!("invalid profile: {error}")).hint(
            "a profile is made by `bellwether profile JOB.toml`, or by `bellwether profile --import TRACE`",
        )
    })?;
    if version.version != PROFILE_VERSION {
        let what = format!(
            "the profile has version {}, and this program reads version {PROFILE_VERSION}",
            version.version
        );
        return Err(InputError::new(place, what).hint(AGAIN));
    }
    let profile: Profile = serde_json::from_str(text).map_err(|error| {
        InputError::new(place, format!("the profile cannot be read: {error}")).hint(AGAIN)
    })?;
    profile.check().map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })?;
    Ok(profile)
}

pub(super) fn check(profile: &Profile) -> Result<(), InputError> {
    let wrong = |place: &str, what: String| Err(InputError::new(place, what).hint(AGAIN));
    if profile.batch == 0 || profile.virtual_nodes == 0 {
        return wrong("batch", "a step has at least one sample and one virtual node".into());
    }
    if profile.batch > BATCH_MAX {
        return wrong("batch", format!("no step has {} samples", profile.batch));
    }
    if profile.steps.is_empty() {
        return wrong("steps", "there is no measured step".into());
    }
    check_operations(profile)?;
    let bytes = profile.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
    if bytes.max(profile.upload_bytes()) > BYTES_MAX {
        return wrong("parts", "together they are more bytes than any machine has".into());
    }
    for (number, step) in profile.steps.iter().enumerate() {
        let place = format!("steps[{number}]");
        if step.operations_s.len() != profile.operations.len() {
            let (has, wants) = (step.operations_s.len(), profile.operations.len());
            return wrong(&place, format!("{has} durations for {wants} operations"));
        }
        if let Some(bad) = step.operations_s.iter().find(|seconds| !is_duration(**seconds)) {
            return wrong(&place, format!("{bad} is not a duration in seconds"));
        }
        if !is_duration(step.data_wait_s) || step.data_wait_s > step.step_s {
            let what = format!("it cannot wait {} s for data within {} s", step.data_wait_s, step.step_s);
            return wrong(&place, what);
        }
        if !is_duration(step.step_s) || step.step_s == 0.0 {
            return wrong(&place, format!("a step cannot take {} s", step.step_s));
        }
    }
    if profile.processor_wait.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return wrong("processor_wait", "a part of a time is a number from 0 to 1".into());
    }
    if profile.peak_resident_bytes.is_some_and(|bytes| bytes == 0 || bytes > BYTES_MAX) {
        return wrong("peak_resident_bytes", "no worker has so much memory".into());
    }
    check_batches(&profile.batches)?;
    check_costs(profile)
}

fn check_batches(batches: &[MeasuredBatch]) -> Result<(), InputError> {
    for (number, batch) in batches.iter().enumerate() {
        let wrong = |what: String| Err(InputError::new(format!("batches[{number}]"), what).hint(AGAIN));
        let MeasuredBatch { samples, compute_s, error, peak_resident_bytes } = *batch;
        if samples == 0 || samples > BATCH_MAX {
            return wrong(format!("a micro-batch of {samples} samples cannot be measured"));
        }
        if number > 0 && samples <= batches[number - 1].samples {
            return wrong(format!("its {samples} samples are not more than those of the batch before it"));
        }
        if !is_duration(compute_s) || compute_s == 0.0 {
            return wrong(format!("{samples} samples cannot be computed in {compute_s} s"));
        }
        if !is_duration(error) {
            return wrong(format!("{error} is not a relative standard error"));
        }
        if peak_resident_bytes.is_some_and(|bytes| bytes == 0 || bytes > BYTES_MAX) {
            return wrong("no worker has so much memory".into());
        }
    }
    match batches.len() {
        1 => Err(InputError::new("batches", "one size says nothing of another").hint(AGAIN)),
        _ => Ok(()),
    }
}

fn check_operations(profile: &Profile) -> Result<(), InputError> {
    let wrong =
        |number: usize, what: String| Err(InputError::new(format!("operations[{number}]"), what).hint(AGAIN));
    for (number, operation) in profile.operations.iter().enumerate() {
        if let OperationKind::Download(part) | OperationKind::Upload(part) | OperationKind::Update(part) =
            operation.kind
            && part as usize >= profile.parts.len()
        {
            return wrong(
                number,
                format!("there is no part {part}: the profile has {}", profile.parts.len()),
            );
        }
        if let Some(bad) = operation.after.iter().find(|after| **after as usize >= profile.operations.len()) {
            return wrong(number, format!("it waits for operation {bad}, which does not exist"));
        }
    }
    match circle(profile) {
        Some(number) => {
            let name = &profile.operations[number].name;
            wrong(number, format!("`{name}` waits for itself through others: the graph has a circle"))
        }
        None => Ok(()),
    }
}

/// An operation on a circle of the graph, if there is one.
fn circle(profile: &Profile) -> Option<usize> {
    let count = profile.operations.len();
    let mut waiting: Vec<usize> = profile.operations.iter().map(|o| o.after.len()).collect();
    let mut followers = vec![Vec::new(); count];
    for (number, operation) in profile.operations.iter().enumerate() {
        operation.after.iter().for_each(|before| followers[*before as usize].push(number));
    }
    let mut ready: Vec<usize> = (0..count).filter(|number| waiting[*number] == 0).collect();
    while let Some(number) = ready.pop() {
        for follower in &followers[number] {
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                ready.push(*follower);
            }
        }
    }
    let stuck = |number: &usize| waiting[*number] > 0;
    // Going back from a stuck operation along stuck ones ends on the circle itself.
    let mut number = (0..count).find(stuck)?;
    for _ in 0..count {
        number = profile.operations[number].after.iter().map(|before| *before as usize).find(stuck)?;
    }
    Some(number)
}

fn check_costs(profile: &Profile) -> Result<(), InputError> {
    let mut costs = Vec::new();
    let links = [
        ("network", "network.latency_s", profile.network),
        ("shared_memory", "shared_memory.latency_s", profile.shared_memory),
    ];
    for (place, latency, link) in links {
        let Some(Network { bandwidth_bytes_per_s, latency_s }) = link else { continue };
        if !(bandwidth_bytes_per_s.is_finite() && bandwidth_bytes_per_s > 0.0) {
            let what = format!("a bandwidth of {bandwidth_bytes_per_s} bytes per second carries nothing");
            return Err(InputError::new(place, what).hint(AGAIN));
        }
        costs.push((latency, latency_s));
    }
    if let Some(cost) = profile.collective {
        costs.extend([("collective.s_per_byte", cost.s_per_byte), ("collective.fixed_s", cost.fixed_s)]);
    }
    if let Some(cost) = profile.parsing {
        costs.extend([("parsing.s_per_byte", cost.s_per_byte), ("parsing.fixed_s", cost.fixed_s)]);
    }
    if let Some(apart) = profile.apart {
        costs.extend([("apart.step_error", apart.step_error), ("apart.link_error", apart.link_error)]);
        if let Some(cost) = apart.handling {
            costs.push(("apart.handling.s_per_byte", cost.s_per_byte));
            costs.push(("apart.handling.fixed_s", cost.fixed_s));
        }
    }
    if let Some(boot) = profile.boot {
        costs.extend(boot.stages().map(|(_, seconds)| ("boot", seconds)));
    }
    costs.extend(profile.checkpoint_s.map(|seconds| ("checkpoint_s", seconds)));
    costs.extend(profile.tail_s.map(|seconds| ("tail_s", seconds)));
    match costs.into_iter().find(|(_, seconds)| !is_duration(*seconds)) {
        Some((place, seconds)) => {
            Err(InputError::new(place, format!("{seconds} is not a duration in seconds")).hint(AGAIN))
        }
        None => Ok(()),
    }
}

fn is_duration(seconds: f64) -> bool {
    seconds.is_finite() && seconds >= 0.0
}
