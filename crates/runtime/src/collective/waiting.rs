//! How a collective waits: for sockets, and for lanes of shared memory, which no system call can wait for.
//!
//! To be woken costs more than a short exchange, so a wait looks again and again for a moment, giving the core away in
//! between, before it sleeps. An end of a lane that sleeps has said so, and is woken over the socket beside it.

use std::time::{Duration, Instant};

use bellwether_memory::{Interest, Lane};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::CollectiveError;
use super::peer::Peer;
use super::plan::CollectivePlan;
use super::step::Step;
use super::wake::WakeReceiver;
use crate::mesh::Link;
use crate::progress::Progress;

/// How long a wait for sockets yields before it sleeps, where the vector is not large. 4 bytes take 3.7 instead of 8.4
/// us with two workers, and 24 instead of 49 us with four on two cores (where spinning without yielding makes it
/// 90 us). Large vectors gain nothing, and lose where other programs want the cores.
const YIELDING: Duration = Duration::from_micros(30);

/// Looks at the lanes before the first yield.
const LOOKS_AT_ONCE: u32 = 16;

/// Looks at the lanes between two looks at the sockets, each of which is a system call.
const LOOKS_PER_POLL: u32 = 16;

/// A member that waits for longer says for whom.
const UNREMARKABLE: Duration = Duration::from_millis(50);

/// What is waited for.
struct Waits<'w, 'f> {
    /// The waker, one socket of every peer that matters, and what tells of partial sums.
    descriptors: &'w mut [PollFd<'f>],
    lanes: &'w mut [(&'f mut Lane, Interest)],
    /// Whether a socket carries frames.
    sockets: bool,
    /// Whether it gives way to other threads for a moment before it sleeps.
    yields: bool,
}

/// Sleeps until a connection to one of the `peers` that matters is ready. Where that takes long, `progress` tells for
/// whom.
pub(super) fn wait(
    step: &Step<'_>,
    peers: &mut [Peer],
    links: &mut [Option<&mut Link>],
    (wake, fed, until): (&WakeReceiver, Option<&WakeReceiver>, Option<Instant>),
    progress: Option<&Progress>,
) -> Result<(), CollectiveError> {
    let mut descriptors = Vec::with_capacity(2 + peers.len());
    let mut lanes = Vec::with_capacity(peers.len());
    let mut of_peer = Vec::with_capacity(peers.len());
    descriptors.push(PollFd::new(wake, PollFlags::IN));
    for (index, (peer, link)) in peers.iter().zip(&mut *links).enumerate() {
        let Some(link) = link else { continue };
        let reads = peer.rank.is_some() && peer.wants_to_receive(step);
        let interest = Interest { reads, writes: peer.wants_to_send(step) };
        if interest == Interest::default() {
            continue;
        }
        of_peer.push(index);
        let conduit = &mut link.conduit;
        let Some(lane) = &mut conduit.lane else {
            descriptors.push(PollFd::new(&conduit.stream, flags(interest, peer.rank.is_some())));
            continue;
        };
        descriptors.push(PollFd::new(&conduit.stream, PollFlags::IN));
        lanes.push((lane, interest));
    }
    let sockets = lanes.len() < of_peer.len();
    // Behind those of the peers.
    descriptors.extend(fed.map(|fed| PollFd::new(fed, PollFlags::IN)));
    let yields = !lanes.is_empty() || !step.plan.is_large();
    let tell = || {
        if let Some(progress) = progress {
            progress.waits_for(awaited(peers, step.plan));
        }
    };
    let mut waits = Waits { descriptors: &mut descriptors, lanes: &mut lanes, sockets, yields };
    match waits.wait(until, tell) {
        Ok(()) => {}
        Err(rustix::io::Errno::INTR) => return Ok(()),
        Err(error) => return Err(CollectiveError::System(error.to_string())),
    }
    let ready: Vec<PollFlags> = descriptors.iter().map(PollFd::revents).collect();
    if !ready[0].is_empty() {
        return Err(CollectiveError::Interrupted);
    }
    fed.map(WakeReceiver::drain);
    for (index, ready) in of_peer.into_iter().zip(&ready[1..]) {
        if let Some(link) = &mut links[index] {
            note_ready(&mut peers[index], link, *ready);
        }
    }
    Ok(())
}

/// Those for whom this worker waits. A peer in the same exchange may itself wait for others, so where there are groups
/// only those count whose data come first: what a member has without others, then the earliest pieces.
fn awaited(peers: &[Peer], plan: &CollectivePlan) -> impl Iterator<Item = u64> {
    let due = |peer: &&Peer| peer.rank.is_some() && !(peer.has_received(plan) && peer.has_sent(plan));
    let place = |peer: &Peer| if plan.groups.is_one() { 0 } else { peer.first_missing(plan) };
    let first = peers.iter().filter(due).map(place).min();
    peers.iter().filter(due).filter(move |peer| Some(place(peer)) == first).map(|peer| peer.worker)
}

fn note_ready(peer: &mut Peer, link: &mut Link, ready: PollFlags) {
    let broken = ready.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    let comes = broken || ready.contains(PollFlags::IN);
    if link.conduit.lane.is_some() {
        let gone = comes && link.conduit.hear();
        peer.alive &= !(gone && peer.rank.is_none());
        // A look at a lane costs next to nothing.
        (peer.readable, peer.writable) = (true, true);
    } else if peer.rank.is_none() && comes {
        peer.alive = false;
    } else {
        // On a broken connection the next call tells what happened.
        peer.readable |= comes;
        peer.writable |= broken || ready.contains(PollFlags::OUT);
    }
}

/// What to ask the system for.
fn flags(interest: Interest, member: bool) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::OUT, interest.writes);
    // A shadow sends nothing, so it is readable only when it has hung up.
    flags.set(PollFlags::IN, interest.reads || !member);
    flags
}

impl Waits<'_, '_> {
    /// Waits until something is ready. If it takes long, the caller is to `tell` for whom.
    fn wait(&mut self, until: Option<Instant>, tell: impl FnOnce()) -> rustix::io::Result<()> {
        if self.yields && self.looks()? {
            return Ok(());
        }
        let soon = Instant::now() + UNREMARKABLE;
        let first = until.map_or(soon, |until| until.min(soon));
        if self.sleep(Some(first))? || until.is_some_and(|until| until <= soon) {
            return Ok(());
        }
        tell();
        self.sleep(until).map(|_| ())
    }

    /// Looks for a moment; says whether something is ready.
    fn looks(&mut self) -> rustix::io::Result<bool> {
        let begin = Instant::now();
        let mut looks = 0;
        while begin.elapsed() < YIELDING {
            if self.lanes.iter_mut().any(|(lane, interest)| lane.is_ready(*interest)) {
                return Ok(true);
            }
            let polls = self.sockets || looks % LOOKS_PER_POLL == LOOKS_PER_POLL - 1;
            if polls && poll(self.descriptors, Some(&timespec(Duration::ZERO)))? > 0 {
                return Ok(true);
            }
            looks += 1;
            if self.sockets || looks > LOOKS_AT_ONCE {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(false)
    }

    /// Sleeps; says whether something is ready.
    fn sleep(&mut self, until: Option<Instant>) -> rustix::io::Result<bool> {
        // All say so, that what is ready already is not the only one that is looked at.
        let all_sleep = self.lanes.iter_mut().fold(true, |all, (lane, wants)| lane.will_sleep(*wants) && all);
        let timeout = match all_sleep {
            true => until.map(|until| timespec(until.saturating_duration_since(Instant::now()))),
            false => Some(timespec(Duration::ZERO)),
        };
        let ready = poll(self.descriptors, timeout.as_ref());
        self.lanes.iter_mut().for_each(|(lane, _)| lane.is_awake());
        Ok(ready? > 0 || !all_sleep)
    }
}

/// Looks at the waker without waiting.
pub(super) fn look(wake: &WakeReceiver) -> Result<(), CollectiveError> {
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
