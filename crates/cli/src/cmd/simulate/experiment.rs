//! Every policy on every seed, in parallel, with the same luck for all policies.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bellwether::simulate::simulate;
use bellwether_core::InputError;
use bellwether_core::policy::Fault;
use bellwether_sched::registry::Registry;
use bellwether_sim::report::{Report, report};
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario};
use indicatif::{ProgressBar, ProgressStyle};

use super::SimulateArguments;
use super::inputs::Inputs;
use super::timed::Timed;
use crate::failure::Failure;
use crate::printer::Printer;

/// Between two lines about the progress, where nobody watches a bar.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// One policy on one seed.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) wall_s: f64,
    pub(super) decisions: u64,
    pub(super) deciding_s: f64,
    pub(super) longest_decision_s: f64,
}

/// A policy on all seeds.
#[derive(Debug)]
pub(super) struct PolicyResult {
    pub(super) policy: String,
    pub(super) outcomes: Vec<Outcome>,
    /// The jobs and their account, of the first seed.
    pub(super) entries: Arc<[Entry]>,
    pub(super) recording: Recording,
    pub(super) decisions: Vec<String>,
}

/// What a thread leaves of one policy on one seed.
struct Piece {
    outcome: Outcome,
    recording: Option<Recording>,
    diary: Vec<String>,
}

pub(super) fn run(
    arguments: &SimulateArguments,
    inputs: &Inputs,
    policies: &[String],
    printer: &Printer,
) -> Result<Vec<PolicyResult>, Failure> {
    let seeds = arguments.seeds as usize;
    let tasks = policies.len() * seeds;
    let pieces: Vec<Mutex<Option<Result<Piece, Failure>>>> = (0..tasks).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let entries: Arc<[Entry]> = inputs.entries(1)?.into();
    let progress = Progress::new(tasks * entries.len(), printer);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(tasks);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // Dropped when the thread ends, which ends the watching below.
            let alive = sender.clone();
            let (pieces, next, done, first) = (&pieces, &next, &progress.done, &*entries);
            scope.spawn(move || {
                let _alive: mpsc::Sender<()> = alive;
                while let Some((task, slot)) = task_of(next, pieces) {
                    // Policies vary fastest, so that a slow policy does not leave the others' seeds for last.
                    let (seed, place) = (task / policies.len(), task % policies.len());
                    let seed = seed as u64 + 1;
                    // Those of the first seed are there already.
                    let entries = if seed == 1 { Ok(Cow::Borrowed(first)) } else { inputs.entries(seed) };
                    let name = &policies[place];
                    let piece =
                        entries.and_then(|entries| one(arguments, inputs, name, seed, &entries, done));
                    *slot.lock().expect("no thread panics with it") = Some(piece);
                }
            });
        }
        drop(sender);
        progress.watch(&receiver);
    });
    let result = |name: &String| PolicyResult {
        policy: name.clone(),
        outcomes: Vec::new(),
        entries: entries.clone(),
        recording: Recording::default(),
        decisions: Vec::new(),
    };
    let mut results: Vec<PolicyResult> = policies.iter().map(result).collect();
    for (task, slot) in pieces.into_iter().enumerate() {
        let piece = slot.into_inner().expect("no thread panics with it").expect("every task was done")?;
        let result = &mut results[task % policies.len()];
        result.outcomes.push(piece.outcome);
        if let Some(recording) = piece.recording {
            (result.recording, result.decisions) = (recording, piece.diary);
        }
    }
    Ok(results)
}

/// The next task, and where its result goes.
fn task_of<'a, T>(next: &AtomicUsize, slots: &'a [T]) -> Option<(usize, &'a T)> {
    let task = next.fetch_add(1, Ordering::Relaxed);
    slots.get(task).map(|slot| (task, slot))
}

fn one(
    arguments: &SimulateArguments,
    inputs: &Inputs,
    name: &str,
    seed: u64,
    entries: &[Entry],
    done: &AtomicUsize,
) -> Result<Piece, Failure> {
    let (_, mut policy) = Registry::built_in().parse(name)?;
    let first = seed == 1;
    let mut scenario = Scenario::new(inputs.cluster.view.clone());
    scenario.outages.clone_from(&inputs.cluster.outages);
    scenario.checkpoint_s = inputs.cluster.checkpoint_s;
    scenario.knowledge = arguments.remaining;
    scenario.seed = seed;
    scenario.keep_spans = first && arguments.plot.is_some();
    scenario.early_termination = arguments.early;
    let start = Instant::now();
    let mut timed = Timed::new(policy.as_mut(), name, first && arguments.decisions_out.is_some(), done);
    let truth = inputs.truth.model.as_ref();
    let recording =
        simulate(&mut timed, entries, truth, inputs.belief(), &scenario).map_err(|fault| match fault {
            Fault::Broken(what) => Failure::Broken(format!("policy `{name}`, seed {seed}: {what}")),
            Fault::World(what) => {
                let error = InputError::new(format!("policy `{name}`, seed {seed}"), what);
                match &arguments.belief {
                    Some(belief) => error.hint(format!(
                        "a policy may choose whatever --belief {belief} can speak of; \
                     --truth {} must know that too",
                        arguments.truth
                    )),
                    None => error,
                }
                .into()
            }
        })?;
    let mut report = report(entries, &recording, inputs.cluster.devices());
    // Rows that could not be are jobs that were refused, too.
    let rows = inputs.trace.as_ref().map_or(0, |trace| trace.refused.len()) as f64;
    (report.jobs, report.refused) = (report.jobs + rows, report.refused + rows);
    let outcome = Outcome {
        report,
        wall_s: start.elapsed().as_secs_f64(),
        decisions: timed.decisions,
        deciding_s: timed.total_s,
        longest_decision_s: timed.longest_s,
    };
    Ok(Piece { outcome, recording: first.then_some(recording), diary: timed.diary.unwrap_or_default() })
}

/// How far all simulations are together, for people who wait for more than a second.
struct Progress {
    /// Jobs that ended, in all simulations.
    done: AtomicUsize,
    jobs: usize,
    bar: ProgressBar,
    printer: Printer,
}

impl Progress {
    fn new(jobs: usize, printer: &Printer) -> Progress {
        let bar = if printer.interactive { ProgressBar::new(jobs as u64) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} % of the jobs ended, {eta} left")
        {
            bar.set_style(style);
        }
        Progress { done: AtomicUsize::new(0), jobs, bar, printer: *printer }
    }

    /// Says how far it is, until no thread is left that could send.
    fn watch(&self, alive: &mpsc::Receiver<()>) {
        let mut noted = Instant::now();
        while alive.recv_timeout(Duration::from_millis(200)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let done = self.done.load(Ordering::Relaxed);
            self.bar.set_position(done as u64);
            if !self.printer.interactive && !self.printer.quiet && noted.elapsed() >= NOTE_EVERY {
                noted = Instant::now();
                let percent = 100.0 * done as f64 / self.jobs.max(1) as f64;
                self.printer.note(format_args!("{percent:.0} % of the jobs of all simulations ended"));
            }
        }
        self.bar.finish_and_clear();
    }
}
