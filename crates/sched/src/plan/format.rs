//! Figures as a person writes and reads them.

/// Three figures or more, and no more than one behind the point where there are two before it.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1e-3 => format!("{value:.*}", (2 - v.log10().floor() as i32) as usize),
        _ => format!("{value:.2e}"),
    }
}

/// A span of time as a command line takes it: `1h24min`, to three figures or so.
///
/// ```
/// use bellwether_sched::plan::duration;
/// let shown = [0.5, 42.0, 125.4, 3599.7, 5040.0, 90_000.0, 864_000.0].map(duration);
/// assert_eq!(shown, ["0.5s", "42s", "2min5s", "1h", "1h24min", "25h", "240h"]);
/// ```
pub fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{}s", (seconds * 100.0).round() / 100.0);
    }
    // Whole seconds up to ten minutes, whole minutes above.
    let step = if seconds < 600.0 { 1.0 } else { 60.0 };
    steps_of(seconds, step, f64::round)
}

/// The same, and no less than it.
pub(super) fn at_least(seconds: f64) -> String {
    let step = if seconds < 600.0 { 1.0 } else { 60.0 };
    steps_of(seconds, step, f64::ceil)
}

fn steps_of(seconds: f64, step: f64, whole: fn(f64) -> f64) -> String {
    let seconds = whole(seconds / step) * step;
    if seconds >= 1e15 {
        return format!("{seconds:.0e}s");
    }
    let whole = seconds as u64;
    let parts = [(whole / 3600, "h"), (whole % 3600 / 60, "min"), (whole % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// A number of things: `1 worker`, `2 workers`.
pub(super) fn plural(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
