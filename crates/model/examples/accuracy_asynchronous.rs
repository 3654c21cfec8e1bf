//! Prints how well measured asynchronous training is predicted: `cargo run --release -p bellwether-model --example
//! accuracy_asynchronous`.

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use std::error::Error;
use std::io::{Write, stdout};

use bellwether_core::InputError;
use bellwether_model::calibrate::asynchronous::{Prior, ServerTime};
use bellwether_model::calibrate::{IntervalScore, Noise};
use tables::cm_dare::{
    Intervals, Series, linear_intervals, mean_absolute, queueing_intervals, score, series,
};

type Method = Box<dyn Fn(&Series) -> Result<Intervals, InputError>>;

fn main() -> Result<(), Box<dyn Error>> {
    let all = series();
    let mut out = stdout().lock();
    writeln!(out, "Fitted to 1 and 8 workers, mean absolute error (worst) in % at 2 to 7:\n")?;
    writeln!(out, "| series | queueing, steady | queueing, exponential | asymptotes | power law |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for series in &all {
        let forms = forms(series)?.map(|errors| cell(&errors)).join(" | ");
        writeln!(out, "| {} | {forms} |", series.name)?;
    }
    for (name, servers) in [("one server", 1), ("two servers", 2)] {
        let mut gathered: [Vec<f64>; 4] = Default::default();
        for series in all.iter().filter(|series| series.servers == servers) {
            for (into, errors) in gathered.iter_mut().zip(forms(series)?) {
                into.extend(errors);
            }
        }
        let cells = gathered.map(|errors| format!("**{}**", cell(&errors))).join(" | ");
        writeln!(out, "| **{name}** | {cells} |")?;
    }
    intervals(&mut out, &all)
}

/// Errors of every form that is compared.
fn forms(series: &Series) -> Result<[Vec<f64>; 4], InputError> {
    Ok([
        series.errors_between(0.0)?,
        series.errors_between(1.0)?,
        series.errors_of_asymptotes(),
        series.errors_of_power_law(),
    ])
}

fn cell(errors: &[f64]) -> String {
    let worst = errors.iter().map(|error| error.abs()).fold(0.0, f64::max);
    format!("{:.1} ({:.1})", 100.0 * mean_absolute(errors), 100.0 * worst)
}

fn intervals(out: &mut impl Write, all: &[Series]) -> Result<(), Box<dyn Error>> {
    let queueing = |prior: Prior| -> Method { Box::new(move |series| queueing_intervals(series, &prior)) };
    let knee = |largest_knee| Prior { server_time: ServerTime::Unknown { largest_knee }, ..Prior::default() };
    let noise = |relative_deviation| Prior {
        noise: Noise { relative_deviation, ..Noise::default() },
        ..Prior::default()
    };
    let methods: Vec<(&str, Method)> = vec![
        ("queueing (default prior)", queueing(Prior::default())),
        ("queueing, exponential stations", queueing(Prior { squared_variation: 1.0, ..Prior::default() })),
        ("queueing, no least gain", queueing(Prior { least_gain: 1.0, ..Prior::default() })),
        ("queueing, least gain 0", queueing(Prior { least_gain: 0.0, ..Prior::default() })),
        ("queueing, knee up to 100", queueing(knee(100.0))),
        ("queueing, knee up to 10,000", queueing(knee(10_000.0))),
        ("queueing, noise 1 %", queueing(noise(0.01))),
        ("queueing, noise 3 %", queueing(noise(0.03))),
        ("linear scaling, residual interval", Box::new(|series| Ok(linear_intervals(series, None)))),
        (
            "linear scaling, same noise prior",
            Box::new(|series| Ok(linear_intervals(series, Some(Noise::default())))),
        ),
    ];
    writeln!(
        out,
        "\nFitted to 1, 2 and 3 workers, 95 % intervals at 4 to 8 (unit: throughput of one worker):\n"
    )?;
    writeln!(out, "| method | mean interval score | coverage | mean width | score on K80 | score on P100 |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (name, method) in &methods {
        let mut scores = [IntervalScore::default(); 3];
        for series in all {
            let intervals = method(series)?;
            score(series, &intervals, &mut scores[0]);
            score(series, &intervals, &mut scores[if series.name.contains("K80") { 1 } else { 2 }]);
        }
        let [every, k80, p100] = scores;
        writeln!(
            out,
            "| {name} | {:.2} | {:.0} % of {} | {:.2} | {:.2} | {:.2} |",
            every.mean_score(),
            100.0 * every.coverage(),
            every.count(),
            every.mean_width(),
            k80.mean_score(),
            p100.mean_score(),
        )?;
    }
    least_gains(out, all)?;
    writeln!(out, "\nBy series, with 8 workers:\n")?;
    writeln!(out, "| series | measured | queueing | linear scaling |")?;
    writeln!(out, "|---|---|---|---|")?;
    for series in all {
        let (low, high) = methods[0].1(series)?[4];
        let (linear_low, linear_high) = linear_intervals(series, None)[4];
        let measured = series.measured(8);
        writeln!(
            out,
            "| {} | {measured:.2} | {low:.1} to {high:.1} | {linear_low:.1} to {linear_high:.1} |",
            series.name
        )?;
    }
    Ok(())
}

/// The least gain chosen without each network, tested on it.
fn least_gains(out: &mut impl Write, all: &[Series]) -> Result<(), Box<dyn Error>> {
    let network = |series: &Series| series.name.split(' ').next().unwrap_or_default().to_owned();
    let mut networks: Vec<String> = all.iter().map(network).collect();
    networks.dedup();
    networks.sort();
    networks.dedup();
    let scored = |chosen: &[&Series], least_gain: f64| -> Result<IntervalScore, InputError> {
        let mut sum = IntervalScore::default();
        for series in chosen {
            let prior = Prior { least_gain, ..Prior::default() };
            score(series, &queueing_intervals(series, &prior)?, &mut sum);
        }
        Ok(sum)
    };
    // The largest, in twentieths, with which 95 % are inside; 0 where none is.
    let largest = |chosen: &[&Series]| -> Result<f64, InputError> {
        for part in (0..=20).rev() {
            if scored(chosen, f64::from(part) / 20.0)?.coverage() >= 0.95 {
                return Ok(f64::from(part) / 20.0);
            }
        }
        Ok(0.0)
    };
    writeln!(out, "\nThe least gain, chosen on the other networks:\n")?;
    writeln!(out, "| left out | least gain | inside, left out | mean width |\n|---|---|---|---|")?;
    let (mut inside, mut count, mut width) = (0.0, 0.0, 0.0);
    for left_out in &networks {
        let (tested, others): (Vec<&Series>, Vec<&Series>) =
            all.iter().partition(|series| network(series) == *left_out);
        let least_gain = largest(&others)?;
        let score = scored(&tested, least_gain)?;
        let rows = score.count() as f64;
        inside += score.coverage() * rows;
        width += score.mean_width() * rows;
        count += rows;
        let percent = 100.0 * score.coverage();
        writeln!(
            out,
            "| {left_out} | {least_gain:.2} | {percent:.0} % of {rows} | {:.2} |",
            score.mean_width()
        )?;
    }
    writeln!(out, "| **all** | | {:.0} % of {count} | {:.2} |", 100.0 * inside / count, width / count)?;
    let every: Vec<&Series> = all.iter().collect();
    writeln!(
        out,
        "\nOn all networks: {:.2}, compiled in: {:.2}",
        largest(&every)?,
        Prior::default().least_gain
    )?;
    Ok(())
}
