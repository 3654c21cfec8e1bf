//! When the workers of a job that runs wait for each other, and what is done about those who keep the others waiting.
//!
//! A run is synchronous first, for a *quota* of its steps, and then asynchronous: stale gradients hurt while the loss
//! falls quickly, and hardly do when it has settled. The quota is
//!
//! - what the job file says (`switch_at = 0.0625`);
//! - with `auto`, what an earlier search ([`tune`](crate::tune)) found for this job;
//! - else with `auto`, the steps until the loss falls slowly: its relative improvement over the last 5 % of all steps
//!   is less than a tenth of the largest over any 5 % so far. That is at 5 % at the earliest and at half of the steps
//!   at the latest. It is a rule of thumb of ours, and says nothing about the accuracy at the end.
//!
//! What is done about a straggler, in synchronous steps only:
//!
//! - *ignore*: nothing;
//! - *greedy*: the job is asynchronous as long as any worker is slow, and synchronous again afterwards until the quota
//!   is met;
//! - *elastic*: the slow ones are evicted until the synchronous steps are done, and then all are restored. Evicted are
//!   those without whom a step of computing is shortest; the virtual nodes of one that goes fall to others, so that one
//!   that is a little slow stays. Two workers at least remain.
//!
//! A worker is slow by [`stragglers`](crate::stragglers), whose mean must be below the average by a standard deviation
//! too. Its pace is that of computing virtual nodes: a worker whose link is slow is not seen.
//!
//! Source: Li, Mangoubi, Xu and Guo, Sync-Switch, ICDCS 2021, for the order of protocols and the two policies; the
//! margin, the guard against evictions that cost time, and the rule of `auto` are ours.
//!
//! A plain state machine: steps are told to it, and its whole state can be written down.

mod reason;
mod slowing;

use std::collections::BTreeSet;

use bellwether_core::InputError;
use bellwether_core::job::{StragglerPolicy, Sync, SyncPolicy};
use bellwether_core::prediction::Protocol;
use serde::{Deserialize, Serialize};

pub use reason::Reason;

use crate::stragglers::{Limits, Observation, Slow, Stragglers};
use slowing::Losses;

/// Workers that remain, however many are slow.
const LEAST_WORKERS: usize = 2;

/// Steps that a command may take to come. With as few synchronous steps left, these are done sooner than a switch: it
/// would take the place of their end, come later, and the quota would be passed.
const SWITCH_STEPS: u64 = 3;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncCommand {
    /// Train by this protocol. Whatever was commanded for this boundary and later ones is void.
    Protocol(Protocol),
    /// Let this worker pause; the others take its virtual nodes.
    Evict(u32),
    /// Let all that pause train again.
    Restore,
}

/// A command, and why.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The boundary: steps that are done before it holds. Where it has passed, the next one.
    pub at_step: u64,
    /// What is done.
    pub command: SyncCommand,
    /// Why.
    pub reason: Reason,
}

/// What decides the quota.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// This many synchronous steps.
    Given(u64),
    /// A share of the steps that a search found, 0…1.
    Tuned(f64),
    /// The loss.
    Loss,
}

/// What a job is to be decided by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Virtual nodes, which the workers share.
    pub virtual_nodes: u32,
    /// What decides the quota.
    pub timing: Timing,
    /// The protocol after the synchronous one.
    pub then: Protocol,
    /// What is done about a straggler.
    pub stragglers: StragglerPolicy,
}

impl Setup {
    /// What has to be decided for a job with this table; `None` where nothing has. `tuned` is the share of synchronous
    /// steps that a search found for it, where there was one.
    ///
    /// # Errors
    ///
    /// Returns an error for a policy against stragglers together with phases other than synchronous first, then one
    /// other protocol.
    pub fn of(
        sync: &Sync,
        total_steps: u64,
        virtual_nodes: u32,
        tuned: Option<f64>,
    ) -> Result<Option<Setup>, InputError> {
        let stragglers = sync.stragglers;
        let setup = |timing, then| Ok(Some(Setup { total_steps, virtual_nodes, timing, then, stragglers }));
        if sync.policy == SyncPolicy::Auto {
            return setup(tuned.map_or(Timing::Loss, Timing::Tuned), Protocol::Asp);
        }
        if stragglers == StragglerPolicy::Ignore {
            return Ok(None);
        }
        match sync.policy.phases(total_steps)[..] {
            [(_, Protocol::Bsp)] => setup(Timing::Given(total_steps), Protocol::Asp),
            [(_, Protocol::Bsp), (at, then)] => setup(Timing::Given(at), then),
            // No worker waits for another.
            [_] => Ok(None),
            _ => Err(InputError::new("sync.stragglers", "these phases have no one synchronous beginning")
                .hint("use `ignore`, or a policy that is synchronous first and then has one other protocol")),
        }
    }

    /// The protocol of each phase as far as it is known before the run: the first step of it, rising. A run has to
    /// begin so; the [`Synchroniser`] takes it as commanded.
    pub fn phases(&self) -> Vec<(u64, Protocol)> {
        let steps = match self.timing {
            Timing::Given(steps) => steps,
            Timing::Tuned(fraction) => self.steps(fraction),
            Timing::Loss => self.total_steps,
        };
        let first = (steps > 0).then_some((0, Protocol::Bsp));
        first.into_iter().chain((steps < self.total_steps).then_some((steps, self.then))).collect()
    }

    /// The reason of these phases, where it is not the job's file.
    pub fn reason(&self) -> Option<Reason> {
        match self.timing {
            Timing::Tuned(fraction) => Some(Reason::Tuned { fraction, steps: self.steps(fraction) }),
            Timing::Given(_) | Timing::Loss => None,
        }
    }

    fn steps(&self, share: f64) -> u64 {
        (share.clamp(0.0, 1.0) * self.total_steps as f64).round() as u64
    }
}

/// Decides for one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Synchroniser {
    setup: Setup,
    detector: Stragglers,
    losses: Losses,
    quota: u64,
    /// Why the quota is what it is.
    why: Reason,
    /// Protocols of the steps that are done: first step of each phase.
    past: Vec<(u64, Protocol)>,
    /// Steps that are done.
    step: u64,
    /// Protocols that were commanded, from the one in force on.
    commanded: Vec<(u64, Protocol)>,
    members: BTreeSet<u32>,
    evicted: BTreeSet<u32>,
    /// The straggler for which the job is asynchronous.
    greedy: Option<Slow>,
    /// Windows in a row in which no worker was slow.
    quiet: u64,
}

impl Synchroniser {
    /// For a job that begins with [`Setup::phases`] commanded.
    pub fn new(setup: Setup) -> Synchroniser {
        let Setup { total_steps, timing, .. } = setup;
        let (quota, why) = match timing {
            Timing::Given(steps) => (steps, Reason::Given { steps }),
            Timing::Tuned(fraction) => {
                let steps = setup.steps(fraction);
                (steps, Reason::Tuned { fraction, steps })
            }
            Timing::Loss => (setup.steps(0.5), Reason::Half { steps: setup.steps(0.5) }),
        };
        let limits = Limits { deviations: 1.0, ..Limits::default() };
        Synchroniser {
            setup,
            detector: Stragglers::new(limits).expect("the default limits are valid"),
            losses: Losses::new(total_steps),
            quota,
            why,
            past: Vec::new(),
            step: 0,
            commanded: setup.phases(),
            members: BTreeSet::new(),
            evicted: BTreeSet::new(),
            greedy: None,
            quiet: 0,
        }
    }

    /// These workers train from now on; the others are not known any more. One that was evicted may be among them until
    /// it pauses, and does not count.
    pub fn members(&mut self, workers: &[u32]) {
        let members: BTreeSet<u32> =
            workers.iter().filter(|worker| !self.evicted.contains(worker)).copied().collect();
        self.members.difference(&members).for_each(|worker| self.detector.left(*worker));
        self.members = members;
    }

    /// Takes in a window: what each member computed, in virtual nodes, and how long that took. Others
    /// are passed over.
    pub fn observe(&mut self, window: &[Observation]) {
        let here = |seen: &&Observation| self.members.contains(&seen.worker);
        let window: Vec<Observation> = window.iter().filter(here).copied().collect();
        self.detector.watch(&window);
        self.quiet = if self.detector.slow().is_empty() { self.quiet + 1 } else { 0 };
    }

    /// Takes in a step that is done, its protocol, and its training loss. After a step that is not the next one, those
    /// from it on count as not done before.
    pub fn committed(&mut self, step: u64, protocol: Protocol, loss: f64) {
        self.past.retain(|(first, _)| *first < step);
        if self.past.last().is_none_or(|(_, last)| *last != protocol) {
            self.past.push((step, protocol));
        }
        self.step = step + 1;
        if protocol != Protocol::Bsp {
            return;
        }
        let fall = self.losses.take(loss);
        if let (Some(fall), Reason::Half { .. }) = (fall, self.why) {
            self.quota = self.synchronous_steps().min(self.quota);
            self.why = Reason::Slowed { last: fall.last, fastest: fall.fastest };
        }
    }

    /// Synchronous steps that are done.
    pub fn synchronous_steps(&self) -> u64 {
        let ends = self.past.iter().skip(1).map(|(first, _)| *first).chain([self.step]);
        let phases = self.past.iter().zip(ends);
        phases.filter(|((_, p), _)| *p == Protocol::Bsp).map(|((first, _), end)| end - first).sum()
    }

    /// What is to be done, in this order. What was answered once is taken as under way.
    pub fn decide(&mut self) -> Vec<Command> {
        let attended = self.setup.stragglers == StragglerPolicy::Greedy;
        let why = if attended { self.attend() } else { None };
        let mut commands = self.follow(why.unwrap_or(self.why));
        if self.setup.stragglers == StragglerPolicy::Elastic {
            commands.extend(self.evict());
        }
        if !self.evicted.is_empty() && self.protocol() != Protocol::Bsp {
            self.evicted.clear();
            commands.push(Command {
                at_step: self.step,
                command: SyncCommand::Restore,
                reason: Reason::Asynchronous,
            });
        }
        commands
    }

    fn remaining(&self) -> u64 {
        self.quota.saturating_sub(self.synchronous_steps())
    }

    /// The protocol that was commanded for the next step.
    fn protocol(&self) -> Protocol {
        let now = self.commanded.iter().rev().find(|(first, _)| *first <= self.step);
        now.map_or(Protocol::Bsp, |(_, protocol)| *protocol)
    }

    /// Whether a worker keeps the others waiting; answers why that differs from before.
    fn attend(&mut self) -> Option<Reason> {
        if self.remaining() == 0 {
            self.greedy = None;
            return None;
        }
        match (self.greedy, self.detector.slow().first()) {
            (None, Some(slow)) if self.remaining() > SWITCH_STEPS => {
                self.greedy = Some(*slow);
                let Slow { worker, pace, steps } = *slow;
                Some(Reason::Straggler { worker, pace, windows: steps })
            }
            (Some(_), None) if self.quiet >= Limits::default().dwell_steps => {
                self.greedy = None;
                Some(Reason::Recovered { windows: self.quiet, remaining: self.remaining() })
            }
            _ => None,
        }
    }

    /// Commands the protocols that should follow, where others were commanded.
    fn follow(&mut self, why: Reason) -> Vec<Command> {
        let (step, remaining, then) = (self.step, self.remaining(), self.setup.then);
        let present = self.protocol();
        let wanted = if remaining == 0 || self.greedy.is_some() { then } else { Protocol::Bsp };
        let end = (wanted == Protocol::Bsp)
            .then_some(step + remaining)
            .filter(|end| *end < self.setup.total_steps)
            .map(|end| (end, then));
        let commanded_end = self.commanded.iter().find(|(first, _)| *first > step).copied();
        // A command takes a boundary or two to come: until then synchronous steps are still to be done, and their end
        // moves.
        let coming = self.past.last().is_some_and(|(_, protocol)| *protocol != present);
        if present == wanted && (commanded_end == end || coming) {
            return Vec::new();
        }
        let mut commands = Vec::new();
        let mut command = |at_step, protocol, reason| {
            commands.push(Command { at_step, command: SyncCommand::Protocol(protocol), reason });
        };
        // An end that was commanded before is made void.
        if present != wanted || commanded_end.is_some() {
            command(step, wanted, why);
        }
        if let Some((end, then)) = end {
            command(end, then, self.why);
        }
        self.commanded = std::iter::once((step, wanted)).chain(end).collect();
        commands
    }

    /// Evicts the stragglers without whom a step is shortest.
    fn evict(&mut self) -> Vec<Command> {
        let synchronous = self.past.last().is_some_and(|(_, protocol)| *protocol == Protocol::Bsp);
        if !synchronous || self.remaining() == 0 || self.members.is_empty() {
            return Vec::new();
        }
        let mut slow = self.detector.slow();
        slow.truncate(self.members.len().saturating_sub(LEAST_WORKERS));
        // The time of the slowest that remains when this many go, with the largest share of the virtual nodes.
        let time = |gone: usize| {
            let stays = |worker: &&u32| slow[..gone].iter().all(|slow| slow.worker != **worker);
            let paces = self.members.iter().filter(stays).filter_map(|worker| self.detector.pace(*worker));
            let share = self.setup.virtual_nodes.div_ceil((self.members.len() - gone) as u32);
            f64::from(share) / paces.fold(f64::INFINITY, f64::min)
        };
        let best = (0..=slow.len()).min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap_or(0);
        let gain = time(best) / time(0);
        slow.truncate(best);
        let evict = |Slow { worker, pace, steps }: Slow| {
            self.members.remove(&worker);
            self.detector.left(worker);
            self.evicted.insert(worker);
            let reason = Reason::Faster { worker, pace, windows: steps, time: gain };
            Command { at_step: self.step, command: SyncCommand::Evict(worker), reason }
        };
        slow.into_iter().map(evict).collect()
    }
}
