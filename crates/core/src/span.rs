//! Spans of time as a command line takes them: `1h24min`.

/// A span of time to three figures or so, which a command line reads back.
///
/// ```
/// use bellwether_core::span::written;
/// let shown = [0.5, 42.0, 125.4, 3599.7, 5040.0, 90_000.0, 864_000.0].map(written);
/// assert_eq!(shown, ["0.5s", "42s", "2min5s", "1h", "1h24min", "25h", "240h"]);
/// ```
pub fn written(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{}s", (seconds * 100.0).round() / 100.0);
    }
    whole_steps(seconds, step_s(seconds), f64::round)
}

/// The same, and no less than the span: a limit that allows it.
pub fn written_at_least(seconds: f64) -> String {
    whole_steps(seconds, step_s(seconds), f64::ceil)
}

/// A span of time to the second, rounded up: for a time beside a limit that it misses by little.
///
/// ```
/// use bellwether_core::span::written_to_the_second;
/// assert_eq!([612.0, 600.2].map(written_to_the_second), ["10min12s", "10min1s"]);
/// ```
pub fn written_to_the_second(seconds: f64) -> String {
    whole_steps(seconds, 1.0, f64::ceil)
}

/// Whole seconds up to ten minutes, whole minutes above.
fn step_s(seconds: f64) -> f64 {
    if seconds < 600.0 { 1.0 } else { 60.0 }
}

fn whole_steps(seconds: f64, step_s: f64, whole: fn(f64) -> f64) -> String {
    let seconds = whole(seconds / step_s) * step_s;
    if seconds >= 1e15 {
        return format!("{seconds:.0e}s");
    }
    let whole = seconds as u64;
    let parts = [(whole / 3600, "h"), (whole % 3600 / 60, "min"), (whole % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}
