//! Predicted beside measured: the first steps of a run say what every later number of workers should do.

use bellwether_core::job::{Job, Model};
use bellwether_core::record::{Comparison, Decision, Event, StepRecord};
use bellwether_model::observed::{Calm, SETTLING_STEPS, STEPS_MIN, WARM_UP_STEPS};
use bellwether_model::rescale::Rescale;
use bellwether_runtime::run_dir::RunDir;

use crate::metrics;

/// Steps to learn from, and time that they must take at least; of a shorter run a quarter.
const LEARNING_STEPS: usize = 40;
const LEARNING_S: f64 = 0.5;

/// What the first steps of a run teach.
pub(crate) struct Learnt {
    /// The step at which this part of the run began.
    pub(crate) first: u64,
    /// Workers of the first steps.
    pub(crate) workers: u32,
    /// What other numbers of workers should do.
    pub(crate) model: Rescale,
    /// The steps after those that were learnt from.
    rest: Vec<StepRecord>,
}

/// Learns from the first steps of a run from step `first` on; `None` where it was too short, or never calm.
pub(crate) fn learn(run: &RunDir, job: &Job, bytes: u64, first: u64, by_hand: bool) -> Option<Learnt> {
    let mut lines: Vec<StepRecord> = metrics::read(&run.path)
        // Updates over several steps are none to learn from: the model knows the job's own batch.
        .filter(|line| line.step >= first && line.steps() == 1)
        .collect();
    // The first phase without newcomers, who would use processors and links too.
    let mut calm = Calm::default();
    let since: Vec<usize> = lines.iter().map(|line| calm.see(line.workers, line.shadows)).collect();
    let least = WARM_UP_STEPS + STEPS_MIN;
    let start = since.iter().position(|steps| *steps == least)? + 1 - least;
    let calm = since[start..].iter().zip(1..).take_while(|(steps, place)| *steps == place).count();
    let workers = lines[start].workers;
    let quarter = ((lines.len() - start) / 4).max(STEPS_MIN).min(calm - WARM_UP_STEPS);
    let mut learnt_s = 0.0;
    let enough = lines[start + WARM_UP_STEPS..].iter().enumerate().find(|(index, line)| {
        learnt_s += line.duration_s;
        index + 1 >= LEARNING_STEPS && learnt_s >= LEARNING_S
    });
    let learning = enough.map_or(quarter, |(index, _)| (index + 1).min(quarter));
    // Workers of other machines and devices that sleep do not share this machine's processors.
    let shares = !by_hand && !matches!(job.model, Model::Synthetic { .. });
    let processors = std::thread::available_parallelism().ok().filter(|_| shares);
    let processors = processors.and_then(|count| u32::try_from(count.get()).ok());
    let nodes = job.batch.virtual_nodes;
    let rest = lines.split_off(start + WARM_UP_STEPS + learning);
    let early = &lines[start + WARM_UP_STEPS..];
    let model = Rescale::fit(workers, early, nodes, bytes, processors).ok()?;
    Some(Learnt { first, workers, model, rest })
}

/// For each number of workers that trained long enough: what the first steps predicted, and what was measured
/// after them.
pub(crate) fn comparisons(learnt: &Learnt, batch: u64) -> Vec<Comparison> {
    let mut counts: Vec<u32> = learnt.rest.iter().map(|line| line.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    counts.into_iter().filter_map(|count| compare(&learnt.model, &learnt.rest, count, batch)).collect()
}

fn compare(model: &Rescale, lines: &[StepRecord], workers: u32, batch: u64) -> Option<Comparison> {
    let mut calm = Calm::default();
    // While newcomers receive state, they use processors and links too.
    let settled = |line: &&StepRecord| calm.see(line.workers, line.shadows) > SETTLING_STEPS;
    let settled = lines.iter().filter(settled).filter(|line| line.workers == workers);
    let durations_s: Vec<f64> = settled.map(|line| line.duration_s).collect();
    if durations_s.len() < STEPS_MIN {
        return None;
    }
    let rate = model.rate(workers)?;
    let batch = batch as f64;
    let measured = batch * durations_s.len() as f64 / durations_s.iter().sum::<f64>();
    Some(Comparison {
        workers,
        steps: durations_s.len() as u64,
        predicted_examples_per_s: batch * rate.steps_per_s,
        low: batch * rate.low,
        high: batch * rate.high,
        measured_examples_per_s: measured,
        error: batch * rate.steps_per_s / measured - 1.0,
    })
}

/// All that was decided about the number of workers of a run since it began.
pub(crate) fn decisions(run: &RunDir) -> Vec<Decision> {
    let decided = |event| match event {
        Event::Decided(decision) if decision.workers > 0 => Some(decision),
        _ => None,
    };
    // A journal that cannot be read tells of none.
    let lines = run.journal().into_iter().flat_map(|journal| journal.lines().map_while(Result::ok));
    lines.filter_map(|line| decided(line.event)).collect()
}
