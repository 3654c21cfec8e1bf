//! Collectives between threads over real sockets: the right bits, and what happens when peers fail.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bellwether_core::groups::Groups;
use bellwether_memory::{Arena, Vector};
use proptest::prelude::*;
use socket2::SockRef;

use super::plan::Sizes;
use super::*;
use crate::channel::Stream;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::mesh::Mesh;
use crate::tree::tests::sum_by_definition;
use crate::tree::{Accumulator, ranges};

mod feeding;
mod lending;
mod sharding;

const JOB: u64 = 0xB311;

/// One membership and the sizes of its plan.
#[derive(Debug, Clone)]
struct Case {
    virtual_nodes: u32,
    workers: u32,
    shadows: u64,
    length: usize,
    /// Leading values that are rounded to bfloat16.
    halves: usize,
    small_bytes_max: usize,
    piece_bytes: usize,
    /// Size asked for the sockets' buffers; 0 leaves them alone.
    buffer_bytes: usize,
    /// Seed of delays; 0 for none.
    delays: u64,
    /// Ranks at which groups begin, beside 0.
    cuts: Vec<usize>,
    lanes: Lanes,
    /// Whether vectors lie where those with a lane can read them.
    lends: bool,
    bucket_bytes: usize,
    /// Values of the vector that are the model's state.
    state: usize,
    /// Whether some members are handed their sums bucket by bucket.
    fed: bool,
}

/// Which pairs have a lane of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lanes {
    None,
    All,
    /// As this seed has it.
    Some(u64),
}

impl Lanes {
    fn between(self, a: u64, b: u64) -> bool {
        match self {
            Lanes::None => false,
            Lanes::All => true,
            Lanes::Some(seed) => bellwether_core::mix::mix(seed ^ (a << 32) ^ (b << 16)).is_multiple_of(2),
        }
    }
}

impl Case {
    fn new(virtual_nodes: u32, workers: u32, length: usize) -> Case {
        Case {
            virtual_nodes,
            workers,
            shadows: 0,
            length,
            halves: 0,
            small_bytes_max: 32 * 1024,
            piece_bytes: 128 * 1024,
            buffer_bytes: 0,
            delays: 0,
            cuts: Vec::new(),
            lanes: Lanes::None,
            lends: false,
            bucket_bytes: 1 << 20,
            state: 0,
            fed: false,
        }
    }

    fn groups(&self) -> Groups {
        let workers = self.workers as usize;
        let cuts = self.cuts.iter().copied().filter(|cut| *cut > 0 && *cut < workers);
        let mut bounds: Vec<usize> = [0].into_iter().chain(cuts).collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds.push(workers);
        Groups::new(bounds).unwrap()
    }

    /// Worker ids: members are 10, 11, ...; shadows 100, 101, ...
    fn ids(&self) -> Vec<u64> {
        (0..u64::from(self.workers)).map(|i| 10 + i).chain((0..self.shadows).map(|i| 100 + i)).collect()
    }

    fn members(&self) -> Vec<Member> {
        let ranges = ranges(self.virtual_nodes, self.workers).into_iter();
        ranges.enumerate().map(|(i, nodes)| Member { worker: 10 + i as u64, nodes }).collect()
    }

    fn sizes(&self) -> Sizes {
        let Case { small_bytes_max, piece_bytes, bucket_bytes, .. } = *self;
        Sizes { small_bytes_max, piece_bytes, bucket_bytes }
    }

    fn collective(&self, me: u64, length: usize) -> Collective {
        let shadows = (0..self.shadows).map(|i| 100 + i).collect();
        let state = self.state.min(length);
        let plan = CollectivePlan::with_groups(
            self.virtual_nodes,
            self.members(),
            shadows,
            me,
            Lengths { parameters: length - state, state },
            (self.groups(), self.sizes()),
        );
        Collective::new(plan.unwrap().with_bfloat16(self.halves.min(length)))
    }

    fn meshes(&self) -> Vec<(u64, Mesh)> {
        let ids = self.ids();
        let mut meshes: Vec<(u64, Mesh)> = ids.iter().map(|id| (*id, Mesh::new())).collect();
        if self.lends {
            for (_, mesh) in &mut meshes {
                mesh.share(Arena::create(self.length, 16).unwrap());
            }
        }
        let (groups, members) = (self.groups(), self.workers as usize);
        for a in 0..ids.len() {
            let linked = |b: &usize| match a.checked_sub(members) {
                Some(shadow) => *b < members && groups.serves(*b, shadow),
                None => groups.linked(a, *b),
            };
            for b in (0..a).filter(linked) {
                let (left, right) = match self.lanes.between(ids[a], ids[b]) {
                    true => Stream::pair_with_lane(self.buffer_bytes.clamp(4096, 256 * 1024)),
                    false => socket_pair(self.buffer_bytes),
                };
                meshes[a].1.insert(ids[b], left).unwrap();
                meshes[b].1.insert(ids[a], right).unwrap();
            }
        }
        meshes
    }
}

fn socket_pair(buffer_bytes: usize) -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let left = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (right, _) = listener.accept().unwrap();
    if buffer_bytes > 0 {
        for stream in [&left, &right] {
            SockRef::from(stream).set_send_buffer_size(buffer_bytes).unwrap();
            SockRef::from(stream).set_recv_buffer_size(buffer_bytes).unwrap();
        }
    }
    left.set_nodelay(true).unwrap();
    right.set_nodelay(true).unwrap();
    (Stream::unprotected(left), Stream::unprotected(right))
}

fn stamp(step: u64) -> Stamp {
    Stamp { job: JOB, epoch: 3, step }
}

fn leaf_value(step: u64, leaf: u32, index: usize) -> f32 {
    let x = bellwether_core::mix::mix((step << 48) ^ (u64::from(leaf) << 32) ^ index as u64);
    // Exponents far apart, so that another order of additions shows.
    ((x as u32) as f32 / 4e9 - 0.5) * 2f32.powi((x >> 40) as i32 % 24)
}

/// The sum as it is defined, without a worker.
fn by_definition(case: &Case, step: u64) -> Vec<f32> {
    let leaf = |leaf| (0..case.length).map(|index| leaf_value(step, leaf, index)).collect();
    let leaves: Vec<Vec<f32>> = (0..case.virtual_nodes).map(leaf).collect();
    sum_by_definition(&leaves, case.halves)
}

fn accumulate_in(arena: Option<&Arena>, case: &Case, step: u64, range: std::ops::Range<u32>) -> Accumulator {
    let mut accumulator = Accumulator::new(case.virtual_nodes, range.clone(), case.length);
    accumulator.round_leading(case.halves);
    if let Some(arena) = arena {
        accumulator.share(arena.clone());
    }
    for leaf in range {
        for (index, value) in accumulator.leaf().iter_mut().enumerate() {
            *value = leaf_value(step, leaf, index);
        }
        accumulator.push();
    }
    accumulator
}

fn control_of(worker: u64, step: u64) -> Vec<u8> {
    let length = match (worker + step) % 4 {
        0 => 0,
        1 => 7,
        2 => 5000,
        _ => CONTROL_BYTES_MAX,
    };
    vec![worker as u8 ^ step as u8; length]
}

fn pause(case: &Case, worker: u64, step: u64) {
    if case.delays != 0 {
        let x = (case.delays ^ (worker << 7) ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        std::thread::sleep(Duration::from_micros(x % 4000));
    }
}

/// Runs `body` and fails if it is not over in time.
fn with_watchdog<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        let _ = sender.send(());
        result
    });
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a collective hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Two steps with an exchange of control bytes between, on all workers; checks everything, and returns what each moved
/// in the second.
fn check(case: &Case) -> BTreeMap<u64, Vec<Traffic>> {
    let case = case.clone();
    with_watchdog(move || {
        let expected: Vec<Vec<f32>> = (0..2).map(|step| by_definition(&case, step)).collect();
        let traffic: BTreeMap<u64, Vec<Traffic>> = std::thread::scope(|scope| {
            let start = |(me, mesh)| {
                let (case, expected) = (&case, &expected);
                (me, scope.spawn(move || work(case, me, mesh, expected)))
            };
            let threads: Vec<_> = case.meshes().into_iter().map(start).collect();
            threads.into_iter().map(|(me, thread)| (me, thread.join().unwrap())).collect()
        });
        for (me, peers) in &traffic {
            for to in peers {
                let back =
                    traffic[&to.peer].iter().find(|back| back.peer == *me).map_or(0, |b| b.received_bytes);
                assert_eq!(to.sent_bytes, back, "what {me} sent to {} is what came, {case:?}", to.peer);
                assert!(to.sent_s >= 0.0 && to.sent_s < 60.0 && to.received_s < 60.0);
            }
        }
        traffic
    })
}

/// What comes after a collective may write where the sums were.
fn overwrite(mut sums: Accumulator) {
    sums.reset();
    while !sums.is_complete() {
        sums.leaf().fill(f32::NAN);
        sums.push();
    }
}

/// As `Collective::run`, while this thread hands over bucket after bucket.
fn run_fed(
    case: &Case,
    collective: &mut Collective,
    mesh: &mut Mesh,
    (stamp, control): (Stamp, &[u8]),
    partials: &[&[f32]],
    out: &mut [f32],
) -> Result<Outcome, CollectiveError> {
    let (wakes, (_waker, wake)) = (wake_pair().unwrap(), wake_pair().unwrap());
    let arena = mesh.arena.clone();
    let offsets = arena.and_then(|arena| partials.iter().map(|sum| arena.offset_of(sum)).collect());
    let (feeder, feed) = feed(&wakes, offsets);
    let (buckets, me) = (collective.plan().cut.buckets.clone(), collective.plan().worker());
    std::thread::scope(|scope| {
        let exchange = scope.spawn(|| collective.run_fed(mesh, stamp, feed, out, &wake));
        for (index, bucket) in buckets.into_iter().enumerate() {
            pause(case, me, index as u64);
            feeder.bucket(partials.iter().map(|sum| &sum[bucket.clone()]).collect());
        }
        feeder.control(control.to_vec());
        exchange.join().unwrap()
    })
}

/// Returns what the last step moved.
fn work(case: &Case, me: u64, mut mesh: Mesh, expected: &[Vec<f32>]) -> Vec<Traffic> {
    let (_waker, wake) = wake_pair().unwrap();
    let mut collective = case.collective(me, case.length);
    let mut boundary = case.collective(me, 0);
    let range = collective.plan().rank().map(|rank| collective.plan().members()[rank].nodes.clone());
    let arena = mesh.arena.clone();
    let mut out = arena.as_ref().map_or_else(|| Vector::private(case.length), Arena::vector);
    out.fill(f32::NAN);
    let mut traffic = Vec::new();
    for step in 0..2 {
        pause(case, me, step);
        let control = control_of(me, step);
        let outcome = match &range {
            Some(range) => {
                let sums = accumulate_in(arena.as_ref(), case, step, range.clone());
                let (partials, stamp) = (sums.partials(), stamp(step));
                let outcome = match case.fed && !(me + step).is_multiple_of(3) && case.length > 0 {
                    true => run_fed(case, &mut collective, &mut mesh, (stamp, &control), &partials, &mut out),
                    false => collective.run(&mut mesh, stamp, &control, &partials, &mut out, &wake),
                };
                overwrite(sums);
                outcome
            }
            None => collective.receive(&mut mesh, stamp(step), &mut out, &wake),
        };
        let outcome = outcome.unwrap();
        let wrong = out.iter().zip(&expected[step as usize]).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(wrong, None, "worker {me} step {step} of {case:?}");
        let headers: Vec<Vec<u8>> = (0..u64::from(case.workers)).map(|i| control_of(10 + i, step)).collect();
        assert!(outcome.headers == headers && outcome.dead_shadows.is_empty(), "worker {me} of {case:?}");
        traffic = outcome.traffic;
        let outcome = match range {
            Some(_) => boundary.run(&mut mesh, stamp(step), &control, &[], &mut [], &wake),
            None => boundary.receive(&mut mesh, stamp(step), &mut [], &wake),
        };
        assert!(outcome.unwrap().headers == headers);
    }
    traffic
}

#[test]
fn all_memberships_of_few_virtual_nodes_give_the_canonical_bits() {
    for virtual_nodes in 1..=8 {
        for workers in 1..=virtual_nodes.min(5) {
            for (length, small_bytes_max) in [(0, 0), (1, 1024), (3, 0), (17, 0), (1000, 0), (1000, 1 << 20)]
            {
                let mut case = Case::new(virtual_nodes, workers, length);
                case.small_bytes_max = small_bytes_max;
                case.piece_bytes = 256;
                case.shadows = u64::from(virtual_nodes % 2);
                case.lanes = [Lanes::None, Lanes::All, Lanes::Some(3)][(workers % 3) as usize];
                case.lends = length % 2 == 1;
                case.halves = [0, length / 2, length][(workers + virtual_nodes) as usize % 3];
                check(&case);
            }
        }
    }
}

#[test]
fn vectors_of_some_mebibytes_with_production_sizes() {
    for (virtual_nodes, workers, cuts) in
        [(4, 2, vec![]), (4, 4, vec![]), (6, 4, vec![]), (7, 3, vec![]), (6, 6, vec![3]), (8, 7, vec![2, 4])]
    {
        let mut case = Case::new(virtual_nodes, workers, 700_001);
        case.shadows = 1;
        case.cuts = cuts;
        check(&case);
        case.lanes = Lanes::All;
        check(&case);
        case.lends = true;
        case.halves = 600_000;
        check(&case);
        case.lanes = Lanes::None;
        check(&case);
        (case.fed, case.state, case.bucket_bytes) = (true, 100, 1 << 20);
        check(&case);
    }
}

#[test]
fn rounded_values_travel_in_half_the_bytes() {
    // Each of two workers sends its part of the other's segment, and the sums of its own: as many values as there are.
    // In one hop it sends the whole vector.
    for (length, small_bytes_max) in [(100_000, 0), (5000, 1 << 20)] {
        let mut case = Case { small_bytes_max, ..Case::new(2, 2, length) };
        let sent = |case: &Case| check(case)[&10][0].sent_bytes as usize;
        let whole = sent(&case);
        for halves in [length, length - 77, 77] {
            case.halves = halves;
            assert_eq!(whole - sent(&case), 2 * halves, "{case:?}");
        }
        case.lanes = Lanes::All;
        assert_eq!(whole - sent(&case), 2 * 77, "lanes carry the same bytes");
    }
    // What is lent is read where it lies, four bytes or not.
    let lent = Case { lanes: Lanes::All, lends: true, small_bytes_max: 0, ..Case::new(2, 2, 100_000) };
    let traffic = |case: &Case| check(case)[&10].iter().map(|to| to.sent_bytes).sum::<u64>();
    assert_eq!(traffic(&lent), traffic(&Case { halves: 100_000, ..lent.clone() }));
}

#[test]
fn tiny_socket_buffers_do_not_dead_lock() {
    for (virtual_nodes, workers, cuts) in [(4, 2, vec![]), (5, 5, vec![]), (9, 8, vec![2, 5])] {
        let mut case = Case::new(virtual_nodes, workers, 300_000);
        case.shadows = 1;
        case.cuts = cuts;
        // Less than a segment of the loopback device would only measure TCP's timers.
        case.buffer_bytes = 32 * 1024;
        case.piece_bytes = 16 * 1024;
        case.delays = 1;
        check(&case);
        (case.lanes, case.lends) = (Lanes::Some(1), true);
        check(&case);
        (case.lanes, case.lends, case.halves) = (Lanes::None, false, 299_000);
        check(&case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn any_membership_gives_the_canonical_bits(
        virtual_nodes in 1u32..=16,
        workers in 1u32..=16,
        length in prop_oneof![Just(0usize), Just(1), Just(3), Just(17), Just(1000), Just(100_000), 0usize..40_000],
        shadows in 0u64..3,
        small_bytes_max in prop_oneof![Just(0usize), Just(32 * 1024)],
        piece_bytes in prop_oneof![Just(64usize), Just(4096), Just(128 * 1024)],
        buffer_bytes in prop_oneof![Just(0usize), Just(32 * 1024)],
        delays in 0u64..1000,
        cuts in prop::collection::vec(1usize..16, 0..5),
        lanes in prop_oneof![Just(Lanes::None), Just(Lanes::All), (0u64..1000).prop_map(Lanes::Some)],
        lends in any::<bool>(),
        bucket_bytes in prop_oneof![Just(64usize), Just(16 * 1024), Just(1 << 20)],
        state in prop_oneof![Just(0usize), 0usize..200],
        fed in any::<bool>(),
        halves in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
    ) {
        let workers = workers.min(virtual_nodes);
        let piece_bytes = if length > 10_000 { piece_bytes.max(4096) } else { piece_bytes };
        let sizes = Case { shadows, small_bytes_max, piece_bytes, buffer_bytes, ..Case::new(virtual_nodes, workers, length) };
        let bucket_bytes = if length > 10_000 { bucket_bytes.max(4096) } else { bucket_bytes };
        let halves = (halves * length as f64) as usize;
        check(&Case { delays, lanes, lends, cuts, bucket_bytes, state, fed, halves, ..sizes });
    }
}

/// Runs one member of `case` on its own mesh until its collective ends.
fn one_member(
    case: &Case,
    me: u64,
    mesh: &mut Mesh,
    wake: &WakeReceiver,
    out: &mut [f32],
) -> Result<Outcome, CollectiveError> {
    let mut collective = case.collective(me, case.length);
    let range = collective.plan().members()[collective.plan().rank().unwrap()].nodes.clone();
    let arena = mesh.arena.clone();
    let sums = accumulate_in(arena.as_ref(), case, 0, range);
    let mut lent = arena.as_ref().map_or_else(|| Vector::private(case.length), Arena::vector);
    lent.copy_from_slice(out);
    let outcome = collective.run(mesh, stamp(0), b"control", &sums.partials(), &mut lent, wake);
    overwrite(sums);
    out.copy_from_slice(&lent);
    outcome
}

#[test]
fn a_member_that_dies_is_named_by_every_other() {
    for (length, lanes) in
        [(10, Lanes::None), (10, Lanes::All), (2_000_000, Lanes::None), (2_000_000, Lanes::All)]
    {
        with_watchdog(move || {
            let case = Case { lanes, lends: lanes == Lanes::All, ..Case::new(4, 4, length) };
            let mut meshes = case.meshes();
            let (_, victim) = meshes.remove(2);
            std::thread::scope(|scope| {
                for (me, mut mesh) in meshes {
                    let case = &case;
                    scope.spawn(move || {
                        let (_waker, wake) = wake_pair().unwrap();
                        let error = one_member(case, me, &mut mesh, &wake, &mut vec![0.0; length]);
                        match error.unwrap_err() {
                            CollectiveError::PeerLost { worker, .. } => assert_eq!(worker, 12),
                            other => panic!("{other:?}"),
                        }
                        // As the runtime does, keep the mesh until all know.
                        std::thread::sleep(Duration::from_millis(500));
                    });
                }
                std::thread::sleep(Duration::from_millis(100));
                drop(victim);
            });
        });
    }
}

#[test]
fn a_member_of_a_group_that_dies_is_named_by_its_peers_alone() {
    for length in [10, 2_000_000] {
        with_watchdog(move || {
            let mut case = Case::new(9, 9, length);
            case.cuts = vec![3, 6];
            let groups = case.groups();
            let mut meshes = case.meshes();
            let (_, victim) = meshes.remove(4);
            std::thread::scope(|scope| {
                for (me, mut mesh) in meshes {
                    let (case, groups) = (&case, &groups);
                    scope.spawn(move || {
                        let (waker, wake) = wake_pair().unwrap();
                        scope.spawn(move || {
                            std::thread::sleep(Duration::from_millis(600));
                            waker.wake();
                            std::thread::sleep(Duration::from_millis(600));
                        });
                        let mut out = vec![-7.0; length];
                        let error = one_member(case, me, &mut mesh, &wake, &mut out).unwrap_err();
                        match error {
                            CollectiveError::PeerLost { worker: 14, .. } => {
                                assert!(groups.linked(me as usize - 10, 4));
                            }
                            other => {
                                assert_eq!(other, CollectiveError::Interrupted);
                                assert!(!groups.linked(me as usize - 10, 4));
                            }
                        }
                        assert!(out.iter().all(|v| *v == -7.0), "an old result was overwritten early");
                        std::thread::sleep(Duration::from_millis(900));
                    });
                }
                std::thread::sleep(Duration::from_millis(100));
                drop(victim);
            });
        });
    }
}

#[test]
fn a_member_that_dies_in_mid_stream_never_leaves_others_hanging() {
    for lanes in [Lanes::None, Lanes::All] {
        is_interrupted_in_mid_stream(Case {
            lanes,
            lends: lanes == Lanes::All,
            ..Case::new(4, 4, 4_000_000)
        });
    }
}

fn is_interrupted_in_mid_stream(case: Case) {
    with_watchdog(move || {
        std::thread::scope(|scope| {
            for (me, mut mesh) in case.meshes() {
                let case = &case;
                scope.spawn(move || {
                    let (waker, wake) = wake_pair().unwrap();
                    if me == 11 {
                        std::thread::spawn(move || {
                            std::thread::sleep(Duration::from_millis(60));
                            waker.wake();
                        });
                    } else {
                        std::mem::forget(waker);
                    }
                    let result = one_member(case, me, &mut mesh, &wake, &mut vec![0.0; case.length]);
                    // With luck the collective was over before the interruption; both are fine.
                    assert!(me != 11 || result.is_ok() || result == Err(CollectiveError::Interrupted));
                });
            }
        });
    });
}

#[test]
fn a_waker_interrupts_and_nothing_was_written_before_all_contributed() {
    let cases = [
        (5, 3, vec![], Lanes::None),
        (5, 3, vec![], Lanes::All),
        (1_000_000, 3, vec![], Lanes::Some(4)),
        (5, 7, vec![2, 4], Lanes::None),
        (1_000_000, 7, vec![2, 4], Lanes::All),
    ];
    for (length, workers, cuts, lanes) in cases {
        with_watchdog(move || {
            let mut case = Case { lanes, lends: lanes != Lanes::None, ..Case::new(8, workers, length) };
            case.cuts = cuts;
            let mut meshes = case.meshes();
            // It never takes part.
            let (_, idle) = meshes.remove(1);
            std::thread::scope(|scope| {
                for (me, mut mesh) in meshes {
                    let case = &case;
                    scope.spawn(move || {
                        let (waker, wake) = wake_pair().unwrap();
                        let mut out = vec![-7.0; length];
                        let begin = Instant::now();
                        scope.spawn(move || {
                            std::thread::sleep(Duration::from_millis(300));
                            waker.wake();
                            std::thread::sleep(Duration::from_millis(300));
                        });
                        let error = one_member(case, me, &mut mesh, &wake, &mut out);
                        // A peer that was woken a moment earlier has taken back what it lent.
                        let revoked = matches!(&error, Err(CollectiveError::PeerLost { why, .. })
                            if case.lends && why.contains("revoked"));
                        assert!(revoked || error == Err(CollectiveError::Interrupted), "{error:?}");
                        assert!(begin.elapsed() >= Duration::from_millis(299));
                        assert!(out.iter().all(|v| *v == -7.0), "an old result was overwritten early");
                        assert!(revoked || wake.drain() && !wake.drain());
                        std::thread::sleep(Duration::from_millis(300));
                    });
                }
            });
            drop(idle);
        });
    }
}

/// All members of `case` run; worker 100, its shadow, does what `shadow` does with its mesh.
fn check_with_shadow(case: Case, shadow: impl FnOnce(Mesh) + Send + 'static) {
    with_watchdog(move || {
        let expected = by_definition(&case, 0);
        let mut meshes = case.meshes();
        let (_, of_shadow) = meshes.pop().unwrap();
        std::thread::scope(|scope| {
            for (me, mut mesh) in meshes {
                let (case, expected) = (&case, &expected);
                scope.spawn(move || {
                    let (_waker, wake) = wake_pair().unwrap();
                    let mut collective = case.collective(me, case.length);
                    collective.set_shadow_patience(Duration::from_millis(200));
                    let range = collective.plan().members()[collective.plan().rank().unwrap()].nodes.clone();
                    let mut out = vec![0.0; case.length];
                    let mut dead = Vec::new();
                    // In groups one member alone has something small to say to it.
                    let alone = !case.cuts.is_empty() && case.length < 1000;
                    let hears = case.lanes == Lanes::All;
                    let serves = mesh.get(100).is_some() && (me == 10 || !alone || hears);
                    // A small vector may still fit the buffers of a dead connection once or twice.
                    for _ in 0..4 {
                        let sums = accumulate_in(None, case, 0, range.clone());
                        let outcome =
                            collective.run(&mut mesh, stamp(0), b"", &sums.partials(), &mut out, &wake);
                        dead.extend(outcome.unwrap().dead_shadows);
                        assert!(out.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()));
                        if !dead.is_empty() {
                            mesh.remove(100);
                        }
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    assert_eq!(dead.first(), serves.then_some(&100));
                });
            }
            scope.spawn(move || shadow(of_shadow));
        });
    });
}

#[test]
fn a_shadow_that_dies_costs_the_members_nothing() {
    let cases = [
        (10, vec![], Lanes::None),
        (10, vec![], Lanes::All),
        (3_000_000, vec![], Lanes::All),
        (10, vec![2, 4], Lanes::All),
        (3_000_000, vec![2, 4], Lanes::None),
    ];
    for (length, cuts, lanes) in cases {
        let mut case = Case { lanes, ..Case::new(8, 3 + 2 * cuts.len() as u32, length) };
        (case.shadows, case.cuts) = (1, cuts);
        check_with_shadow(case, |mesh| {
            std::thread::sleep(Duration::from_millis(20));
            drop(mesh);
        });
    }
}

#[test]
fn a_shadow_that_does_not_read_is_given_up() {
    for lanes in [Lanes::None, Lanes::All] {
        let mut case = Case { lanes, ..Case::new(4, 3, 4_000_000) };
        case.shadows = 1;
        case.buffer_bytes = 64 * 1024;
        check_with_shadow(case, |mesh| {
            std::thread::sleep(Duration::from_secs(3));
            drop(mesh);
        });
    }
}

#[test]
fn a_shadow_that_talks_is_given_up() {
    let mut case = Case::new(4, 2, 3_000_000);
    case.shadows = 1;
    check_with_shadow(case, |mesh| {
        for worker in [10, 11] {
            mesh.get(worker).unwrap().write_all(b"let me in").unwrap();
        }
        std::thread::sleep(Duration::from_secs(1));
    });
}

/// What member 10 says when the authenticated peer 11 sends `bytes`.
fn answer_to(case: Case, bytes: Vec<u8>) -> String {
    with_watchdog(move || {
        let mut meshes = case.meshes();
        let (_, peer) = meshes.pop().unwrap();
        let (me, mut mesh) = meshes.pop().unwrap();
        peer.get(10).unwrap().write_all(&bytes).unwrap();
        let (_waker, wake) = wake_pair().unwrap();
        match one_member(&case, me, &mut mesh, &wake, &mut vec![0.0; case.length]) {
            Err(CollectiveError::PeerLost { worker: 11, why }) => why,
            other => panic!("{other:?}"),
        }
    })
}

fn frame(kind: FrameKind, length_bytes: u32, index: u32, stamp: Stamp) -> [u8; FRAME_HEADER_BYTES] {
    FrameHeader { kind, length_bytes, index, stamp }.encode()
}

#[test]
fn frames_that_are_not_due_are_refused() {
    let control = frame(FrameKind::Control, 0, 0, stamp(0));
    let after_control = |second: [u8; FRAME_HEADER_BYTES]| [control, second].concat();
    for (length, due) in [(10, 4 * 10), (1_000_000, 128 * 1024)] {
        let answer = |bytes: Vec<u8>| answer_to(Case::new(2, 2, length), bytes);
        let old = frame(FrameKind::Control, 0, 0, Stamp { epoch: 2, ..stamp(0) });
        assert_eq!(answer(old.to_vec()), "frame of membership epoch 2, this is epoch 3");
        assert_eq!(
            answer(frame(FrameKind::Control, 0, 0, stamp(1)).to_vec()),
            "frame of step 1, this is step 0"
        );
        if length == 10 {
            // A bucket of a longer vector may come before the control bytes.
            let early = frame(FrameKind::Contribution, due, 0, stamp(0));
            assert_eq!(answer(early.to_vec()), "frame Contribution 0 out of turn");
        }
        let long = frame(FrameKind::Contribution, u32::MAX, 0, stamp(0));
        assert_eq!(answer(after_control(long)), format!("frame of {} bytes where {due} are due", u32::MAX));
        let later = frame(FrameKind::Contribution, due, 1, stamp(0));
        assert_eq!(answer(after_control(later)), "frame Contribution 1 out of turn");
        assert_eq!(answer(after_control(control)), "frame Control 0 out of turn");
        let long = frame(FrameKind::Control, u32::MAX, 0, stamp(0)).to_vec();
        assert_eq!(answer(long), format!("frame of {} bytes where 65536 are due", u32::MAX));
        assert!(answer(vec![0xA5; 100]).starts_with("bad frame magic"));
    }
    let result = frame(FrameKind::Result, 40, 0, stamp(0));
    assert_eq!(answer_to(Case::new(2, 2, 10), after_control(result)), "frame Result 0 out of turn");
}

#[test]
fn control_bytes_of_a_group_are_those_of_its_members() {
    let mut case = Case::new(2, 2, 10);
    // Each is a group, with the other in its column.
    case.cuts = vec![1];
    let answer = |payload: &[u8]| {
        let header = frame(FrameKind::Control, payload.len() as u32, 0, stamp(0));
        answer_to(case.clone(), [&header[..], payload].concat())
    };
    let wrong = "a frame that is not the control bytes of 1 members";
    for payload in [&[][..], &[1, 0, 0], &[1, 0, 0, 0], &[0, 0, 0, 0, 0], &[255; 4], &[0, 0, 1, 0, 7]] {
        assert_eq!(answer(payload), wrong, "{payload:?}");
    }
    let long = frame(FrameKind::Control, u32::MAX, 0, stamp(0)).to_vec();
    assert_eq!(answer_to(case.clone(), long), format!("frame of {} bytes where 65540 are due", u32::MAX));
}

#[test]
fn many_members_in_threads() {
    for length in [0, 100, 60_000] {
        let mut case = Case::new(70, 64, length);
        (case.cuts, case.shadows) = ((1..8).map(|group| 8 * group).collect(), 2);
        check(&case);
    }
}

#[test]
fn a_missing_connection_is_a_lost_peer() {
    let case = Case::new(2, 2, 10);
    let (_waker, wake) = wake_pair().unwrap();
    let error = one_member(&case, 10, &mut Mesh::new(), &wake, &mut [0.0; 10]).unwrap_err();
    assert!(matches!(error, CollectiveError::PeerLost { worker: 11, .. }));
}
