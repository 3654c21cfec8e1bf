//! A server's replica: what a primary applies is forwarded, and acknowledged to workers only when the replica has it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex};

use super::account::Progress;
use super::connection::Connection;
use super::held::Held;
use super::{Shared, Told};
use crate::channel::Stream;
use crate::parameters::pipe::{Source, invalid, lock, prepare, send};
use crate::parameters::wire::{Header, Kind, Stamp};

/// Bytes that may wait to be forwarded before workers must wait.
const WAITING_BYTES: usize = 32 << 20;

/// Who waits for the replica to have a frame.
#[derive(Debug)]
pub(super) enum Awaits {
    NoOne,
    /// A worker, for this acknowledgement.
    Worker(Arc<Connection>, Header),
    /// The server itself: all pieces are there.
    Whole,
}

impl Awaits {
    /// The replica has it, or there is none; whether it was the last piece.
    pub(super) fn end(self) -> bool {
        if let Awaits::Worker(connection, applied) = &self {
            connection.acknowledge(applied);
        }
        matches!(self, Awaits::Whole)
    }
}

/// The connection from a primary to its replica.
#[derive(Debug)]
pub(super) struct Replica {
    stream: Stream,
    queue: Mutex<Queue>,
    changed: Condvar,
    room: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<(Header, Vec<f32>)>,
    /// For each frame that the replica has not acknowledged, in order.
    awaiting: VecDeque<Awaits>,
    bytes: usize,
    spare: Vec<Vec<f32>>,
    closed: bool,
}

impl Replica {
    pub(super) fn new(stream: Stream) -> io::Result<Arc<Replica>> {
        prepare(&stream)?;
        Ok(Arc::new(Replica {
            stream,
            queue: Mutex::default(),
            changed: Condvar::new(),
            room: Condvar::new(),
        }))
    }

    /// A copy of a gradient, to be forwarded.
    pub(super) fn copy(&self, values: &[f32]) -> Vec<f32> {
        let mut copy = lock(&self.queue).spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(values);
        copy
    }

    pub(super) fn wait_for_room(&self) {
        let full = |queue: &mut Queue| !queue.closed && queue.bytes > WAITING_BYTES;
        drop(self.room.wait_while(lock(&self.queue), full).expect("no holder of this lock has panicked"));
    }

    /// Sends a frame after all earlier ones. Returns who still waits for it: no one, unless the replica is gone.
    pub(super) fn forward(&self, header: Header, values: Vec<f32>, awaits: Awaits) -> Awaits {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return awaits;
        }
        queue.bytes += 4 * values.len();
        queue.frames.push_back((header, values));
        queue.awaiting.push_back(awaits);
        drop(queue);
        self.changed.notify_one();
        Awaits::NoOne
    }

    /// Writes what is forwarded until the replica is closed.
    pub(super) fn write(&self) -> io::Result<()> {
        let mut stream = self.stream.clone();
        loop {
            let idle = |queue: &mut Queue| !queue.closed && queue.frames.is_empty();
            let mut queue = self
                .changed
                .wait_while(lock(&self.queue), idle)
                .expect("no holder of this lock has panicked");
            let Some((header, values)) = queue.frames.pop_front().filter(|_| !queue.closed) else {
                return Ok(());
            };
            drop(queue);
            send(&mut stream, &header.encode(), &values)?;
            let mut queue = lock(&self.queue);
            queue.bytes -= 4 * values.len();
            queue.spare.push(values);
            drop(queue);
            self.room.notify_all();
        }
    }

    /// Takes acknowledgements until the connection ends; `whole` is called when all pieces are there.
    pub(super) fn read(&self, whole: impl Fn()) -> io::Result<()> {
        let mut source = Source::new(self.stream.clone());
        while let Some(header) = source.header()? {
            let awaits = lock(&self.queue).awaiting.pop_front();
            let awaits = awaits.filter(|_| header.kind == Kind::Applied);
            if awaits.ok_or_else(|| invalid(header.out_of_turn()))?.end() {
                whole();
            }
        }
        Ok(())
    }

    /// Ends the connection and releases those that wait for it. Returns whether it was open.
    pub(super) fn close(&self) -> bool {
        let mut queue = lock(&self.queue);
        let open = !std::mem::replace(&mut queue.closed, true);
        let awaiting = std::mem::take(&mut queue.awaiting);
        drop(queue);
        self.changed.notify_all();
        self.room.notify_all();
        // One that is closed already is what is wanted.
        let _ = self.stream.shutdown(Shutdown::Both);
        for awaits in awaiting {
            awaits.end();
        }
        open
    }
}

impl Shared {
    /// Goes on without this replica.
    pub(super) fn lose_replica(&self, replica: &Arc<Replica>, why: &str) {
        let mut current = lock(&self.replica);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, replica)) {
            *current = None;
        }
        drop(current);
        if replica.close() {
            (self.tell)(Told::ReplicaLost { why: why.to_owned() });
        }
    }

    /// Sends all pieces to a new replica; what is applied to each from then on follows it.
    pub(super) fn install(&self, replica: &Arc<Replica>) {
        // What an earlier replica had says nothing of this one.
        self.pieces.iter().for_each(|piece| lock(piece).forwarded = false);
        *lock(&self.replica) = Some(Arc::clone(replica));
        let before = lock(&self.ledger).progress.clone();
        let numbers = self.options.map.of_server(self.options.me);
        let ranges = before.ranges().filter_map(|range| Some((*numbers.first()?, range)));
        for (number, range) in ranges {
            let complete = self.to_replica(Kind::Complete, number);
            let complete = Header { unit: range.start, step: range.end, ..complete };
            replica.forward(complete, Vec::new(), Awaits::NoOne);
        }
        for (local, number) in numbers.iter().enumerate() {
            replica.wait_for_room();
            let mut held = lock(&self.pieces[local]);
            held.forwarded = true;
            let mut frames = self.describe(&held, *number, &before);
            let last = (local + 1 == numbers.len()).then(|| frames.pop()).flatten();
            for (header, values) in frames {
                replica.forward(header, values, Awaits::NoOne);
            }
            if let Some((header, values)) = last {
                replica.forward(header, values, Awaits::Whole);
            }
        }
        if numbers.is_empty() {
            (self.tell)(Told::Replicated);
        }
    }

    fn to_replica(&self, kind: Kind, number: u32) -> Header {
        let phase = self.phase().as_ref().map_or(0, |phase| phase.number);
        Header::new(kind, number, Stamp { job: self.options.job, phase })
    }

    /// The frames that make a replica's piece as this one is; the replica knows that the units of `before` are
    /// complete.
    fn describe(&self, held: &Held, number: u32, before: &Progress) -> Vec<(Header, Vec<f32>)> {
        let mut values = held.values.clone();
        held.slots.iter().for_each(|slot| values.extend_from_slice(slot));
        values.extend_from_slice(if held.previous.is_empty() { &held.values } else { &held.previous });
        let length_bytes = 4 * values.len() as u32;
        let header = self.to_replica(Kind::Install, number);
        let header = Header { length_bytes, step: held.step, version: held.version, ..header };
        let mut frames = vec![(header, values)];
        // Units that have become complete were applied here, and may have been forgotten.
        let mut known: BTreeSet<u64> = lock(&self.ledger).progress.since(before).into_iter().collect();
        known.extend(held.applied.iter().filter(|unit| !before.has(**unit)));
        held.gathered.iter().flatten().for_each(|(push, _)| {
            known.remove(&push.unit);
        });
        let known = known.into_iter().map(|unit| Header { unit, ..self.to_replica(Kind::Known, number) });
        frames.extend(known.map(|header| (header, Vec::new())));
        frames.extend(held.gathered.iter().flatten().cloned());
        frames
    }

    /// Does what a primary did, frame by frame, and acknowledges it.
    pub(super) fn follow(&self, mut stream: Stream) -> io::Result<()> {
        prepare(&stream)?;
        let mut source = Source::new(stream.clone());
        let slots = self.options.slots;
        let mut values = Vec::new();
        while let Some(header) = source.header()? {
            let (local, piece) = self.check(&header).map_err(invalid)?;
            let parts = match header.kind {
                Kind::Install if piece.state => 2,
                Kind::Install => 2 + slots,
                Kind::Push => 1,
                Kind::Known | Kind::Complete => 0,
                _ => return Err(invalid(header.out_of_turn())),
            };
            header.check_length(parts * piece.bytes()).map_err(invalid)?;
            values.resize(parts * piece.len(), 0.0);
            source.payload(&mut values)?;
            match header.kind {
                Kind::Push => self.push(None, &header, local, &mut values).map_err(invalid)?,
                Kind::Install => self.take(&header, local, &values),
                Kind::Complete => lock(&self.ledger).progress.insert(header.unit..header.step),
                _ => self.know(header.unit, local),
            }
            send(&mut stream, &Header { kind: Kind::Applied, length_bytes: 0, ..header }.encode(), &[])?;
        }
        Ok(())
    }

    /// Takes a whole piece: its values, each slot's, and the values of the step before.
    fn take(&self, header: &Header, local: usize, values: &[f32]) {
        let mut held = lock(&self.pieces[local]);
        let length = held.values.len();
        let mut parts = values.chunks_exact(length);
        let mut next = || parts.next().expect("the length was checked");
        held.values.copy_from_slice(next());
        held.slots.iter_mut().for_each(|slot| slot.copy_from_slice(next()));
        held.version = header.version;
        let units = held.gathered.len();
        held.begin(header.step, units);
        if units > 0 {
            held.previous = next().to_vec();
        }
    }

    /// Remembers a unit that the primary applied to a piece, unless it is known: workers send some twice.
    fn know(&self, unit: u64, local: usize) {
        let mut held = lock(&self.pieces[local]);
        if !self.knows(&held, unit) {
            self.remember(&mut held, unit);
        }
    }
}
