//! Reads job files: TOML with overrides, and errors that name the place and the nearest known word.

use toml::{Table, Value};

use crate::error::{InputError, InputErrorKind, ParseError};
use crate::job::{CheckedJob, Job};
use crate::spelling::quoted;
pub use crate::spelling::{advice, did_you_mean, nearest};

/// Reads a job from the text of a TOML file. `place` names the file in errors; `overrides` are pairs of a
/// dotted key and a value as they would stand in the file (a bare word counts as a string).
///
/// # Errors
///
/// Returns what is wrong first: the syntax, an unknown or misspelt key, a value out of range.
///
/// ```
/// # use bellwether_core::parse::job;
/// let error = job("nam = \"x\"", "job.toml", &[]).unwrap_err();
/// assert_eq!(error.place, "job.toml, line 1");
/// assert!(error.hint.contains("`name`"), "{error}");
/// ```
pub fn job(text: &str, place: &str, overrides: &[(String, String)]) -> Result<CheckedJob, InputError> {
    let mut table: Table = toml::from_str(text).map_err(|e| located(&e, text, place))?;
    let mut source = text.to_string();
    let mut place = place.to_string();
    if !overrides.is_empty() {
        for (key, value) in overrides {
            set(&mut table, key, value)?;
        }
        // Without overrides the text is read as it stands, so that errors name its lines.
        if let Err(error) = toml::from_str::<Job>(text)
            && toml::from_str::<Job>(&table.to_string()).is_err()
            && error.message().starts_with("unknown")
        {
            return Err(located(&error, text, &place));
        }
        source = table.to_string();
        place = format!("{place} with --set");
    }
    let job: Job = toml::from_str(&source).map_err(|e| {
        let error = located(&e, &source, &place);
        if overrides.is_empty() {
            return error;
        }
        InputError { place: culprit(text, overrides).unwrap_or(place.clone()), ..error }
    })?;
    job.check().map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })
}

/// What `--set KEY=VALUE` says: the key and the value.
///
/// # Errors
///
/// A text without `=`.
///
/// ```
/// use bellwether_core::parse::assignment;
/// assert_eq!(assignment("batch.size = 64"), Ok(("batch.size".into(), "64".into())));
/// assert!(assignment("batch.size").is_err());
/// ```
pub fn assignment(text: &str) -> Result<(String, String), ParseError> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| ParseError::new("assignment", text, "KEY=VALUE"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

/// The text of a job file that reads as this job.
pub fn to_text(job: &Job) -> String {
    // Every job came from such a text, or from JSON, which has fewer forms.
    Table::try_from(job).map(|table| table.to_string()).unwrap_or_default()
}

/// Reads any TOML document of ours; an error names its line, and the nearest known word.
///
/// # Errors
///
/// Returns an error for text that is not TOML, or not of this form.
pub fn document<T: serde::de::DeserializeOwned>(text: &str, place: &str) -> Result<T, InputError> {
    toml::from_str(text).map_err(|e| located(&e, text, place))
}

/// The override without which the job could be read.
fn culprit(text: &str, overrides: &[(String, String)]) -> Option<String> {
    let readable_without = |one: usize| {
        let mut table: Table = toml::from_str(text).ok()?;
        for (number, (key, value)) in overrides.iter().enumerate() {
            if number != one {
                set(&mut table, key, value).ok()?;
            }
        }
        toml::from_str::<Job>(&table.to_string()).ok()
    };
    let one = (0..overrides.len()).find(|one| readable_without(*one).is_some())?;
    let (key, value) = &overrides[one];
    Some(format!("--set {key}={value}"))
}

/// Sets `a.b.c` in nested tables.
fn set(table: &mut Table, key: &str, value: &str) -> Result<(), InputError> {
    let place = format!("--set {key}={value}");
    let parsed: Result<Table, _> = toml::from_str(&format!("value = {value}"));
    let value = match parsed {
        Ok(mut parsed) => parsed.remove("value").unwrap_or(Value::Boolean(false)),
        Err(_) => Value::String(value.to_string()),
    };
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().filter(|l| !l.is_empty());
    let last =
        last.ok_or_else(|| InputError::new(&place, "the key is empty").hint("write --set KEY=VALUE"))?;
    let mut inner = table;
    for part in parts {
        let entry = inner.entry(part).or_insert_with(|| Value::Table(Table::new()));
        inner = entry
            .as_table_mut()
            .ok_or_else(|| InputError::new(&place, format!("`{part}` is a value and has no keys")))?;
    }
    inner.insert(last.to_string(), value);
    Ok(())
}

/// Turns an error of the TOML reader into ours: with the line, and the nearest known word.
fn located(error: &toml::de::Error, text: &str, place: &str) -> InputError {
    let message = error.message();
    let unknown = if message.starts_with("unknown") { quoted(message) } else { Vec::new() };
    // Tables with a `kind` lose the exact place; the word itself finds the line again.
    let by_word = unknown.first().and_then(|word| {
        text.lines().position(|line| {
            let line = line.trim_start().trim_start_matches('[');
            line.starts_with(word.as_str()) || line.contains(&format!("\"{word}\""))
        })
    });
    let by_span = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count());
    let line = by_word.or(by_span);
    let place = line.map_or(place.to_string(), |line| format!("{place}, line {}", line + 1));
    match advice(message) {
        Some((what, hint)) => InputError::new(place, what).hint(hint).of_kind(InputErrorKind::Unknown),
        None => InputError::new(place, message.to_string()),
    }
}
