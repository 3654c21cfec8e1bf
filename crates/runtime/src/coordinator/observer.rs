//! Observers watch the run from this process, on a thread of their own: a blocked terminal does not hold up the run.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bellwether_core::record::Event as Journaled;

use super::Observation;
use crate::control::Status;

/// Most lines that wait for an observer; further ones are not shown.
const WAITING_MAX: usize = 10_000;

/// What waits to be shown.
enum Shown {
    Journal(Box<Journaled>),
    Status(Box<Status>),
}

/// The main loop's end: never waits.
pub(super) struct Observer {
    lines: SyncSender<Shown>,
    /// Lines that found no room.
    missed: u64,
}

/// The observer's end.
pub(super) struct Lines(Receiver<Shown>);

/// Both ends.
pub(super) fn observer() -> (Observer, Lines) {
    let (lines, shown) = sync_channel(WAITING_MAX);
    (Observer { lines, missed: 0 }, Lines(shown))
}

impl Observer {
    /// Shows a line of the journal.
    pub(super) fn journal(&mut self, event: &Journaled) {
        if self.missed > 0 {
            let message =
                format!("{} lines of the journal were not shown: the observer was too slow", self.missed);
            if self.try_show(Shown::Journal(Box::new(Journaled::Warning { message }))) {
                self.missed = 0;
            }
        }
        if !self.try_show(Shown::Journal(Box::new(event.clone()))) {
            self.missed += 1;
        }
    }

    /// Shows the state of things, unless there is no room: the next one says more.
    pub(super) fn status(&mut self, status: &Status) {
        self.try_show(Shown::Status(Box::new(status.clone())));
    }

    fn try_show(&mut self, shown: Shown) -> bool {
        !matches!(self.lines.try_send(shown), Err(TrySendError::Full(_)))
    }
}

impl Lines {
    /// Shows everything to `observe` until the main loop is done.
    pub(super) fn show(self, observe: &mut (dyn FnMut(Observation<'_>) + Send)) {
        for shown in self.0 {
            match shown {
                Shown::Journal(event) => observe(Observation::Journal(&event)),
                Shown::Status(status) => observe(Observation::Status(&status)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_that_takes_nothing_does_not_hold_up_the_run_and_hears_how_much_it_missed() {
        let (mut observer, lines) = observer();
        let line = |n: usize| Journaled::Warning { message: n.to_string() };
        (0..WAITING_MAX + 7).for_each(|n| observer.journal(&line(n)));
        observer.status(&Status::default());
        let shown = &lines.0;
        for _ in 0..10 {
            assert!(shown.try_recv().is_ok());
        }
        observer.journal(&line(0));
        let last: Vec<Journaled> = shown
            .try_iter()
            .filter_map(|shown| match shown {
                Shown::Journal(event) => Some(*event),
                Shown::Status(_) => None,
            })
            .collect();
        let [.., missed, newest] = last.as_slice() else { panic!("{last:?}") };
        assert!(
            matches!(missed, Journaled::Warning { message } if message.starts_with("7 lines")),
            "{missed:?}"
        );
        assert_eq!(newest, &line(0));
    }
}
