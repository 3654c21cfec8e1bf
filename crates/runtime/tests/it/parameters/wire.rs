//! Untrusted bytes: the decoder never panics, what is written is read back, and garbage ends one connection only.

use std::io::{Read, Write};

use bellwether_runtime::parameters::wire::{HEADER_BYTES, Header, Kind, MAGIC, Stamp, WireError};
use bellwether_runtime::parameters::{Rule, Told};
use proptest::prelude::*;

use super::harness::{Group, JOB, layout, plain};

fn header() -> impl Strategy<Value = Header> {
    const KINDS: [Kind; 7] =
        [Kind::Pull, Kind::Data, Kind::Push, Kind::Applied, Kind::Install, Kind::Known, Kind::Complete];
    let numbers = (any::<u32>(), any::<u32>(), any::<[u64; 5]>(), any::<(u32, u32)>());
    (proptest::sample::select(&KINDS[..]), numbers).prop_map(|(kind, (length, piece, longs, floats))| {
        let [job, phase, unit, step, version] = longs;
        // No NaN: it would not equal itself.
        let float = |bits: u32| Some(f32::from_bits(bits)).filter(|value| !value.is_nan()).unwrap_or(1.0);
        let (scale, share) = (float(floats.0), float(floats.1));
        let stamp = Stamp { job, phase };
        Header { length_bytes: length, unit, step, version, scale, share, ..Header::new(kind, piece, stamp) }
    })
}

proptest! {
    #[test]
    fn a_header_survives_the_wire(header in header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn one_flipped_bit_is_another_header_or_refused(header in header(), bit in 0usize..512) {
        let mut bytes = header.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn random_bytes_never_panic_and_what_decodes_encodes_back(
        halves in any::<([u8; 32], [u8; 32])>(), repair in any::<bool>(),
    ) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..32].copy_from_slice(&halves.0);
        bytes[32..].copy_from_slice(&halves.1);
        if repair {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[4] %= 8;
            bytes[5..8].fill(0);
        }
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    /// Frames that decode, but name what there is not: the connection ends, the server stays whole.
    #[test]
    fn strange_frames_end_their_connection_only(header in header(), here in any::<bool>(), near in any::<bool>()) {
        let group = Group::start(layout(&[5], &[]), 1, 1, plain());
        group.begin(Rule::Each);
        let mut header = header;
        if here {
            header.stamp = Stamp { job: JOB, phase: 1 };
        }
        if near {
            header.piece %= 2;
            header.length_bytes = 4 * (header.length_bytes % 7);
        }
        let mut stream = group.dial(&group.servers[0], 7);
        stream.write_all(&header.encode()).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("closed");
        // It ends, whatever the frame was; an answer may come before.
        let _ = stream.read_to_end(&mut Vec::new());
        let mut client = group.client(1);
        let account = group.unit(&mut client, group.each(1), 1.0).expect("a unit");
        prop_assert_eq!(account.repeated, 0);
    }
}

#[test]
fn frames_of_others_are_refused_with_a_reason() {
    let group = Group::start(layout(&[5, 300], &[]), 2, 1, plain());
    group.begin(Rule::Each);
    let stamp = Stamp { job: JOB, phase: 1 };
    let there = group.map.of_server(1)[0];
    let here = group.map.of_server(0)[0];
    let bytes = group.map.pieces()[here as usize].bytes();
    let refused = [
        (Header::new(Kind::Pull, here, Stamp { job: 1, ..stamp }), "of job 0x1"),
        (Header::new(Kind::Pull, here, Stamp { phase: 2, ..stamp }), "of phase 2, this is phase 1"),
        (Header::new(Kind::Pull, there, stamp), "not held here"),
        (Header::new(Kind::Pull, u32::MAX, stamp), "not held here"),
        (Header { length_bytes: 4, ..Header::new(Kind::Pull, here, stamp) }, "0 are due"),
        (Header { length_bytes: u32::MAX, ..Header::new(Kind::Push, here, stamp) }, "are due"),
        (Header { length_bytes: bytes as u32, ..Header::new(Kind::Install, here, stamp) }, "out of turn"),
        (Header::new(Kind::Known, here, stamp), "out of turn"),
    ];
    for (header, reason) in refused {
        let mut stream = group.dial(&group.servers[0], 3);
        stream.write_all(&header.encode()).expect("sent");
        // Closed or reset: either way nothing comes.
        let _ = stream.read_to_end(&mut Vec::new());
        let told = group.told[0].lock().expect("no panic").recv().expect("told");
        let Told::Left { worker: 3, why: Some(why) } = told else { panic!("{told:?}") };
        assert!(why.contains(reason), "{why}");
    }
    assert_eq!(WireError::OtherPiece(3).to_string(), "piece 3 is not held here");
}
