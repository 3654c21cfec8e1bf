//! Signals to a pod's program. As the first process of a container it would ignore those that it does not ask for.

use std::io;

use bellwether_runtime::ending::{EndSignal, EndSignals};
use rustix::process::{Pid, Signal, kill_process};

/// Lets `tell` hear of every signal that asks this process to end, from now on.
///
/// # Errors
///
/// If the system gives no thread, or does not let us listen.
pub(super) fn listen(tell: impl Fn(EndSignal) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before this returns: the signal may be on its way.
    let mut signals = {
        let _entered = runtime.enter();
        EndSignals::listen()?
    };
    let hear = move || {
        runtime.block_on(async {
            loop {
                tell(signals.next().await);
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(hear).map(drop)
}

/// Asks a process to end; one that has ended does not mind.
pub(super) fn terminate(process: u32) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(process, Signal::TERM);
    }
}
