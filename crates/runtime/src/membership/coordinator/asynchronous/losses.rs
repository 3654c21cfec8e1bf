//! What goes wrong in a phase: workers and servers that vanish while no other process can take their place.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event as Journal, RunFailure};

use super::{Coordinator, Part};
use crate::membership::coordinator::{Action, Lifecycle, Stage};
use crate::membership::{Reason, WorkerId};

/// A shard whose server is gone without a replica, while its steps are done again with all others.
#[derive(Debug, Clone)]
pub(super) struct Redone {
    shard: u32,
    /// When the server was lost.
    since_s: f64,
    /// Updates after the checkpoint.
    updates: u64,
    checkpoint: u64,
}

impl Coordinator {
    /// A worker of the phase went away without a word: its units go back to the pool.
    pub(in crate::membership::coordinator) fn lost_asynchronous(&mut self, worker: WorkerId, why: &str) {
        let units = self.asynchronous.work_queue.lost(worker);
        let step = self.progress.committed();
        self.journal(Journal::Crashed { worker, step, evidence: why.into(), expected_s: 0.0 });
        self.progress.crashed(worker, self.now_s);
        if !units.is_empty() {
            self.barren_crashes += 1;
        }
        if matches!(self.asynchronous.part, Part::Training) {
            let active = self.staged(Stage::Active);
            self.renew(&active, Reason::Crash { worker, evidence: why.into() });
        } else if let Part::Collecting { step } = self.asynchronous.part
            && self.asynchronous.protocol == Protocol::Gossip
        {
            if self.staged(Stage::Active).is_empty() {
                // No process still holds any of the state.
                self.begin_again(self.checkpoint.unwrap_or(0));
            } else {
                self.collect(step);
            }
        }
    }

    /// A worker that we believed to be at work opened a new session: it knows nothing of its units.
    pub(in crate::membership::coordinator) fn came_back_asynchronous(&mut self, worker: WorkerId) {
        if self.asynchronous.work_queue.workers().any(|id| id == worker) {
            self.lost_asynchronous(worker, "it opened a new session");
        }
    }

    /// A server's session broke or its process ended.
    pub(in crate::membership::coordinator) fn server_gone(&mut self, id: WorkerId, why: &str) {
        if self.is_server(id) {
            self.actions.push(Action::Close(id));
            self.server_lost(id, why);
        }
    }

    /// What a server held is lost with it.
    pub(super) fn server_lost(&mut self, id: WorkerId, why: &str) {
        let Some(server) = self.asynchronous.servers.remove(&id) else { return };
        if !server.attached {
            let wait_s = self.asynchronous.server_starts.failed(server.started_s, self.now_s);
            let message = format!("server {id} did not come up: {why}; the next try is in {wait_s:.2} s");
            return self.journal(Journal::Warning { message });
        }
        if self.lifecycle != Lifecycle::Asynchronous {
            return self.journal(Journal::Warning { message: format!("server {id} went away: {why}") });
        }
        if let Some(shard) = self.asynchronous.replicas.iter().position(|replica| *replica == Some(id)) {
            self.journal(Journal::Warning {
                message: format!("server {id}, the replica of shard {shard}, is lost: {why}"),
            });
            return self.replica_lost(shard);
        }
        let Some(place) = self.asynchronous.shards.iter().position(|holder| *holder == Some(id)) else {
            return self.journal(Journal::Warning { message: format!("server {id} went away: {why}") });
        };
        let (shard, step) = (place as u32, self.progress.committed());
        self.journal(Journal::ServerCrashed { server: id, shard, step, evidence: why.into() });
        self.barren_crashes += 1;
        self.asynchronous.idle_since_s = self.now_s;
        self.asynchronous.shards[place] = None;
        let replica = self.asynchronous.replicas.get_mut(place).and_then(Option::take);
        match (&self.asynchronous.part, replica) {
            // It loads again, too: the first that calls it is to be the next server of the shard.
            (Part::Loading { .. }, Some(replica)) => self.stand_by(replica),
            (Part::Loading { .. }, None) => {}
            (Part::Training | Part::Collecting { .. }, Some(replica)) => {
                self.asynchronous.shards[place] = Some(replica);
                // It has counted the same.
                self.asynchronous.reports.remove(&id);
                self.took_over(replica, shard, (0, None), self.now_s);
            }
            (Part::Training | Part::Collecting { .. }, None) => {
                if self.asynchronous.protocol == Protocol::Bsp {
                    self.redo(shard);
                }
            }
        }
    }

    /// Servers that have not loaded or handed over what they were told to in time have to go, though they say that they
    /// live; what was sent and did not come is asked for again.
    pub(super) fn give_up_stuck_servers(&mut self) {
        let limit_s = self.transfer_limit_s();
        let is_late = |since_s: f64| self.now_s - since_s > limit_s;
        let loading = self
            .asynchronous
            .servers
            .iter()
            .filter(|(_, server)| server.loads_since_s().is_some_and(is_late));
        let mut stuck: Vec<WorkerId> = loading.map(|(id, _)| *id).collect();
        let overdue = match self.asynchronous.part {
            // While no server holds the shard, none was asked since.
            Part::Collecting { step } if self.are_served() && is_late(self.asynchronous.asked_s) => {
                Some(step)
            }
            _ => None,
        };
        if let Some(step) = overdue {
            let owes = |id: &&WorkerId| !self.has_handed_over(**id, step);
            stuck.extend(self.asynchronous.shards.iter().flatten().filter(owes));
        }
        for id in &stuck {
            let why =
                format!("it says that it lives, and did nothing of what it was told within {limit_s:.0} s");
            self.say_goodbye(*id, why.clone(), true);
            self.server_gone(*id, &why);
        }
        if let Part::Collecting { step } = self.asynchronous.part
            && overdue == Some(step)
            && stuck.is_empty()
        {
            self.collect(step);
        }
    }

    /// A shard has no replica any more.
    pub(super) fn replica_lost(&mut self, shard: usize) {
        if let Some(replica) = self.asynchronous.replicas[shard].take() {
            self.stand_by(replica);
        }
        // While nothing is trained another can be started, and the server of the shard must begin with it.
        if matches!(self.asynchronous.part, Part::Loading { .. })
            && let Some(holder) = self.asynchronous.shards[shard].take()
        {
            self.stand_by(holder);
        }
    }

    fn stand_by(&mut self, server: WorkerId) {
        if let Some(server) = self.asynchronous.servers.get_mut(&server) {
            server.stand_by();
        }
    }

    /// A shard is held again: all workers are told where.
    pub(super) fn took_over(&mut self, id: WorkerId, shard: u32, lost: (u64, Option<u64>), since_s: f64) {
        let (lost_updates, checkpoint) = lost;
        let seconds = self.now_s - since_s;
        self.journal(Journal::ServerReplaced { server: id, shard, lost_updates, checkpoint, seconds });
        for worker in self.staged(Stage::Active).into_iter().chain(self.staged(Stage::Leaving)) {
            self.send_phase(worker);
        }
        if let Part::Collecting { step } = self.asynchronous.part
            && self.are_served()
        {
            self.collect(step);
        }
    }

    /// Steps that wait for all are done again from the newest checkpoint, with all shards of it: a shard that stayed
    /// behind would make other parameters of them.
    fn redo(&mut self, shard: u32) {
        let checkpoint = self.checkpoint.unwrap_or(0);
        let updates = self.updates_since(checkpoint);
        self.asynchronous.redone.push(Redone { shard, since_s: self.now_s, updates, checkpoint });
        self.begin_again(checkpoint);
    }

    /// The phase goes on from the checkpoint of this step.
    fn begin_again(&mut self, checkpoint: u64) {
        self.asynchronous.idle_since_s = self.now_s;
        self.go_back_to(checkpoint);
        self.end_phase(checkpoint);
        self.load_asynchronous(checkpoint);
    }

    /// Shards that were lost are held again.
    pub(super) fn tell_redone(&mut self) {
        for Redone { shard, since_s, updates, checkpoint } in std::mem::take(&mut self.asynchronous.redone) {
            let Some(server) = self.asynchronous.shards.get(shard as usize).copied().flatten() else {
                continue;
            };
            self.journal(Journal::ServerReplaced {
                server,
                shard,
                lost_updates: updates,
                checkpoint: Some(checkpoint),
                seconds: self.now_s - since_s,
            });
        }
    }

    /// Units that are done and not in this checkpoint.
    pub(super) fn updates_since(&self, checkpoint: u64) -> u64 {
        let done =
            self.asynchronous.work_queue.watermark() + self.asynchronous.work_queue.done_above().len() as u64;
        done.saturating_sub(checkpoint * self.asynchronous.per_step)
    }

    fn go_back_to(&mut self, step: u64) {
        if step < self.progress.committed() {
            self.journal(Journal::RolledBack { to: step });
            self.progress.roll_back(step);
        }
        self.asynchronous.evaluated = self.asynchronous.evaluated.min(step);
    }

    /// Whether servers are needed to end what has begun.
    pub(super) fn lacks_a_server(&self) -> bool {
        self.lifecycle == Lifecycle::Asynchronous
            && !matches!(self.asynchronous.part, Part::Loading { .. })
            && self.asynchronous.shards.iter().any(Option::is_none)
    }

    /// Whether workers are needed to end what has begun, and none is there.
    pub(in crate::membership::coordinator) fn lacks_workers(&self) -> bool {
        self.lifecycle == Lifecycle::Asynchronous
            && self.asynchronous.part == Part::Training
            && self.workers.is_empty()
    }

    /// Ends the run if no process can go on with it.
    pub(super) fn end_if_hopeless(&mut self) {
        if self.lifecycle != Lifecycle::Asynchronous {
            return;
        }
        let spawns = self.config.spawns;
        let no_worker = self.lacks_workers() && (!spawns || self.no_worker_comes_up());
        let no_server = self.lacks_a_server() && !spawns && self.free_servers() == 0;
        if no_worker && spawns && !self.stopping {
            return self.give_up(RunFailure::Other("no worker comes up".into()));
        }
        if self.stopping && (no_worker || no_server) {
            // A worker that waits for others to join by hand would wait for ever.
            let checkpoint = self.checkpoint.unwrap_or(0);
            self.go_back_to(checkpoint);
            self.leave_asynchronous(checkpoint);
        }
    }

    /// Wants as many workers as the schedule asks for at the step that is reached.
    pub(super) fn follow_schedule(&mut self) {
        let step = self.progress.committed();
        while let Some((_, workers)) = self.schedule.pop_front_if(|(at, _)| *at <= step) {
            self.want(workers);
        }
    }
}
