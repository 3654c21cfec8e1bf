//! The main loop: what comes in is taken in one by one, and time passes whatever comes.
//!
//! The machine's clock is that of the queue: it shows the instant before which everything that came was taken in. So a
//! coordinator that is behind, or stood still itself, charges no worker with silence during which it did not listen.

use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use bellwether_core::record::Event as Journaled;

use super::checkpoints::Told;
use super::{End, Run, RunEvent};
use crate::control::server::Input;
use crate::membership::WorkerId;
use crate::membership::coordinator::Event;

/// The longest time between two looks at the clock and at child processes, however much comes.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Sessions from which on the loop lets words gather while it has nothing to do, and for how long.
const GATHERED_FROM: usize = 64;
const GATHERING: Duration = Duration::from_millis(1);

/// The longest wait for a checkpoint that is being written when the run is over.
const STORING: Duration = Duration::from_secs(10);

/// Everything that reaches the coordinator's main loop.
pub(super) enum Incoming {
    Control(Input),
    State(Told),
}

impl Run {
    pub(super) fn work(&mut self) -> End {
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            let looked = Instant::now();
            let patience = TICK.saturating_sub(looked - self.ticked);
            match self.next(patience) {
                Ok((arrived, incoming)) => {
                    self.seen = self.seen.max(arrived);
                    self.take(incoming);
                }
                // Nothing is left of what came before this look.
                Err(RecvTimeoutError::Timeout) => self.seen = self.seen.max(looked),
                // The senders live in the server and the checkpoints, which live as long as this.
                Err(RecvTimeoutError::Disconnected) => unreachable!("the control plane outlives the loop"),
            }
            if self.ticked.elapsed() >= TICK {
                self.ticked = Instant::now();
                self.tick();
            }
            // Not from within what happened: the machine's actions are carried out in their order.
            while let Some(command) = self.commands.pop_front() {
                self.command(command);
            }
            self.show();
        }
    }

    /// What comes next within this time. To wake up for each of many words, as they come, takes longer than to take it
    /// in: those of many workers gather first.
    fn next(&self, patience: Duration) -> Result<(Instant, Incoming), RecvTimeoutError> {
        let incoming = &self.planes.incoming;
        if self.sessions.len() < GATHERED_FROM {
            return incoming.recv_timeout(patience);
        }
        incoming.try_recv().or_else(|_| {
            let gathering = GATHERING.min(patience);
            std::thread::sleep(gathering);
            incoming.recv_timeout(patience - gathering)
        })
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Control(input) => self.input(input),
            Incoming::State(Told::Stored(stored)) => self.stored(stored),
            Incoming::State(Told::Received { from, step, counts }) => {
                if self.counts(from, step, &counts) {
                    self.handle(Event::Received(step));
                }
            }
            Incoming::State(Told::Collected(step, result)) => self.handle(Event::Collected(step, result)),
        }
    }

    /// A run that failed may have a checkpoint on its way, which is as good as those before it.
    pub(super) fn take_last_checkpoints(&mut self) {
        let until = Instant::now() + STORING;
        while Instant::now() < until {
            let writes = self.slices.as_ref().is_some_and(|slices| slices.is_busy());
            let busy = writes || self.planes.checkpoints.is_busy();
            let patience = if busy { TICK } else { Duration::ZERO };
            match self.planes.incoming.recv_timeout(patience) {
                Ok((_, Incoming::State(Told::Stored(stored)))) => self.stored(stored),
                Ok((_, Incoming::State(Told::Received { from, step, counts }))) => {
                    self.counts(from, step, &counts);
                }
                Ok((_, Incoming::Control(Input::Closed(session, _)))) => {
                    self.workers_by_session.remove(&session);
                }
                Err(_) if !busy => return,
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Answers whether a state that came is to be written.
    fn counts(&mut self, from: WorkerId, step: u64, answer: &Sender<bool>) -> bool {
        let counts = self.machine.state_counts(from);
        if !counts {
            let message = format!(
                "the state of step {step} from worker {from} is dropped: the others went on without it"
            );
            self.write(&Journaled::Warning { message });
        }
        // The caller waits for the answer.
        let _ = answer.send(counts);
        counts
    }

    fn tick(&mut self) {
        self.reap();
        self.see_off();
        self.retry_lines();
        self.handle(Event::Tick);
        self.direct(RunEvent::Tick);
    }

    /// Seconds on the machine's clock.
    pub(super) fn now_s(&self) -> f64 {
        self.seen.duration_since(self.began).as_secs_f64()
    }

    pub(super) fn handle(&mut self, event: Event) {
        let actions = self.machine.handle(event, self.now_s());
        self.act(actions);
    }
}
