//! Prints how well the time of published runs that switch is predicted: `cargo run --release -p bellwether-model
//! --example accuracy_hybrid`.

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use std::error::Error;
use std::io::{Write, stdout};

use bellwether_model::staleness::{slowdown, stable_rate};
use tables::sync_switch::set_ups;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    let mut all = Vec::new();
    writeln!(out, "| set-up | synchronous | measured s | predicted s | error % | accuracy % |")?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|")?;
    for set_up in set_ups() {
        let mut errors = Vec::new();
        for run in set_up.mixed() {
            let (predicted_s, error) = (set_up.predicted_s(run)?, set_up.error(run)?);
            errors.push(error.abs());
            writeln!(
                out,
                "| {} | {} % | {} | {predicted_s:.0} | {:+.1} | {:.1} |",
                set_up.number,
                100.0 * run.switch_at,
                run.time_s,
                100.0 * error,
                run.accuracy_percent
            )?;
        }
        writeln!(out, "| **{}: {}** | mean | | | **{:.1}** | |", set_up.number, set_up.name, mean(&errors))?;
        all.extend(errors);
    }
    writeln!(out, "| **all** | {} rows | | | **{:.1}** | |", all.len(), mean(&all))?;
    writeln!(out, "\nAccuracy in %, and what staleness does to a quadratic at a momentum of 0.9:\n")?;
    writeln!(out, "| set-up | bsp | asp | staleness | slowdown | largest stable rate, asp over bsp |")?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|")?;
    for set_up in set_ups() {
        let accuracy = |at: f64| {
            let run = set_up.runs.iter().find(|run| run.switch_at == at);
            run.map_or("diverges".to_string(), |run| format!("{:.1}", run.accuracy_percent))
        };
        let staleness = f64::from(set_up.workers - 1);
        let (slower, stable) = (slowdown(staleness, 0.9, 0.9)?, stable_rate(staleness, 0.9)?);
        writeln!(
            out,
            "| {} | {} | {} | {staleness} | {slower:.0} | 1/{:.0} |",
            set_up.number,
            accuracy(1.0),
            accuracy(0.0),
            stable_rate(0.0, 0.9)? / stable
        )?;
    }
    Ok(())
}

/// Mean in per cent.
fn mean(errors: &[f64]) -> f64 {
    100.0 * errors.iter().sum::<f64>() / errors.len() as f64
}
