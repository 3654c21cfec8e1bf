//! What happens with an event: it is taken in at once, and all workers are looked at if it is news, or by the clock.
//!
//! In every step each member reports, and each heart beats all the time. If each of these messages were the reason to
//! look at all workers, the cost of a step would grow with the square of their number.

use super::{Action, Coordinator, Event, Lifecycle};

/// Seconds between two looks at all workers while there is no news, for each worker: looks that take longer come less
/// often, and together they take a bounded share of the time. Those of up to 200 workers come with every tick.
const LOOK_S: f64 = 50e-6;

impl Coordinator {
    /// Takes an event in and returns what to do, in order.
    pub fn handle(&mut self, event: Event, now_s: f64) -> Vec<Action> {
        self.pass(now_s);
        if self.lifecycle != Lifecycle::Ended {
            let is_news = !event.is_routine();
            if is_news {
                self.commit();
            }
            self.take(event);
            self.has_news |= is_news || !self.actions.is_empty();
            if self.has_news || self.is_look_due() {
                self.look();
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// Whether so much time has passed that something may be due by the clock.
    fn is_look_due(&self) -> bool {
        self.now_s - self.looked_s >= LOOK_S * self.workers.len() as f64
            || self.suspect_at_s.is_some_and(|at_s| at_s <= self.now_s)
    }

    /// Looks at all workers, and at what is wanted.
    fn look(&mut self) {
        self.looked_s = self.now_s;
        self.commit();
        let taken = self.actions.len();
        self.check_silence();
        self.advance();
        self.watch();
        // What was done just now may be the reason to do more.
        self.has_news = self.actions.len() > taken;
        self.applied = None;
    }
}
