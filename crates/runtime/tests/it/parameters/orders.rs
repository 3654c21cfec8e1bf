//! Orders as they are seen on the wire: what waits while the connection is full goes as the order says.

use std::io::{Read, Write};
use std::time::Duration;

use bellwether_core::plan::TransmissionOrder;
use bellwether_runtime::parameters::Rule;
use bellwether_runtime::parameters::map::PIECE_VALUES;
use bellwether_runtime::parameters::wire::{HEADER_BYTES, Header, Kind, Stamp};

use super::harness::{Group, JOB, layout, plain};

/// Pieces of the first tensor: more than a connection holds.
const LARGE: usize = 64;

/// The tensors of the pieces as they come, when all are asked for in the order of the tensors.
fn arrivals(order: TransmissionOrder) -> Vec<usize> {
    let lengths = [LARGE * PIECE_VALUES, 3 * PIECE_VALUES, 2 * PIECE_VALUES];
    let mut group = Group::start(layout(&lengths, &[]), 1, 1, plain());
    group.order = order;
    let (server, _told) = group.server(0);
    server.begin(group.phase(1, Rule::Each, 0));
    let mut stream = group.dial(&server, 0);
    let stamp = Stamp { job: JOB, phase: 1 };
    let ask = |stream: &mut bellwether_runtime::channel::Stream, tensor: usize| {
        for piece in group.map.of_tensor(tensor) {
            stream.write_all(&Header::new(Kind::Pull, piece as u32, stamp).encode()).expect("asked");
        }
    };
    // The first tensor fills the connection; the peer does not read until all others wait.
    ask(&mut stream, 0);
    std::thread::sleep(Duration::from_millis(100));
    ask(&mut stream, 1);
    ask(&mut stream, 2);
    std::thread::sleep(Duration::from_millis(100));
    let mut header = [0; HEADER_BYTES];
    let mut values = vec![0; 4 * PIECE_VALUES];
    let mut next = || {
        stream.read_exact(&mut header).expect("a header");
        let header = Header::decode(&header).expect("a header");
        stream.read_exact(&mut values[..header.length_bytes as usize]).expect("a piece");
        assert_eq!(header.kind, Kind::Data);
        group.map.pieces()[header.piece as usize].tensor
    };
    (0..LARGE + 5).map(|_| next()).collect()
}

/// How many pieces came before the first of the later tensors.
fn ahead(tensors: &[usize]) -> usize {
    tensors.iter().position(|tensor| *tensor > 0).expect("the others came")
}

#[test]
fn fifo_sends_as_asked() {
    let tensors = arrivals(TransmissionOrder::Fifo);
    assert!(tensors.is_sorted(), "{tensors:?}");
}

#[test]
fn priorities_overtake_what_waits() {
    let tensors = arrivals(TransmissionOrder::Priority(vec![2, 1, 0]));
    let ahead = ahead(&tensors);
    // What the system held when the others were asked for.
    assert!(ahead < LARGE / 2, "{tensors:?}");
    assert_eq!(tensors[ahead..ahead + 5], [2, 2, 1, 1, 1]);
}

#[test]
fn a_window_gives_turns() {
    let window_bytes = 8 * PIECE_VALUES as u64;
    let tensors = arrivals(TransmissionOrder::RoundRobin { window_bytes });
    let ahead = ahead(&tensors);
    assert!(ahead < LARGE / 2, "{tensors:?}");
    // Two pieces each; the second tensor has one left after its first turn.
    assert_eq!(tensors[ahead..ahead + 7], [1, 1, 2, 2, 0, 0, 1], "{tensors:?}");
}
