//! Which parameter server holds what: tensors cut into pieces, pieces spread over the servers by bytes.
//!
//! Tensors larger than an even share are cut, so that no server is left with more than its share; the pieces go to the
//! emptiest server, the largest first. The same layout and number of servers give the same shards everywhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A piece of one tensor, which travels and is updated as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Number of its tensor, in layout order.
    pub tensor: usize,
    /// Where it lies in the flat vector, in values.
    pub range: Range<usize>,
    /// The server that holds it.
    pub server: u32,
}

/// Cuts tensors of these many values and spreads the pieces over `servers`, in the order of the flat vector. A tensor
/// is cut into equal pieces when it is larger than an even share of all values; cuts lie at multiples of 16 values.
///
/// ```
/// use bellwether_core::shards::spread;
/// // The first tensor is larger than half of all: it is cut in two.
/// let servers: Vec<u32> = spread(&[96, 16, 16], 2).iter().map(|piece| piece.server).collect();
/// assert_eq!(servers, [0, 1, 0, 1]);
/// ```
///
/// # Panics
///
/// Without servers.
pub fn spread(tensors: &[usize], servers: u32) -> Vec<Piece> {
    assert!(servers > 0, "somebody must hold the parameters");
    const ALIGNMENT: usize = 16;
    let total: usize = tensors.iter().sum();
    let share = total.div_ceil(servers as usize).max(1);
    let mut pieces = Vec::new();
    let mut begin = 0;
    for (tensor, &values) in tensors.iter().enumerate() {
        let count = values.div_ceil(share).max(1);
        let piece = values.div_ceil(count).next_multiple_of(ALIGNMENT);
        let mut from = 0;
        while from < values {
            let to = (from + piece).min(values);
            pieces.push(Piece { tensor, range: begin + from..begin + to, server: 0 });
            from = to;
        }
        begin += values;
    }
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|place| (Reverse(pieces[*place].range.len()), *place));
    // The one with the fewest values first; of equals, that of the smallest number.
    let mut emptiest: BinaryHeap<Reverse<(usize, u32)>> =
        (0..servers).map(|server| Reverse((0, server))).collect();
    for place in order {
        let Some(Reverse((held, server))) = emptiest.pop() else { break };
        pieces[place].server = server;
        emptiest.push(Reverse((held + pieces[place].range.len(), server)));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once_and_evenly() {
        for (tensors, servers) in [
            (vec![1_000_000, 10, 20], 4),
            (vec![64; 32], 3),
            (vec![5], 8),
            (vec![0, 7, 0, 9], 2),
            (vec![], 1),
        ] {
            let pieces = spread(&tensors, servers);
            let mut next = 0;
            for piece in &pieces {
                assert_eq!(piece.range.start, next);
                next = piece.range.end;
                assert!(piece.server < servers && !piece.range.is_empty());
            }
            let total: usize = tensors.iter().sum();
            assert_eq!(next, total);
            let held =
                |server| pieces.iter().filter(|p| p.server == server).map(|p| p.range.len()).sum::<usize>();
            let most = (0..servers).map(held).max().unwrap_or(0);
            let share = total.div_ceil(servers as usize);
            // Of pieces no larger than a share, the emptiest server gets each next.
            assert!(most <= 2 * share.next_multiple_of(16), "{tensors:?} {servers}: {most} of {share}");
        }
    }
}
