//! Simulates a published trace of a cluster: `cargo run --release -p bellwether --example simulate_trace`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bellwether::policy::Registry;
use bellwether::predict::{Law, Speedup};
use bellwether::simulate::{Cluster, Knowledge, ReadOptions, Report, Scenario, report, simulate, trace};

/// Two months of a cluster at Microsoft, published with ElasticFlow; data/itp-traces/README.md has the source. The
/// format is recognised from the header.
const TRACE: &[u8] = include_bytes!("../../../data/itp-traces/cluster10.csv");

/// Eight machines with eight devices. They fail, and a run that loses one goes back to its last checkpoint.
const CLUSTER: &str = r#"
restart = "30s"
checkpoint = "10min"
[[nodes]]
count = 8
devices = 8
device = "v100"
mean_time_to_failure = "10d"
mean_time_to_repair = "4h"
"#;

/// The figures of some policies, on the same jobs and with the same failures.
pub(crate) fn compare() -> Result<Vec<(&'static str, Report)>, Box<dyn std::error::Error>> {
    let cluster = Cluster::from_file(CLUSTER, "cluster")?;
    let options = ReadOptions {
        device_types: &cluster.view.device_types,
        // The trace says how many devices each job had. Let those train on 1 to 16, as elastic jobs do ...
        elastic: Some((1, 16)),
        place: "cluster10.csv".into(),
    };
    let trace = trace::read(TRACE, None, &options)?;
    // ... and let a tenth of their work be such that more devices do not speed it up.
    let truth = Speedup::new(Law::Amdahl(0.1), cluster.device_speeds.clone())?;
    // A policy need not know the truth: these believe that speed is in proportion to devices, and guess how long jobs
    // take.
    let belief = Speedup::new(Law::Linear, cluster.device_speeds.clone())?;
    let scenario = Scenario {
        outages: cluster.outages.clone(),
        checkpoint_s: cluster.checkpoint_s,
        knowledge: "estimated:0.5".parse::<Knowledge>()?,
        seed: 1,
        ..Scenario::new(cluster.view.clone())
    };
    let registry = Registry::built_in();
    let mut reports = Vec::new();
    for name in ["fifo", "las", "srtf", "afs"] {
        let (_, mut policy) = registry.parse(name)?;
        let recording = simulate(policy.as_mut(), &trace.entries, &truth, &belief, &scenario)?;
        reports.push((name, report(&trace.entries, &recording, cluster.devices())));
    }
    Ok(reports)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, Report { avg_jct_s, p99_jct_s, utilisation, .. }) in compare()? {
        let (mean_h, slow_h) = (avg_jct_s / 3600.0, p99_jct_s / 3600.0);
        println!(
            "{name:<5} mean {mean_h:>5.1} h, 99 % within {slow_h:>6.1} h, {:>3.0} % used",
            100.0 * utilisation
        );
    }
    Ok(())
}
