//! How long a look ahead takes: 10,000 jobs that wait, on 1,000 nodes of 8 devices.
//!
//! `cargo run --release -p bellwether-sim --example outlook_speed [JOBS [POLICY...]]`
//!
//! Jobs of 1, 2, 4 and 8 devices, rigid and elastic, with exponential durations; 100 came in the last hour, and a third
//! of those that ended did so early. Each figure is the median of five looks, in milliseconds, with those of one of
//! their worlds, and the number of jobs whose median start was seen before the time was over.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::cluster::{ClusterView, Job, JobId, JobView, Node};
use bellwether_core::knowledge::Knowledge;
use bellwether_core::outlook::{Past, Present};
use bellwether_core::policy::Fault;
use bellwether_core::prediction::JobDescription;
use bellwether_des::Streams;
use bellwether_model::speedup::{Law, Speedup};
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::outlook::{Briefly, WORLDS, look};

const POLICIES: [&str; 7] = ["fifo", "fifo_skip", "srtf", "las", "las2d", "fair", "easy"];
const LOOKS: usize = 5;

/// Processor time that a look may take, as in the daemon: what it has not seen by then starts later.
const BUDGET: Duration = Duration::from_secs(2);

fn job(number: u32) -> (Arc<Job>, f64) {
    let mut stream = Streams::new(1).stream("job", u64::from(number));
    let devices = *stream.choice(&[1, 1, 2, 4, 8]);
    // Seconds on the devices that it asks for.
    let work = stream.exponential(3600.0);
    let is_elastic = stream.uniform() < 0.3;
    let description = JobDescription { name: format!("job-{number}"), model: "m".into(), batch: 64, devices };
    let mut job = Job::rigid(description, 0.0);
    if is_elastic {
        job.min_devices = 1;
    }
    (Arc::new(job), work)
}

/// All of them wait.
fn present(jobs: u32) -> Present {
    let nodes = vec![Node { device_type: 0, devices: 8, free: 8, up: true }; 1000];
    let mut view = ClusterView { device_types: vec!["gpu".into()], nodes, ..ClusterView::default() };
    let waiting = |number| {
        let (job, work) = job(number);
        (JobId(number), JobView::waiting(job, 0.0, Some(work)))
    };
    view.jobs = (0..jobs).map(waiting).collect();
    let arrivals = (0..100).map(|number| job(jobs + number)).collect();
    let part = |at: u32| if at.is_multiple_of(3) { f64::from(at) / 100.0 } else { 1.0 };
    let parts = (0..100).map(|at| ("m".to_owned(), part(at))).collect();
    let past = Past { arrivals, over_s: 3600.0, parts, ..Past::default() };
    Present { now_s: 60.0, view, remaining: Knowledge::Expected, past }
}

fn main() -> Result<(), Fault> {
    let jobs = std::env::args().nth(1).and_then(|jobs| jobs.parse().ok()).unwrap_or(10_000);
    let belief = Speedup::new(Law::Linear, BTreeMap::new()).expect("it is one");
    let present = present(jobs);
    let registry = Registry::built_in();
    println!(
        "{jobs} jobs, {WORLDS} worlds\n{:<12} {:>9} {:>12} {:>12}",
        "policy", "ms", "ms a world", "jobs seen"
    );
    let named: Vec<String> = std::env::args().skip(2).collect();
    let all = || POLICIES.map(String::from).to_vec();
    for name in if named.is_empty() { all() } else { named } {
        let name = name.as_str();
        let Ok(_) = registry.parse(name) else { continue };
        let (mut took, mut seen) = (BTreeMap::new(), 0);
        for turn in 0..LOOKS {
            let begun = Instant::now();
            let expected = look(&present, &belief, WORLDS, |world| {
                let mut policy = registry.parse(name).expect("it was there").1;
                {
                    let begun = Instant::now();
                    let is_over = || begun.elapsed() > BUDGET / WORLDS;
                    drive(policy.as_mut(), &mut Briefly { world, is_over }, &belief)
                }
            })?;
            let starts = expected.values().filter_map(|expected| expected.start);
            seen = starts.filter(|start| start.middle_s.is_finite()).count();
            took.insert((begun.elapsed(), turn), ());
        }
        let median = took.keys().nth(LOOKS / 2).map_or(0.0, |(took, _)| took.as_secs_f64() * 1e3);
        println!("{name:<12} {median:>9.1} {:>12.2} {seen:>12}", median / f64::from(WORLDS));
    }
    Ok(())
}
