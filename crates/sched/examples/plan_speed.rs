//! How fast the planner is: seconds of whole plans, and what they look at.
//!
//! `cargo run --release -p bellwether-sched --example plan_speed`
//!
//! Catalogues hold kinds of machines with one device, of five types in eight regions, each on demand and transient with
//! a limit of 24 h; their prices and lifetimes differ. The job has 64 virtual nodes of 0.1 s that share a batch, or a
//! batch for each worker, and 100,000 steps. `searched` are configurations computed in closed form, `simulated` those
//! of them with transient servers that were run 1,000 times. Seconds are those of one thread's CPU time, where the
//! system tells it (Linux), the mean of three plans.

#![allow(clippy::print_stdout)]

use std::fs;
use std::time::Instant;

use bellwether_core::prediction::Link;
use bellwether_core::profile::Profile;
use bellwether_model::predict::ProfileModel;
use bellwether_sched::plan::{Catalogue, Question, RUNS, plan};

const NODE_S: f64 = 0.1;
const BATCH: u64 = 4096;
const DEVICES: [f64; 5] = [1.0, 0.6, 2.6, 3.2, 5.0];
const REGIONS: usize = 8;
const PLANS: u32 = 3;

fn profile(nodes: usize) -> Profile {
    let after = |n: usize| if n > 0 { format!("[{}]", n - 1) } else { "[]".to_owned() };
    let compute = |n: usize| format!(r#"{{"name":"{n}","kind":"compute","after":{}}},"#, after(n));
    let operations: String = (0..nodes).map(compute).collect();
    let durations = format!("{NODE_S},").repeat(nodes);
    let (last, step_s) = (nodes - 1, NODE_S * nodes as f64 + 0.001);
    let text = format!(
        r#"{{"version":1,"job":"bench","source":"by hand","device":"d0","batch":{BATCH},"virtual_nodes":{nodes},
        "parameter_bytes":8000000,"parts":[{{"name":"all","bytes":8000000}}],"operations":[{operations}
        {{"name":"send","kind":{{"upload":0}},"after":[{last}]}},{{"name":"update","kind":{{"update":0}},"after":[{nodes}]}}],
        "steps":[{{"step_s":{step_s},"operations_s":[{durations}0.0,0.001]}}]}}"#
    );
    Profile::read(&text, "bench").expect("a profile")
}

/// This many kinds of machines.
fn catalogue(kinds: usize) -> Catalogue {
    let machine = |number: usize| {
        let (device, region) = (number / REGIONS % DEVICES.len(), number % REGIONS);
        let speed = DEVICES[device];
        // More expensive by region, up to a tenth.
        let price = (0.3 + 0.6 * speed) * (1.0 + 0.1 * region as f64 / REGIONS as f64);
        format!(
            "[[machine]]\nname = \"m{number}\"\ndevice = \"d{device}\"\nregion = \"r{region}\"\nspeed = {speed}\n\
             price = \"${price}/h\"\ntransient_price = \"${}/h\"\nrevocations = \"exponential:{}h,24h\"\n\
             provision = \"80s\"\njoin = \"80s\"\n",
            0.35 * price,
            4 + 3 * region + device,
        )
    };
    let text: String = (0..kinds).map(machine).collect();
    Catalogue::read(&text, "bench", &|_| unreachable!("no file is named")).expect("a catalogue")
}

/// CPU seconds of this thread, or else seconds since `start`.
fn cpu_s(start: Instant) -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

fn main() {
    println!(
        "{:<34} {:>5} {:>9} {:>9} {:>7} {:>8}  choice",
        "question", "kinds", "searched", "simulated", "front", "CPU s"
    );
    for (kinds, nodes) in [(8, 64), (24, 64), (24, 1), (40, 64), (40, 1)] {
        let catalogue = catalogue(kinds);
        let devices = catalogue.devices();
        let model = ProfileModel::new(profile(nodes)).expect("a model");
        let model = devices.iter().fold(model, |model, (device, speed)| {
            model.with_device(device, speed.expect("each has one")).expect("a speed")
        });
        let job = model.job();
        let base = Question {
            job: &job,
            virtual_nodes: nodes as u32,
            batch: BATCH,
            samples: 1e5 * BATCH as f64,
            link: Some(Link { bandwidth_bytes_per_s: 1.25e9, latency_s: 1e-4 }),
            checkpoint_s: 5.0,
            deadline_s: None,
            budget_dollars: None,
            confidence: 0.95,
            transient: true,
            max_workers: 64,
            regions: &[],
            ways: &[],
            nodes_per_update: 1,
            staleness: None,
            seed: 1,
            runs: RUNS,
        };
        let own = if nodes == 1 { "own batches" } else { "one batch" };
        // Work that takes 64 workers about the same time.
        let hours = if nodes == 1 { 0.5 } else { 8.0 };
        let questions = [
            ("no wish", base.clone()),
            ("deadline", Question { deadline_s: Some(hours * 3600.0), ..base.clone() }),
            (
                "budget",
                Question { budget_dollars: Some(if nodes == 1 { 4.0 } else { 90.0 }), ..base.clone() },
            ),
            ("nothing fits", Question { deadline_s: Some(600.0), budget_dollars: Some(0.1), ..base.clone() }),
        ];
        for (name, question) in questions {
            let start = Instant::now();
            let begin_s = cpu_s(start);
            for _ in 1..PLANS {
                plan(&question, &catalogue, &model).expect("a plan");
            }
            let found = plan(&question, &catalogue, &model).expect("a plan");
            let took_s = (cpu_s(start) - begin_s) / f64::from(PLANS);
            let choice = found.chosen().map_or_else(|| "none".to_owned(), |chosen| chosen.words());
            println!(
                "{:<34} {kinds:>5} {:>9} {:>9} {:>7} {took_s:>8.3}  {choice}",
                format!("{name}, {own}"),
                found.searched,
                found.simulated,
                found.candidates.len(),
            );
        }
    }
}
