//! The threads of one worker's connection: one decodes and sends units, one receives answers and writes results down.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_core::InputError;

use super::wire::{Message, WireError, receive, send, send_weights};
use super::work::Work;
use crate::channel::Stream;
use crate::membership::WorkerId;

/// What the coordinator's main loop hears of.
pub(super) enum Event<W: Work> {
    /// The source gave a unit, or has no more.
    Unit(Result<Option<W::Unit>, InputError>),
    /// A connection passed the handshake: of a worker with this number, 0 of one that no coordinator started.
    Arrived { worker: WorkerId, stream: Stream },
    /// A worker can compute, by these kernels; where its units go.
    Ready { hand: u64, class: String, grants: Sender<Granted<W::Unit>> },
    /// A unit is computed, or cannot be.
    Done { hand: u64, unit: u64, result: Result<W::Output, InputError> },
    /// A worker is gone.
    Gone { hand: u64, why: String, is_user: bool },
    /// Other numbers of workers are wanted, by who waits for an answer here.
    Scale { workers: u32, stream: Stream },
}

/// A unit with its number.
pub(super) type Granted<U> = (u64, Arc<U>);

/// What every worker is told, and where its thread reports to.
pub(super) struct Shared<W: Work> {
    pub(super) work: Arc<W>,
    pub(super) job: String,
    pub(super) description: String,
    pub(super) parameters: Vec<f32>,
    pub(super) state: Vec<f32>,
    pub(super) events: Sender<Event<W>>,
}

type Held<U> = Mutex<BTreeMap<u64, Arc<U>>>;

fn lock<U>(held: &Held<U>) -> MutexGuard<'_, BTreeMap<u64, Arc<U>>> {
    // A map is whole whatever thread panicked while it held the lock.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a worker until it is gone.
pub(super) fn serve<W: Work>(shared: &Arc<Shared<W>>, hand: u64, stream: &Stream) {
    let (why, is_user) = match talk(shared, hand, stream) {
        Ok(Message::Failed { what, is_user }) => (what, is_user),
        Ok(_) => ("it says something out of turn".into(), false),
        Err(WireError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => ("it hung up".into(), false),
        Err(error) => (error.to_string(), false),
    };
    // The thread that still writes to it is to stop.
    let _ = stream.shutdown(Shutdown::Both);
    let _ = shared.events.send(Event::Gone { hand, why, is_user });
}

/// Tells a worker its task and takes its answers; returns the first message that is none.
fn talk<W: Work>(shared: &Arc<Shared<W>>, hand: u64, stream: &Stream) -> Result<Message, WireError> {
    let mut to = stream.clone();
    let mut from = BufReader::with_capacity(1 << 16, stream.clone());
    let task = Message::Task { job: shared.job.clone(), description: shared.description.clone() };
    send(&mut to, &task)?;
    send_weights(&mut to, &[&shared.parameters, &shared.state])?;
    let class = match receive(&mut from, 0)? {
        Message::Ready(class) => class,
        other => return Ok(other),
    };
    let held: Arc<Held<W::Unit>> = Arc::default();
    let (grants, granted) = channel();
    let (own, theirs) = (Arc::clone(shared), Arc::clone(&held));
    let sender = move || feed(&own, hand, to, &granted, &theirs);
    std::thread::Builder::new().name("units".into()).spawn(sender)?;
    let _ = shared.events.send(Event::Ready { hand, class, grants });
    loop {
        let (number, answer) = match receive(&mut from, 0)? {
            Message::Done(number, answer) => (number, answer),
            other => return Ok(other),
        };
        let unit = lock(&held).remove(&number);
        let unit = unit.ok_or(WireError::Malformed("it answers a unit that it does not hold"))?;
        let result = shared.work.output(&unit, answer);
        let _ = shared.events.send(Event::Done { hand, unit: number, result });
    }
}

/// Sends a worker its units, and says goodbye when it gets no more.
fn feed<W: Work>(
    shared: &Shared<W>,
    hand: u64,
    mut to: Stream,
    granted: &Receiver<Granted<W::Unit>>,
    held: &Held<W::Unit>,
) {
    for (number, unit) in granted {
        match shared.work.request(&unit) {
            Ok(request) => {
                lock(held).insert(number, unit);
                if send(&mut to, &Message::Unit(number, request)).is_err() {
                    // The other thread sees it, too, and reports.
                    let _ = to.shutdown(Shutdown::Both);
                    return;
                }
            }
            Err(error) => {
                let _ = shared.events.send(Event::Done { hand, unit: number, result: Err(error) });
            }
        }
    }
    let _ = send(&mut to, &Message::End);
}
