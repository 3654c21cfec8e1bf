//! Runs one collective: a loop over nonblocking connections, in the calling thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::record::Traffic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::CollectiveError;
use super::inputs::{Inputs, Kept};
use super::peer::{Fault, Peer, received_length};
use super::plan::CollectivePlan;
use super::reduce::Reduction;
use super::route::Route;
use super::step::{Done, Step, Values};
use super::wake::WakeReceiver;
use crate::frame::{CONTROL_BYTES_MAX, Stamp};
use crate::mesh::{Link, Mesh};
use crate::progress::Progress;

mod sums;

/// Rounds over all peers between two looks at the waker while data keep flowing.
const ROUNDS_PER_LOOK: u32 = 64;

/// How long a wait for a vector that is not large looks again and again, yielding the core in between,
/// before it sleeps: to be woken costs more than a short exchange. 4 bytes take 3.7 instead of 8.4 us with
/// two workers, and 24 instead of 49 us with four on two cores (where spinning without yielding makes it
/// 90 us). Large vectors gain nothing, and lose where other programs want the cores.
const YIELDING: Duration = Duration::from_micros(30);

/// A member that waits for longer says for whom.
const UNREMARKABLE: Duration = Duration::from_millis(50);

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
        assert!(self.plan.rank().is_none(), "a member contributes");
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
        let Collective { plan, peers, received, kept, blocks, inputs } = self;
        let (done, began) = (Done::default(), Instant::now());
        let step = Step { plan, stamp, control, partials, done, of_group: None, of_all: None, began };
        let progress = mesh.progress.clone();
        let links = connect(peers, mesh, plan.buffer_bytes())?;
        let mut exchange = Exchange { step, peers, links, received, kept, blocks, inputs, out, progress };
        exchange.run(wake)?;
        Ok(self.outcome(control))
    }

    fn outcome(&mut self, control: &[u8]) -> Outcome {
        let mut headers = vec![Vec::new(); self.plan.members.len()];
        let mut dead_shadows = Vec::new();
        let traffic = self.peers.iter().filter(|peer| peer.alive).map(|peer| peer.traffic).collect();
        if let Some(rank) = self.plan.rank() {
            headers[rank] = control.to_vec();
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
    for (peer, link) in peers.iter_mut().zip(&links) {
        if link.is_none() {
            match peer.rank {
                Some(_) => return Err(lost(peer.worker, "there is no connection to it")),
                None => peer.alive = false,
            }
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
    kept: &'a mut Kept,
    blocks: &'a mut [f32],
    inputs: &'a Inputs,
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
            progressed |= self.gather_controls();
            progressed |= self.reduce_within();
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
                if let Some(progress) = &self.progress {
                    progress.moved();
                }
            }
            if !progressed {
                self.wait(wake, patience_ends)?;
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

    /// Whether the result is here and every member has what it needs of this worker.
    fn members_are_served(&self) -> bool {
        let plan = self.step.plan;
        let served = |peer: &Peer| peer.has_received(plan) && peer.has_sent(plan);
        self.step.done == plan.all_done() && self.peers.iter().filter(|peer| peer.rank.is_some()).all(served)
    }

    fn shadows_are_served(&self) -> bool {
        self.peers.iter().all(|peer| peer.rank.is_some() || !peer.alive || peer.has_sent(self.step.plan))
    }

    fn give_up_shadows(&mut self) {
        for peer in self.peers.iter_mut().filter(|peer| peer.rank.is_none()) {
            peer.alive &= peer.has_sent(self.step.plan);
        }
    }

    /// Sleeps until a connection that matters is ready.
    fn wait(&mut self, wake: &WakeReceiver, until: Option<Instant>) -> Result<(), CollectiveError> {
        let mut descriptors = Vec::with_capacity(1 + self.peers.len());
        let mut of_peer = Vec::with_capacity(self.peers.len());
        descriptors.push(PollFd::new(wake, PollFlags::IN));
        for (index, (peer, link)) in self.peers.iter().zip(&self.links).enumerate() {
            let Some(link) = link else { continue };
            let mut interest = PollFlags::empty();
            if peer.wants_to_send(&self.step) {
                interest |= PollFlags::OUT;
                if peer.rank.is_none() {
                    // A shadow sends nothing, so it is readable only when it has hung up.
                    interest |= PollFlags::IN;
                }
            }
            if peer.rank.is_some() && peer.wants_to_receive(&self.step) {
                interest |= PollFlags::IN;
            }
            if !interest.is_empty() {
                descriptors.push(PollFd::new(&link.stream, interest));
                of_peer.push(index);
            }
        }
        match self.wait_ready(&mut descriptors, until) {
            Ok(()) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(CollectiveError::System(error.to_string())),
        }
        let ready: Vec<PollFlags> = descriptors.iter().map(PollFd::revents).collect();
        if !ready[0].is_empty() {
            return Err(CollectiveError::Interrupted);
        }
        for (index, ready) in of_peer.into_iter().zip(&ready[1..]) {
            let peer = &mut self.peers[index];
            let broken = ready.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
            if peer.rank.is_none() && (broken || ready.contains(PollFlags::IN)) {
                peer.alive = false;
                continue;
            }
            // On a broken connection the next call tells what happened.
            peer.readable |= broken || ready.contains(PollFlags::IN);
            peer.writable |= broken || ready.contains(PollFlags::OUT);
        }
        Ok(())
    }
}

impl Exchange<'_, '_> {
    /// Waits for a descriptor. If it takes long, the others hear for whom.
    fn wait_ready(&self, descriptors: &mut [PollFd<'_>], until: Option<Instant>) -> rustix::io::Result<()> {
        let yields = !self.step.plan.is_large();
        let Some(progress) = &self.progress else { return wait_ready(descriptors, until, yields) };
        let soon = Instant::now() + UNREMARKABLE;
        let first = until.map_or(soon, |until| until.min(soon));
        wait_ready(descriptors, Some(first), yields)?;
        let ready = descriptors.iter().any(|descriptor| !descriptor.revents().is_empty());
        if ready || until.is_some_and(|until| until <= soon) {
            return Ok(());
        }
        progress.waits_for(self.awaited());
        wait_ready(descriptors, until, false)
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

/// Waits for a descriptor; if it `yields`, gives way to other threads for a moment before it sleeps.
fn wait_ready(
    descriptors: &mut [PollFd<'_>],
    until: Option<Instant>,
    yields: bool,
) -> rustix::io::Result<()> {
    let begin = Instant::now();
    while yields && begin.elapsed() < YIELDING {
        if poll(descriptors, Some(&timespec(Duration::ZERO)))? > 0 {
            return Ok(());
        }
        std::thread::yield_now();
    }
    let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
    poll(descriptors, timeout.as_ref()).map(|_| ())
}

/// Looks at the waker without waiting.
fn look(wake: &WakeReceiver) -> Result<(), CollectiveError> {
    let mut descriptors = [PollFd::new(wake, PollFlags::IN)];
    match poll(&mut descriptors, Some(&timespec(Duration::ZERO))) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => Err(CollectiveError::Interrupted),
        Err(error) => Err(CollectiveError::System(error.to_string())),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests;
