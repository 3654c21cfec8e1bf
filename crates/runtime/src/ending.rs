//! The wish that this process ends.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Waits until this process is asked to end (SIGINT, SIGTERM); returns the exit code of one that did so.
///
/// # Errors
///
/// Returns an error if the system does not let us listen.
pub fn wait_until_asked() -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let kind = tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
        };
        // As shells tell of those that a signal ended.
        Ok(128 + kind.as_raw_value() as u8)
    })
}
