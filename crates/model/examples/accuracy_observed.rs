//! Prints how well the speed of jobs follows from what was observed of them with other numbers of workers, as Markdown.
//!
//! `cargo run --release -p bellwether-model --example accuracy_observed`

#![allow(clippy::print_stdout)]

use bellwether_core::prediction::Validity;
use bellwether_model::observed::ELSEWHERE;

#[path = "../tests/it/observed_steps/mod.rs"]
mod observed_steps;

use observed_steps::{all, learnt, measured_s, told};

const LEARNT: [(&str, f64, &[u32]); 9] = [
    ("synthetic", 1.0, &[1]),
    ("synthetic", 1.0, &[2]),
    ("synthetic", 1.0, &[4]),
    ("synthetic", 1.0, &[1, 4]),
    ("synthetic", 1.0, &[2, 8]),
    ("digits", 1.0, &[1]),
    ("digits", 1.0, &[2]),
    ("convnet", 1.0, &[1]),
    ("convnet", 1.0, &[2]),
];

fn main() {
    println!(
        "| job | learnt with workers | predicted workers | speed | measured step | error of the throughput | in the interval |"
    );
    println!("|---|---|--:|--:|--:|--:|---|");
    let all = all();
    // Of each forecast of the emulated device: its number of workers, whether that was observed at another speed, by
    // which part the interval without ELSEWHERE misses, its half-width, whether it holds as it is.
    let mut forecasts: Vec<Forecast> = Vec::new();
    for (kind, speed, workers) in LEARNT {
        let belief = learnt(&all, kind, speed, workers);
        let held_out = all.iter().filter(|run| run.kind == kind);
        for run in held_out.filter(|run| run.speed != speed || !workers.contains(&run.workers)) {
            let (prediction, error) = told(&belief, run);
            let inside = prediction.low <= prediction.examples_per_s / (1.0 + error)
                && prediction.examples_per_s / (1.0 + error) <= prediction.high;
            if kind == "synthetic" {
                let observed = workers.contains(&run.workers);
                let part = if observed { 1.0 } else { 1.0 + ELSEWHERE };
                let measured = prediction.examples_per_s / (1.0 + error);
                let missed = (prediction.low * part / measured).max(measured * part / prediction.high) - 1.0;
                let half = |low: f64, high: f64| (high - low) / 2.0 / prediction.examples_per_s;
                let width = half(prediction.low, prediction.high);
                let width_without = half(prediction.low * part, prediction.high / part);
                forecasts.push(Forecast {
                    workers: run.workers,
                    observed,
                    missed,
                    width,
                    width_without,
                    inside,
                });
            }
            let mark = if prediction.validity == Validity::Interpolated { "" } else { ", extrapolated" };
            println!(
                "| {kind} | {workers:?} | {} | {} | {:.2} ms | {:+.1} % | {}{mark} |",
                run.workers,
                run.speed,
                1e3 * measured_s(run),
                100.0 * error,
                if inside { "yes" } else { "no" },
            );
        }
    }
    calibrated(&forecasts);
}

/// What is known of a forecast for the emulated device.
struct Forecast {
    workers: u32,
    observed: bool,
    /// What its interval lacks without [`ELSEWHERE`], relative; negative if nothing.
    missed: f64,
    width: f64,
    width_without: f64,
    inside: bool,
}

/// [`ELSEWHERE`] chosen without each number of workers, and tested there.
fn calibrated(forecasts: &[Forecast]) {
    println!(
        "\n| left out, workers | chosen on the others | inside without it | inside |\n|--:|--:|--:|--:|"
    );
    let largest = |without: Option<u32>| {
        let others =
            forecasts.iter().filter(|forecast| Some(forecast.workers) != without && !forecast.observed);
        let mut missed: Vec<f64> = others.map(|forecast| forecast.missed.max(0.0)).collect();
        missed.sort_by(f64::total_cmp);
        // The rank of a conformal quantile; with few forecasts the largest.
        let rank = ((missed.len() + 1) as f64 * 0.95).ceil() as usize;
        missed[rank.clamp(1, missed.len()) - 1]
    };
    let mut workers: Vec<u32> = forecasts.iter().map(|forecast| forecast.workers).collect();
    workers.sort_unstable();
    workers.dedup();
    let (mut before, mut inside) = (0, 0);
    for count in workers {
        let chosen = largest(Some(count));
        let tested = || forecasts.iter().filter(|forecast| forecast.workers == count);
        let without = tested().filter(|forecast| forecast.missed <= 0.0).count();
        let with = tested()
            .filter(|forecast| forecast.missed <= if forecast.observed { 0.0 } else { chosen })
            .count();
        println!("| {count} | {chosen:.3} | {without} of {} | {with} |", tested().count());
        before += without;
        inside += with;
    }
    println!("| **all** | | {before} of {} | {inside} |", forecasts.len());
    let mean = |width: fn(&Forecast) -> f64| {
        100.0 * forecasts.iter().map(width).sum::<f64>() / forecasts.len() as f64
    };
    let (width, without) = (mean(|forecast| forecast.width), mean(|forecast| forecast.width_without));
    let compiled = forecasts.iter().filter(|forecast| forecast.inside).count();
    println!("\nOn all: {:.3}; compiled in: {ELSEWHERE}, {compiled} inside", largest(None));
    println!("Mean half-width {width:.1} %, without it {without:.1} %");
}
