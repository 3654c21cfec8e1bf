//! Time to place a million thread blocks, beside a choice that looks at every multiprocessor.
//!
//! `cargo run --release -p bellwether-model --example gpu_speed`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use bellwether_core::parse::document;
use bellwether_model::gpu::{
    Device, Discipline, Kernel, Options, Rooms, Workload, built_in, capacity, find, occupancy, rooms, run,
};

const BLOCKS: u32 = 1_000_000;
const REPEATS: usize = 3;

fn main() {
    let devices = built_in();
    println!("{BLOCKS} blocks, best of {REPEATS}, seconds\n");
    println!("{:<12} {:>8} {:>10} {:>10} {:>10}", "device", "kernels", "timeline", "tree", "rescan");
    for name in ["v100", "rtx-2080-ti", "h100"] {
        let device = find(&devices, name).expect("it is built in");
        for kernels in [1, 2] {
            let workload = workload(kernels);
            let timeline = best(|| {
                let options = Options { explain: None, skip_alone: true };
                let outcome = run(device, &workload, Discipline::Leftover, options).expect("it fits");
                assert_eq!(outcome.blocks.len(), BLOCKS as usize);
            });
            let tree = best(|| place(device, &workload, |rooms, kernel| rooms.most(kernel)));
            let rescan = best(|| {
                let all = 0..device.multiprocessors as usize;
                place(device, &workload, |rooms, kernel| rooms.most_of(kernel, all.clone()))
            });
            println!("{name:<12} {kernels:>8} {timeline:>10.3} {tree:>10.3} {rescan:>10.3}");
        }
    }
}

fn best(mut run: impl FnMut()) -> f64 {
    let mut best_s = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        run();
        best_s = best_s.min(start.elapsed().as_secs_f64());
    }
    best_s
}

/// Grids whose blocks differ in length, so that they end one by one.
fn workload(kernels: u32) -> Workload {
    let kernel = |number: u32| -> Kernel {
        let text = format!(
            "name = 'k{number}'\nblocks = {}\nthreads_per_block = {}\nregisters_per_thread = 32\n\
             block_times_us = []",
            BLOCKS / kernels,
            128 << number
        );
        let mut kernel: Kernel = document(&text, "kernel").expect("it is a kernel");
        let time_us = |block: u32| 10.0 + f64::from(block * 7919 % 1000) / 100.0;
        kernel.block_times_us = Some((0..kernel.blocks).map(time_us).collect());
        kernel
    };
    Workload::of((0..kernels).map(kernel).collect())
}

/// Places blocks of the kernels in turn; when one does not fit, the oldest block goes.
fn place(device: &Device, workload: &Workload, mut choose: impl FnMut(&mut Rooms, usize) -> Option<usize>) {
    let needs: Vec<_> =
        workload.kernels.iter().map(|kernel| occupancy(device, kernel).expect("it fits").need).collect();
    assert!(needs.iter().all(|need| rooms(&capacity(device), need).iter().all(|room| *room > 0)));
    let mut rooms = Rooms::new(device.order.sequence(device.multiprocessors), capacity(device), &needs);
    let mut placed = std::collections::VecDeque::new();
    for block in 0..BLOCKS as usize {
        let kernel = block % needs.len();
        let rank = loop {
            if let Some(rank) = choose(&mut rooms, kernel) {
                break rank;
            }
            let (kernel, rank) = placed.pop_front().expect("a block fits where none is");
            rooms.release(kernel, rank);
        };
        rooms.take(kernel, rank);
        placed.push_back((kernel, rank));
    }
}
