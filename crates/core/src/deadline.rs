//! Moments of the calendar, and spans that end at one.

use std::fmt;
use std::str::FromStr;

use toml::value::{Datetime, Offset};

use crate::error::ParseError;
use crate::units::{Seconds, rough};

/// By when something must be done: within a span, or at a moment of the calendar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Deadline {
    /// Within this time from now.
    Within(Seconds),
    /// At this moment, in seconds since the Unix epoch.
    At(f64),
}

impl Deadline {
    /// Seconds that are left at `now_s` since the Unix epoch.
    ///
    /// # Errors
    ///
    /// Returns an error if the deadline has passed.
    ///
    /// ```
    /// use bellwether_core::deadline::Deadline;
    /// let at: Deadline = "1970-01-02T02:00:00+01:00".parse()?;
    /// assert_eq!(at.left_s(86_400.0)?, 3600.0);
    /// assert_eq!(at.left_s(90_000.0).unwrap_err().by_s, 0.0);
    /// assert_eq!("2h".parse::<Deadline>()?.left_s(1e9)?, 7200.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn left_s(self, now_s: f64) -> Result<f64, DeadlinePassed> {
        let left_s = match self {
            Deadline::Within(span) => span.get(),
            Deadline::At(at_s) => at_s - now_s,
        };
        if left_s > 0.0 { Ok(left_s) } else { Err(DeadlinePassed { by_s: -left_s }) }
    }
}

/// A deadline that has passed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeadlinePassed {
    /// For how many seconds it has; zero if no time was given at all.
    pub by_s: f64,
}

impl fmt::Display for DeadlinePassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_s > 0.0 {
            write!(f, "this moment is {} in the past", rough(self.by_s))
        } else {
            f.write_str("no time is left")
        }
    }
}

impl std::error::Error for DeadlinePassed {}

impl FromStr for Deadline {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        // A moment begins with a year, and no span has a number of four digits before a hyphen.
        if text.get(4..5) != Some("-") {
            let span: Seconds = text.parse().map_err(|error| {
                if text.starts_with('-') {
                    ParseError::out_of_range(
                        "deadline",
                        text,
                        "a time that is not in the past, for example 2h",
                    )
                } else {
                    error
                }
            })?;
            return Ok(Deadline::Within(span));
        }
        let expected = "a date, a time and its zone, for example 2026-11-21T18:00:00Z";
        let wrong = || ParseError::new("moment", text, expected);
        let moment: Datetime = text.parse().map_err(|_| wrong())?;
        let (Some(date), Some(time), Some(offset)) = (moment.date, moment.time, moment.offset) else {
            return Err(wrong());
        };
        let zone_s = match offset {
            Offset::Z => 0.0,
            Offset::Custom { minutes } => 60.0 * f64::from(minutes),
        };
        let days = days_since_epoch(i64::from(date.year), i64::from(date.month), i64::from(date.day));
        let (hour, minute) = (f64::from(time.hour), f64::from(time.minute));
        let second = f64::from(time.second.unwrap_or(0)) + f64::from(time.nanosecond.unwrap_or(0)) * 1e-9;
        Ok(Deadline::At(days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second - zone_s))
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deadline::Within(span) => write!(f, "{span}"),
            Deadline::At(at_s) => write!(f, "{at_s} s since 1970"),
        }
    }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    // Months from March on have 153 days in each five.
    let before_month = (153 * month + 2) / 5;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + before_month + day
        - 1
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let known =
            [((1970, 1, 1), 0), ((2000, 2, 29), 11_016), ((2000, 3, 1), 11_017), ((2026, 11, 21), 20_778)];
        for ((year, month, day), days) in known {
            assert_eq!(days_since_epoch(year, month, day), days, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_an_example() {
        for text in
            ["2026-11-21", "2026-11-21T18:00:00", "2026-13-01T00:00:00Z", "2026-xx", "soon", "2", "-2h", ""]
        {
            assert!(text.parse::<Deadline>().is_err(), "{text}");
        }
        assert!(
            "2026-11-21"
                .parse::<Deadline>()
                .is_err_and(|error| error.expected.contains("2026-11-21T18:00:00Z"))
        );
    }
}
