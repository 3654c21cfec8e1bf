//! Watches for workers that turn slow, and has them replaced.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, Now, Seen};
use bellwether_runtime::membership::{StepRecord, WorkerId};
use bellwether_sched::stragglers::{Action, Limits, Observation, Slow, Stragglers};
use clap::Args;

use super::steer::Memberships;

/// Of two workers nobody can say which is slow and which is quick.
const LEAST_WORKERS: usize = 3;
/// Shorter steps are taken together: a processor that is elsewhere for a moment makes no straggler.
const WINDOW_S: f64 = 0.02;

/// What a user may say about it.
#[derive(Debug, Clone, Args)]
pub(crate) struct StragglerArguments {
    /// Replace workers that compute slower than the others for no known reason, where there are 3 or more: so many within
    /// an hour at most, 4 if no number is given. With 0 the journal tells of them, and they stay. --autoscale implies it
    #[arg(long, value_name = "PER_HOUR", num_args = 0..=1, require_equals = true, default_missing_value = "4",
          conflicts_with = "no_spawn")]
    replace_stragglers: Option<u32>,
}

impl StragglerArguments {
    /// How many workers may be replaced within an hour; `None` where nobody watches.
    pub(super) fn per_hour(&self, autoscaled: bool) -> Option<u32> {
        self.replace_stragglers.or(autoscaled.then_some(Limits::default().per_hour))
    }
}

/// What a worker did in some steps.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    virtual_nodes: usize,
    compute_s: f64,
}

/// Replaces stragglers.
#[derive(Debug)]
pub(super) struct Replacer {
    stragglers: Stragglers,
    memberships: Memberships,
    members: BTreeSet<WorkerId>,
    /// How fast workers are known to be; the others are taken for 1.
    speeds: BTreeMap<WorkerId, f64>,
    /// What each worker told of steps that are not committed yet.
    told: BTreeMap<u64, BTreeMap<WorkerId, Done>>,
    /// The sum of the last steps, until they are long enough.
    window: BTreeMap<WorkerId, Done>,
}

impl Replacer {
    /// Replaces so many workers within an hour at most.
    pub(super) fn new(per_hour: u32, speeds: BTreeMap<WorkerId, f64>) -> Replacer {
        let limits = Limits { per_hour, ..Limits::default() };
        Replacer {
            stragglers: Stragglers::new(limits).expect("the default limits are valid"),
            memberships: Memberships::default(),
            members: BTreeSet::new(),
            speeds,
            told: BTreeMap::new(),
            window: BTreeMap::new(),
        }
    }

    fn note(&mut self, event: &Event) {
        self.memberships.note(event);
        match event {
            Event::Membership { workers, .. } => {
                let members: BTreeSet<WorkerId> = workers.iter().copied().collect();
                let gone = self.members.difference(&members).filter_map(|worker| u32::try_from(*worker).ok());
                gone.for_each(|worker| self.stragglers.left(worker));
                self.members = members;
                self.window.clear();
            }
            Event::RolledBack { .. } => self.told.clear(),
            _ => {}
        }
    }

    /// A member tells of its steps before they are committed, and all have told of those that are.
    fn keep(&mut self, worker: WorkerId, records: &[StepRecord]) {
        for record in records.iter().filter(|record| record.compute_s > 0.0 && !record.nodes_s.is_empty()) {
            let done = Done { virtual_nodes: record.nodes_s.len(), compute_s: record.compute_s };
            self.told.entry(record.step).or_default().insert(worker, done);
        }
    }

    fn committed(&mut self, records: &[StepRecord], now: &Now<'_>) -> Vec<DirectorCommand> {
        let Some(last) = records.last() else { return Vec::new() };
        let later = self.told.split_off(&(last.step + 1));
        let mut commands = Vec::new();
        for (step, done) in std::mem::replace(&mut self.told, later) {
            // Steps of an earlier membership may be committed late.
            let present = self.memberships.at(step).is_some_and(|began| began.workers == self.members);
            let all = self.members.iter().all(|worker| done.contains_key(worker));
            if !present || !all || self.members.len() < LEAST_WORKERS {
                continue;
            }
            for (worker, done) in done {
                let sum = self.window.entry(worker).or_default();
                sum.virtual_nodes += done.virtual_nodes;
                sum.compute_s += done.compute_s;
            }
            let longest_s = self.window.values().map(|done| done.compute_s).fold(0.0, f64::max);
            if longest_s >= WINDOW_S {
                commands.extend(self.observe(now));
            }
        }
        commands
    }

    fn observe(&mut self, now: &Now<'_>) -> Vec<DirectorCommand> {
        let observation = |(worker, done): (WorkerId, Done)| {
            // In nodes of a worker of speed 1, so that those who are known to be slow do not stand out.
            let work = done.virtual_nodes as f64 / self.speeds.get(&worker).copied().unwrap_or(1.0);
            Some(Observation { worker: u32::try_from(worker).ok()?, work, compute_s: done.compute_s })
        };
        let window = std::mem::take(&mut self.window);
        let step: Vec<Observation> = window.into_iter().filter_map(observation).collect();
        let actions = self.stragglers.observe(now.elapsed_s, &step);
        actions.iter().flat_map(|action| commands(action, now.step)).collect()
    }
}

fn commands(action: &Action, step: u64) -> Vec<DirectorCommand> {
    let (Action::Start(Slow { worker, pace, .. }) | Action::Withhold(Slow { worker, pace, .. })) = *action;
    let worker = WorkerId::from(worker);
    let note = DirectorCommand::Note(Event::Straggler { worker, step, pace, reason: action.to_string() });
    match action {
        Action::Start(_) => vec![note, DirectorCommand::Replace(worker)],
        Action::Withhold(_) => vec![note],
    }
}

impl Director for Replacer {
    fn direct(&mut self, seen: Seen<'_>, now: &Now<'_>) -> Vec<DirectorCommand> {
        match seen {
            Seen::Journal(event) => self.note(event),
            Seen::Reported(worker, records) => self.keep(worker, records),
            Seen::Committed(records) => return self.committed(records, now),
            Seen::Tick => {}
        }
        Vec::new()
    }
}
