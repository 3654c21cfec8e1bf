//! The autoscaler of a run: tells `sched` what the steps took, and the coordinator what `sched` decided.

use std::mem::{Discriminant, discriminant};
use std::time::Instant;

use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::record::{self, Event, StepRecord};
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::run_dir::RunDir;
use bellwether_sched::autoscale::{
    self, BatchRule, Bounds, Decision, Economy, Heuristic, History, LEAST_STEPS, Reason, ResizeCost,
    Situation,
};

use super::memberships::Memberships;
use crate::metrics;

/// Time between two decisions.
const PERIOD_S: f64 = 0.05;
/// Minimum pause between decisions, as a multiple of the last decision's cost: the run stands still meanwhile.
const PAUSE: f64 = 20.0;
/// What a resize is taken to cost until the run has seen one: a worker process starts in less than a second.
const FIRST_COST: ResizeCost = ResizeCost { boot_s: 1.0, grow_stall_s: 0.01, shrink_stall_s: 0.01 };

/// How a run finds its best number of workers.
#[derive(Debug, Clone)]
pub struct Autoscale {
    /// Name of the heuristic and its options, as [`autoscale::named`] reads them.
    pub heuristic: String,
    /// Workers that heuristics add or take away at a time, at least 1.
    pub increment: u32,
    /// What workers cost and what the end of the job is worth, for heuristics that weigh it.
    pub economy: Option<Economy>,
}

/// Steers the number of workers.
pub(crate) struct Autoscaler {
    name: String,
    heuristic: Box<dyn Heuristic>,
    bounds: Bounds,
    /// Of a step; an update may cover several.
    samples: u64,
    virtual_nodes: u32,
    economy: Option<Economy>,
    /// Seconds that the run took before this coordinator.
    earlier_s: f64,
    history: History,
    memberships: Memberships,
    costs: Costs,
    /// No decision before this time.
    next_s: f64,
    /// The kind of reason that was written down last for changing nothing.
    told: Option<Discriminant<Reason>>,
}

impl Autoscaler {
    /// An autoscaler that knows what the run measured before it was taken up again.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no such heuristic, or bounds that are none.
    pub(crate) fn new(
        asked: &Autoscale,
        job: &Job,
        range: WorkerRange,
        run: &RunDir,
    ) -> Result<Autoscaler, InputError> {
        let mut history = History::default();
        for line in metrics::read(&run.path).filter(|line| line.shadows == 0) {
            let batch = job.batch.size * line.steps();
            history.record(line.workers, batch, line.duration_s, Some(line.exchange_s));
        }
        let earlier_s = run.history().ok().and_then(|history| history.age_s()).unwrap_or(0.0);
        Ok(Autoscaler {
            name: asked.heuristic.clone(),
            heuristic: autoscale::named(&asked.heuristic)?,
            bounds: Bounds::new(range.min, range.max, asked.increment)?,
            samples: job.batch.size,
            virtual_nodes: job.batch.virtual_nodes,
            economy: asked.economy.clone(),
            earlier_s,
            history,
            memberships: Memberships::default(),
            costs: Costs::default(),
            next_s: 0.0,
            told: None,
        })
    }
}

impl Director for Autoscaler {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        match seen {
            RunEvent::Journal(event) => {
                self.memberships.note(event);
                self.costs.note(event);
                Vec::new()
            }
            // While others boot, they take processors of this machine.
            RunEvent::Committed(records) if settled(now) => {
                records.iter().for_each(|record| self.record(record));
                self.consider(now)
            }
            RunEvent::Committed(_) | RunEvent::Reported(..) | RunEvent::Tick => Vec::new(),
        }
    }
}

/// Whether no resize is under way.
fn settled(now: &RunStatus<'_>) -> bool {
    now.wanted as usize == now.membership.active.len() && now.membership.shadows.is_empty()
}

impl Autoscaler {
    /// A step in which newcomers received the state tells nothing about steps in which none does.
    fn record(&mut self, record: &StepRecord) {
        let Some(began) = self.memberships.at(record.step).filter(|began| !began.receiving) else { return };
        let (workers, batch) = (began.workers.len() as u32, self.samples * record.steps());
        self.history.record(workers, batch, record.duration_s, Some(record.exchange_s));
    }

    /// Decides when it is time and the present size was measured.
    fn consider(&mut self, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let workers = now.membership.active.len() as u32;
        let measured = self.history.steps_since_change(workers) >= LEAST_STEPS;
        let left = now.total_steps.saturating_sub(now.step);
        if !measured || left == 0 || now.elapsed_s < self.next_s {
            return Vec::new();
        }
        let situation = Situation {
            history: &self.history,
            workers,
            bounds: self.bounds,
            elapsed_s: self.earlier_s + now.elapsed_s,
            remaining_samples: left as f64 * self.samples as f64,
            batch: BatchRule::Fixed(self.samples * u64::from(now.membership.accumulation.max(1))),
            virtual_nodes: Some(self.virtual_nodes),
            resize: self.costs.costs(),
            economy: self.economy.as_ref(),
        };
        let began = Instant::now();
        let decision = autoscale::decide(self.heuristic.as_ref(), &situation);
        self.next_s = now.elapsed_s + PERIOD_S.max(PAUSE * began.elapsed().as_secs_f64());
        self.commands(decision, workers, now.step)
    }

    /// A decision to stay is written down when its kind of reason is a new one.
    fn commands(&mut self, decision: Decision, workers: u32, step: u64) -> Vec<DirectorCommand> {
        let target = match decision {
            Decision::Resize(target, _) => {
                self.told = None;
                target
            }
            Decision::Stay(reason) => {
                let kind = Some(discriminant(&reason));
                if std::mem::replace(&mut self.told, kind) == kind {
                    return Vec::new();
                }
                workers
            }
        };
        let (by, reason) = (self.name.clone(), decision.reason().to_string());
        let note = Event::Decided(record::Decision { by: by.clone(), step, workers, target, reason });
        let scale = (target != workers).then_some(DirectorCommand::Scale { workers: target, by });
        [Some(DirectorCommand::Note(note)), scale].into_iter().flatten().collect()
    }
}

/// What the resizes of this run cost: the mean of each kind.
#[derive(Debug, Default)]
struct Costs {
    boot_s: Mean,
    grow_s: Mean,
    shrink_s: Mean,
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Costs {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Resized { from, to, stall_s, hidden_s, .. } if to > from => {
                self.boot_s.add(*hidden_s);
                self.grow_s.add(*stall_s);
            }
            Event::Resized { stall_s, .. } => self.shrink_s.add(*stall_s),
            _ => {}
        }
    }

    fn costs(&self) -> ResizeCost {
        ResizeCost {
            boot_s: self.boot_s.or(FIRST_COST.boot_s),
            grow_stall_s: self.grow_s.or(FIRST_COST.grow_stall_s),
            shrink_stall_s: self.shrink_s.or(FIRST_COST.shrink_stall_s),
        }
    }
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn or(&self, start: f64) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler() -> Autoscaler {
        Autoscaler {
            name: "efficiency".into(),
            heuristic: autoscale::named("efficiency").unwrap(),
            bounds: Bounds::new(1, 4, 1).unwrap(),
            samples: 8,
            virtual_nodes: 8,
            economy: None,
            earlier_s: 0.0,
            history: History::default(),
            memberships: Memberships::default(),
            costs: Costs::default(),
            next_s: 0.0,
            told: None,
        }
    }

    #[test]
    fn a_reason_to_stay_is_told_once() {
        let mut autoscaler = autoscaler();
        let mut kinds = |decision| {
            let commands = autoscaler.commands(decision, 2, 7);
            let kind = |command: &DirectorCommand| match command {
                DirectorCommand::Note(Event::Decided(decision)) => ("note", decision.target),
                DirectorCommand::Scale { workers, .. } => ("scale", *workers),
                _ => ("other", 0),
            };
            commands.iter().map(kind).collect::<Vec<_>>()
        };
        let settled = |gain| Reason::Settled { smaller: 2, larger: 3, gain, needed: 0.1 };
        assert_eq!(kinds(Decision::Stay(settled(0.01))), [("note", 2)]);
        assert_eq!(kinds(Decision::Stay(settled(0.02))), []);
        assert_eq!(kinds(Decision::Stay(Reason::OneSize)), [("note", 2)]);
        assert_eq!(kinds(Decision::Resize(3, settled(0.2))), [("note", 3), ("scale", 3)]);
        assert_eq!(kinds(Decision::Stay(Reason::OneSize)), [("note", 2)]);
    }

    #[test]
    fn the_cost_of_a_resize_is_what_resizes_took() {
        let resized = |from, to, stall_s, hidden_s| Event::Resized {
            step: 1,
            from,
            to,
            expected_stall_s: 0.0,
            stall_s,
            hidden_s,
            reason: String::new(),
        };
        let mut costs = Costs::default();
        assert_eq!(costs.costs(), FIRST_COST);
        [resized(1, 2, 0.1, 2.0), resized(2, 4, 0.3, 4.0), resized(4, 3, 0.5, 9.0)]
            .iter()
            .for_each(|event| costs.note(event));
        let ResizeCost { boot_s, grow_stall_s, shrink_stall_s } = costs.costs();
        assert!(
            (boot_s - 3.0).abs() < 1e-12 && (grow_stall_s - 0.2).abs() < 1e-12,
            "{boot_s} {grow_stall_s}"
        );
        assert!((shrink_stall_s - 0.5).abs() < 1e-12);
    }
}
