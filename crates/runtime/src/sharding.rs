//! The optimizer slots of the virtual shards that one worker holds, where the workers share the optimizer's state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bellwether_core::virtual_shards::VirtualShards;

use crate::optimizer::{Update, UpdateRule};
use crate::workload::WorkloadError;

/// Slots by virtual shard.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotShards {
    /// How the parameters are cut.
    pub cut: VirtualShards,
    /// Slots of each parameter.
    count: usize,
    /// Where each shard that is here begins in `values`.
    held: BTreeMap<u32, usize>,
    /// One shard after another, and of each one slot after another. In one piece, as many small ones take more memory.
    values: Vec<f32>,
}

impl SlotShards {
    /// No shard, of a rule with this many slots.
    pub fn none(cut: VirtualShards, count: usize) -> SlotShards {
        SlotShards { cut, count, held: BTreeMap::new(), values: Vec::new() }
    }

    /// Slots of each parameter.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The shards that are here, ascending.
    pub fn held(&self) -> Vec<u32> {
        self.held.keys().copied().collect()
    }

    /// Drops all that is here, and begins with zeros for these shards.
    pub fn reset(&mut self, shards: &[u32]) {
        *self = SlotShards::none(self.cut, self.count);
        let mut end = 0;
        for shard in shards {
            self.held.insert(*shard, end);
            end += self.length(*shard);
        }
        self.values = vec![0.0; end];
    }

    /// Keeps of what is here only these shards, which are ascending.
    pub fn retain(&mut self, shards: &[u32]) {
        if self.held.keys().any(|shard| shards.binary_search(shard).is_err()) {
            let kept = self.held().into_iter().filter(|shard| shards.binary_search(shard).is_ok());
            self.rebuild(&kept.collect::<Vec<u32>>(), &BTreeMap::new());
        }
    }

    /// Values of all slots of a shard.
    pub fn length(&self, shard: u32) -> usize {
        self.count * self.cut.range(shard).len()
    }

    /// The slots of a shard that is here, one after another.
    pub fn get(&self, shard: u32) -> Option<&[f32]> {
        let start = *self.held.get(&shard)?;
        Some(&self.values[start..start + self.length(shard)])
    }

    fn get_mut(&mut self, shard: u32) -> Option<&mut [f32]> {
        let (start, length) = (*self.held.get(&shard)?, self.length(shard));
        Some(&mut self.values[start..start + length])
    }

    /// Takes shards in, each with its slots one after another.
    ///
    /// # Panics
    ///
    /// If one has another length than [`length`](Self::length) says.
    pub fn insert(&mut self, shards: &BTreeMap<u32, Vec<f32>>) {
        if !shards.is_empty() {
            let all: BTreeSet<u32> = self.held.keys().chain(shards.keys()).copied().collect();
            self.rebuild(&all.into_iter().collect::<Vec<u32>>(), shards);
        }
    }

    /// These shards, which are ascending, from `new`, or else from what is here.
    fn rebuild(&mut self, shards: &[u32], new: &BTreeMap<u32, Vec<f32>>) {
        let mut held = BTreeMap::new();
        let mut values = Vec::with_capacity(shards.iter().map(|shard| self.length(*shard)).sum());
        for shard in shards {
            held.insert(*shard, values.len());
            let from = new.get(shard).map(Vec::as_slice).or_else(|| self.get(*shard));
            let from = from.expect("a shard is new or here");
            assert_eq!(from.len(), self.length(*shard), "a value for each parameter and slot");
            values.extend_from_slice(from);
        }
        (self.held, self.values) = (held, values);
    }

    /// One slot of a shard that is here.
    pub fn slot(&self, shard: u32, slot: usize) -> Option<&[f32]> {
        let length = self.cut.range(shard).len();
        self.get(shard).map(|values| &values[slot * length..(slot + 1) * length])
    }

    /// Copies values of one slot that begin at the parameter `start` to the shards that are here.
    pub fn write(&mut self, slot: usize, start: usize, values: &[f32]) {
        let end = start + values.len();
        for (shard, place) in &self.held {
            let Range { start: first, end: last } = self.cut.range(*shard);
            let (from, to) = (first.max(start), last.min(end));
            if from < to {
                let place = place + slot * (last - first) + from - first;
                self.values[place..place + to - from].copy_from_slice(&values[from - start..to - start]);
            }
        }
    }

    /// Updates a shard that is here and its `parameters` from its part of the summed gradient.
    ///
    /// # Errors
    ///
    /// Those of the rule.
    ///
    /// # Panics
    ///
    /// If the shard is not here.
    pub fn update(
        &mut self,
        shard: u32,
        rule: &mut dyn UpdateRule,
        update: Update,
        parameters: &mut [f32],
        gradient: &[f32],
    ) -> Result<(), WorkloadError> {
        let start = self.cut.range(shard).start;
        let values = self.get_mut(shard).expect("a shard that is here");
        update_shard(rule, update, (start, parameters, values), gradient)
    }
}

/// Updates the parameters of a shard, which begin at the first number, and its slots, one after another, from its part
/// of the summed gradient.
///
/// # Errors
///
/// Those of the rule.
pub fn update_shard(
    rule: &mut dyn UpdateRule,
    update: Update,
    (start, parameters, slots): (usize, &mut [f32], &mut [f32]),
    gradient: &[f32],
) -> Result<(), WorkloadError> {
    let mut slots: Vec<&mut [f32]> = slots.chunks_exact_mut(parameters.len().max(1)).collect();
    rule.apply(update, start, parameters, &mut slots, gradient)
}

/// A set of virtual shards as bits, the first in the lowest bit of the first byte.
pub fn encode_set(shards: &[u32], count: u32) -> Vec<u8> {
    let mut bytes = vec![0; (count as usize).div_ceil(8)];
    for shard in shards {
        bytes[*shard as usize / 8] |= 1 << (shard % 8);
    }
    bytes
}

/// Reads a set of some of `count` shards off the front of `bytes`; `None` if that is none.
pub fn decode_set(bytes: &mut &[u8], count: u32) -> Option<Vec<u32>> {
    let (set, rest) = bytes.split_at_checked((count as usize).div_ceil(8))?;
    *bytes = rest;
    let is_in = |shard: &u32| set[*shard as usize / 8] & (1 << (shard % 8)) != 0;
    let beyond = set.last().is_some_and(|last| !count.is_multiple_of(8) && last >> (count % 8) != 0);
    (!beyond).then(|| (0..count).filter(is_in).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_to_the_shards_that_are_here() {
        let mut shards = SlotShards::none(VirtualShards::of(100), 2);
        shards.reset(&[1, 3]);
        let values: Vec<f32> = (0..100u8).map(f32::from).collect();
        shards.write(1, 0, &values[..20]);
        shards.write(1, 20, &values[20..]);
        let range = shards.cut.range(3);
        assert_eq!(shards.slot(3, 1), Some(&values[range.clone()]));
        assert_eq!(shards.slot(3, 0), Some(&vec![0.0; range.len()][..]));
        assert_eq!((shards.held(), shards.get(0)), (vec![1, 3], None));
        let one = shards.get(1).unwrap().to_vec();
        shards.retain(&[3, 5]);
        assert_eq!((shards.held(), shards.slot(3, 1)), (vec![3], Some(&values[range.clone()])));
        shards.insert(&BTreeMap::from([(1, one.clone())]));
        assert_eq!((shards.get(1), shards.slot(3, 1)), (Some(&one[..]), Some(&values[range])));
    }

    #[test]
    fn a_set_is_what_it_was() {
        for count in [0, 1, 7, 8, 9, 64, 1000] {
            let some: Vec<u32> = (0..count).filter(|shard| shard % 3 == 1).collect();
            let bytes = [&encode_set(&some, count)[..], b"rest"].concat();
            let mut rest = &bytes[..];
            assert_eq!(decode_set(&mut rest, count), Some(some));
            assert_eq!(rest, b"rest");
        }
        assert_eq!(decode_set(&mut &[0u8][..], 9), None);
        assert_eq!(decode_set(&mut &[0x80u8][..], 7), None);
    }
}
