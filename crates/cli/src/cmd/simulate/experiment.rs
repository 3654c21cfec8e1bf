//! Every policy on every seed, in parallel, with the same luck for all policies.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bellwether_core::InputError;
use bellwether_core::policy::Fault;
use bellwether_sched::drive::drive;
use bellwether_sched::policy;
use bellwether_sim::report::{Report, report};
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario, World};
use indicatif::{ProgressBar, ProgressStyle};

use super::SimulateArguments;
use super::inputs::Inputs;
use super::timed::Timed;
use crate::failure::Failure;
use crate::printer::Printer;

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
    pub(super) entries: Vec<Entry>,
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
    let bar = progress(tasks, printer);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(tasks);
    let work = || {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = pieces.get(task) else { break };
            // Policies vary fastest, so that a slow policy does not leave the others' seeds for last.
            let (seed, place) = (task / policies.len(), task % policies.len());
            let piece = one(arguments, inputs, &policies[place], seed as u64 + 1);
            *slot.lock().expect("no thread panics with it") = Some(piece);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let mut results: Vec<PolicyResult> = Vec::new();
    let entries = inputs.entries(1)?;
    for name in policies {
        results.push(PolicyResult {
            policy: name.clone(),
            outcomes: Vec::new(),
            entries: entries.to_vec(),
            recording: Recording::default(),
            decisions: Vec::new(),
        });
    }
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

fn one(arguments: &SimulateArguments, inputs: &Inputs, name: &str, seed: u64) -> Result<Piece, Failure> {
    let (_, mut policy) = policy::parse(name)?;
    let entries = inputs.entries(seed)?;
    let first = seed == 1;
    let mut scenario = Scenario::new(inputs.cluster.view.clone());
    scenario.outages.clone_from(&inputs.cluster.outages);
    scenario.checkpoint_s = inputs.cluster.checkpoint_s;
    scenario.knowledge = arguments.remaining;
    scenario.seed = seed;
    scenario.keep_spans = first && arguments.plot.is_some();
    scenario.early_termination = arguments.early;
    let start = Instant::now();
    let mut timed = Timed::new(policy.as_mut(), name, first && arguments.decisions_out.is_some());
    let mut world = World::new(&entries, inputs.truth.model.as_ref(), &scenario);
    drive(&mut timed, &mut world, inputs.belief()).map_err(|fault| match fault {
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
    let recording = world.into_recording();
    let outcome = Outcome {
        report: report(&entries, &recording, inputs.cluster.devices()),
        wall_s: start.elapsed().as_secs_f64(),
        decisions: timed.decisions,
        deciding_s: timed.total_s,
        longest_decision_s: timed.longest_s,
    };
    Ok(Piece { outcome, recording: first.then_some(recording), diary: timed.diary.unwrap_or_default() })
}

/// A bar for people who watch; nothing for anybody else.
fn progress(tasks: usize, printer: &Printer) -> ProgressBar {
    if !printer.interactive || tasks < 2 {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(tasks as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} simulations, {eta} left") {
        bar.set_style(style);
    }
    bar
}
