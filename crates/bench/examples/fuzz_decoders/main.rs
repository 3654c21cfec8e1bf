//! Throws bytes at every decoder of what strangers, broken members or damaged disks may send: right messages with
//! some bytes changed, cut, repeated or mixed, and bytes at random. A decoder that panics, or takes memory by what a
//! message claims, ends the program with the bytes that did it.
//!
//! `cargo run --release -p bellwether-bench --example fuzz_decoders [MILLIONS] [SEED] [DECODER]`; 100 million inputs
//! in all unless another number is asked for, shared out so that cheap decoders get more. One thread.

#![allow(clippy::print_stdout, reason = "a measurement is printed")]

mod decoders;
mod mutate;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use decoders::{Decoder, decoders};
use mutate::{Random, change};

/// Memory that a decoder may have whatever comes, in bytes: the channel's buffers are the largest.
const FIXED_BYTES: u64 = 512 * 1024;

/// Memory that it may have for each byte of the input: trees of values are that much larger than their text.
const BYTES_PER_BYTE: u64 = 512;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |otherwise: f64| arguments.next().map_or(otherwise, |text| text.parse().unwrap_or(otherwise));
    let (millions, seed) = (number(100.0), number(1.0) as u64);
    let only = arguments.next().unwrap_or_default();
    let all = decoders();
    let shares: f64 = all.iter().map(|decoder| decoder.share).sum();
    println!("seed {seed}; load {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    println!("{:44} {:>12} {:>12} {:>9} {:>12}", "decoder", "inputs", "read", "seconds", "memory");
    let (mut inputs, began) = (0, Instant::now());
    for decoder in all.iter().filter(|decoder| decoder.name.contains(&only)) {
        let count = (millions * 1e6 * decoder.share / shares).ceil() as u64;
        let told = throw(decoder, count, seed);
        inputs += count;
        println!(
            "{:44} {count:12} {:12} {:9.1} {:10} B",
            decoder.name, told.read, told.seconds, told.most_bytes
        );
        let _ = std::io::stdout().flush();
    }
    println!("{inputs} inputs in {:.0} s: no panic, no memory by claim", began.elapsed().as_secs_f64());
}

struct Told {
    /// Inputs that made sense.
    read: u64,
    seconds: f64,
    /// Most memory that one input took.
    most_bytes: u64,
}

fn throw(decoder: &Decoder, count: u64, seed: u64) -> Told {
    for (number, right) in decoder.right.iter().enumerate() {
        assert!((decoder.read)(right), "{}: the right message {number} is not understood", decoder.name);
    }
    let mut random = Random::new(seed);
    let mut told = Told { read: 0, seconds: 0.0, most_bytes: 0 };
    let began = Instant::now();
    let mut bytes = Vec::new();
    for _ in 0..count {
        change(&mut bytes, &decoder.right, &mut random);
        let mut outcome = Ok(false);
        let memory = allocation_counter::measure(|| {
            outcome = catch_unwind(AssertUnwindSafe(|| (decoder.read)(&bytes)));
        });
        let bound = FIXED_BYTES + BYTES_PER_BYTE * bytes.len() as u64;
        let Ok(read) = outcome else { report(decoder, "panics", &bytes) };
        if memory.bytes_max > bound {
            report(decoder, &format!("takes {} bytes of memory", memory.bytes_max), &bytes);
        }
        told.read += u64::from(read);
        told.most_bytes = told.most_bytes.max(memory.bytes_max);
    }
    told.seconds = began.elapsed().as_secs_f64();
    told
}

fn report(decoder: &Decoder, what: &str, bytes: &[u8]) -> ! {
    println!("{}: {what} on\n{}", decoder.name, bytes.escape_ascii());
    std::process::exit(1);
}
