//! The servers of a phase: who holds which shard, and who takes it over.

use bellwether_core::record::{Event as Journal, RunFailure};

use super::{Coordinator, Part};
use crate::membership::coordinator::{Action, Lifecycle, MAX_BOOT_FAILURES, MAX_REBOOT_FAILURES};
use crate::membership::{FromWorker, Peer, Serve, ToWorker, WorkerId};

/// One server process.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    /// Where its data plane listens; empty until it is there.
    pub(super) address: String,
    /// Which process calls itself by this number.
    instance: u64,
    heard_s: f64,
    pub(super) started_s: f64,
    pub(super) attached: bool,
    /// Times that it was told to hold a shard and has not answered.
    answers_due: u32,
    duty: Option<Duty>,
}

/// What a server was told to hold.
#[derive(Debug, Clone)]
struct Duty {
    shard: u32,
    /// It has loaded its shard and answers.
    serves: bool,
    /// When it was told.
    since_s: f64,
    /// When its predecessor was lost, with the updates that are lost for it and the checkpoint.
    replaces: Option<(f64, u64, u64)>,
}

/// What is told to a server that gets a shard.
#[derive(Debug, Default)]
struct Charge {
    replica: Option<Peer>,
    checkpoint: Option<u64>,
    replaces: Option<(f64, u64, u64)>,
    follows: bool,
}

impl Server {
    pub(super) fn stand_by(&mut self) {
        self.duty = None;
    }

    fn is_free(&self) -> bool {
        self.attached && self.duty.is_none()
    }

    /// Since when it loads a shard.
    pub(super) fn loads_since_s(&self) -> Option<f64> {
        self.duty.as_ref().filter(|duty| !duty.serves).map(|duty| duty.since_s)
    }

    fn serves(&self) -> bool {
        self.duty.as_ref().is_some_and(|duty| duty.serves)
    }
}

impl Coordinator {
    /// Starts servers that are or will be needed.
    pub(in crate::membership::coordinator) fn spawn_servers(&mut self) {
        let asynchronous = &self.asynchronous;
        let now =
            self.lifecycle == Lifecycle::Asynchronous && asynchronous.needs_servers(asynchronous.protocol);
        let later = asynchronous.upcoming.iter().any(|(_, protocol)| asynchronous.needs_servers(*protocol));
        let over = self.stopping && !self.lacks_a_server();
        if !self.config.spawns || over || !(now || later) {
            return;
        }
        let copies = if asynchronous.plan.replica { 2 } else { 1 };
        let all = copies * asynchronous.plan.servers.max(1);
        let patience =
            if asynchronous.summaries.is_empty() { MAX_BOOT_FAILURES } else { MAX_REBOOT_FAILURES };
        if asynchronous.server_starts.failures() >= patience && now {
            let coming = asynchronous.servers.values().any(|server| !server.attached);
            if !coming && self.free_servers() < self.vacancies() {
                return self.give_up(RunFailure::Other("no parameter server comes up".into()));
            }
        }
        if !asynchronous.server_starts.are_due(self.now_s) {
            return;
        }
        for _ in asynchronous.servers.len()..all as usize {
            let server = self.next_worker();
            self.asynchronous.servers.insert(server, Server { started_s: self.now_s, ..Server::default() });
            self.journal(Journal::ServerStarted { server });
            self.actions.push(Action::SpawnServer(server));
        }
    }

    /// A server opened its session.
    pub(in crate::membership::coordinator) fn server_attached(
        &mut self,
        server: WorkerId,
        address: String,
        (process, instance): (u32, u64),
        waited_s: f64,
    ) {
        self.last_worker = self.last_worker.max(server);
        self.by_hand.remove(&server);
        if self.asynchronous.servers.get(&server).is_some_and(|known| known.attached) {
            // The process lives, and nothing of what it held.
            self.server_lost(server, "it opened a new session");
        }
        self.asynchronous.server_starts.restart();
        self.journal(Journal::ServerAttached { server, address: address.clone(), process });
        let (heard_s, started_s) = (self.now_s + waited_s, self.now_s);
        let entry =
            Server { address, instance, heard_s, started_s, attached: true, answers_due: 0, duty: None };
        self.asynchronous.servers.insert(server, entry);
    }

    /// Whether this is the number of a server.
    pub(in crate::membership::coordinator) fn is_server(&self, id: WorkerId) -> bool {
        self.asynchronous.servers.contains_key(&id)
    }

    /// Which process a server is, and when it was heard of.
    pub(in crate::membership::coordinator) fn server_instance(&self, id: WorkerId) -> Option<(u64, f64)> {
        let server = self.asynchronous.servers.get(&id).filter(|server| server.attached)?;
        Some((server.instance, server.heard_s))
    }

    /// The coordinator itself did not listen for that long.
    pub(in crate::membership::coordinator) fn spare_servers(&mut self, seconds: f64) {
        for server in self.asynchronous.servers.values_mut() {
            server.heard_s += seconds;
            server.started_s += seconds;
            if let Some(duty) = &mut server.duty {
                duty.since_s += seconds;
            }
        }
    }

    /// The numbers of all servers.
    pub(in crate::membership::coordinator) fn server_ids(&self) -> Vec<WorkerId> {
        self.asynchronous.servers.keys().copied().collect()
    }

    /// A server said something.
    pub(in crate::membership::coordinator) fn server_said(&mut self, id: WorkerId, message: FromWorker) {
        let now_s = self.now_s;
        let Some(server) = self.asynchronous.servers.get_mut(&id) else { return };
        server.heard_s = now_s;
        match message {
            FromWorker::Serving { epoch } => {
                server.answers_due = server.answers_due.saturating_sub(1);
                // It answers one by one. What it was told since makes it load again.
                if server.answers_due > 0 || epoch != self.current.epoch {
                    return;
                }
                let Some(duty) = &mut server.duty else { return };
                duty.serves = true;
                if let Some((since_s, lost_updates, step)) = duty.replaces.take() {
                    let shard = duty.shard;
                    self.took_over(id, shard, (lost_updates, Some(step)), since_s);
                }
            }
            // What a replica applies is its server's.
            FromWorker::ServerReport(mut report)
                if report.epoch == self.current.epoch && self.asynchronous.shards.contains(&Some(id)) =>
            {
                // That it handed over stays true in the accounts that follow.
                let before = self.asynchronous.reports.get(&id).and_then(|report| report.handed_over);
                report.handed_over = report.handed_over.or(before);
                self.asynchronous.reports.insert(id, report);
                if let Part::Collecting { step } = self.asynchronous.part {
                    self.end_collection(step);
                }
            }
            // Its replica's connection broke, and it went on without.
            FromWorker::ServerLost { epoch, shard, why } if epoch == self.current.epoch => {
                let place = shard as usize;
                if self.asynchronous.shards.get(place) == Some(&Some(id))
                    && place < self.asynchronous.replicas.len()
                {
                    let message = format!("shard {shard} has no replica any more: {why}");
                    self.journal(Journal::Warning { message });
                    self.replica_lost(place);
                }
            }
            FromWorker::Failed { what } => {
                self.journal(Journal::Warning { message: format!("server {id} cannot go on: {what}") });
                self.server_gone(id, &what);
            }
            _ => {}
        }
    }

    /// Gives shards without a server to servers that are free. At the start of a phase (`from`) the replicas load
    /// first, so that those who forward to them find them.
    pub(super) fn assign(&mut self, from: Option<u64>) {
        let shards = self.asynchronous.shards.len();
        if from.is_some() {
            if self.free_servers() < self.vacancies() {
                return;
            }
            for shard in 0..self.asynchronous.replicas.len() {
                if self.asynchronous.replicas[shard].is_none()
                    && let Some(id) = self.free_server()
                {
                    self.asynchronous.replicas[shard] = Some(id);
                    self.charge(id, shard, Charge { checkpoint: from, follows: true, ..Charge::default() });
                }
            }
            let ready = |id: &Option<WorkerId>| id.is_some_and(|id| self.asynchronous.servers[&id].serves());
            if !self.asynchronous.replicas.iter().all(ready) {
                return;
            }
        }
        for shard in 0..shards {
            if self.asynchronous.shards[shard].is_none()
                && let Some(id) = self.free_server()
            {
                self.asynchronous.shards[shard] = Some(id);
                let replica = self.asynchronous.replicas.get(shard).copied().flatten();
                let replica = replica
                    .map(|id| Peer { worker: id, address: self.asynchronous.servers[&id].address.clone() });
                let step = from.or(self.checkpoint).unwrap_or(0);
                // Of those under way, some may have come to the server that is gone.
                let lost = self.updates_since(step) + self.asynchronous.work_queue.in_flight();
                let replaces = from.is_none().then_some((self.asynchronous.idle_since_s, lost, step));
                let charge = Charge { replica, checkpoint: Some(step), replaces, follows: false };
                self.charge(id, shard, charge);
            }
        }
    }

    /// Servers that are lacking.
    fn vacancies(&self) -> usize {
        let loading = matches!(self.asynchronous.part, Part::Loading { .. });
        let replicas = self.asynchronous.replicas.iter().filter(|_| loading);
        self.asynchronous.shards.iter().chain(replicas).filter(|holder| holder.is_none()).count()
    }

    pub(super) fn free_servers(&self) -> usize {
        self.asynchronous.servers.values().filter(|server| server.is_free()).count()
    }

    fn free_server(&self) -> Option<WorkerId> {
        self.asynchronous.servers.iter().find(|(_, server)| server.is_free()).map(|(id, _)| *id)
    }

    fn charge(&mut self, id: WorkerId, shard: usize, charge: Charge) {
        let shard = shard as u32;
        let Charge { replica, checkpoint, replaces, follows } = charge;
        if let Some(server) = self.asynchronous.servers.get_mut(&id) {
            server.answers_due += 1;
            server.duty = Some(Duty { shard, serves: false, since_s: self.now_s, replaces });
        }
        let training = matches!(self.asynchronous.part, Part::Training | Part::Collecting { .. });
        let serve = Serve {
            epoch: self.current.epoch,
            shard,
            shards: self.asynchronous.shards.len() as u32,
            protocol: self.asynchronous.protocol,
            step: if training {
                self.asynchronous.work_queue.steps_complete()
            } else {
                checkpoint.unwrap_or(0)
            },
            checkpoint,
            workload: self.workload.clone().unwrap_or_default(),
            replica,
            follows,
            order: self.asynchronous.plan.order.clone(),
        };
        self.send(id, ToWorker::Serve(serve));
    }

    /// Whether every shard is held.
    pub(super) fn are_served(&self) -> bool {
        let served = |id: &Option<WorkerId>| id.is_some_and(|id| self.asynchronous.servers[&id].serves());
        self.asynchronous.shards.iter().all(served)
    }

    /// Servers that have been silent for too long.
    pub(in crate::membership::coordinator) fn check_servers(&mut self) {
        let (now_s, heartbeat_s, boot_s) = (self.now_s, self.silence_timeout_s(), self.config.boot_timeout_s);
        let late = |server: &Server| match server.attached {
            true => now_s - server.heard_s > heartbeat_s,
            false => now_s - server.started_s > boot_s,
        };
        let silent: Vec<WorkerId> =
            self.asynchronous.servers.iter().filter(|(_, s)| late(s)).map(|(id, _)| *id).collect();
        for id in silent {
            self.server_gone(id, "it was silent for too long");
        }
    }
}
