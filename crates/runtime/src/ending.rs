//! The signals by which somebody asks this process to end.

use std::fmt;
use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asks a process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal was closed.
    Hangup,
}

impl EndSignal {
    /// All of them.
    pub const ALL: [EndSignal; 3] = [EndSignal::Interrupt, EndSignal::Terminate, EndSignal::Hangup];

    /// Its name, as the journal has it.
    pub fn name(self) -> &'static str {
        match self {
            EndSignal::Interrupt => "SIGINT",
            EndSignal::Terminate => "SIGTERM",
            EndSignal::Hangup => "SIGHUP",
        }
    }

    /// The signal with this name.
    pub fn named(name: &str) -> Option<EndSignal> {
        EndSignal::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// The exit code of a process that it ended: 128 and its number, as shells tell it.
    ///
    /// ```
    /// use bellwether_runtime::ending::EndSignal;
    /// assert_eq!(EndSignal::ALL.map(EndSignal::exit_code), [130, 143, 129]);
    /// ```
    pub fn exit_code(self) -> u8 {
        128 + self.kind().as_raw_value() as u8
    }

    fn kind(self) -> SignalKind {
        match self {
            EndSignal::Interrupt => SignalKind::interrupt(),
            EndSignal::Terminate => SignalKind::terminate(),
            EndSignal::Hangup => SignalKind::hangup(),
        }
    }
}

impl fmt::Display for EndSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Hears these signals, which end the process no more by themselves.
#[derive(Debug)]
pub struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Absent where the process was started to ignore it, as `nohup` does.
    hangup: Option<Signal>,
}

impl EndSignals {
    /// Listens from now on; within an async runtime only.
    ///
    /// # Errors
    ///
    /// When the system does not let us listen.
    pub fn listen() -> io::Result<EndSignals> {
        let hangup = EndSignal::Hangup.kind();
        Ok(EndSignals {
            interrupt: signal(EndSignal::Interrupt.kind())?,
            terminate: signal(EndSignal::Terminate.kind())?,
            hangup: if is_ignored(hangup) { None } else { Some(signal(hangup)?) },
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> EndSignal {
        let EndSignals { interrupt, terminate, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => EndSignal::Interrupt,
            _ = terminate.recv() => EndSignal::Terminate,
            _ = hung_up => EndSignal::Hangup,
        }
    }
}

/// Whether this process ignores a signal since it was started. Where that cannot be read, it does not.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & (1 << (kind.as_raw_value() - 1)) != 0
}

/// Waits until this process is asked to end (SIGINT, SIGTERM, SIGHUP); returns the exit code of one that did so.
///
/// # Errors
///
/// Returns an error if the system does not let us listen.
pub fn wait_until_asked() -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(EndSignals::listen()?.next().await.exit_code()) })
}
