//! The workers that a coordinator of an inference has started itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{InferenceError, Spawn, Spawned};
use crate::membership::WorkerId;

/// Workers in a row that may end before they can compute.
const FAILURES_MAX: u32 = 3;

/// How long a worker may take until it can compute: a framework is imported, and compiles.
const BOOT: Duration = Duration::from_secs(600);

/// How long workers may take to leave when there is nothing more to do.
const FAREWELL: Duration = Duration::from_secs(5);

/// A worker that was started.
struct Member {
    process: Box<dyn Spawned>,
    since: Instant,
    can_compute: bool,
    /// It was let go.
    released: bool,
}

/// All of them.
pub(super) struct Crew {
    spawn: Option<Spawn>,
    address: SocketAddr,
    /// How many are wanted.
    pub(super) wanted: u32,
    members: BTreeMap<WorkerId, Member>,
    last: WorkerId,
    failures: u32,
}

impl Crew {
    pub(super) fn new(spawn: Option<Spawn>, address: SocketAddr, wanted: u32) -> Crew {
        Crew { spawn, address, wanted, members: BTreeMap::new(), last: 0, failures: 0 }
    }

    /// A worker can compute; says whether it was started here.
    pub(super) fn joined(&mut self, worker: WorkerId) -> bool {
        let Some(member) = self.members.get_mut(&worker) else { return false };
        (member.can_compute, self.failures) = (true, 0);
        true
    }

    /// A worker is let go.
    pub(super) fn released(&mut self, worker: WorkerId) {
        if let Some(member) = self.members.get_mut(&worker) {
            member.released = true;
        }
    }

    /// A worker's connection ended: its process is of no more use.
    pub(super) fn lost(&mut self, worker: WorkerId, why: &str) -> Result<(), InferenceError> {
        let Some(mut member) = self.members.remove(&worker) else { return Ok(()) };
        member.process.end();
        if member.can_compute { Ok(()) } else { self.failed(worker, why) }
    }

    /// A worker is given up.
    pub(super) fn kill(&mut self, worker: WorkerId) {
        if let Some(member) = self.members.get_mut(&worker) {
            member.process.kill();
        }
    }

    fn failed(&mut self, worker: WorkerId, why: &str) -> Result<(), InferenceError> {
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            return Ok(());
        }
        let what = format!(
            "{FAILURES_MAX} workers in a row could not begin; of the last one, worker {worker}: {why}"
        );
        Err(InferenceError::Workers(what))
    }

    /// Starts those that are missing, and takes note of those that have ended.
    pub(super) fn fill(&mut self) -> Result<(), InferenceError> {
        let mut ended = Vec::new();
        for (worker, member) in &mut self.members {
            let late = !member.can_compute && !member.process.is_awaited() && member.since.elapsed() > BOOT;
            if late {
                member.process.kill();
            }
            // That of one that can compute is told by its connection, which may still hold an answer.
            match member.process.ended() {
                Some(_) if member.released => ended.push((*worker, None)),
                Some(why) if !member.can_compute => ended.push((*worker, Some(why))),
                _ => {}
            }
        }
        for (worker, why) in ended {
            self.members.remove(&worker);
            if let Some(why) = why {
                self.failed(worker, &why)?;
            }
        }
        let Some(spawn) = &mut self.spawn else { return Ok(()) };
        let mut there = self.members.values().filter(|member| !member.released).count();
        while there < self.wanted as usize {
            self.last += 1;
            let process = spawn(self.last, self.address);
            let process = process.map_err(super::system("start a worker"))?;
            let member = Member { process, since: Instant::now(), can_compute: false, released: false };
            self.members.insert(self.last, member);
            there += 1;
        }
        Ok(())
    }

    /// Ends all: those that have nothing more to do leave by themselves where `in_peace`.
    pub(super) fn end(&mut self, in_peace: bool) {
        let until = Instant::now() + if in_peace { FAREWELL } else { Duration::ZERO };
        for member in self.members.values_mut() {
            while member.can_compute && member.process.ended().is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            member.process.end();
        }
    }
}
