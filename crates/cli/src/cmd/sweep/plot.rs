//! A sweep as a picture: a line for each trial across its keys, and the best figure over the cost.

use bellwether_core::sweep::{Domain, Parameter, Sweep, Value};
use bellwether_render::plot::{self, Axis, BLUE, Chart, Color, GREY, Series, VERMILION};
use bellwether_serve::sweep::{Summary, TrialSummary};

use crate::failure::Failure;

const SIZE: (u32, u32) = (900, 760);

/// An SVG with both.
pub(super) fn svg(summary: &Summary, sweep: &Sweep) -> Result<String, Failure> {
    Ok(plot::svg(SIZE, |area| {
        let (upper, lower) = area.split_vertically(430);
        parallel(summary, sweep).draw(&upper)?;
        progress(summary).draw(&lower)
    })?)
}

/// The place of a value between the ends of its key, 0…1.
fn place(domain: &Domain, value: &Value) -> Option<f64> {
    let between = |low: f64, high: f64, log: bool, number: f64| match log {
        true => (number / low).ln() / (high / low).ln(),
        false => (number - low) / (high - low),
    };
    Some(match domain {
        Domain::Choice(choices) => {
            let at = choices.iter().position(|choice| choice == value)?;
            (at as f64 + 0.5) / choices.len() as f64
        }
        Domain::Real { low, high, log, .. } => between(*low, *high, *log, value.number()?),
        Domain::Integer { low, high, log, .. } => between(*low as f64, *high as f64, *log, value.number()?),
        Domain::Steps { low, step, steps } => {
            between(*low, low + f64::from((*steps).max(1)) * step, false, value.number()?)
        }
    })
}

/// The values at both ends of an axis, in words.
fn ends_of(domain: &Domain) -> String {
    match domain {
        Domain::Choice(choices) => {
            let words: Vec<String> = choices.iter().map(ToString::to_string).collect();
            words.join(" | ")
        }
        Domain::Real { low, high, .. } => format!("{low} … {high}"),
        Domain::Integer { low, high, .. } => format!("{low} … {high}"),
        Domain::Steps { low, step, steps } => format!("{low} … {}", low + f64::from(*steps) * step),
    }
}

/// The least and the largest figure.
fn figures(summary: &Summary) -> Option<(f64, f64)> {
    let figures = || summary.trials.iter().filter_map(|trial| trial.figure);
    let low = figures().min_by(f64::total_cmp)?;
    let high = figures().max_by(f64::total_cmp)?;
    Some(if high > low { (low, high) } else { (low - 0.5, high + 0.5) })
}

fn parallel(summary: &Summary, sweep: &Sweep) -> Chart {
    let keys: Vec<&Parameter> = sweep.space.parameters.iter().collect();
    let last = keys.len() as f64;
    let ends = figures(summary);
    let line = |trial: &TrialSummary| -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = (0..)
            .zip(&keys)
            .filter_map(|(at, key)| Some((f64::from(at), place(&key.domain, trial.sample.get(&key.key)?)?)))
            .collect();
        points.extend(
            trial.figure.zip(ends).map(|(figure, (low, high))| (last, (figure - low) / (high - low))),
        );
        points
    };
    let is_best = |trial: &&TrialSummary| Some(trial.trial) == summary.winner;
    let mut series: Vec<Series> = (0..=keys.len())
        .map(|at| Series::line(vec![(at as f64, 0.0), (at as f64, 1.0)], GREY.stroke_width(1)))
        .collect();
    let others = summary.trials.iter().filter(|trial| !is_best(trial));
    series.extend(others.map(|trial| Series::line(line(trial), BLUE.mix(0.35).stroke_width(1))));
    let best = summary.trials.iter().filter(is_best);
    series.extend(best.map(|trial| Series::line(line(trial), VERMILION.stroke_width(3))));
    // The last part of a dotted key, so that its ends stand beside it.
    let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let mut names: Vec<String> =
        keys.iter().map(|key| format!("{}: {}", short(&key.key), ends_of(&key.domain))).collect();
    let of_figures = ends.map_or(String::new(), |(low, high)| format!(": {low:.3} … {high:.3}"));
    names.push(format!("{}{of_figures}", summary.metric));
    let name = move |at: f64| names.get(at.round() as usize).cloned().unwrap_or_default();
    let ticks = (0..=keys.len()).map(|at| at as f64).collect();
    Chart {
        title: ("trials: each key from its first value (below) to its last, and what came of it".into(), 16),
        margin: 16,
        label_areas: (40, 30),
        x: Axis::new(-0.3..last + 0.3, ticks),
        y: Axis::new(-0.03..1.03, Vec::new()),
        x_name: "the best trial is the thick line".into(),
        y_name: String::new(),
        x_format: Some(Box::new(name)),
        y_format: None,
        has_grid: false,
        legend: None,
        series,
    }
}

/// The best figure over the length that all trials were trained.
fn progress(summary: &Summary) -> Chart {
    let units: u64 = summary.trials.iter().filter_map(|trial| trial.reports.last()).map(|(at, _)| at).sum();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for step in &summary.progress {
        if let Some((_, before)) = points.last().copied() {
            points.push((step.units as f64, before));
        }
        points.push((step.units as f64, step.figure));
    }
    if let Some((_, best)) = points.last().copied() {
        points.push((units as f64, best));
    }
    let low = points.iter().map(|(_, figure)| *figure).min_by(f64::total_cmp).unwrap_or(0.0);
    let high = points.iter().map(|(_, figure)| *figure).max_by(f64::total_cmp).unwrap_or(1.0);
    let margin = if high > low { 0.05 * (high - low) } else { 0.5 };
    let y = Axis::linear(low - margin..high + margin);
    Chart {
        title: ("the best figure of any evaluation so far, over what was trained".into(), 16),
        margin: 16,
        label_areas: (40, 70),
        x: Axis::linear(0.0..1.02 * (units as f64).max(1.0)),
        y,
        x_name: "length of all trials together".into(),
        y_name: summary.metric.to_owned(),
        x_format: None,
        y_format: Some(Box::new(|figure| format!("{figure:.3}"))),
        has_grid: true,
        legend: None,
        series: vec![Series::line(points, VERMILION.stroke_width(2))],
    }
}
