//! What the type system cannot see in a sweep file.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value as Toml};

use super::value::Value;
use super::{
    ARGUMENT, Budget, Condition, Domain, Parameter, Range, Resources, Sampler, SamplerKind, Scale, Space,
    SweepFile, TRIALS_MAX,
};
use crate::check::not_positive;
use crate::error::InputError;
use crate::spelling::did_you_mean;

/// Integers up to here are numbers with a fraction, too.
const INTEGER_MAX: i64 = 1 << 53;

/// Most varied keys.
const KEYS_MAX: usize = 64;

/// Keys for which there are direction numbers.
pub(super) const SOBOL_KEYS_MAX: usize = 21;

/// Most values of a key with `step`, `points` or `choices`.
const VALUES_MAX: u64 = 10_000;

/// The words of a range; a table without any of them is a key that was not quoted.
const WORDS: [&str; 7] = ["choices", "low", "high", "step", "points", "scale", "when"];

/// Refuses varied keys without quotes, which TOML takes for tables in tables.
pub(super) fn unquoted(text: &str, place: &str) -> Result<(), InputError> {
    // What else is wrong is said later.
    let Ok(table) = toml::from_str::<Table>(text) else { return Ok(()) };
    let Some(Toml::Table(space)) = table.get("space") else { return Ok(()) };
    for (key, value) in space {
        if let Toml::Table(inner) = value
            && !inner.is_empty()
            && inner.values().all(Toml::is_table)
            && !inner.keys().any(|word| WORDS.contains(&word.as_str()))
            && let Some(next) = inner.keys().next()
        {
            let what = format!("`{key}` is a table of tables, and not the values of a key");
            return Err(InputError::new(format!("{place}: space.{key}"), what)
                .hint(format!("write the whole key in quotes: \"{key}.{next}\" = {{ low = …, high = … }}")));
        }
    }
    Ok(())
}

/// Checks the file, and puts the varied keys in an order in which conditions look back.
pub(super) fn sweep(file: &SweepFile) -> Result<Space, InputError> {
    let space = space(&file.space)?;
    if let Some(key) = file.set.keys().find(|key| file.space.contains_key(*key)) {
        let what = format!("`{key}` is varied, too");
        return Err(InputError::new(format!("set.\"{key}\""), what).hint("leave it out here or in [space]"));
    }
    for (place, number) in [("workers", file.workers), ("concurrent", file.concurrent)] {
        if number.is_some_and(|number| !(1..=10_000).contains(&number)) {
            let what = format!("{} {place}", number.unwrap_or(0));
            return Err(InputError::new(place, what).hint("write a number from 1 to 10000"));
        }
    }
    if let Some(resources) = file.scheduler.resources() {
        lengths(resources)?;
    }
    sampler(&file.sampler, &space)?;
    budget(&file.budget, file.sampler.kind)?;
    Ok(space)
}

fn space(ranges: &BTreeMap<String, Range>) -> Result<Space, InputError> {
    if ranges.is_empty() {
        let hint = "name a key of the job file: \"optimizer.learning_rate\" = { low = 1e-4, high = 1.0 }";
        return Err(InputError::new("space", "no key is varied").hint(hint));
    }
    if ranges.len() > KEYS_MAX {
        let what = format!("{} keys are varied", ranges.len());
        return Err(InputError::new("space", what).hint(format!("vary at most {KEYS_MAX}")));
    }
    let mut open: BTreeMap<&String, Parameter> = BTreeMap::new();
    for (key, range) in ranges {
        open.insert(key, Parameter { key: key.clone(), domain: domain(key, range)?, when: Vec::new() });
    }
    for (key, range) in ranges {
        let when = range.when.iter().map(|(other, value)| condition(key, other, value, &open));
        let when = when.collect::<Result<Vec<Condition>, InputError>>()?;
        if let Some(parameter) = open.get_mut(key) {
            parameter.when = when;
        }
    }
    ordered(open)
}

/// Each key after those that its condition names.
fn ordered(mut open: BTreeMap<&String, Parameter>) -> Result<Space, InputError> {
    let (mut parameters, mut done) = (Vec::new(), BTreeSet::new());
    while !open.is_empty() {
        let ready = open
            .iter()
            .find(|(_, parameter)| parameter.when.iter().all(|condition| done.contains(&condition.key)));
        let Some(key) = ready.map(|(key, _)| *key) else {
            let key = open.keys().next().map_or_else(String::new, ToString::to_string);
            let what = "the conditions of these keys wait for each other, so that none is ever varied";
            return Err(InputError::new(at(&key, "when"), what).hint("leave one of the conditions out"));
        };
        if let Some(parameter) = open.remove(key) {
            done.insert(key.clone());
            parameters.push(parameter);
        }
    }
    Ok(Space { parameters })
}

fn at(key: &str, word: &str) -> String {
    format!("space.\"{key}\".{word}")
}

fn condition(
    key: &str,
    other: &str,
    value: &Value,
    all: &BTreeMap<&String, Parameter>,
) -> Result<Condition, InputError> {
    let place = at(key, "when");
    let Some(named) = all.get(&other.to_string()).filter(|_| other != key) else {
        let known: Vec<&str> = all.keys().map(|name| name.as_str()).filter(|name| *name != key).collect();
        let what = match other == key {
            true => "a key cannot be its own condition".to_string(),
            false => format!("no key `{other}` is varied"),
        };
        return Err(InputError::new(place, what).hint(did_you_mean(other, &known)));
    };
    if named.domain.count().is_none() {
        let what = format!("`{other}` has a continuum of values, and hardly ever one of these");
        return Err(InputError::new(place, what).hint("name a key that has choices or integers"));
    }
    let among = match value {
        Value::List(values) if !named.domain.has(value) => values.clone(),
        value => vec![value.clone()],
    };
    match among.iter().find(|value| !named.domain.has(value)) {
        Some(value) => {
            let what = format!("`{other}` is never {value}, so `{key}` would never be varied for it");
            Err(InputError::new(place, what).hint(format!("name a value that `{other}` has in [space]")))
        }
        None if among.is_empty() => {
            let what = format!("no value of `{other}` is named");
            Err(InputError::new(place, what).hint("name one, or leave the condition out"))
        }
        None => Ok(Condition { key: other.to_string(), among }),
    }
}

fn domain(key: &str, range: &Range) -> Result<Domain, InputError> {
    if key.is_empty() || key == ARGUMENT || key.split('.').any(|part| part.trim().is_empty()) {
        let what = format!("{key:?} is not a key");
        return Err(InputError::new("space", what).hint("write a dotted key of the job file in quotes"));
    }
    let place = |word: &str| at(key, word);
    let Some(choices) = &range.choices else { return numbers(key, range) };
    let others = [
        ("low", range.low.is_some()),
        ("high", range.high.is_some()),
        ("step", range.step.is_some()),
        ("points", range.points.is_some()),
        ("scale", range.scale != Scale::Linear),
    ];
    if let Some((word, _)) = others.iter().find(|(_, given)| *given) {
        let what = "choices have no order, and so no range";
        return Err(InputError::new(place(word), what).hint("leave it out, or leave `choices` out"));
    }
    if choices.len() < 2 || choices.len() as u64 > VALUES_MAX {
        let what = format!("{} choices", choices.len());
        let hint = format!("name 2 to {VALUES_MAX}; what has one value stands in [set]");
        return Err(InputError::new(place("choices"), what).hint(hint));
    }
    for (number, choice) in choices.iter().enumerate() {
        if choices[..number].contains(choice) {
            let what = format!("{choice} is there twice");
            return Err(InputError::new(place("choices"), what).hint("name each value once"));
        }
    }
    Ok(Domain::Choice(choices.clone()))
}

/// The end of a range as a number.
fn end(key: &str, word: &str, value: Option<&Value>) -> Result<f64, InputError> {
    let hint = "write { low = …, high = … } or { choices = […] }";
    let Some(value) = value else {
        return Err(InputError::new(at(key, word), "it is missing").hint(hint));
    };
    match value.number() {
        Some(number) if number.is_finite() && number.abs() <= INTEGER_MAX as f64 => Ok(number),
        Some(number) => {
            let what = format!("{number} is beyond what a range may have");
            Err(InputError::new(at(key, word), what).hint("write a finite number up to 2^53"))
        }
        None => Err(InputError::new(at(key, word), format!("`{value}` is not a number"))
            .hint("name quantities with their unit as choices: { choices = [\"1h\", \"2h\"] }")),
    }
}

fn numbers(key: &str, range: &Range) -> Result<Domain, InputError> {
    let place = |word: &str| at(key, word);
    let (low, high) = (end(key, "low", range.low.as_ref())?, end(key, "high", range.high.as_ref())?);
    if low >= high {
        let what = format!("there are no values from {low} to {high}");
        let hint = "make `high` larger than `low`; what has one value stands in [set]";
        return Err(InputError::new(place("high"), what).hint(hint));
    }
    let log = range.scale == Scale::Log;
    if log && low <= 0.0 {
        let what = format!("{low} has no place on a logarithmic scale");
        return Err(InputError::new(place("low"), what).hint("write a number above 0, or leave `scale` out"));
    }
    if log && range.step.is_some() {
        let what = "equal steps have no place on a logarithmic scale";
        return Err(InputError::new(place("step"), what).hint("use `points`, or name `choices`"));
    }
    if let Some(points) = range.points.filter(|points| !(2..=VALUES_MAX as u32).contains(points)) {
        let what = format!("{points} values");
        return Err(InputError::new(place("points"), what).hint(format!("write 2 to {VALUES_MAX}")));
    }
    if range.points.is_some() && range.step.is_some() {
        let what = "`step` says already how many values there are";
        return Err(InputError::new(place("points"), what).hint("leave one of the two out"));
    }
    let points = range.points;
    let step = range.step.as_ref().map(|step| end(key, "step", Some(step))).transpose()?;
    if let Some(step) = step.filter(|step| !(*step > 0.0 && *step <= high - low)) {
        let what = format!("no step of {step} fits between {low} and {high}");
        return Err(InputError::new(place("step"), what).hint("write a number above 0, at most high - low"));
    }
    let is_integer = |value: Option<&Value>| value.is_none_or(|value| matches!(value, Value::Integer(_)));
    if [&range.low, &range.high, &range.step].into_iter().all(|value| is_integer(value.as_ref())) {
        let (low, high, step) = (low as i64, high as i64, step.unwrap_or(1.0) as i64);
        return Ok(Domain::Integer { low, high: high - (high - low) % step, step, log, points });
    }
    let Some(step) = step else { return Ok(Domain::Real { low, high, log, points }) };
    // A step that fits exactly must not be lost to rounding.
    let steps = ((high - low) / step + 1e-9).floor();
    if steps > VALUES_MAX as f64 {
        let what = format!("{steps} steps of {step}");
        return Err(
            InputError::new(place("step"), what).hint(format!("make it larger: {VALUES_MAX} at most"))
        );
    }
    Ok(Domain::Steps { low, step, steps: steps as u32 })
}

fn lengths(resources: &Resources) -> Result<(), InputError> {
    let place = |word: &str| format!("scheduler.{word}");
    if !(2..=100).contains(&resources.reduction) {
        let what = format!("one trial in {} goes on", resources.reduction);
        return Err(InputError::new(place("reduction"), what).hint("write 2 to 100; 3 and 4 are usual"));
    }
    if resources.minimum == 0 {
        return Err(InputError::new(place("minimum"), "a rung of length 0").hint("write at least 1"));
    }
    if resources.maximum.is_some_and(|maximum| maximum < resources.minimum) {
        let what = format!("it is less than the first rung, which has {}", resources.minimum);
        return Err(InputError::new(place("maximum"), what).hint("make it larger, or `minimum` smaller"));
    }
    Ok(())
}

fn sampler(sampler: &Sampler, space: &Space) -> Result<(), InputError> {
    if sampler.startup_trials.is_some() && sampler.kind != SamplerKind::Tpe {
        let what = "only `tpe` looks at what trials gave";
        return Err(InputError::new("sampler.startup_trials", what).hint("leave it out"));
    }
    if sampler.startup_trials == Some(0) {
        return Err(
            InputError::new("sampler.startup_trials", "0 trials tell nothing").hint("write at least 1")
        );
    }
    if sampler.kind == SamplerKind::Sobol && space.parameters.len() > SOBOL_KEYS_MAX {
        let what =
            format!("{} keys, and the Sobol sequence here has {SOBOL_KEYS_MAX}", space.parameters.len());
        return Err(InputError::new("sampler.kind", what).hint("vary fewer keys, or use `random` or `tpe`"));
    }
    if sampler.kind != SamplerKind::Grid {
        return Ok(());
    }
    let mut size: u64 = 1;
    for Parameter { key, domain, .. } in &space.parameters {
        let count = match domain {
            Domain::Real { points, .. } => points.map(u64::from),
            Domain::Integer { points: Some(points), .. } => {
                domain.count().map(|count| count.min(u64::from(*points)))
            }
            _ => domain.count(),
        };
        let Some(count) = count else {
            let what = "a grid needs a number of values, and this is a continuum";
            return Err(InputError::new(format!("space.\"{key}\""), what).hint("add `points` or `step`"));
        };
        size = size.saturating_mul(count);
    }
    if size > TRIALS_MAX {
        let what = format!("the grid has {size} combinations");
        return Err(InputError::new("space", what)
            .hint(format!("give fewer `points`: {TRIALS_MAX} combinations at most")));
    }
    Ok(())
}

fn budget(budget: &Budget, sampler: SamplerKind) -> Result<(), InputError> {
    let Budget { trials, worker_hours, time, money, price } = budget;
    let has_end = trials.is_some() || worker_hours.is_some() || time.is_some() || money.is_some();
    if !has_end && sampler != SamplerKind::Grid {
        let what = "nothing says when the sweep ends";
        return Err(InputError::new("budget", what).hint("write for example trials = 50, or time = \"2h\""));
    }
    if trials.is_some_and(|trials| trials == 0 || trials > TRIALS_MAX) {
        let what = format!("{} trials", trials.unwrap_or(0));
        return Err(InputError::new("budget.trials", what).hint(format!("write 1 to {TRIALS_MAX}")));
    }
    if let Some(hours) = worker_hours {
        not_positive("budget.worker_hours", "the time of all workers", *hours)?;
    }
    if let Some(time) = time {
        not_positive("budget.time", "the time", time.get())?;
    }
    if let Some(money) = money {
        not_positive("budget.money", "the money", money.get())?;
        if price.is_none() {
            let what = "what a worker costs is not said";
            return Err(InputError::new("budget.price", what).hint("write for example price = \"$0.35/h\""));
        }
    }
    Ok(())
}
