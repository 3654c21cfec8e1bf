//! How fast the event queue is, beside the standard library's heap, which can neither cancel nor move.
//!
//! `cargo run --release -p bellwether-des --example queue_speed`
//!
//! The load is the classic hold model: as many events as wait at any time; each step takes the earliest and
//! schedules another one an exponential time later.

#![allow(clippy::print_stdout)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use bellwether_des::{Queue, Streams};

const STEPS: usize = 4_000_000;

/// Delays, drawn before the clock runs.
fn delays() -> Vec<f64> {
    let mut stream = Streams::new(1).stream("delay", 0);
    (0..1 << 16).map(|_| stream.exponential(1.0)).collect()
}

fn ours(waiting: usize, delays: &[f64]) -> f64 {
    let mut queue = Queue::new();
    (0..waiting).for_each(|n| {
        queue.schedule(delays[n % delays.len()], n as u64);
    });
    let begin = Instant::now();
    for step in 0..STEPS {
        let (time, payload) = queue.pop().expect("events wait");
        queue.schedule(time + delays[step & 0xffff], payload);
    }
    black_box(queue.pop());
    begin.elapsed().as_secs_f64()
}

fn standard(waiting: usize, delays: &[f64]) -> f64 {
    let mut heap = BinaryHeap::new();
    let key = |time: f64, sequence: usize| Reverse((time.to_bits(), sequence as u64));
    (0..waiting).for_each(|n| heap.push((key(delays[n % delays.len()], n), n as u64)));
    let begin = Instant::now();
    for step in 0..STEPS {
        let (Reverse((bits, _)), payload) = heap.pop().expect("events wait");
        heap.push((key(f64::from_bits(bits) + delays[step & 0xffff], waiting + step), payload));
    }
    black_box(heap.pop());
    begin.elapsed().as_secs_f64()
}

fn cancelling(waiting: usize, delays: &[f64]) -> f64 {
    let mut queue = Queue::new();
    let mut tickets: Vec<_> = (0..waiting).map(|n| queue.schedule(delays[n % delays.len()], n)).collect();
    let begin = Instant::now();
    for step in 0..STEPS {
        // A number of the delay's digits, so that the choice costs nothing.
        let delay = delays[step & 0xffff];
        let victim = (delay.to_bits() >> 7) as usize % waiting;
        queue.cancel(tickets[victim]);
        tickets[victim] = queue.schedule(delay, victim);
    }
    black_box(queue.pop());
    begin.elapsed().as_secs_f64()
}

fn main() {
    let delays = delays();
    println!(
        "{:>9} {:>14} {:>14} {:>7} {:>16}",
        "waiting", "queue M/s", "BinaryHeap M/s", "ratio", "cancel+new M/s"
    );
    for waiting in [16, 256, 4_096, 65_536, 1_048_576] {
        let rate = |run: &dyn Fn(usize, &[f64]) -> f64| {
            let best = (0..3).map(|_| run(waiting, &delays)).fold(f64::INFINITY, f64::min);
            STEPS as f64 / best / 1e6
        };
        let (queue, heap, cancel) = (rate(&ours), rate(&standard), rate(&cancelling));
        println!("{waiting:>9} {queue:>14.2} {heap:>14.2} {:>7.2} {cancel:>16.2}", queue / heap);
    }
}
