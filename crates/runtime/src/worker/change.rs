//! A worker takes another membership into use.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::links::{Fault, Preparation};
use super::report::record;
use super::session::Event;
use super::{Worker, engine};
use crate::channel::{ConnectionKind, Stream};
use crate::membership::{FLOOR_BYTES_PER_S, FromWorker, Load, Membership, StepRecord};
use crate::transfer::read;

impl Worker {
    /// Connects to new peers, and makes the memory that a larger share needs, on a thread of its own.
    pub(super) fn prepare(&mut self, membership: Membership) {
        let (connector, mailbox) = (self.connector.clone(), Arc::clone(&self.connection.mailbox));
        let mut buffers = self.engine.lacking_buffers(&membership);
        let lacking = self.engine.lacking_part(&membership);
        if buffers.is_empty() && lacking == 0 && membership.new_peers(connector.me).is_empty() {
            // Nothing is to be made, so the collective of this step can say so, not only that of the next.
            self.prepared.push((membership.epoch, Preparation::default()));
            let effects = self.member.prepared(membership, Ok(()));
            return self.carry_out(effects);
        }
        // Those who have long been members look at their mail between steps only.
        let patience = self.engine.mesh.patience();
        let connect = move || {
            let peers = membership.new_peers(connector.me);
            // Memory that was never written to is slow at its first use, and the others would wait for it.
            buffers.iter_mut().for_each(|buffer| buffer.fill(1.0));
            let part = vec![1.0; lacking];
            let new = |peer| membership.shadows(peer) || membership.promoted.contains(&peer);
            let patience = |peer| if new(peer) { Duration::ZERO } else { patience };
            let links = connector.connect(&membership, &peers, patience, &|| mailbox.urgent());
            let preparation = links
                .map(|links| Preparation { links, buffers, part })
                .map_err(|(peer, why)| (peer.unwrap_or(0), why));
            mailbox.put(Event::Prepared(membership, preparation));
        };
        if let Err(error) = std::thread::Builder::new().name("prepare".into()).spawn(connect) {
            self.connection.say(FromWorker::Failed { what: format!("cannot start a thread: {error}") });
        }
    }

    pub(super) fn form(&mut self, membership: &Membership, load: Option<Load>) {
        self.leave_asynchronous();
        self.engine.mesh.clear();
        self.prepared.clear();
        self.connector.inbox.discard_below(ConnectionKind::Mesh, membership.epoch);
        self.connector.inbox.discard_below(ConnectionKind::State, membership.epoch);
        let mut patience = Duration::ZERO;
        if load.is_some() {
            self.reporter.forget();
            // The others load, too, and some of them over a slower link. The coordinator knows who has died meanwhile.
            patience = Duration::from_secs_f64(read(&self.engine.state).bytes() as f64 / FLOOR_BYTES_PER_S);
        }
        let loaded = match load.map(|load| self.load(membership, load)).transpose() {
            Ok(loaded) => loaded,
            Err(why) => {
                let effects = self.member.formed(membership.epoch, None, Err((None, why.to_string())));
                return self.carry_out(effects);
            }
        };
        let peers = membership.peers(self.connector.me);
        let result = self
            .connect_within(patience, membership, &peers)
            .and_then(|()| self.engine.adopt(membership).map_err(|error| (None, error.to_string())));
        self.flush();
        self.prepare_slices();
        let effects = self.member.formed(membership.epoch, loaded, result);
        self.carry_out(effects);
        self.reporter.urgent();
        self.boundary = Instant::now();
    }

    /// Connects to peers who do the same now.
    pub(super) fn connect_now(
        &mut self,
        membership: &Membership,
        peers: &[(u64, &str)],
    ) -> Result<(), Fault> {
        self.connect_within(Duration::ZERO, membership, peers)
    }

    /// The same with peers who may do so later by this time.
    fn connect_within(
        &mut self,
        patience: Duration,
        membership: &Membership,
        peers: &[(u64, &str)],
    ) -> Result<(), Fault> {
        let mailbox = &self.connection.mailbox;
        let links = self.connector.connect(membership, peers, |_| patience, &|| mailbox.urgent())?;
        self.take_links(links.mesh)
    }

    /// Connects to those with whom the members before did not exchange, though both took part: which it was
    /// could not be known earlier.
    fn connect_lacking(&mut self, membership: &Membership) -> Result<(), Fault> {
        let me = self.connector.me;
        let before = self.member.membership();
        if membership.rank(me).is_none() || !before.contains(me) {
            return Ok(());
        }
        let mut lacking = membership.peers(me);
        lacking.retain(|(peer, _)| {
            let both = membership.rank(*peer).is_some() && before.contains(*peer);
            both && self.engine.mesh.get(*peer).is_none()
        });
        if lacking.is_empty() { Ok(()) } else { self.connect_now(membership, &lacking) }
    }

    /// After a recovery: members that are behind receive the last result, and where all share the optimizer's state
    /// they get what they hold from now on and others held.
    pub(super) fn catch_up(&mut self, source: u64, behind: &[u64], steps: Range<u64>) {
        let step = steps.end;
        match self.hand_on(source, behind, steps.clone()) {
            Ok(applied) => {
                if let Some(applied) = applied {
                    self.reporter.step(record(&steps, &applied, StepRecord::default()));
                }
                self.member.caught_up_with_result();
                self.note_held();
                self.reporter.urgent();
            }
            Err(fault) => return self.fault(fault),
        }
        let membership = self.member.membership();
        let active: Vec<u64> = membership.active.iter().map(|member| member.worker).collect();
        if let Err(fault) = self.engine.settle(step, membership, &active) {
            self.fault(fault);
        }
    }

    fn hand_on(
        &mut self,
        source: u64,
        behind: &[u64],
        steps: Range<u64>,
    ) -> Result<Option<engine::Applied>, engine::Fault> {
        let concerned = behind.contains(&self.connector.me) || self.connector.me == source;
        if behind.is_empty() || !concerned {
            return Ok(None);
        }
        self.connect_behind(source, behind)?;
        self.engine.catch_up(steps, source, behind)
    }

    /// Connects those behind to the source of the last result, where they do not exchange with it anyway.
    fn connect_behind(&mut self, source: u64, behind: &[u64]) -> Result<(), engine::Fault> {
        let me = self.connector.me;
        let membership = self.member.membership().clone();
        let concerned = |id: u64| if me == source { behind.contains(&id) } else { id == source };
        let lacking = |id: u64| id != me && concerned(id) && self.engine.mesh.get(id).is_none();
        let members = membership.active.iter().filter(|member| lacking(member.worker));
        let peers: Vec<_> = members.map(|member| (member.worker, member.address.as_str())).collect();
        if peers.is_empty() {
            return Ok(());
        }
        self.connect_now(&membership, &peers).map_err(|(peer, why)| engine::Fault::Collective(peer, why))
    }

    pub(super) fn take_links(&mut self, links: Vec<(u64, Stream)>) -> Result<(), Fault> {
        for (peer, stream) in links {
            self.engine.mesh.insert(peer, stream).map_err(|e| (Some(peer), e.to_string()))?;
        }
        Ok(())
    }

    /// Where the members share the optimizer's state, and others are members from now on: over the connections of the
    /// membership so far, which those who leave take part in.
    fn settle_before(&mut self, membership: &Membership) -> Result<(), engine::Fault> {
        let before = self.member.membership().clone();
        let workers = |membership: &Membership| -> BTreeSet<u64> {
            membership.active.iter().map(|member| member.worker).collect()
        };
        let active = workers(membership);
        if self.engine.sharded.is_none() || workers(&before) == active {
            return Ok(());
        }
        let active: Vec<u64> = active.into_iter().collect();
        self.engine.settle(self.member.step(), &before, &active)
    }

    /// Takes the prepared connections of a planned membership into use.
    pub(super) fn switch(&mut self, membership: &Membership) {
        let me = self.connector.me;
        let was_member = self.member.is_active();
        let place = self.prepared.iter().position(|(epoch, _)| *epoch == membership.epoch);
        let Preparation { links, buffers, part } =
            place.map(|p| self.prepared.swap_remove(p).1).unwrap_or_default();
        self.engine.accumulator.give(buffers);
        self.engine.give_part(part);
        self.prepared.retain(|(epoch, _)| *epoch > membership.epoch);
        if let Err(fault) = self.settle_before(membership) {
            return self.fault(fault);
        }
        let mut incoming_streams = Vec::new();
        if membership.shadows(me) {
            self.engine.mesh.clear();
            incoming_streams = links.state.into_iter().map(|(_, stream)| stream).collect();
        } else {
            self.send_state(membership, links.state);
        }
        let peers: BTreeSet<u64> = membership.peers(me).into_iter().map(|(peer, _)| peer).collect();
        let gone: Vec<u64> = self.engine.mesh.workers().filter(|w| !peers.contains(w)).collect();
        for worker in gone {
            self.engine.mesh.remove(worker);
        }
        let result = self
            .take_links(links.mesh)
            .and_then(|()| self.connect_lacking(membership))
            .and_then(|()| self.engine.adopt(membership).map_err(|error| (None, error.to_string())));
        self.member.switched(membership.clone());
        if membership.shadows(me) {
            self.receive_state(incoming_streams);
        }
        if let Err((peer, why)) = result {
            let effects = self.member.failed(membership.epoch, peer, why);
            self.carry_out(effects);
        }
        if membership.rank(me).is_some() {
            self.switch = Some((membership.epoch, was_member));
        }
        self.prepare_slices();
        self.note_held();
        self.reporter.urgent();
    }
}
