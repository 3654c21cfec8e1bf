//! Runs one collective: a loop over nonblocking connections, in the calling thread.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::record::Traffic;

use super::CollectiveError;
use super::peer::{Fault, Peer, Step, place_range, received_length};
use super::plan::CollectivePlan;
use super::waiting::{look, wait};
use super::wake::WakeReceiver;
use crate::frame::{CONTROL_BYTES_MAX, Stamp};
use crate::mesh::{Link, Mesh};
use crate::progress::Progress;

/// Rounds over all peers between two looks at the waker while data keep flowing.
const ROUNDS_PER_LOOK: u32 = 64;

/// What a collective leaves besides the sum.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Control bytes of every member, by rank; a member's own included.
    pub headers: Vec<Vec<u8>>,
    /// Shadows that were given up in this collective; their connections are not usable any more.
    pub dead_shadows: Vec<u64>,
    /// What was moved, by peer.
    pub traffic: Vec<Traffic>,
}

/// One worker's side of the collectives of one plan, with the buffers they need.
///
/// A worker may keep several (of other vector lengths) over the same [`Mesh`], as long as all workers
/// of the epoch run them in the same order.
#[derive(Debug)]
pub struct Collective {
    plan: CollectivePlan,
    peers: Vec<Peer>,
    /// Contributions received, by rank; empty for this worker's own rank.
    received: Vec<Vec<f32>>,
    /// Blocks of the reduction.
    blocks: Vec<f32>,
    /// For each input of the reduction: the rank that holds it, and which of its partial sums it is.
    inputs: Vec<(usize, usize)>,
}

impl Collective {
    /// Allocates what collectives of this plan need.
    ///
    /// In bulk mode that is a few pieces of each peer's partial sums, whatever the vector's length; in
    /// small mode the small vectors of all members.
    pub fn new(plan: CollectivePlan) -> Collective {
        let workers = plan.members.len();
        // Start with the next rank, so that not all members begin with the same peer.
        let first = plan.rank.map_or(0, |rank| rank + 1);
        let ranks = (0..workers).map(|offset| (first + offset) % workers);
        let mut peers: Vec<Peer> = ranks
            .filter(|rank| Some(*rank) != plan.rank)
            .map(|rank| Peer::new(plan.members[rank].worker, Some(rank)))
            .collect();
        if plan.rank.is_some() {
            peers.extend(plan.shadows.iter().map(|worker| Peer::new(*worker, None)));
        }
        let received = |rank| match plan.rank == Some(rank) {
            true => Vec::new(),
            false => vec![0.0; received_length(&plan, rank)],
        };
        let received = (0..workers).map(received).collect();
        let inputs = (0..workers).flat_map(|rank| (0..plan.partials[rank]).map(move |i| (rank, i))).collect();
        let blocks = vec![0.0; plan.reduction.scratch_length()];
        Collective { peers, received, blocks, inputs, plan }
    }

    /// The plan it runs.
    pub fn plan(&self) -> &CollectivePlan {
        &self.plan
    }

    /// Waits another time than [`SHADOW_PATIENCE`](super::SHADOW_PATIENCE) for shadows that do not read.
    pub fn set_shadow_patience(&mut self, patience: Duration) {
        self.plan.shadow_patience = patience;
    }

    /// Takes part as a member: contributes `partials`, writes the canonical sum to `out`.
    ///
    /// - `stamp`: the same on all workers; every frame carries it.
    /// - `header`: at most [`CONTROL_BYTES_MAX`] control bytes, given to every member and shadow.
    /// - `partials`: one slice of the plan's length per maximal node of this member's range.
    /// - `out`: the plan's length; holds its old values until all members have contributed.
    ///
    /// # Errors
    ///
    /// Returns [`CollectiveError`]; `out` may then be partly overwritten. Keep the mesh open until all workers know of
    /// the fault: a worker that closes it earlier looks dead to the others.
    ///
    /// # Panics
    ///
    /// If this worker is a shadow of the plan, or a length is not as above.
    pub fn run(
        &mut self,
        mesh: &mut Mesh,
        stamp: Stamp,
        header: &[u8],
        partials: &[&[f32]],
        out: &mut [f32],
        wake: &WakeReceiver,
    ) -> Result<Outcome, CollectiveError> {
        let rank = self.plan.rank.expect("a shadow receives");
        assert!(header.len() <= CONTROL_BYTES_MAX, "control bytes have a limit");
        if self.plan.length > 0 {
            assert_eq!(partials.len(), self.plan.partials[rank], "one partial sum per maximal node");
        }
        let right_length = |partial: &&[f32]| partial.len() == self.plan.length;
        assert!(partials.iter().all(right_length), "partial sums have the plan's length");
        self.exchange(mesh, stamp, header, partials, out, wake)
    }

    /// Takes part as a shadow: contributes nothing, writes the canonical sum to `out`.
    ///
    /// # Errors
    ///
    /// Same errors as [`run`](Collective::run).
    ///
    /// # Panics
    ///
    /// If this worker is a member of the plan, or `out` is not of the plan's length.
    pub fn receive(
        &mut self,
        mesh: &mut Mesh,
        stamp: Stamp,
        out: &mut [f32],
        wake: &WakeReceiver,
    ) -> Result<Outcome, CollectiveError> {
        assert!(self.plan.rank.is_none(), "a member contributes");
        self.exchange(mesh, stamp, &[], &[], out, wake)
    }

    fn exchange(
        &mut self,
        mesh: &mut Mesh,
        stamp: Stamp,
        control: &[u8],
        partials: &[&[f32]],
        out: &mut [f32],
        wake: &WakeReceiver,
    ) -> Result<Outcome, CollectiveError> {
        assert_eq!(out.len(), self.plan.length, "the output has the plan's length");
        for peer in &mut self.peers {
            peer.reset();
        }
        let Collective { plan, peers, received, blocks, inputs } = self;
        let step = Step { plan, stamp, control, partials, reduced: 0, began: Instant::now() };
        let progress = mesh.progress.clone();
        let links = connect(peers, mesh, plan.buffer_bytes())?;
        let mut exchange = Exchange { step, peers, links, received, blocks, inputs, out, progress };
        exchange.run(wake)?;
        Ok(self.outcome(control))
    }

    fn outcome(&mut self, control: &[u8]) -> Outcome {
        let mut headers = vec![Vec::new(); self.plan.members.len()];
        let mut dead_shadows = Vec::new();
        let traffic = self.peers.iter().filter(|peer| peer.alive).map(|peer| peer.traffic).collect();
        if let Some(rank) = self.plan.rank {
            headers[rank] = control.to_vec();
        }
        for peer in &mut self.peers {
            match peer.rank {
                Some(rank) => headers[rank] = std::mem::take(&mut peer.control),
                None if !peer.alive => dead_shadows.push(peer.worker),
                None => {}
            }
        }
        Outcome { headers, dead_shadows, traffic }
    }
}

/// The connections of `peers`, in their order. A shadow without one is dead.
fn connect<'m>(
    peers: &mut [Peer],
    mesh: &'m mut Mesh,
    buffer_bytes: Option<usize>,
) -> Result<Vec<Option<&'m mut Link>>, CollectiveError> {
    let mut links: Vec<Option<&mut Link>> = Vec::new();
    links.resize_with(peers.len(), || None);
    for (worker, link) in mesh.links_mut() {
        if let Some(index) = peers.iter().position(|peer| peer.worker == worker) {
            if let Some(bytes) = buffer_bytes {
                link.limit_buffers(bytes);
            }
            links[index] = Some(link);
        }
    }
    for (peer, link) in peers.iter_mut().zip(&mut links) {
        match (link, peer.rank) {
            (None, Some(_)) => return Err(lost(peer.worker, "there is no connection to it")),
            (None, None) => peer.alive = false,
            // A write to a lane fails at no dead shadow, and no member waits for one.
            (Some(link), None) => peer.alive = !(link.conduit.lane.is_some() && link.conduit.hear()),
            (Some(_), Some(_)) => {}
        }
    }
    Ok(links)
}

fn lost(worker: u64, why: impl ToString) -> CollectiveError {
    CollectiveError::PeerLost { worker, why: why.to_string() }
}

/// A collective in progress.
struct Exchange<'a, 'm> {
    step: Step<'a>,
    peers: &'a mut [Peer],
    links: Vec<Option<&'m mut Link>>,
    received: &'a mut [Vec<f32>],
    blocks: &'a mut [f32],
    inputs: &'a [(usize, usize)],
    out: &'a mut [f32],
    progress: Option<Arc<Progress>>,
}

impl Exchange<'_, '_> {
    fn run(&mut self, wake: &WakeReceiver) -> Result<(), CollectiveError> {
        // Set when only shadows are left to be served.
        let mut patience_ends: Option<Instant> = None;
        let mut rounds = 0;
        let mut moved = false;
        loop {
            let mut progressed = self.send()?;
            progressed |= self.receive()?;
            progressed |= self.reduce();
            if self.members_are_served() {
                if self.shadows_are_served() {
                    return Ok(());
                }
                let now = Instant::now();
                let end = *patience_ends.get_or_insert(now + self.step.plan.shadow_patience);
                if now >= end {
                    self.give_up_shadows();
                    return Ok(());
                }
            }
            rounds += 1;
            moved |= progressed;
            if moved && (!progressed || rounds % ROUNDS_PER_LOOK == 0) {
                moved = false;
                if let Some(progress) = &self.progress {
                    progress.moved();
                }
            }
            if !progressed {
                let Exchange { step, peers, links, progress, .. } = self;
                wait(step, peers, links, (wake, patience_ends), progress.as_deref())?;
            } else if rounds % ROUNDS_PER_LOOK == 0 {
                look(wake)?;
            }
        }
    }

    fn send(&mut self) -> Result<bool, CollectiveError> {
        let mut progressed = false;
        for (peer, link) in self.peers.iter_mut().zip(&mut self.links) {
            let Some(link) = link else { continue };
            if peer.writable && peer.wants_to_send(&self.step) {
                match peer.send(link, &self.step, self.out) {
                    Ok(sent) => progressed |= sent,
                    Err(fault) => progressed |= give_up(peer, &fault)?,
                }
            }
        }
        Ok(progressed)
    }

    fn receive(&mut self) -> Result<bool, CollectiveError> {
        let mut progressed = false;
        for (peer, link) in self.peers.iter_mut().zip(&mut self.links) {
            let (Some(link), Some(rank)) = (link, peer.rank) else { continue };
            match peer.receive(link, &self.step, &mut self.received[rank], self.out) {
                Ok(received) => progressed |= received,
                Err(fault) => progressed |= give_up(peer, &fault)?,
            }
        }
        Ok(progressed)
    }

    /// Reduces the next piece if it has come from every member.
    fn reduce(&mut self) -> bool {
        let plan = self.step.plan;
        let index = self.step.reduced;
        let Some(segment) = plan.reduced_rank() else { return false };
        let missing = |peer: &Peer| peer.rank.is_some() && peer.contributions_received <= index;
        if index == plan.pieces_to_reduce() || self.peers.iter().any(missing) {
            return false;
        }
        let piece = plan.piece_range(segment, index);
        let (received, partials, inputs) = (&*self.received, self.step.partials, self.inputs);
        let input = |input: usize, range: Range<usize>| {
            let (rank, partial) = inputs[input];
            if plan.rank == Some(rank) {
                return &partials[partial][piece.start + range.start..piece.start + range.end];
            }
            let received = &received[rank];
            let start = place_range(plan, rank, index, received.len()).start + partial * piece.len();
            &received[start + range.start..start + range.end]
        };
        plan.reduction.run(input, self.blocks, &mut self.out[piece.clone()]);
        self.step.reduced += 1;
        true
    }

    /// Whether the result is here and every member has what it needs of this worker.
    fn members_are_served(&self) -> bool {
        let plan = self.step.plan;
        let served = |peer: &Peer| peer.has_received(plan) && peer.has_sent(plan);
        self.step.reduced == plan.pieces_to_reduce()
            && self.peers.iter().filter(|peer| peer.rank.is_some()).all(served)
    }

    fn shadows_are_served(&self) -> bool {
        self.peers.iter().all(|peer| peer.rank.is_some() || !peer.alive || peer.has_sent(self.step.plan))
    }

    fn give_up_shadows(&mut self) {
        for peer in self.peers.iter_mut().filter(|peer| peer.rank.is_none()) {
            peer.alive &= peer.has_sent(self.step.plan);
        }
    }
}

/// A fault of a shadow is its own; that of a member ends the collective.
fn give_up(peer: &mut Peer, fault: &Fault) -> Result<bool, CollectiveError> {
    if peer.rank.is_some() {
        return Err(lost(peer.worker, fault));
    }
    peer.alive = false;
    Ok(true)
}
