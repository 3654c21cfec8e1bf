//! Prints how well synchronous scaling is predicted on public tables, and what is chosen from them, as Markdown.
//!
//! `cargo run --release -p bellwether-model --example accuracy_synchronous`
//!
//! Tables, rows and families are those of `data/synchronous-scaling/protocol.csv`.

#![allow(clippy::print_stdout)]

mod choose;
mod report;

#[path = "../../tests/it/tables/mod.rs"]
mod tables;

use bellwether_model::scaling::Belief;

use choose::{Table, choose, prepare};
use report::{Judged, blind, name_missed, report, scales};
use tables::protocol::Family;

fn main() {
    let tables = prepare();
    let all: Vec<&Table> = tables.iter().collect();
    println!("## Synchronous scaling\n");
    println!(
        "Mean absolute relative error of the throughput, in percent. `laws` is the model, with beliefs that were"
    );
    println!(
        "chosen without the network; `four laws` is what it was before: their mean, all with the same weight."
    );
    let networks = left_out(&all, Family::Network);
    for split in ["usual", "44"] {
        println!("\n### Networks left out in turn, split `{split}`\n");
        report(&networks, split);
    }
    let clusters = left_out(&all, Family::Cluster);
    for split in ["usual", "44"] {
        println!("\n### Clusters left out in turn, split `{split}`\n");
        report(&clusters, split);
    }
    println!("\n### One node measured, several asked: networks left out in turn\n");
    blind(&networks);
    println!("\n### Intervals that follow something else: networks left out in turn\n");
    scales(&networks);
    println!("\n### What is chosen\n");
    println!("| without | u | v | w | weight of `shared` | floor | quantile | one node measured |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (kind, judged) in [("network", &networks), ("cluster", &clusters)] {
        let mut known: Vec<&str> = Vec::new();
        for Judged { family, belief, .. } in judged {
            if !known.contains(family) {
                known.push(family);
                print_belief(&format!("{kind} {family}"), belief);
            }
        }
    }
    let (chosen, _) = choose(&all);
    print_belief("nothing: `Belief::default()`", &chosen);
    println!("\nAs compiled in: {}", if is_compiled_in(&chosen) { "yes" } else { "NO, it has changed" });
    println!(
        "\n### Rows that the model misses by more than {:.0} %, networks left out in turn\n",
        100.0 * report::NAMED
    );
    for judged in networks.iter().filter(|judged| judged.table.entry.split == "usual") {
        name_missed(judged.table, &judged.belief);
    }
}

/// Every table with its family and what is chosen without that.
fn left_out<'t>(all: &[&'t Table], by: Family) -> Vec<Judged<'t>> {
    let mut chosen: Vec<(&'static str, (Belief, [f64; 4]))> = Vec::new();
    for table in all {
        let family = table.entry.family(by);
        if !chosen.iter().any(|(known, _)| *known == family) {
            let others: Vec<&Table> =
                all.iter().copied().filter(|other| other.entry.family(by) != family).collect();
            chosen.push((family, choose(&others)));
        }
    }
    let judged = |table: &&'t Table| {
        let family = table.entry.family(by);
        let (_, (belief, quantiles)) =
            *chosen.iter().find(|(known, _)| *known == family).expect("chosen above");
        Judged { family, table, belief, quantiles }
    };
    all.iter().map(judged).collect()
}

fn print_belief(without: &str, belief: &Belief) {
    let exponents = belief.exponents.map(|about| format!("{:.3} ± {:.3}", about.mean, about.sd)).join(" | ");
    println!(
        "| {without} | {exponents} | {:.2} | {:.2} | {:.3} | {:.3} |",
        belief.shared_weight, belief.floor, belief.quantile, belief.unmeasured,
    );
}

/// Whether the constants are these, to the digits that are printed.
fn is_compiled_in(chosen: &Belief) -> bool {
    let compiled = Belief::default();
    let numbers = |belief: &Belief| {
        let about = belief.exponents.map(|about| [about.mean, about.sd]).concat();
        [about, vec![belief.shared_weight, belief.floor, belief.quantile, belief.unmeasured]].concat()
    };
    numbers(chosen).iter().zip(numbers(&compiled)).all(|(one, other)| (one - other).abs() < 1e-3)
}
