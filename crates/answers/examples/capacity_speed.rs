//! How fast capacity planning is: CPU seconds of whole answers, and how many candidates they simulate.
//!
//! `cargo run --release -p bellwether-answers --example capacity_speed`
//!
//! The catalogue has kinds of machines of four and eight devices, three types in several regions, each on demand and
//! transient with a mean life of hours; prices differ. Workloads are drawn: two thirds of the jobs ask for one device,
//! others are elastic or wide. Seconds are those of the whole process, all threads together. The rows with `all`
//! simulate every candidate to its end, and their answer must be the same.

#![allow(clippy::print_stdout)]

use std::fs;
use std::time::Instant;

use bellwether_answers::capacity::{Answer, Request};
use bellwether_answers::options::Options;
use serde_json::{Value, json};

const DEVICES: [f64; 3] = [1.0, 1.9, 3.2];

/// This many kinds of machines.
fn prices(kinds: usize) -> String {
    let machine = |number: usize| {
        let (device, region) = (number % DEVICES.len(), number / DEVICES.len());
        let (speed, devices) = (DEVICES[device], if number.is_multiple_of(2) { 4 } else { 8 });
        // More expensive by region, up to a fifth; a larger machine is a little cheaper by the device.
        let price = f64::from(devices) * (0.2 + 0.6 * speed) * (1.0 + 0.05 * region as f64);
        let price = if devices == 8 { 0.96 * price } else { price };
        format!(
            "[[machine]]\nname = \"m{number}\"\ndevice = \"d{device}\"\nregion = \"r{region}\"\ndevices = {devices}\n\
             speed = {speed:?}\nprice = \"${price}/h\"\ntransient_price = \"${}/h\"\n\
             revocations = \"exponential:{}h,24h\"\nprovision = \"80s\"\njoin = \"80s\"\n",
            0.35 * price,
            4 + 3 * region + device,
        )
    };
    (0..kinds).map(machine).collect()
}

/// A generator of this many jobs.
fn workload(jobs: usize) -> String {
    format!(
        "jobs = {jobs}\n[arrivals]\nkind = \"poisson\"\nper_hour = 40\n\
         [[class]]\nshare = 0.68\ngpus = 1\nduration = {{ kind = \"lognormal\", mean = \"1h\", variation = 1.2 }}\n\
         slack = {{ kind = \"uniform\", least = 1.5, most = 5 }}\n\
         [[class]]\nshare = 0.27\ngpus = 4\nmin_gpu = 1\nmax_gpu = 8\n\
         duration = {{ kind = \"lognormal\", mean = \"90min\", variation = 1 }}\n\
         [[class]]\nshare = 0.05\ngpus = 8\nduration = {{ kind = \"lognormal\", mean = \"2h\", variation = 0.5 }}\n"
    )
}

/// CPU seconds of this process, or else seconds since `start`.
fn cpu_s(start: Instant) -> f64 {
    let text = fs::read_to_string("/proc/self/stat").ok();
    let ticks = text.and_then(|text| {
        let fields = text.rsplit_once(')')?.1.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut fields = fields.split(' ').skip(11);
        Some(fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?)
    });
    ticks.map_or_else(|| start.elapsed().as_secs_f64(), |ticks| ticks / 100.0)
}

fn ask(folder: &std::path::Path, kinds: usize, jobs: usize, more: &Value) -> (Answer, f64) {
    fs::write(folder.join("prices.toml"), prices(kinds)).expect("prices");
    fs::write(folder.join("workload.toml"), workload(jobs)).expect("a workload");
    let mut options = json!({
        "workload": folder.join("workload.toml"),
        "catalog": folder.join("prices.toml"),
        "truth": "power:0.8",
        "restart": "30s",
        "transient": true,
    });
    let more = more.as_object().into_iter().flatten();
    more.for_each(|(name, value)| options[name] = value.clone());
    let request = Request::of(Options::read(&options.to_string()).expect("options")).expect("a request");
    let start = Instant::now();
    let begin_s = cpu_s(start);
    let answer = request.answer(&mut |_| {}, &mut |_| {}).expect("an answer");
    (answer, cpu_s(start) - begin_s)
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    println!(
        "{:<52} {:>5} {:>5} {:>10} {:>9} {:>9} {:>9} {:>7}  choice",
        "objectives", "jobs", "runs", "candidates", "simulated", "cut short", "refused", "CPU s"
    );
    let large =
        |objective: Value, runs: u64| json!({ "objective": objective, "runs": runs, "max_machines": 48 });
    let small = |objective: Value, all: bool| json!({ "objective": objective, "runs": 1, "max_machines": 24, "exhaustive": all });
    let p95 = || json!(["p95 completion < 5h"]);
    let cases = [
        ("p95 completion < 5h", 12, 1000, large(p95(), 1)),
        ("p95 completion < 5h, five runs", 12, 1000, large(p95(), 5)),
        ("mean wait < 10min", 12, 1000, large(json!(["mean wait < 10min"]), 1)),
        ("p99 slowdown < 3", 12, 1000, large(json!(["p99 slowdown < 3"]), 1)),
        (
            "deadlines >= 95%, mean wait < 1h",
            12,
            1000,
            large(json!(["deadlines >= 95%", "mean wait < 1h"]), 1),
        ),
        ("p95 completion < 20min: none holds", 12, 1000, large(json!(["p95 completion < 20min"]), 1)),
        ("p95 completion < 5h", 12, 4000, large(p95(), 1)),
        ("p95 completion < 5h", 3, 400, small(p95(), false)),
        ("p95 completion < 5h: all", 3, 400, small(p95(), true)),
        ("mean wait < 10min", 3, 400, small(json!(["mean wait < 10min"]), false)),
        ("mean wait < 10min: all", 3, 400, small(json!(["mean wait < 10min"]), true)),
    ];
    for (name, kinds, jobs, more) in cases {
        let (answer, took_s) = ask(folder.path(), kinds, jobs, &more);
        let counts = answer.counts;
        let choice = answer.choice.map_or_else(
            || format!("none; {}", answer.relaxations.first().map_or("", |one| one.say.as_str())),
            |choice| {
                let row = &answer.candidates[choice];
                format!("{} under {}, ${:.2}", row.cluster, row.policy, row.cost_dollars)
            },
        );
        println!(
            "{name:<52} {jobs:>5} {:>5} {:>10} {:>9} {:>9} {:>9} {took_s:>7.2}  {choice}",
            answer.runs, counts.candidates, counts.measured, counts.cut_short, counts.refused,
        );
    }
}
