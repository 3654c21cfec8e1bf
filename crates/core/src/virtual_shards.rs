//! Virtual shards: consecutive ranges of the parameters, and which workers hold the optimizer's slots of each.
//!
//! A shard is held by `copies` distinct workers. The first, its *owner*, adds up its gradients. With S shards, r copies
//! and W workers, every worker holds S·r/W shards and owns S/W of them, both rounded down or up.
//!
//! When workers come or go, [`Assignment::nearest`] moves as little as a balanced assignment can. It is a flow of
//! minimum cost: from each shard r units, one to each of r workers, from each worker to the sink its share, and
//! a pair costs one unless the worker has the shard already. It grows along shortest paths, which never cost more
//! than two. For if shard s lacks a holder and worker v has room, then either v lacks s and takes it. Or v has s; some
//! worker u lacks s, holds at least as many shards as v if it has no room, and so has a shard that v lacks: u takes s,
//! and v that one. So three rounds, for paths that cost 0, 1 and 2, end at the optimum.
//!
//! Balanced owners exist for all holders: if every shard is divided equally among its holders, a worker with k shards
//! owns k/r, which lies between S/W rounded down and up, because k lies between S·r/W rounded down and up; and a flow
//! with integer bounds has an integer solution.

mod matching;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use matching::{Matching, NEVER};

/// Most virtual shards of a parameter vector.
const SHARDS_MAX: usize = 1024;

/// Cuts between virtual shards lie at multiples of this number of values.
const ALIGNMENT: usize = 16;

/// How the parameters are cut into virtual shards. It depends on nothing but their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualShards {
    parameters: usize,
    /// Values of every shard but the last, which may be smaller.
    shard: usize,
}

impl VirtualShards {
    /// Cuts this many parameters into at most 1,024 shards of equal size, a multiple of 16 values; the last may be
    /// smaller.
    ///
    /// ```
    /// use bellwether_core::virtual_shards::VirtualShards;
    /// let cut = VirtualShards::of(40);
    /// assert_eq!((cut.count(), cut.range(2)), (3, 32..40));
    /// ```
    pub fn of(parameters: usize) -> VirtualShards {
        let shard = parameters.div_ceil(SHARDS_MAX).max(1).next_multiple_of(ALIGNMENT);
        VirtualShards { parameters, shard }
    }

    /// Number of shards; 0 without parameters.
    pub fn count(&self) -> u32 {
        self.parameters.div_ceil(self.shard) as u32
    }

    /// Where a shard lies in the flat vector, in values.
    ///
    /// # Panics
    ///
    /// If there is no such shard.
    pub fn range(&self, shard: u32) -> Range<usize> {
        assert!(shard < self.count(), "shard {shard} of {}", self.count());
        let start = shard as usize * self.shard;
        start..(start + self.shard).min(self.parameters)
    }
}

/// Which worker holds which virtual shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    copies: u32,
    /// Of every shard in turn its `copies` holders, the owner first.
    holders: Vec<u64>,
}

impl Assignment {
    /// The balanced assignment of this many shards to `workers` that gives them the fewest shards they do not hold
    /// already. `held` says what each worker holds, in ascending order; workers that are not in it hold nothing, and
    /// what it says of others is not used. There are at least one copy and at most one for each worker.
    ///
    /// A leave moves what the leaver held, and with several copies at times a little more, where the shards of two
    /// workers are so much the same that an even share cannot be reached otherwise.
    ///
    /// The same arguments give the same assignment everywhere, and the order of the workers does not matter. If they
    /// hold nothing, the owners follow each other round robin.
    ///
    /// ```
    /// use bellwether_core::virtual_shards::Assignment;
    /// let two = Assignment::nearest(6, 1, &[7, 9], &Default::default());
    /// assert_eq!(two.held_by(7), [0, 2, 4]);
    /// let three = Assignment::nearest(6, 1, &[7, 8, 9], &two.all());
    /// let sevens = three.held_by(7);
    /// assert_eq!((sevens.len(), three.held_by(8).len()), (2, 2));
    /// assert!(sevens.iter().all(|shard| two.held_by(7).contains(shard)));
    /// ```
    ///
    /// # Panics
    ///
    /// Without workers.
    pub fn nearest(shards: u32, copies: u32, workers: &[u64], held: &BTreeMap<u64, Vec<u32>>) -> Assignment {
        assert!(!workers.is_empty(), "some worker must hold the shards");
        let workers: Vec<u64> = BTreeSet::from_iter(workers.iter().copied()).into_iter().collect();
        let copies = (copies as usize).clamp(1, workers.len());
        let rows = shards as usize;
        let has = table(shards, &workers, held);
        let moves = |shard: usize, place: usize| u8::from(!has[shard * workers.len() + place]);
        let mut holding = Matching::new(rows, workers.len(), copies, moves);
        for _ in 0..3 {
            holding.fill();
            holding.lengthen();
        }
        assert!(holding.is_complete(), "no path costs more than two");
        let is_holder = |shard: usize, place: usize| if holding.has(shard, place) { 0 } else { NEVER };
        let mut owning = Matching::new(rows, workers.len(), 1, is_holder);
        owning.fill();
        assert!(owning.is_complete(), "balanced owners exist for all holders");
        let mut holders = Vec::with_capacity(rows * copies);
        for shard in 0..rows {
            let is_held = |place: &usize| holding.has(shard, *place);
            let mut places: Vec<usize> = (0..workers.len()).filter(is_held).collect();
            places.sort_by_key(|place| !owning.has(shard, *place));
            holders.extend(places.into_iter().map(|place| workers[place]));
        }
        Assignment { copies: copies as u32, holders }
    }

    /// The assignment with these holders: those of the first shard, its owner first, then those of the next. `None` if
    /// they are not `copies` distinct workers for every shard.
    pub fn from_parts(copies: u32, holders: Vec<u64>) -> Option<Assignment> {
        let is_whole = holders.len().is_multiple_of(copies as usize);
        let are_distinct =
            |of_shard: &[u64]| of_shard.iter().collect::<BTreeSet<_>>().len() == of_shard.len();
        let is_valid = is_whole
            && holders.chunks_exact(copies.max(1) as usize).all(are_distinct)
            && u32::try_from(holders.len()).is_ok();
        is_valid.then_some(Assignment { copies, holders })
    }

    /// Workers that hold each shard.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        (self.holders.len() / self.copies.max(1) as usize) as u32
    }

    /// The workers that hold a shard, its owner first.
    ///
    /// # Panics
    ///
    /// If there is no such shard.
    pub fn holders(&self, shard: u32) -> &[u64] {
        let copies = self.copies as usize;
        &self.holders[shard as usize * copies..][..copies]
    }

    /// The worker that adds up a shard's gradients.
    ///
    /// # Panics
    ///
    /// If there is no such shard.
    pub fn owner(&self, shard: u32) -> u64 {
        self.holders(shard)[0]
    }

    /// The shards that a worker holds, as owner or not, in ascending order.
    pub fn held_by(&self, worker: u64) -> Vec<u32> {
        (0..self.shards()).filter(|shard| self.holders(*shard).contains(&worker)).collect()
    }

    /// The shards that a worker owns, in ascending order.
    pub fn owned_by(&self, worker: u64) -> Vec<u32> {
        (0..self.shards()).filter(|shard| self.owner(*shard) == worker).collect()
    }

    /// What every worker holds, in ascending order, without workers that hold nothing.
    pub fn all(&self) -> BTreeMap<u64, Vec<u32>> {
        let mut all = BTreeMap::<u64, Vec<u32>>::new();
        for shard in 0..self.shards() {
            for worker in self.holders(shard) {
                all.entry(*worker).or_default().push(shard);
            }
        }
        all
    }
}

/// A virtual shard's slots that travel to a worker that is to hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The shard.
    pub shard: u32,
    /// A worker that has its slots.
    pub from: u64,
    /// The worker that lacks them.
    pub to: u64,
}

/// What has to travel so that all workers hold what `to` says, by shard. `held` is what workers have now, in ascending
/// order: all that can send, also those that `to` does not name. The most that one worker sends is as little as it can
/// be. The same arguments give the same list everywhere.
///
/// # Errors
///
/// The first shard that no worker has.
pub fn transfers(held: &BTreeMap<u64, Vec<u32>>, to: &Assignment) -> Result<Vec<Transfer>, u32> {
    let sources: Vec<u64> = held.keys().copied().collect();
    let has = table(to.shards(), &sources, held);
    let has = |shard: u32, place: usize| has[shard as usize * sources.len() + place];
    let lost = |shard: &u32| !(0..sources.len()).any(|place| has(*shard, place));
    if let Some(shard) = (0..to.shards()).find(lost) {
        return Err(shard);
    }
    let lacks =
        |shard: u32, worker: u64| !sources.binary_search(&worker).is_ok_and(|place| has(shard, place));
    let missing: Vec<(u32, u64)> = (0..to.shards())
        .flat_map(|shard| to.holders(shard).iter().map(move |worker| (shard, *worker)))
        .filter(|(shard, worker)| lacks(*shard, *worker))
        .collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let cost = |row: usize, place: usize| if has(missing[row].0, place) { 0 } else { NEVER };
    let mut sending = Matching::new(missing.len(), sources.len(), 1, cost);
    sending.fill();
    while !sending.is_complete() {
        sending.raise_quota();
        sending.fill();
    }
    let transfer = |(row, (shard, to)): (usize, &(u32, u64))| {
        let place = (0..sources.len()).find(|place| sending.has(row, *place));
        let from = sources[place.expect("the matching is complete")];
        Transfer { shard: *shard, from, to: *to }
    };
    Ok(missing.iter().enumerate().map(transfer).collect())
}

/// By shard, then by place among `workers`, which ascend: whether the worker has it.
fn table(shards: u32, workers: &[u64], held: &BTreeMap<u64, Vec<u32>>) -> Vec<bool> {
    let mut has = vec![false; shards as usize * workers.len()];
    for (place, worker) in workers.iter().enumerate() {
        for shard in held.get(worker).into_iter().flatten().filter(|shard| **shard < shards) {
            has[*shard as usize * workers.len() + place] = true;
        }
    }
    has
}
