//! Quantities that users write with their unit: `"20ms"`, `"16MiB"`, `"$0.35/h"`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ParseError;

/// A span of time in seconds, never negative and always finite.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Seconds(f64);

/// An amount of memory or traffic in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Bytes(pub u64);

/// A rate of traffic in bytes per second, positive and finite. Written in bits, as links are sold.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct BytesPerSecond(f64);

/// An amount of money in US dollars, never negative and always finite: `"$20"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Dollars(f64);

/// A price by time in US dollars per hour, never negative and always finite: `"$0.35/h"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct DollarsPerHour(f64);

const RATE_UNITS: [(&str, f64); 12] = [
    ("Gbit/s", 1.25e8),
    ("Mbit/s", 1.25e5),
    ("kbit/s", 125.0),
    ("Gbps", 1.25e8),
    ("Mbps", 1.25e5),
    ("kbps", 125.0),
    ("GiB/s", 1_073_741_824.0),
    ("MiB/s", 1_048_576.0),
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("KB/s", 1e3),
    ("B/s", 1.0),
];

const TIME_UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("s", 1.0),
];

const BYTE_UNITS: [(&str, f64); 8] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

impl Seconds {
    /// # Panics
    ///
    /// When `seconds` is negative or not finite: such a span is a bug of the caller.
    pub fn new(seconds: f64) -> Self {
        assert!(
            seconds.is_finite() && seconds >= 0.0,
            "a span of time is finite and not negative: {seconds}"
        );
        Seconds(seconds)
    }

    /// The span in seconds.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Dollars {
    /// # Panics
    ///
    /// When `dollars` is negative or not finite: such an amount is a bug of the caller.
    pub fn new(dollars: f64) -> Self {
        assert!(dollars.is_finite() && dollars >= 0.0, "money is finite and not negative: {dollars}");
        Dollars(dollars)
    }

    /// The amount in dollars.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl DollarsPerHour {
    /// # Panics
    ///
    /// When `dollars_per_hour` is negative or not finite: such a price is a bug of the caller.
    pub fn new(dollars_per_hour: f64) -> Self {
        let fits = dollars_per_hour.is_finite() && dollars_per_hour >= 0.0;
        assert!(fits, "a price is finite and not negative: {dollars_per_hour}");
        DollarsPerHour(dollars_per_hour)
    }

    /// The price in dollars per hour.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// Dollars: behind a `$`, in front of `usd`, or alone, because a shell takes `$20` for a variable.
fn dollars(number: &str, text: &str, example: &str) -> Result<f64, ParseError> {
    let number = number.trim();
    let bare = number.strip_prefix('$').or_else(|| number.strip_suffix('$')).or_else(|| {
        let (number, currency) = number.split_at_checked(number.len().checked_sub(3)?)?;
        currency.eq_ignore_ascii_case("usd").then_some(number)
    });
    match bare.unwrap_or(number).trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(ParseError::new("amount", text, format!("dollars that are zero or more, {example}"))),
    }
}

/// What follows the number of a quantity; empty where nothing does.
fn unit_of(text: &str) -> &str {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || ".+-".contains(letter));
    // An exponent belongs to the number.
    let exponent = unit
        .strip_prefix(['e', 'E'])
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    exponent.map_or(unit, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-')).trim()
}

/// Splits `"20ms"` into its number and the factor of its unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Result<f64, ParseError> {
    let text = text.trim();
    let (name, factor) = units.iter().find(|(name, _)| text.ends_with(name)).ok_or_else(|| {
        let known = units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        match unit_of(text) {
            "" => ParseError::new("quantity", text, format!("a number with its unit, one of {known}")),
            unit => ParseError::new("quantity", text, format!("one of the units {known} instead of {unit}")),
        }
    })?;
    let number = text[..text.len() - name.len()].trim();
    match number.parse::<f64>() {
        Ok(value) if (value * factor).is_finite() && value >= 0.0 => Ok(value * factor),
        Ok(_) => Err(ParseError::out_of_range(
            "quantity",
            text,
            format!("a number of {name} that is zero or more"),
        )),
        Err(_) => Err(ParseError::new("quantity", text, format!("a number of {name} that is zero or more"))),
    }
}

impl FromStr for Seconds {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::units::Seconds;
    /// assert_eq!("20ms".parse::<Seconds>().unwrap().get(), 0.02);
    /// assert_eq!("1h24min".parse::<Seconds>().unwrap().get(), 5040.0);
    /// assert_eq!("1e3s".parse::<Seconds>().unwrap().get(), 1000.0);
    /// assert!("20".parse::<Seconds>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Ok(whole) = quantity(text, &TIME_UNITS) {
            return Ok(Seconds(whole));
        }
        // A part ends where a number follows a unit.
        let letters: Vec<(usize, char)> = text.char_indices().collect();
        let ends = letters.windows(2).filter(|pair| pair[0].1.is_alphabetic() && pair[1].1.is_ascii_digit());
        let ends = ends.map(|pair| pair[1].0).chain([text.len()]);
        let (mut begin, mut sum) = (0, 0.0);
        for end in ends {
            sum += quantity(&text[begin..end], &TIME_UNITS)?;
            begin = end;
        }
        if sum.is_finite() {
            Ok(Seconds(sum))
        } else {
            Err(ParseError::out_of_range("time", text, "a finite number of seconds"))
        }
    }
}

impl FromStr for Dollars {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::units::Dollars;
    /// assert_eq!("$9.10".parse::<Dollars>().unwrap().get(), 9.1);
    /// assert_eq!("20usd".parse::<Dollars>(), "$20".parse());
    /// assert_eq!("20".parse::<Dollars>(), "$20".parse());
    /// assert!("20eur".parse::<Dollars>().is_err());
    /// assert!("$0.35/h".parse::<Dollars>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        dollars(text, text, "for example $20").map(Dollars)
    }
}

impl FromStr for DollarsPerHour {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::units::DollarsPerHour;
    /// assert_eq!("$0.35/h".parse::<DollarsPerHour>().unwrap().get(), 0.35);
    /// assert_eq!("$0.0001/s".parse::<DollarsPerHour>().unwrap().get(), 0.36);
    /// assert_eq!("0.35/h".parse::<DollarsPerHour>(), "$0.35/h".parse());
    /// assert!("$0.35".parse::<DollarsPerHour>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let example = "for example $0.35/h";
        let (money, unit) = text.split_once('/').unwrap_or((text, ""));
        let per_hour = match unit.trim() {
            "h" | "hour" => 1.0,
            "min" => 60.0,
            "s" => 3600.0,
            _ => return Err(ParseError::new("price", text, format!("dollars per time, {example}"))),
        };
        let price = dollars(money, text, example)? * per_hour;
        if price.is_finite() {
            Ok(DollarsPerHour(round(price)))
        } else {
            Err(ParseError::out_of_range("price", text, "a finite number of dollars"))
        }
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::units::Bytes;
    /// assert_eq!("16KiB".parse::<Bytes>().unwrap(), Bytes(16_384));
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bytes = quantity(text, &BYTE_UNITS)?;
        if bytes >= 9e18 {
            return Err(ParseError::out_of_range("number of bytes", text, "less than 9 exabytes"));
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

impl BytesPerSecond {
    /// The rate in bytes per second.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for BytesPerSecond {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::units::BytesPerSecond;
    /// assert_eq!("10Gbps".parse::<BytesPerSecond>().unwrap().get(), 1.25e9);
    /// assert_eq!("100Mbit/s".parse::<BytesPerSecond>().unwrap().get(), 1.25e7);
    /// assert!("0Gbps".parse::<BytesPerSecond>().is_err());
    /// assert!("1Gb".parse::<BytesPerSecond>().unwrap_err().expected.ends_with("1Gbit/s or 1GB/s"));
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let unit = unit_of(text.trim());
        // An amount, where a rate is meant.
        if let Some(prefix) = ["b", "B", "bit", "bits"].iter().find_map(|end| unit.strip_suffix(end))
            && matches!(prefix, "k" | "K" | "M" | "G")
        {
            let number = text.trim().strip_suffix(unit).unwrap_or_default().trim();
            let bits = prefix.replace('K', "k");
            let expected = format!("an amount per time, such as {number}{bits}bit/s or {number}{prefix}B/s");
            return Err(ParseError::new("bandwidth", text, expected));
        }
        match quantity(text, &RATE_UNITS)? {
            0.0 => Err(ParseError::out_of_range("bandwidth", text, "more than zero")),
            rate => Ok(BytesPerSecond(rate)),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => write!(f, "0s"),
            s if s < 1e-3 => write!(f, "{}us", round(s * 1e6)),
            s if s < 1.0 => write!(f, "{}ms", round(s * 1e3)),
            s => write!(f, "{}s", round(s)),
        }
    }
}

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", figures(self.0))
    }
}

impl fmt::Display for DollarsPerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}/h", figures(self.0))
    }
}

/// Cents, and of less than ten cents three figures.
fn figures(dollars: f64) -> String {
    match dollars {
        d if d == 0.0 || d >= 0.0995 => format!("{d:.2}"),
        d if d < 1e-6 => format!("{d:.2e}"),
        d => format!("{d:.*}", (2 - d.log10().floor() as i32) as usize),
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) = match self.0 {
            b if b < 1 << 10 => ("B", 1.0),
            b if b < 1 << 20 => ("KiB", 1024.0),
            b if b < 1 << 30 => ("MiB", 1_048_576.0),
            _ => ("GiB", 1_073_741_824.0),
        };
        write!(f, "{}{name}", round(self.0 as f64 / factor))
    }
}

/// A span for sentences, in one unit: `90 s`, `3 min`, `2 h`, `12 days`, `6.9 years`.
///
/// ```
/// use bellwether_core::units::rough;
/// assert_eq!([90.0, 180.0, 7200.0, 217_508_079.0].map(rough), ["90 s", "3 min", "2 h", "6.9 years"]);
/// ```
pub fn rough(seconds: f64) -> String {
    const DAY: f64 = 86_400.0;
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 2.0 * DAY => format!("{:.0} h", s / 3600.0),
        s if s < 730.5 * DAY => format!("{:.0} days", s / DAY),
        s => format!("{:.1} years", s / (365.25 * DAY)),
    }
}

/// Rounds away the noise of binary fractions, so that `0.02 s` prints as `20ms`.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Files hold quantities as text, read as on a command line.
macro_rules! read_from_text {
    ($($quantity:ty),*) => {$(
        impl TryFrom<String> for $quantity {
            type Error = ParseError;

            fn try_from(text: String) -> Result<Self, ParseError> {
                text.parse()
            }
        }
    )*};
}

read_from_text!(Seconds, Dollars, DollarsPerHour, BytesPerSecond, Bytes);

impl From<Seconds> for String {
    fn from(value: Seconds) -> String {
        value.to_string()
    }
}

impl From<Dollars> for String {
    fn from(value: Dollars) -> String {
        format!("${}", value.0)
    }
}

impl From<DollarsPerHour> for String {
    fn from(value: DollarsPerHour) -> String {
        format!("${}/h", value.0)
    }
}

impl From<Bytes> for String {
    fn from(value: Bytes) -> String {
        format!("{}B", value.0)
    }
}
