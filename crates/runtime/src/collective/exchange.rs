//! Runs one collective: a loop over nonblocking connections, in the calling thread.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::record::{LinkKind, Traffic};

use super::CollectiveError;
use super::feed::{Fed, Feed};
use super::inputs::{Inputs, Kept};
use super::lent::Lent;
use super::peer::{Fault, Peer, received_length};
use super::plan::{CollectivePlan, Mode};
use super::reduce::Reduction;
use super::route::Route;
use super::step::{Own, Step, Values};
use super::waiting::{look, wait};
use super::wake::WakeReceiver;
use crate::frame::{CONTROL_BYTES_MAX, Stamp};
use crate::mesh::{Link, Mesh};
use crate::progress::Progress;

mod sums;

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

/// What a worker brings to a collective.
struct Input<'a> {
    control: Option<Cow<'a, [u8]>>,
    own: Own<'a>,
    /// Where the rest of both comes from.
    feed: Option<Feed<'a>>,
}

/// One worker's side of the collectives of one plan, with the buffers they need.
///
/// A worker may keep several (of other vector lengths) over the same [`Mesh`], as long as all workers
/// of the epoch run them in the same order.
#[derive(Debug)]
pub struct Collective {
    plan: CollectivePlan,
    peers: Vec<Peer>,
    /// Contributions received from each peer.
    received: Vec<Vec<f32>>,
    /// The group's sums on their way to others.
    kept: Kept,
    /// Blocks of the reductions.
    blocks: Vec<f32>,
    inputs: Inputs,
}

impl Collective {
    /// Allocates what collectives of this plan need.
    ///
    /// In bulk mode that is a few pieces of each peer's partial sums, whatever the vector's length; in
    /// small mode the small vectors of all members.
    pub fn new(plan: CollectivePlan) -> Collective {
        let peer = |(route, peer): (usize, &Route)| Peer::new(peer.worker, peer.rank, route);
        let peers = plan.routes.iter().enumerate().map(peer).collect();
        let received = |route: &Route| vec![0.0; received_length(&plan, &route.from)];
        let received = plan.routes.iter().map(received).collect();
        let kept = Kept::of(&plan);
        let reductions = plan.within.iter().chain([&plan.across]);
        let blocks = vec![0.0; reductions.map(Reduction::scratch_length).max().unwrap_or(0)];
        Collective { peers, received, kept, blocks, inputs: Inputs::of(&plan), plan }
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
        let rank = self.plan.rank().expect("a shadow receives");
        assert!(header.len() <= CONTROL_BYTES_MAX, "control bytes have a limit");
        if self.plan.length > 0 {
            assert_eq!(partials.len(), self.plan.partials[rank], "one partial sum per maximal node");
        }
        let right_length = |partial: &&[f32]| partial.len() == self.plan.length;
        assert!(partials.iter().all(right_length), "partial sums have the plan's length");
        let input = Input { control: Some(Cow::Borrowed(header)), own: Own::Whole(partials), feed: None };
        self.exchange(mesh, stamp, input, out, wake)
    }

    /// As [`run`](Collective::run), with partial sums that come while others are still computed, and control bytes
    /// after them. What is ready travels at once. The other members need not do the same.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Collective::run); [`CollectiveError::Interrupted`] also if the other end of `feed` was dropped
    /// too early.
    ///
    /// # Panics
    ///
    /// If this worker is a shadow of the plan, a length is not as above, or the buckets that were handed over are not
    /// those of the plan.
    pub fn run_fed(
        &mut self,
        mesh: &mut Mesh,
        stamp: Stamp,
        feed: Feed<'_>,
        out: &mut [f32],
        wake: &WakeReceiver,
    ) -> Result<Outcome, CollectiveError> {
        assert!(self.plan.rank().is_some(), "a shadow receives");
        let input = Input { control: None, own: Own::Buckets(Vec::new()), feed: Some(feed) };
        self.exchange(mesh, stamp, input, out, wake)
    }

    /// Takes part in a [gathering](CollectivePlan::gather) as a member: gives the others what this worker owns of
    /// `out`, and writes there what they own.
    ///
    /// - `stamp`, `header`: as for [`run`](Collective::run).
    /// - `out`: the plan's length; its [own pieces](CollectivePlan::own_pieces) are there.
    ///
    /// # Errors
    ///
    /// Same errors as [`run`](Collective::run).
    ///
    /// # Panics
    ///
    /// If this worker is a shadow of the plan, the plan is neither of a gathering nor a delivery, or a length is not as
    /// above.
    pub fn share(
        &mut self,
        mesh: &mut Mesh,
        stamp: Stamp,
        header: &[u8],
        out: &mut [f32],
        wake: &WakeReceiver,
    ) -> Result<Outcome, CollectiveError> {
        assert!(self.plan.rank().is_some(), "a shadow receives");
        assert!(self.plan.phase.begins_with_results(), "where sums are to be made, members run");
        assert!(header.len() <= CONTROL_BYTES_MAX, "control bytes have a limit");
        let input = Input { control: Some(Cow::Borrowed(header)), own: Own::Whole(&[]), feed: None };
        self.exchange(mesh, stamp, input, out, wake)
    }

    /// Takes part as a shadow: contributes nothing, writes the canonical sum to `out`, or what a gathering brings.
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
        assert!(self.plan.rank().is_none(), "a member contributes");
        let input = Input { control: Some(Cow::Borrowed(&[])), own: Own::Whole(&[]), feed: None };
        self.exchange(mesh, stamp, input, out, wake)
    }

    fn exchange(
        &mut self,
        mesh: &mut Mesh,
        stamp: Stamp,
        input: Input<'_>,
        out: &mut [f32],
        wake: &WakeReceiver,
    ) -> Result<Outcome, CollectiveError> {
        assert_eq!(out.len(), self.plan.length, "the output has the plan's length");
        for peer in &mut self.peers {
            peer.reset();
        }
        let Collective { plan, peers, received, kept, blocks, inputs } = self;
        let Input { control, own, feed } = input;
        let (done, began) = (plan.done_before(), Instant::now());
        // Small vectors are sent as a whole anyway.
        let lent = mesh.arena.as_ref().filter(|_| plan.mode == Mode::Bulk).and_then(|arena| {
            let offsets = feed.as_ref().map_or_else(|| own.offsets(arena), |feed| feed.offsets.clone());
            Lent::of(arena, offsets?, out)
        });
        let lent = lent.map(|lent| lent.encode());
        let step = Step { plan, stamp, control, own, lent, done, of_group: None, of_all: None, began };
        let progress = mesh.progress.clone();
        let mut links = connect(peers, mesh, plan.buffer_bytes())?;
        for (peer, link) in peers.iter_mut().zip(&mut links) {
            let Some(link) = link else { continue };
            peer.is_lent_to = peer.can_borrow(plan, link) && step.lent.is_some();
            peer.traffic.link = Some(if peer.is_lent_to { LinkKind::Lent } else { link.conduit.kind });
        }
        let mut exchange =
            Exchange { step, peers, links, received, kept, blocks, inputs, out, feed, progress };
        let result = exchange.run(wake);
        let control = exchange.step.control.take().map(Cow::into_owned);
        if let (Err(_), Some(arena)) = (&result, &mesh.arena) {
            arena.revoke();
        }
        result.map(|()| self.outcome(control.unwrap_or_default()))
    }

    fn outcome(&mut self, control: Vec<u8>) -> Outcome {
        let mut headers = vec![Vec::new(); self.plan.members.len()];
        let mut dead_shadows = Vec::new();
        let traffic = self.peers.iter().filter(|peer| peer.alive).map(|peer| peer.traffic).collect();
        if let Some(rank) = self.plan.rank() {
            headers[rank] = control;
        }
        for peer in &mut self.peers {
            match peer.rank {
                Some(rank) => peer.give_controls(&self.plan, rank, &mut headers),
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

pub(super) fn lost(worker: u64, why: impl ToString) -> CollectiveError {
    CollectiveError::PeerLost { worker, why: why.to_string() }
}

/// A collective in progress.
struct Exchange<'a, 'm, 'f> {
    step: Step<'a>,
    peers: &'a mut [Peer],
    links: Vec<Option<&'m mut Link>>,
    received: &'a mut [Vec<f32>],
    kept: &'a mut Kept,
    blocks: &'a mut [f32],
    inputs: &'a Inputs,
    out: &'a mut [f32],
    /// Until it has brought all.
    feed: Option<Feed<'f>>,
    progress: Option<Arc<Progress>>,
}

impl<'f: 'a, 'a> Exchange<'a, '_, 'f> {
    fn run(&mut self, wake: &WakeReceiver) -> Result<(), CollectiveError> {
        // Set when only shadows are left to be served.
        let mut patience_ends: Option<Instant> = None;
        let mut rounds = 0;
        let mut moved = false;
        loop {
            let mut progressed = self.take_fed()?;
            progressed |= self.send()?;
            progressed |= self.receive()?;
            progressed |= self.gather_controls();
            progressed |= self.reduce_within()?;
            progressed |= self.reduce_across();
            self.count_results();
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
                if let Some(progress) = self.progress() {
                    progress.moved();
                }
            }
            if !progressed {
                let Exchange { step, peers, links, feed, progress, .. } = self;
                let progress = progress.as_deref().filter(|_| feed.is_none());
                let fed = feed.as_ref().map(|feed| feed.wake);
                wait(step, peers, links, (wake, fed, patience_ends), progress)?;
            } else if rounds % ROUNDS_PER_LOOK == 0 {
                look(wake)?;
            }
        }
    }

    /// Where this worker stands is up to this exchange only once it computes no more.
    fn progress(&self) -> Option<&Progress> {
        self.progress.as_deref().filter(|_| self.feed.is_none())
    }

    /// Takes what was computed in the meantime.
    fn take_fed(&mut self) -> Result<bool, CollectiveError> {
        let mut took = false;
        while let Some(feed) = &self.feed {
            let Some(fed) = feed.next()? else { break };
            took = true;
            let plan = self.step.plan;
            match (fed, &mut self.step.own) {
                (Fed::Bucket(partials), Own::Buckets(buckets)) => {
                    let length = plan.cut.buckets[buckets.len()].len();
                    assert_eq!(Some(partials.len()), plan.rank().map(|rank| plan.partials[rank]));
                    assert!(
                        partials.iter().all(|partial| partial.len() == length),
                        "a slice of the bucket's length"
                    );
                    buckets.push(partials);
                }
                (Fed::Control(bytes), own) => {
                    assert!(own.ready() >= plan.cut.buckets.len(), "control bytes come after all buckets");
                    assert!(bytes.len() <= CONTROL_BYTES_MAX, "control bytes have a limit");
                    (self.step.control, self.feed) = (Some(Cow::Owned(bytes)), None);
                }
                (Fed::Bucket(_), Own::Whole(_)) => unreachable!("a feed brings all buckets"),
            }
        }
        Ok(took)
    }

    fn send(&mut self) -> Result<bool, CollectiveError> {
        let mut progressed = false;
        for (peer, link) in self.peers.iter_mut().zip(&mut self.links) {
            let Some(link) = link else { continue };
            if peer.writable && peer.wants_to_send(&self.step) {
                let values = Values { out: self.out, kept: self.kept };
                match peer.send(link, &self.step, values) {
                    Ok(sent) => progressed |= sent,
                    Err(fault) => progressed |= give_up(peer, &fault)?,
                }
            }
        }
        Ok(progressed)
    }

    fn receive(&mut self) -> Result<bool, CollectiveError> {
        let mut progressed = false;
        let links = self.links.iter_mut().zip(self.received.iter_mut());
        for (peer, (link, received)) in self.peers.iter_mut().zip(links) {
            let (Some(link), Some(_)) = (link, peer.rank) else { continue };
            match peer.receive(link, &self.step, received, self.out) {
                Ok(received) => progressed |= received,
                Err(fault) => progressed |= give_up(peer, &fault)?,
            }
        }
        Ok(progressed)
    }

    /// Whether this worker has brought all, the result is here, and every member has what it needs of this worker.
    fn members_are_served(&self) -> bool {
        let plan = self.step.plan;
        let served = |peer: &Peer| peer.has_received(plan) && peer.has_sent(plan);
        // Where no member needs the control bytes, all else may be done before they come.
        let brought = self.feed.is_none();
        brought
            && self.step.done == plan.all_done()
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

#[cfg(test)]
mod tests;
