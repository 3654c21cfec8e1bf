//! Service levels that a cluster has to hold: `p95 completion < 2h`, `mean wait < 10min`, `deadlines >= 95%`.

use std::fmt;
use std::str::FromStr;

use bellwether_core::ParseError;
use bellwether_core::span::{written, written_at_least};
use bellwether_core::units::Seconds;

/// What an objective is in messages.
const WHAT: &str = "objective";

/// How one is written.
const FORM: &str =
    "FIGURE < LIMIT, for example `p95 completion < 2h`, `mean wait < 10min` or `deadlines >= 95%`";

/// What can be said of the times of jobs.
const MEASURES: [&str; 3] = ["completion", "wait", "slowdown"];

/// Figures that stand alone.
const ALONE: [&str; 2] = ["makespan", "deadlines"];

/// Of a limit this part, and as much besides, is taken for rounding.
const ROUNDING: f64 = 1e-12;

/// A figure of a simulation that has to stay on one side of a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// The figure.
    pub figure: Figure,
    /// On which side.
    pub comparison: Comparison,
    /// The limit: seconds, a ratio, or a part of 1.
    pub limit: f64,
}

/// A figure that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// Time from a job's arrival to its end.
    Completion(Statistic),
    /// The part of it in which the job held no devices.
    Wait(Statistic),
    /// Completion time over the time alone on the devices that the job asked for.
    Slowdown(Statistic),
    /// Time from the first arrival to the last end.
    Makespan,
    /// Part of the jobs with a deadline that end by it.
    Deadlines,
}

/// What is said of many values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// Their mean.
    Mean,
    /// The element in their middle.
    Median,
    /// The element that this per cent of them does not exceed.
    Percentile(f64),
    /// The largest.
    Max,
}

/// On which side of a limit a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// A limit of a level: a figure turned so that less is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The level.
    pub level: f64,
    /// Whether the limit itself is good enough.
    pub is_inclusive: bool,
}

impl Limit {
    /// A limit that everything keeps.
    pub const NONE: Limit = Limit { level: f64::INFINITY, is_inclusive: true };

    /// Whether a level keeps it.
    pub fn holds(&self, level: f64) -> bool {
        let rounding = if self.level.is_finite() { ROUNDING * (1.0 + self.level.abs()) } else { 0.0 };
        if self.is_inclusive { level <= self.level + rounding } else { level < self.level - rounding }
    }
}

impl Objective {
    /// The limit, for the figure's [level](Figure::level).
    pub fn level_limit(&self) -> Limit {
        let is_inclusive = matches!(self.comparison, Comparison::AtMost | Comparison::AtLeast);
        Limit { level: self.figure.level(self.limit), is_inclusive }
    }

    /// Whether a figure is on the right side.
    pub fn holds(&self, figure: f64) -> bool {
        self.level_limit().holds(self.figure.level(figure))
    }

    /// The same with a limit that people write and that this level keeps.
    #[must_use]
    pub fn relaxed_to(&self, level: f64) -> Objective {
        let mut wanted = level;
        loop {
            let limit = match self.figure.unit() {
                Unit::Time => {
                    written_at_least(wanted).parse::<Seconds>().map_or(wanted, |limit| limit.get().max(1.0))
                }
                Unit::Ratio => (wanted * 100.0).ceil() / 100.0,
                Unit::Part => (((1.0 - wanted) * 1000.0).floor() / 1000.0).max(0.0),
            };
            let relaxed = Objective { limit, ..*self };
            let is_last = self.figure.unit() == Unit::Part && limit == 0.0;
            if is_last || !level.is_finite() || relaxed.level_limit().holds(level) {
                return relaxed;
            }
            wanted = wanted * 1.005 + 1e-3;
        }
    }

    /// A figure as people read it.
    pub fn shown(&self, figure: f64) -> String {
        match self.figure.unit() {
            Unit::Time => written(figure),
            Unit::Ratio => format!("{figure:.2}"),
            Unit::Part => format!("{:.1} %", 100.0 * figure),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Time,
    Ratio,
    Part,
}

impl Figure {
    fn unit(self) -> Unit {
        match self {
            Figure::Completion(_) | Figure::Wait(_) | Figure::Makespan => Unit::Time,
            Figure::Slowdown(_) => Unit::Ratio,
            Figure::Deadlines => Unit::Part,
        }
    }

    /// Whether it is a time in seconds.
    pub fn is_time(self) -> bool {
        self.unit() == Unit::Time
    }

    /// The figure turned so that less is better: of deadlines the part that is missed. The same again turns it back.
    pub fn level(self, figure: f64) -> f64 {
        if self == Figure::Deadlines { 1.0 - figure } else { figure }
    }

    /// Its name for programs, with its unit last.
    pub fn name(self) -> String {
        let of = |statistic: Statistic, measure: &str| format!("{statistic}_{measure}").replace('.', "_");
        match self {
            Figure::Completion(statistic) => of(statistic, "completion_s"),
            Figure::Wait(statistic) => of(statistic, "wait_s"),
            Figure::Slowdown(statistic) => of(statistic, "slowdown"),
            Figure::Makespan => "makespan_s".into(),
            Figure::Deadlines => "deadlines_met".into(),
        }
    }
}

impl FromStr for Objective {
    type Err = ParseError;

    /// ```
    /// use bellwether_sched::capacity::Objective;
    /// let objective: Objective = "p95 completion < 2h".parse()?;
    /// assert!(objective.holds(7199.0) && !objective.holds(7200.0));
    /// assert_eq!(objective.to_string(), "p95 completion < 2h");
    /// let error = "p95 completoin < 2h".parse::<Objective>().unwrap_err();
    /// assert_eq!(error.nearest(), Some("completion"));
    /// # Ok::<(), bellwether_core::ParseError>(())
    /// ```
    fn from_str(text: &str) -> Result<Objective, ParseError> {
        let at = text.find(['<', '>']).ok_or_else(|| ParseError::new(WHAT, text, FORM))?;
        let (figure, rest) = text.split_at(at);
        let (comparison, limit) = match (rest.starts_with('<'), rest[1..].strip_prefix('=')) {
            (true, None) => (Comparison::Less, &rest[1..]),
            (true, Some(limit)) => (Comparison::AtMost, limit),
            (false, None) => (Comparison::More, &rest[1..]),
            (false, Some(limit)) => (Comparison::AtLeast, limit),
        };
        let figure = figure_of(figure, text)?;
        let is_below = matches!(comparison, Comparison::Less | Comparison::AtMost);
        if is_below == (figure == Figure::Deadlines) {
            let expected = if is_below {
                "a part of the deadlines that is met at least, for example deadlines >= 95%"
            } else {
                "a figure below a limit: less of it is better, for example p95 completion < 2h"
            };
            return Err(ParseError::new(WHAT, text, expected));
        }
        Ok(Objective { figure, comparison, limit: limit_of(figure, limit.trim())? })
    }
}

fn figure_of(words: &str, text: &str) -> Result<Figure, ParseError> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let which = |measure: &str| {
        let expected = format!("which {measure}: mean, median, p95 or max, for example `p95 {measure} < …`");
        ParseError::new(WHAT, text, expected)
    };
    match words[..] {
        ["makespan"] => Ok(Figure::Makespan),
        ["deadlines"] => Ok(Figure::Deadlines),
        [measure] if MEASURES.contains(&measure) => Err(which(measure)),
        [word] => Err(ParseError::one_of("figure", word, MEASURES.into_iter().chain(ALONE))),
        [statistic, measure] => {
            if !MEASURES.contains(&measure) {
                return Err(ParseError::one_of("figure", measure, MEASURES));
            }
            let statistic = statistic.parse()?;
            Ok(match measure {
                "completion" => Figure::Completion(statistic),
                "wait" => Figure::Wait(statistic),
                _ => Figure::Slowdown(statistic),
            })
        }
        _ => Err(ParseError::new(WHAT, text, FORM)),
    }
}

fn limit_of(figure: Figure, text: &str) -> Result<f64, ParseError> {
    match figure.unit() {
        Unit::Time => {
            let limit = text.parse::<Seconds>()?.get();
            if limit > 0.0 {
                return Ok(limit);
            }
            Err(ParseError::out_of_range("limit", text, "a time above 0, for example 2h"))
        }
        Unit::Ratio => match text.parse::<f64>() {
            Ok(limit) if limit > 0.0 && limit.is_finite() => Ok(limit),
            Ok(_) => Err(ParseError::out_of_range("limit", text, "a ratio above 0, for example 3")),
            Err(_) => Err(ParseError::new("limit", text, "a ratio without a unit, for example 3")),
        },
        Unit::Part => {
            let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
            match percent {
                Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
                Some(_) => Err(ParseError::out_of_range("limit", text, "0% to 100%")),
                None => Err(ParseError::new("limit", text, "per cent, for example 95%")),
            }
        }
    }
}

impl FromStr for Statistic {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Statistic, ParseError> {
        match text {
            "mean" => Ok(Statistic::Mean),
            "median" => Ok(Statistic::Median),
            "max" => Ok(Statistic::Max),
            _ => match text.strip_prefix('p').map(str::parse::<f64>) {
                Some(Ok(percent)) if percent > 0.0 && percent < 100.0 => Ok(Statistic::Percentile(percent)),
                Some(Ok(_)) => Err(ParseError::out_of_range(
                    "percentile",
                    text,
                    "above p0 and below p100, for example p95",
                )),
                _ => Err(ParseError::one_of("statistic", text, ["mean", "median", "p95", "max"])),
            },
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Mean => f.write_str("mean"),
            Statistic::Median => f.write_str("median"),
            Statistic::Percentile(percent) => write!(f, "p{percent}"),
            Statistic::Max => f.write_str("max"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Completion(statistic) => write!(f, "{statistic} completion"),
            Figure::Wait(statistic) => write!(f, "{statistic} wait"),
            Figure::Slowdown(statistic) => write!(f, "{statistic} slowdown"),
            Figure::Makespan => f.write_str("makespan"),
            Figure::Deadlines => f.write_str("deadlines"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::More => ">",
            Comparison::AtLeast => ">=",
        })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Objective { figure, comparison, limit } = self;
        // What a rounded text would change is written to the last digit.
        let time = || {
            let text = written(*limit);
            let is_same = text.parse::<Seconds>().is_ok_and(|read| read.get() == *limit);
            if is_same { text } else { format!("{limit}s") }
        };
        let limit = match figure.unit() {
            Unit::Time => time(),
            Unit::Ratio => limit.to_string(),
            Unit::Part => format!("{}%", (limit * 1e6).round() / 1e4),
        };
        write!(f, "{figure} {comparison} {limit}")
    }
}
