//! A profile as a table for people.

use bellwether_core::profile::{MeasuredBatch, Profile};
use bellwether_core::record::BUSY;
use bellwether_render::table;
use bellwether_render::words::count;
use bellwether_session::profile::median;

pub(super) fn table(profile: &Profile) -> String {
    let mut rows = Vec::new();
    let mut row = |name: &'static str, value: String| rows.push((name, value));
    let steps: Vec<f64> = profile.steps.iter().map(|step| step.step_s).collect();
    let of = |seconds: &[f64]| milliseconds(median(seconds).unwrap_or(f64::NAN));
    row("job", profile.job.clone());
    row("measured by", profile.source.clone());
    row("device", profile.device.clone());
    row("steps", steps.len().to_string());
    row("samples per step", profile.batch.to_string());
    row("step, median", of(&steps));
    row("  gradients", of(&profile.compute_s()));
    row("  update", of(&profile.update_s()));
    let waits_s = profile.data_wait_s();
    if waits_s.iter().any(|seconds| *seconds > 0.0) {
        row("  waits for data", of(&waits_s));
    }
    if !profile.batches.is_empty() {
        row("micro-batches", "samples, and time and peak memory with one".into());
    }
    for batch in &profile.batches {
        let MeasuredBatch { samples, compute_s, error, peak_resident_bytes } = batch;
        let per_sample = milliseconds(compute_s / *samples as f64);
        let exact = error * 100.0;
        let memory = peak_resident_bytes.map_or(String::new(), |peak| format!(", {}", bytes(peak)));
        let seconds = milliseconds(*compute_s);
        row("", format!("{samples:>6}  {seconds} (± {exact:.1} %), {per_sample} a sample{memory}"));
    }
    let parts = profile.parts.len();
    row("exchanged per step", format!("{} in {}", bytes(profile.upload_bytes()), count(parts, "part")));
    if let Some(tail_s) = profile.tail_s {
        row(
            "overlap",
            format!("gradients get ready within the last {} of a virtual node", milliseconds(tail_s)),
        );
    }
    if let Some(network) = profile.network {
        let gigabits = network.bandwidth_bytes_per_s * 8e-9;
        row("link", format!("{gigabits:.3} Gbit/s each way, {}", milliseconds(network.latency_s)));
    }
    if let Some(shared) = profile.shared_memory {
        let gigabits = shared.bandwidth_bytes_per_s * 8e-9;
        row("shared memory", format!("{gigabits:.3} Gbit/s each way, {}", milliseconds(shared.latency_s)));
    }
    if let Some(resident) = profile.peak_resident_bytes {
        row("peak memory of a worker", bytes(resident));
    }
    if let Some(share) = profile.processor_wait.filter(|share| *share > BUSY) {
        let percent = share * 100.0;
        row(
            "contention",
            format!("the machine was busy: for {percent:.0} % of the time a process waited for a processor"),
        );
        row("", "measure again on a calm machine: predictions from this profile have wide intervals".into());
    }
    if let Some(seconds) = profile.checkpoint_s {
        row("checkpoint", milliseconds(seconds));
    }
    if let Some(boot) = profile.boot.filter(|boot| boot.importing_s > 0.0) {
        row("start of a worker", boot.sentence());
    }
    table::facts(&rows)
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}
