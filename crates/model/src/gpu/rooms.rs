//! The free part of each multiprocessor, and the one with the most room for a kernel.
//!
//! A tournament tree for each kernel keeps the best multiprocessor at its root. A block that comes or goes only writes
//! down which multiprocessor it changed; a tree reads what it missed when its kernel chooses next, and is rebuilt when
//! it missed more changes than there are multiprocessors. So a choice costs O(log multiprocessors), amortised, for each
//! kernel that takes turns with others.

use super::occupancy::{Amounts, room};

/// Free resources of the multiprocessors of a device, or of a slice of it.
#[derive(Debug, Clone)]
pub struct Rooms {
    /// Multiprocessors in the device's order, in which ties are broken; a place in it is a rank.
    sequence: Vec<u32>,
    /// By rank.
    free: Vec<Amounts>,
    /// Ranks that changed last, a ring as long as there are multiprocessors.
    changed: Vec<u32>,
    /// How many changes there were.
    changes: u64,
    /// By kernel.
    trees: Vec<Tree>,
}

#[derive(Debug, Clone)]
struct Tree {
    need: Amounts,
    /// A heap of the winners: node `i` is the better of `2 i` and `2 i + 1`, leaves stand at the end. Empty until used.
    nodes: Vec<u32>,
    /// Up to which change it is right.
    seen: u64,
}

/// Bits of a node that hold the rank; above them stands the room.
const RANK_BITS: u32 = 16;

/// A node that says that this much room is at this rank: more room is larger, then the lower rank; 0 means no room.
fn node(room: u32, rank: usize) -> u32 {
    match room {
        0 => 0,
        _ => (room << RANK_BITS) | (((1 << RANK_BITS) - 1) - rank as u32),
    }
}

impl Tree {
    fn build(&mut self, free: &[Amounts]) {
        let leaves = free.len().next_power_of_two();
        self.nodes.clear();
        self.nodes.resize(2 * leaves, 0);
        for (rank, free) in free.iter().enumerate() {
            self.nodes[leaves + rank] = node(room(free, &self.need), rank);
        }
        for parent in (1..leaves).rev() {
            self.nodes[parent] = self.nodes[2 * parent].max(self.nodes[2 * parent + 1]);
        }
    }

    fn update(&mut self, rank: usize, free: &Amounts) {
        let mut position = self.nodes.len() / 2 + rank;
        self.nodes[position] = node(room(free, &self.need), rank);
        while position > 1 {
            position /= 2;
            let best = self.nodes[2 * position].max(self.nodes[2 * position + 1]);
            if self.nodes[position] == best {
                break;
            }
            self.nodes[position] = best;
        }
    }
}

impl Rooms {
    /// Empty multiprocessors in the order in which ties are broken, each with this capacity, for kernels whose blocks
    /// take `needs`.
    pub fn new(sequence: Vec<u32>, capacity: Amounts, needs: &[Amounts]) -> Rooms {
        let multiprocessors = sequence.len();
        let tree = |need: &Amounts| Tree { need: *need, nodes: Vec::new(), seen: 0 };
        Rooms {
            sequence,
            free: vec![capacity; multiprocessors],
            changed: vec![0; multiprocessors],
            changes: 0,
            trees: needs.iter().map(tree).collect(),
        }
    }

    /// The multiprocessors, by rank.
    pub fn sequence(&self) -> &[u32] {
        &self.sequence
    }

    /// What is free at a rank.
    pub fn free(&self, rank: usize) -> &Amounts {
        &self.free[rank]
    }

    /// How many more blocks of a kernel fit at a rank.
    pub fn room(&self, kernel: usize, rank: usize) -> u32 {
        room(&self.free[rank], &self.trees[kernel].need)
    }

    /// The rank with the most room for a kernel, the first of equals; `None` when a block fits nowhere.
    pub fn most(&mut self, kernel: usize) -> Option<usize> {
        let tree = &mut self.trees[kernel];
        let missed = self.changes - tree.seen;
        if tree.nodes.is_empty() || missed > self.changed.len() as u64 {
            tree.build(&self.free);
        } else {
            for change in tree.seen..self.changes {
                let rank = self.changed[(change % self.changed.len() as u64) as usize] as usize;
                tree.update(rank, &self.free[rank]);
            }
        }
        tree.seen = self.changes;
        match tree.nodes[1] {
            0 => None,
            best => Some(((1 << RANK_BITS) - 1 - (best & ((1 << RANK_BITS) - 1))) as usize),
        }
    }

    /// The same among these ranks, by looking at each.
    pub fn most_of(&self, kernel: usize, ranks: impl Iterator<Item = usize>) -> Option<usize> {
        let node = ranks.map(|rank| (node(self.room(kernel, rank), rank), rank)).max()?;
        (node.0 > 0).then_some(node.1)
    }

    /// Takes a block's share of a multiprocessor away.
    ///
    /// # Panics
    ///
    /// When it does not fit there.
    pub fn take(&mut self, kernel: usize, rank: usize) {
        let need = self.trees[kernel].need;
        for (free, need) in self.free[rank].iter_mut().zip(need) {
            *free = free.checked_sub(need).expect("a block is placed only where it fits");
        }
        self.note(rank);
    }

    /// Gives it back.
    pub fn release(&mut self, kernel: usize, rank: usize) {
        let need = self.trees[kernel].need;
        for (free, need) in self.free[rank].iter_mut().zip(need) {
            *free += need;
        }
        self.note(rank);
    }

    fn note(&mut self, rank: usize) {
        let place = (self.changes % self.changed.len() as u64) as usize;
        self.changed[place] = rank as u32;
        self.changes += 1;
    }
}
