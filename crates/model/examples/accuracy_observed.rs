//! Prints how well the speed of jobs follows from what was observed of them with other numbers of workers, as Markdown.
//!
//! `cargo run --release -p bellwether-model --example accuracy_observed`

#![allow(clippy::print_stdout)]

use bellwether_core::prediction::Validity;

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
    for (kind, speed, workers) in LEARNT {
        let belief = learnt(&all, kind, speed, workers);
        let held_out = all.iter().filter(|run| run.kind == kind);
        for run in held_out.filter(|run| run.speed != speed || !workers.contains(&run.workers)) {
            let (prediction, error) = told(&belief, run);
            let inside = prediction.low <= prediction.examples_per_s / (1.0 + error)
                && prediction.examples_per_s / (1.0 + error) <= prediction.high;
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
}
