//! SIGTERM as a notice: Kubernetes and systemd send it when a server is drained or shuts down.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Notice, NoticeError, Notices};

/// Waits for SIGTERM.
#[derive(Debug)]
pub(super) struct Sigterm {
    runtime: Runtime,
    signal: Signal,
    interval: Duration,
    came: bool,
}

impl Sigterm {
    pub(super) fn new(interval: Duration) -> std::io::Result<Sigterm> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signal = {
            let _inside = runtime.enter();
            signal(SignalKind::terminate())?
        };
        Ok(Sigterm { runtime, signal, interval, came: false })
    }
}

impl Notices for Sigterm {
    fn poll(&mut self) -> Result<Option<Notice>, NoticeError> {
        let Sigterm { runtime, signal, interval, came } = self;
        if !*came {
            // The time limit must be made where the runtime is.
            let arrived = async { tokio::time::timeout(*interval, signal.recv()).await };
            *came = matches!(runtime.block_on(arrived), Ok(Some(())));
        }
        // How long is left is between the sender and its settings.
        let notice = || Notice { within_s: None, what: "SIGTERM: this server is taken away".into() };
        Ok(came.then(notice))
    }
}
