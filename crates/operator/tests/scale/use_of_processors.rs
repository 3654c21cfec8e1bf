//! What processes of this machine use, as Linux counts it.

use std::path::Path;
use std::time::Duration;

/// Ticks of a second: what all Linux systems use.
const TICKS: f64 = 100.0;

/// Processor time of a process, in seconds.
pub(crate) fn seconds(pid: u32) -> f64 {
    let fields = crate::support::stat(pid).unwrap_or_default();
    let ticks = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// The most memory that a process had, in MiB.
pub(crate) fn peak_memory_mib(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// The API server's use, where it is a process of this machine.
pub(crate) struct Use {
    server: Option<u32>,
    begun_s: std::cell::Cell<f64>,
}

impl Use {
    /// Of the server whose kubeconfig `cargo xtask kubernetes` wrote: it notes its processes beside it.
    pub(crate) fn of_server(kubeconfig: &Path) -> Use {
        let note = std::fs::read_to_string(kubeconfig.with_file_name("kube-apiserver.pid"));
        let server = note.ok().and_then(|note| note.split_whitespace().next()?.parse().ok());
        Use { server, begun_s: std::cell::Cell::new(0.0) }
    }

    /// Processors that it keeps busy for a while; what comes after counts for the report.
    pub(crate) async fn over(&self, time: Duration) -> f64 {
        let before_s = self.server.map_or(f64::NAN, seconds);
        tokio::time::sleep(time).await;
        self.begun_s.set(self.server.map_or(f64::NAN, seconds));
        (self.begun_s.get() - before_s) / time.as_secs_f64()
    }

    /// Milliseconds of a life of a pod, with and without what the server does anyway.
    pub(crate) fn per_life_ms(&self, idle: f64, took_s: f64, lives: u64) -> (f64, f64) {
        let used_s = self.server.map_or(f64::NAN, seconds) - self.begun_s.get();
        let per_life_ms = |seconds: f64| seconds * 1e3 / lives as f64;
        (per_life_ms(used_s), per_life_ms(used_s - idle * took_s))
    }
}
