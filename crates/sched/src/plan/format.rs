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
