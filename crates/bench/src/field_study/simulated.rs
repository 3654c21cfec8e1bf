//! The same traces under every policy, which believes this or that of the jobs' speeds.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::kinds::Workload;
use super::measured::Measured;
use super::{FieldStudyArguments, said, said_json};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::programs::bellwether;
use crate::report::{Report, Row};
use crate::statistics::{largest, mean, smallest};

/// The largest gap between the mean completion times with profiles and with the truth.
const GAP: f64 = 0.05;

/// What a first start and a restart cost.
const COST: &str = "2s";

/// Names of the beliefs: what was profiled, the truth, "as many times faster as there are workers", and "no faster".
const BELIEFS: [&str; 4] = ["profile", "truth", "linear", "none"];

/// How the command is told of a belief.
pub(super) fn belief(measured: &Measured, name: &str) -> String {
    match name {
        "profile" => format!("profiles:{}", measured.profiles().display()),
        "truth" => format!("fitted:{}", measured.fitted().display()),
        "none" => "power:0".into(),
        other => other.into(),
    }
}

/// Mean completion times: by belief, by policy, by trace.
type Times = Vec<Vec<Vec<f64>>>;

pub(super) fn measure(
    report: &mut Report,
    measured: &Measured,
    arguments: &FieldStudyArguments,
    printer: &Printer,
) -> Result<(), Failure> {
    let FieldStudyArguments { jobs, slots, load, .. } = *arguments;
    let workload = Workload { jobs, slots, load, mean_s: 300.0 };
    let traces = (1..=arguments.seeds)
        .map(|seed| trace(measured, &workload, seed))
        .collect::<Result<Vec<_>, Failure>>()?;
    for early in [0.0, 0.3] {
        printer.note(format_args!("{} traces, {early} of the jobs end early", traces.len()));
        let mut times: Times = vec![vec![Vec::new(); arguments.policies.len()]; BELIEFS.len()];
        for (believed, times) in BELIEFS.iter().zip(&mut times) {
            for trace in &traces {
                let answers = simulate(measured, arguments, trace, &belief(measured, believed), early)?;
                for (times, answer) in times.iter_mut().zip(&answers) {
                    times.push(complete(answer, jobs)?);
                }
            }
        }
        rows(report, arguments, early, &times);
    }
    Ok(())
}

/// Draws a trace.
pub(super) fn trace(measured: &Measured, workload: &Workload, seed: u64) -> Result<PathBuf, Failure> {
    let name = format!("{}-jobs-{seed}", workload.jobs);
    let generator = measured.folder.path().join(format!("{name}.toml"));
    workload.write(&generator, &measured.alone)?;
    let trace = measured.folder.path().join(format!("{name}.csv"));
    let mut command = bellwether()?;
    command.args(["trace", "generate"]).arg(generator).args(["--seed", &seed.to_string(), "-o"]);
    said(command.arg(&trace))?;
    Ok(trace)
}

fn simulate(
    measured: &Measured,
    arguments: &FieldStudyArguments,
    trace: &Path,
    belief: &str,
    early: f64,
) -> Result<Vec<Value>, Failure> {
    let mut command = bellwether()?;
    command.args(["simulate", "--format", "json", "--cluster", &format!("{}x1", arguments.slots), "--trace"]);
    command.arg(trace).args(["--truth", &self::belief(measured, "truth"), "--belief", belief]);
    // The declared work, in all cases: with the exact one a policy would see early ends before they come.
    command.args(["--remaining", "nominal", "--start", COST, "--restart", COST]);
    if early > 0.0 {
        command.args(["--early", &early.to_string()]);
    }
    let answers = said_json(command.args(["--policy", &arguments.policies.join(",")]))?;
    Ok(answers.as_array().cloned().unwrap_or_default())
}

/// The mean completion time of a simulation in which all jobs ended.
fn complete(answer: &Value, jobs: u32) -> Result<f64, Failure> {
    let policy = answer["policy"].as_str().unwrap_or_default();
    if answer["finished"].as_u64() != Some(jobs.into()) {
        return Err(Failure::at(policy, format!("{} of {jobs} jobs ended", answer["finished"])));
    }
    answer["avg_jct_s"].as_f64().ok_or_else(|| Failure::at(policy, "no mean completion time"))
}

fn rows(report: &mut Report, arguments: &FieldStudyArguments, early: f64, times: &Times) {
    for (index, policy) in arguments.policies.iter().enumerate() {
        let [profile, truth, linear, none] =
            [0, 1, 2, 3].map(|belief: usize| times[belief][index].as_slice());
        let gap = mean(profile) / mean(truth) - 1.0;
        let each = |other: &[f64]| -> Vec<f64> {
            other.iter().zip(truth).map(|(other, truth)| other / truth - 1.0).collect()
        };
        let gaps = each(profile);
        let case = if early > 0.0 { format!("{policy}, early ends") } else { policy.clone() };
        report.row(
            Row::new(&case)
                .with("profile_s", mean(profile))
                .with("truth_s", mean(truth))
                .with("linear_s", mean(linear))
                .with("none_s", mean(none))
                .with("gap_profile", gap)
                .with("gap_least", smallest(&gaps))
                .with("gap_most", largest(&gaps))
                .with("gap_linear", mean(linear) / mean(truth) - 1.0)
                .with("gap_none", mean(none) / mean(truth) - 1.0)
                .samples("traces_profile_s", profile)
                .samples("traces_truth_s", truth)
                .samples("traces_linear_s", linear)
                .samples("traces_none_s", none),
        );
        report.at_most(format!("{case}: gap between profile and truth"), "ratio", gap.abs(), GAP);
    }
}
