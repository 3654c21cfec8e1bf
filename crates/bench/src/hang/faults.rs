//! One fault in a run of its own, and how long it takes until it is named and until the others train again.

use bellwether_core::record::{Event, Line};
use bellwether_core::units::Bytes;

use super::WORKERS;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::jobs::{ENDLESS, Synthetic};
use crate::namespaces::{Guard, Namespaces, Queues, address};
use crate::statistics::now_s;
use crate::trial::Trial;

/// The rate of a link between hosts, which is not what is measured.
const RATE: &str = "1gbit";

/// When a worker hangs, counted from its first gradient.
const HANG_AFTER_S: f64 = 2.0;

/// Steps before a fault.
const SETTLED_STEPS: u64 = 5;

/// The coordinator's host; the workers' follow, and then the server's.
const COORDINATOR: u32 = 0;
const SERVER: u32 = 1 + WORKERS;

/// What hangs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    Computes,
    Waits,
    BetweenWorkers,
    ToServer,
    FromServer,
    HalfOpen,
}

impl Fault {
    pub(super) const ALL: [Fault; 6] = [
        Fault::Computes,
        Fault::Waits,
        Fault::BetweenWorkers,
        Fault::ToServer,
        Fault::FromServer,
        Fault::HalfOpen,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::Computes => "a gradient that never returns",
            Fault::Waits => "a thread that waits for a pipe",
            Fault::BetweenWorkers => "one way of a link between two workers",
            Fault::ToServer => "the way from a worker to its server",
            Fault::FromServer => "the way from a server to a worker",
            Fault::HalfOpen => "a session of which nothing arrives",
        }
    }

    /// Whether it takes hosts of their own.
    pub(super) fn is_of_a_link(self) -> bool {
        !matches!(self, Fault::Computes | Fault::Waits)
    }

    fn needs_a_server(self) -> bool {
        matches!(self, Fault::ToServer | Fault::FromServer)
    }

    /// Whether the others train on as if nothing had happened.
    fn is_harmless(self) -> bool {
        self == Fault::HalfOpen
    }

    /// Has it happen, and waits for what follows.
    pub(super) fn happen(self, step_ms: u64) -> Result<Noticed, Failure> {
        match self {
            Fault::Computes => gradient("hang", step_ms),
            Fault::Waits => gradient("block", step_ms),
            _ => self.on_a_link(step_ms),
        }
    }

    /// What a host sends to another vanishes.
    fn on_a_link(self, step_ms: u64) -> Result<Noticed, Failure> {
        let hosts = Namespaces::create(1 + SERVER, RATE, Queues::One)?;
        let mut text = job(step_ms).text();
        if self.needs_a_server() {
            text.push_str("[sync]\nreduce = \"servers\"\nservers = 1\n");
        }
        let mut trial = Trial::launch_at(Folder::new("bench")?, &text, WORKERS, |mut command| {
            command.args(["--no-spawn", "--listen", &format!("{}:0", address(COORDINATOR))]);
            hosts.inside(COORDINATOR, &command)
        })?;
        let (endpoint, token_file) = trial.door()?;
        let door = (endpoint.as_str(), token_file.as_str());
        let server = self.needs_a_server().then(|| hosts.join(SERVER, "server", door)).transpose()?;
        let workers = (1..=WORKERS).map(|host| hosts.join(host, "worker", door));
        let others = workers.chain(server.map(Ok)).collect::<Result<Vec<Guard>, Failure>>()?;
        trial.settle(WORKERS as usize, SETTLED_STEPS)?;
        let (mark, began_s) = (trial.mark()?, now_s());
        match self {
            Fault::ToServer => hosts.swallow(2, SERVER)?,
            Fault::FromServer => hosts.swallow(SERVER, 2)?,
            Fault::HalfOpen => {
                hosts.swallow(COORDINATOR, 2)?;
                hosts.swallow(2, COORDINATOR)?;
            }
            _ => hosts.swallow(2, 1)?,
        }
        let noticed = noticed(&mut trial, mark, Some(began_s), self.is_harmless());
        drop(others);
        noticed
    }
}

/// Seconds from the fault on.
pub(super) struct Noticed {
    /// Until it was named.
    pub(super) noticed_s: f64,
    /// Until the others trained again: until they began.
    pub(super) training_s: f64,
    /// Until a step was committed that they began then.
    pub(super) committed_s: f64,
}

pub(super) fn job(step_ms: u64) -> Synthetic {
    Synthetic { step_ms, parameters: Bytes(1 << 20), virtual_nodes: WORKERS, steps: ENDLESS, adam: false }
}

/// The gradient of a worker never returns.
fn gradient(pace: &str, step_ms: u64) -> Result<Noticed, Failure> {
    // The first step is over, and some more.
    let after_s = HANG_AFTER_S + 4e-3 * step_ms as f64;
    let mut trial = Trial::launch_at(Folder::new("bench")?, &job(step_ms).text(), WORKERS, |mut command| {
        command.args(["--worker-speed", &format!("1,{pace}@{after_s}s")]);
        command
    })?;
    noticed(&mut trial, 0, None, false)
}

/// Waits until a fault is named and the others train again. Without a time the fault began with the last step
/// before it was named.
fn noticed(
    trial: &mut Trial,
    mark: usize,
    began_s: Option<f64>,
    is_harmless: bool,
) -> Result<Noticed, Failure> {
    let named_s = trial.wait("a line that names the fault", |trial| {
        let names = |line: &&Line| matches!(line.event, Event::Late { .. } | Event::Crashed { .. });
        trial.since(mark).iter().find(names).map(|line| line.time_s)
    })?;
    let training_s = trial.wait("the others to go on", |trial| {
        let begins = |line: &&Line| match line.event {
            Event::Membership { .. } => line.time_s >= named_s,
            Event::Committed { .. } => is_harmless && line.time_s >= named_s,
            _ => false,
        };
        trial.since(mark).iter().find(begins).map(|line| line.time_s)
    })?;
    let committed_s = trial.wait("a step after that", |trial| {
        let is_done =
            |line: &&Line| line.time_s > training_s && matches!(line.event, Event::Committed { .. });
        trial.since(mark).iter().find(is_done).map(|line| line.time_s)
    })?;
    let last_s = trial
        .since(0)
        .iter()
        .filter(|line| line.time_s < named_s && matches!(line.event, Event::Committed { .. }))
        .map(|line| line.time_s)
        .next_back();
    let began_s = began_s.or(last_s).unwrap_or(named_s);
    Ok(Noticed {
        noticed_s: named_s - began_s,
        training_s: training_s - began_s,
        committed_s: committed_s - began_s,
    })
}
