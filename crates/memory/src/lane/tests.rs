//! Bytes through a lane: in turn, with ends that sleep, and with another end that makes no sense.

use std::thread;

use proptest::prelude::*;

use super::*;

fn pair(ring_bytes: usize) -> (Lane, Lane) {
    let (one, descriptor) = Lane::create(ring_bytes).expect("memory");
    (one, Lane::open(&descriptor).expect("the same memory"))
}

fn bytes(from: u64, count: usize) -> Vec<u8> {
    (from..from + count as u64).map(|i| (i % 251) as u8).collect()
}

#[test]
fn bytes_arrive_in_turn_both_ways() {
    let (mut one, mut other) = pair(4096);
    for (from, to) in [(true, 1000), (false, 4096), (true, 1)] {
        let (writer, reader) = if from { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let sent = bytes(7, to);
        let (head, tail) = sent.split_at(to / 3);
        assert_eq!(writer.write(&[IoSlice::new(head), IoSlice::new(tail)]), Ok(to));
        let mut came = vec![0; to];
        assert_eq!(reader.read(&mut [IoSliceMut::new(&mut came)]), Ok(to));
        assert_eq!(came, sent);
        assert_eq!(reader.read(&mut [IoSliceMut::new(&mut came)]), Ok(0), "there is no more");
    }
}

#[test]
fn a_full_ring_takes_no_more() {
    let (mut one, mut other) = pair(4096);
    assert_eq!(one.write(&[IoSlice::new(&[1; 5000])]), Ok(4096));
    assert_eq!(one.write(&[IoSlice::new(&[1; 1])]), Ok(0));
    let mut came = [0; 96];
    assert_eq!(other.read(&mut [IoSliceMut::new(&mut came)]), Ok(96));
    assert_eq!(one.write(&[IoSlice::new(&[1; 5000])]), Ok(96));
}

#[test]
fn who_sleeps_is_woken_once() {
    let (reads, writes) = (Interest { reads: true, writes: false }, Interest { reads: false, writes: true });
    let (mut one, mut other) = pair(4096);
    assert!(other.will_sleep(reads));
    assert!(!one.owes_wake(reads), "nothing was written");
    assert_eq!(one.write(&[IoSlice::new(&[1; 10])]), Ok(10));
    assert!(one.owes_wake(writes));
    assert!(!one.owes_wake(writes), "it is awake");
    assert!(!other.will_sleep(reads), "there is something to read");
    // A writer is woken when there is room worth a wake.
    assert_eq!(one.write(&[IoSlice::new(&[1; 5000])]), Ok(4086));
    assert!(one.will_sleep(writes));
    let mut came = [0; 2047];
    other.read(&mut [IoSliceMut::new(&mut came)]).expect("sound");
    assert!(!other.owes_wake(reads), "more than half is unread");
    other.read(&mut [IoSliceMut::new(&mut came[..1])]).expect("sound");
    assert!(other.owes_wake(reads));
    assert!(!one.will_sleep(writes));
}

#[test]
fn counters_that_make_no_sense_are_noticed() {
    let (mut one, mut other) = pair(4096);
    one.written_by(0).store(5000, Ordering::Relaxed);
    assert_eq!(other.read(&mut [IoSliceMut::new(&mut [0; 10])]), Err(Broken));
    assert!(other.is_ready(Interest { reads: true, writes: false }), "ready to say so");
    one.written_by(0).store(0, Ordering::Relaxed);
    other.read_from(0).store(9, Ordering::Relaxed);
    assert_eq!(one.write(&[IoSlice::new(&[0; 4096])]), Ok(4096), "what it knew was sound");
    assert_eq!(one.write(&[IoSlice::new(&[0; 10])]), Ok(9), "so is this, as far as one can see");
    other.read_from(0).store(u64::MAX / 2, Ordering::Relaxed);
    assert_eq!(one.write(&[IoSlice::new(&[0; 10])]), Err(Broken));
}

#[test]
fn what_is_no_lane_is_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let plain = memfd_create("plain", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    ftruncate(&plain, 12288).expect("room");
    assert!(Lane::open(&plain).expect_err("it could shrink").to_string().contains("not sealed"));
    let (_region, descriptor) = Region::create(12288, Access::OthersWrite).expect("memory");
    assert!(Lane::open(&descriptor).expect_err("no magic").to_string().contains("not a lane"));
    for bytes in [0usize, 1, 4096, 8192, 12289, 4096 + 2 * 3000] {
        let Ok((_region, descriptor)) = Region::create(bytes, Access::OthersWrite) else { continue };
        assert!(Lane::open(&descriptor).is_err(), "{bytes}");
    }
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    assert!(Lane::open(&file.into()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A stream through a small ring, in pieces of any size, read in pieces of any other, by two threads that sleep on
    /// the system when they have nothing to do.
    #[test]
    fn a_stream_arrives_whole(writes in prop::collection::vec(1usize..9000, 1..40), read in 1usize..9000) {
        let (mut one, mut other) = pair(4096);
        let total: usize = writes.iter().sum();
        let (wake_reader, reader_sleeps) = std::sync::mpsc::channel::<()>();
        let (wake_writer, writer_sleeps) = std::sync::mpsc::channel::<()>();
        let writer = thread::spawn(move || {
            let mut sent = 0;
            for count in writes {
                let piece = bytes(sent, count);
                let mut left = &piece[..];
                while !left.is_empty() {
                    let count = one.write(&[IoSlice::new(left)]).expect("sound");
                    left = &left[count..];
                    if count > 0 && one.owes_wake(Interest { reads: false, writes: true }) {
                        wake_reader.send(()).expect("it reads");
                    }
                    if count == 0 && one.will_sleep(Interest { reads: false, writes: true }) {
                        writer_sleeps.recv().expect("it wakes");
                    }
                }
                sent += piece.len() as u64;
            }
            (one, wake_reader)
        });
        let mut came: Vec<u8> = Vec::new();
        let mut piece = vec![0; read];
        while came.len() < total {
            let count = other.read(&mut [IoSliceMut::new(&mut piece)]).expect("sound");
            came.extend(&piece[..count]);
            if count > 0 && other.owes_wake(Interest { reads: true, writes: false }) {
                wake_writer.send(()).expect("it writes");
            }
            if count == 0 && other.will_sleep(Interest { reads: true, writes: false }) {
                reader_sleeps.recv().expect("it wakes");
            }
        }
        prop_assert!(came == bytes(0, total));
        drop(writer.join());
    }
}
