//! `queues`: what fairness costs. The same jobs are simulated under each policy without queues and with them: mean
//! completion times of all jobs, and of the queue that waited most before.

use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use super::OutputArguments;
use super::report::{Report, Row};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::programs::bellwether;
use crate::statistics::median;

#[derive(Debug, Args)]
pub(super) struct QueuesArguments {
    /// Policies, or `all`
    #[arg(long, value_name = "NAME,…", default_value = "all")]
    policies: String,
    /// Nodes x GPUs
    #[arg(long, value_name = "CLUSTER", default_value = "16x4")]
    cluster: String,
    /// A generator whose classes name queues
    #[arg(long, value_name = "FILE.toml", default_value = "examples/simulate/teams.toml")]
    trace: String,
    /// The queues
    #[arg(long, value_name = "FILE.toml", default_value = "examples/simulate/queues.toml")]
    queues: String,
    /// How fast jobs are
    #[arg(long, value_name = "MODEL", default_value = "power:0.8")]
    truth: String,
    /// What a job pays when it goes on after a stop or a change of its devices
    #[arg(long, value_name = "TIME", default_value = "30s")]
    restart: String,
    /// Traces, each drawn with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &QueuesArguments, printer: &Printer) -> Result<Report, Failure> {
    let QueuesArguments { policies, cluster, trace, queues, truth, restart, seeds, .. } = arguments;
    let settings = json!({
        "policies": policies, "cluster": cluster, "trace": trace, "queues": queues, "truth": truth,
        "restart": restart, "seeds": seeds,
    });
    let mut report = Report::begin("queues", settings, &[]);
    printer.note(format_args!("without queues"));
    let alone = simulate(arguments, &[])?;
    printer.note(format_args!("with queues"));
    let divided = simulate(arguments, &["--queues", queues])?;
    let mut costs = Vec::new();
    for (alone, divided) in alone.iter().zip(&divided) {
        let cost = number(divided, "avg_jct_s")? / number(alone, "avg_jct_s")?;
        costs.push(cost);
        report.row(row(alone, divided, cost)?);
    }
    report.note(format!(
        "the median policy's mean completion time is {:.3} times as long with queues",
        median(&costs)
    ));
    report.note(
        "worst: the queue whose jobs waited longest without queues, for the time that they ran; its guarantee counts \
         only while its jobs could use it",
    );
    Ok(report)
}

fn simulate(arguments: &QueuesArguments, more: &[&str]) -> Result<Vec<Value>, Failure> {
    let QueuesArguments { policies, cluster, trace, truth, restart, seeds, .. } = arguments;
    let mut command = bellwether()?;
    command.args(["simulate", "--format", "json", "--cluster", cluster, "--trace", trace, "--truth", truth]);
    command.args(["--restart", restart, "--seeds", &seeds.to_string(), "--policy", policies]).args(more);
    let answers = said_json(&mut command)?;
    Ok(answers.as_array().cloned().unwrap_or_default())
}

fn said_json(command: &mut Command) -> Result<Value, Failure> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| Failure::at("bellwether simulate", error))?;
    if !output.status.success() {
        return Err(Failure::at("bellwether simulate", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Failure::at("bellwether simulate", error))
}

fn number(value: &Value, name: &str) -> Result<f64, Failure> {
    value[name].as_f64().ok_or_else(|| Failure::at("bellwether simulate", format!("no figure `{name}`")))
}

fn row(alone: &Value, divided: &Value, cost: f64) -> Result<Row, Failure> {
    let policy = alone["policy"].as_str().unwrap_or_default();
    let waits = |queue: &Value| -> Result<f64, Failure> {
        let (completion_s, waiting_s) = (number(queue, "avg_jct_s")?, number(queue, "avg_queueing_s")?);
        Ok(waiting_s / (completion_s - waiting_s).max(f64::MIN_POSITIVE))
    };
    let mut worst: Option<(f64, &Value)> = None;
    for queue in alone["queues"].as_array().into_iter().flatten() {
        let wait = waits(queue)?;
        if worst.is_none_or(|(most, _)| wait > most) {
            worst = Some((wait, queue));
        }
    }
    let (_, before) = worst.ok_or_else(|| Failure::at(policy, "no job names a queue"))?;
    let name = before["queue"].as_str().unwrap_or_default();
    let all = divided["queues"].as_array();
    let after = all.and_then(|queues| queues.iter().find(|queue| queue["queue"] == before["queue"]));
    let after = after.ok_or_else(|| Failure::at(policy, format!("queue `{name}` is gone")))?;
    let mut row = Row::new(policy)
        .with("alone_s", number(alone, "avg_jct_s")?)
        .with("queues_s", number(divided, "avg_jct_s")?)
        .with("cost", cost)
        .with("worst", name)
        .with("worst_ratio", number(after, "avg_jct_s")? / number(before, "avg_jct_s")?)
        .with("stops_alone", number(alone, "preemptions")?)
        .with("stops_queues", number(divided, "preemptions")?);
    let before = |queue: &Value| {
        let queues = alone["queues"].as_array()?;
        queues.iter().find(|one| one["queue"] == queue["queue"])?["avg_jct_s"].as_f64()
    };
    for queue in divided["queues"].as_array().into_iter().flatten() {
        let ratio = before(queue).zip(queue["avg_jct_s"].as_f64()).map(|(before, after)| after / before);
        row = row.with(format!("{}_ratio", queue["queue"].as_str().unwrap_or_default()), ratio);
    }
    let received = divided["queues"].as_array().into_iter().flatten();
    let least = received.filter_map(|queue| queue["guarantee_received"].as_f64()).fold(1.0, f64::min);
    Ok(row.with("least_received", least))
}
