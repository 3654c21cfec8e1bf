//! The event queue: earliest first, first come first served on ties, O(log n) cancel and move.
//!
//! A heap with four children per node, in one array of (time, sequence, slot). Beside it an array says where
//! each slot's node stands, so that a ticket finds its node at once. Nothing is allocated per event once the
//! arrays have grown to the largest number of events that ever waited together.

/// Children of a node. Four make the heap half as deep as two, and lie in two cache lines.
const CHILDREN: usize = 4;

/// Names one scheduled event. A ticket of an event that has left the queue names nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

/// Events that wait for their time.
///
/// ```
/// let mut queue = bellwether_des::Queue::new();
/// queue.schedule(2.0, "second");
/// let never = queue.schedule(1.5, "never");
/// queue.schedule(1.0, "first");
/// assert_eq!(queue.cancel(never), Some("never"));
/// assert_eq!(queue.pop(), Some((1.0, "first")));
/// assert_eq!(queue.pop(), Some((2.0, "second")));
/// assert_eq!(queue.pop(), None);
/// ```
#[derive(Debug, Clone)]
pub struct Queue<P> {
    heap: Vec<Node>,
    /// Where each slot's node stands in `heap`; of no meaning for free slots.
    positions: Vec<u32>,
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    scheduled: u64,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// Bits of the time, mapped so that they order as the times do.
    time: u64,
    sequence: u64,
    slot: u32,
}

#[derive(Debug, Clone)]
struct Slot<P> {
    generation: u32,
    payload: Option<P>,
}

impl Node {
    fn key(&self) -> u128 {
        (u128::from(self.time) << 64) | u128::from(self.sequence)
    }
}

/// Maps a finite time to bits that order as the times do.
fn ordered(time: f64) -> u64 {
    assert!(time.is_finite(), "an event at time {time} has no place in the order");
    // Adding zero turns -0.0 into 0.0: they are the same time.
    let bits = (time + 0.0).to_bits();
    if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }
}

fn time_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Queue { heap: Vec::new(), positions: Vec::new(), slots: Vec::new(), free: Vec::new(), scheduled: 0 }
    }
}

impl<P> Queue<P> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of events that wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Number of times that an event was scheduled or moved.
    pub fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// Lets `payload` wait for `time`, in O(log n).
    ///
    /// # Panics
    ///
    /// When `time` is not finite, and when more than 2³² events wait.
    pub fn schedule(&mut self, time: f64, payload: P) -> Ticket {
        let time = ordered(time);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize].payload = Some(payload);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 events wait");
                self.slots.push(Slot { generation: 0, payload: Some(payload) });
                self.positions.push(0);
                slot
            }
        };
        let node = Node { time, sequence: self.scheduled, slot };
        self.scheduled += 1;
        self.heap.push(node);
        self.rise(self.heap.len() - 1, node, 0);
        Ticket { slot, generation: self.slots[slot as usize].generation }
    }

    /// Time of the earliest event.
    pub fn next_time(&self) -> Option<f64> {
        self.heap.first().map(|node| time_of(node.time))
    }

    /// The earliest event.
    pub fn peek(&self) -> Option<(f64, &P)> {
        let node = self.heap.first()?;
        Some((time_of(node.time), self.slots[node.slot as usize].payload.as_ref()?))
    }

    /// Takes the earliest event out, in O(log n).
    pub fn pop(&mut self) -> Option<(f64, P)> {
        let first = *self.heap.first()?;
        let payload = self.remove(0)?;
        Some((time_of(first.time), payload))
    }

    /// Takes an event out before its time, in O(log n). `None` when it has left already.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<P> {
        let position = self.position(ticket)?;
        self.remove(position)
    }

    /// Moves an event to another time, in O(log n); among events of equal time it is then the last. `false`
    /// when it has left already.
    ///
    /// # Panics
    ///
    /// When `time` is not finite.
    pub fn reschedule(&mut self, ticket: Ticket, time: f64) -> bool {
        let time = ordered(time);
        let Some(position) = self.position(ticket) else { return false };
        let node = Node { time, sequence: self.scheduled, slot: ticket.slot };
        self.scheduled += 1;
        self.place(position, node);
        true
    }

    /// The time for which an event waits. `None` when it has left already.
    pub fn time(&self, ticket: Ticket) -> Option<f64> {
        self.position(ticket).map(|position| time_of(self.heap[position].time))
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        let slot = self.slots.get(ticket.slot as usize)?;
        (slot.generation == ticket.generation && slot.payload.is_some())
            .then(|| self.positions[ticket.slot as usize] as usize)
    }

    fn remove(&mut self, position: usize) -> Option<P> {
        let slot = self.heap[position].slot;
        let last = self.heap.pop()?;
        if position < self.heap.len() {
            self.place(position, last);
        }
        self.free.push(slot);
        let slot = &mut self.slots[slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.payload.take()
    }

    /// Puts `node` where the heap has a gap at `position`.
    fn place(&mut self, position: usize, node: Node) {
        if position > 0 && node.key() < self.heap[(position - 1) / CHILDREN].key() {
            self.rise(position, node, 0);
        } else {
            self.sink(position, node);
        }
    }

    /// Moves the gap at `position` up, not above `top`, to where `node` belongs.
    fn rise(&mut self, mut position: usize, node: Node, top: usize) {
        while position > top {
            let parent = (position - 1) / CHILDREN;
            if self.heap[parent].key() <= node.key() {
                break;
            }
            self.set(position, self.heap[parent]);
            position = parent;
        }
        self.set(position, node);
    }

    /// Moves the gap down to a leaf without looking at `node`, and lets `node` rise from there: it comes from
    /// the bottom nearly always, so the comparisons on the way down would be in vain.
    fn sink(&mut self, mut position: usize, node: Node) {
        let top = position;
        loop {
            let first = position * CHILDREN + 1;
            let children = match self.heap.get(first..) {
                Some(rest) if !rest.is_empty() => &rest[..rest.len().min(CHILDREN)],
                _ => break,
            };
            let (mut best, mut least) = (0, children[0].key());
            for (number, child) in children.iter().enumerate().skip(1) {
                let key = child.key();
                best = if key < least { number } else { best };
                least = least.min(key);
            }
            self.set(position, children[best]);
            position = first + best;
        }
        self.rise(position, node, top);
    }

    fn set(&mut self, position: usize, node: Node) {
        self.positions[node.slot as usize] = position as u32;
        self.heap[position] = node;
    }
}
