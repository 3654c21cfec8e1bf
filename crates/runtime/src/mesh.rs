//! Data-plane connections between the workers of a job.
//!
//! Of two workers, the one with the larger id dials the smaller one's [listener](crate::channel::Listener). A [`Mesh`]
//! is the set of finished connections of one worker in one membership epoch, as the collective uses them.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use bellwether_memory::Arena;

use crate::channel::Stream;
use crate::channel::patience::{UNKNOWN_PATIENCE, of_steps};
use crate::progress::Progress;
use conduit::Conduit;
pub(crate) use conduit::Moved;

mod conduit;

/// Bytes read ahead of the current frame, kept with the connection because they may belong to the
/// next step.
const STASH_BYTES: usize = 4096;

/// The connections of one worker to its peers, by worker id.
#[derive(Debug)]
pub struct Mesh {
    links: BTreeMap<u64, Link>,
    /// How long a peer may let what was sent to it wait.
    patience: Duration,
    /// Where the vectors lie that peers of this machine may read.
    pub(crate) arena: Option<Arena>,
    /// Where its user notes how far it is.
    pub(crate) progress: Option<Arc<Progress>>,
}

impl Default for Mesh {
    fn default() -> Mesh {
        Mesh { links: BTreeMap::new(), patience: UNKNOWN_PATIENCE, arena: None, progress: None }
    }
}

impl Mesh {
    /// A mesh without connections.
    pub fn new() -> Mesh {
        Mesh::default()
    }

    /// Peers of this machine that are connected from now on may read the vectors of this arena, while an exchange lends
    /// them.
    pub fn share(&mut self, arena: Arena) {
        self.arena = Some(arena);
    }

    /// Adds the connection to `worker`, made nonblocking; an older one to the same worker is closed.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket refuses its options.
    pub fn insert(&mut self, worker: u64, stream: Stream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.limit_silence(self.patience)?;
        self.links.insert(worker, Link::new(stream, self.arena.as_ref()));
        Ok(())
    }

    /// A step takes so long: peers that compute read nothing meanwhile, and are not given up for that.
    pub fn expect_step(&mut self, step: Duration) {
        let patience = of_steps(step);
        // Each change is a system call per peer.
        if self.patience != UNKNOWN_PATIENCE && patience <= self.patience {
            return;
        }
        self.patience = 2 * patience;
        for link in self.links.values() {
            // A socket that refuses is broken, which its user learns.
            let _ = link.conduit.stream.limit_silence(self.patience);
        }
    }

    /// How long a peer may let everything wait: many times the longest step.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Takes the connection to `worker` out; dropping the stream closes it.
    ///
    /// The stream is nonblocking, and bytes the collective read ahead are gone.
    pub fn remove(&mut self, worker: u64) -> Option<Stream> {
        self.links.remove(&worker).map(|link| link.conduit.stream)
    }

    /// The connection to `worker`.
    pub fn get(&self, worker: u64) -> Option<&Stream> {
        self.links.get(&worker).map(|link| &link.conduit.stream)
    }

    /// Ids of the connected workers, ascending.
    pub fn workers(&self) -> impl Iterator<Item = u64> + '_ {
        self.links.keys().copied()
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Closes all connections.
    pub fn clear(&mut self) {
        self.links.clear();
    }

    /// All links, ascending by worker id.
    pub(crate) fn links_mut(&mut self) -> impl Iterator<Item = (u64, &mut Link)> {
        self.links.iter_mut().map(|(worker, link)| (*worker, link))
    }
}

/// One nonblocking connection with what was read ahead from it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conduit: Conduit,
    stash: Vec<u8>,
    start: usize,
    end: usize,
    /// Size asked for the socket's buffers; 0 while the system sizes them.
    buffer_bytes: usize,
}

impl Link {
    pub(crate) fn new(stream: Stream, arena: Option<&Arena>) -> Link {
        let conduit = Conduit::new(stream, arena);
        Link { conduit, stash: vec![0; STASH_BYTES], start: 0, end: 0, buffer_bytes: 0 }
    }

    /// Keeps the buffers of a connection within one host this small, so that what is in flight stays in
    /// cache. Between hosts the system sizes them by the delay.
    pub(crate) fn limit_buffers(&mut self, bytes: usize) {
        if self.buffer_bytes == bytes {
            return;
        }
        self.buffer_bytes = bytes;
        if self.conduit.stream.is_local() {
            // Only speed depends on it.
            let _ = self.conduit.stream.set_send_buffer_bytes(bytes);
        }
    }

    /// Bytes read ahead and not yet taken.
    pub(crate) fn stashed(&self) -> &[u8] {
        &self.stash[self.start..self.end]
    }

    /// Drops the first `count` bytes of the stash.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads into the stash. Says also whether the socket filled it (if not, it is empty for now).
    pub(crate) fn fill_stash(&mut self) -> io::Result<(Moved, bool)> {
        self.make_room();
        let moved = self.conduit.read(&mut [IoSliceMut::new(&mut self.stash[self.end..])])?;
        if let Moved::Bytes(count) = moved {
            self.end += count;
        }
        Ok((moved, self.end == self.stash.len()))
    }

    /// Reads into `target`, first from the stash, else from the socket; in the same system call up to
    /// `ahead` bytes beyond `target` go to the stash. Returns the bytes put in `target`, and whether the
    /// socket gave all that was asked for (if not, it is empty for now).
    pub(crate) fn read_into(&mut self, target: &mut [u8], ahead: usize) -> io::Result<(Moved, bool)> {
        let stashed = self.stashed();
        if !stashed.is_empty() {
            let count = stashed.len().min(target.len());
            target[..count].copy_from_slice(&stashed[..count]);
            self.consume(count);
            return Ok((Moved::Bytes(count), true));
        }
        let ahead = &mut self.stash[..ahead];
        let asked = target.len() + ahead.len();
        let moved = self.conduit.read(&mut [IoSliceMut::new(target), IoSliceMut::new(ahead)])?;
        let Moved::Bytes(count) = moved else { return Ok((moved, false)) };
        let in_target = count.min(target.len());
        (self.start, self.end) = (0, count - in_target);
        Ok((Moved::Bytes(in_target), count == asked))
    }

    /// Writes what goes at once of the slices.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        self.conduit.write(slices)
    }

    /// Moves what is left of the stash to its front.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.stash.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

#[cfg(test)]
mod tests;
