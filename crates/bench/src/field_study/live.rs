//! A part of the study with real jobs under a daemon, beside the simulation of the same jobs.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bellwether_serve::snapshot::Phase;
use serde_json::Value;

use super::kinds::{KINDS, Kind, Workload};
use super::measured::Measured;
use super::simulated::{belief, trace};
use super::{FieldStudyArguments, said, said_json};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::programs::bellwether;
use crate::report::{Report, Row};
use crate::serve::stage::Stage;
use crate::statistics::load_average;

/// Slots of the daemon.
const SLOTS: u32 = 8;

/// How long a job takes with one worker, on average: short, but longer than its start.
const MEAN_S: f64 = 25.0;

pub(super) fn measure(
    report: &mut Report,
    measured: &Measured,
    arguments: &FieldStudyArguments,
    printer: &Printer,
) -> Result<(), Failure> {
    let workload = Workload { jobs: arguments.live_jobs, slots: SLOTS, load: arguments.load, mean_s: MEAN_S };
    let jobs = Arrival::read(&trace(measured, &workload, 1)?)?;
    for policy in &arguments.live_policies {
        printer.note(format_args!("{policy}: {} real jobs on {SLOTS} slots", jobs.len()));
        report.row(live(measured, policy, &jobs)?);
    }
    Ok(())
}

/// A job of the trace.
struct Arrival {
    line: String,
    time_s: f64,
    kind: &'static Kind,
    steps: u64,
}

/// Columns of a drawn trace that change here.
const HEADER: &str = "job_id,submit_time,num_gpu,duration,model,batch,min_gpu,max_gpu,work,";
const SUBMIT_TIME: usize = 1;
const MODEL: usize = 4;
const WORK: usize = 8;

impl Arrival {
    fn read(trace: &Path) -> Result<Vec<Arrival>, Failure> {
        let wrong = |line: &str| Failure::at("the drawn trace", format!("is not understood: {line}"));
        let text = std::fs::read_to_string(trace).map_err(|e| Failure::at("the drawn trace", e))?;
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        if !header.starts_with(HEADER) {
            return Err(wrong(header));
        }
        lines.map(|line| Arrival::of(line).ok_or_else(|| wrong(line))).collect()
    }

    fn of(line: &str) -> Option<Arrival> {
        let fields: Vec<&str> = line.split(',').collect();
        let kind = KINDS.iter().find(|kind| kind.name == fields[MODEL])?;
        let work: f64 = fields.get(WORK)?.parse().ok()?;
        let steps = (work / f64::from(kind.batch)).ceil().max(1.0) as u64;
        Some(Arrival { line: line.into(), time_s: fields[SUBMIT_TIME].parse().ok()?, kind, steps })
    }

    /// The job as it was really submitted.
    fn written(&self, submitted_s: f64) -> String {
        let mut fields: Vec<String> = self.line.split(',').map(String::from).collect();
        fields[SUBMIT_TIME] = submitted_s.to_string();
        fields[WORK] = (self.steps * u64::from(self.kind.batch)).to_string();
        fields.join(",")
    }
}

fn live(measured: &Measured, policy: &str, jobs: &[Arrival]) -> Result<Row, Failure> {
    let load_before = load_average().map(|load| load[0]);
    let stage = Stage::start_with(policy, SLOTS)?;
    let began = Instant::now();
    for (number, job) in jobs.iter().enumerate() {
        std::thread::sleep(Duration::from_secs_f64(job.time_s).saturating_sub(began.elapsed()));
        submit(measured, &stage, number, job)?;
    }
    let ended = stage.wait_for_the_end()?;
    let first_s = ended.iter().map(|job| job.submitted_s).fold(f64::INFINITY, f64::min);
    let mut text = format!("{HEADER}protocol,servers,nodes_per_update,switch_at\n");
    for (number, job) in jobs.iter().enumerate() {
        let name = format!("job-{number}");
        let state = ended.iter().find(|state| state.name == name);
        let state = state.ok_or_else(|| Failure::at(&*name, "the daemon does not know it"))?;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", job.written(state.submitted_s - first_s));
    }
    let trace = measured.folder.write(&format!("live-{policy}.csv"), text)?;
    let ledger = bellwether_serve::daemon::ledger_file(&stage.path());
    let mut command = bellwether()?;
    let replay = said_json(command.args(["simulate", "--format", "json", "--replay"]).arg(ledger))?;
    let number = |path: &str| replay.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let (measured_s, costs) = (number("/mean_measured_s"), [number("/start_s"), number("/restart_s")]);
    let simulated = |believed| simulate(measured, policy, &trace, believed, costs);
    let (profile_s, truth_s) = (simulated("profile")?, simulated("truth")?);
    let finished = ended.iter().filter(|job| job.state == Phase::Finished).count();
    Ok(Row::new(format!("{policy}, live"))
        .with("jobs", jobs.len())
        .with("finished", finished)
        .with("failures", ended.iter().map(|job| job.failures).sum::<u32>())
        .with("measured_s", measured_s)
        .with("simulated_profile_s", profile_s)
        .with("gap_profile", profile_s / measured_s - 1.0)
        .with("simulated_truth_s", truth_s)
        .with("gap_truth", truth_s / measured_s - 1.0)
        .with("replayed_s", number("/mean_simulated_s"))
        .with("start_s", costs[0])
        .with("restart_s", costs[1])
        .with("decisions", number("/decisions/all"))
        .with("decided_again_the_same", number("/decisions/same"))
        .with("load_average_before", load_before)
        .with("load_average_after", load_average().map(|load| load[0])))
}

/// Submits a job as a person would.
fn submit(measured: &Measured, stage: &Stage, number: usize, job: &Arrival) -> Result<(), Failure> {
    let mut command = bellwether()?;
    command.arg("submit").arg(measured.job(job.kind.name)).arg("--state-dir").arg(stage.path());
    command.args(["--name", &format!("job-{number}"), "--steps", &job.steps.to_string()]);
    command.args(["--min", "1", "--max", &job.kind.most.to_string(), "--profile"]);
    said(command.arg(measured.profile(job.kind.name))).map(drop)
}

/// The mean completion time of the same jobs in the simulator.
fn simulate(
    measured: &Measured,
    policy: &str,
    trace: &Path,
    believed: &str,
    [start_s, restart_s]: [f64; 2],
) -> Result<f64, Failure> {
    let mut command = bellwether()?;
    command.args(["simulate", "--format", "json", "--cluster", &format!("1x{SLOTS}"), "--trace"]).arg(trace);
    command.args(["--truth", &belief(measured, "truth"), "--belief", &belief(measured, believed)]);
    command.args(["--start", &format!("{start_s:.3}s"), "--restart", &format!("{restart_s:.3}s")]);
    let answer = said_json(command.args(["--policy", policy]))?;
    answer[0]["avg_jct_s"].as_f64().ok_or_else(|| Failure::at(policy, "no mean completion time"))
}
