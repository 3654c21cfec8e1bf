//! Prints how well it is foreseen what jobs lose that share a device: `cargo run --release -p bellwether-model
//! --example accuracy_colocation`.

#[path = "../tests/it/tables/mod.rs"]
mod tables;

use std::error::Error;
use std::io::{Write, stdout};

use tables::colocation::{
    DEVICES, Errors, Measured, Rooms, Rule, by_model, by_pair, measured, rooms_by_model, rooms_by_pair,
};

const SIMPLE: [(&str, Rule); 3] = [
    ("no interference", Rule::NoInterference),
    ("mean slowdown", Rule::Mean),
    ("additive effects", Rule::Additive),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    let devices: Vec<(&str, Measured)> = DEVICES.iter().map(|&device| (device, measured(device))).collect();
    writeln!(out, "Pairs of jobs on one device, and what they lost:\n")?;
    writeln!(out, "| device | jobs | pairs | without room | slowdown: median | 95th percentile | largest |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (device, measured) in &devices {
        let shares = measured.pairs.iter().filter_map(|pair| pair.shares).flatten();
        let slowdowns = Errors(vec![shares.map(|share| 1.0 / share).collect()]);
        let none = measured.pairs.iter().filter(|pair| pair.shares.is_none()).count();
        let [median, high, most] = [0.5, 0.95, 1.0].map(|part| slowdowns.quantile(part));
        let (jobs, pairs) = (measured.kinds.len(), measured.pairs.len());
        writeln!(out, "| {device} | {jobs} | {pairs} | {none} | {median:.2} | {high:.2} | {most:.1} |")?;
    }
    writeln!(out, "\nHeld-out pairs (10 parts), relative error of the slowdown in %:\n")?;
    head(&mut out)?;
    for (device, measured) in &devices {
        rows(&mut out, device, |rule| by_pair(measured, rule))?;
    }
    for probes in [0, 1, 3] {
        writeln!(out, "\nHeld-out models, after {probes} probes of each of their jobs:\n")?;
        head(&mut out)?;
        for (device, measured) in &devices {
            rows(&mut out, device, |rule| by_model(measured, rule, probes))?;
        }
    }
    writeln!(out, "\nWhether there is room:\n")?;
    writeln!(
        out,
        "| device | held out | right in % | all have room: right in % | no room, foreseen | wrongly refused |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (device, measured) in &devices {
        room(&mut out, device, "pairs", &rooms_by_pair(measured))?;
        for probes in [0, 3] {
            room(&mut out, device, &format!("models, {probes} probes"), &rooms_by_model(measured, probes))?;
        }
    }
    Ok(())
}

fn head(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "| device | rule | mean (95 % interval) | median | 95th percentile | the model is better in |"
    )?;
    Ok(writeln!(out, "|---|---|---|---|---|---|")?)
}

fn rows(out: &mut impl Write, device: &str, errors: impl Fn(Rule) -> Errors) -> Result<(), Box<dyn Error>> {
    let model = errors(Rule::Demands(3));
    for (name, rule) in SIMPLE {
        let simple = errors(rule);
        let better = format!("{:.1} % of resamples", 100.0 * model.beats(&simple));
        row(out, device, name, &simple, &better)?;
    }
    for (name, resources) in [("demands of one resource", 1), ("demands of two", 2)] {
        row(out, device, name, &errors(Rule::Demands(resources)), "")?;
    }
    row(out, device, "**demands of three**", &model, "")
}

fn row(
    out: &mut impl Write,
    device: &str,
    name: &str,
    errors: &Errors,
    better: &str,
) -> Result<(), Box<dyn Error>> {
    let (low, high) = errors.interval();
    let [mean, median, most] =
        [errors.mean(), errors.quantile(0.5), errors.quantile(0.95)].map(|x| 100.0 * x);
    let (low, high) = (100.0 * low, 100.0 * high);
    Ok(writeln!(
        out,
        "| {device} | {name} | {mean:.1} ({low:.1}–{high:.1}) | {median:.1} | {most:.1} | {better} |"
    )?)
}

fn room(out: &mut impl Write, device: &str, held: &str, rooms: &Rooms) -> Result<(), Box<dyn Error>> {
    let (right, base) = (100.0 * rooms.accuracy(), 100.0 * rooms.base_rate());
    let Rooms { none, none_foreseen, wrongly_refused, .. } = rooms;
    Ok(writeln!(
        out,
        "| {device} | {held} | {right:.1} | {base:.1} | {none_foreseen} of {none} | {wrongly_refused} |"
    )?)
}
