//! Cells of a trace: times, dates, and counts.

use bellwether_core::ParseError;
use bellwether_core::prediction::Protocol;
use bellwether_core::units::Seconds;

/// A time beyond this cannot belong to a trace: thirty thousand years. (Milliseconds since 1970 are beyond it.)
const LATEST_S: f64 = 1e12;

/// Most parameter servers of a job: each is a way to be predicted.
const SERVERS_MAX: u32 = 64;

pub(super) const DAY_S: f64 = 86_400.0;

/// Seconds, and whether they were written as a date (then they count from 1970).
pub(super) fn time(text: &str) -> Result<(f64, bool), ParseError> {
    if let Ok(seconds) = text.parse::<f64>() {
        return limited(text, seconds).map(|seconds| (seconds, false));
    }
    if let Some(seconds) = date(text) {
        return Ok((seconds, true));
    }
    let expected = "seconds, a time with a unit such as 2h, or a date such as 2020-06-09 18:41:01";
    let seconds = text.parse::<Seconds>().map_err(|_| ParseError::new("time", text, expected))?;
    limited(text, seconds.get()).map(|seconds| (seconds, false))
}

fn limited(text: &str, seconds: f64) -> Result<f64, ParseError> {
    let wrong = |expected: &str| Err(ParseError::out_of_range("time", text, expected));
    match seconds {
        _ if !seconds.is_finite() => wrong("a finite number of seconds"),
        _ if seconds < 0.0 => wrong("zero or more seconds"),
        _ if seconds > LATEST_S => wrong(&format!("at most {LATEST_S:e} seconds; are these milliseconds?")),
        _ => Ok(seconds),
    }
}

/// `2020-06-09 18:41:01` as seconds since 1970, with days of 86,400 seconds and no time zone.
fn date(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if bytes.len() != 19
        || !b" T".contains(&bytes[10])
        || separators.iter().any(|(at, byte)| bytes[*at] != *byte)
    {
        return None;
    }
    let part = |from: usize, to: usize, range: std::ops::RangeInclusive<i64>| {
        let digits = &bytes[from..to];
        let proper = digits.iter().all(u8::is_ascii_digit);
        let value = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit.wrapping_sub(b'0')));
        (proper && range.contains(&value)).then_some(value)
    };
    let (year, month, day) = (part(0, 4, 1970..=9999)?, part(5, 7, 1..=12)?, part(8, 10, 1..=31)?);
    let (hour, minute, second) = (part(11, 13, 0..=23)?, part(14, 16, 0..=59)?, part(17, 19, 0..=60)?);
    Some((days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second) as f64)
}

/// Days since 1970-01-01 in the Gregorian calendar: years are counted from March, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // From March on, five months have 153 days.
    let of_year = (153 * month + 2) / 5 + day - 1;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + of_year - 719_468
}

/// A count of devices: a whole number, which tables of floats write as `8.0`.
pub(super) fn count(text: &str) -> Result<u32, ParseError> {
    if let Ok(count) = text.parse::<u32>() {
        return Ok(count);
    }
    let wrong = |expected: &str| Err(ParseError::out_of_range("number of devices", text, expected));
    match text.parse::<f64>() {
        Ok(number) if number < 0.0 => wrong("zero or more"),
        Ok(number) if number > f64::from(u32::MAX) => wrong(&format!("at most {}", u32::MAX)),
        Ok(number) if number.fract() == 0.0 => Ok(number as u32),
        _ => Err(ParseError::new("number of devices", text, "a whole number")),
    }
}

/// A number that is finite and not negative.
pub(super) fn amount(text: &str) -> Result<f64, ParseError> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        Ok(_) => Err(ParseError::out_of_range("number", text, "zero or more")),
        Err(_) => Err(ParseError::new("number", text, "a number that is zero or more")),
    }
}

/// Samples of a step.
pub(super) fn batch(text: &str) -> Result<u64, ParseError> {
    match amount(text)? {
        number if number >= 1.0 && number.fract() == 0.0 && number <= 1e15 => Ok(number as u64),
        _ => Err(ParseError::out_of_range("number of samples", text, "a whole number, at least 1")),
    }
}

/// Who waits for whom, in several ways.
pub(super) fn protocols(text: &str) -> Result<Vec<Protocol>, ParseError> {
    text.split('|').map(|word| word.trim().parse()).collect()
}

/// Parameter servers: a number, or a range of them.
pub(super) fn servers(text: &str) -> Result<(u32, u32), ParseError> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let range = (count(least.trim())?, count(most.trim())?);
    if range.0 >= 1 && range.0 <= range.1 && range.1 <= SERVERS_MAX {
        return Ok(range);
    }
    let expected = format!("a number or a range from 1 to {SERVERS_MAX}, for example 1..4");
    Err(ParseError::out_of_range("number of servers", text, expected))
}

/// A part of the whole, above 0 and below 1.
pub(super) fn share(text: &str) -> Result<f64, ParseError> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(ParseError::out_of_range("part of the work", text, "a number above 0 and below 1")),
    }
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, ParseError> {
    match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err(ParseError::new("value", text, "true or false")),
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::ParseErrorKind;

    use super::*;

    #[test]
    fn dates_count_from_1970() {
        assert_eq!(date("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(date("2000-02-29 12:00:00"), Some(951_825_600.0));
        assert_eq!(date("2020-06-09T18:41:01"), Some(1_591_728_061.0));
        assert_eq!(date("2020-13-09 18:41:01"), None);
        assert_eq!(date("2020-06-09"), None);
        assert_eq!(date("2020-06-0é 8:41:01"), None);
    }

    #[test]
    fn times_are_seconds_or_quantities() {
        assert_eq!(time("2h"), Ok((7200.0, false)));
        assert_eq!(time("1.5"), Ok((1.5, false)));
        for (text, kind, expected) in [
            ("-1", ParseErrorKind::OutOfRange, "zero or more"),
            ("nan", ParseErrorKind::OutOfRange, "finite"),
            ("inf", ParseErrorKind::OutOfRange, "finite"),
            ("1600000000000", ParseErrorKind::OutOfRange, "milliseconds"),
            ("soon", ParseErrorKind::Malformed, "a time with a unit"),
        ] {
            let error = time(text).unwrap_err();
            assert!(error.kind == kind && error.expected.contains(expected), "{error}");
        }
    }

    #[test]
    fn counts_are_whole() {
        assert_eq!(count("8"), Ok(8));
        assert_eq!(count("8.0"), Ok(8));
        assert_eq!(count("-1").unwrap_err().expected, "zero or more");
        assert_eq!(count("4294967296").unwrap_err().expected, "at most 4294967295");
        assert_eq!(count("0.5").unwrap_err().kind, ParseErrorKind::Malformed);
        assert!(count("nan").is_err());
    }
}
