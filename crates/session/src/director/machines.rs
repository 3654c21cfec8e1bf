//! Turns what a provider says of its machines into changes of workers between two steps, and shows the keeper of the
//! plan's word how fast the run is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::journal::now_s;
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::fleet::Leaving;
use bellwether_sched::promise::keeper::Seen;

use crate::machines::holder::Holder;
use crate::machines::shared::{Board, Order};

/// Seconds between two looks.
const LOOK_S: f64 = 0.1;

/// A worker leaves this long before its machine goes, wherever its successor is by then.
const LEAVES_BEFORE_S: f64 = 30.0;

/// Seconds for which a worker of an earlier coordinator may take to come back.
const STRANGER_S: f64 = 60.0;

/// Seconds over which the speed is measured, at most and at least; and the fewest steps.
const WINDOW_S: f64 = 30.0;
const WINDOW_MIN_S: f64 = 2.0;
const STEPS_MIN: u64 = 5;

/// Watches the machines of a run's workers.
pub(crate) struct MachineDirector {
    holder: Arc<Holder>,
    batch: u64,
    looked_s: f64,
    /// Moments with the committed steps, under the present membership.
    steps: VecDeque<(f64, u64)>,
    /// Workers for which a successor was asked, and such that were asked to leave.
    replaced: BTreeSet<WorkerId>,
    relieved: BTreeSet<WorkerId>,
    /// Machines whose beginning was told.
    told: BTreeSet<u64>,
    /// Workers with machines that the run does not know, and since when.
    strangers: BTreeMap<WorkerId, f64>,
}

impl MachineDirector {
    pub(crate) fn new(holder: Arc<Holder>, batch: u64) -> MachineDirector {
        MachineDirector {
            holder,
            batch,
            looked_s: -LOOK_S,
            steps: VecDeque::new(),
            replaced: BTreeSet::new(),
            relieved: BTreeSet::new(),
            told: BTreeSet::new(),
            strangers: BTreeMap::new(),
        }
    }

    fn look(&mut self, run: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let holder = Arc::clone(&self.holder);
        let mut board = holder.shared.lock();
        board.seen = self.seen(run);
        let mut commands: Vec<DirectorCommand> = board.notes.drain(..).map(note).collect();
        for order in board.orders.drain(..) {
            commands.push(match order {
                Order::Scale(workers) => DirectorCommand::Scale { workers, by: "the plan's word".into() },
                Order::Stop(by) => DirectorCommand::Stop { by },
            });
        }
        commands.extend(self.tell(run, &board));
        self.part(run, &mut board);
        let leaving = board.fleet.leaving(now_s());
        for leaves in leaving.iter().filter(|leaves| run.membership.rank(leaves.worker).is_some()) {
            commands.extend(self.leave(leaves));
        }
        commands.extend(self.swap(run, &board));
        commands
    }

    /// Gives up workers of an earlier coordinator that have not come back, or were lost: nothing else tells of them.
    fn part(&mut self, run: &RunStatus<'_>, board: &mut Board) {
        let membership = run.membership;
        let mut known: BTreeSet<WorkerId> = run.processes.iter().copied().collect();
        known.extend(membership.active.iter().map(|active| active.worker));
        known.extend(membership.shadows.iter().map(|shadow| shadow.worker));
        known.extend(&membership.paused);
        let strangers: BTreeSet<WorkerId> = board.fleet.workers().difference(&known).copied().collect();
        self.strangers.retain(|worker, _| strangers.contains(worker));
        for worker in strangers {
            let since_s = *self.strangers.entry(worker).or_insert(run.elapsed_s);
            if run.elapsed_s - since_s >= STRANGER_S {
                board.fleet.dismiss(worker);
            }
        }
    }

    /// How fast the run is, and what is left of it.
    fn seen(&mut self, run: &RunStatus<'_>) -> Option<Seen> {
        if run.total_steps == 0 {
            return None;
        }
        self.steps.push_back((run.elapsed_s, run.step));
        while self.steps.front().is_some_and(|(at_s, _)| run.elapsed_s - at_s > WINDOW_S) {
            self.steps.pop_front();
        }
        let (since_s, first) = self.steps.front().copied()?;
        let (over_s, steps) = (run.elapsed_s - since_s, run.step.saturating_sub(first));
        let is_enough = over_s >= WINDOW_MIN_S && steps >= STEPS_MIN;
        let batch = self.batch as f64;
        Some(Seen {
            samples_left: run.total_steps.saturating_sub(run.step) as f64 * batch,
            examples_per_s: is_enough.then(|| steps as f64 * batch / over_s),
            workers: run.membership.active.len() as u32,
        })
    }

    /// Says on which machine each worker is, once.
    fn tell(&mut self, run: &RunStatus<'_>, board: &Board) -> Vec<DirectorCommand> {
        let mut notes = Vec::new();
        for worker in run.membership.active.iter().map(|member| member.worker) {
            let Some((number, pool, place)) = board.fleet.machine_of(worker) else { continue };
            if !place.is_empty() && self.told.insert(number) {
                notes.push(note(format!("worker {worker} is on machine {number} ({pool}, {place})")));
            }
        }
        notes
    }

    /// Lets a worker be replaced, or leave, whose machine is taken away.
    fn leave(&mut self, leaves: &Leaving) -> Vec<DirectorCommand> {
        let Leaving { worker, number, left_s, why } = leaves;
        let is_due = *left_s < LEAVES_BEFORE_S;
        if is_due && self.relieved.insert(*worker) {
            let text = format!("worker {worker} (machine {number}) leaves: {why}, in {left_s:.0} s");
            return vec![note(text), DirectorCommand::Relieve(*worker)];
        }
        if !is_due && self.replaced.insert(*worker) {
            let text =
                format!("worker {worker} (machine {number}) is to be replaced: {why}, in {left_s:.0} s");
            return vec![note(text), DirectorCommand::Replace(*worker)];
        }
        Vec::new()
    }

    /// Lets workers be replaced that are on other machines than are wanted, one after the other.
    fn swap(&mut self, run: &RunStatus<'_>, board: &Board) -> Vec<DirectorCommand> {
        let surplus = board.fleet.surplus();
        // Too many are dismissed by the run; while a successor is on its way it is one too many, too.
        let is_full = run.membership.active.len() as u32 <= run.wanted;
        let is_swapping = surplus.iter().any(|(worker, _)| self.replaced.contains(worker));
        let trains = |worker: WorkerId| run.membership.rank(worker).is_some();
        let next = surplus.iter().find(|(worker, _)| trains(*worker) && !self.replaced.contains(worker));
        match next {
            Some((worker, number)) if is_full && !is_swapping && board.fleet.has_room(now_s()) => {
                self.replaced.insert(*worker);
                let text = format!(
                    "worker {worker} (machine {number}) is to be replaced: other machines are wanted"
                );
                vec![note(text), DirectorCommand::Replace(*worker)]
            }
            _ => Vec::new(),
        }
    }
}

fn note(message: String) -> DirectorCommand {
    DirectorCommand::Note(Event::Cluster { message })
}

impl Director for MachineDirector {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        match seen {
            RunEvent::Journal(Event::Membership { workers, .. }) => {
                self.steps.clear();
                self.holder.shared.lock().fleet.joined(workers, now_s());
                Vec::new()
            }
            RunEvent::Tick if now.elapsed_s - self.looked_s >= LOOK_S => {
                self.looked_s = now.elapsed_s;
                self.look(now)
            }
            _ => Vec::new(),
        }
    }
}
