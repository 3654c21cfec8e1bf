//! Prints how well the rest of public training curves is predicted from their beginning, as Markdown.
//!
//! `cargo run --release -p bellwether-model --example accuracy_convergence`

#![allow(clippy::print_stdout)]

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use bellwether_model::convergence::{CurveFit, Observation, steps_of_progress};
use tables::curves::{final_loss, first_reach, line_to, noise_scales, observations, smoothed};

/// Part of the curve that is fitted.
const OBSERVED: f64 = 0.4;

fn main() {
    curves();
    println!("## Later in the curves\n");
    println!(
        "Fitted on more of each curve; the error is that of the end loss. `above` counts forecasts above the last"
    );
    println!(
        "smoothed loss, `denied` the three losses of each curve that were passed (the last at its end) without being"
    );
    println!("known to be.\n");
    let pollux =
        tables::POLLUX.iter().flat_map(|job| job.curves.iter().map(|(_, table)| observations(job, table)));
    later("Pollux", &pollux.collect::<Vec<_>>());
    // One that jumps up at once has no end to predict.
    let recorded = tables::curves::recorded().into_iter().filter(|(name, _)| name != "digits-diverging");
    later("recorded runs", &recorded.map(|(_, points)| points).collect::<Vec<_>>());
    println!();
    batches();
}

/// Rows about longer parts of the curves.
fn later(name: &str, curves: &[Vec<Observation>]) {
    println!("| {name}: part seen | curves | error | last seen | within | breaks | above | denied |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for part in [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0] {
        let (mut ours, mut last) = (0.0, 0.0);
        let [mut count, mut within, mut breaks, mut above, mut denied] = [0; 5];
        for points in curves {
            let seen = &points[..(points.len() as f64 * part).round() as usize];
            let Ok(fit) = CurveFit::fit(seen, 0.0) else { continue };
            let forecast = fit.loss_at(points[points.len() - 1].progress + 0.1);
            let (measured, seen_last) = (final_loss(points), final_loss(seen));
            ours += (forecast.loss / measured - 1.0).abs();
            last += (seen_last / measured - 1.0).abs();
            count += 1;
            within += usize::from((forecast.interval.0..=forecast.interval.1).contains(&measured));
            breaks += usize::from(!fit.breaks().is_empty());
            above += usize::from(forecast.loss > seen_last);
            let known = |end: usize| {
                let target = final_loss(&seen[..end.max(1)]) * 1.001;
                fit.progress_to(target).is_some_and(|time| time.progress <= seen[seen.len() - 1].progress)
            };
            denied +=
                [seen.len() / 2, seen.len() * 3 / 4, seen.len()].iter().filter(|end| !known(**end)).count();
        }
        let [ours, last] = [ours, last].map(|sum| 100.0 * sum / count as f64);
        println!(
            "| {:.0} % | {count} | {ours:.1} % | {last:.1} % | {within} | {breaks} | {above} | {denied} |",
            100.0 * part
        );
    }
    println!();
}

/// Sums over all curves.
#[derive(Default)]
struct Score {
    ours: f64,
    last_seen: f64,
    covered: u32,
    count: u32,
    /// For the fit and the straight line: sizes of the logarithms of predicted over measured progress, how many, and
    /// how often there was no answer.
    times: [(f64, u32, u32); 2],
}

fn curves() {
    println!("## Loss curves\n");
    println!(
        "Fitted on the first 40 % of each curve. Targets are the smoothed losses (running median of 5) at 60 %,"
    );
    println!(
        "80 % and the end; `to` is predicted over measured progress, `line` continues the last half of the fitted part."
    );
    println!("Loss is what is missing to accuracy 1, or the error rate.\n");
    println!(
        "| curve | points | form | end loss | predicted | interval | last seen | to 60 % | line | to 80 % | line | to end | line |"
    );
    println!("|---|--:|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|");
    let mut score = Score::default();
    for job in &tables::POLLUX {
        for (batch, table) in job.curves {
            curve(&format!("{} {batch}", job.name), &observations(job, table), &mut score);
        }
    }
    let Score { ours, last_seen, covered, count, times } = score;
    let mean = |sum: f64| 100.0 * sum / f64::from(count);
    println!("\nEnd loss, mean absolute relative error over {count} curves: {:.1} % (last loss", mean(ours));
    println!("seen: {:.1} %); {covered} of {count} within the interval.", mean(last_seen));
    let [curve, line] = times.map(|(sum, answers, never)| {
        format!("{:.2} ({never} of {} without an answer)", (sum / f64::from(answers)).exp(), answers + never)
    });
    println!(
        "Progress to a target, typical factor off (exponential of the mean size of the logarithm): {curve};"
    );
    println!("straight line {line}.\n");
}

/// One row of the table.
fn curve(name: &str, points: &[Observation], score: &mut Score) {
    let seen = &points[..(points.len() as f64 * OBSERVED).round() as usize];
    let fit = match CurveFit::fit(seen, 0.0) {
        Ok(fit) => fit,
        Err(error) => {
            println!("| {name} | {} | {} | | | | | | | | | | |", seen.len(), error.what);
            return;
        }
    };
    let forecast = fit.loss_at(points[points.len() - 1].progress);
    let (measured, seen_last) = (final_loss(points), final_loss(seen));
    let within = (forecast.interval.0..=forecast.interval.1).contains(&measured);
    score.ours += (forecast.loss / measured - 1.0).abs();
    score.last_seen += (seen_last / measured - 1.0).abs();
    score.covered += u32::from(within);
    score.count += 1;
    let (low, high) = forecast.interval;
    print!("| {name} | {} | {:?} | {measured:.4} | {:.4} ", seen.len(), fit.curve().form, forecast.loss);
    print!("| {low:.4}..{high:.4}{} | {seen_last:.4}", if within { "" } else { " (missed)" });
    let smooth = smoothed(points);
    for part in [0.6, 0.8, 1.0] {
        let target = smooth[(part * (points.len() - 1) as f64) as usize].loss;
        let reached = first_reach(&smooth, target);
        let found = fit.progress_to(target).map(|time| time.progress);
        for ((sum, answers, never), answer) in score.times.iter_mut().zip([found, line_to(seen, target)]) {
            let Some(progress) = answer else {
                *never += 1;
                print!(" | never");
                continue;
            };
            *sum += (progress / reached).ln().abs();
            *answers += 1;
            print!(" | {:.2}", progress / reached);
        }
    }
    println!(" |");
}

fn batches() {
    println!("## Batch size\n");
    println!(
        "Steps to reach the smoothed loss that the curve of the initial batch has at 30 %, 50 % and 80 % of its"
    );
    println!(
        "progress: predicted from the noise scales measured in that curve alone, over measured in the curve of the"
    );
    println!(
        "batch. The other columns assume no loss of efficiency, and that a larger batch saves nothing.\n"
    );
    println!(
        "| job, batch | 30 % | perfect | no gain | 50 % | perfect | no gain | 80 % | perfect | no gain |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut sums = [0.0_f64; 3];
    let mut count = 0.0;
    for job in &tables::POLLUX {
        let initial = job.initial_batch as f64;
        let (_, base_table) = job.curves[0];
        let base = smoothed(&observations(job, base_table));
        let scales = noise_scales(job.initial_batch, &tables::curve(base_table));
        if base.len() < FEWEST_POINTS {
            println!("| {}: {} points, no curve to read | | | | | | | | | |", job.name, base.len());
            continue;
        }
        for (batch, table) in &job.curves[1..] {
            let curve = smoothed(&observations(job, table));
            let steps = tables::curve(table);
            print!("| {} {batch}", job.name);
            for part in [0.3, 0.5, 0.8] {
                let target = base[(part * (base.len() - 1) as f64) as usize].loss;
                let progress = first_reach(&base, target);
                let Some(at) = curve.iter().position(|point| point.loss <= target) else {
                    print!(" | not reached | |");
                    continue;
                };
                let measured = steps[at][1];
                let ratio = *batch as f64 / initial;
                let found =
                    steps_of_progress(&scales, initial, *batch as f64, progress).expect("scales are given");
                let predicted = [found, progress / ratio, progress].map(|steps| steps / measured);
                for (sum, ratio) in sums.iter_mut().zip(predicted) {
                    *sum += ratio.ln().abs();
                }
                count += 1.0;
                print!(" | {:.2} | {:.2} | {:.2}", predicted[0], predicted[1], predicted[2]);
            }
            println!(" |");
        }
    }
    let [ours, perfect, none] = sums.map(|sum| (sum / count).exp());
    println!(
        "\nTypical factor off (exponential of the mean size of the logarithm): {ours:.2} from the noise scale, {perfect:.2} under"
    );
    println!("perfect efficiency, {none:.2} under no gain.");
}

/// Fewest points of a curve from which a target is read.
const FEWEST_POINTS: usize = 5;
