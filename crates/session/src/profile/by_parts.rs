//! Makes a profile of training through parameter servers from what one worker's updates took.
//!
//! ```text
//! download 0 → compute → ... → compute → upload n → update n
//! ```
//!
//! Every part is asked for when a unit begins, in the order of the parts; the description's computing goes on in
//! the order in which it took and gave tensors, each phase of it after the one before and after the tensor
//! that it took.

use bellwether_core::profile::{
    MeasuredStep, Network, Operation, OperationKind, PROFILE_VERSION, Parsing, Part, Profile,
};
use bellwether_core::record::{Boot, Call};

/// Bytes from which the time of handling a part is mostly that of its bytes.
const LARGE_BYTES: u64 = 256 << 10;

/// One unit of work: the gradient that became one update.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unit {
    /// Seconds from the end of the unit before it to its own.
    pub(crate) duration_s: f64,
    /// Seconds of computing before each call, and after the last.
    pub(crate) compute_s: Vec<f64>,
    /// Seconds of it that waited for samples, beside computing.
    pub(crate) data_wait_s: f64,
}

/// What was measured of one worker and one server.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// Name of the job.
    pub(crate) job: String,
    /// The description's fingerprint.
    pub(crate) device: String,
    /// Samples of a unit.
    pub(crate) batch: u64,
    /// Name and bytes of each tensor, in layout order.
    pub(crate) tensors: Vec<(String, u64)>,
    /// What the description took and gave, in order; the same in every unit.
    pub(crate) calls: Vec<Call>,
    /// Units, warm-up left out.
    pub(crate) units: Vec<Unit>,
    /// Mean seconds in which the server applied a gradient of each tensor.
    pub(crate) update_s: Vec<f64>,
    /// Bytes of parts, and the seconds that handling each took beside the link.
    pub(crate) handling: Vec<(u64, f64)>,
    /// The link to the server.
    pub(crate) network: Option<Network>,
    /// Largest resident memory of the worker, where it is known.
    pub(crate) peak_resident_bytes: Option<u64>,
    /// What the start of the first worker took.
    pub(crate) boot: Option<Boot>,
}

/// The profile.
pub(crate) fn profile(measured: &Measured) -> Profile {
    let part = |(name, bytes): &(String, u64)| Part { name: name.clone(), bytes: *bytes, server: None };
    let parts: Vec<Part> = measured.tensors.iter().map(part).collect();
    let operations = operations(&parts, &measured.calls);
    let complete = measured.units.iter().filter(|unit| unit.compute_s.len() == measured.calls.len() + 1);
    let steps = complete.map(|unit| step(unit, &operations, &measured.update_s));
    Profile {
        version: PROFILE_VERSION,
        job: measured.job.clone(),
        source: concat!("bellwether ", env!("CARGO_PKG_VERSION")).into(),
        computation: None,
        device: measured.device.clone(),
        batch: measured.batch,
        virtual_nodes: 1,
        parameter_bytes: parts.iter().map(|part| part.bytes).sum(),
        steps: steps.collect(),
        operations,
        parts,
        collective: None,
        network: measured.network,
        shared_memory: None,
        parsing: parsing(&measured.handling),
        checkpoint_s: None,
        tail_s: None,
        sharding: None,
        peak_resident_bytes: measured.peak_resident_bytes,
        processor_wait: None,
        boot: measured.boot,
        apart: None,
        batches: Vec::new(),
    }
}

/// All downloads, the computing before each call and after the last, then uploads and updates as gradients
/// were given.
fn operations(parts: &[Part], calls: &[Call]) -> Vec<Operation> {
    let count = parts.len() as u32;
    let name = |tensor: u32| &parts[tensor as usize].name;
    let mut operations: Vec<Operation> = (0..count)
        .map(|part| Operation {
            name: format!("download {}", name(part)),
            kind: OperationKind::Download(part),
            after: vec![],
        })
        .collect();
    for place in 0..=calls.len() {
        let what = match calls.get(place) {
            Some(Call::Take(tensor)) => format!("compute until {} is needed", name(*tensor)),
            Some(Call::Give(tensor)) => format!("compute the gradient of {}", name(*tensor)),
            None => "compute to the end".into(),
        };
        let before = place.checked_sub(1);
        let mut after: Vec<u32> = before.iter().map(|before| count + *before as u32).collect();
        if let Some(Call::Take(tensor)) = before.map(|before| calls[before]) {
            after.push(tensor);
        }
        operations.push(Operation { name: what, kind: OperationKind::Compute, after });
    }
    for (place, call) in calls.iter().enumerate() {
        let Call::Give(tensor) = *call else { continue };
        let (given, sent) = (count + place as u32, operations.len() as u32);
        let operation = |what: &str, kind, after| Operation {
            name: format!("{what} {}", name(tensor)),
            kind,
            after: vec![after],
        };
        operations.push(operation("upload", OperationKind::Upload(tensor), given));
        operations.push(operation("update", OperationKind::Update(tensor), sent));
    }
    operations
}

fn step(unit: &Unit, operations: &[Operation], update_s: &[f64]) -> MeasuredStep {
    let data_wait_s = unit.data_wait_s.min(unit.duration_s);
    let mut compute_s = unit.compute_s.iter().copied();
    let seconds = |operation: &Operation| match operation.kind {
        OperationKind::Compute => compute_s.next().unwrap_or(0.0),
        OperationKind::Update(part) => update_s.get(part as usize).copied().unwrap_or(0.0),
        OperationKind::Download(_) | OperationKind::Upload(_) => 0.0,
    };
    MeasuredStep {
        step_s: unit.duration_s,
        operations_s: operations.iter().map(seconds).collect(),
        data_wait_s,
    }
}

/// Least squares of `fixed_s + s_per_byte · bytes`, neither below 0. With parts of one size it cannot be told
/// how much is for bytes and how much for messages: that of large parts is for bytes.
fn parsing(handling: &[(u64, f64)]) -> Option<Parsing> {
    if handling.is_empty() {
        return None;
    }
    let count = handling.len() as f64;
    let mean_bytes = handling.iter().map(|(bytes, _)| *bytes as f64).sum::<f64>() / count;
    let mean_s = handling.iter().map(|(_, seconds)| seconds).sum::<f64>() / count;
    let from_mean = |bytes: u64| bytes as f64 - mean_bytes;
    let spread: f64 = handling.iter().map(|(bytes, _)| from_mean(*bytes).powi(2)).sum();
    let together: f64 = handling.iter().map(|(bytes, seconds)| from_mean(*bytes) * (seconds - mean_s)).sum();
    let alone = |s_per_byte| Parsing { fixed_s: 0.0, s_per_byte };
    if spread == 0.0 {
        return Some(match mean_bytes >= LARGE_BYTES as f64 {
            true => alone(mean_s.max(0.0) / mean_bytes),
            false => Parsing { fixed_s: mean_s.max(0.0), s_per_byte: 0.0 },
        });
    }
    let s_per_byte = together / spread;
    let fixed_s = mean_s - s_per_byte * mean_bytes;
    Some(if s_per_byte < 0.0 {
        Parsing { fixed_s: mean_s.max(0.0), s_per_byte: 0.0 }
    } else if fixed_s < 0.0 {
        // The best line through nothing at no bytes.
        let squares: f64 = handling.iter().map(|(bytes, _)| (*bytes as f64).powi(2)).sum();
        let products: f64 = handling.iter().map(|(bytes, seconds)| *bytes as f64 * seconds).sum();
        alone((products / squares).max(0.0))
    } else {
        Parsing { fixed_s, s_per_byte }
    })
}

#[cfg(test)]
mod tests {
    use bellwether_model::event::{Setting, simulate};

    use super::*;

    fn measured() -> Measured {
        let unit = |factor: f64| Unit {
            duration_s: 9.0,
            compute_s: [0.0, 1.0, 3.0, 2.0, 0.0].map(|seconds| seconds * factor).to_vec(),
            data_wait_s: 0.5,
        };
        Measured {
            job: "job".into(),
            device: "any".into(),
            batch: 8,
            tensors: vec![("a".into(), 1_000_000), ("b".into(), 1_000_000)],
            calls: vec![Call::Take(0), Call::Take(1), Call::Give(1), Call::Give(0)],
            units: vec![
                unit(1.0),
                unit(1.0),
                Unit { duration_s: 1.0, compute_s: vec![1.0], data_wait_s: 0.0 },
            ],
            update_s: vec![0.5, 0.25],
            handling: vec![],
            network: None,
            peak_resident_bytes: Some(1 << 20),
            boot: None,
        }
    }

    #[test]
    fn a_step_computes_what_it_has_and_sends_what_is_done() {
        let profile = profile(&measured());
        assert_eq!(profile.check(), Ok(()));
        // A unit that was cut short says nothing.
        assert_eq!((profile.steps.len(), profile.compute_s()[0], profile.update_s()[0]), (2, 6.0, 0.75));
        assert_eq!((profile.data_wait_s(), profile.peak_resident_bytes), (vec![0.5; 2], Some(1 << 20)));
        // Down: a until 1 s, b until 2 s. Computing: a's 1 to 2 s, then until 5 s and 7 s. Up: b from 5 to 6
        // s, a from
        // 7 to 8 s; applied at 8.5 s.
        let link = 1e6;
        let setting = Setting {
            server_link_bytes_per_s: link,
            worker_link_bytes_per_s: link,
            random_start: false,
            ..Setting::default()
        };
        let outcome = simulate(&profile, &setting).unwrap();
        assert!((outcome.step_s - 8.5).abs() < 1e-6, "{}", outcome.step_s);
    }

    #[test]
    fn computing_waits_for_what_it_takes_and_for_nothing_else() {
        let profile = profile(&measured());
        let after = |name: &str| {
            let operation = profile.operations.iter().find(|operation| operation.name == name).unwrap();
            let names =
                operation.after.iter().map(|before| profile.operations[*before as usize].name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(after("compute until a is needed"), "");
        assert_eq!(after("compute until b is needed"), "compute until a is needed, download a");
        assert_eq!(after("compute the gradient of b"), "compute until b is needed, download b");
        assert_eq!(after("compute the gradient of a"), "compute the gradient of b");
        assert_eq!(after("upload a"), "compute the gradient of a");
        assert_eq!(after("update a"), "upload a");
    }

    #[test]
    fn handling_is_a_line_that_is_nowhere_below_nothing() {
        let line = |points: &[(u64, f64)]| {
            let Parsing { fixed_s, s_per_byte } = parsing(points).unwrap();
            (fixed_s, s_per_byte)
        };
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| {
            assert!((a - c).abs() < 1e-9 && (b - d).abs() < 1e-12, "{a} {b}, expected {c} {d}");
        };
        near(line(&[(1000, 0.003), (2000, 0.004), (3000, 0.005)]), (0.002, 1e-6));
        // Through the origin where the best line would begin below it; level where it would fall.
        near(line(&[(1000, 0.0), (2000, 0.001)]), (0.0, 2.0 / 5.0 * 1e-6));
        near(line(&[(1000, 0.003), (3000, 0.001)]), (0.002, 0.0));
        near(line(&[(1 << 20, 0.002), (1 << 20, 0.004)]), (0.0, 0.003 / f64::from(1 << 20)));
        near(line(&[(1 << 10, 0.002)]), (0.002, 0.0));
        assert!(parsing(&[]).is_none());
    }
}
