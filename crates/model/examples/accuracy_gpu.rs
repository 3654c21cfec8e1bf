//! Prints how well the slowdown of kernels that share a GPU is predicted: `cargo run --release -p bellwether-model
//! --example accuracy_gpu`.

#[path = "../tests/it/gpu_published/mod.rs"]
mod gpu_published;

use std::error::Error;
use std::io::{Write, stdout};

use gpu_published::mechanisms::{TrainingKernel, compare};
use gpu_published::{COLOCATED, ISOLATED, ROWS};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    contention(&mut out)?;
    mechanisms(&mut out)
}

/// How inference and training fare under three mechanisms, by the length of the training kernels.
fn mechanisms(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    writeln!(out, "\nTurnaround of a request, and time of training, in ms: time slices, MPS, priority.\n")?;
    writeln!(
        out,
        "| waves | bound by memory | runs ahead | turnaround | as published | training | as published |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for run_ahead in [false, true] {
        for memory in [false, true] {
            for waves in [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.3, 6.0] {
                let times = compare(TrainingKernel { waves, memory }, run_ahead);
                let cell = |times: [f64; 3]| times.map(|time| format!("{time:.1}")).join(", ");
                let ([a, b, c], [d, e, f]) = (times.turnaround_ms, times.training_ms);
                let (turnaround, training) = (cell(times.turnaround_ms), cell(times.training_ms));
                let (right, as_well) = (a < b && b < c, e < f && f < d);
                writeln!(
                    out,
                    "| {waves} | {memory} | {run_ahead} | {turnaround} | {right} | {training} | {as_well} |"
                )?;
            }
        }
    }
    Ok(())
}

/// The slowdown of a kernel beside another.
fn contention(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "Time of the second of two kernels in ms, printed and predicted (error in %). Fitted: its time alone,"
    )?;
    writeln!(
        out,
        "and its time apart from the first. Carried over: apart, with the parameter of the other two devices.\n"
    )?;
    writeln!(
        out,
        "| device | shared | alone | apart | fitted | carried over | together | predicted | no interference |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
    let (mut together, mut carried, mut blind) = (Vec::new(), Vec::new(), Vec::new());
    for row in &ROWS {
        let strength = row.strength();
        let apart = row.predict(ISOLATED, strength).0.1;
        let elsewhere = row.predict(ISOLATED, row.strength_elsewhere()).0.1;
        let shared = row.predict(COLOCATED, strength).0.1;
        let error = |predicted: f64, printed: f64| 100.0 * (predicted / printed - 1.0);
        let cell =
            |predicted: f64, printed: f64| format!("{predicted:.0} ({:+.0} %)", error(predicted, printed));
        let [alone, isolated, colocated] = [row.serial.1, row.isolated.1, row.colocated.1];
        writeln!(
            out,
            "| {} | {:?} | {alone:.0} | {isolated:.0} | {} | {} | {colocated:.0} | {} | {} |",
            row.device,
            row.class,
            cell(apart, isolated),
            cell(elsewhere, isolated),
            cell(shared, colocated),
            cell(alone, colocated)
        )?;
        together.push(error(shared, colocated).abs());
        carried.push(error(elsewhere, isolated).abs());
        blind.push(error(alone, colocated).abs());
    }
    writeln!(out, "\nAbsolute errors in %: mean, median, worst")?;
    for (name, errors) in
        [("together", &mut together), ("carried over", &mut carried), ("no interference", &mut blind)]
    {
        errors.sort_by(f64::total_cmp);
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let median = 0.5 * (errors[5] + errors[6]);
        writeln!(out, "{name:<16} {mean:>6.1} {median:>6.1} {:>6.1}", errors[11])?;
    }
    Ok(())
}
