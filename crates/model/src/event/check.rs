//! What makes a setting usable, and what to say when it is not.

use bellwether_core::error::InputError;
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::Profile;

use super::{ComputeDiscipline, LinkSharing, Setting, StepEnd, TransmissionOrder};

/// Workers at most, and connections at most: a mistyped number must not take the machine's memory.
const MOST_WORKERS: u32 = 1 << 14;
const MOST_CONNECTIONS: u64 = 1 << 20;
/// Values that are held per worker and operation, at most.
const MOST_OPERATIONS: u64 = 1 << 28;
/// Fewer steps give no 20 batches.
const FEWEST_STEPS: u32 = 24;

pub(super) fn check(profile: &Profile, setting: &Setting) -> Result<(), InputError> {
    check_numbers(profile, setting)?;
    check_protocol(setting)?;
    let wrong = |place: &str, what: String| Err(InputError::new(place, what));
    if !setting.speeds.is_empty() && setting.speeds.len() != setting.workers as usize {
        let what = format!("{} speeds for {} workers", setting.speeds.len(), setting.workers);
        return wrong("speeds", what);
    }
    if let Some(speed) = setting.speeds.iter().find(|speed| !(speed.is_finite() && **speed > 0.0)) {
        return wrong("speeds", format!("a worker of speed {speed} gets nothing done"));
    }
    match &setting.order {
        TransmissionOrder::Priority(levels) if levels.len() != profile.parts.len() => {
            wrong("order", format!("{} levels for {} parts", levels.len(), profile.parts.len()))
        }
        _ => Ok(()),
    }
}

fn check_numbers(profile: &Profile, setting: &Setting) -> Result<(), InputError> {
    let wrong = |place: &str, what: String| Err(InputError::new(place, what));
    if setting.workers == 0 {
        return wrong("workers", "without workers nothing is computed".into());
    }
    if setting.servers == 0 {
        let error = InputError::new("servers", "missing servers: this protocol keeps parameters at servers");
        return Err(error.hint("ask for one server or more, or for a protocol without them"));
    }
    if profile.operations.is_empty() {
        return wrong("operations", "a step of this profile does nothing".into());
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
    let bandwidths = [
        ("server bandwidth", setting.server_link_bytes_per_s),
        ("worker bandwidth", setting.worker_link_bytes_per_s),
    ];
    for (place, bandwidth) in bandwidths {
        if !(bandwidth.is_finite() && bandwidth > 0.0) {
            return wrong(place, format!("a bandwidth of {bandwidth} bytes per second carries nothing"));
        }
    }
    let is_duration = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    if !is_duration(setting.latency_s) {
        return wrong("latency", format!("{} is no duration in seconds", setting.latency_s));
    }
    if setting.steps < FEWEST_STEPS {
        return wrong(
            "steps",
            format!("{} steps give no interval; simulate {FEWEST_STEPS} or more", setting.steps),
        );
    }
    if setting.relative_half_width.is_nan() || setting.relative_half_width < 0.0 {
        let what = format!("{} is no part of the throughput", setting.relative_half_width);
        return wrong("relative half-width", what);
    }
    Ok(())
}

fn check_protocol(setting: &Setting) -> Result<(), InputError> {
    if setting.protocol == Protocol::Gossip {
        let what = "gossip has no servers, and this model has nothing but training through servers";
        return Err(InputError::new("protocol", what).hint("use the phase model for gossip"));
    }
    if setting.protocol == Protocol::Bsp && setting.step_end == StepEnd::Sent {
        let what = "a synchronous step ends when gradients are applied, not when they are sent";
        return Err(InputError::new("step end", what));
    }
    let together = TransmissionOrder::RoundRobin { window_bytes: 0 };
    if setting.link_sharing == LinkSharing::OneAtATime && setting.order == together {
        let what = "a link cannot serve one part at a time and all at the same time";
        return Err(InputError::new("order", what).hint("give round-robin a window"));
    }
    if setting.compute == ComputeDiscipline::Slots(0) {
        return Err(InputError::new("compute", "a worker without slots computes nothing"));
    }
    Ok(())
}
