//! What a connection sends next, of the pieces that wait for it.
//!
//! The event model (`bellwether-model`, `event`) has the same orders over whole tensors; here a turn ends with the
//! piece in which it ends, and a more urgent tensor waits for the piece that is on its way.

use std::collections::{BTreeMap, VecDeque};

use bellwether_core::plan::TransmissionOrder;

/// Pieces that wait, in the order in which they go.
#[derive(Debug)]
pub struct Outbox<T> {
    waiting: Waiting<T>,
}

#[derive(Debug)]
enum Waiting<T> {
    Fifo(VecDeque<T>),
    /// Tensors in turns: the first has its turn, and has used this many bytes of that turn.
    RoundRobin {
        window_bytes: u64,
        turns: VecDeque<(u32, VecDeque<(u64, T)>)>,
        sent_bytes: u64,
    },
    /// By level and arrival.
    Priority {
        levels: Vec<u32>,
        ranked: BTreeMap<(u32, u64), T>,
        arrivals: u64,
    },
}

impl<T> Outbox<T> {
    /// An empty outbox.
    pub fn new(order: &TransmissionOrder) -> Outbox<T> {
        let waiting = match order {
            TransmissionOrder::Fifo => Waiting::Fifo(VecDeque::new()),
            TransmissionOrder::RoundRobin { window_bytes } => {
                Waiting::RoundRobin { window_bytes: *window_bytes, turns: VecDeque::new(), sent_bytes: 0 }
            }
            TransmissionOrder::Priority(levels) => {
                Waiting::Priority { levels: levels.clone(), ranked: BTreeMap::new(), arrivals: 0 }
            }
        };
        Outbox { waiting }
    }

    /// An empty outbox for gradients: with priorities they go as they become ready.
    pub fn upwards(order: &TransmissionOrder) -> Outbox<T> {
        match order {
            TransmissionOrder::Priority(_) => Outbox::new(&TransmissionOrder::Fifo),
            other => Outbox::new(other),
        }
    }

    /// Adds a piece of a tensor. A tensor without a level comes after all that have one.
    pub fn put(&mut self, tensor: u32, bytes: u64, piece: T) {
        match &mut self.waiting {
            Waiting::Fifo(queue) => queue.push_back(piece),
            Waiting::RoundRobin { turns, .. } => match turns.iter_mut().find(|turn| turn.0 == tensor) {
                Some((_, pieces)) => pieces.push_back((bytes, piece)),
                None => turns.push_back((tensor, VecDeque::from([(bytes, piece)]))),
            },
            Waiting::Priority { levels, ranked, arrivals } => {
                let level = levels.get(tensor as usize).copied().unwrap_or(u32::MAX);
                ranked.insert((level, *arrivals), piece);
                *arrivals += 1;
            }
        }
    }

    /// Takes the piece that goes next.
    pub fn take(&mut self) -> Option<T> {
        match &mut self.waiting {
            Waiting::Fifo(queue) => queue.pop_front(),
            Waiting::RoundRobin { window_bytes, turns, sent_bytes } => {
                let (_, pieces) = turns.front_mut()?;
                let (bytes, piece) = pieces.pop_front()?;
                *sent_bytes += bytes;
                if pieces.is_empty() {
                    turns.pop_front();
                    *sent_bytes = 0;
                } else if *sent_bytes >= *window_bytes {
                    turns.rotate_left(1);
                    *sent_bytes = 0;
                }
                Some(piece)
            }
            Waiting::Priority { ranked, .. } => ranked.pop_first().map(|(_, piece)| piece),
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        match &self.waiting {
            Waiting::Fifo(queue) => queue.is_empty(),
            Waiting::RoundRobin { turns, .. } => turns.is_empty(),
            Waiting::Priority { ranked, .. } => ranked.is_empty(),
        }
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        match &mut self.waiting {
            Waiting::Fifo(queue) => queue.clear(),
            Waiting::RoundRobin { turns, sent_bytes, .. } => {
                turns.clear();
                *sent_bytes = 0;
            }
            Waiting::Priority { ranked, .. } => ranked.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tensor 0 of four pieces, tensor 1 of one, tensor 2 of three, 10 bytes each, asked for in this order.
    fn filled(order: &TransmissionOrder) -> Outbox<(u32, u32)> {
        let mut outbox = Outbox::new(order);
        for (tensor, pieces) in [(0, 4), (1, 1), (2, 3)] {
            for piece in 0..pieces {
                outbox.put(tensor, 10, (tensor, piece));
            }
        }
        outbox
    }

    fn drain(outbox: &mut Outbox<(u32, u32)>) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| outbox.take()).collect()
    }

    #[test]
    fn first_come_first_served() {
        let sent = drain(&mut filled(&TransmissionOrder::Fifo));
        assert_eq!(sent, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (2, 1), (2, 2)]);
    }

    #[test]
    fn turns_end_with_the_window() {
        let sent = drain(&mut filled(&TransmissionOrder::RoundRobin { window_bytes: 20 }));
        assert_eq!(sent, [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (0, 2), (0, 3), (2, 2)]);
        let sent = drain(&mut filled(&TransmissionOrder::RoundRobin { window_bytes: 0 }));
        assert_eq!(sent, [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (2, 2), (0, 3)]);
        // A window that ends within a piece: the turn ends with the piece.
        let sent = drain(&mut filled(&TransmissionOrder::RoundRobin { window_bytes: 11 }));
        assert_eq!(sent[..4], [(0, 0), (0, 1), (1, 0), (2, 0)]);
    }

    #[test]
    fn a_turn_is_whole_again_after_a_shorter_one() {
        let mut outbox = filled(&TransmissionOrder::RoundRobin { window_bytes: 20 });
        outbox.clear();
        outbox.put(7, 10, (7, 0));
        assert_eq!(outbox.take(), Some((7, 0)));
        outbox.put(8, 10, (8, 0));
        outbox.put(8, 10, (8, 1));
        outbox.put(8, 10, (8, 2));
        outbox.put(9, 10, (9, 0));
        assert_eq!(drain(&mut outbox), [(8, 0), (8, 1), (9, 0), (8, 2)]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn the_smaller_level_goes_first_also_when_it_comes_later() {
        let order = TransmissionOrder::Priority(vec![2, 0, 2]);
        let mut outbox = filled(&order);
        assert_eq!([outbox.take(), outbox.take()], [Some((1, 0)), Some((0, 0))]);
        outbox.put(1, 10, (1, 9));
        outbox.put(3, 10, (3, 0));
        let sent = drain(&mut outbox);
        assert_eq!(sent, [(1, 9), (0, 1), (0, 2), (0, 3), (2, 0), (2, 1), (2, 2), (3, 0)]);
        let mut up = Outbox::upwards(&order);
        up.put(0, 10, 'a');
        up.put(1, 10, 'b');
        assert_eq!([up.take(), up.take(), up.take()], [Some('a'), Some('b'), None]);
    }
}
