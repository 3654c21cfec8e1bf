//! Spans of time: a number, a space, a unit. In a column all have the same unit.

use super::figure::{figure, grouped, short};

pub use bellwether_core::span::written;
pub use bellwether_core::units::rough;

/// What stands where nothing is known.
const NOTHING: &str = "-";

/// Units, the smallest first: how many seconds one has, its name, and the seconds below which it is used.
const UNITS: [(f64, &str, f64); 6] = [
    (1e-6, "µs", 1e-3),
    (1e-3, "ms", 1.0),
    (1.0, "s", 600.0),
    (60.0, "min", 36_000.0),
    (3600.0, "h", 864_000.0),
    (86_400.0, "d", f64::INFINITY),
];

fn unit(seconds: f64) -> (f64, &'static str) {
    let unit = UNITS.iter().find(|(_, _, end)| seconds < *end);
    unit.map_or((86_400.0, "d"), |(size, name, _)| (*size, *name))
}

/// Three figures: `12.5 min`.
pub fn brief(seconds: f64) -> String {
    let (size, name) = unit(seconds);
    match seconds {
        0.0 => "0 s".into(),
        s if s >= 86_400e6 => format!("{:.1e} d", s / 86_400.0),
        s => format!("{} {name}", short(s / size)),
    }
}

/// Four figures, for times of a step: `69.32 ms`.
pub fn precise(seconds: f64) -> String {
    let (size, name) = match seconds {
        s if s >= 1.0 => (1.0, "s"),
        s => unit(s),
    };
    format!("{} {name}", figure(seconds / size))
}

/// The same of microseconds; zero is `0`.
pub fn microseconds(us: f64) -> String {
    if us == 0.0 { "0".into() } else { precise(us * 1e-6) }
}

/// The ratio of the longest time of a column to the shortest beyond which no unit suits both.
const SPREAD_MAX: f64 = 1e6;

/// The times of a column: one unit, that of the middle one, and as many decimals as the smallest needs for three
/// figures. What is not known is a dash; where the times are worlds apart each has its own unit.
pub fn column(seconds: &[f64]) -> Vec<String> {
    let mut known: Vec<f64> = seconds.iter().copied().filter(|s| s.is_finite() && *s > 0.0).collect();
    known.sort_by(f64::total_cmp);
    if known.last().zip(known.first()).is_some_and(|(most, least)| most / least > SPREAD_MAX) {
        let one = |s: &f64| if s.is_finite() { brief(*s) } else { NOTHING.into() };
        return seconds.iter().map(one).collect();
    }
    let (size, name) = unit(known.get(known.len() / 2).copied().unwrap_or(1.0));
    let largest = known.last().map_or(0.0, |s| s / size);
    let figures = known.first().map_or(0.0, |s| 2.0 - (s / size).log10().floor());
    // Next to thousands, hundredths do not matter.
    let most = if largest >= 1000.0 { 1.0 } else { 3.0 };
    let decimals = figures.clamp(0.0, most) as usize;
    let one = |s: &f64| match s {
        s if s.is_finite() => format!("{} {name}", grouped(s / size, decimals)),
        _ => NOTHING.into(),
    };
    seconds.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!([0.069_32, 12.0, 5e-4].map(precise), ["69.32 ms", "12.00 s", "500.0 µs"]);
        assert_eq!([0.0, 2.5, 1540.0].map(microseconds), ["0", "2.500 µs", "1.540 ms"]);
        assert_eq!([0.0, 0.5, 750.0, 864_000.0].map(brief), ["0 s", "500 ms", "12.5 min", "10.0 d"]);
    }

    #[test]
    fn a_column_has_one_unit() {
        let hours = [81.4, 11.2, 21.4, 14.1, 9.98].map(|hours| hours * 3600.0);
        assert_eq!(column(&hours), ["81.40 h", "11.20 h", "21.40 h", "14.10 h", "9.98 h"]);
        assert_eq!(column(&[593.6, 780.0]), ["9.89 min", "13.00 min"]);
        assert_eq!(column(&[854.7e-6, 1.031e-3]), ["0.855 ms", "1.031 ms"]);
        assert_eq!(column(&[f64::NAN, 2.0, 0.0]), ["-", "2.00 s", "0.00 s"]);
        assert_eq!(column(&[5.0, 9.0, 4e6]), ["5.0 s", "9.0 s", "4,000,000.0 s"]);
        assert_eq!(column(&[1e-3, 2e6]), ["1.00 ms", "23.1 d"]);
        assert_eq!(column(&[]), Vec::<String>::new());
    }
}
