//! Simulated servers: a shard each, as the units that were applied to it.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::Staleness;
use bellwether_runtime::membership::{FromWorker, Serve, ServerReport, ToWorker, WorkerId};

use super::world::{Trade, World};

/// A server process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    pub(crate) duty: Option<Duty>,
}

/// What it holds.
#[derive(Debug, Clone)]
pub(crate) struct Duty {
    pub(crate) epoch: u64,
    pub(crate) shard: u32,
    pub(crate) protocol: Protocol,
    /// Whom it forwards to, while that is reachable.
    pub(crate) replica: Option<WorkerId>,
    /// Applied units.
    pub(crate) units: u64,
    /// Units of the step that is gathered, where all wait for all.
    pub(crate) gathered: u64,
    /// Complete steps, where all wait for all.
    pub(crate) step: u64,
    /// Units below it count as applied, whatever became of them.
    pub(crate) watermark: u64,
    pub(crate) version: u64,
}

impl World {
    fn server(&mut self, id: WorkerId) -> Option<&mut Server> {
        let process = self.processes.get_mut(&id).filter(|process| process.alive)?;
        match &mut process.trade {
            Trade::Server(server) => Some(server),
            Trade::Worker(_) => None,
        }
    }

    /// What a server holds for this phase.
    pub(crate) fn duty(&mut self, id: WorkerId, epoch: u64) -> Option<&mut Duty> {
        self.server(id)?.duty.as_mut().filter(|duty| duty.epoch == epoch)
    }

    pub(crate) fn server_hears(&mut self, id: WorkerId, message: ToWorker) {
        match message {
            ToWorker::Serve(serve) => self.serve(id, &serve),
            ToWorker::HandOver { epoch, step } => self.hand_over(id, epoch, step),
            other => self.violate(format!("server {id} is told {other:?}")),
        }
    }

    fn serve(&mut self, id: WorkerId, serve: &Serve) {
        // Its connections break with what it held before.
        self.forget_links(id);
        let Some(server) = self.server(id) else { return };
        server.duty = None;
        let step = serve.checkpoint.unwrap_or(0);
        let Some(state) = self.state_after(step) else {
            return self.violate(format!("server {id} is to load step {step}, which is nowhere"));
        };
        let per_step = self.plan.per_step;
        let duty = Duty {
            epoch: serve.epoch,
            shard: serve.shard,
            protocol: serve.protocol,
            replica: None,
            units: state[serve.shard as usize],
            gathered: 0,
            step: serve.step,
            watermark: serve.step * per_step,
            version: 0,
        };
        let replica = serve.replica.as_ref().map(|peer| peer.worker);
        if let Some(replica) = replica {
            let known = self.duty(replica, serve.epoch).is_some_and(|duty| duty.shard == serve.shard);
            if !known {
                return self.say(id, FromWorker::Failed { what: "no replica".into() });
            }
        }
        let Some(server) = self.server(id) else { return };
        server.duty = Some(Duty { replica, ..duty });
        self.say(id, FromWorker::Serving { epoch: serve.epoch });
    }

    /// A primary that forwards to this server goes on without.
    pub(crate) fn forget_links(&mut self, replica: WorkerId) {
        let forwards = |trade: &Trade| match trade {
            Trade::Server(Server { duty: Some(duty) }) => duty.replica == Some(replica),
            _ => false,
        };
        let primary = self.processes.iter().find(|(_, p)| p.alive && forwards(&p.trade)).map(|(id, _)| *id);
        let Some(primary) = primary else { return };
        let Some(duty) = self.server(primary).and_then(|server| server.duty.as_mut()) else { return };
        duty.replica = None;
        let (epoch, shard) = (duty.epoch, duty.shard);
        self.say(primary, FromWorker::ServerLost { epoch, shard, why: "its replica is gone".into() });
    }

    /// A worker's gradient of a unit reaches a server; whether it was acknowledged.
    pub(crate) fn push(&mut self, id: WorkerId, epoch: u64, shard: u32, unit: u64, pulled: u64) -> bool {
        let per_step = self.plan.per_step;
        let Some(duty) = self.duty(id, epoch).filter(|duty| duty.shard == shard) else { return false };
        let bit = 1u64 << unit;
        if duty.protocol == Protocol::Bsp {
            if unit / per_step > duty.step {
                return false;
            }
            if unit / per_step == duty.step {
                duty.gathered |= bit;
                let step = ((1u64 << per_step) - 1) << (duty.step * per_step);
                if duty.gathered == step {
                    (duty.units, duty.gathered, duty.step) = (duty.units | step, 0, duty.step + 1);
                }
            }
        } else if unit >= duty.watermark && duty.units & bit == 0 {
            duty.units |= bit;
            duty.version += 1;
            let staleness = (duty.version - 1).saturating_sub(pulled);
            let largest = self.watch.largest_staleness.entry(epoch).or_default();
            *largest = staleness.max(*largest);
        }
        self.watch.applied += 1;
        let Some(duty) = self.duty(id, epoch).cloned() else { return false };
        // The replica has it before the worker hears.
        if let Some(replica) = duty.replica
            && let Some(copy) = self.duty(replica, epoch)
        {
            *copy = Duty { replica: None, ..duty };
        }
        true
    }

    fn hand_over(&mut self, id: WorkerId, epoch: u64, step: u64) {
        let Some(duty) = self.duty(id, epoch).cloned() else { return };
        let report = ServerReport { epoch, staleness: Staleness::default(), ..ServerReport::default() };
        self.say(id, FromWorker::ServerReport(ServerReport { handed_over: Some(step), ..report }));
        let Some((_, holders, parts)) = self.collecting.as_mut().filter(|(at, ..)| *at == step) else {
            return;
        };
        let Some(place) = holders.iter().position(|holder| *holder == id) else { return };
        if place != duty.shard as usize || duty.gathered != 0 {
            return self
                .violate(format!("server {id} hands over {duty:?} as shard {place} after step {step}"));
        }
        parts[place] = Some(duty.units);
        if parts.iter().all(Option::is_some) {
            let state = parts.iter_mut().filter_map(Option::take).collect();
            self.collected(step, state);
        }
    }
}
