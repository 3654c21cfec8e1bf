//! A worker's connection at its server: what it asks and pushes is read on one thread, what it gets is written on
//! another.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex};

use bellwether_core::plan::TransmissionOrder;

use super::Shared;
use crate::channel::Stream;
use crate::parameters::outbox::Outbox;
use crate::parameters::pipe::{Source, invalid, lock, prepare, send};
use crate::parameters::wire::{Header, Kind};

/// The way back to one worker.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) worker: u64,
    stream: Stream,
    out: Mutex<Out>,
    changed: Condvar,
}

#[derive(Debug)]
struct Out {
    /// Acknowledgements, encoded; they go before any piece.
    acknowledgements: Vec<u8>,
    /// Pulls to be answered.
    pieces: Outbox<Header>,
    closed: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream, worker: u64, order: &TransmissionOrder) -> io::Result<Arc<Connection>> {
        prepare(&stream)?;
        let out = Out { acknowledgements: Vec::new(), pieces: Outbox::new(order), closed: false };
        Ok(Arc::new(Connection { worker, stream, out: Mutex::new(out), changed: Condvar::new() }))
    }

    pub(super) fn acknowledge(&self, applied: &Header) {
        lock(&self.out).acknowledgements.extend_from_slice(&applied.encode());
        self.changed.notify_one();
    }

    /// Lets a pull be answered in its turn.
    pub(super) fn answer(&self, tensor: usize, bytes: usize, pull: Header) {
        lock(&self.out).pieces.put(tensor as u32, bytes as u64, pull);
        self.changed.notify_one();
    }

    /// Ends both threads.
    pub(super) fn close(&self) {
        lock(&self.out).closed = true;
        self.changed.notify_one();
        // One that is closed already is what is wanted.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Answers until the connection is closed.
    pub(super) fn write(&self, shared: &Shared) -> io::Result<()> {
        let mut stream = self.stream.clone();
        let (mut headers, mut values) = (Vec::new(), Vec::new());
        loop {
            headers.clear();
            values.clear();
            let pull = {
                let idle =
                    |out: &mut Out| !out.closed && out.acknowledgements.is_empty() && out.pieces.is_empty();
                let mut out = self
                    .changed
                    .wait_while(lock(&self.out), idle)
                    .expect("no holder of this lock has panicked");
                if out.closed {
                    return Ok(());
                }
                std::mem::swap(&mut out.acknowledgements, &mut headers);
                out.pieces.take()
            };
            if let Some(pull) = pull {
                let data = shared.read(&pull, &mut values);
                headers.extend_from_slice(&data.encode());
            }
            send(&mut stream, &headers, &values)?;
            shared.sent((headers.len() + 4 * values.len()) as u64);
        }
    }

    /// Takes what the worker asks and pushes until it closes the connection.
    pub(super) fn read(self: &Arc<Self>, shared: &Shared) -> io::Result<()> {
        let mut source = Source::new(self.stream.clone());
        let mut values = Vec::new();
        while let Some(header) = source.header()? {
            let (local, piece) = shared.check(&header).map_err(invalid)?;
            match header.kind {
                Kind::Pull => {
                    header.check_length(0).map_err(invalid)?;
                    shared.pull(self, header, local);
                }
                Kind::Push => {
                    header.check_length(piece.bytes()).map_err(invalid)?;
                    values.resize(piece.len(), 0.0);
                    source.payload(&mut values)?;
                    shared.push(Some(self), &header, local, &mut values).map_err(invalid)?;
                }
                _ => return Err(invalid(header.out_of_turn())),
            }
        }
        Ok(())
    }
}
