//! `bellwether capacity`: the cheapest cluster and policy that hold a service level for a workload.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_answers::capacity::{
    Answer, KINDS, MACHINES, MACHINES_MAX, RUNS, RUNS_USUAL, Request, usual_policies,
};
use bellwether_answers::simulate::{self, TRUTH};
use bellwether_core::InputError;
use bellwether_core::units::Seconds;
use bellwether_sched::capacity::Objective;
use bellwether_sim::trace::Format;
use bellwether_sim::world::{EarlyTermination, Knowledge};
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::options::{TableFormat, of_u32, picture};
use crate::printer::Printer;

mod plot;
mod show;

/// Time between two notes about the progress.
const NOTE_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct CapacityArguments {
    /// The jobs: a trace, or a generator file (TOML) from which each run draws its own
    #[arg(value_name = "WORKLOAD")]
    workload: PathBuf,
    /// What may be rented: machines with their prices (examples/capacity has a catalogue; `bellwether schema catalog`)
    #[arg(long, value_name = "PRICES.toml")]
    catalog: PathBuf,
    /// What has to hold: 'p95 completion < 2h', 'mean wait < 10min', 'p99 slowdown < 3', 'makespan < 8h' or 'deadlines
    /// >= 95%'; several with commas, or said again
    #[arg(long, value_name = "FIGURE < LIMIT", required = true, value_delimiter = ',')]
    objective: Vec<Objective>,
    /// Policies that may be chosen, with options after a colon (`bellwether policies` explains them) [default:
    /// fifo,easy,srtf,las2d]
    #[arg(long, value_name = "NAME,…", num_args = 1..)]
    policy: Vec<String>,
    /// Allow machines that their provider may take away: none, a quarter, half, three quarters or all of each kind
    #[arg(long)]
    transient: bool,
    /// Most machines of a cluster
    #[arg(long, value_name = "N", default_value_t = MACHINES_MAX, value_parser = clap::value_parser!(u32).range(of_u32(MACHINES)))]
    max_machines: u32,
    /// Most kinds of machines in one cluster, all of one region
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(of_u32(KINDS)))]
    kinds: u32,
    /// Regions that may be used [default: all of the catalogue]
    #[arg(long, value_name = "REGION,…", value_delimiter = ',')]
    region: Vec<String>,
    #[command(flatten)]
    jobs: JobArguments,
    /// Runs of each candidate where something is drawn, with the seeds SEED, SEED + 1, …, the same for all candidates
    #[arg(long, value_name = "N", default_value_t = RUNS_USUAL, value_parser = clap::value_parser!(u64).range(RUNS))]
    runs: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also find the cheapest candidates for a quarter to four times the first objective's limit; --plot does so, too
    #[arg(long)]
    front: bool,
    /// Simulate every candidate to its end: slow, the choice is the same
    #[arg(long)]
    exhaustive: bool,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: TableFormat,
    /// Draw cost over service level: what was simulated, what nothing else beats, the choice
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,
    /// Write the choice as a cluster file, for `bellwether simulate --cluster`
    #[arg(long, value_name = "FILE.toml")]
    cluster_out: Option<PathBuf>,
}

/// How jobs are simulated: as `bellwether simulate` has it.
#[derive(Debug, Args)]
struct JobArguments {
    /// What a policy knows of remaining work: exact, nominal, expected, estimated[:DEVIATION] or unknown
    #[arg(long, value_name = "KNOWLEDGE", default_value = "exact")]
    remaining: Knowledge,
    /// How fast jobs are in truth, as in `bellwether simulate`
    #[arg(long, value_name = "MODEL", default_value = TRUTH)]
    truth: String,
    /// How fast the policy believes that they are [default: as in truth]
    #[arg(long, value_name = "MODEL")]
    belief: Option<String>,
    /// Format of the trace [default: recognised from its header]
    #[arg(long, value_name = "FORMAT")]
    trace_format: Option<Format>,
    /// What a job pays when it goes on after a stop or a change of its devices [default: 0s]
    #[arg(long, value_name = "TIME")]
    restart: Option<Seconds>,
    /// What a job pays when it starts for the first time [default: 0s]
    #[arg(long, value_name = "TIME")]
    start: Option<Seconds>,
    /// How often a job saves its state: work since then is lost with a machine [default: nothing is lost]
    #[arg(long, value_name = "TIME")]
    checkpoint: Option<Seconds>,
    /// Ask policies only at multiples of this time, as simulators do that decide in rounds
    #[arg(long, value_name = "TIME")]
    round: Option<Seconds>,
    /// Let jobs over several machines slow each other down where they share a machine's link, if the model knows
    /// exchanges
    #[arg(long)]
    shared_links: bool,
    /// Let every job whose row does not say otherwise run on MIN to MAX devices
    #[arg(long, value_name = "MIN..MAX")]
    elastic: Option<bellwether_core::job::WorkerRange>,
    /// Probability that a job ends early, at a uniform part of its work or by a beta law, as in 0.3:2,5
    #[arg(long, value_name = "Q[:A,B]")]
    early: Option<EarlyTermination>,
}

pub(crate) fn capacity(arguments: &CapacityArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    check_files(arguments)?;
    let request = arguments.request();
    let mut simulated = 0;
    let mut noted = Instant::now();
    let mut watch = |more: usize| {
        simulated += more;
        if !printer.quiet && noted.elapsed() >= NOTE_EVERY {
            noted = Instant::now();
            printer.note(format_args!("{simulated} candidates simulated so far"));
        }
    };
    let found = request.answer(&mut |text| printer.note(text), &mut watch)?;
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&found)?.as_bytes())?;
    }
    if let (Some(path), Some(text)) = (&arguments.cluster_out, &found.cluster_file) {
        files::write_whole(path, handed_on(arguments, &found, text).as_bytes())?;
    }
    let text = show::render(&found, arguments.format);
    if found.choice.is_none() {
        if !found.candidates.is_empty() || arguments.format == TableFormat::Json {
            printer.out(text);
        }
        return Err(Failure::No(show::refusal(&found)));
    }
    printer.out(printer.marked(&text, "← choice"));
    Ok(ExitCode::SUCCESS)
}

/// Each result has a file of its own in a folder that is there, and none is an input.
fn check_files(arguments: &CapacityArguments) -> Result<(), Failure> {
    let named = [
        ("WORKLOAD", Some(&arguments.workload)),
        ("--catalog", Some(&arguments.catalog)),
        ("--plot", arguments.plot.as_ref()),
        ("--cluster-out", arguments.cluster_out.as_ref()),
    ];
    for (index, (flag, path)) in named.iter().enumerate() {
        let same = |(_, other): &&(&str, Option<&PathBuf>)| path.is_some() && other == path;
        if let Some((other, _)) = named[..index].iter().find(same) {
            return Err(InputError::new(*flag, format!("names the same file as {other}"))
                .hint("what was there would be lost; name another file")
                .into());
        }
    }
    for path in [&arguments.plot, &arguments.cluster_out].into_iter().flatten() {
        files::check_folder(path)?;
    }
    Ok(())
}

/// The cluster file, with what it is and how it is simulated.
fn handed_on(arguments: &CapacityArguments, found: &Answer, text: &str) -> String {
    let mut words = vec!["bellwether simulate".to_owned()];
    if let Some(path) = &arguments.cluster_out {
        words.push(format!("--cluster {}", path.display()));
    }
    words.push(format!("--trace {}", arguments.workload.display()));
    if let Some(chosen) = found.choice.and_then(|choice| found.candidates.get(choice)) {
        words.push(format!("--policy {} --seeds {}", chosen.policy, chosen.runs));
    }
    words.extend(arguments.jobs.words());
    // A name with a line break must not end the comment.
    let head: Vec<String> = [&found.reason, &words.join(" ")]
        .map(|line| format!("# {}", line.replace(['\n', '\r'], " ")))
        .to_vec();
    format!("{}\n\n{text}", head.join("\n"))
}

impl JobArguments {
    /// What `simulate` has to be told again: the cluster file has the rest.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.truth != TRUTH {
            words.push(format!("--truth {}", self.truth));
        }
        words.extend(self.belief.as_ref().map(|belief| format!("--belief {belief}")));
        if self.remaining != Knowledge::Exact {
            words.push(format!("--remaining {}", self.remaining));
        }
        words.extend(self.trace_format.map(|format| format!("--trace-format {format}")));
        words.extend(self.start.map(|time| format!("--start {}s", time.get())));
        words.extend(self.round.map(|time| format!("--round {}s", time.get())));
        words.extend(self.elastic.map(|range| format!("--elastic {range}")));
        words.extend(self.early.is_some().then(|| "--early (as said to capacity)".to_owned()));
        words
    }
}

impl CapacityArguments {
    /// What is asked.
    fn request(&self) -> Request {
        let jobs = &self.jobs;
        Request {
            jobs: simulate::Request {
                cluster: String::new(),
                trace: self.workload.clone(),
                policies: if self.policy.is_empty() {
                    usual_policies(jobs.remaining)
                } else {
                    self.policy.clone()
                },
                remaining: jobs.remaining,
                truth: jobs.truth.clone(),
                belief: jobs.belief.clone(),
                seeds: 1,
                trace_format: jobs.trace_format,
                restart: jobs.restart,
                start: jobs.start,
                round: jobs.round,
                packing: false,
                shared_links: jobs.shared_links,
                elastic: jobs.elastic,
                early: jobs.early,
                queues: None,
                keep_spans: false,
                keep_decisions: false,
            },
            catalog: self.catalog.clone(),
            objectives: self.objective.clone(),
            transient: self.transient,
            max_machines: self.max_machines,
            max_kinds: self.kinds,
            regions: self.region.clone(),
            checkpoint: jobs.checkpoint,
            seed: self.seed,
            runs: self.runs,
            front: self.front || self.plot.is_some(),
            exhaustive: self.exhaustive,
        }
    }
}
