//! One capacity shared equally by all present customers, at O(log n) per change.
//!
//! The trick is virtual time: the work that each customer has received since the resource was last empty is the same
//! function `v` of time for all of them. A customer who comes at `v₀` with work `s` leaves when `v` reaches `v₀ + s`,
//! no matter which others come and go meanwhile; only the speed of `v` changes. So an arrival or a departure moves one
//! number in one heap, and not every customer's departure.

use crate::queue::{Queue, Ticket};

/// A resource of one capacity, shared equally; each customer may be held to a largest rate.
///
/// ```
/// let mut link = bellwether_des::ProcessorSharing::new(10.0);
/// link.arrive(0.0, 10.0, "a"); // alone for half a second,
/// link.arrive(0.5, 10.0, "b"); // then both at 5 per second
/// assert_eq!(link.next_time(), Some(1.5));
/// assert_eq!(link.depart(), Some((1.5, "a")));
/// assert_eq!(link.depart(), Some((2.0, "b")));
/// ```
#[derive(Debug, Clone)]
pub struct ProcessorSharing<C> {
    capacity: f64,
    /// Largest rate of one customer; infinite for none.
    limit: f64,
    /// Customers by the virtual time at which they leave.
    customers: Queue<C>,
    virtual_time: f64,
    /// The time at which `virtual_time` was right.
    since_s: f64,
    work_done: f64,
}

impl<C> ProcessorSharing<C> {
    /// An empty resource that does `capacity` units of work per second.
    ///
    /// # Panics
    ///
    /// When the capacity is not positive and finite.
    pub fn new(capacity: f64) -> Self {
        check_capacity(capacity);
        Self::of(capacity, f64::INFINITY)
    }

    /// The same, where no customer gets more than `limit` units per second.
    ///
    /// # Panics
    ///
    /// When the capacity or the limit is not positive and finite.
    pub fn with_limit(capacity: f64, limit: f64) -> Self {
        check_capacity(capacity);
        check_capacity(limit);
        Self::of(capacity, limit)
    }

    fn of(capacity: f64, limit: f64) -> Self {
        let customers = Queue::new();
        ProcessorSharing { capacity, limit, customers, virtual_time: 0.0, since_s: 0.0, work_done: 0.0 }
    }

    /// Number of customers.
    pub fn len(&self) -> usize {
        self.customers.len()
    }

    /// Whether no customer is there.
    pub fn is_empty(&self) -> bool {
        self.customers.is_empty()
    }

    /// Work per second that each customer gets now; 0 when none is there.
    pub fn rate(&self) -> f64 {
        match self.len() {
            0 => 0.0,
            count => (self.capacity / count as f64).min(self.limit),
        }
    }

    /// Units of work done up to `now_s`.
    pub fn work_done(&self, now_s: f64) -> f64 {
        self.work_done + (now_s - self.since_s) * self.rate() * self.len() as f64
    }

    /// A customer comes with this much work.
    ///
    /// # Panics
    ///
    /// When `now_s` lies before the last change or after a departure that was not taken, or the work is
    /// negative or not finite.
    pub fn arrive(&mut self, now_s: f64, work: f64, customer: C) -> Ticket {
        assert!(work.is_finite() && work >= 0.0, "a customer with {work} units of work");
        self.advance(now_s);
        self.customers.schedule(self.virtual_time + work, customer)
    }

    /// A customer leaves before the work is done; returns what was left of it. `None` when gone already.
    ///
    /// # Panics
    ///
    /// When `now_s` lies before the last change or after a departure that was not taken.
    pub fn leave(&mut self, now_s: f64, ticket: Ticket) -> Option<(f64, C)> {
        let end = self.customers.time(ticket)?;
        self.advance(now_s);
        let customer = self.customers.cancel(ticket)?;
        let left = (end - self.virtual_time).max(0.0);
        self.forget();
        Some((left, customer))
    }

    /// From `now_s` on the capacity is another.
    ///
    /// # Panics
    ///
    /// When the capacity is not positive and finite, or `now_s` lies before the last change or after a
    /// departure that was not taken.
    pub fn set_capacity(&mut self, now_s: f64, capacity: f64) {
        check_capacity(capacity);
        self.advance(now_s);
        self.capacity = capacity;
    }

    /// The customer who leaves next.
    pub fn first(&self) -> Option<&C> {
        self.customers.peek().map(|(_, customer)| customer)
    }

    /// When the next customer leaves, in seconds, unless something changes before.
    pub fn next_time(&self) -> Option<f64> {
        let end = self.customers.next_time()?;
        Some(self.since_s + (end - self.virtual_time).max(0.0) / self.rate())
    }

    /// Takes the customer who leaves next, at the time of [`Self::next_time`]. Ties leave in the order of arrival.
    pub fn depart(&mut self) -> Option<(f64, C)> {
        let time_s = self.next_time()?;
        let count = self.len() as f64;
        let (end, customer) = self.customers.pop()?;
        self.work_done += (end - self.virtual_time).max(0.0) * count;
        self.virtual_time = self.virtual_time.max(end);
        self.since_s = time_s;
        self.forget();
        Some((time_s, customer))
    }

    fn advance(&mut self, now_s: f64) {
        assert!(now_s >= self.since_s, "the time cannot go back from {} s to {now_s} s", self.since_s);
        if !self.is_empty() {
            let next_s = self.next_time().expect("there is a customer");
            let slack_s = 1e-9 * (1.0 + now_s.abs());
            assert!(now_s <= next_s + slack_s, "at {now_s} s, the departure at {next_s} s was not taken");
            self.work_done = self.work_done(now_s);
            self.virtual_time += (now_s - self.since_s) * self.rate();
        }
        self.since_s = now_s;
    }

    /// Restarts virtual time when no customer is there, so that it stays small and exact.
    fn forget(&mut self) {
        if self.is_empty() {
            self.virtual_time = 0.0;
        }
    }
}

fn check_capacity(capacity: f64) {
    assert!(capacity.is_finite() && capacity > 0.0, "a capacity of {capacity} does no work");
}
