//! Hands a collective its partial sums bucket by bucket, while those behind them are still computed.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::CollectiveError;
use super::wake::{WakeReceiver, Waker};

/// What a collective is handed, in this order: every bucket in the plan's order, then the control bytes.
#[derive(Debug)]
pub(super) enum Fed<'a> {
    /// One slice per maximal node of the member's range.
    Bucket(Vec<&'a [f32]>),
    Control(Vec<u8>),
}

/// The end of the thread that computes. Dropped before it gave control bytes, it ends the collective.
#[derive(Debug)]
pub struct Feeder<'a> {
    /// Until the end.
    sender: Option<Sender<Fed<'a>>>,
    waker: &'a Waker,
}

/// The end of the thread that exchanges.
#[derive(Debug)]
pub struct Feed<'a> {
    receiver: Receiver<Fed<'a>>,
    pub(super) wake: &'a WakeReceiver,
    /// Where the partial sums lie in this worker's arena, if all do.
    pub(super) offsets: Option<Vec<u64>>,
}

/// Both ends, which wake by this pair. `offsets`: where the partial sums lie in this worker's arena, if all do.
pub fn feed<'a>(
    (waker, wake): &'a (Waker, WakeReceiver),
    offsets: Option<Vec<u64>>,
) -> (Feeder<'a>, Feed<'a>) {
    wake.drain();
    let (sender, receiver) = channel();
    (Feeder { sender: Some(sender), waker }, Feed { receiver, wake, offsets })
}

impl<'a> Feeder<'a> {
    /// The next bucket of the plan is ready: a slice of its length per maximal node of the member's range.
    pub fn bucket(&self, partials: Vec<&'a [f32]>) {
        self.hand(Fed::Bucket(partials));
    }

    /// All buckets were handed over, and these are the member's control bytes.
    pub fn control(self, bytes: Vec<u8>) {
        self.hand(Fed::Control(bytes));
    }

    fn hand(&self, fed: Fed<'a>) {
        // A collective that has failed says so to whom waits for its result.
        let _ = self.sender.as_ref().map(|sender| sender.send(fed));
        self.waker.wake();
    }
}

impl Drop for Feeder<'_> {
    fn drop(&mut self) {
        // Before the wake: the other thread must not look for the end while it is still to come.
        drop(self.sender.take());
        self.waker.wake();
    }
}

impl<'a> Feed<'a> {
    /// What came next, if anything did.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Interrupted`] if nothing will come.
    pub(super) fn next(&self) -> Result<Option<Fed<'a>>, CollectiveError> {
        match self.receiver.try_recv() {
            Ok(fed) => Ok(Some(fed)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(CollectiveError::Interrupted),
        }
    }
}
