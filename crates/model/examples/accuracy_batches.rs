//! Prints how well the time of a batch is predicted from two or three others, on public tables, as Markdown.
//!
//! `cargo run --release -p bellwether-model --example accuracy_batches`

#![allow(clippy::print_stdout)]

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use tables::batches::{Errors, held_out, series};

fn main() {
    println!("## Other batches\n");
    println!("Error of the throughput in percent, of batches that were not fitted: mean (worst).\n");
    let head = "| table | fitted to | predicted | **straight pieces** | line through both ends | proportional | within 5 % | inside |";
    println!("{head}\n|---|--:|--:|--:|--:|--:|--:|--:|");
    let mut all = Errors::default();
    for source in ["pollux", "elasticflow", "gavel"] {
        let mut of_source = Errors::default();
        for series in series().iter().filter(|series| series.source == source) {
            let errors = held_out(series);
            print(&series.name, series.points.len() - errors.law.len(), &errors);
            of_source.add(errors);
        }
        print(&format!("**{source}**"), 0, &of_source);
        all.add(of_source);
    }
    print("**all**", 0, &all);
}

fn print(name: &str, fitted: usize, errors: &Errors) {
    let fitted = if fitted > 0 { fitted.to_string() } else { String::new() };
    let count = errors.law.len();
    let share = |of: usize| format!("{:.0} %", 100.0 * of as f64 / count as f64);
    let near = errors.law.iter().filter(|error| error.abs() <= 0.05).count();
    let inside = errors.inside.iter().filter(|inside| **inside).count();
    println!(
        "| {name} | {fitted} | {count} | {} | {} | {} | {} | {} |",
        both(&errors.law),
        both(&errors.line),
        both(&errors.proportional),
        share(near),
        share(inside)
    );
}

/// Mean size and worst, in percent.
fn both(errors: &[f64]) -> String {
    let sizes = || errors.iter().map(|error| 100.0 * error.abs());
    format!("{:.1} ({:.1})", sizes().sum::<f64>() / errors.len() as f64, sizes().fold(0.0, f64::max))
}
