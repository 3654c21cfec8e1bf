//! Reads the files of an application.

use std::collections::BTreeMap;

use bellwether_core::InputError;

use super::steps::Steps;
use super::{Application, Curve, Fitted, Sources};
use crate::common::check;
use crate::elastic::{BatchLimits, Row, fit, noise_scale};

/// Most replicas that a row may have: a wrong number must not overflow a sum.
const MOST_REPLICAS: u32 = 1_000_000;
/// Largest batch of a row, in samples.
const MOST_SAMPLES: u64 = 1_000_000_000;
/// Noise scale in samples that no batch comes near.
const ALL_NOISE: f64 = 1e30;

/// Reads the files of an application and fits its throughput.
pub(super) fn application(sources: &Sources, place: &str) -> Result<Application, InputError> {
    let mut steps = Steps::default();
    let mut rows = placements(sources.placements, &format!("{place}/placements.csv"), &mut steps)?;
    let local = smallest_and_largest(&rows);
    if !sources.scalability.is_empty() {
        rows.extend(scalability(sources.scalability, &format!("{place}/scalability.csv"), &mut steps)?);
    }
    let (initial, ends, curves) = validation(sources.validation, place)?;
    let largest = sources.validation.iter().map(|(batch, _)| *batch).max().unwrap_or(initial);
    let throughput = fit(&rows)?.model;
    let errors = rows.iter().map(|row| {
        let predicted_s = throughput.step_s(row.nodes, row.replicas, row.local_batch, 0);
        (row.step_s / predicted_s).ln().powi(2)
    });
    let error = (errors.sum::<f64>() / rows.len() as f64).sqrt();
    let most_replicas = rows.iter().map(|row| row.replicas).max().unwrap_or(1);
    let limits = BatchLimits { initial, largest, local };
    Ok(Application { limits, fitted: Fitted { throughput, error, most_replicas }, steps, ends, curves })
}

/// The largest local batches that a file allows applications, each of which is among `known`.
pub(super) fn caps(
    csv: &str,
    place: &str,
    known: &BTreeMap<String, Application>,
) -> Result<BTreeMap<String, u64>, InputError> {
    let mut found = BTreeMap::new();
    for (at, [name, most]) in fields(csv, ["application", "max_local_bsz"], place)? {
        let Some(application) = known.get(name) else {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(InputError::new(at, format!("there are no tables of an application `{name}`"))
                .hint(format!("there are some of {}", names.join(", "))));
        };
        let most = whole(most, "max_local_bsz", MOST_SAMPLES, &at)?;
        let smallest = application.limits.local.0;
        if most < smallest {
            return Err(InputError::new(at, format!("`max_local_bsz` is {most}")).hint(format!(
                "the smallest local batch that was measured of `{name}` is {smallest}; say that or more"
            )));
        }
        if found.insert(name.to_owned(), most).is_some() {
            return Err(
                InputError::new(at, format!("`{name}` is capped twice")).hint("leave one of the rows out")
            );
        }
    }
    Ok(found)
}

/// The local batches that fit a single replica, or any where no single one was measured.
fn smallest_and_largest(rows: &[Row]) -> (u64, u64) {
    let single = rows.iter().any(|row| row.replicas == 1);
    let local = rows.iter().filter(|row| row.replicas == 1 || !single).map(|row| row.local_batch as u64);
    (local.clone().min().unwrap_or(1), local.max().unwrap_or(1))
}

/// The rows of a file with this head, as fields, and where each is.
fn fields<'a, const N: usize>(
    csv: &'a str,
    head: [&str; N],
    place: &str,
) -> Result<Vec<(String, [&'a str; N])>, InputError> {
    let mut lines = csv.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let found = lines.next().map_or("", |(_, line)| line);
    if !found.split(',').map(str::trim).eq(head) {
        return Err(InputError::new(format!("{place}, line 1"), format!("the head is `{found}`"))
            .hint(format!("expected is `{}`", head.join(","))));
    }
    let row = |(number, line): (usize, &'a str)| {
        let at = format!("{place}, line {}", number + 1);
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let count = fields.len();
        let fields = fields.try_into().map_err(|_| {
            InputError::new(&at, format!("there are {count} fields"))
                .hint(format!("expected is `{}`", head.join(",")))
        })?;
        Ok((at, fields))
    };
    let rows: Vec<_> = lines.map(row).collect::<Result<_, InputError>>()?;
    if rows.is_empty() {
        return Err(InputError::new(place, "there is no row below the head").hint("give at least one"));
    }
    Ok(rows)
}

fn number(text: &str, name: &str, at: &str) -> Result<f64, InputError> {
    let value: Option<f64> = text.parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| {
        InputError::new(at, format!("`{name}` is `{text}`")).hint("write a finite number such as 0.25")
    })
}

/// A whole number from 1 to `most`.
fn whole(text: &str, name: &str, most: u64, at: &str) -> Result<u64, InputError> {
    text.parse().ok().filter(|value| (1..=most).contains(value)).ok_or_else(|| {
        InputError::new(at, format!("`{name}` is `{text}`"))
            .hint(format!("write a whole number from 1 to {most}"))
    })
}

/// Local batch, step and exchange, of which the exchange is the shorter.
fn measured([local_batch, step_s, exchange_s]: [&str; 3], at: &str) -> Result<(f64, f64, f64), InputError> {
    let local_batch = whole(local_batch, "local_bsz", MOST_SAMPLES, at)? as f64;
    let (step_s, exchange_s) = (number(step_s, "step_time", at)?, number(exchange_s, "sync_time", at)?);
    check::negative(at, "`sync_time`", exchange_s)?;
    if !(1e-9..1e9).contains(&step_s) || exchange_s >= step_s {
        return Err(InputError::new(at, format!("a step of {step_s} s with {exchange_s} s of waiting"))
            .hint("a step takes from 1e-9 to 1e9 s, and longer than the waiting in it"));
    }
    Ok((local_batch, step_s, exchange_s))
}

/// A row of the fit. What the tables call exchange of a single replica is bookkeeping.
fn row(nodes: u32, replicas: u32, (local_batch, step_s, exchange_s): (f64, f64, f64)) -> Row {
    Row { nodes, replicas, local_batch, step_s, exchange_s: (replicas > 1).then_some(exchange_s) }
}

fn placements(csv: &str, place: &str, steps: &mut Steps) -> Result<Vec<Row>, InputError> {
    let mut rows = Vec::new();
    for (at, [placement, rest @ ..]) in
        fields(csv, ["placement", "local_bsz", "step_time", "sync_time"], place)?
    {
        let digits: Option<Vec<u32>> = placement.chars().map(|digit| digit.to_digit(10)).collect();
        let digits = digits.filter(|digits| (1..=64).contains(&digits.len()) && !digits.contains(&0));
        let digits = digits.ok_or_else(|| {
            InputError::new(&at, format!("`placement` is `{placement}`"))
                .hint("write one digit from 1 to 9 per node, for example 442")
        })?;
        let found = measured(rest, &at)?;
        steps.place(&digits, found.0, found.1, found.2);
        rows.push(row(digits.len() as u32, digits.iter().sum(), found));
    }
    Ok(rows)
}

fn scalability(csv: &str, place: &str, steps: &mut Steps) -> Result<Vec<Row>, InputError> {
    let mut rows = Vec::new();
    let head = ["num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"];
    for (at, [nodes, replicas, rest @ ..]) in fields(csv, head, place)? {
        let nodes = whole(nodes, "num_nodes", MOST_REPLICAS.into(), &at)? as u32;
        let replicas = whole(replicas, "num_replicas", MOST_REPLICAS.into(), &at)? as u32;
        if replicas < nodes {
            return Err(InputError::new(&at, format!("{replicas} replicas in {nodes} nodes"))
                .hint("every node holds one or more"));
        }
        let found = measured(rest, &at)?;
        steps.spread(nodes, replicas, found.0, found.1, found.2);
        rows.push(row(nodes, replicas, found));
    }
    Ok(rows)
}

/// The initial batch, the ends of its epochs in samples, and the noise scales of all batches.
fn validation(curves: &[(u64, &str)], place: &str) -> Result<(u64, Vec<f64>, Vec<Curve>), InputError> {
    let mut curves = curves.to_vec();
    curves.sort_unstable_by_key(|(batch, _)| *batch);
    let Some(&(initial, _)) = curves.first() else {
        return Err(InputError::new(place, "there is no validation curve")
            .hint("give validation-B.csv for at least one batch B"));
    };
    let mut ends = Vec::new();
    let mut found = Vec::new();
    for (batch, csv) in curves {
        let at = format!("{place}/validation-{batch}.csv");
        if !(1..=MOST_SAMPLES).contains(&batch) {
            return Err(InputError::new(at, format!("a batch of {batch} samples")).hint("give one above 0"));
        }
        let (progress, noise) = curve(csv, &at, initial)?;
        if ends.is_empty() {
            ends = progress.iter().map(|steps| steps * initial as f64).collect();
        }
        if noise.len() != ends.len() {
            let what = format!("{} epochs, but {} with batch {initial}", noise.len(), ends.len());
            return Err(InputError::new(at, what).hint("give as many rows for every batch"));
        }
        found.push(Curve { ln_batch: (batch as f64).ln(), noise });
    }
    Ok((initial, ends, found))
}

/// Progress in steps of the initial batch and noise scale in samples, of each epoch.
fn curve(csv: &str, place: &str, initial: u64) -> Result<(Vec<f64>, Vec<f64>), InputError> {
    let (mut progress, mut noise): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let head = ["progress", "iteration", "metric", "grad_sqr", "grad_var"];
    for (at, [steps, _, _, gradient_square, gradient_variance]) in fields(csv, head, place)? {
        let steps = number(steps, "progress", &at)?;
        if steps <= progress.last().copied().unwrap_or(0.0) || steps > 1e15 {
            return Err(InputError::new(at, format!("`progress` is {steps}"))
                .hint("it grows from row to row, from 0"));
        }
        let gradient_square = number(gradient_square, "grad_sqr", &at)?;
        let gradient_variance = number(gradient_variance, "grad_var", &at)?;
        // A mean gradient that vanishes in the noise: every batch is as good as the initial one.
        let scale = if gradient_square == 0.0 && gradient_variance > 0.0 {
            ALL_NOISE
        } else {
            let in_place = |error: InputError| InputError { place: at.clone(), ..error };
            noise_scale(initial, gradient_square, gradient_variance).map_err(in_place)?
        };
        noise.push(scale.min(ALL_NOISE));
        progress.push(steps);
    }
    Ok((progress, noise))
}
