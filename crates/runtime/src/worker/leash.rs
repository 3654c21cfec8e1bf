//! How the owner of a worker on a thread of its own process tells it to go, as signals tell a process.

use std::future::{Future, pending};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// To leave the run at the next boundary.
    Leave,
    /// To vanish without a word.
    Vanish,
}

/// The end of a leash that the owner of the worker holds.
#[derive(Debug)]
pub struct Leash(watch::Sender<Option<Call>>);

/// The worker's end of a leash. A worker that has one does not listen for SIGTERM, which is for the whole
/// process.
#[derive(Debug, Clone)]
pub struct Leashed(watch::Receiver<Option<Call>>);

/// A leash for one worker, and the end that goes into its [`Options`](super::Options).
pub fn leash() -> (Leash, Leashed) {
    let (sender, receiver) = watch::channel(None);
    (Leash(sender), Leashed(receiver))
}

impl Leash {
    /// Asks the worker to leave the run at the next boundary, as SIGTERM asks a process.
    pub fn leave(&self) {
        self.0.send_if_modified(|call| {
            let first = call.is_none();
            if first {
                *call = Some(Call::Leave);
            }
            first
        });
    }

    /// Lets the worker vanish without a word, as SIGKILL ends a process: its sessions close and its state is
    /// lost. Unlike a process it first comes to the end of the micro-batch that it computes.
    pub fn vanish(&self) {
        self.0.send_replace(Some(Call::Vanish));
    }
}

/// Where a worker hears such calls.
pub(crate) enum Calls {
    /// It is a process of its own.
    Signal(Signal),
    /// It is a thread.
    Leash(watch::Receiver<Option<Call>>),
}

impl Calls {
    /// Listens; within an async runtime only.
    pub(crate) fn listen(leashed: Option<Leashed>) -> std::io::Result<Calls> {
        match leashed {
            Some(Leashed(receiver)) => Ok(Calls::Leash(receiver)),
            None => signal(SignalKind::terminate()).map(Calls::Signal),
        }
    }

    /// The next call; `None` when the other end is gone.
    pub(crate) async fn next(&mut self) -> Call {
        match self {
            Calls::Signal(signal) => {
                if signal.recv().await.is_some() {
                    return Call::Leave;
                }
            }
            Calls::Leash(receiver) => {
                while receiver.changed().await.is_ok() {
                    if let Some(call) = *receiver.borrow_and_update() {
                        return call;
                    }
                }
            }
        }
        pending().await
    }

    /// Ends when the worker is to vanish. A call to leave still comes [`next`](Calls::next).
    pub(crate) fn vanished(&self) -> impl Future<Output = ()> + use<> {
        let receiver = match self {
            Calls::Signal(_) => None,
            Calls::Leash(receiver) => Some(receiver.clone()),
        };
        async move {
            let Some(mut receiver) = receiver else { return pending().await };
            if receiver.wait_for(|call| *call == Some(Call::Vanish)).await.is_err() {
                pending().await
            }
        }
    }
}
