//! The tables that the example prints.

use std::collections::BTreeMap;

use bellwether_core::prediction::Validity;
use bellwether_model::elastic::fit;
use bellwether_model::scaling::{Belief, Form, Scaling};

use crate::choose::{SCALES, Table, Tested, blind_errors, test_on};
use crate::tables::split::{HeldOut, mean_size, throughput_error};

/// A row that a model misses by more than this, relative, is named.
pub(crate) const NAMED: f64 = 0.25;

/// A table, the family that was left out with it, and what was chosen without that.
pub(crate) struct Judged<'t> {
    pub(crate) family: &'static str,
    pub(crate) table: &'t Table,
    pub(crate) belief: Belief,
    pub(crate) quantiles: [f64; 4],
}

impl Judged<'_> {
    fn is_of(&self, split: &str) -> bool {
        self.table.entry.split == split
    }
}

/// One line for each table of the split, and their mean.
pub(crate) fn report(judged: &[Judged<'_>], split: &str) {
    println!(
        "| table | left out | fitted | predicted | in-sample | left-out rms | **laws** | four laws | linear | log-log | covered | width | replicas | ring | logarithm | hierarchy | shared | goodput model |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut sums = [0.0; 12];
    let (mut tables, mut covered_rows, mut rows) = (0.0, 0.0, 0);
    let mut by_cluster: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for Judged { family, table, belief, .. } in judged.iter().filter(|judged| judged.is_of(split)) {
        let split = &table.split;
        let model = Scaling::fit_believing(&split.fitted, &Form::ALL, belief).expect("rows are good");
        let scores = scores(table, &model, belief);
        println!(
            "| {} | {family} | {} | {} | {:.1} | {:.1} | {} |",
            split.name,
            split.fitted.len(),
            split.held_out.len(),
            100.0 * model.mean_absolute_residual(),
            100.0 * model.cross_validated_error(),
            cells(&scores),
        );
        sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
        by_cluster.entry(table.entry.table.split(' ').next().unwrap_or("")).or_default().push(scores[0]);
        tables += 1.0;
        covered_rows += scores[4] * split.held_out.len() as f64;
        rows += split.held_out.len();
    }
    println!("| **mean of tables** | | | | | | {} |", cells(&sums.map(|sum| sum / tables)));
    println!(
        "\nOf all {rows} predicted rows, {:.1} % are inside.",
        100.0 * covered_rows / f64::from(rows as u32)
    );
    for (tables, errors) in by_cluster {
        println!("- {tables}: {:.1} %", 100.0 * errors.iter().sum::<f64>() / errors.len() as f64);
    }
}

fn cells(scores: &[f64]) -> String {
    scores.iter().map(|score| format!("{:.1}", 100.0 * score)).collect::<Vec<_>>().join(" | ")
}

/// Errors of the model, of the four laws and the baselines, coverage and relative half-width of the interval, errors of
/// single laws and of the goodput model.
fn scores(table: &Table, model: &Scaling, belief: &Belief) -> [f64; 12] {
    let (fitted, held_out) = (&table.split.fitted, &table.split.held_out);
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
    let of = |forms: &[Form]| {
        let law = Scaling::fit_believing(fitted, forms, belief).expect("rows of the tables are good");
        error(&|held| step_s(&law, held))
    };
    let [replicas, ring, logarithm, hierarchy, shared] = Form::ALL.map(|form| of(&[form]));
    let elastic = fit(fitted).expect("rows of the tables are good").model;
    let goodput = error(&|held| elastic.step_s(held.row.nodes, held.row.replicas, held.row.local_batch, 0));
    [
        error(&|held| step_s(model, held)),
        of(&Form::ALL[..4]),
        error(&|held| held.linear_s),
        error(&|held| held.log_log_s),
        covered,
        width,
        replicas,
        ring,
        logarithm,
        hierarchy,
        shared,
        goodput,
    ]
}

/// Coverage and width if the width of the interval followed something else.
pub(crate) fn scales(judged: &[Judged<'_>]) {
    println!("| width follows | split | of all rows | mean of tables | width |\n|---|---|--:|--:|--:|");
    let tested: Vec<Tested> = judged.iter().map(|judged| test_on(judged.table, &judged.belief)).collect();
    for (index, scale) in SCALES.iter().enumerate() {
        for split in ["usual", "44"] {
            let (mut rows, mut covered_rows, mut covered, mut width, mut tables) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for (judged, tested) in judged.iter().zip(&tested).filter(|(judged, _)| judged.is_of(split)) {
                let count = tested.errors.len() as f64;
                let halves: Vec<f64> = (0..tested.errors.len())
                    .map(|row| judged.quantiles[index] * tested.scale(row, scale))
                    .collect();
                let inside = tested.errors.iter().zip(&halves).filter(|(error, half)| error.abs() <= **half);
                let inside = inside.count() as f64;
                rows += count;
                covered_rows += inside;
                covered += inside / count;
                width += halves.iter().map(|half| half.sinh()).sum::<f64>() / count;
                tables += 1.0;
            }
            println!(
                "| {scale} | {split} | {:.1} | {:.1} | {:.1} |",
                100.0 * covered_rows / rows,
                100.0 * covered / tables,
                100.0 * width / tables
            );
        }
    }
}

/// How far predictions over nodes are off where only one node was measured.
pub(crate) fn blind(judged: &[Judged<'_>]) {
    println!(
        "| table | rows over nodes | mean error of the logarithm | inside | half-width of the logarithm |"
    );
    println!("|---|--:|--:|--:|--:|");
    let (mut all, mut tables) = (0.0, 0.0);
    for Judged { table, belief, .. } in judged.iter().filter(|judged| judged.is_of("usual")) {
        let errors = blind_errors(table, belief);
        if errors.is_empty() {
            continue;
        }
        let count = errors.len() as f64;
        let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / count;
        let inside = errors.iter().filter(|error| error.abs() <= belief.unmeasured).count() as f64 / count;
        println!(
            "| {} | {} | {mean:.2} | {:.1} | {:.2} |",
            table.split.name,
            errors.len(),
            100.0 * inside,
            belief.unmeasured
        );
        all += inside;
        tables += 1.0;
    }
    println!("| **mean of tables** | | | {:.1} | |", 100.0 * all / tables);
}

/// Names the rows that are missed: one by one where they are few, else by placement.
pub(crate) fn name_missed(table: &Table, belief: &Belief) {
    let split = &table.split;
    let model = Scaling::fit_believing(&split.fitted, &Form::ALL, belief).expect("rows are good");
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
