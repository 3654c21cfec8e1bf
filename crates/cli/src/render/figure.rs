//! Numbers for people.

use bellwether_core::units::Dollars;

/// Four significant figures: more than a prediction is worth.
pub(crate) fn figure(value: f64) -> String {
    if !(1e-3..1e9).contains(&value) {
        return format!("{value:.3e}");
    }
    let digits = (3 - value.log10().floor() as i32).max(0);
    format!("{value:.*}", digits as usize)
}

/// A part of one in percent.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// An amount of money; a dash where there is none to name.
pub(crate) fn money(dollars: f64) -> String {
    if dollars.is_finite() { Dollars::new(dollars.max(0.0)).to_string() } else { "-".to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(figure(0.012_345), "0.01235");
        assert_eq!(figure(12.345), "12.35");
        assert_eq!(figure(12_345.6), "12346");
        assert_eq!(figure(7.629_4e-6), "7.629e-6");
    }
}
