//! Jobs of unequal length under a policy: the same decisions and nearly the same times as in the simulator.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::stage::{Stage, same_digests, synthetic};
use crate::failure::Failure;
use crate::programs::bellwether;
use crate::report::{Report, Row};

/// The largest gap between the mean completion times that is good enough.
const GAP: f64 = 0.1;

/// Steps of each job, in turn, and seconds from one submission to the next, for a length of 1.
const STEPS: [u64; 5] = [150, 40, 90, 60, 120];
const BETWEEN_S: [f64; 4] = [0.7, 1.3, 0.4, 1.9];

/// Milliseconds of a virtual node.
const NODE_MS: f64 = 5.0;

pub(super) fn measure(report: &mut Report, policy: &str, count: u64, length: u64) -> Result<(), Failure> {
    let stage = Stage::start(policy)?;
    let mut described = Vec::new();
    for number in 0..count {
        let job = synthetic(number, length * STEPS[number as usize % STEPS.len()], NODE_MS)?;
        let name = format!("bench-{number}");
        // A policy that deals out fixed numbers gets jobs of two sizes.
        let workers = if policy.starts_with("fifo") { ["2", "1"][number as usize % 2] } else { "1..4" };
        stage.submit(&name, &job, workers)?;
        described.push((name, job));
        std::thread::sleep(Duration::from_secs_f64(
            length as f64 * BETWEEN_S[number as usize % BETWEEN_S.len()],
        ));
    }
    let jobs = stage.wait_for_the_end()?;
    let same = same_digests(&jobs, &described)?;
    let replay = replay(&stage)?;
    let number = |path: &str| replay.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let gap = number("/mean_gap");
    let allocations = (number("/allocations/measured"), number("/allocations/simulated"));
    let row = Row::new(policy)
        .with("jobs", count)
        .with("digests_equal", same)
        .with("decisions", number("/decisions/all"))
        .with("decided_again_the_same", number("/decisions/same"))
        .with("allocations", allocations.0)
        .with("simulated_allocations", allocations.1)
        .with("same_allocations", number("/allocations/same"))
        .with("mean_completion_s", number("/mean_measured_s"))
        .with("simulated_s", number("/mean_simulated_s"))
        .with("gap", gap);
    report.row(row);
    report.bar(format!("{policy}: digests equal"), same as f64 / count as f64, 1.0, same == count);
    let again = number("/decisions/same") / number("/decisions/all");
    report.bar(format!("{policy}: decisions the same on the recorded events"), again, 1.0, again >= 1.0);
    report.bar(format!("{policy}: gap of the mean completion time"), gap.abs(), GAP, gap.abs() <= GAP);
    Ok(())
}

/// What `simulate --replay` says of the stage's ledger.
fn replay(stage: &Stage) -> Result<Value, Failure> {
    let ledger = bellwether_serve::daemon::ledger_file(&stage.path());
    let mut command = bellwether()?;
    command.args(["simulate", "--format", "json", "--replay"]).arg(ledger);
    let output = command.stdout(Stdio::piped()).output().map_err(|e| Failure::at("simulate --replay", e))?;
    serde_json::from_slice(&output.stdout).map_err(|e| Failure::at("simulate --replay", e))
}
