//! Prints the accuracy tables of the regressions: random splits, and each network left out in turn.
//!
//! Run with `cargo run --release -p bellwether-model --example accuracy_regression`.
#![allow(clippy::print_stdout, reason = "an example whose purpose is to print")]

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use bellwether_des::random::shuffled;
use bellwether_des::statistics::Tally;
use bellwether_model::regression::validate::{
    Errors, Fit, by_group, cross_validate, folds, grid_search, support_vector,
};
use bellwether_model::regression::*;
use tables::cm_dare::{K80, P100, checkpoint_samples, normalised, step_samples};

/// Stops a fit where the authors' library does by default.
const TOLERANCE: f64 = 1e-3;
const SPLITS: u64 = 20;
const LEVEL: f64 = 0.95;

type Failure = Box<dyn std::error::Error>;

/// One data set: published features, published parameters, and samples for the choice.
struct Data {
    name: &'static str,
    rows: Vec<Vec<f64>>,
    targets: Vec<f64>,
    groups: Vec<String>,
    samples: Vec<Sample>,
    candidates: Vec<Candidate>,
    vectors: Vec<(&'static str, SupportVectorParameters)>,
    grid: (Vec<f64>, Vec<f64>),
    /// Published: name, random split (MAE in s, MAPE in %), network left out.
    published: [(&'static str, &'static str, &'static str); 3],
}

fn main() -> Result<(), Failure> {
    let data = [step_data("step time, K80", K80), step_data("step time, P100", P100), checkpoint_data()];
    println!("## Random splits: rows of one network in training and in test\n");
    println!(
        "| data | model | CV MAE (s) ± 2 sd | test MAE (s) | test MAPE (%), mean ± sd | published MAE / MAPE |"
    );
    println!("|---|---|---|---|---|---|");
    for one in &data {
        random_splits(one)?;
    }
    println!("\n## One network left out in turn\n");
    println!("| data | model | MAE (s) | MAPE (%) | median (%) | worst (%) | published, left out |");
    println!("|---|---|---|---|---|---|---|");
    let chosen: Vec<Vec<Chosen>> = data.iter().map(choices).collect::<Result<_, _>>()?;
    for (one, chosen) in data.iter().zip(&chosen) {
        left_out(one, chosen)?;
    }
    println!("\n## Intervals of {:.0} %, one network left out in turn\n", LEVEL * 100.0);
    println!("| data | interval | networks whose mean it holds | rows it holds | mean width / prediction |");
    println!("|---|---|---|---|---|");
    for (one, chosen) in data.iter().zip(&chosen) {
        intervals(one, chosen)?;
    }
    println!("\n## Grid search, 10 folds by row, seed 0\n");
    println!("| data | kernel | best C | best zone | CV MAE (s) |\n|---|---|---|---|---|");
    for one in &data {
        search(one)?;
    }
    Ok(())
}

fn step_data(name: &'static str, table: &str) -> Data {
    let (rows, targets) = normalised(table);
    let samples = step_samples(table);
    let published = match name {
        "step time, K80" => [
            ("least squares", "0.068 / 19.1", "-"),
            ("SVR polynomial", "0.041 / 9.96", "0.048 / 11.1 (8.1, 47)"),
            ("SVR radial", "0.031 / 9.07", "0.080 / 12.6 (7.0, 59)"),
        ],
        _ => [
            ("least squares", "0.031 / 22.3", "-"),
            ("SVR polynomial", "0.020 / 13.8", "0.028 / 17.1 (12.0, 61)"),
            ("SVR radial", "0.016 / 10.5", "0.038 / 15.0 (6.7, 83)"),
        ],
    };
    Data {
        name,
        rows,
        targets,
        groups: samples.iter().map(|sample| sample.group.clone()).collect(),
        samples,
        candidates: step_time_candidates(),
        vectors: vectors(100.0, 0.01),
        grid: (
            vec![10.0, 15.0, 20.0, 25.0, 45.0, 50.0, 100.0],
            (1..=10).map(|e| f64::from(e) / 100.0).collect(),
        ),
        published,
    }
}

fn checkpoint_data() -> Data {
    let samples = checkpoint_samples();
    Data {
        name: "checkpoint time",
        rows: samples.iter().map(|sample| sample.features[..1].to_vec()).collect(),
        targets: samples.iter().map(|sample| sample.target).collect(),
        groups: samples.iter().map(|sample| sample.group.clone()).collect(),
        samples,
        candidates: checkpoint_time_candidates(),
        vectors: vec![(
            "SVR radial",
            SupportVectorParameters {
                kernel: Kernel::Rbf { gamma: 1.0 },
                cost: 10.0,
                epsilon: 0.14,
                tolerance: TOLERANCE,
            },
        )],
        grid: (vec![1.0, 10.0, 100.0], vec![0.02, 0.08, 0.14, 0.2]),
        published: [
            ("least squares", "0.356 / 7.98", "- / 7.9"),
            ("SVR radial", "0.245 / 5.38", "- / 19.6"),
            ("", "", ""),
        ],
    }
}

fn vectors(cost: f64, epsilon: f64) -> Vec<(&'static str, SupportVectorParameters)> {
    let of = |kernel| SupportVectorParameters { kernel, cost, epsilon, tolerance: TOLERANCE };
    let square = Kernel::Polynomial { degree: 2, gamma: 1.0, offset: 1.0 };
    vec![("SVR polynomial", of(square)), ("SVR radial", of(Kernel::Rbf { gamma: 1.0 }))]
}

fn models(data: &Data) -> Vec<(&'static str, Fit<'static>)> {
    let line: Fit<'static> = Box::new(|rows, targets, asked| {
        let line = LeastSquares::fit(rows, targets)?;
        Ok(asked.iter().map(|row| line.predict(row)).collect())
    });
    let mut models: Vec<(&'static str, Fit<'static>)> = vec![("least squares", line)];
    for (name, parameters) in &data.vectors {
        models.push((name, support_vector(*parameters)));
    }
    models
}

fn published(data: &Data, model: &str) -> (&'static str, &'static str) {
    data.published.iter().find(|row| row.0 == model).map_or(("-", "-"), |row| (row.1, row.2))
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let tally: Tally = values.iter().copied().collect();
    (tally.mean(), tally.variance().sqrt())
}

/// The authors' protocol, over several shuffles: a fifth held out, ten folds of the rest.
fn random_splits(data: &Data) -> Result<(), Failure> {
    for (name, fit) in models(data) {
        let (mut fold_errors, mut absolute, mut relative) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..SPLITS {
            let order = shuffled(data.rows.len(), seed);
            let (test, train) = order.split_at(data.rows.len() / 5);
            if seed < 3 {
                let pick: Vec<Vec<f64>> = train.iter().map(|row| data.rows[*row].clone()).collect();
                let targets: Vec<f64> = train.iter().map(|row| data.targets[*row]).collect();
                let order: Vec<usize> = (0..train.len()).collect();
                for pairs in cross_validate(&pick, &targets, &folds(&order, 10), &fit)? {
                    fold_errors.extend(Errors::of(&pairs).map(|errors| errors.mean_absolute));
                }
            }
            let halves = [test.to_vec(), train.to_vec()];
            let pairs = cross_validate(&data.rows, &data.targets, &halves, &fit)?;
            let errors = Errors::of(&pairs[0]).ok_or("an empty test set")?;
            absolute.push(errors.mean_absolute);
            relative.push(100.0 * errors.mean_relative);
        }
        let ((cv, sd), (mae, _), (mape, spread)) =
            (moments(&fold_errors), moments(&absolute), moments(&relative));
        let (other, _) = published(data, name);
        println!(
            "| {} | {name} | {cv:.3} ± {:.3} | {mae:.3} | {mape:.1} ± {spread:.1} | {other} |",
            data.name,
            2.0 * sd
        );
    }
    Ok(())
}

fn left_out(data: &Data, choices: &[Chosen]) -> Result<(), Failure> {
    let groups = by_group(&data.groups);
    for (name, fit) in models(data) {
        let pairs = cross_validate(&data.rows, &data.targets, &groups, &fit)?.concat();
        print_left_out(data, name, &pairs)?;
    }
    if data.samples[0].features.len() == 3 {
        // Weights and graph apart, as the authors also fitted it.
        let files: Vec<Vec<f64>> = data.samples.iter().map(|s| s.features[1..].to_vec()).collect();
        let (_, line) = models(data).swap_remove(0);
        let pairs = cross_validate(&files, &data.targets, &groups, line)?.concat();
        print_left_out(data, "least squares of weights and graph", &pairs)?;
    }
    let (mut chosen, mut names) = (Vec::new(), Vec::new());
    for (rows, model) in groups.iter().zip(choices) {
        for row in rows {
            chosen.push((data.samples[*row].target, model.predict(&data.samples[*row].features)?));
        }
        let name = model.fitted.candidate.name.clone();
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    print_left_out(data, "chosen inside (nested)", &chosen)?;
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (name, count) in names {
        println!("| {} | - chosen {count} times: {name} | | | | | |", data.name);
    }
    Ok(())
}

/// The choice with each network left out in turn: none of its rows takes part.
fn choices(data: &Data) -> Result<Vec<Chosen>, Failure> {
    let without = |rows: &Vec<usize>| {
        let left_out = &data.groups[rows[0]];
        let others: Vec<Sample> = data.samples.iter().filter(|s| s.group != *left_out).cloned().collect();
        Ok(choose(&others, &data.candidates)?)
    };
    by_group(&data.groups).iter().map(without).collect()
}

fn print_left_out(data: &Data, name: &str, pairs: &[(f64, f64)]) -> Result<(), Failure> {
    let errors = Errors::of(pairs).ok_or("no pairs")?;
    let (_, other) = published(data, name);
    println!(
        "| {} | {name} | {:.3} | {:.1} | {:.1} | {:.1} | {other} |",
        data.name,
        errors.mean_absolute,
        100.0 * errors.mean_relative,
        100.0 * errors.median_relative,
        100.0 * errors.largest_relative
    );
    Ok(())
}

/// Shares of the left-out networks' means and rows that the intervals hold.
fn intervals(data: &Data, choices: &[Chosen]) -> Result<(), Failure> {
    let groups = by_group(&data.groups);
    let mut counts = [(0, 0, 0.0); 2];
    for (rows, model) in groups.iter().zip(choices) {
        let inside: Vec<usize> = (0..data.rows.len()).filter(|row| !rows.contains(row)).collect();
        let features: Vec<Vec<f64>> = inside.iter().map(|row| data.rows[*row].clone()).collect();
        let targets: Vec<f64> = inside.iter().map(|row| data.targets[*row]).collect();
        let line = LeastSquares::fit(&features, &targets)?;
        let row = &data.rows[rows[0]];
        let (low, high) = line.interval(row, 1.0, LEVEL);
        let (value, chosen_low, chosen_high) = model.interval(&data.samples[rows[0]].features, LEVEL)?;
        let mean = rows.iter().map(|row| data.targets[*row]).sum::<f64>() / rows.len() as f64;
        for (count, (low, high, value)) in
            counts.iter_mut().zip([(low, high, line.predict(row)), (chosen_low, chosen_high, value)])
        {
            count.0 += usize::from((low..=high).contains(&mean));
            count.1 += rows.iter().filter(|row| (low..=high).contains(&data.targets[**row])).count();
            count.2 += (high - low) / value / groups.len() as f64;
        }
    }
    for ((networks, rows, width), name) in
        counts.into_iter().zip(["least squares, Student", "chosen, left-out ratios"])
    {
        println!(
            "| {} | {name} | {networks} of {} | {rows} of {} | {width:.2} |",
            data.name,
            groups.len(),
            data.rows.len()
        );
    }
    Ok(())
}

fn search(data: &Data) -> Result<(), Failure> {
    let cut = folds(&shuffled(data.rows.len(), 0), 10);
    for (name, parameters) in &data.vectors {
        let kernel = [parameters.kernel];
        let grid = (kernel.as_slice(), data.grid.0.as_slice(), data.grid.1.as_slice());
        let (best, error) = grid_search(&data.rows, &data.targets, &cut, grid, TOLERANCE)?;
        println!("| {} | {name} | {} | {} | {error:.4} |", data.name, best.cost, best.epsilon);
    }
    Ok(())
}
