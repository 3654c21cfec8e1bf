//! Ends a run before its last step, as `[stop]` of its job says.
//!
//! Held-out results decide at boundaries where the workers wait for it, so that the step at which the run ends is the
//! same for any number of workers. A limit of time or money stops the run with a checkpoint; resuming it grants as much
//! again.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::{HeldOut, Job, Stop, StopLimit};
use bellwether_core::record::{Event, Line};
use bellwether_core::units::DollarsPerHour;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::run_dir::RunDir;

use crate::error::at;

/// Watches a run for what ends it.
#[derive(Debug)]
pub(crate) struct StopRules {
    stop: Stop,
    /// Held-out results by the steps applied before.
    results: BTreeMap<u64, HeldOut>,
    cost: Cost,
    /// Seconds of the coordinator's life up to which the cost is counted.
    counted_s: f64,
    /// The last boundary that was decided here.
    decided: Option<u64>,
    is_stopping: bool,
}

/// What the run took so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Cost {
    /// Seconds in which workers trained.
    time_s: f64,
    /// Seconds of all workers.
    worker_s: f64,
    /// How often a limit of time, and one of money, stopped the run.
    stopped: [u32; 2],
}

impl Cost {
    fn add(&mut self, seconds: f64, workers: usize) {
        if workers > 0 && seconds > 0.0 {
            self.time_s += seconds;
            self.worker_s += seconds * workers as f64;
        }
    }

    /// Which limit is reached; each time that the run was resumed after one, as much again was granted.
    fn reached(&self, stop: &Stop) -> Option<StopLimit> {
        let granted = |limit: f64, stops: u32| limit * f64::from(stops + 1);
        let [by_time, by_money] = self.stopped;
        let price = stop.price.map_or(0.0, DollarsPerHour::get);
        let dollars = self.worker_s / 3600.0 * price;
        let is_late = stop.time.is_some_and(|time| self.time_s >= granted(time.get(), by_time));
        let is_dear = stop.money.is_some_and(|money| dollars >= granted(money.get(), by_money));
        match (is_late, is_dear) {
            (true, _) => Some(StopLimit::Time),
            (false, true) => Some(StopLimit::Money),
            (false, false) => None,
        }
    }
}

/// What the journal of a run tells of results and cost, line by line.
#[derive(Debug, Default)]
struct Past {
    results: BTreeMap<u64, HeldOut>,
    cost: Cost,
    /// Workers that train, and since when, by the journal's clock.
    training: (usize, f64),
}

impl Past {
    fn take(&mut self, line: &Line) {
        let (workers, since_s) = self.training;
        self.cost.add(line.time_s - since_s, workers);
        self.training.1 = line.time_s;
        match &line.event {
            Event::CoordinatorStarted { .. } | Event::Ended { .. } => self.training.0 = 0,
            Event::Membership { workers, .. } => self.training.0 = workers.len(),
            Event::LimitReached { limit, .. } => self.cost.stopped[*limit as usize] += 1,
            event => take_result(&mut self.results, event),
        }
    }
}

fn take_result(results: &mut BTreeMap<u64, HeldOut>, event: &Event) {
    match event {
        Event::Evaluated { step, loss, accuracy } => {
            results.insert(*step, HeldOut { loss: *loss, accuracy: *accuracy });
        }
        Event::RolledBack { to } => results.retain(|step, _| step <= to),
        _ => {}
    }
}

impl StopRules {
    /// Of a job whose table has a rule; a run that goes on knows its past from its journal.
    ///
    /// # Errors
    ///
    /// Returns an error if the journal cannot be read.
    pub(crate) fn director(job: &Job, run: &RunDir) -> Result<Option<Box<dyn Director>>, InputError> {
        if !job.stop.by_results() && !job.stop.by_cost() {
            return Ok(None);
        }
        let mut past = Past::default();
        let unreadable = |error| at(run.journal_file().display().to_string(), error);
        if run.journal_file().exists() {
            for line in run.journal().map_err(unreadable)?.lines() {
                past.take(&line.map_err(unreadable)?);
            }
        }
        let Past { results, cost, .. } = past;
        let stop = job.stop;
        let rules = StopRules { stop, results, cost, counted_s: 0.0, decided: None, is_stopping: false };
        Ok(Some(Box::new(rules)))
    }

    fn observe(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) {
        self.cost.add(now.elapsed_s - self.counted_s, now.membership.active.len());
        self.counted_s = now.elapsed_s;
        if let RunEvent::Journal(event) = seen {
            take_result(&mut self.results, event);
        }
        // The journal cannot hold a loss that is not a number.
        if let Some(last) = now.evaluation {
            self.results.insert(last.step, HeldOut { loss: last.loss, accuracy: last.accuracy() });
        }
    }

    /// Whether the run goes on after the step at which its workers wait; nothing until its evaluation is known.
    fn verdict(&mut self, step: u64) -> Vec<DirectorCommand> {
        if !self.results.contains_key(&step) || self.decided == Some(step) {
            return Vec::new();
        }
        self.decided = Some(step);
        let results: Vec<HeldOut> = self.results.range(..=step).map(|(_, result)| *result).collect();
        let unreported = if let [first] = &results[..] { self.stop.unreported(first) } else { None };
        let warning = unreported.map(|message| DirectorCommand::Note(Event::Warning { message }));
        let verdict = DirectorCommand::Verdict { step, ends: self.stop.verdict(&results) };
        warning.into_iter().chain([verdict]).collect()
    }
}

impl Director for StopRules {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        self.observe(seen, now);
        let mut commands = now.awaited_verdict.map_or(Vec::new(), |step| self.verdict(step));
        let limit = self.cost.reached(&self.stop).filter(|_| !self.is_stopping);
        self.is_stopping |= limit.is_some();
        let Cost { time_s: trained_s, worker_s, .. } = self.cost;
        if let Some(limit) = limit {
            commands.push(DirectorCommand::Note(Event::LimitReached { limit, trained_s, worker_s }));
            commands.push(DirectorCommand::Stop { by: limit.to_string() });
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::units::{Dollars, Seconds};

    use super::*;

    fn told(lines: &[(f64, Event)]) -> Past {
        let mut past = Past::default();
        for (time_s, event) in lines {
            past.take(&Line { time_s: *time_s, event: event.clone() });
        }
        past
    }

    fn members(count: u64) -> Event {
        Event::Membership {
            epoch: 1,
            step: 0,
            workers: (1..=count).collect(),
            shadows: Vec::new(),
            accumulation: 1,
            bounds: Vec::new(),
            reason: String::new(),
        }
    }

    #[test]
    fn the_past_of_a_run_tells_its_results_and_what_it_took() {
        let began = Event::CoordinatorStarted { process: 1, version: String::new(), resumed: false };
        let evaluated = |step| Event::Evaluated { step, loss: 1.0 / step as f64, accuracy: None };
        let past = told(&[
            (100.0, began.clone()),
            (110.0, members(2)),
            (115.0, evaluated(10)),
            (120.0, members(4)),
            (125.0, evaluated(20)),
            (126.0, Event::RolledBack { to: 10 }),
            (130.0, Event::LimitReached { limit: StopLimit::Time, trained_s: 20.0, worker_s: 60.0 }),
            (130.0, Event::Ended { step: 10, outcome: "stopped".parse().unwrap(), params_digest: None }),
            (500.0, began),
            (510.0, members(1)),
            (512.0, Event::Warning { message: String::new() }),
        ]);
        assert_eq!(past.results.keys().copied().collect::<Vec<_>>(), [10]);
        assert_eq!(past.cost, Cost { time_s: 22.0, worker_s: 62.0, stopped: [1, 0] });
    }

    #[test]
    fn a_limit_is_granted_again_each_time_that_it_stopped_the_run() {
        let stop = Stop { time: Some(Seconds::new(20.0)), ..Stop::default() };
        let cost = |time_s, stops| Cost { time_s, worker_s: 0.0, stopped: [stops, 0] };
        assert_eq!(cost(19.0, 0).reached(&stop), None);
        assert_eq!(cost(20.0, 0).reached(&stop), Some(StopLimit::Time));
        assert_eq!(cost(22.0, 1).reached(&stop), None);
        assert_eq!(cost(40.0, 1).reached(&stop), Some(StopLimit::Time));
        let (money, price) = (Some(Dollars::new(0.5)), Some(DollarsPerHour::new(1.8)));
        let money = Stop { money, price, ..Stop::default() };
        let worked = |worker_s| Cost { worker_s, ..Cost::default() };
        assert_eq!(worked(999.0).reached(&money), None);
        assert_eq!(worked(1000.0).reached(&money), Some(StopLimit::Money));
    }
}
