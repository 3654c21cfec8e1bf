//! The two phases of a step whose optimizer is sharded: who gets which sums, and that everyone then gets all values.

use bellwether_core::mix::mix;
use bellwether_core::record::LinkKind;

use super::*;
use crate::collective::plan::Phase;

/// Bits of a value that was not written.
const UNTOUCHED: u32 = 0x7fc0_dead;

/// A membership, and what decides who holds which part of the vector.
#[derive(Debug, Clone)]
struct Shards {
    case: Case,
    /// Workers that hold a part, if there are as many.
    copies: usize,
    /// Values of a part, at most.
    part: usize,
    seed: u64,
}

impl Shards {
    fn lengths(&self) -> Lengths {
        let state = self.case.state.min(self.case.length);
        Lengths { parameters: self.case.length - state, state }
    }

    /// Parts of any length, and holders by chance.
    fn held(&self) -> Vec<Held> {
        let (parameters, mut held) = (self.lengths().parameters, Vec::new());
        let mut start = 0;
        while start < parameters {
            let draw = |what: u64| mix(self.seed ^ ((held.len() as u64) << 20) ^ what);
            let units = 1 + draw(1 << 40) as usize % self.part.div_ceil(16);
            let end = parameters.min(start + 16 * units);
            let mut ranks: Vec<usize> = (0..self.case.workers as usize).collect();
            ranks.sort_by_key(|rank| draw(*rank as u64));
            ranks.truncate(self.copies);
            held.push(Held { values: start..end, ranks });
            start = end;
        }
        held
    }

    fn collective(&self, phase: Phase, me: u64) -> Collective {
        let Case { virtual_nodes, halves, length, .. } = self.case;
        let (members, lengths, held) = (self.case.members(), self.lengths(), self.held());
        let shadows =
            if phase == Phase::Gather { self.case.ids()[members.len()..].to_vec() } else { Vec::new() };
        let usual = Case::new(1, 1, 0);
        let plan = if (self.case.piece_bytes, self.case.bucket_bytes)
            == (usual.piece_bytes, usual.bucket_bytes)
        {
            match phase {
                Phase::Gather => CollectivePlan::gather(virtual_nodes, members, shadows, me, lengths, &held),
                _ => CollectivePlan::scatter(virtual_nodes, members, me, lengths, &held),
            }
        } else {
            let shape = (self.case.groups(), self.case.sizes());
            let plan = CollectivePlan::with_groups(virtual_nodes, members, shadows, me, lengths, shape);
            plan.unwrap().in_phase(phase, (lengths, self.case.sizes()), &held)
        };
        Collective::new(plan.unwrap().with_bfloat16(halves.min(length)))
    }

    /// Where a member has the sum; its part of the state is what the plan says.
    fn holds(&self, rank: usize, plan: &CollectivePlan) -> Vec<bool> {
        let mut holds = vec![false; self.case.length];
        let held = self.held().into_iter().filter(|part| part.ranks.contains(&rank)).map(|part| part.values);
        let parameters = self.lengths().parameters;
        let state = plan.own_pieces().filter(|piece| piece.start >= parameters);
        held.chain(state).for_each(|values| holds[values].fill(true));
        holds
    }
}

fn untouched(mesh: &Mesh, length: usize) -> Vector {
    let mut vector = mesh.arena.as_ref().map_or_else(|| Vector::private(length), Arena::vector);
    vector.fill(f32::from_bits(UNTOUCHED));
    vector
}

/// What an owner makes of a sum: any bits.
fn changed(sum: f32) -> f32 {
    f32::from_bits(sum.to_bits().rotate_left(5) ^ 0x0F1E_2D3C)
}

/// Contributes to the sums of a step, and checks those that this worker holds.
fn scatter(
    shards: &Shards,
    step: u64,
    (collective, mesh): (&mut Collective, &mut Mesh),
    expected: &[f32],
) -> (Vector, Outcome) {
    let (case, me) = (&shards.case, collective.plan().worker());
    let (_waker, wake) = wake_pair().unwrap();
    let rank = collective.plan().rank().unwrap();
    let nodes = collective.plan().members()[rank].nodes.clone();
    let sums = accumulate_in(mesh.arena.clone().as_ref(), case, step, nodes);
    let (mut out, control, partials) = (untouched(mesh, case.length), control_of(me, step), sums.partials());
    let outcome = match case.fed && !(me + step).is_multiple_of(3) {
        true => run_fed(case, collective, mesh, (stamp(step), &control), &partials, &mut out),
        false => collective.run(mesh, stamp(step), &control, &partials, &mut out, &wake),
    };
    let outcome = outcome.unwrap();
    drop(partials);
    overwrite(sums);
    let holds = shards.holds(rank, collective.plan());
    for (index, (value, holds)) in out.iter().zip(holds).enumerate() {
        let right = if holds { expected[index].to_bits() } else { UNTOUCHED };
        assert_eq!(value.to_bits(), right, "value {index} at {me}, which holds it: {holds}, {shards:?}");
    }
    (out, outcome)
}

/// Returns what the last step moved in both phases.
fn work(shards: &Shards, me: u64, mut mesh: Mesh, expected: &[Vec<f32>]) -> [Vec<Traffic>; 2] {
    let case = &shards.case;
    let (_waker, wake) = wake_pair().unwrap();
    let mut gather = shards.collective(Phase::Gather, me);
    let mut scattering = gather.plan().rank().map(|_| shards.collective(Phase::Scatter, me));
    let mut traffic = [Vec::new(), Vec::new()];
    for (step, expected) in (0..).zip(expected) {
        pause(case, me, step);
        let headers: Vec<Vec<u8>> = (0..u64::from(case.workers)).map(|i| control_of(10 + i, step)).collect();
        let mut new = untouched(&mesh, case.length);
        let outcome = match &mut scattering {
            Some(collective) => {
                let (sum, outcome) = scatter(shards, step, (collective, &mut mesh), expected);
                assert!(outcome.headers == headers, "worker {me} of {shards:?}");
                traffic[0] = outcome.traffic;
                for index in gather.plan().own_pieces().flatten() {
                    new[index] = changed(sum[index]);
                }
                gather.share(&mut mesh, stamp(step), &control_of(me, step), &mut new, &wake)
            }
            None => gather.receive(&mut mesh, stamp(step), &mut new, &wake),
        };
        let outcome = outcome.unwrap();
        let wrong = new.iter().zip(expected).position(|(a, b)| a.to_bits() != changed(*b).to_bits());
        assert_eq!(wrong, None, "worker {me} step {step} of {shards:?}");
        assert!(outcome.headers == headers && outcome.dead_shadows.is_empty(), "worker {me} of {shards:?}");
        traffic[1] = outcome.traffic;
    }
    traffic
}

/// Three steps of both phases on all workers; what each moved in the last.
fn check(shards: &Shards) -> BTreeMap<u64, [Vec<Traffic>; 2]> {
    let shards = shards.clone();
    with_watchdog(move || {
        let expected: Vec<Vec<f32>> = (0..3).map(|step| by_definition(&shards.case, step)).collect();
        let traffic: BTreeMap<u64, [Vec<Traffic>; 2]> = std::thread::scope(|scope| {
            let start = |(me, mesh)| {
                let (shards, expected) = (&shards, &expected);
                (me, scope.spawn(move || work(shards, me, mesh, expected)))
            };
            let threads: Vec<_> = shards.case.meshes().into_iter().map(start).collect();
            threads.into_iter().map(|(me, thread)| (me, thread.join().unwrap())).collect()
        });
        for (me, phases) in &traffic {
            for (phase, to) in
                phases.iter().enumerate().flat_map(|(phase, to)| to.iter().map(move |to| (phase, to)))
            {
                let back = traffic[&to.peer][phase].iter().find(|back| back.peer == *me);
                let back = back.map_or(0, |back| back.received_bytes);
                assert_eq!(to.sent_bytes, back, "from {me} to {}, {shards:?}", to.peer);
            }
        }
        traffic
    })
}

#[test]
fn all_memberships_of_few_virtual_nodes_scatter_and_gather() {
    for virtual_nodes in 1..=7 {
        for workers in 1..=virtual_nodes.min(5) {
            for (length, state) in [(0, 0), (1, 0), (17, 17), (40, 3), (1000, 100)] {
                let mut case = Case { piece_bytes: 128, state, ..Case::new(virtual_nodes, workers, length) };
                case.bucket_bytes = [64, 2048][(workers % 2) as usize];
                case.shadows = u64::from(virtual_nodes % 3);
                case.lanes = [Lanes::None, Lanes::All, Lanes::Some(3)][(workers % 3) as usize];
                case.lends = virtual_nodes % 2 == 1;
                case.fed = length % 2 == 0;
                case.halves = [0, length / 2, length][(workers + virtual_nodes) as usize % 3];
                let copies = 1 + (virtual_nodes as usize + length) % 3;
                check(&Shards { case, copies, part: 100, seed: u64::from(virtual_nodes) });
            }
        }
    }
}

#[test]
fn parts_of_a_mebibyte_with_production_sizes() {
    for (virtual_nodes, workers) in [(4, 2), (7, 3), (3, 1), (18, 18)] {
        let mut case =
            Case { shadows: 1, state: 100, fed: true, ..Case::new(virtual_nodes, workers, 600_001) };
        case.halves = 500_000;
        check(&Shards { case: case.clone(), copies: 2, part: 100_000, seed: 5 });
        (case.lanes, case.lends, case.fed) = (Lanes::All, true, false);
        check(&Shards { case, copies: 2, part: 1 << 18, seed: 6 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn any_membership_scatters_and_gathers(
        virtual_nodes in 1u32..=12,
        workers in 1u32..=12,
        length in prop_oneof![Just(0usize), Just(1), Just(17), Just(1000), Just(100_000), 0usize..40_000],
        (shadows, copies, seed) in (0u64..3, 1usize..=3, any::<u64>()),
        part in prop_oneof![Just(16usize), 16usize..3000, Just(60_000)],
        piece_bytes in prop_oneof![Just(64usize), Just(4096), Just(128 * 1024)],
        buffer_bytes in prop_oneof![Just(0usize), Just(32 * 1024)],
        delays in 0u64..1000,
        lanes in prop_oneof![Just(Lanes::None), Just(Lanes::All), (0u64..1000).prop_map(Lanes::Some)],
        (lends, fed) in any::<(bool, bool)>(),
        bucket_bytes in prop_oneof![Just(64usize), Just(16 * 1024), Just(1 << 20)],
        state in prop_oneof![Just(0usize), 0usize..200],
        halves in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
    ) {
        let least = |size: usize| if length > 10_000 { size.max(4096) } else { size };
        let (piece_bytes, bucket_bytes, part) = (least(piece_bytes), least(bucket_bytes), least(part));
        let halves = (halves * length as f64) as usize;
        let case = Case::new(virtual_nodes, workers.min(virtual_nodes), length);
        let case = Case { shadows, piece_bytes, buffer_bytes, bucket_bytes, state, halves, ..case };
        check(&Shards { case: Case { delays, lanes, lends, fed, ..case }, copies, part, seed });
    }
}

/// A sum travels to its owner from all others, and from there to every copy; new values to all others.
#[test]
fn what_is_sent_is_what_the_phases_need() {
    let (workers, values) = (4, 8000);
    for (copies, halves) in [(1, 0), (2, 0), (3, 0), (3, values)] {
        let case = Case { halves, shadows: 1, ..Case::new(workers, workers, values) };
        // In one bucket each part is one piece.
        let shards = Shards { case, copies, part: 500, seed: 9 };
        let (held, traffic) = (shards.held(), check(&shards));
        let frame = |values: usize, bytes: usize| FRAME_HEADER_BYTES + bytes * values;
        for (rank, (me, [scatter, gather])) in traffic.iter().enumerate().take(workers as usize) {
            let (others, control) = (workers as usize - 1, frame(control_of(*me, 2).len(), 1));
            let (mut summed, mut brought) = (others * control, (others + 1) * control);
            for Held { values, ranks } in &held {
                let of_sum = frame(values.len(), if halves > 0 { 2 } else { 4 });
                let owns = ranks[0] == rank;
                summed += if owns { (ranks.len() - 1) * of_sum } else { of_sum };
                brought += if owns { (others + 1) * frame(values.len(), 4) } else { 0 };
            }
            let sent = |traffic: &[Traffic]| traffic.iter().map(|to| to.sent_bytes as usize).sum::<usize>();
            assert_eq!((sent(scatter), sent(gather)), (summed, brought), "{me} with {copies} copies");
        }
    }
}

#[test]
fn both_phases_read_where_values_lie() {
    let case = Case { lanes: Lanes::All, lends: true, ..Case::new(3, 3, 100_000) };
    let shards = Shards { case, copies: 2, part: 10_000, seed: 2 };
    for (me, phases) in check(&shards) {
        for to in phases.iter().flatten() {
            let said = to.sent_bytes as usize - FRAME_HEADER_BYTES - control_of(me, 2).len();
            assert!(to.link == Some(LinkKind::Lent) && said < 3000, "{me} sent {said} bytes to {}", to.peer);
        }
    }
}

/// One phase at one member, whose vectors hold what `out` says.
fn one_phase(
    shards: &Shards,
    (phase, me): (Phase, u64),
    mesh: &mut Mesh,
    out: &mut [f32],
) -> Result<Outcome, CollectiveError> {
    let (_waker, wake) = wake_pair().unwrap();
    let mut collective = shards.collective(phase, me);
    if phase == Phase::Gather {
        return collective.share(mesh, stamp(0), b"control", out, &wake);
    }
    let nodes = collective.plan().members()[collective.plan().rank().unwrap()].nodes.clone();
    let sums = accumulate_in(None, &shards.case, 0, nodes);
    collective.run(mesh, stamp(0), b"control", &sums.partials(), out, &wake)
}

#[test]
fn a_member_that_dies_in_a_phase_is_named_by_every_other() {
    for (phase, lanes) in
        [Phase::Scatter, Phase::Gather].into_iter().flat_map(|p| [(p, Lanes::None), (p, Lanes::All)])
    {
        with_watchdog(move || {
            let case = Case { lanes, ..Case::new(4, 4, 100_000) };
            let shards = Shards { case, copies: 2, part: 5000, seed: 3 };
            let mut meshes = shards.case.meshes();
            let (_, victim) = meshes.remove(2);
            std::thread::scope(|scope| {
                for (me, mut mesh) in meshes {
                    let shards = &shards;
                    scope.spawn(move || {
                        let mut out = vec![-7.0; shards.case.length];
                        match one_phase(shards, (phase, me), &mut mesh, &mut out).unwrap_err() {
                            CollectiveError::PeerLost { worker, .. } => assert_eq!(worker, 12),
                            other => panic!("{other:?}"),
                        }
                        let kept = out.iter().all(|value| *value == -7.0);
                        assert!(kept || phase == Phase::Gather, "a sum was written before all contributed");
                        std::thread::sleep(Duration::from_millis(500));
                    });
                }
                std::thread::sleep(Duration::from_millis(100));
                drop(victim);
            });
        });
    }
}

/// What the first of two members says when the other sends `frames`, each a kind, an index and a payload.
fn answer(phase: Phase, frames: &[(FrameKind, u32, &[u8])]) -> String {
    let control = (FrameKind::Control, 0, &[][..]);
    let frames = [control].into_iter().chain(frames.iter().copied());
    let bytes: Vec<u8> = frames
        .flat_map(|(kind, index, payload)| {
            [&frame(kind, payload.len() as u32, index, stamp(0))[..], payload].concat()
        })
        .collect();
    with_watchdog(move || {
        let case = Case::new(2, 2, 48);
        let part = |values, ranks: &[usize]| Held { values, ranks: ranks.to_vec() };
        // The other one adds up two parts, of which the first has a copy of one.
        let held = [part(0..16, &[0]), part(16..32, &[1]), part(32..48, &[1, 0])];
        let mut meshes = case.meshes();
        let (_, peer) = meshes.pop().unwrap();
        let (me, mut mesh) = meshes.pop().unwrap();
        peer.get(10).unwrap().write_all(&bytes).unwrap();
        let (_waker, wake) = wake_pair().unwrap();
        let (mut out, partial) = ([0.0; 48], [1.0; 48]);
        let result = if phase == Phase::Gather {
            let plan = CollectivePlan::gather(2, case.members(), Vec::new(), me, 48, &held).unwrap();
            Collective::new(plan).share(&mut mesh, stamp(0), b"", &mut out, &wake)
        } else {
            let plan = CollectivePlan::scatter(2, case.members(), me, 48, &held).unwrap();
            Collective::new(plan).run(&mut mesh, stamp(0), b"", &[&partial], &mut out, &wake)
        };
        match result {
            Err(CollectiveError::PeerLost { worker: 11, why }) => why,
            Ok(_) => format!("{:?}", [out[0], out[16], out[32]]),
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn frames_that_are_not_due_in_a_phase_are_refused() {
    use FrameKind::{Contribution, Lent, Result, Returned};
    let ones: Vec<u8> = [1f32; 32].iter().flat_map(|value| value.to_le_bytes()).collect();
    let (one, two) = (&ones[..64], &ones[..]);
    let scatter = |frames: &[(FrameKind, u32, &[u8])]| answer(Phase::Scatter, frames);
    let gather = |frames: &[(FrameKind, u32, &[u8])]| answer(Phase::Gather, frames);
    assert_eq!(scatter(&[(Contribution, 0, one), (Result, 0, one)]), "[2.0, 0.0, 1.0]");
    assert_eq!(gather(&[(Result, 0, one), (Result, 1, one)]), "[0.0, 1.0, 1.0]");
    assert_eq!(scatter(&[(Result, 1, one)]), "frame Result 1 out of turn");
    assert_eq!(scatter(&[(Result, 0, one), (Result, 1, one)]), "frame Result 1 out of turn");
    assert_eq!(scatter(&[(Result, u32::MAX, one)]), format!("frame Result {} out of turn", u32::MAX));
    assert_eq!(scatter(&[(Result, 0, two)]), "frame of 128 bytes where 64 are due");
    assert_eq!(scatter(&[(Contribution, 1, one)]), "frame Contribution 1 out of turn");
    assert_eq!(scatter(&[(Lent, 0, &[0; 16])]), "frame of 16 bytes where 24 are due");
    assert_eq!(gather(&[(Contribution, 0, one)]), "frame Contribution 0 out of turn");
    assert_eq!(gather(&[(Result, 0, one), (Result, 1, two)]), "frame of 128 bytes where 64 are due");
    assert_eq!(gather(&[(Result, 0, one), (Result, 2, one)]), "frame Result 2 out of turn");
    assert_eq!(gather(&[(Lent, 0, &[0; 24])]), "frame of 24 bytes where 16 are due");
    assert_eq!(gather(&[(Returned, 0, &[])]), "frame Returned 0 out of turn");
    let lends = gather(&[(Lent, 0, &[0; 16]), (Result, 0, &[])]);
    assert_eq!(lends, "it lends memory that it has not passed on");
}

#[test]
fn what_was_not_lent_yet_cannot_be_returned() {
    with_watchdog(|| {
        let case = Case { lanes: Lanes::All, lends: true, ..Case::new(2, 2, 1000) };
        let shards = Shards { case, copies: 1, part: 16, seed: 1 };
        let mut meshes = shards.case.meshes();
        let (peer, mut theirs) = meshes.pop().unwrap();
        let (me, mut mesh) = meshes.pop().unwrap();
        let mut collective = shards.collective(Phase::Scatter, me);
        // They tell each other that they can read what is lent.
        let honest = |collective: &mut Collective, mesh: &mut Mesh| {
            for step in 0..2 {
                scatter(&shards, step, (collective, mesh), &by_definition(&shards.case, step));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| honest(&mut shards.collective(Phase::Scatter, peer), &mut theirs));
            honest(&mut collective, &mut mesh);
        });
        let said = [FrameKind::Control, FrameKind::Returned].map(|kind| frame(kind, 0, 0, stamp(2)));
        let (_, link) = theirs.links_mut().next().unwrap();
        link.write(&[std::io::IoSlice::new(&said.concat())]).unwrap();
        let (wakes, (_waker, wake)) = (wake_pair().unwrap(), wake_pair().unwrap());
        let (partial, mut out) = (untouched(&mesh, 1000), untouched(&mesh, 1000));
        // Nothing is ready so far.
        let (feeder, feed) =
            feed(&wakes, mesh.arena.as_ref().unwrap().offset_of(&partial).map(|at| vec![at]));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                drop(feeder);
            });
            match collective.run_fed(&mut mesh, stamp(2), feed, &mut out, &wake) {
                Err(CollectiveError::PeerLost { worker, why }) => {
                    assert_eq!((worker, why.as_str()), (peer, "frame Returned 0 out of turn"));
                }
                other => panic!("{other:?}"),
            }
        });
    });
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let members = Case::new(4, 2, 0).members();
    let lengths = Lengths { parameters: 40, state: 5 };
    let part = |values, ranks: &[usize]| Held { values, ranks: ranks.to_vec() };
    let plan = |held: &[Held]| CollectivePlan::scatter(4, members.clone(), 10, lengths, held).map(|_| ());
    assert_eq!(plan(&[part(0..32, &[1]), part(32..40, &[1, 0]), part(40..40, &[0])]), Ok(()));
    let refused = |held: &[Held], part: usize, expected_start| {
        assert_eq!(plan(held), Err(PlanError::Part { part, found: held[part].clone(), expected_start }));
    };
    for found in [part(1..40, &[0]), part(0..40, &[]), part(0..40, &[2]), part(0..40, &[1, 1])] {
        refused(&[found], 0, 0);
    }
    let backward = std::ops::Range { start: 32, end: 20 };
    refused(&[part(0..32, &[0]), part(backward, &[0])], 1, 32);
    refused(&[part(0..32, &[0]), part(31..40, &[0])], 1, 32);
    let parts = |covered| Err(PlanError::Parts { covered, parameters: 40 });
    assert_eq!((plan(&[part(0..45, &[0])]), plan(&[])), (parts(45), parts(0)));
    let none = CollectivePlan::gather(4, Vec::new(), vec![10], 10, lengths, &[]);
    assert!(matches!(none, Err(PlanError::Uncovered { .. })));
}

/// Over all members, and whatever the buckets.
#[test]
fn own_pieces_cover_the_vector_once_and_state_is_dealt_evenly() {
    for (workers, state, bucket_bytes) in [(1, 0, 64), (3, 100, 64), (5, 7, 4096), (4, 1000, 4096)] {
        let case = Case { state, bucket_bytes, piece_bytes: 128, ..Case::new(8, workers, 3000) };
        let shards = Shards { case, copies: 2, part: 200, seed: u64::from(workers) };
        let (held, parameters) = (shards.held(), shards.lengths().parameters);
        let mut seen = vec![0; 3000];
        for rank in 0..workers as usize {
            let collective = shards.collective(Phase::Scatter, 10 + rank as u64);
            let mut dealt = 0;
            for piece in collective.plan().own_pieces() {
                let inside = |part: &&Held| part.values.start <= piece.start && piece.end <= part.values.end;
                let part = held.iter().find(inside).map(|part| part.ranks[0]);
                assert!(piece.len() <= 32 && part == (piece.end <= parameters).then_some(rank));
                dealt += if part.is_none() { piece.len() } else { 0 };
                seen[piece].iter_mut().for_each(|times| *times += 1);
            }
            assert!(dealt.abs_diff(state / workers as usize) <= 16, "{dealt} of {state}");
        }
        assert!(seen.iter().all(|times| *times == 1));
    }
}

/// One of three members has parts that others, a newcomer among them, are to get.
#[test]
fn parts_are_delivered_to_those_for_whom_they_are() {
    for lends in [false, true] {
        with_watchdog(move || {
            let lanes = if lends { Lanes::All } else { Lanes::None };
            let case = Case { shadows: 1, lanes, lends, ..Case::new(4, 3, 100_000) };
            // Rank 3 is the newcomer. What is between the parts is for no one.
            let part = |values, ranks: &[usize]| Held { values, ranks: ranks.to_vec() };
            let parts = [
                part(16..1_000, &[1, 0]),
                part(2_000..60_000, &[0, 3, 2]),
                part(60_000..60_001, &[1, 3]),
                part(99_000..100_000, &[2, 1]),
            ];
            let own = |rank: usize, index: usize| (1 + rank) as f32 + index as f32 / 1e6;
            let run = |me: u64, mut mesh: Mesh| {
                let (members, shadows) = (case.members(), vec![100]);
                let plan = CollectivePlan::deliver(4, members, shadows, me, case.length, &parts).unwrap();
                let (rank, seat) = (plan.rank(), plan.rank().unwrap_or(3));
                let (mut collective, mut out) = (Collective::new(plan), untouched(&mesh, case.length));
                for part in parts.iter().filter(|part| part.ranks[0] == seat) {
                    part.values.clone().for_each(|index| out[index] = own(seat, index));
                }
                let (_waker, wake) = wake_pair().unwrap();
                let outcome = match rank {
                    Some(_) => collective.share(&mut mesh, stamp(0), &[], &mut out, &wake),
                    None => collective.receive(&mut mesh, stamp(0), &mut out, &wake),
                };
                for (index, value) in out.iter().enumerate() {
                    let part = parts.iter().find(|part| part.values.contains(&index));
                    let right =
                        part.filter(|part| part.ranks.contains(&seat)).map(|part| own(part.ranks[0], index));
                    assert_eq!(value.to_bits(), right.map_or(UNTOUCHED, f32::to_bits), "{index} at {seat}");
                }
                outcome.unwrap().traffic
            };
            let sent: Vec<u64> = std::thread::scope(|scope| {
                let meshes = case.meshes().into_iter();
                let threads: Vec<_> = meshes.map(|(me, mesh)| scope.spawn(move || run(me, mesh))).collect();
                let of = |traffic: Vec<Traffic>| traffic.iter().map(|to| to.sent_bytes).sum();
                threads.into_iter().map(|thread| of(thread.join().unwrap())).collect()
            });
            if !lends {
                let values = [2 * 58_000u64, 984 + 1, 1_000, 0];
                for (sent, values) in sent.iter().zip(values) {
                    assert!((4 * values..4 * values + 2_000).contains(sent), "{sent} for {values} values");
                }
            }
        });
    }
}
