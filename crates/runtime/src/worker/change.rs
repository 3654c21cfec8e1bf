//! A worker takes another membership into use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::links::{Fault, Preparation};
use super::session::Event;
use super::{Worker, engine};
use crate::channel::{ConnectionKind, Stream};
use crate::membership::{FromWorker, Load, Membership};

impl Worker {
    /// Connects to new peers, and makes the memory that a larger share needs, on a thread of its own.
    pub(super) fn prepare(&mut self, membership: Membership) {
        let (connector, mailbox) = (self.connector.clone(), Arc::clone(&self.connection.mailbox));
        let mut buffers = self.engine.lacking_buffers(&membership);
        if buffers.is_empty() && membership.new_peers(connector.me).is_empty() {
            // Nothing is to be made, so the collective of this step can say so, not only that of the next.
            self.prepared.push((membership.epoch, Preparation::default()));
            let effects = self.member.prepared(membership, Ok(()));
            return self.carry_out(effects);
        }
        // Members look at their mail between steps only.
        let patience = self.engine.mesh.patience();
        let connect = move || {
            let peers = membership.new_peers(connector.me);
            // Memory that was never written to is slow at its first use, and the others would wait for it.
            buffers.iter_mut().for_each(|buffer| buffer.fill(1.0));
            let links = connector.connect(&membership, &peers, patience, &|| mailbox.urgent());
            let preparation = links
                .map(|links| Preparation { links, buffers })
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
        if load.is_some() {
            self.reporter.forget();
        }
        let loaded = match load.map(|load| self.load(membership.epoch, load)).transpose() {
            Ok(loaded) => loaded,
            Err(why) => {
                let effects = self.member.formed(membership.epoch, None, Err((None, why.to_string())));
                return self.carry_out(effects);
            }
        };
        let peers = membership.peers(self.connector.me);
        let result = self
            .connect_now(membership, &peers)
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
        let mailbox = &self.connection.mailbox;
        let links = self.connector.connect(membership, peers, Duration::ZERO, &|| mailbox.urgent())?;
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

    /// Connects those behind to the source of the last result, where they do not exchange with it anyway.
    pub(super) fn connect_behind(&mut self, source: u64, behind: &[u64]) -> Result<(), engine::Fault> {
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

    /// Takes the prepared connections of a planned membership into use.
    pub(super) fn switch(&mut self, membership: &Membership) {
        let me = self.connector.me;
        let was_member = self.member.is_active();
        let place = self.prepared.iter().position(|(epoch, _)| *epoch == membership.epoch);
        let Preparation { links, buffers } =
            place.map(|p| self.prepared.swap_remove(p).1).unwrap_or_default();
        self.engine.accumulator.give(buffers);
        self.prepared.retain(|(epoch, _)| *epoch > membership.epoch);
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
