//! The servers of a stretch: who holds which shard, and who takes it over.

use bellwether_core::record::Event as Journal;

use super::{Coordinator, Part};
use crate::membership::coordinator::{Action, MAX_BOOT_FAILURES, Phase, Stage};
use crate::membership::{FromWorker, Peer, Serve, ToWorker, WorkerId};

/// One server process.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    /// Where its data plane listens; empty until it is there.
    pub(super) address: String,
    heard_s: f64,
    started_s: f64,
    attached: bool,
    duty: Option<Duty>,
}

/// What a server was told to hold.
#[derive(Debug, Clone)]
struct Duty {
    shard: u32,
    /// It has loaded its shard and answers.
    serves: bool,
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

    fn serves(&self) -> bool {
        self.duty.as_ref().is_some_and(|duty| duty.serves)
    }
}

impl Coordinator {
    /// Starts servers that are or will be needed.
    pub(in crate::membership::coordinator) fn spawn_servers(&mut self) {
        let apart = &self.apart;
        let now = self.phase == Phase::Apart && apart.needs_servers(apart.protocol);
        let later = apart.upcoming.iter().any(|(_, protocol)| apart.needs_servers(*protocol));
        if !self.config.spawns || self.stopping || !(now || later) {
            return;
        }
        if apart.server_failures >= MAX_BOOT_FAILURES {
            if now && apart.servers.is_empty() {
                self.give_up("no parameter server comes up".into());
            }
            return;
        }
        let copies = if apart.plan.replica { 2 } else { 1 };
        for _ in apart.servers.len()..copies * apart.plan.servers.max(1) as usize {
            let server = self.next_worker();
            self.apart.servers.insert(server, Server { started_s: self.now_s, ..Server::default() });
            self.actions.push(Action::SpawnServer(server));
        }
    }

    /// A server opened its session.
    pub(in crate::membership::coordinator) fn server_attached(
        &mut self,
        server: WorkerId,
        address: String,
        process: u32,
    ) {
        self.last_worker = self.last_worker.max(server);
        self.by_hand.remove(&server);
        if self.apart.servers.get(&server).is_some_and(|known| known.attached) {
            self.server_gone(server, "it opened a new session");
        }
        self.apart.server_failures = 0;
        self.journal(Journal::ServerAttached { server, address: address.clone(), process });
        let (heard_s, started_s) = (self.now_s, self.now_s);
        self.apart.servers.insert(server, Server { address, heard_s, started_s, attached: true, duty: None });
    }

    /// Whether this is the number of a server.
    pub(in crate::membership::coordinator) fn is_server(&self, id: WorkerId) -> bool {
        self.apart.servers.contains_key(&id)
    }

    /// The numbers of all servers.
    pub(in crate::membership::coordinator) fn server_ids(&self) -> Vec<WorkerId> {
        self.apart.servers.keys().copied().collect()
    }

    /// A server said something.
    pub(in crate::membership::coordinator) fn server_said(&mut self, id: WorkerId, message: FromWorker) {
        let now_s = self.now_s;
        let Some(server) = self.apart.servers.get_mut(&id) else { return };
        server.heard_s = now_s;
        match message {
            FromWorker::Serving { epoch } if epoch == self.current.epoch => {
                let Some(duty) = &mut server.duty else { return };
                duty.serves = true;
                if let Some((since_s, lost_updates, step)) = duty.replaces.take() {
                    let shard = duty.shard;
                    self.took_over(id, shard, (lost_updates, Some(step)), since_s);
                }
            }
            FromWorker::ServerReport(report) if report.epoch == self.current.epoch => {
                self.apart.reports.insert(id, report);
            }
            FromWorker::Failed { what } => {
                self.journal(Journal::Warning { message: format!("server {id} cannot go on: {what}") });
                self.server_gone(id, &what);
            }
            _ => {}
        }
    }

    /// Gives shards that nobody holds to servers that are free. At the begin of a stretch (`from`) the replicas load
    /// first, so that those who forward to them find them.
    pub(super) fn assign(&mut self, from: Option<u64>) {
        let shards = self.apart.shards.len();
        if from.is_some() {
            for shard in 0..self.apart.replicas.len() {
                if self.apart.replicas[shard].is_none()
                    && let Some(id) = self.free_server()
                {
                    self.apart.replicas[shard] = Some(id);
                    self.charge(id, shard, Charge { checkpoint: from, follows: true, ..Charge::default() });
                }
            }
            let ready = |id: &Option<WorkerId>| id.is_some_and(|id| self.apart.servers[&id].serves());
            if !self.apart.replicas.iter().all(ready) {
                return;
            }
        }
        for shard in 0..shards {
            if self.apart.shards[shard].is_none()
                && let Some(id) = self.free_server()
            {
                self.apart.shards[shard] = Some(id);
                let replica = self.apart.replicas.get(shard).copied().flatten();
                let replica =
                    replica.map(|id| Peer { worker: id, address: self.apart.servers[&id].address.clone() });
                let step = from.or(self.checkpoint).unwrap_or(0);
                let done = self.apart.clerk.watermark() + self.apart.clerk.done_above().len() as u64;
                let lost = done.saturating_sub(step * self.apart.per_step);
                let replaces = from.is_none().then_some((self.apart.idle_since_s, lost, step));
                let charge = Charge { replica, checkpoint: Some(step), replaces, follows: false };
                self.charge(id, shard, charge);
            }
        }
    }

    fn free_server(&self) -> Option<WorkerId> {
        self.apart.servers.iter().find(|(_, server)| server.is_free()).map(|(id, _)| *id)
    }

    fn charge(&mut self, id: WorkerId, shard: usize, charge: Charge) {
        let shard = shard as u32;
        let Charge { replica, checkpoint, replaces, follows } = charge;
        if let Some(server) = self.apart.servers.get_mut(&id) {
            server.duty = Some(Duty { shard, serves: false, replaces });
        }
        let training = matches!(self.apart.part, Part::Training | Part::Collecting { .. });
        let serve = Serve {
            epoch: self.current.epoch,
            shard,
            shards: self.apart.shards.len() as u32,
            protocol: self.apart.protocol,
            step: if training { self.apart.clerk.steps_complete() } else { checkpoint.unwrap_or(0) },
            checkpoint,
            trainee: self.trainee.clone().unwrap_or_default(),
            replica,
            follows,
            order: self.apart.plan.order.clone(),
        };
        self.send(id, ToWorker::Serve(serve));
    }

    /// Whether every shard is held.
    pub(super) fn are_served(&self) -> bool {
        let served = |id: &Option<WorkerId>| id.is_some_and(|id| self.apart.servers[&id].serves());
        self.apart.shards.iter().all(served)
    }

    /// A server's session broke or its process ended.
    pub(in crate::membership::coordinator) fn server_gone(&mut self, id: WorkerId, why: &str) {
        let Some(server) = self.apart.servers.remove(&id) else { return };
        self.actions.push(Action::Close(id));
        if !server.attached {
            self.apart.server_failures += 1;
            let message = format!("server {id} did not come up: {why}");
            return self.journal(Journal::Warning { message });
        }
        self.apart.replicas.iter_mut().filter(|replica| **replica == Some(id)).for_each(|r| *r = None);
        let Some(place) = self.apart.shards.iter().position(|holder| *holder == Some(id)) else { return };
        let (shard, step) = (place as u32, self.progress.committed());
        self.journal(Journal::ServerCrashed { server: id, shard, step, evidence: why.into() });
        self.barren_crashes += 1;
        self.apart.idle_since_s = self.now_s;
        self.apart.shards[place] = None;
        // Only one that has loaded can take over; before that the shard is loaded anew.
        let replica = self.apart.replicas.get_mut(place).and_then(Option::take);
        if matches!(self.apart.part, Part::Training | Part::Collecting { .. })
            && let Some(replica) = replica
        {
            self.apart.shards[place] = Some(replica);
            self.took_over(replica, shard, (0, None), self.now_s);
        } else if let Some(replica) = replica {
            self.apart.replicas[place] = Some(replica);
        }
    }

    /// A shard is held again: everyone is told where.
    fn took_over(&mut self, id: WorkerId, shard: u32, lost: (u64, Option<u64>), since_s: f64) {
        let (lost_updates, checkpoint) = lost;
        let seconds = self.now_s - since_s;
        self.journal(Journal::ServerReplaced { server: id, shard, lost_updates, checkpoint, seconds });
        for worker in self.staged(Stage::Active).into_iter().chain(self.staged(Stage::Leaving)) {
            self.send_stretch(worker);
        }
        if let Part::Collecting { step } = self.apart.part {
            let epoch = self.current.epoch;
            self.send(id, ToWorker::HandOver { epoch, step });
        }
    }

    /// Servers that have been silent for too long.
    pub(in crate::membership::coordinator) fn check_servers(&mut self) {
        let (now_s, heartbeat_s, boot_s) =
            (self.now_s, self.config.heartbeat_timeout_s, self.config.boot_timeout_s);
        let late = |server: &Server| match server.attached {
            true => now_s - server.heard_s > heartbeat_s,
            false => now_s - server.started_s > boot_s,
        };
        let silent: Vec<WorkerId> =
            self.apart.servers.iter().filter(|(_, s)| late(s)).map(|(id, _)| *id).collect();
        for id in silent {
            self.server_gone(id, "it was silent for too long");
        }
    }
}
