//! A worker in a phase without a membership: unit by unit, with parameters that servers hold.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_core::job::Job;
use bellwether_core::prediction::Protocol;

use super::Worker;
use super::engine::Fault;
use super::links::{Connector, LinkError};
use super::session::Mailbox;
use crate::membership::member::Task;
use crate::membership::{Activity, EvaluationRecord, FromWorker, Peer, Phase, Report, ToWorker, UnitRecord};
use crate::parameters::{self, Client, ClientOptions, Handle, ShardMap, Work};
use crate::timed::TimedExchange;
use averaging::Averaging;

mod averaging;

/// How long a unit may wait for a server that is gone to be replaced.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time between two looks at whether a server has to be called again.
const LOOK: Duration = Duration::from_millis(10);

/// A worker asks for units early enough to have this many seconds of work.
const AHEAD_S: f64 = 0.01;

/// Most units that a worker holds.
const AHEAD_MAX: u32 = 64;

/// Longest time between two accounts of units that are done.
const REPORT: Duration = Duration::from_millis(20);

/// What decides how units are cut and weighed.
#[derive(Debug, Clone)]
pub(super) struct Units {
    nodes_per_unit: u32,
    per_step: u64,
    batch: u64,
    rate: bellwether_core::job::AsyncRateScaling,
}

impl Units {
    pub(super) fn new(job: &Job) -> Units {
        let nodes_per_unit = job.sync.nodes_per_update.max(1);
        Units {
            nodes_per_unit,
            per_step: u64::from(job.batch.virtual_nodes / nodes_per_unit).max(1),
            batch: job.batch.size,
            rate: job.sync.rate,
        }
    }

    /// The step and the virtual nodes of a unit.
    fn of(&self, unit: u64) -> (u64, Range<u32>) {
        let first = (unit % self.per_step) as u32 * self.nodes_per_unit;
        (unit / self.per_step, first..first + self.nodes_per_unit)
    }
}

/// With whom tensors are exchanged.
enum Exchange {
    Servers {
        client: Client,
        _mender: Mender,
    },
    Peers(Averaging),
    /// Taken out for a moment.
    NoOne,
}

/// The phase under way.
pub(super) struct Asynchronous {
    epoch: u64,
    protocol: Protocol,
    exchange: Exchange,
    done: Vec<UnitRecord>,
    reported: Instant,
    /// Moving average of the time of a unit.
    unit_s: f64,
    asked: Option<u32>,
}

impl Asynchronous {
    fn new(phase: &Phase, exchange: Exchange) -> Asynchronous {
        Asynchronous {
            epoch: phase.epoch,
            protocol: phase.protocol,
            exchange,
            done: Vec::new(),
            reported: Instant::now(),
            unit_s: 0.0,
            asked: None,
        }
    }

    fn ahead_of_time(&self) -> u32 {
        if self.unit_s == 0.0 {
            // Nothing is known yet, and what one worker holds another cannot do.
            return 1;
        }
        ((AHEAD_S / self.unit_s.max(1e-6)).ceil() as u32 + 1).min(AHEAD_MAX)
    }

    /// Units to hold: more than one where they are short and no worker waits for another.
    fn ahead(&self) -> u32 {
        match self.protocol {
            Protocol::Bsp | Protocol::Local(_) => 1,
            Protocol::Ssp(bound) => self.ahead_of_time().min(bound.saturating_add(1)),
            Protocol::Asp | Protocol::Gossip => self.ahead_of_time(),
        }
    }
}

impl Worker {
    /// Connects to the phase that the coordinator speaks of, for this task; whether that could be.
    fn enter(&mut self, task: &Task) -> bool {
        let Some(phase) = self.member.phase() else {
            self.leave_asynchronous();
            return false;
        };
        if self.asynchronous.as_ref().is_some_and(|asynchronous| asynchronous.epoch == phase.epoch) {
            return true;
        }
        let phase = phase.clone();
        self.leave_asynchronous();
        self.engine.stand(Activity::Forming, phase.epoch, self.member.step());
        let exchange = if phase.protocol == Protocol::Gossip {
            self.begin_averaging(&phase).map(Exchange::Peers)
        } else {
            self.call_servers(&phase)
        };
        match exchange {
            Ok(exchange) => {
                self.engine.mesh.clear();
                self.asynchronous = Some(Asynchronous::new(&phase, exchange));
                self.stand(task);
                true
            }
            // The server may be gone; another address is on its way.
            Err(_) => {
                self.connection.mailbox.wait(LOOK);
                false
            }
        }
    }

    fn call_servers(&self, phase: &Phase) -> Result<Exchange, LinkError> {
        let servers = phase.servers.len() as u32;
        let map = Arc::new(ShardMap::new(self.engine.workload.layout(), servers.max(1)));
        let connector = &self.connector;
        let dial = |peer: &Peer| connector.parameter_stream(phase.epoch, &peer.address);
        let streams = phase.servers.iter().map(dial).collect::<Result<Vec<_>, _>>()?;
        let options = ClientOptions {
            map,
            job: connector.token.job_tag(),
            order: phase.order.clone(),
            patience: PATIENCE,
        };
        let client = Client::new(options, streams)?;
        client.watched_by(&self.engine.progress, phase.servers.iter().map(|peer| peer.worker).collect());
        let mailbox = &self.connection.mailbox;
        mailbox.interrupts(Some(client.handle()));
        let mender = Mender::start(phase.clone(), client.handle(), connector.clone(), Arc::clone(mailbox));
        Ok(Exchange::Servers { client, _mender: mender? })
    }

    /// Forgets a phase that is over.
    pub(super) fn leave_asynchronous(&mut self) {
        if self.asynchronous.take().is_some() {
            self.connection.mailbox.interrupts(None);
        }
    }

    /// Asks for units, and waits for them.
    pub(super) fn idle(&mut self) {
        if self.enter(&Task::Idle) {
            self.account(true);
        }
        self.connection.mailbox.wait(Duration::from_millis(100));
    }

    /// Computes a unit and has its gradient applied.
    pub(super) fn unit(&mut self, unit: u64) {
        if !self.enter(&Task::Unit(unit)) {
            return;
        }
        let asynchronous = self.asynchronous.as_mut().expect("it was entered");
        let mut exchange = std::mem::replace(&mut asynchronous.exchange, Exchange::NoOne);
        let done = match &mut exchange {
            Exchange::Servers { client, .. } => self.compute(unit, client),
            Exchange::Peers(averaging) => self.average(unit, averaging),
            Exchange::NoOne => unreachable!("it is put back at once"),
        };
        if let Some(asynchronous) = &mut self.asynchronous {
            asynchronous.exchange = exchange;
        }
        match done {
            Ok(record) => {
                self.member.unit_done(unit);
                let left = self.member.granted();
                let asynchronous = self.asynchronous.as_mut().expect("it was entered");
                asynchronous.unit_s += if asynchronous.unit_s == 0.0 { 1.0 } else { 0.1 }
                    * (record.duration_s - asynchronous.unit_s);
                asynchronous.done.push(record);
                let waits = left == 0 || !matches!(asynchronous.protocol, Protocol::Asp | Protocol::Gossip);
                self.account(waits || left < asynchronous_half(self.asynchronous.as_ref()));
            }
            // What interrupted it says what to do next.
            Err(Fault::Collective(_, why)) => {
                if !self.connection.mailbox.urgent() {
                    self.connection.say(FromWorker::Failed { what: why.clone() });
                    let effects = self.member.message(ToWorker::Bye { reason: why, refused: true });
                    self.carry_out(effects);
                }
            }
            Err(Fault::NotFinite(what)) => {
                let (step, _) = self.units.of(unit);
                self.connection.say(FromWorker::NotFinite { step, what });
                self.member.unit_done(unit);
            }
            Err(fault @ (Fault::Workload(..) | Fault::Mismatch(_) | Fault::Lacking { .. })) => {
                if !self.connection.mailbox.urgent() {
                    self.fault(fault);
                }
            }
        }
    }

    fn compute(&mut self, unit: u64, client: &mut Client) -> Result<UnitRecord, Fault> {
        let began = Instant::now();
        self.engine.workload.take_data_wait_s();
        let (step, nodes) = self.units.of(unit);
        let samples = self.engine.unit_samples(step, nodes.clone());
        let together =
            self.asynchronous.as_ref().is_some_and(|asynchronous| asynchronous.protocol == Protocol::Bsp);
        if samples == 0 && !together {
            return Ok(UnitRecord { unit, ..UnitRecord::default() });
        }
        let of_step = self.engine.order.samples_in(step);
        let share = self.units.rate.factor(samples as f64 / self.units.batch as f64) as f32;
        let asynchronous = self.asynchronous.as_mut().expect("it was entered");
        let first = asynchronous.unit_s == 0.0;
        let scale = 1.0 / if together { of_step } else { samples } as f64;
        let work = Work {
            phase: asynchronous.epoch,
            unit,
            step,
            together,
            scale: scale as f32,
            share,
            samples: of_step,
        };
        client.handle().resume();
        if self.connection.mailbox.urgent() {
            return Err(Fault::interrupted());
        }
        client.begin(work).map_err(lost)?;
        let mut state = client.state().map_err(lost)?.to_vec();
        let computed = Instant::now();
        let mut timed = TimedExchange::new(client);
        let clips = self.engine.optimizer.clips() && !together;
        let gradient = match clips {
            true => self.engine.unit_clipped(step, nodes, &mut timed, &mut state),
            false => self.engine.unit(step, nodes, &mut timed, &mut state, together),
        };
        let mut segments = timed.finish();
        let gradient = gradient?;
        let data_wait_s = self.engine.workload.take_data_wait_s();
        // A workload waits for its samples before it computes, so it is the longest segment that holds the waiting.
        if let Some(longest_s) = segments.compute_s.iter_mut().max_by(|a, b| a.total_cmp(b)) {
            *longest_s = (*longest_s - data_wait_s).max(0.0);
        }
        client.give_state(&state).map_err(lost)?;
        let account = client.finish().map_err(lost)?;
        let compute_s: f64 = segments.compute_s.iter().sum();
        debug_assert!(compute_s <= computed.elapsed().as_secs_f64());
        Ok(UnitRecord {
            worker: 0,
            unit,
            samples: gradient.samples,
            loss_sum: gradient.loss_sum,
            duration_s: began.elapsed().as_secs_f64(),
            compute_s,
            data_wait_s,
            wait_s: account.waited_s,
            segments_s: segments.compute_s,
            calls: if first { segments.calls } else { Vec::new() },
        })
    }

    /// Tells what was done, and how many units this worker would like to hold.
    fn account(&mut self, urgent: bool) {
        let Some(asynchronous) = &mut self.asynchronous else { return };
        let want = asynchronous.ahead();
        let news = !asynchronous.done.is_empty() || asynchronous.asked != Some(want);
        if !news || !urgent && asynchronous.reported.elapsed() < REPORT {
            return;
        }
        let done = std::mem::take(&mut asynchronous.done);
        (asynchronous.reported, asynchronous.asked) = (Instant::now(), Some(want));
        self.connection.say(FromWorker::Units { epoch: asynchronous.epoch, done, want });
    }

    /// Evaluates the held-out set with what the servers hold now.
    pub(super) fn evaluate_alone(&mut self, step: u64) {
        if !self.enter(&Task::EvaluateAlone(step)) {
            return;
        }
        if let Ok(record) = self.evaluation(step) {
            let report = Report { evaluations: vec![record], ..Report::default() };
            self.connection.say(FromWorker::Report(report));
        }
        self.member.evaluated_alone();
    }

    fn evaluation(&mut self, step: u64) -> Result<EvaluationRecord, Fault> {
        let asynchronous = self.asynchronous.as_mut().expect("it was entered");
        let (phase, together) = (asynchronous.epoch, asynchronous.protocol == Protocol::Bsp);
        let mut exchange = std::mem::replace(&mut asynchronous.exchange, Exchange::NoOne);
        let record = match &mut exchange {
            Exchange::Servers { client, .. } => {
                let work = Work { phase, unit: u64::MAX, step, together, scale: 1.0, share: 1.0, samples: 1 };
                client.handle().resume();
                let state =
                    client.begin(work).and_then(|()| client.state().map(<[f32]>::to_vec)).map_err(lost);
                state.and_then(|state| self.engine.evaluate_alone(step, client, &state))
            }
            Exchange::Peers(averaging) => {
                self.read_own(averaging);
                self.engine.evaluate_held(step)
            }
            Exchange::NoOne => unreachable!("it is put back at once"),
        };
        if let Some(asynchronous) = &mut self.asynchronous {
            asynchronous.exchange = exchange;
        }
        record
    }

    /// Sends the whole state to the coordinator, where there are no servers that hold it.
    pub(super) fn hand_over(&mut self, step: u64) {
        self.account(true);
        if let Some(mut asynchronous) = self.asynchronous.take() {
            if let Exchange::Peers(averaging) = &asynchronous.exchange
                && let Err(error) = self.send_own(step, averaging)
            {
                self.connection.say(FromWorker::Failed { what: error.to_string() });
            }
            asynchronous.reported = Instant::now();
            self.asynchronous = Some(asynchronous);
        }
        self.member.handed_over();
    }
}

/// Half of the units that a worker would like to hold.
fn asynchronous_half(asynchronous: Option<&Asynchronous>) -> usize {
    asynchronous.map_or(0, |asynchronous| asynchronous.ahead() as usize / 2)
}

fn lost(fault: parameters::Fault) -> Fault {
    Fault::Collective(None, fault.to_string())
}

/// Calls servers again whose connections broke, where the coordinator says that they are.
struct Mender {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mender {
    fn start(
        phase: Phase,
        handle: Handle,
        connector: Connector,
        mailbox: Arc<Mailbox>,
    ) -> std::io::Result<Mender> {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let mut called = phase.servers;
        let mend = move || {
            while !stop.load(Ordering::Acquire) {
                std::thread::sleep(LOOK);
                let lost: Vec<u32> = handle.lost().into_iter().map(|(server, _)| server).collect();
                let latest = mailbox.phase().filter(|latest| latest.epoch == phase.epoch);
                let servers = latest.map_or_else(|| called.clone(), |latest| latest.servers);
                for ((server, peer), called) in (0..).zip(servers).zip(&mut called) {
                    // One that hangs keeps its connection while another has taken its place.
                    if !lost.contains(&server) && peer == *called {
                        continue;
                    }
                    // One that is gone refuses, and is called again until there is another.
                    if let Ok(stream) = connector.parameter_stream(phase.epoch, &peer.address) {
                        handle.is_now(server, peer.worker);
                        drop(handle.replace(server, stream));
                        *called = peer;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("mender".into()).spawn(mend)?;
        Ok(Mender { over, thread: Some(thread) })
    }
}

impl Drop for Mender {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
