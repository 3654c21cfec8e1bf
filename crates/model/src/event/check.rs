//! What makes a setting usable, and what to say when it is not.

use bellwether_core::error::InputError;
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::{Operation, OperationKind, Profile};

use super::{ComputeDiscipline, LinkSharing, Setting, StepEnd, TransmissionOrder};
use crate::common::check;

/// Workers at most, and connections at most: a mistyped number must not take the machine's memory.
const MOST_WORKERS: u32 = 1 << 14;
const MOST_CONNECTIONS: u64 = 1 << 20;
/// Values that are held per worker and operation, at most.
const MOST_OPERATIONS: u64 = 1 << 28;
/// Dependencies that completing a profile with downloads may add: each first computation waits for each part.
const MOST_ADDED: usize = 1 << 26;
/// Fewer steps give no 20 batches.
pub(crate) const FEWEST_STEPS: u32 = 24;
/// Longest duration that is added up, in seconds (30,000 years): sums of these stay far from what a number holds.
const LONGEST_S: f64 = 1e12;

pub(super) fn check(profile: &Profile, setting: &Setting) -> Result<(), InputError> {
    check_size(profile)?;
    check_numbers(profile, setting)?;
    check_protocol(setting)?;
    if !setting.speeds.is_empty() && setting.speeds.len() != setting.workers as usize {
        let what = format!("{} speeds for {} workers", setting.speeds.len(), setting.workers);
        return Err(InputError::new("speeds", what).hint("give one for each worker, or none"));
    }
    for speed in &setting.speeds {
        check::not_positive("speeds", "the speed of a worker", *speed)?;
    }
    match &setting.order {
        TransmissionOrder::Priority(levels) if levels.len() != profile.parts.len() => {
            let what = format!("{} levels for {} parts", levels.len(), profile.parts.len());
            Err(InputError::new("order", what).hint("give one for each part"))
        }
        _ => check_durations(profile, setting),
    }
}

/// Refuses a profile that [`super::with_downloads`] would blow up.
pub(super) fn check_size(profile: &Profile) -> Result<(), InputError> {
    let count = |counts: fn(&Operation) -> bool| profile.operations.iter().filter(|o| counts(o)).count();
    let downloads = count(|o| matches!(o.kind, OperationKind::Download(_)));
    let uploads = count(|o| matches!(o.kind, OperationKind::Upload(_)));
    let first = count(|o| o.kind == OperationKind::Compute && o.after.is_empty());
    if downloads == 0 && first.saturating_mul(uploads) > MOST_ADDED {
        let what = format!("{first} computations wait for nothing, and each would wait for {uploads} parts");
        return Err(InputError::new("operations", what)
            .hint("say in `after` which of them come after others, or add the downloads to the profile"));
    }
    Ok(())
}

fn check_numbers(profile: &Profile, setting: &Setting) -> Result<(), InputError> {
    if setting.workers == 0 {
        return Err(
            InputError::new("workers", "without workers nothing is computed").hint("ask for one or more")
        );
    }
    if setting.servers == 0 {
        let error = InputError::new("servers", "missing servers: this protocol keeps parameters at servers");
        return Err(error.hint("ask for one server or more, or for a protocol without them"));
    }
    if profile.operations.is_empty() {
        return Err(
            InputError::new("operations", "a step of this profile does nothing").hint("measure again")
        );
    }
    let connections = u64::from(setting.workers) * u64::from(setting.servers);
    let operations = u64::from(setting.workers) * profile.operations.len() as u64;
    if setting.workers > MOST_WORKERS || connections > MOST_CONNECTIONS || operations > MOST_OPERATIONS {
        let what = format!(
            "{} workers with {} servers and {} operations each are more than can be simulated one by one",
            setting.workers,
            setting.servers,
            profile.operations.len()
        );
        return Err(InputError::new("workers", what).hint("use the coarse model"));
    }
    let bandwidth = "the bandwidth in bytes/s";
    check::not_positive("server link", bandwidth, setting.server_link_bytes_per_s)?;
    check::not_positive("worker link", bandwidth, setting.worker_link_bytes_per_s)?;
    check::negative("link", "the latency in seconds", setting.latency_s)?;
    check::negative("interval", "the relative half-width", setting.relative_half_width)?;
    if setting.steps < FEWEST_STEPS {
        let what = format!("{} steps give no interval", setting.steps);
        return Err(InputError::new("steps", what).hint(format!("simulate {FEWEST_STEPS} or more")));
    }
    Ok(())
}

/// Refuses what would take so long that times could not be added up any more.
fn check_durations(profile: &Profile, setting: &Setting) -> Result<(), InputError> {
    let refuse = |place: String, seconds: f64| {
        if seconds <= LONGEST_S {
            return Ok(());
        }
        let what = format!("it takes {seconds:e} s, which is more than can be simulated");
        Err(InputError::new(place, what).hint(format!("{LONGEST_S:e} s is the longest")))
    };
    let slowest = setting.speeds.iter().copied().fold(1.0, f64::min);
    for (number, step) in profile.steps.iter().enumerate() {
        let longest_s = step.operations_s.iter().copied().fold(step.step_s, f64::max);
        refuse(format!("steps[{number}]"), longest_s / slowest)?;
    }
    let bandwidth = setting.server_link_bytes_per_s.min(setting.worker_link_bytes_per_s);
    for (number, part) in profile.parts.iter().enumerate() {
        // A part without bytes takes no time, but its share of a link must not vanish either.
        let bytes = part.bytes.max(1) as f64;
        let parse_s = profile.parsing.map_or(0.0, |p| p.fixed_s + p.s_per_byte * bytes);
        refuse(format!("parts[{number}]"), (bytes / bandwidth).max(parse_s))?;
    }
    refuse("latency".to_owned(), setting.latency_s)
}

fn check_protocol(setting: &Setting) -> Result<(), InputError> {
    let protocol = setting.protocol;
    if protocol == Protocol::Gossip || protocol.is_local() {
        let what =
            format!("{protocol} has no servers, and this model has nothing but training through servers");
        return Err(InputError::new("protocol", what).hint(format!("use the phase model for {protocol}")));
    }
    if setting.protocol == Protocol::Bsp && setting.step_end == StepEnd::Sent {
        let what = "a synchronous step ends when gradients are applied, not when they are sent";
        return Err(InputError::new("step end", what).hint("let it end when they are applied"));
    }
    let together = TransmissionOrder::RoundRobin { window_bytes: 0 };
    if setting.link_sharing == LinkSharing::OneAtATime && setting.order == together {
        let what = "a link cannot serve one part at a time and all at the same time";
        return Err(InputError::new("order", what).hint("give round-robin a window"));
    }
    if setting.compute == ComputeDiscipline::Slots(0) {
        return Err(
            InputError::new("compute", "a worker without slots computes nothing").hint("give it one or more")
        );
    }
    Ok(())
}
