//! Collectives of up to 1,024 workers in one thread: the engine as it is, with bytes in queues for connections.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

use bellwether_core::groups::Groups;
use proptest::prelude::*;

use super::{Collective, Exchange};
use crate::collective::plan::Sizes;
use crate::collective::step::{Done, Own, Step, Values};
use crate::collective::{
    CollectivePlan, Feeder, Lengths, Member, Stamp, WakeReceiver, Waker, feed, wake_pair,
};
use crate::tree::tests::sum_by_definition;
use crate::tree::{Accumulator, ranges_by_speed};

const STAMP: Stamp = Stamp { job: 0xB311, epoch: 3, step: 5 };

/// A number that follows from what it is for.
fn draw(seed: u64, what: u64) -> u64 {
    bellwether_core::mix::mix(seed.wrapping_mul(0x9e37_79b9) ^ what)
}

#[derive(Debug, Clone)]
struct Scene {
    virtual_nodes: u32,
    nodes: Vec<Range<u32>>,
    shadows: u64,
    length: usize,
    /// Of these values.
    state: usize,
    /// Leading values that are rounded to bfloat16.
    halves: usize,
    groups: Groups,
    sizes: Sizes,
    seed: u64,
    /// Whether some members are handed their sums bucket by bucket.
    fed: bool,
}

impl Scene {
    fn plan(&self, me: u64) -> CollectivePlan {
        let nodes = self.nodes.iter().cloned();
        let members = nodes.enumerate().map(|(rank, nodes)| Member { worker: rank as u64, nodes }).collect();
        let shadows = (0..self.shadows).map(|shadow| 5000 + shadow).collect();
        let shape = (self.groups.clone(), self.sizes);
        let state = self.state.min(self.length);
        let lengths = Lengths { parameters: self.length - state, state };
        CollectivePlan::with_groups(self.virtual_nodes, members, shadows, me, lengths, shape)
            .expect("a plan")
            .with_bfloat16(self.halves)
    }

    fn value(&self, leaf: u32, index: usize) -> f32 {
        let x = draw(self.seed, u64::from(leaf) << 32 | index as u64);
        // Exponents far apart, so that another order of additions shows.
        ((x as u32) as f32 / 4e9 - 0.5) * 2f32.powi((x >> 40) as i32 % 24)
    }

    /// The sum as it is defined, without a worker.
    fn expected(&self) -> Vec<f32> {
        let leaf = |leaf| (0..self.length).map(|index| self.value(leaf, index)).collect();
        let leaves: Vec<Vec<f32>> = (0..self.virtual_nodes).map(leaf).collect();
        sum_by_definition(&leaves, self.halves)
    }

    fn sums(&self, range: Range<u32>) -> Vec<Vec<f32>> {
        let mut accumulator = Accumulator::new(self.virtual_nodes, range.clone(), self.length);
        accumulator.round_leading(self.halves);
        for leaf in range {
            for (index, value) in accumulator.leaf().iter_mut().enumerate() {
                *value = self.value(leaf, index);
            }
            accumulator.push();
        }
        accumulator.partials().into_iter().map(<[f32]>::to_vec).collect()
    }

    fn control(&self, rank: usize) -> Vec<u8> {
        let x = draw(self.seed, rank as u64 | 1 << 60);
        vec![x as u8; (x >> 8) as usize % 90]
    }

    /// Runs the collective on all workers; most peers that a member has.
    fn check(&self) -> usize {
        let ids: Vec<u64> = (0..self.nodes.len() as u64).chain((0..self.shadows).map(|s| 5000 + s)).collect();
        let mut collectives: Vec<Collective> = ids.iter().map(|id| Collective::new(self.plan(*id))).collect();
        let sums: Vec<Vec<Vec<f32>>> = self.nodes.iter().map(|nodes| self.sums(nodes.clone())).collect();
        let sums: Vec<Vec<&[f32]>> =
            sums.iter().map(|sums| sums.iter().map(Vec::as_slice).collect()).collect();
        let headers: Vec<Vec<u8>> = (0..self.nodes.len()).map(|rank| self.control(rank)).collect();
        let mut outs = vec![vec![f32::NAN; self.length]; ids.len()];
        let most = collectives.iter().map(|collective| collective.plan.routes.len()).max().unwrap_or(0);
        let wakes: Vec<_> = ids.iter().map(|_| self.fed.then(|| wake_pair().expect("descriptors"))).collect();
        let mut hands = Vec::new();
        let mut exchanges = Vec::new();
        for (place, (collective, out)) in collectives.iter_mut().zip(&mut outs).enumerate() {
            let partials = sums.get(place).map_or(&[][..], |sums| if self.length == 0 { &[] } else { sums });
            let control = headers.get(place).map_or(&[][..], Vec::as_slice);
            // The others bring all at once.
            let is_fed = collective.plan.rank().is_some()
                && !draw(self.seed, place as u64 | 1 << 61).is_multiple_of(3);
            let wake = wakes[place].as_ref().filter(|_| is_fed && !partials.is_empty());
            let (exchange, hand) = in_memory(collective, (control, partials), out, wake);
            exchanges.push(exchange);
            hands.push(hand);
        }
        run(exchanges, hands, &ids, self.seed);
        let expected = self.expected();
        for (collective, (out, id)) in collectives.iter_mut().zip(outs.iter().zip(&ids)) {
            let wrong = out.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(wrong, None, "worker {id} of {self:?}");
            let rank = collective.plan.rank();
            let outcome = collective.outcome(rank.map_or_else(Vec::new, |rank| headers[rank].clone()));
            assert!(outcome.headers == headers, "control bytes at worker {id} of {self:?}");
        }
        most
    }
}

/// What a member still computes.
struct Hand<'a> {
    feeder: Feeder<'a>,
    buckets: VecDeque<Vec<&'a [f32]>>,
    control: Vec<u8>,
}

impl Hand<'_> {
    /// Hands the next bucket over, or the control bytes after the last; what is left.
    fn over(mut self) -> Option<Self> {
        match self.buckets.pop_front() {
            Some(bucket) => {
                self.feeder.bucket(bucket);
                Some(self)
            }
            None => {
                self.feeder.control(self.control);
                None
            }
        }
    }
}

/// An exchange without connections; where `wake` is given it is handed its sums.
fn in_memory<'a>(
    collective: &'a mut Collective,
    (control, partials): (&'a [u8], &'a [&'a [f32]]),
    out: &'a mut [f32],
    wake: Option<&'a (Waker, WakeReceiver)>,
) -> (Exchange<'a, 'a, 'a>, Option<Hand<'a>>) {
    let Collective { plan, peers, received, kept, blocks, inputs } = collective;
    let (done, began) = (Done::default(), Instant::now());
    let (lent, of_group, of_all) = (None, None, None);
    let (mut own, mut bytes) = (Own::Whole(partials), Some(Cow::Borrowed(control)));
    let (feed, hand) = match wake {
        None => (None, None),
        Some(wake) => {
            let (feeder, feed) = feed(wake, None);
            (own, bytes) = (Own::Buckets(Vec::new()), None);
            let slices = |bucket: &Range<usize>| partials.iter().map(|sum| &sum[bucket.clone()]).collect();
            let buckets = plan.cut.buckets.iter().map(slices).collect();
            (Some(feed), Some(Hand { feeder, buckets, control: control.to_vec() }))
        }
    };
    let step = Step { plan, stamp: STAMP, control: bytes, own, lent, done, of_group, of_all, began };
    let links = Vec::new();
    (Exchange { step, peers, links, received, kept, blocks, inputs, out, feed, progress: None }, hand)
}

/// Lets workers move in an order and with buffers by chance, until all are served.
fn run<'a>(
    mut exchanges: Vec<Exchange<'a, 'a, 'a>>,
    mut hands: Vec<Option<Hand<'a>>>,
    ids: &[u64],
    seed: u64,
) {
    let mut links: BTreeMap<(u64, u64), VecDeque<u8>> = BTreeMap::new();
    let mut open: Vec<usize> = (0..ids.len()).collect();
    let mut round = 0;
    while !open.is_empty() {
        round += 1;
        let mut progressed = false;
        open.sort_by_key(|place| draw(seed, round << 20 | *place as u64));
        for place in &open {
            let (exchange, me) = (&mut exchanges[*place], ids[*place]);
            if draw(seed, round << 32 | me).is_multiple_of(4)
                && let Some(hand) = hands[*place].take()
            {
                (hands[*place], progressed) = (hand.over(), true);
            }
            progressed |= exchange.take_fed().expect("all is handed over");
            // Some buffers hold little more than a header.
            for (peer, received) in exchange.peers.iter_mut().zip(exchange.received.iter_mut()) {
                let room = 48 + draw(seed, me << 32 | peer.worker) as usize % 40_000;
                let to = links.entry((me, peer.worker)).or_default();
                let values = Values { out: exchange.out, kept: exchange.kept };
                progressed |= peer.send_in_memory(to, room.saturating_sub(to.len()), &exchange.step, values);
                let from = links.entry((peer.worker, me)).or_default();
                let out = &mut *exchange.out;
                progressed |=
                    peer.receive_in_memory(from, &exchange.step, received, out).expect("frames that are due");
            }
            progressed |= exchange.gather_controls();
            progressed |= exchange.reduce_within().expect("nothing is lent");
            progressed |= exchange.reduce_across();
            exchange.count_results();
        }
        open.retain(|place| {
            !(exchanges[*place].members_are_served() && exchanges[*place].shadows_are_served())
        });
        let computing = hands.iter().any(Option::is_some);
        assert!(progressed || computing || open.is_empty(), "{} workers wait for each other", open.len());
    }
    assert!(links.values().all(VecDeque::is_empty), "all that was sent was taken");
}

/// Virtual nodes shared out unevenly over this many workers.
fn shares(virtual_nodes: u32, workers: usize, seed: u64) -> Vec<Range<u32>> {
    let even = seed.is_multiple_of(3);
    let speed = |worker| if even { 1.0 } else { 1.0 + (draw(seed, worker as u64) % 4) as f64 };
    ranges_by_speed(virtual_nodes, &(0..workers).map(speed).collect::<Vec<f64>>())
}

fn random_groups(workers: usize, cuts: &[usize]) -> Groups {
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut % workers).chain([0, workers]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    Groups::new(bounds).expect("bounds from 0 on")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn any_groups_give_the_canonical_bits(
        more_nodes in 0u32..40,
        workers in 1usize..60,
        length in prop_oneof![Just(0usize), Just(1), Just(17), Just(400), 0usize..3000],
        shadows in 0u64..4,
        small_bytes_max in prop_oneof![Just(0usize), Just(32 * 1024)],
        piece_bytes in prop_oneof![Just(64usize), Just(512), Just(128 * 1024)],
        bucket_bytes in prop_oneof![Just(64usize), Just(2048), Just(1 << 20)],
        state in prop_oneof![Just(0usize), 0usize..100],
        fed in any::<bool>(),
        cuts in prop::collection::vec(0usize..1000, 0..12),
        seed in 0u64..1 << 30,
        halves in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
    ) {
        let virtual_nodes = workers as u32 + more_nodes;
        let groups = random_groups(workers, &cuts);
        let sizes = Sizes { small_bytes_max, piece_bytes, bucket_bytes };
        let nodes = shares(virtual_nodes, workers, seed);
        let halves = (halves * length as f64) as usize;
        Scene { virtual_nodes, nodes, shadows, length, state, halves, groups, sizes, seed, fed }.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn up_to_1024_members_with_few_peers_each(
        more_nodes in 0u32..600,
        workers in 200usize..=1024,
        length in prop_oneof![Just(0usize), Just(3), 1000usize..2500],
        shadows in 0u64..3,
        seed in 0u64..1 << 30,
    ) {
        let virtual_nodes = workers as u32 + more_nodes;
        let nodes = shares(virtual_nodes, workers, seed);
        let groups = Groups::choose(virtual_nodes, &nodes);
        let sizes = Sizes { small_bytes_max: 2048, piece_bytes: 1024, bucket_bytes: 4096 };
        let halves = seed as usize % (length + 1);
        let (state, fed) = (0, false);
        let scene = Scene { virtual_nodes, nodes, shadows, length, state, halves, groups, sizes, seed, fed };
        let most = scene.check();
        let root = workers.isqrt();
        prop_assert!(most <= 2 * root + root / 2 + 4 + shadows as usize, "{workers} members, {most} peers");
    }
}
