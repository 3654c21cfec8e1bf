//! Prints how long the best batch of one configuration takes to find.
//!
//! `cargo run --release -p bellwether-model --example speed_goodput`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use bellwether_model::elastic::{BatchLimits, Goodput, Throughput};

const ROUNDS: u32 = 20_000;

fn main() {
    let throughput = Throughput {
        alpha_c: 0.0173,
        beta_c: 0.0007,
        alpha_n: 0.121,
        beta_n: 0.0024,
        alpha_r: 0.0317,
        beta_r: 0.00098,
        gamma: 2.0,
    };
    for (name, local) in [("batch split by accumulation", (32, 64)), ("large micro-batches", (32, 1024))] {
        let limits = BatchLimits { initial: 128, largest: 4096, local };
        let goodput = Goodput::new(throughput, 325.0, limits).expect("the limits leave batches");
        let mut sum = 0.0;
        let begin = Instant::now();
        for round in 0..ROUNDS {
            for replicas in 1..=64 {
                let nodes = u32::div_ceil(replicas, 4) + round % 2;
                sum += goodput.optimum(nodes, replicas).map_or(0.0, |best| best.goodput);
            }
        }
        let each = begin.elapsed().as_secs_f64() / f64::from(ROUNDS * 64);
        println!("{name}: {:.2} us for one configuration (checksum {sum:.0})", 1e6 * each);
    }
}
