//! Prints how well synchronous scaling is predicted on public tables, as Markdown.
//!
//! `cargo run --release -p bellwether-model --example accuracy_synchronous`

#![allow(clippy::print_stdout)]

use bellwether_core::prediction::Validity;
use bellwether_model::elastic::fit;
use bellwether_model::scaling::{Form, Scaling};

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use tables::split::{HeldOut, Split, elasticflow, mean_size, pollux, throughput_error};

/// A row that a model misses by more than this, relative, is named.
const NAMED: f64 = 0.25;

fn main() {
    println!("## Synchronous scaling\n");
    println!(
        "Mean absolute relative error of the throughput, in percent. `laws` is the model; the columns after it"
    );
    println!("are single laws and the fit of the goodput model, on the same rows.\n");
    let splits: Vec<Split> = elasticflow().into_iter().chain(pollux(&[1, 1])).collect();
    let scored = report(&splits);
    println!(
        "\nThe same with placement `44` in place of `11` as the smallest over nodes (Pollux tables only):\n"
    );
    report(&pollux(&[4, 4]));
    println!("\n### Rows that the model misses by more than {:.0} %\n", 100.0 * NAMED);
    for (split, model) in splits.iter().zip(&scored) {
        name_missed(split, model);
    }
}

fn report(splits: &[Split]) -> Vec<Scaling> {
    println!(
        "| table | fitted | predicted | in-sample | left-out rms | **laws** | linear | log-log | covered | width | replicas | ring | logarithm | hierarchy | goodput model |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut models = Vec::new();
    let mut sums = [0.0; 10];
    let mut tables = 0.0;
    for split in splits {
        let model = Scaling::fit(&split.fitted).expect("rows of the tables are good");
        let scores = scores(split, &model);
        let cells: Vec<String> = scores.iter().map(|score| format!("{:.1}", 100.0 * score)).collect();
        println!(
            "| {} | {} | {} | {:.1} | {:.1} | {} |",
            split.name,
            split.fitted.len(),
            split.held_out.len(),
            100.0 * model.mean_absolute_residual(),
            100.0 * model.cross_validated_error(),
            cells.join(" | "),
        );
        if !split.held_out.is_empty() {
            sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
            tables += 1.0;
        }
        models.push(model);
    }
    let cells: Vec<String> = sums.iter().map(|sum| format!("{:.1}", 100.0 * sum / tables)).collect();
    println!("| **mean of tables** | | | | | {} |", cells.join(" | "));
    models
}

/// Errors of the model and the baselines, coverage and relative half-width of the interval, errors of single laws.
fn scores(split: &Split, model: &Scaling) -> [f64; 10] {
    let held_out = &split.held_out;
    let error = |predict: &dyn Fn(&HeldOut) -> f64| {
        mean_size(held_out.iter().map(|held| throughput_error(predict(held), held.row.step_s)))
    };
    let step_s = |model: &Scaling, held: &HeldOut| {
        model.predict(held.row.nodes, held.row.replicas, held.row.local_batch, 0).step_s
    };
    let count = held_out.len().max(1) as f64;
    let (mut covered, mut width) = (0.0, 0.0);
    for held in held_out {
        let row = held.row;
        let forecast = model.predict(row.nodes, row.replicas, row.local_batch, 0);
        let measured = f64::from(row.replicas) * row.local_batch / row.step_s;
        let (low, high) = forecast.interval;
        covered += f64::from(u8::from((low..=high).contains(&measured))) / count;
        width += 0.5 * (high - low) / forecast.examples_per_s / count;
    }
    let single = |form: Form| {
        let law = Scaling::fit_forms(&split.fitted, &[form]).expect("rows of the tables are good");
        error(&|held| step_s(&law, held))
    };
    let [replicas, ring, logarithm, hierarchy] = Form::ALL.map(single);
    let elastic = fit(&split.fitted).expect("rows of the tables are good").model;
    let goodput = error(&|held| elastic.step_s(held.row.nodes, held.row.replicas, held.row.local_batch, 0));
    [
        error(&|held| step_s(model, held)),
        error(&|held| held.linear_s),
        error(&|held| held.log_log_s),
        covered,
        width,
        replicas,
        ring,
        logarithm,
        hierarchy,
        goodput,
    ]
}

/// Names the rows that are missed: one by one where they are few, else by placement.
fn name_missed(split: &Split, model: &Scaling) {
    let mut missed: Vec<(String, f64, bool)> = Vec::new();
    for held in &split.held_out {
        let row = held.row;
        let forecast = model.predict(row.nodes, row.replicas, row.local_batch, 0);
        let size = throughput_error(forecast.step_s, row.step_s);
        if size.abs() > NAMED {
            missed.push((held.place.clone(), size, forecast.validity == Validity::Interpolated));
        }
    }
    if missed.is_empty() {
        return;
    }
    println!("- {}: {} of {} rows", split.name, missed.len(), split.held_out.len());
    if missed.len() <= 12 {
        for (place, size, interpolated) in missed {
            let mark = if interpolated { "" } else { ", extrapolated" };
            println!("  - {place}: {:+.0} %{mark}", 100.0 * size);
        }
        return;
    }
    let mut places: Vec<(String, Vec<f64>)> = Vec::new();
    for (place, size, _) in missed {
        let place = place.split(',').next().expect("a split has a first part").to_owned();
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, sizes)) => sizes.push(size),
            None => places.push((place, vec![size])),
        }
    }
    let named = places.into_iter().map(|(place, sizes)| {
        let mean = 100.0 * sizes.iter().sum::<f64>() / sizes.len() as f64;
        format!("{place} ({} rows, {mean:+.0} %)", sizes.len())
    });
    println!("  - {}", named.collect::<Vec<_>>().join("; "));
}
