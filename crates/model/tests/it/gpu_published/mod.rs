//! Published times of two kernels that run one after the other, beside each other, and on the same multiprocessors
//! (Gilman et al., Performance 2020), and what the model makes of them.

// Tests and examples each use some of this module.
#![allow(dead_code)]

pub(crate) mod mechanisms;

use bellwether_core::parse::document;
use bellwether_model::gpu::{Demand, Device, Discipline, Kernel, Options, Workload, built_in, find, run};

/// Times in ms: of A, launched first, and of B.
pub(crate) struct Row {
    pub(crate) device: &'static str,
    pub(crate) class: Class,
    pub(crate) serial: (f64, f64),
    pub(crate) isolated: (f64, f64),
    pub(crate) colocated: (f64, f64),
}

/// What both kernels of a row contend for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Class {
    L1,
    Compute,
    Memory,
    Transfer,
}

type Times = (f64, f64);

const fn row(device: &'static str, class: Class, serial: Times, isolated: Times, colocated: Times) -> Row {
    Row { device, class, serial, isolated, colocated }
}

const TURING: &str = "rtx-2080-ti";
const PASCAL: &str = "gtx-1080-5sm";
const VOLTA: &str = "v100";

pub(crate) const ROWS: [Row; 12] = [
    row(TURING, Class::L1, (85.0, 79.0), (85.0, 79.0), (105.0, 105.0)),
    row(TURING, Class::Compute, (523.0, 365.0), (527.0, 529.0), (530.0, 676.0)),
    row(TURING, Class::Memory, (949.0, 10.0), (951.0, 224.0), (955.0, 961.0)),
    row(TURING, Class::Transfer, (369.0, 130.0), (385.0, 355.0), (388.0, 466.0)),
    row(PASCAL, Class::L1, (63.0, 45.0), (63.0, 45.0), (94.0, 94.0)),
    row(PASCAL, Class::Compute, (780.0, 415.0), (780.0, 415.0), (895.0, 915.0)),
    row(PASCAL, Class::Memory, (1233.0, 49.0), (1233.0, 274.0), (1270.0, 1270.0)),
    row(PASCAL, Class::Transfer, (1588.0, 239.0), (1680.0, 523.0), (1689.0, 1686.0)),
    row(VOLTA, Class::L1, (85.0, 51.0), (84.0, 55.0), (104.0, 104.0)),
    row(VOLTA, Class::Compute, (869.0, 333.0), (870.0, 480.0), (871.0, 986.0)),
    row(VOLTA, Class::Memory, (2458.0, 34.0), (2459.0, 622.0), (2492.0, 710.0)),
    row(VOLTA, Class::Transfer, (3156.0, 121.0), (3194.0, 1113.0), (3295.0, 1325.0)),
];

/// Blocks of B.
const B_BLOCKS: u32 = 8;

/// Threads of a block of B that keep it apart from A, and that spread it over A's multiprocessors.
pub(crate) const ISOLATED: u32 = 33;
pub(crate) const COLOCATED: u32 = 32;

impl Row {
    fn device(&self) -> Device {
        find(&built_in(), self.device).expect("it is built in").clone()
    }

    /// What blocks of A and B demand. A takes all that it shares on a multiprocessor; `strength` is the one parameter:
    /// a block's share of a multiprocessor (L1, compute), or A's share of the device (memory, transfer), of which B
    /// alone would take all.
    fn demands(&self, strength: f64) -> (Demand, Demand) {
        let none = Demand::default();
        let a_blocks = f64::from(self.device().multiprocessors - 1);
        let b_blocks = f64::from(B_BLOCKS);
        match self.class {
            Class::L1 => (Demand { l1: 1.0, ..none }, Demand { l1: strength, ..none }),
            Class::Compute => (Demand { issue: 1.0, ..none }, Demand { issue: strength, ..none }),
            Class::Memory => (
                Demand { l1: 1.0, dram: strength / a_blocks, ..none },
                Demand { l1: 1.0 / b_blocks, dram: 1.0 / b_blocks, ..none },
            ),
            Class::Transfer => (
                Demand { l1: 1.0, pcie: strength / a_blocks, ..none },
                Demand { l1: 1.0 / b_blocks, pcie: 1.0 / b_blocks, ..none },
            ),
        }
    }

    /// The kernels: A with one block on each multiprocessor but the last, B with 8 blocks.
    fn workload(&self, b_threads: u32, strength: f64) -> Workload {
        let device = self.device();
        let (a, b) = self.demands(strength);
        let kernel = |name: &str, blocks: u32, threads: u32, time_ms: f64, demand: Demand| {
            let text = format!(
                "name = '{name}'\nblocks = {blocks}\nthreads_per_block = {threads}\ntime_us = {time_ms:.1}"
            );
            Kernel { demand, ..document(&text, "kernel").expect("a kernel") }
        };
        let a_threads = device.threads_per_multiprocessor / 2;
        Workload::of(vec![
            kernel("A", device.multiprocessors - 1, a_threads, 1e3 * self.serial.0, a),
            kernel("B", B_BLOCKS, b_threads, 1e3 * self.serial.1, b),
        ])
    }

    /// Times of A and B in ms when B has this many threads, and whether B shared no multiprocessor with A.
    pub(crate) fn predict(&self, b_threads: u32, strength: f64) -> (Times, bool) {
        let options = Options { explain: None, skip_alone: true };
        let workload = self.workload(b_threads, strength);
        let outcome =
            run(&self.device(), &workload, Discipline::Leftover, options).expect("a workload that fits");
        let end = |launch: usize| outcome.launches[launch].end_us / 1e3;
        ((end(0), end(1)), outcome.kernels[1].isolated())
    }

    /// The largest strength with which B, apart from A, takes no longer than it was printed to.
    pub(crate) fn strength(&self) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            match self.predict(ISOLATED, middle).0.1 <= self.isolated.1 * (1.0 + 1e-9) {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// The mean strength of the rows of the same class on the other devices.
    pub(crate) fn strength_elsewhere(&self) -> f64 {
        let others = ROWS.iter().filter(|row| row.class == self.class && row.device != self.device);
        others.map(Row::strength).sum::<f64>() / 2.0
    }
}
