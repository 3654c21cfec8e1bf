//! Laws of virtual shards: assignments are balanced and move the fewest shards, and transfers bring what is lacking.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::virtual_shards::{Assignment, Transfer, VirtualShards, transfers};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

type Held = BTreeMap<u64, Vec<u32>>;

/// Pairs of a shard and a worker that did not hold it.
fn moved(assignment: &Assignment, held: &Held) -> usize {
    let has = |worker: u64, shard: u32| held.get(&worker).is_some_and(|shards| shards.contains(&shard));
    (0..assignment.shards())
        .flat_map(|shard| assignment.holders(shard).iter().map(move |worker| (shard, *worker)))
        .filter(|(shard, worker)| !has(*worker, *shard))
        .count()
}

/// The fewest moves of any balanced assignment: every choice of holders is tried, shard by shard, and of those that
/// give all workers the same number of shards the best is kept.
fn fewest_moves(shards: u32, copies: usize, workers: &[u64], held: &Held) -> usize {
    let most = (shards as usize * copies).div_ceil(workers.len());
    let least = shards as usize * copies / workers.len();
    let choices: Vec<u32> =
        (0..1 << workers.len()).filter(|set: &u32| set.count_ones() == copies as u32).collect();
    let mut best = BTreeMap::from([(vec![0; workers.len()], 0)]);
    for shard in 0..shards {
        let mut next = BTreeMap::new();
        for (loads, moves) in &best {
            for choice in &choices {
                let chosen = |place: &usize| choice >> place & 1 == 1;
                let (mut loads, mut moves): (Vec<usize>, usize) = (loads.clone(), *moves);
                for place in (0..workers.len()).filter(chosen) {
                    loads[place] += 1;
                    let has = held.get(&workers[place]).is_some_and(|shards| shards.contains(&shard));
                    moves += usize::from(!has);
                }
                if loads.iter().all(|load| *load <= most) {
                    let known = next.entry(loads).or_insert(moves);
                    *known = moves.min(*known);
                }
            }
        }
        best = next;
    }
    let is_balanced = |loads: &Vec<usize>| loads.iter().all(|load| *load >= least);
    best.into_iter()
        .filter(|(loads, _)| is_balanced(loads))
        .map(|(_, moves)| moves)
        .min()
        .expect("balance is possible")
}

/// Checks that all hold and own an even share, and that holders are distinct.
fn check_balance(assignment: &Assignment, shards: u32, copies: u32, workers: &[u64]) {
    let count = workers.len() as u32;
    let copies = copies.min(count);
    assert_eq!((assignment.shards(), assignment.copies()), (shards, copies));
    for shard in 0..shards {
        let holders = assignment.holders(shard);
        assert_eq!(BTreeSet::from_iter(holders).len(), copies as usize);
        assert!(holders.iter().all(|holder| workers.contains(holder)));
        assert_eq!(holders[0], assignment.owner(shard));
    }
    let is_even = |number: usize, of: u32| (of / count..=of.div_ceil(count)).contains(&(number as u32));
    for worker in workers {
        assert!(is_even(assignment.held_by(*worker).len(), shards * copies), "{assignment:?}");
        assert!(is_even(assignment.owned_by(*worker).len(), shards), "{assignment:?}");
    }
}

/// Checks that transfers bring every worker what it lacks from a worker that has it, and nothing else.
fn check_transfers(list: &[Transfer], held: &Held, to: &Assignment) {
    let mut after = held.clone();
    for Transfer { shard, from, to } in list {
        assert!(held[from].contains(shard));
        let theirs = after.entry(*to).or_default();
        assert!(!theirs.contains(shard));
        theirs.push(*shard);
    }
    for (worker, shards) in to.all() {
        assert!(shards.iter().all(|shard| after[&worker].contains(shard)));
    }
    assert_eq!(list.len(), moved(to, held));
}

/// The most that one worker sends.
fn most_sent(list: &[Transfer]) -> usize {
    let mut sent = BTreeMap::<u64, usize>::new();
    list.iter().for_each(|transfer| *sent.entry(transfer.from).or_default() += 1);
    sent.into_values().max().unwrap_or(0)
}

/// The least that the busiest sender can send, by Hall's theorem: what only some workers have, they have to send.
fn least_sent(held: &Held, to: &Assignment) -> usize {
    let lacks = |worker: &u64, shard: u32| !held.get(worker).is_some_and(|shards| shards.contains(&shard));
    let missing: Vec<u32> = (0..to.shards())
        .flat_map(|shard| {
            to.holders(shard).iter().filter(move |holder| lacks(holder, shard)).map(move |_| shard)
        })
        .collect();
    let sources: Vec<&Vec<u32>> = held.values().collect();
    let within = |set: u32| {
        let outside = |shard: &u32| {
            (0..sources.len()).any(|place| set >> place & 1 == 0 && sources[place].contains(shard))
        };
        missing.iter().filter(|shard| !outside(shard)).count().div_ceil(set.count_ones() as usize)
    };
    (1..1_u32 << sources.len()).map(within).max().unwrap_or(0)
}

/// Holdings of up to 6 workers that follow no rule.
fn any_holdings() -> impl Strategy<Value = Held> {
    let one = btree_set(0..10_u32, 0..9).prop_map(|shards| shards.into_iter().collect());
    proptest::collection::btree_map(0..8_u64, one, 0..7)
}

/// Assigns from nothing, then after each change of the members: in each, the worker of that number joins or leaves.
fn history(shards: u32, copies: u32, changes: &[u64]) -> Vec<(Vec<u64>, Assignment)> {
    let mut workers = BTreeSet::from([0_u64, 1]);
    let mut steps = Vec::new();
    let mut held = Held::new();
    for change in changes {
        let list = Vec::from_iter(workers.iter().copied());
        let assignment = Assignment::nearest(shards, copies, &list, &held);
        held = assignment.all();
        steps.push((list, assignment));
        if !workers.remove(change) {
            workers.insert(*change);
        } else if workers.is_empty() {
            workers.insert(change + 1);
        }
    }
    steps
}

#[test]
fn cuts_cover_all_parameters_at_multiples_of_16() {
    for parameters in [0, 1, 15, 16, 17, 16_384, 16_385, 1_000_003, 7_000_000_001] {
        let cut = VirtualShards::of(parameters);
        assert!(cut.count() <= 1024 && (cut.count() == 0) == (parameters == 0));
        let ranges: Vec<_> = (0..cut.count()).map(|shard| cut.range(shard)).collect();
        assert!(ranges.iter().all(|range| range.start % 16 == 0 && range.len() <= ranges[0].len()));
        assert!(
            ranges.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].len() == ranges[0].len())
        );
        assert_eq!(ranges.last().map_or(0, |range| range.end), parameters);
        assert_eq!(ranges.iter().map(ExactSizeIterator::len).sum::<usize>(), parameters);
    }
}

#[test]
fn owners_of_the_first_assignment_take_turns() {
    for (shards, copies, count) in [(1024, 1, 7), (1024, 2, 4), (1000, 3, 6), (977, 3, 256), (5, 2, 9)] {
        let workers: Vec<u64> = (10..10 + count).collect();
        let assignment = Assignment::nearest(shards, copies, &workers, &Held::new());
        check_balance(&assignment, shards, copies, &workers);
        assert!((0..shards).all(|shard| assignment.owner(shard) == 10 + u64::from(shard) % count));
    }
}

#[test]
fn a_newcomer_gets_shards_from_everywhere() {
    let before: Vec<u64> = (0..7).collect();
    let after: Vec<u64> = (0..8).collect();
    for copies in 1..=3 {
        let held = Assignment::nearest(1024, copies, &before, &Held::new()).all();
        let assignment = Assignment::nearest(1024, copies, &after, &held);
        let shards = assignment.held_by(7);
        let gap = shards.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(gap <= 5 * 8 / copies, "{copies} copies: {gap} shards without the newcomer");
    }
}

#[test]
fn a_leave_moves_only_what_the_leaver_held() {
    for (count, copies) in (5..40).flat_map(|count| (1..=3).map(move |copies| (count, copies))) {
        let workers: Vec<u64> = (0..count).collect();
        let first = Assignment::nearest(1009, copies, &workers, &Held::new());
        let leaver = count / 2;
        let mut held = first.all();
        let theirs = held.remove(&leaver).unwrap();
        let rest: Vec<u64> = workers.into_iter().filter(|worker| *worker != leaver).collect();
        let next = Assignment::nearest(1009, copies, &rest, &held);
        assert_eq!(moved(&next, &held), theirs.len(), "{count} workers, {copies} copies");
        if copies > 1 {
            let list = transfers(&held, &next).unwrap();
            check_transfers(&list, &held, &next);
            // All that stay share in the sending.
            let even = theirs.len().div_ceil(rest.len());
            assert!(most_sent(&list) <= even + 1, "{count} workers, {copies} copies: {even}");
        }
    }
}

#[test]
fn parts_must_be_distinct_holders_of_whole_shards() {
    let whole = Assignment::from_parts(2, vec![4, 2, 2, 9]).unwrap();
    assert_eq!((whole.copies(), whole.shards(), whole.owner(1)), (2, 2, 2));
    assert_eq!((whole.held_by(2), whole.owned_by(2)), (vec![0, 1], vec![1]));
    assert_eq!(whole.all(), Held::from([(2, vec![0, 1]), (4, vec![0]), (9, vec![1])]));
    assert_eq!(Assignment::from_parts(0, vec![]), Some(Assignment::default()));
    assert_eq!(Assignment::default().shards(), 0);
    for (copies, holders) in [(2, vec![4, 2, 2]), (2, vec![4, 2, 2, 2]), (0, vec![1]), (3, vec![1, 2])] {
        assert_eq!(Assignment::from_parts(copies, holders), None);
    }
}

#[test]
fn what_no_worker_has_is_named() {
    let held = Held::from([(1, vec![0, 1, 3]), (2, vec![])]);
    let to = Assignment::nearest(5, 1, &[1, 2], &held);
    assert_eq!(transfers(&held, &to), Err(2));
    assert_eq!(transfers(&Held::new(), &to), Err(0));
    assert_eq!(transfers(&Held::new(), &Assignment::default()), Ok(vec![]));
}

/// Two shards have all their holders, the same two workers. The third worker is to hold two shards, but only one lacks
/// holders, so one of the first two gives a shard up: fewer pairs are kept than each worker by itself could keep.
#[test]
fn a_kept_shard_is_given_up_where_it_must_be() {
    let held = Held::from([(0, vec![0, 1]), (1, vec![0, 1])]);
    let assignment = Assignment::nearest(3, 2, &[0, 1, 2], &held);
    check_balance(&assignment, 3, 2, &[0, 1, 2]);
    assert_eq!(moved(&assignment, &held), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_fewest_shards_move_from_any_holdings(
        shards in 0..9_u32, copies in 1..4_u32, held in any_holdings(), workers in btree_set(0..8_u64, 1..7),
    ) {
        let workers = Vec::from_iter(workers);
        let assignment = Assignment::nearest(shards, copies, &workers, &held);
        check_balance(&assignment, shards, copies, &workers);
        let fewest = fewest_moves(shards, workers.len().min(copies as usize), &workers, &held);
        prop_assert_eq!(moved(&assignment, &held), fewest);
        let backwards: Vec<u64> = workers.into_iter().rev().collect();
        prop_assert_eq!(&Assignment::nearest(shards, copies, &backwards, &held), &assignment);
        let holders: Vec<u64> = (0..shards).flat_map(|shard| assignment.holders(shard).to_vec()).collect();
        prop_assert_eq!(Assignment::from_parts(assignment.copies(), holders), Some(assignment));
    }

    #[test]
    fn the_fewest_shards_move_in_any_history(
        shards in 1..9_u32, copies in 1..4_u32, changes in vec(0..6_u64, 1..7),
    ) {
        let mut held = Held::new();
        for (workers, assignment) in history(shards, copies, &changes) {
            check_balance(&assignment, shards, copies, &workers);
            let fewest = fewest_moves(shards, workers.len().min(copies as usize), &workers, &held);
            prop_assert_eq!(moved(&assignment, &held), fewest);
            held = assignment.all();
        }
    }

    #[test]
    fn transfers_bring_what_is_lacking(
        shards in 0..9_u32, copies in 1..4_u32, held in any_holdings(), workers in btree_set(0..8_u64, 1..7),
    ) {
        let to = Assignment::nearest(shards, copies, &Vec::from_iter(workers), &held);
        match transfers(&held, &to) {
            Ok(list) => {
                check_transfers(&list, &held, &to);
                prop_assert_eq!(most_sent(&list), least_sent(&held, &to));
            }
            Err(lost) => {
                let has = |shard: u32| held.values().any(|shards| shards.contains(&shard));
                prop_assert_eq!((0..shards).find(|shard| !has(*shard)), Some(lost));
            }
        }
    }

    /// A join moves the newcomer's share at the size of real runs. A leave moves what the leaver held and, where copies
    /// of the same shards are together too often, a little more: a path of the flow costs two at most.
    #[test]
    fn a_change_of_one_worker_moves_its_share(
        shards in 100..1025_u32, copies in 1..4_u32, changes in vec(0..24_u64, 2..30),
    ) {
        let steps = history(shards, copies, &changes);
        for pair in steps.windows(2) {
            let ((before, old), (after, new)) = (&pair[0], &pair[1]);
            let held = old.all();
            check_balance(new, shards, copies, after);
            if old.copies() != new.copies() {
                continue;
            }
            let moved = moved(new, &held);
            if before.len() < after.len() {
                let share = (shards * new.copies()) as usize;
                let even = share / after.len()..=share.div_ceil(after.len());
                prop_assert!(even.contains(&moved), "{} of {:?}", moved, even);
            } else if before.len() > after.len() {
                let leaver = before.iter().find(|worker| !after.contains(worker)).unwrap();
                let theirs = old.held_by(*leaver).len();
                let most = if new.copies() == 1 { theirs } else { 2 * theirs };
                prop_assert!((theirs..=most).contains(&moved), "{moved} of {theirs}");
            }
        }
    }
}
