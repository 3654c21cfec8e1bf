//! One connection: which of the parts that wait for it is sent next, and how many bytes of it at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bellwether_des::ProcessorSharing;
use bellwether_des::fair::FlowId;

use super::TransmissionOrder;

/// An operation of one step of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub(super) worker: u32,
    pub(super) operation: u32,
    pub(super) step: u32,
    /// The measured step that was drawn.
    pub(super) drawn: u32,
    /// Updates of its part that were applied when the worker last asked for it.
    pub(super) version: u32,
}

/// A part on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) job: Job,
    pub(super) bytes: f64,
    pub(super) left: f64,
    /// When its first byte was sent; negative before that.
    pub(super) begin_s: f64,
}

/// Parts that wait for a connection, and the one that is being sent.
#[derive(Debug)]
pub(super) struct Connection {
    /// The share of the links, while something is being sent.
    pub(super) flow: Option<FlowId>,
    pub(super) current: Option<Stream>,
    /// Bytes that the flow was given to send of `current`.
    turn: f64,
    waiting: Waiting,
}

#[derive(Debug)]
enum Waiting {
    Fifo(VecDeque<Stream>),
    RoundRobin(VecDeque<Stream>, f64),
    Priority(BinaryHeap<Reverse<Ranked>>, u64),
    /// All streams, by the bytes that the connection has sent.
    Together(ProcessorSharing<Stream>, f64),
}

/// A stream by level and order of arrival.
#[derive(Debug)]
struct Ranked(u32, u64, Stream);

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// What the flow of a connection must do after a stream was added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    /// Go on as before.
    None,
    /// Nothing was sent: choose, once everything of this time has happened.
    Wake,
    /// Send this many bytes from now on.
    Send(f64),
}

impl Connection {
    pub(super) fn new(order: &TransmissionOrder) -> Self {
        let waiting = match order {
            TransmissionOrder::Fifo => Waiting::Fifo(VecDeque::new()),
            TransmissionOrder::RoundRobin { window_bytes: 0 } => {
                Waiting::Together(ProcessorSharing::new(1.0), 0.0)
            }
            TransmissionOrder::RoundRobin { window_bytes } => {
                Waiting::RoundRobin(VecDeque::new(), *window_bytes as f64)
            }
            TransmissionOrder::Priority(_) => Waiting::Priority(BinaryHeap::new(), 0),
        };
        Connection { flow: None, current: None, turn: 0.0, waiting }
    }

    /// Adds a stream while `left` bytes of the flow's present work are left to send (0 when nothing flows).
    pub(super) fn add(&mut self, stream: Stream, level: u32, left: f64, now_s: f64) -> Change {
        let was_idle = self.flow.is_none();
        let had_waiting = self.has_waiting();
        match &mut self.waiting {
            Waiting::Together(streams, sent) => {
                let at = (*sent + self.turn - left).max(*sent);
                streams.arrive(at, stream.left, Stream { begin_s: now_s, ..stream });
                *sent = at;
                self.turn = if was_idle { 0.0 } else { streams.next_time().expect("a stream is there") - at };
                if !was_idle {
                    return Change::Send(self.turn);
                }
            }
            Waiting::Fifo(queue) => queue.push_back(stream),
            Waiting::Priority(heap, count) => {
                heap.push(Reverse(Ranked(level, *count, stream)));
                *count += 1;
            }
            Waiting::RoundRobin(queue, window) => {
                queue.push_back(stream);
                // Alone, the current stream was given all its bytes; now its turn ends with a window.
                let sent = self.turn - left;
                let turn = ((sent / *window).ceil().max(1.0) * *window).min(self.turn);
                if !was_idle && turn < self.turn {
                    self.turn = turn;
                    return Change::Send(turn - sent);
                }
            }
        }
        if was_idle && !had_waiting { Change::Wake } else { Change::None }
    }

    fn has_waiting(&self) -> bool {
        match &self.waiting {
            Waiting::Together(streams, _) => !streams.is_empty(),
            Waiting::Fifo(queue) | Waiting::RoundRobin(queue, _) => !queue.is_empty(),
            Waiting::Priority(heap, _) => !heap.is_empty(),
        }
    }

    /// Ends the flow's present work: returns the stream that is sent completely by it, if one is.
    pub(super) fn end_turn(&mut self) -> Option<Stream> {
        if let Waiting::Together(streams, sent) = &mut self.waiting {
            let (at, stream) = streams.depart()?;
            (*sent, self.turn) = (at, 0.0);
            if streams.is_empty() {
                // The count of bytes restarts at 0, so that it stays small and exact.
                (*streams, *sent) = (ProcessorSharing::new(1.0), 0.0);
            }
            return Some(stream);
        }
        let mut stream = self.current.take()?;
        stream.left -= self.turn;
        match &mut self.waiting {
            Waiting::RoundRobin(queue, _) if stream.left > 0.0 => {
                queue.push_back(stream);
                None
            }
            _ => Some(stream),
        }
    }

    /// Chooses what is sent next: the bytes to send, or `None` when nothing waits.
    pub(super) fn next(&mut self, now_s: f64) -> Option<f64> {
        let next = match &mut self.waiting {
            Waiting::Together(streams, sent) => {
                self.turn = streams.next_time()? - *sent;
                return Some(self.turn);
            }
            Waiting::Fifo(queue) | Waiting::RoundRobin(queue, _) => queue.pop_front(),
            Waiting::Priority(heap, _) => heap.pop().map(|Reverse(Ranked(_, _, stream))| stream),
        };
        let mut stream = next?;
        if stream.begin_s < 0.0 {
            stream.begin_s = now_s;
        }
        self.turn = match &self.waiting {
            Waiting::RoundRobin(queue, window) if !queue.is_empty() => stream.left.min(*window),
            _ => stream.left,
        };
        self.current = Some(stream);
        Some(self.turn)
    }

    /// What is sent now; of what is sent together, the first that will be there.
    pub(super) fn job(&self) -> Option<Job> {
        match &self.waiting {
            Waiting::Together(streams, _) => streams.first().map(|stream| stream.job),
            _ => self.current.map(|stream| stream.job),
        }
    }
}
