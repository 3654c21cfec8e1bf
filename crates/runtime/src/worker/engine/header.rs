//! The control bytes that every member sends with every collective: what it offers, and sums over its virtual nodes (of
//! losses and square norms, or of losses, right predictions and predictions), which all add up along the
//! canonical tree as the gradients are.

use std::ops::Range;

use crate::evaluation::tree_sum;
use crate::membership::Offer;
use crate::tree::maximal_nodes;

/// Bytes before the sums.
const OFFER_BYTES: usize = 24;

/// One member's control bytes.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::worker) struct Header {
    /// What it is prepared for, and what it has heard.
    pub(in crate::worker) offer: Offer,
    /// Three sums for each maximal node of its range.
    pub(in crate::worker) sums: Vec<[f64; 3]>,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Offer { epoch, decided, checkpoint } = self.offer;
        let mut bytes = [epoch, decided, checkpoint].map(u64::to_le_bytes).concat();
        self.sums.iter().flatten().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        bytes
    }

    /// Reads the bytes of a member with `nodes` maximal nodes.
    pub(super) fn decode(bytes: &[u8], nodes: usize) -> Option<Header> {
        if bytes.len() != OFFER_BYTES + nodes * 24 {
            return None;
        }
        let mut words = bytes.as_chunks::<8>().0.iter();
        let mut word = || words.next().map(|word| u64::from_le_bytes(*word));
        let offer = Offer { epoch: word()?, decided: word()?, checkpoint: word()? };
        let numbers: Vec<f64> = words.map(|word| f64::from_le_bytes(*word)).collect();
        Some(Header { offer, sums: numbers.as_chunks::<3>().0.to_vec() })
    }
}

/// Sums of the leaves of `range` over each of its maximal nodes.
pub(super) fn triples_per_node(virtual_nodes: u32, range: Range<u32>, leaves: &[[f64; 3]]) -> Vec<[f64; 3]> {
    let leaf =
        |node: &Range<u32>| Some(leaves[(node.start - range.start) as usize]).filter(|_| node.len() == 1);
    maximal_nodes(virtual_nodes, range.clone()).iter().map(|node| tree_sum(node, &leaf)).collect()
}

/// Offers by rank, and the sums over all virtual nodes; or the rank whose bytes make no sense.
pub(super) fn combine(
    virtual_nodes: u32,
    ranges: &[Range<u32>],
    headers: &[Vec<u8>],
) -> Result<(Vec<Offer>, [f64; 3]), usize> {
    let (mut offers, mut known) = (Vec::new(), std::collections::BTreeMap::new());
    for (rank, (range, bytes)) in ranges.iter().zip(headers).enumerate() {
        let nodes = maximal_nodes(virtual_nodes, range.clone());
        let header = Header::decode(bytes, nodes.len()).ok_or(rank)?;
        offers.push(header.offer);
        known.extend(nodes.into_iter().map(|n| (n.start, n.end)).zip(header.sums));
    }
    let sum = tree_sum(&(0..virtual_nodes), &|node| known.get(&(node.start, node.end)).copied());
    Ok((offers, sum))
}
