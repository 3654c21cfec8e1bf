//! Vectors that peers of one machine read where they lie: what may go wrong with them.

use bellwether_memory::{Arena, View};

use super::*;

#[test]
fn a_peer_cannot_read_what_was_revoked_nor_beyond_what_it_was_lent() {
    with_watchdog(|| {
        let case = Case { lanes: Lanes::All, lends: true, ..Case::new(2, 2, 1_000_000) };
        let mut meshes = case.meshes();
        let (_, mut peer) = meshes.pop().unwrap();
        let (me, mut mesh) = meshes.pop().unwrap();
        // The peer says where its memory is, gives up, and writes there what it wants.
        let arena = peer.arena.clone().unwrap();
        let lent: Vec<u8> = [arena.generation(), 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        let control = frame(FrameKind::Control, 0, 0, stamp(0));
        let said = frame(FrameKind::Lent, 24, 0, stamp(0));
        let ready = frame(FrameKind::Contribution, 0, 0, stamp(0));
        let bytes = [&control[..], &said, &lent, &ready].concat();
        let (_, link) = peer.links_mut().next().unwrap();
        link.write(&[std::io::IoSlice::new(&bytes)]).unwrap();
        arena.revoke();
        let (_waker, wake) = wake_pair().unwrap();
        let mut out = vec![-7.0; case.length];
        match one_member(&case, me, &mut mesh, &wake, &mut out) {
            Err(CollectiveError::PeerLost { worker: 11, why }) => assert!(why.contains("revoked"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert!(out.iter().all(|value| *value == -7.0), "nothing of it was used");
    });
}

/// An arena of which this process cannot map a second view: it has more than half of the address space that is left.
fn arena_without_room_for_a_view() -> Arena {
    let arenas = (20..60).map(|bits| Arena::create(1 << bits, 1).expect("address space for the owner"));
    let maps = |arena: &Arena| View::open(&arena.descriptor().try_clone_to_owned().unwrap()).is_ok();
    arenas.into_iter().find(|arena| !maps(arena)).expect("address space has an end")
}

/// What each of two workers sent in the last of three steps, with its vectors in these arenas.
fn sent_with_arenas(arenas: [Arena; 2]) -> [u64; 2] {
    with_watchdog(|| {
        let case = Case::new(2, 2, 100_000);
        let expected: Vec<f32> = by_definition(&case, 0);
        let (left, right) = Stream::pair_with_lane(256 * 1024);
        let start = |(rank, (arena, stream)): (usize, (Arena, Stream))| {
            let (case, expected) = (case.clone(), expected.clone());
            let (me, length) = (10 + rank as u64, case.length);
            let mut mesh = Mesh::new();
            mesh.share(arena.clone());
            mesh.insert(21 - me, stream).unwrap();
            std::thread::spawn(move || {
                let (_waker, wake) = wake_pair().unwrap();
                let mut collective = case.collective(me, length);
                let mut vector = arena.vector();
                let (partial, rest) = vector.split_at_mut(length);
                let out = &mut rest[..length];
                partial.iter_mut().enumerate().for_each(|(i, value)| *value = leaf_value(0, rank as u32, i));
                let mut sent_bytes = 0;
                for step in 0..3 {
                    let outcome =
                        collective.run(&mut mesh, stamp(step), b"", &[partial], out, &wake).unwrap();
                    assert!(out.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
                    sent_bytes = outcome.traffic[0].sent_bytes;
                }
                sent_bytes
            })
        };
        let threads: Vec<_> = arenas.into_iter().zip([left, right]).enumerate().map(start).collect();
        let sent: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        sent.try_into().unwrap()
    })
}

#[test]
fn a_peer_that_cannot_map_what_is_lent_is_sent_copies() {
    let small = || Arena::create(200_000, 1).unwrap();
    // Frames that say where the values are, and that they are there.
    let lent = 0..1000;
    let sent = sent_with_arenas([small(), small()]);
    assert!(sent.iter().all(|sent| lent.contains(sent)), "{sent:?}");
    let [to_one_without_room, to_the_other] = sent_with_arenas([arena_without_room_for_a_view(), small()]);
    assert!(to_one_without_room > 4 * 100_000 && lent.contains(&to_the_other), "{to_one_without_room}");
}

#[test]
fn a_peer_that_lends_what_is_not_rounded_is_lost() {
    with_watchdog(|| {
        let case = Case { lanes: Lanes::All, lends: true, ..Case::new(2, 2, 1_000_000) };
        let rounding = Case { halves: case.length, ..case.clone() };
        let mut meshes = case.meshes();
        let (peer, mut theirs) = meshes.pop().unwrap();
        let (me, mut mesh) = meshes.pop().unwrap();
        std::thread::scope(|scope| {
            // It sums as another job would.
            let careless = scope.spawn(|| {
                let (_waker, wake) = wake_pair().unwrap();
                // The first are sent copies, and tell each other that they can read what is lent.
                let run = |_| one_member(&case, peer, &mut theirs, &wake, &mut vec![0.0; case.length]);
                let results: Vec<_> = (0..3).map(run).collect();
                drop(theirs);
                assert!(results[..2].iter().all(Result::is_ok));
                results[2].clone()
            });
            let (_waker, wake) = wake_pair().unwrap();
            for _ in 0..2 {
                one_member(&case, me, &mut mesh, &wake, &mut vec![0.0; case.length]).unwrap();
            }
            match one_member(&rounding, me, &mut mesh, &wake, &mut vec![0.0; case.length]) {
                Err(CollectiveError::PeerLost { worker, why }) => {
                    assert!(worker == peer && why.contains("not rounded"), "{worker}: {why}");
                }
                other => panic!("{other:?}"),
            }
            drop(mesh);
            assert!(careless.join().unwrap().is_err());
        });
    });
}
