//! How workers and servers are started, and what a coordinator can do with those that it started.

use std::net::SocketAddr;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::membership::WorkerId;

/// Starts a worker (or a server) with this number for the coordinator at this address.
pub type Spawn = Box<dyn FnMut(WorkerId, SocketAddr) -> std::io::Result<Box<dyn Spawned>>>;

/// A worker or server that was started: a process, or something that stands for one.
///
/// Every call returns soon, whatever the other does.
pub trait Spawned {
    /// How it ended, for the journal; nothing while it runs.
    fn ended(&mut self) -> Option<String>;

    /// Whether something has to be done first before it can begin, for which it is not to blame.
    fn is_awaited(&mut self) -> bool {
        false
    }

    /// Whether it waits for a machine, for which it may wait long: a run that has enough others begins without it.
    fn is_queued(&mut self) -> bool {
        false
    }

    /// Tells it that its server will be taken away: it should leave the run at the next boundary.
    fn warn(&mut self);

    /// Takes its server away: it vanishes, with its state and its connections.
    fn kill(&mut self);

    /// Kills it, and waits for its end where that is sure to come.
    fn end(&mut self);

    /// Whether the end of the run waits for its end; else who started it sees to that.
    fn is_waited_for(&self) -> bool {
        true
    }

    /// Its worker no longer belongs to the run, though it may still run for a while, and come back: what it has to
    /// itself may go to another.
    fn given_up(&mut self) {}
}

impl Spawned for Child {
    fn ended(&mut self) -> Option<String> {
        // A process that cannot be waited for is taken for one that runs.
        self.try_wait().ok().flatten().map(|status| format!("its process ended ({status})"))
    }

    fn warn(&mut self) {
        signal(self, Signal::TERM);
    }

    fn kill(&mut self) {
        signal(self, Signal::KILL);
    }

    fn end(&mut self) {
        let _ = Child::kill(self);
        let _ = self.wait();
    }
}

/// A process that was waited for needs no signal, and its number may be another's.
fn signal(child: &mut Child, signal: Signal) {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Ok(None), Some(process)) = (child.try_wait(), process) {
        let _ = kill_process(process, signal);
    }
}
