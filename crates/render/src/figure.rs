//! Numbers for people.

use bellwether_core::units::Dollars;

/// Four significant figures: more than a prediction is worth.
pub fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-3..1e9).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let digits = (3 - value.abs().log10().floor() as i32).max(0);
    grouped(value, digits as usize)
}

/// Three significant figures, where there is little room.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if !(0.000_5..99.95).contains(&size) => grouped(value, 0),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.095 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// With this number of decimals, and a comma between thousands.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.bytes().filter(u8::is_ascii_digit).count();
    if digits < 4 || digits != whole.trim_start_matches('-').len() {
        return text;
    }
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        if left.is_multiple_of(3) && grouped.ends_with(|last: char| last.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// A rate, of samples per second for example: whole from 100 on, with three figures below.
pub fn rate(value: f64) -> String {
    if value < 99.95 { short(value) } else { grouped(value, 0) }
}

/// A part of one in percent, with a second decimal of what is small; a dash where there is nothing to be part of.
pub fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    match percent.abs() {
        _ if !percent.is_finite() => "-".into(),
        0.005..0.1 => format!("{percent:.2} %"),
        _ => format!("{} %", grouped(percent, 1)),
    }
}

/// A loss, which may have grown beyond measure; a dash where there is none.
pub fn loss(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(loss) if loss.abs() < 1e5 => format!("{loss:.4}"),
        Some(loss) => format!("{loss:.1e}"),
    }
}

/// A difference in percent, with its sign.
pub fn difference(part: f64) -> String {
    let percent = percent(part);
    if part >= 0.0 { format!("+{percent}") } else { percent }
}

/// A share of right predictions in percent: its hundredths count.
pub fn accuracy(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// An amount of money; a dash where there is none to name.
pub fn money(dollars: f64) -> String {
    if dollars.is_finite() { Dollars::new(dollars.max(0.0)).to_string() } else { "-".to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_take_little_room() {
        assert_eq!([Some(0.25), Some(7.708e21), None].map(loss), ["0.2500", "7.7e21", "–"]);
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(figure(0.012_345), "0.01235");
        assert_eq!(figure(12.345), "12.35");
        assert_eq!(figure(12_345.6), "12,346");
        assert_eq!(figure(7.629_4e-6), "7.629e-6");
        assert_eq!([123.4, 12.34, 1.234, 0.012_34].map(short), ["123", "12.3", "1.23", "0.012"]);
        assert_eq!([0.5, 0.000_4, 0.0, f64::NAN].map(percent), ["50.0 %", "0.04 %", "0.0 %", "-"]);
    }

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!(grouped(1_234_567.89, 1), "1,234,567.9");
        assert_eq!(grouped(-1234.0, 0), "-1,234");
        assert_eq!(
            [999.0, 1000.0, f64::NAN, f64::INFINITY].map(|v| grouped(v, 0)),
            ["999", "1,000", "NaN", "inf"]
        );
        assert_eq!([59_751.4, 123.4, 4.567].map(rate), ["59,751", "123", "4.57"]);
        assert_eq!([3.757, -0.5, 0.0].map(difference), ["+375.7 %", "-50.0 %", "+0.0 %"]);
    }
}
