//! What the fine-grained simulation costs: seconds and nanoseconds per event, over a range of sizes.
//!
//! `cargo run --release -p bellwether-model --example event_speed`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use bellwether_core::prediction::Protocol;
use bellwether_core::profile::{MeasuredStep, Operation, OperationKind, PROFILE_VERSION, Part, Profile};
use bellwether_des::Streams;
use bellwether_model::event::{Setting, TransmissionOrder, simulate};

/// A chain of layers, one part each, forward and backward, with 50 measured steps.
fn network(parts: u32) -> Profile {
    let mut stream = Streams::new(1).stream("network", 0);
    let bytes: Vec<u64> = (0..parts).map(|_| stream.lognormal(1e6, 1.5) as u64).collect();
    let mut operations = Vec::new();
    let mut add = |kind, after: Vec<u32>| {
        operations.push(Operation { name: String::new(), kind, after });
        operations.len() as u32 - 1
    };
    let downloads: Vec<u32> = (0..parts).map(|part| add(OperationKind::Download(part), vec![])).collect();
    let mut last = None;
    for download in &downloads {
        last = Some(add(OperationKind::Compute, last.into_iter().chain([*download]).collect()));
    }
    for part in (0..parts).rev() {
        let backward = add(OperationKind::Compute, last.into_iter().collect());
        let upload = add(OperationKind::Upload(part), vec![backward]);
        add(OperationKind::Update(part), vec![upload]);
        last = Some(backward);
    }
    let step = |_| {
        let duration = |operation: &Operation| match operation.kind {
            OperationKind::Compute => stream.lognormal(0.2 / f64::from(2 * parts), 0.2),
            OperationKind::Update(_) => 1e-5,
            _ => 0.0,
        };
        MeasuredStep {
            step_s: 0.3,
            operations_s: operations.iter().map(duration).collect(),
            data_wait_s: 0.0,
        }
    };
    let steps = (0..50).map(step).collect();
    Profile {
        version: PROFILE_VERSION,
        job: "speed".into(),
        source: "made up".into(),
        computation: None,
        device: "none".into(),
        batch: 32,
        virtual_nodes: 1,
        parameter_bytes: bytes.iter().sum(),
        parts: bytes.iter().map(|bytes| Part { name: String::new(), bytes: *bytes, server: None }).collect(),
        operations,
        steps,
        collective: None,
        network: None,
        shared_memory: None,
        parsing: None,
        checkpoint_s: None,
        tail_s: None,
        sharding: None,
        peak_resident_bytes: None,
        processor_wait: None,
        boot: None,
        apart: None,
        batches: Vec::new(),
    }
}

fn row(name: &str, parts: u32, setting: Setting) {
    let profile = network(parts);
    let setting = Setting { relative_half_width: 0.0, latency_s: 50e-6, ..setting };
    let mut best = f64::INFINITY;
    let mut outcome = None;
    for _ in 0..3 {
        let begin = Instant::now();
        outcome = simulate(&profile, &setting).ok();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    let outcome = outcome.expect("the setting is good");
    println!(
        "{name:<22} {:>7} {:>7} {parts:>6} {:>7} {:>10} {best:>9.3} {:>9.0}   {:?}, {:.0} examples/s ± {:.2} %",
        setting.workers,
        setting.servers,
        setting.steps,
        outcome.events,
        best * 1e9 / outcome.events as f64,
        outcome.bottleneck(),
        outcome.examples_per_s,
        outcome.relative_half_width() * 100.0,
    );
}

fn main() {
    println!(
        "{:<22} {:>7} {:>7} {:>6} {:>7} {:>10} {:>9} {:>9}",
        "what", "workers", "servers", "parts", "steps", "events", "seconds", "ns/event"
    );
    let base = Setting::default;
    for (workers, servers) in [(1, 1), (8, 1), (16, 2), (64, 1), (64, 4), (64, 16), (256, 4)] {
        row("fifo", 100, Setting { workers, servers, ..base() });
    }
    for steps in [4_000, 16_000] {
        row("fifo, more steps", 100, Setting { workers: 64, servers: 4, steps, ..base() });
    }
    for parts in [10, 400, 1_600] {
        row("fifo, other models", parts, Setting { workers: 64, servers: 4, ..base() });
    }
    let slow = Setting { workers: 64, servers: 4, worker_link_bytes_per_s: 1.25e8, ..base() };
    row("narrow worker links", 100, slow);
    row("synchronous", 100, Setting { workers: 64, servers: 4, protocol: Protocol::Bsp, ..base() });
    for window_bytes in [0, 65_536] {
        let order = TransmissionOrder::RoundRobin { window_bytes };
        row(
            &format!("window of {window_bytes} B"),
            100,
            Setting { workers: 64, servers: 4, order, ..base() },
        );
    }
}
