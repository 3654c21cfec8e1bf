//! How the owner of a worker on a thread of its own process tells it to go, as signals tell a process.

use std::future::{Future, pending};

use tokio::sync::watch;

use crate::ending::{EndSignal, EndSignals};

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

/// The worker's end of a leash. A worker that has one does not listen for signals, which are for the whole
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

/// Lets the signals that ask a process to leave ask the worker on this leash, from now on. `terminate_is_notice` if
/// SIGTERM is the provider's and [heard elsewhere](crate::notice::Source::Sigterm).
///
/// # Errors
///
/// Returns an error if the system gives no thread, or does not let us listen.
pub fn leave_on_signals(leash: Leash, terminate_is_notice: bool, log: fn(&str)) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before this returns: the signal may be on its way.
    let signals = {
        let _entered = runtime.enter();
        EndSignals::listen()?
    };
    let mut process = Process { signals, terminate_is_notice, asked: false, log };
    let listen = move || {
        runtime.block_on(async {
            loop {
                process.asked().await;
                leash.leave();
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
}

/// Where a worker hears such calls.
pub(crate) enum Calls {
    /// It is a process of its own.
    Process(Process),
    /// It is a thread.
    Leash(watch::Receiver<Option<Call>>),
}

/// Signals to a worker's process.
pub(crate) struct Process {
    signals: EndSignals,
    /// Whether SIGTERM says that the server is taken away, which is heard elsewhere.
    terminate_is_notice: bool,
    /// Whether it was asked to leave.
    asked: bool,
    log: fn(&str),
}

impl Process {
    /// Waits until it is asked to leave. Ctrl-C after that ends the process at once.
    async fn asked(&mut self) {
        loop {
            match self.signals.next().await {
                EndSignal::Terminate if self.terminate_is_notice => {}
                EndSignal::Interrupt if self.asked => {
                    std::process::exit(EndSignal::Interrupt.exit_code().into())
                }
                signal => {
                    if signal == EndSignal::Interrupt {
                        (self.log)("this worker leaves at the next step; Ctrl-C again ends it at once");
                    }
                    self.asked = true;
                    return;
                }
            }
        }
    }
}

impl Calls {
    /// Listens; within an async runtime only. `terminate_is_notice` if SIGTERM is the provider's and heard elsewhere.
    pub(crate) fn listen(
        leashed: Option<Leashed>,
        terminate_is_notice: bool,
        log: fn(&str),
    ) -> std::io::Result<Calls> {
        if let Some(Leashed(receiver)) = leashed {
            return Ok(Calls::Leash(receiver));
        }
        let signals = EndSignals::listen()?;
        Ok(Calls::Process(Process { signals, terminate_is_notice, asked: false, log }))
    }

    /// The next call; `None` when the other end is gone.
    pub(crate) async fn next(&mut self) -> Call {
        match self {
            Calls::Process(process) => {
                process.asked().await;
                return Call::Leave;
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
            Calls::Process(_) => None,
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
