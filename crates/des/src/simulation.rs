//! The simulation clock: a queue of events and the time up to which they have happened.

use crate::queue::{Queue, Ticket};

/// Events to come, and the present.
///
/// ```
/// let mut simulation = bellwether_des::Simulation::new();
/// simulation.after(1.5, "tick");
/// while let Some(event) = simulation.step() {
///     if event == "tick" && simulation.now() < 4.0 {
///         simulation.after(1.5, "tick");
///     }
/// }
/// assert_eq!(simulation.now(), 4.5);
/// ```
#[derive(Debug, Clone)]
pub struct Simulation<P> {
    queue: Queue<P>,
    now_s: f64,
}

impl<P> Default for Simulation<P> {
    fn default() -> Self {
        Simulation { queue: Queue::new(), now_s: 0.0 }
    }
}

impl<P> Simulation<P> {
    /// A simulation at time 0 in which nothing is going to happen.
    pub fn new() -> Self {
        Self::default()
    }

    /// The present, in seconds since the simulation began.
    pub fn now(&self) -> f64 {
        self.now_s
    }

    /// Time of the next event, in seconds.
    pub fn next_time(&self) -> Option<f64> {
        self.queue.next_time()
    }

    /// Number of events to come.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Schedules an event at a time in seconds.
    ///
    /// # Panics
    ///
    /// When the time is not finite or lies in the past.
    pub fn at(&mut self, time_s: f64, event: P) -> Ticket {
        assert!(
            time_s >= self.now_s,
            "an event at {time_s} s would lie before the present, {} s",
            self.now_s
        );
        self.queue.schedule(time_s, event)
    }

    /// Schedules an event after a delay in seconds.
    ///
    /// # Panics
    ///
    /// When the delay is negative or not finite.
    pub fn after(&mut self, delay_s: f64, event: P) -> Ticket {
        self.at(self.now_s + delay_s, event)
    }

    /// Takes an event out before its time; `None` when it has happened already.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<P> {
        self.queue.cancel(ticket)
    }

    /// Moves an event to another time in seconds; `false` when it has happened already.
    ///
    /// # Panics
    ///
    /// When the time is not finite or lies in the past.
    pub fn reschedule(&mut self, ticket: Ticket, time_s: f64) -> bool {
        assert!(
            time_s >= self.now_s,
            "an event at {time_s} s would lie before the present, {} s",
            self.now_s
        );
        self.queue.reschedule(ticket, time_s)
    }

    /// Lets the next event happen: the clock moves to its time. `None` when nothing is left.
    pub fn step(&mut self) -> Option<P> {
        let (time_s, event) = self.queue.pop()?;
        self.now_s = time_s;
        Some(event)
    }

    /// Moves the clock to a time at which something happened that is not in the queue (a resource finished).
    ///
    /// # Panics
    ///
    /// When the time lies in the past, or after an event that has not happened yet.
    pub fn advance(&mut self, time_s: f64) {
        assert!(time_s >= self.now_s, "the clock cannot go back from {} s to {time_s} s", self.now_s);
        let skipped = self.queue.next_time().is_some_and(|next_s| next_s < time_s);
        assert!(!skipped, "the clock cannot go to {time_s} s past an event that has not happened");
        self.now_s = time_s;
    }
}
