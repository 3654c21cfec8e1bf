//! The connection to one server: what is to be sent, and the two threads that send and receive.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;

use bellwether_core::plan::TransmissionOrder;

use super::{Inner, Shared, Stage};
use crate::channel::Stream;
use crate::parameters::map::Piece;
use crate::parameters::outbox::Outbox;
use crate::parameters::pipe::{Source, invalid, lock, prepare, send};
use crate::parameters::wire::{Header, Kind, Stamp, WireError};

/// The client's side of one server.
#[derive(Debug)]
pub(super) struct Link {
    /// Counts connections, so that the threads of an old one know it.
    generation: u64,
    stream: Option<Stream>,
    lost: Option<String>,
    /// Encoded; they go before any gradient.
    pulls: Vec<u8>,
    pushes: Outbox<u32>,
    threads: Vec<JoinHandle<()>>,
}

impl Link {
    pub(super) fn new(order: &TransmissionOrder) -> Link {
        let (pulls, threads) = (Vec::new(), Vec::new());
        Link { generation: 0, stream: None, lost: None, pulls, pushes: Outbox::upwards(order), threads }
    }

    /// Why it is broken, if it is.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(super) fn clear(&mut self) {
        self.pulls.clear();
        self.pushes.clear();
    }

    pub(super) fn pull(&mut self, pull: &Header) {
        self.pulls.extend_from_slice(&pull.encode());
    }

    pub(super) fn put(&mut self, number: u32, piece: &Piece) {
        self.pushes.put(piece.tensor as u32, piece.bytes() as u64, number);
    }
}

impl Shared {
    /// Takes a connection to a server, and sends on it what is to be sent.
    pub(super) fn connect(self: &Arc<Self>, server: u32, stream: Stream) -> io::Result<()> {
        prepare(&stream)?;
        let (reading, writing) = (stream.clone(), stream.clone());
        let mut inner = lock(&self.inner);
        self.ask(&mut inner, server);
        let link = &mut inner.links[server as usize];
        (link.stream, link.lost) = (Some(stream), None);
        let generation = link.generation;
        let shared = Arc::clone(self);
        let receive = move || {
            let ended = shared.receive(server, generation, reading);
            shared.lose(server, generation, ended);
        };
        let shared = Arc::clone(self);
        let transmit = move || {
            let ended = shared.transmit(server, generation, writing);
            shared.lose(server, generation, ended);
        };
        link.threads.push(std::thread::Builder::new().name("pieces-in".into()).spawn(receive)?);
        link.threads.push(std::thread::Builder::new().name("pieces-out".into()).spawn(transmit)?);
        drop(inner);
        self.changed.notify_all();
        Ok(())
    }

    /// Closes the connection to a server and waits for its threads, which give back the buffers that they hold.
    pub(super) fn disconnect(&self, server: u32) {
        let mut inner = lock(&self.inner);
        let link = &mut inner.links[server as usize];
        link.generation += 1;
        if let Some(stream) = link.stream.take() {
            // One that is closed already is what is wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }
        link.lost.get_or_insert_with(|| "its connection was closed here".to_owned());
        let threads = std::mem::take(&mut link.threads);
        drop(inner);
        self.due[server as usize].notify_all();
        for thread in threads {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }

    /// Notes that a connection ended, unless it is known or was meant.
    fn lose(&self, server: u32, generation: u64, ended: io::Result<()>) {
        let mut inner = lock(&self.inner);
        let link = &mut inner.links[server as usize];
        if link.generation != generation || link.lost.is_some() {
            return;
        }
        let closed = || "it closed the connection".to_owned();
        link.lost = Some(ended.err().map_or_else(closed, |error| error.to_string()));
        if let Some(stream) = &link.stream {
            // Ends the other thread, too.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(inner);
        self.due[server as usize].notify_all();
        self.changed.notify_all();
    }

    /// Sends what is due until the connection is closed or replaced.
    fn transmit(&self, server: u32, generation: u64, mut stream: Stream) -> io::Result<()> {
        let mut headers = Vec::new();
        loop {
            headers.clear();
            let idle = |inner: &mut Inner| {
                let link = &inner.links[server as usize];
                link.generation == generation
                    && link.lost.is_none()
                    && link.pulls.is_empty()
                    && link.pushes.is_empty()
            };
            let waited = self.due[server as usize].wait_while(lock(&self.inner), idle);
            let mut inner = waited.expect("no holder of this lock has panicked");
            let Inner { work: Some(work), pieces, links, .. } = &mut *inner else { return Ok(()) };
            let link = &mut links[server as usize];
            if link.generation != generation || link.lost.is_some() {
                return Ok(());
            }
            std::mem::swap(&mut headers, &mut link.pulls);
            let (unit, number) = (work.unit, link.pushes.take());
            let mut values = Vec::new();
            // What was acknowledged meanwhile (it had been sent before) need not go again.
            let given = |number: &u32| pieces[*number as usize].stage == Stage::Given;
            let number = number.filter(given);
            if let Some(number) = number {
                let piece = &self.options.map.pieces()[number as usize];
                let slot = &mut pieces[number as usize];
                values = std::mem::take(&mut slot.values);
                let push = self.header(Kind::Push, number, work);
                let scale = if piece.state { work.samples as f32 } else { work.scale };
                let (length_bytes, version) = (piece.bytes() as u32, slot.version);
                let push = Header { length_bytes, version, scale, share: work.share, ..push };
                headers.extend_from_slice(&push.encode());
            }
            drop(inner);
            let sent = send(&mut stream, &headers, &values);
            self.moved();
            if let Some(number) = number {
                let mut inner = lock(&self.inner);
                let same = inner.work.is_some_and(|work| work.unit == unit);
                let slot = &mut inner.pieces[number as usize];
                if same && matches!(slot.stage, Stage::Given | Stage::Applied) {
                    slot.values = values;
                }
            }
            sent?;
        }
    }

    /// Takes pieces and acknowledgements until the connection ends.
    fn receive(&self, server: u32, generation: u64, stream: Stream) -> io::Result<()> {
        let mut source = Source::new(stream);
        let mut unwanted = Vec::new();
        while let Some(header) = source.header()? {
            let piece = self.options.map.pieces().get(header.piece as usize);
            let piece = piece.filter(|piece| piece.server == server);
            let piece = piece.ok_or_else(|| invalid(WireError::OtherPiece(header.piece)))?;
            let here = Stamp { job: self.options.job, ..header.stamp };
            header.check(&here).map_err(invalid)?;
            self.moved();
            match header.kind {
                Kind::Applied => {
                    header.check_length(0).map_err(invalid)?;
                    self.applied(&header);
                }
                Kind::Data => {
                    header.check_length(piece.bytes()).map_err(invalid)?;
                    let mut values = self.expected(&header).unwrap_or_else(|| std::mem::take(&mut unwanted));
                    values.resize(piece.len(), 0.0);
                    let read = source.payload(&mut values);
                    unwanted = self.arrived(&header, generation, values, read.is_ok()).unwrap_or(unwanted);
                    read?;
                }
                _ => return Err(invalid(header.out_of_turn())),
            }
        }
        Ok(())
    }

    /// The buffer for a piece that was asked for; `None` when it is not wanted any more.
    fn expected(&self, data: &Header) -> Option<Vec<f32>> {
        let mut inner = lock(&self.inner);
        let wanted = inner.work.is_some_and(|work| work.unit == data.unit);
        let slot = &mut inner.pieces[data.piece as usize];
        (wanted && slot.stage == Stage::Asked).then(|| std::mem::take(&mut slot.values))
    }

    /// Takes a piece that has arrived, or broke off; the buffer, if it is not wanted any more.
    fn arrived(&self, data: &Header, generation: u64, values: Vec<f32>, whole: bool) -> Option<Vec<f32>> {
        let mut inner = lock(&self.inner);
        let server = self.options.map.pieces()[data.piece as usize].server;
        let current = inner.links[server as usize].generation == generation;
        let wanted = inner.work.is_some_and(|work| work.unit == data.unit);
        let slot = &mut inner.pieces[data.piece as usize];
        if !(wanted && slot.stage == Stage::Asked) {
            return Some(values);
        }
        slot.values = values;
        if whole && current {
            (slot.stage, slot.version) = (Stage::Here, data.version);
            drop(inner);
            self.changed.notify_all();
        }
        None
    }

    /// Counts an acknowledgement.
    fn applied(&self, applied: &Header) {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let wanted = inner.work.is_some_and(|work| work.unit == applied.unit);
        let slot = &mut inner.pieces[applied.piece as usize];
        if !(wanted && slot.stage == Stage::Given) {
            return;
        }
        slot.stage = Stage::Applied;
        inner.unacknowledged -= 1;
        let account = &mut inner.tally.account;
        account.repeated += applied.step;
        account.staleness_max = account.staleness_max.max(applied.version);
        inner.tally.staleness_sum += applied.version;
        if inner.unacknowledged == 0 {
            self.changed.notify_all();
        }
    }
}
