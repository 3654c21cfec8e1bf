//! Laws of revocation by the words of a command line, and the text of a user's own samples.

use std::str::FromStr;

use bellwether_core::{InputError, ParseError};

use super::law::{Bathtub, Law, Observed};
use super::published;

/// A law as a command line names it.
#[derive(Debug, Clone, PartialEq)]
pub enum LawSpec {
    /// One that needs no file.
    Law(Law),
    /// The lifetimes in this file: see [`samples`].
    Samples(String),
}

/// What a [`LawSpec`] is in messages.
const WHAT: &str = "law of revocation";

/// The form of a bathtub.
const BATHTUB: &str = "bathtub:SHARE,MEAN,SHARE,GROWTH,LIMIT, for example bathtub:0.3,1h,0.1,2h,24h";

/// Words before the first colon, besides the devices.
const WORDS: [&str; 6] = ["never", "exponential", "bathtub", "points", "samples", "lives"];

impl FromStr for LawSpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<LawSpec, ParseError> {
        let (word, rest) = match text.split_once(':') {
            Some((word, rest)) => (word, Some(rest)),
            None => (text, None),
        };
        let lower = word.to_ascii_lowercase();
        let wrong = |expected: &str| ParseError::new(WHAT, text, expected);
        let law = match (lower.as_str(), rest) {
            ("never", None) => Law::never(),
            ("never", Some(_)) => return Err(wrong("never, without a parameter")),
            ("samples", Some(file)) if !file.is_empty() => return Ok(LawSpec::Samples(file.to_string())),
            ("samples", _) => return Err(wrong("samples:FILE, for example samples:lifetimes.txt")),
            ("lives", Some(rest)) if !rest.is_empty() => {
                let lines = rest.replace(',', "\n");
                samples(&lines, "lives").map_err(|error| unlawful("lives", rest, &error))?
            }
            ("lives", _) => return Err(wrong("lives:TIME,TIME+,..., for example lives:1.5h,3h,24h+")),
            ("exponential", Some(rest)) => exponential(rest)?,
            ("exponential", None) => return Err(wrong("exponential:15h or exponential:15h,24h")),
            ("bathtub", Some(rest)) => bathtub(rest)?,
            ("bathtub", None) => return Err(wrong(BATHTUB)),
            ("points", Some(rest)) => points(rest)?,
            ("points", None) => {
                return Err(wrong("points:TIME=SHARE,..., for example points:1h=0.1,6h=0.2,24h=0.5"));
            }
            (device, rest) if published::devices().any(|known| known == device) => match rest {
                Some(region) => published::regional(device, &region.to_ascii_lowercase())?,
                None => published::hourly(device)?,
            },
            _ => {
                return Err(ParseError::one_of(WHAT, word, WORDS.into_iter().chain(published::devices())));
            }
        };
        Ok(LawSpec::Law(law))
    }
}

fn exponential(text: &str) -> Result<Law, ParseError> {
    let (mean, limit) = match text.split_once(',') {
        Some((mean, limit)) => (duration_s(mean)?, duration_s(limit)?),
        None => (duration_s(text)?, f64::INFINITY),
    };
    Law::exponential(mean, limit).map_err(|error| unlawful("exponential", text, &error))
}

fn bathtub(text: &str) -> Result<Law, ParseError> {
    let parts: Vec<&str> = text.split(',').collect();
    let [early_share, early_mean, late_share, late_growth, limit] = parts[..] else {
        return Err(ParseError::new(WHAT, format!("bathtub:{text}"), BATHTUB));
    };
    let bathtub = Bathtub {
        early_share: share(early_share)?,
        early_mean_s: duration_s(early_mean)?,
        late_share: share(late_share)?,
        late_growth_s: duration_s(late_growth)?,
        limit_s: duration_s(limit)?,
    };
    Law::bathtub(bathtub).map_err(|error| unlawful("bathtub", text, &error))
}

fn points(text: &str) -> Result<Law, ParseError> {
    let point = |part: &str| {
        let (time, gone) =
            part.split_once('=').ok_or_else(|| ParseError::new("point", part, "TIME=SHARE"))?;
        Ok::<_, ParseError>((duration_s(time)?, share(gone)?))
    };
    let points: Vec<(f64, f64)> = text.split(',').map(point).collect::<Result<_, _>>()?;
    let limit_s = points.last().map_or(0.0, |last| last.0);
    Law::points(&points, limit_s).map_err(|error| unlawful("points", text, &error))
}

/// Parameters that can be read, but that no law has.
fn unlawful(word: &str, parameters: &str, error: &InputError) -> ParseError {
    let expected = format!("other parameters: {}; {}", error.what, error.hint);
    ParseError::out_of_range(WHAT, format!("{word}:{parameters}"), expected)
}

fn share(text: &str) -> Result<f64, ParseError> {
    let text = text.trim();
    text.parse().map_err(|_| ParseError::new("share", text, "a number from 0 to 1"))
}

/// Seconds of a duration above 0 as people write it: `90s`, `30min`, `2h`, `1.5d`; without a unit, seconds.
///
/// # Errors
///
/// Returns an error for a value that is not a number, not above 0 and finite, or has another unit.
///
/// ```
/// use bellwether_model::transient::duration_s;
/// assert_eq!(duration_s("1.5h"), Ok(5400.0));
/// assert!(duration_s("-2h").is_err());
/// ```
pub fn duration_s(text: &str) -> Result<f64, ParseError> {
    let text = text.trim();
    let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(ParseError::new("duration", text, "one of the units s, min, h and d")),
    };
    let expected = "one above 0, for example 90s, 30min or 2h";
    let number: f64 = number.trim().parse().map_err(|_| ParseError::new("duration", text, expected))?;
    let seconds = number * factor;
    if seconds.is_finite() && seconds > 0.0 {
        Ok(seconds)
    } else {
        Err(ParseError::out_of_range("duration", text, expected))
    }
}

/// The lifetimes of such a text as one word, which names no file: `lives:1.5h,3h+`.
///
/// ```
/// use bellwether_model::transient::{LawSpec, lives, samples};
/// let text = "# hours of two servers\n1h\n3h+\n";
/// assert_eq!(lives(text), "lives:1h,3h+");
/// assert_eq!(lives(text).parse(), Ok(LawSpec::Law(samples(text, "mine.txt").unwrap())));
/// ```
pub fn lives(text: &str) -> String {
    let bare = |line: &str| line.split('#').next().unwrap_or_default().replace(char::is_whitespace, "");
    let lines: Vec<String> = text.lines().map(bare).filter(|line| !line.is_empty()).collect();
    format!("lives:{}", lines.join(","))
}

/// Reads the lifetimes of a user's own servers: one per line, as [`duration_s`] reads it, with a `+` behind it for a
/// server that was not revoked but only seen so long. Empty lines and what follows `#` do not count. `place` names
/// the file in errors.
///
/// # Errors
///
/// Returns an error for a line that is not a duration, or no line at all.
///
/// ```
/// use bellwether_model::transient::samples;
/// let law = samples("# hours of two servers\n1h\n3h+\n", "mine.txt").unwrap();
/// assert_eq!((law.cdf(3599.0), law.cdf(3600.0)), (0.0, 0.5));
/// ```
pub fn samples(text: &str, place: &str) -> Result<Law, InputError> {
    let mut observed = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (duration, revoked) = line.strip_suffix('+').map_or((line, true), |line| (line, false));
        let lived_s = duration_s(duration).map_err(|what| {
            InputError::new(format!("{place}, line {number}"), what)
                .hint("write one lifetime per line, with a + behind it if the server lived on")
        })?;
        observed.push(Observed { lived_s, revoked });
    }
    Law::samples(&observed).map_err(|error| InputError { place: place.to_string(), ..error })
}
