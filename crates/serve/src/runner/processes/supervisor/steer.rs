//! Steers a coordinator: asks it for what is wanted, and ends what does not leave in time.

use std::time::{Duration, Instant};

use bellwether_runtime::control::Status;
use bellwether_runtime::control::client::{ClientError, Control};
use bellwether_runtime::coordinator::STANDBY;
use bellwether_runtime::membership::coordinator::WAITS_FOR_CHECKPOINT;

use super::Attempt;
use crate::runner::Report;

/// Time between two attempts to reach a coordinator that does not answer yet.
const RETRY: Duration = Duration::from_millis(40);

/// Time between two looks at whether processes that are too many have left.
const SETTLE_PERIOD: Duration = Duration::from_millis(100);

impl Attempt<'_> {
    /// Asks the coordinator for what is wanted, until it has heard it.
    pub(super) fn steer(&mut self) {
        let now = Instant::now();
        // A worker that was asked to leave does not stay.
        let wanted = if self.asked == Some(0) { 0 } else { self.wish.workers };
        if wanted > 0 {
            self.leave_since = None;
        } else {
            self.kill_if_late(now);
        }
        if self.asked == Some(wanted) || wanted > 0 && self.wish.provision.is_some() {
            return self.settle(now);
        }
        if now < self.ask_at {
            return;
        }
        match self.ask(wanted) {
            Ok(()) => self.asked = Some(wanted),
            Err(_) => self.ask_at = Instant::now() + RETRY,
        }
    }

    /// Tells that no more processes are there than are wanted, once it is so.
    fn settle(&mut self, now: Instant) {
        let (job, workers) = (self.wish.job, self.wish.workers);
        if self.settled || workers == 0 || self.asked != Some(workers) || now < self.settle_at {
            return;
        }
        self.settle_at = now + SETTLE_PERIOD;
        let status = self.connect().and_then(|mut control| control.status());
        let is_so = |status: Status| {
            let busy = status.members.iter().filter(|member| member.stage != STANDBY);
            status.wanted <= workers && busy.count() <= workers as usize
        };
        if status.is_ok_and(is_so) {
            self.settled = true;
            (self.of.tell)(Report::Settled { job, workers });
        }
    }

    fn connect(&self) -> Result<Control, ClientError> {
        self.process.control(self.follow.history.process)
    }

    fn ask(&self, workers: u32) -> Result<(), ClientError> {
        let mut control = self.connect()?;
        match workers {
            0 => control.stop().map(|_| ()),
            _ if self.asked.is_none() && control.status()?.wanted == workers => Ok(()),
            // A number that it refuses now it refuses for ever.
            _ => control.scale(workers).map(|_| ()),
        }
    }

    /// Ends what should leave, and has had no news for too long.
    fn kill_if_late(&mut self, now: Instant) {
        let since = *self.leave_since.get_or_insert(now);
        // Nothing has to be waited for where no worker computes.
        let step_s = match self.follow.history.workers {
            0 => Some(0.0),
            workers => self.follow.longest.shared_by(workers),
        };
        let patience = self
            .of
            .patience
            .with(step_s, self.follow.history.task.as_ref().map_or(0, |task| task.parameters));
        if now.duration_since(since.max(self.follow.news_at)) > patience && self.waits_for_room() {
            // A full disk takes no news; a worker that holds the state until it has room is at work.
            self.follow.news_at = now;
        }
        let silent = now.duration_since(since.max(self.follow.news_at));
        if silent > patience || now.duration_since(since) > patience * self.of.patience.most {
            self.killed = Some(patience);
            self.kill();
        }
    }

    fn waits_for_room(&self) -> bool {
        let status = self.connect().and_then(|mut control| control.status());
        status.is_ok_and(|status| status.lifecycle == WAITS_FOR_CHECKPOINT)
    }

    pub(super) fn kill(&mut self) {
        self.process.kill(self.follow.history.process);
    }
}
