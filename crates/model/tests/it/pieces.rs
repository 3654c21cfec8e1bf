//! Parts that are cut as parameter servers hold them.

use bellwether_core::profile::OperationKind;
use bellwether_core::shards::spread;
use bellwether_model::event::{Setting, place_parts, simulate, with_pieces};

use crate::event_profiles::Graph;
use proptest::prelude::*;

fn trained(bytes: &[u64]) -> bellwether_core::profile::Profile {
    let mut graph = Graph::new(bytes);
    let compute = graph.add(OperationKind::Compute, &[], 1.0);
    for part in 0..bytes.len() as u32 {
        let up = graph.add(OperationKind::Upload(part), &[compute], 0.0);
        graph.add(OperationKind::Update(part), &[up], 0.08);
    }
    graph.profile(1.0)
}

#[test]
fn a_large_part_is_sent_and_applied_piece_by_piece() {
    let profile = trained(&[8_000_000, 640]);
    let (cut, origins) = with_pieces(&profile, 2).unwrap();
    cut.check().unwrap();
    assert_eq!(origins, [0, 0, 1]);
    let names: Vec<&str> = cut.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["part 0/0", "part 0/1", "part 1"]);
    assert_eq!(cut.parts.iter().map(|part| part.bytes).sum::<u64>(), 8_000_640);
    // Compute, two pieces up and their updates, and the small part's.
    let after: Vec<&[u32]> = cut.operations.iter().map(|operation| operation.after.as_slice()).collect();
    assert_eq!(after, [&[][..], &[0], &[0], &[1], &[2], &[0], &[5]]);
    let steps = &cut.steps[0].operations_s;
    assert!((steps[3] - 0.04).abs() < 1e-6 && (steps[3] + steps[4] - 0.08).abs() < 1e-12, "{steps:?}");
    // Both servers' links carry half each: 1 s + 4 MB down and up at 1 MB/s, and an update of each part.
    let setting = Setting {
        servers: 2,
        server_link_bytes_per_s: 1e6,
        worker_link_bytes_per_s: 2e6,
        ..Setting::default()
    };
    let whole = simulate(&profile, &setting).unwrap().step_s;
    let pieces = simulate(&cut, &setting).unwrap().step_s;
    assert!((whole - 17.08).abs() < 0.01, "{whole}");
    assert!((pieces - 9.12).abs() < 0.01, "{pieces}");
}

#[test]
fn a_profile_of_placed_parts_keeps_them() {
    let mut profile = trained(&[800, 80]);
    profile.parts[0].server = Some(1);
    assert_eq!(with_pieces(&profile, 2).unwrap().0.as_ref(), &profile);
    assert!(with_pieces(&profile, 0).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_are_those_of_the_servers(
        values in proptest::collection::vec(0usize..5_000, 1..12), servers in 1u32..6,
    ) {
        let bytes: Vec<u64> = values.iter().map(|count| 4 * *count as u64).collect();
        let profile = trained(&bytes);
        let (cut, origins) = with_pieces(&profile, servers).unwrap();
        cut.check().unwrap();
        let theirs = spread(&values, servers);
        let ours: Vec<(u32, u32, u64)> = cut
            .parts
            .iter()
            .zip(&origins)
            .filter(|(part, _)| part.bytes > 0)
            .map(|(part, origin)| (*origin, part.server.unwrap(), part.bytes))
            .collect();
        let expected: Vec<(u32, u32, u64)> = theirs
            .iter()
            .map(|piece| (piece.tensor as u32, piece.server, 4 * piece.range.len() as u64))
            .collect();
        prop_assert_eq!(ours, expected);
        prop_assert_eq!(cut.upload_bytes(), profile.upload_bytes());
        // Where nothing is cut, parts lie where they lay.
        if cut.parts.len() == profile.parts.len() && bytes.iter().all(|bytes| *bytes > 0) {
            let places: Vec<u32> = cut.parts.iter().map(|part| part.server.unwrap()).collect();
            prop_assert_eq!(places, place_parts(&profile, servers).unwrap());
        }
    }
}
