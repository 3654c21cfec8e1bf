//! Time as the engine sees it. It is given to the engine like everything else that comes from outside, so that a
//! history with a played clock replays from its seed.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, watch};

use crate::request::Pending;
use crate::runner::Report;

/// A clock, and the way to wait.
pub trait Clock {
    /// Time since some moment of the past. It never goes back, and passes while the machine sleeps.
    fn elapsed(&self) -> Duration;

    /// Seconds since the Unix epoch, as the machine believes. They may jump both ways.
    fn unix_s(&self) -> f64;

    /// Waits until something is in the inbox, at most for `patience`.
    fn wait(&mut self, inbox: &mut Inbox, patience: Duration);

    /// Waits for so long, whatever comes.
    fn pause(&mut self, time: Duration);
}

/// What clients ask, what processes report, and whether the engine shall stop.
#[derive(Debug)]
pub struct Inbox {
    requests: mpsc::UnboundedReceiver<Pending>,
    reports: mpsc::UnboundedReceiver<Report>,
    stop: watch::Receiver<bool>,
    /// What came in while the engine waited.
    came: (Option<Pending>, Option<Report>),
}

impl Inbox {
    pub(crate) fn new(
        requests: mpsc::UnboundedReceiver<Pending>,
        reports: mpsc::UnboundedReceiver<Report>,
        stop: watch::Receiver<bool>,
    ) -> Inbox {
        Inbox { requests, reports, stop, came: (None, None) }
    }

    /// The next wish that is there.
    pub(crate) fn request(&mut self) -> Option<Pending> {
        self.came.0.take().or_else(|| self.requests.try_recv().ok())
    }

    /// The next report that is there.
    pub(crate) fn report(&mut self) -> Option<Report> {
        self.came.1.take().or_else(|| self.reports.try_recv().ok())
    }

    /// Whether the engine shall stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until something is there.
    pub async fn news(&mut self) {
        if self.came.0.is_some() || self.came.1.is_some() {
            return;
        }
        tokio::select! {
            Some(request) = self.requests.recv() => self.came.0 = Some(request),
            Some(report) = self.reports.recv() => self.came.1 = Some(report),
            Ok(()) = self.stop.changed() => {}
            // No sender is left.
            else => std::future::pending().await,
        }
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock(tokio::runtime::Runtime);

impl SystemClock {
    /// Reads the machine's clocks from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not give what waiting needs.
    pub fn new() -> io::Result<SystemClock> {
        tokio::runtime::Builder::new_current_thread().enable_time().build().map(SystemClock)
    }
}

impl Clock for SystemClock {
    fn elapsed(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn unix_s(&self) -> f64 {
        let time = clock_gettime(ClockId::Realtime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    fn wait(&mut self, inbox: &mut Inbox, patience: Duration) {
        self.0.block_on(async {
            // That nothing came in time is not a fault.
            let _ = tokio::time::timeout(patience, inbox.news()).await;
        });
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}
