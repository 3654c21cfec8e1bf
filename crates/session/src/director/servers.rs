//! Watches whether parameter servers hold the workers up, and says in the journal what would help.

use bellwether_core::job::{Job, SyncPolicy};
use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Decision, Event, StepRecord, UnitRecord};
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_sched::bottleneck::{ServerWatch, Unit};

use super::phases::Phases;

/// For a run that may train through servers without waiting.
pub(crate) fn director(job: &Job, description: &WorkloadDescription) -> Option<Box<dyn Director>> {
    let phases = job.sync.policy.phases(job.total_steps(description.training_samples));
    let may_switch = !matches!(job.sync.policy, SyncPolicy::Phases(_));
    let is_watched = may_switch || phases.iter().any(|(_, protocol)| *protocol == Protocol::Asp);
    is_watched.then(|| {
        let watch = ServerWatch::default();
        Box::new(ServerAlarm {
            watch,
            servers: job.sync.servers,
            phases: Phases::planned(phases),
            workers: 0,
        }) as Box<dyn Director>
    })
}

/// Raises the alarm. Where a bound on staleness lets workers wait for each other, servers are not to blame for that.
struct ServerAlarm {
    watch: ServerWatch,
    servers: u32,
    phases: Phases,
    workers: usize,
}

impl ServerAlarm {
    fn step(&mut self, record: &StepRecord, now: &RunStatus<'_>) -> Option<DirectorCommand> {
        if record.units.is_empty() || self.phases.at(record.step) != Protocol::Asp {
            return None;
        }
        let workers = record.workers as usize;
        if std::mem::replace(&mut self.workers, workers) != workers {
            self.watch.changed();
        }
        let units: Vec<Unit> = record.units.iter().map(unit).collect();
        let news = self.watch.observe(record.duration_s, self.servers, &units)?;
        let workers = record.workers;
        Some(DirectorCommand::Note(Event::Decided(Decision {
            by: "servers".into(),
            step: now.step,
            workers,
            target: workers,
            reason: news.to_string(),
        })))
    }
}

fn unit(record: &UnitRecord) -> Unit {
    let UnitRecord { worker, duration_s, compute_s, data_wait_s, .. } = *record;
    Unit { worker, duration_s, own_s: compute_s + data_wait_s }
}

impl Director for ServerAlarm {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        match seen {
            RunEvent::Journal(event) => {
                self.phases.note(event);
                Vec::new()
            }
            RunEvent::Committed(records) => {
                records.iter().filter_map(|record| self.step(record, now)).collect()
            }
            RunEvent::Reported(..) | RunEvent::Tick => Vec::new(),
        }
    }
}
