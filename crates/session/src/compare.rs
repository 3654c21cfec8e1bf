//! Predicted beside measured: the first steps of a run say what every later number of workers should do.

use std::collections::BTreeMap;

use bellwether_core::job::{Job, Model};
use bellwether_core::record::{Comparison, Decision, Event, StepRecord};
use bellwether_model::observed::{Calm, SETTLING_STEPS, STEPS_MIN, WARM_UP_STEPS};
use bellwether_model::rescale::Rescale;
use bellwether_runtime::run_dir::RunDir;

use crate::metrics;

/// Steps to learn from, and time that they must take at least; of a shorter run a quarter.
const LEARNING_STEPS: usize = 40;
const LEARNING_S: f64 = 0.5;

/// What the first steps of a run teach, and how fast those after them were.
pub(crate) struct Learnt {
    /// The step at which this part of the run began.
    pub(crate) first: u64,
    /// Workers of the first steps.
    pub(crate) workers: u32,
    /// What other numbers of workers should do.
    pub(crate) model: Rescale,
    /// By number of workers the settled steps after those that were learnt from, and their seconds.
    settled: BTreeMap<u32, (u64, f64)>,
}

/// The first phase of a run without newcomers, who would use processors and links too.
struct FirstCalm {
    /// Its place among the run's steps.
    start: usize,
    workers: u32,
    /// Its steps.
    length: usize,
    /// Steps of the run from there on.
    remaining: usize,
}

/// The steps that count: updates over several steps teach nothing, because the model knows the job's own batch.
fn counted(run: &RunDir, first: u64) -> impl Iterator<Item = StepRecord> {
    metrics::read(&run.path).filter(move |line| line.step >= first && line.steps() == 1)
}

/// Learns from the first steps of a run from step `first` on; `None` where it was too short, or never calm.
///
/// It reads the steps twice and holds only those that it learns from.
pub(crate) fn learn(run: &RunDir, job: &Job, bytes: u64, first: u64, by_hand: bool) -> Option<Learnt> {
    let FirstCalm { start, workers, length, remaining } = first_calm(counted(run, first))?;
    let quarter = (remaining / 4).max(STEPS_MIN).min(length - WARM_UP_STEPS);
    let mut lines = counted(run, first).skip(start + WARM_UP_STEPS);
    let (mut early, mut learnt_s) = (Vec::new(), 0.0);
    while early.len() < quarter && !(early.len() >= LEARNING_STEPS && learnt_s >= LEARNING_S) {
        let line = lines.next()?;
        learnt_s += line.duration_s;
        early.push(line);
    }
    // Workers of other machines and devices that sleep do not share this machine's processors.
    let shares = !by_hand && !matches!(job.model, Model::Synthetic { .. });
    let processors = std::thread::available_parallelism().ok().filter(|_| shares);
    let processors = processors.and_then(|count| u32::try_from(count.get()).ok());
    let model = Rescale::fit(workers, &early, job.batch.virtual_nodes, bytes, processors).ok()?;
    Some(Learnt { first, workers, model, settled: settled(lines) })
}

fn first_calm(lines: impl Iterator<Item = StepRecord>) -> Option<FirstCalm> {
    let least = WARM_UP_STEPS + STEPS_MIN;
    let (mut calm, mut found, mut is_calm) = (Calm::default(), None::<FirstCalm>, true);
    for (place, line) in lines.enumerate() {
        let since = calm.see(line.workers, line.shadows);
        match &mut found {
            Some(found) => {
                found.remaining += 1;
                is_calm &= since == found.length + 1;
                found.length += usize::from(is_calm);
            }
            None if since == least => {
                let start = place + 1 - least;
                found = Some(FirstCalm { start, workers: line.workers, length: least, remaining: least });
            }
            None => {}
        }
    }
    found
}

/// By number of workers the steps without a change or a newcomer, who uses processors and links too, and their seconds.
fn settled(lines: impl Iterator<Item = StepRecord>) -> BTreeMap<u32, (u64, f64)> {
    let mut calm = Calm::default();
    let mut settled = BTreeMap::<u32, (u64, f64)>::new();
    for line in lines {
        if calm.see(line.workers, line.shadows) > SETTLING_STEPS {
            let (steps, seconds) = settled.entry(line.workers).or_default();
            *steps += 1;
            *seconds += line.duration_s;
        }
    }
    settled
}

/// For each number of workers that trained long enough: what the first steps predicted, and what was measured
/// after them.
pub(crate) fn comparisons(learnt: &Learnt, batch: u64) -> Vec<Comparison> {
    let batch = batch as f64;
    let long_enough = learnt.settled.iter().filter(|(_, (steps, _))| *steps >= STEPS_MIN as u64);
    let compared = long_enough.filter_map(|(workers, (steps, seconds))| {
        let rate = learnt.model.rate(*workers)?;
        let measured = batch * *steps as f64 / seconds;
        Some(Comparison {
            workers: *workers,
            steps: *steps,
            predicted_examples_per_s: batch * rate.steps_per_s,
            low: batch * rate.low,
            high: batch * rate.high,
            measured_examples_per_s: measured,
            error: batch * rate.steps_per_s / measured - 1.0,
        })
    });
    compared.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn step(workers: u32, shadows: u32) -> StepRecord {
        StepRecord { workers, shadows, duration_s: 0.1, ..StepRecord::default() }
    }

    #[test]
    fn the_first_calm_phase_is_found_in_one_pass() {
        let newcomer = std::iter::repeat_n(step(1, 0), 7).chain([step(1, 1)]);
        let two = std::iter::repeat_n(step(2, 0), 20);
        let three = std::iter::repeat_n(step(3, 0), 4);
        let FirstCalm { start, workers, length, remaining } =
            first_calm(newcomer.chain(two).chain(three)).expect("20 steps of two workers are calm");
        assert_eq!((start, workers, length, remaining), (8, 2, 20, 24));
        assert!(first_calm(std::iter::repeat_n(step(1, 0), 14)).is_none());
    }

    #[test]
    fn steps_after_a_change_settle_before_they_count() {
        let lines = std::iter::repeat_n(step(1, 0), 5).chain(std::iter::repeat_n(step(2, 0), 3));
        let settled = settled(lines);
        assert_eq!((settled[&1].0, settled[&2].0), (3, 1));
        assert!((settled[&1].1 - 0.3).abs() < 1e-12);
    }
}
