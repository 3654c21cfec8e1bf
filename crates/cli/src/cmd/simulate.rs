//! `bellwether simulate`: a trace on a cluster under every policy that is named.

use std::path::PathBuf;
use std::process::ExitCode;

use bellwether_answers::simulate::{Request, SEEDS, TRUTH};
use bellwether_core::InputError;
use bellwether_core::units::Seconds;
use bellwether_sim::trace::Format;
use bellwether_sim::world::{EarlyTermination, Knowledge};
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::options::{TableFormat, picture};
use crate::printer::Printer;
use crate::traces;

mod experiment;
mod plot;
mod replay;
mod show;
mod sweep;

#[derive(Debug, Args)]
pub(crate) struct SimulateArguments {
    /// The machines: a TOML file, or nodes x devices such as 16x4 or 3x4:v100,3x4:p100
    #[arg(long, value_name = "CLUSTER", required_unless_present_any = ["replay", "sweep"])]
    pub(crate) cluster: Option<String>,
    /// The jobs: a trace, or a generator file (TOML) from which each seed draws its own
    #[arg(long, value_name = "FILE", required_unless_present_any = ["replay", "sweep"])]
    pub(crate) trace: Option<PathBuf>,
    /// Run what `bellwether serve` recorded (STATE_DIR/.serve/ledger.jsonl) again: every decision, and the times; --policy
    /// asks what another policy would have done
    #[arg(long, value_name = "LEDGER", conflicts_with_all = ["cluster", "trace", "remaining", "truth", "belief", "seeds",
          "trace_format", "elastic", "early", "plot", "jobs_out", "decisions_out"])]
    pub(crate) replay: Option<PathBuf>,
    /// With --replay: say how many jobs started within the interval that the daemon foresaw, or would have foreseen
    #[arg(long, requires = "replay")]
    pub(crate) outlook: bool,
    /// Policies, with options after a colon, as in las2d:3250,7200, or `all` (`bellwether policies` explains them)
    #[arg(long, value_name = "NAME,…", required_unless_present_any = ["replay", "sweep"], num_args = 1..)]
    pub(crate) policy: Vec<String>,
    /// What a policy knows of remaining work: exact, nominal, expected, estimated[:DEVIATION] or unknown
    #[arg(long, value_name = "KNOWLEDGE", default_value = "exact")]
    pub(crate) remaining: Knowledge,
    /// How fast jobs are in truth: declared, linear, amdahl:F, power:P, curve:…, gavel:FILE, elasticflow:DIR,
    /// measured:DIR, profiles:DIR, fitted:FILE
    #[arg(long, value_name = "MODEL", default_value = TRUTH)]
    pub(crate) truth: String,
    /// How fast the policy believes that they are [default: as in truth]
    #[arg(long, value_name = "MODEL")]
    pub(crate) belief: Option<String>,
    /// Seeds 1 to N: each draws its own estimates, early ends, outages and generated traces, the same for all policies
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(SEEDS))]
    pub(crate) seeds: u64,
    /// Format of the trace [default: recognised from its header]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) trace_format: Option<Format>,
    /// What a job pays when it goes on after a stop or a change of its devices [default: as in the cluster file, else 0s]
    #[arg(long, value_name = "TIME")]
    pub(crate) restart: Option<Seconds>,
    /// What a job pays when it starts for the first time [default: 0s]
    #[arg(long, value_name = "TIME", conflicts_with = "replay")]
    pub(crate) start: Option<Seconds>,
    /// Ask policies only at multiples of this time, as simulators do that decide in rounds
    #[arg(long, value_name = "TIME", conflicts_with = "replay")]
    pub(crate) round: Option<Seconds>,
    /// Let two jobs share devices, under policies that pack (gandiva, gavel_max_min:packing=1), where the model knows what both lose
    #[arg(long)]
    pub(crate) packing: bool,
    /// Let jobs over several nodes slow each other down where they share a node's link, if the model knows exchanges
    #[arg(long, conflicts_with = "replay")]
    pub(crate) shared_links: bool,
    /// Let every job whose row does not say otherwise run on MIN to MAX devices
    #[arg(long, value_name = "MIN..MAX")]
    pub(crate) elastic: Option<bellwether_core::job::WorkerRange>,
    /// Probability that a job ends early, at a uniform part of its work or by a beta law, as in 0.3:2,5
    #[arg(long, value_name = "Q[:A,B]")]
    pub(crate) early: Option<EarlyTermination>,
    /// Divide the cluster among queues: a TOML file (`bellwether schema queues`); the trace's column `queue` says where
    /// jobs are
    #[arg(long, value_name = "FILE.toml", conflicts_with = "replay")]
    pub(crate) queues: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: TableFormat,
    /// Draw completion times, utilisation over time, and who ran where (of the first seed)
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    pub(crate) plot: Option<PathBuf>,
    /// Write a row per job and policy (of the first seed)
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) jobs_out: Option<PathBuf>,
    /// Write a row per policy and queue that jobs name
    #[arg(long, value_name = "FILE.csv", conflicts_with = "replay")]
    pub(crate) queues_out: Option<PathBuf>,
    /// Write a line per decision with its reason (of the first seed)
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) decisions_out: Option<PathBuf>,
    /// Run the sweep in this file on known learning curves instead, under every trial scheduler; --restart is what a
    /// trial pays when it begins or goes on
    #[arg(long, value_name = "SWEEP.toml", requires = "curves",
          conflicts_with_all = ["cluster", "trace", "replay", "policy", "plot", "jobs_out",
          "queues_out", "decisions_out"])]
    pub(crate) sweep: Option<PathBuf>,
    /// With --sweep: rows of trial,length,value, or the sweep.jsonl of a sweep that has ended
    #[arg(long, value_name = "FILE.csv|SWEEP.jsonl", requires = "sweep")]
    pub(crate) curves: Option<PathBuf>,
    /// With --sweep: numbers of workers of all trials together [default: the sweep file's, or 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "sweep")]
    pub(crate) workers: Vec<u32>,
    /// With --sweep: what a unit of length takes one worker [default: as the sweep measured it, or 1s]
    #[arg(long, value_name = "TIME", requires = "sweep")]
    pub(crate) unit_time: Option<Seconds>,
}

pub(crate) fn simulate(arguments: &SimulateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(ledger) = &arguments.replay {
        return replay::replay(ledger, arguments, printer);
    }
    if let Some(path) = &arguments.sweep {
        return sweep::simulate(path, arguments, printer);
    }
    for path in [&arguments.plot, &arguments.jobs_out, &arguments.queues_out, &arguments.decisions_out]
        .into_iter()
        .flatten()
    {
        files::check_folder(path)?;
    }
    check_files(arguments)?;
    let request = request(arguments)?;
    let inputs = request.inputs()?;
    if let Some(trace) = &inputs.trace {
        traces::remarks(trace, &inputs.place, printer);
    }
    let results = experiment::run(&request, &inputs, printer)?;
    if let Some(path) = &arguments.jobs_out {
        files::write_whole(path, show::jobs(&results).as_bytes())?;
    }
    if let Some(path) = &arguments.queues_out {
        files::write_whole(path, show::queues(&results).as_bytes())?;
    }
    if let Some(path) = &arguments.decisions_out {
        let lines: String =
            results.iter().flat_map(|result| result.decisions.iter().map(String::as_str)).collect();
        files::write_whole(path, lines.as_bytes())?;
    }
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&results, &inputs.cluster)?.as_bytes())?;
    }
    printer.out(show::render(&results, arguments.format));
    Ok(ExitCode::SUCCESS)
}

/// Each result has a file of its own, and none is the trace.
fn check_files(arguments: &SimulateArguments) -> Result<(), InputError> {
    let named = [
        ("--trace", arguments.trace.as_ref()),
        ("--queues", arguments.queues.as_ref()),
        ("--plot", arguments.plot.as_ref()),
        ("--jobs-out", arguments.jobs_out.as_ref()),
        ("--queues-out", arguments.queues_out.as_ref()),
        ("--decisions-out", arguments.decisions_out.as_ref()),
    ];
    for (index, (flag, path)) in named.iter().enumerate() {
        let same = |(_, other): &&(&str, Option<&PathBuf>)| path.is_some() && other == path;
        if let Some((other, _)) = named[..index].iter().find(same) {
            return Err(InputError::new(*flag, format!("names the same file as {other}"))
                .hint("what was there would be lost; name another file"));
        }
    }
    Ok(())
}

/// What is asked, without a ledger.
fn request(arguments: &SimulateArguments) -> Result<Request, InputError> {
    let (Some(cluster), Some(trace)) = (&arguments.cluster, &arguments.trace) else {
        return Err(InputError::new("simulate", "no machines or no jobs are named")
            .hint("write --cluster CLUSTER --trace FILE, or --replay LEDGER"));
    };
    Ok(Request {
        cluster: cluster.clone(),
        trace: trace.clone(),
        policies: arguments.policy.clone(),
        remaining: arguments.remaining,
        truth: arguments.truth.clone(),
        belief: arguments.belief.clone(),
        seeds: arguments.seeds,
        trace_format: arguments.trace_format,
        restart: arguments.restart,
        start: arguments.start,
        round: arguments.round,
        packing: arguments.packing,
        shared_links: arguments.shared_links,
        elastic: arguments.elastic,
        early: arguments.early,
        queues: arguments.queues.clone(),
        keep_spans: arguments.plot.is_some(),
        keep_decisions: arguments.decisions_out.is_some(),
    })
}
