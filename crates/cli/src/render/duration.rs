//! Spans of time, as precise as what they tell of.

use super::figure::figure;

/// As a command line takes it: `1h24min`.
pub(crate) use bellwether_sched::plan::duration as written;

/// Three figures or so and a unit, for columns of many magnitudes: `12.3min`.
pub(crate) fn brief(seconds: f64) -> String {
    match seconds {
        0.0 => "0s".to_owned(),
        s if s < 1e-3 => format!("{:.1}us", s * 1e6),
        s if s < 1.0 => format!("{:.1}ms", s * 1e3),
        s if s < 600.0 => format!("{s:.1}s"),
        s if s < 36_000.0 => format!("{:.1}min", s / 60.0),
        s if s < 864_000.0 => format!("{:.1}h", s / 3600.0),
        s if s < 86_400e6 => format!("{:.1}d", s / 86_400.0),
        s => format!("{:.1e}d", s / 86_400.0),
    }
}

/// Four figures and a unit, for times of a step: `69.32 ms`.
pub(crate) fn precise(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", figure(s * 1e6)),
        s if s < 1.0 => format!("{} ms", figure(s * 1e3)),
        s => format!("{} s", figure(s)),
    }
}

/// The same of microseconds; none are `0`.
pub(crate) fn microseconds(us: f64) -> String {
    if us == 0.0 { "0".into() } else { precise(us * 1e-6) }
}

/// One unit, as one says it: `3 min`.
pub(crate) fn rough(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!([0.069_32, 12.0, 5e-4].map(precise), ["69.32 ms", "12.00 s", "500.0 us"]);
        assert_eq!([0.0, 2.5, 1540.0].map(microseconds), ["0", "2.500 us", "1.540 ms"]);
        assert_eq!([0.0, 0.5, 750.0, 864_000.0].map(brief), ["0s", "500.0ms", "12.5min", "10.0d"]);
        assert_eq!([90.0, 180.0, 7200.0, 172_800.0].map(rough), ["90 s", "3 min", "2 h", "2 days"]);
    }
}
