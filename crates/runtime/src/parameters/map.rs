//! Which server holds which piece, and where a piece lies: in the whole vector, and in its server's shard.

use std::ops::Range;

use bellwether_core::shards::{self, spread};

use crate::state::TrainingState;
use crate::workload::{Layout, tensor_ranges};

/// Most values of a piece. A piece travels and is applied as one; this many bytes stay in a core's cache between the
/// socket and the update, and delay a more urgent piece little.
pub const PIECE_VALUES: usize = 64 << 10;

/// A piece of a parameter tensor, or of the model state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Number of its tensor in the layout; that of the model state is the number of parameter tensors.
    pub tensor: usize,
    /// Where it lies in the flat vector (of the parameters, or of the model state), in values.
    pub range: Range<usize>,
    /// Where it begins in the same vector of its server's shard, in values.
    pub at: usize,
    /// The server that holds it.
    pub server: u32,
    /// Whether it is of the model state.
    pub state: bool,
}

impl Piece {
    /// Number of its values.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it holds no value; no piece of a map does.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        4 * self.len()
    }

    /// Its place within its server's shard.
    fn local(&self) -> Range<usize> {
        self.at..self.at + self.len()
    }
}

/// The pieces of all servers. The same layout and number of servers give the same map everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMap {
    servers: u32,
    pieces: Vec<Piece>,
    /// Pieces of each tensor; those of the model state are the last.
    of_tensor: Vec<Range<usize>>,
    /// Pieces of each server, ascending.
    of_server: Vec<Vec<u32>>,
    /// Where each tensor begins in the flat vector; the model state at 0.
    begins: Vec<usize>,
}

impl ShardMap {
    /// Cuts and spreads a model's tensors over `servers`. The model state is held by server 0.
    ///
    /// # Panics
    ///
    /// Without servers.
    pub fn new(layout: &Layout, servers: u32) -> ShardMap {
        let lengths: Vec<usize> = layout.parameters.iter().map(|tensor| tensor.len()).collect();
        let tensors = lengths.len();
        let whole = layout.state_count();
        let state = (whole > 0).then_some(shards::Piece { tensor: tensors, range: 0..whole, server: 0 });
        let mut pieces = Vec::new();
        let mut held = vec![[0; 2]; servers as usize];
        for large in spread(&lengths, servers).into_iter().chain(state) {
            let state = large.tensor == tensors;
            let count = large.range.len().div_ceil(PIECE_VALUES);
            let step = large.range.len().div_ceil(count).next_multiple_of(16);
            for from in large.range.clone().step_by(step) {
                let range = from..(from + step).min(large.range.end);
                let at = &mut held[large.server as usize][usize::from(state)];
                pieces.push(Piece { tensor: large.tensor, at: *at, server: large.server, state, range });
                *at += pieces.last().map_or(0, Piece::len);
            }
        }
        let bound = |tensor: usize| pieces.partition_point(|piece| piece.tensor < tensor);
        let of_tensor = (0..=tensors).map(|tensor| bound(tensor)..bound(tensor + 1)).collect();
        let mut of_server = vec![Vec::new(); servers as usize];
        for (number, piece) in (0..).zip(&pieces) {
            of_server[piece.server as usize].push(number);
        }
        let mut begins: Vec<usize> = tensor_ranges(layout).iter().map(|range| range.start).collect();
        begins.push(0);
        ShardMap { servers, pieces, of_tensor, of_server, begins }
    }

    /// Number of servers.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// All pieces, in the order of the tensors.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Numbers of the pieces that a server holds, ascending.
    pub fn of_server(&self, server: u32) -> &[u32] {
        &self.of_server[server as usize]
    }

    /// Numbers of the pieces of a tensor, or, for the number after the last tensor's, of the model state.
    pub fn of_tensor(&self, tensor: usize) -> Range<usize> {
        self.of_tensor[tensor].clone()
    }

    /// The number that stands for the model state among the tensors.
    pub fn state_tensor(&self) -> usize {
        self.of_tensor.len() - 1
    }

    /// Where a piece lies within its tensor (or the model state), in values.
    pub fn within(&self, piece: &Piece) -> Range<usize> {
        let begin = self.begins[piece.tensor];
        piece.range.start - begin..piece.range.end - begin
    }

    /// A server's part of the whole state: its pieces one behind the other.
    pub fn scatter(&self, whole: &TrainingState, server: u32) -> TrainingState {
        let mut shard = self.empty_shard(whole.slots.len(), server);
        (shard.step, shard.noise) = (whole.step, whole.noise);
        for piece in self.pieces_of(server) {
            let (from, to) = (piece.range.clone(), piece.local());
            if piece.state {
                shard.model_state[to].copy_from_slice(&whole.model_state[from]);
                continue;
            }
            shard.parameters[to.clone()].copy_from_slice(&whole.parameters[from.clone()]);
            for (slot, all) in shard.slots.iter_mut().zip(&whole.slots) {
                slot[to.clone()].copy_from_slice(&all[from.clone()]);
            }
        }
        shard
    }

    /// Writes a server's shard to its places in the whole state; step and noise stay.
    ///
    /// # Panics
    ///
    /// When either is not of this map's layout.
    pub fn gather(&self, shard: &TrainingState, server: u32, whole: &mut TrainingState) {
        for piece in self.pieces_of(server) {
            let (to, from) = (piece.range.clone(), piece.local());
            if piece.state {
                whole.model_state[to].copy_from_slice(&shard.model_state[from]);
                continue;
            }
            whole.parameters[to.clone()].copy_from_slice(&shard.parameters[from.clone()]);
            for (all, slot) in whole.slots.iter_mut().zip(&shard.slots) {
                all[to.clone()].copy_from_slice(&slot[from.clone()]);
            }
        }
    }

    /// A shard of zeros.
    pub fn empty_shard(&self, slots: usize, server: u32) -> TrainingState {
        let values = |state: bool| {
            self.pieces_of(server).filter(|piece| piece.state == state).map(Piece::len).sum::<usize>()
        };
        let (parameters, model_state) = (values(false), values(true));
        TrainingState {
            parameters: vec![0.0; parameters],
            slots: vec![vec![0.0; parameters]; slots],
            model_state: vec![0.0; model_state],
            ..TrainingState::default()
        }
    }

    fn pieces_of(&self, server: u32) -> impl Iterator<Item = &Piece> {
        self.of_server(server).iter().map(|number| &self.pieces[*number as usize])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::Tensor;

    fn layout(parameters: &[usize], state: &[usize]) -> Layout {
        let tensors = |lengths: &[usize]| {
            let tensor = |(number, length): (usize, &usize)| Tensor {
                name: format!("t{number}"),
                shape: vec![*length],
            };
            lengths.iter().enumerate().map(tensor).collect()
        };
        Layout { parameters: tensors(parameters), state: tensors(state) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn shards_together_are_the_whole(
            parameters in proptest::collection::vec(prop_oneof![0usize..50, 60_000usize..200_000], 0..6),
            state in proptest::collection::vec(0usize..100_000, 0..3),
            servers in 1u32..5, slots in 0usize..3,
        ) {
            let layout = layout(&parameters, &state);
            let map = ShardMap::new(&layout, servers);
            let mut whole = TrainingState::zeros(&layout, slots);
            let mut next = 0.0;
            let mut count = |values: &mut Vec<f32>| values.iter_mut().for_each(|value| {
                next += 1.0;
                *value = next;
            });
            count(&mut whole.parameters);
            whole.slots.iter_mut().for_each(&mut count);
            count(&mut whole.model_state);
            let mut again = TrainingState::zeros(&layout, slots);
            for server in 0..servers {
                map.gather(&map.scatter(&whole, server), server, &mut again);
            }
            prop_assert_eq!(&again, &whole);
            for (number, piece) in map.pieces().iter().enumerate() {
                prop_assert!(!piece.is_empty() && piece.len() <= PIECE_VALUES.next_multiple_of(16));
                prop_assert!(map.of_tensor(piece.tensor).contains(&number));
                prop_assert!(map.of_server(piece.server).contains(&(number as u32)));
                let length = if piece.state { layout.state_count() } else { parameters[piece.tensor] };
                prop_assert!(map.within(piece).end <= length);
            }
        }
    }

    #[test]
    fn pieces_of_a_tensor_follow_each_other_and_the_state_is_at_server_0() {
        let map = ShardMap::new(&layout(&[200_000, 5, 0], &[7]), 2);
        let servers: Vec<u32> = map.pieces().iter().map(|piece| piece.server).collect();
        // Two halves of the first tensor, two pieces each; then the small one, then the state.
        assert_eq!(servers, [0, 0, 1, 1, 0, 0]);
        assert_eq!((map.of_tensor(0), map.of_tensor(1), map.of_tensor(2)), (0..4, 4..5, 5..5));
        assert_eq!((map.state_tensor(), map.of_tensor(3)), (3, 5..6));
        assert_eq!(map.within(&map.pieces()[4]), 0..5);
    }
}
