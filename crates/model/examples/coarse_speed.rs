//! Measures how long coarse predictions of 10,000 configurations take: `cargo run --release -p bellwether-model
//! --example coarse_speed`.

use std::error::Error;
use std::hint::black_box;
use std::io::{Write, stdout};
use std::time::Instant;

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedModel, Measurement};
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, Protocol};
use bellwether_core::profile::CollectiveCost;
use bellwether_model::calibrate::asynchronous::{self, Prior};
use bellwether_model::calibrate::{Noise, all_reduce, predict};
use bellwether_model::collective::{Algorithm, DirectExchange};
use bellwether_model::compute::{Durations, most_virtual_nodes};
use bellwether_model::phase::synchronous_all_reduce;
use bellwether_model::queueing::{ClosedNetwork, Shares, exact, fork_join};

const CONFIGURATIONS: u32 = 10_000;
const BYTES: u64 = 100_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let asp = asynchronous::fit(&measurements(Protocol::Asp, 1), &Prior::default())?;
    let bsp = all_reduce::fit(&measurements(Protocol::Bsp, 0), BYTES, Algorithm::Ring, &Noise::default())?;
    let steps: Vec<f64> = (0..50).map(|i| 0.1 + 0.001 * f64::from(i % 7)).collect();
    let durations = Durations::new(&steps)?;
    type Timed<'a> = (&'a str, Box<dyn Fn(u32) -> Result<f64, InputError> + 'a>);
    let timed: Vec<Timed<'_>> = vec![
        ("asynchronous, fitted, with interval", Box::new(|i| fitted(&asp, Protocol::Asp, 1, i))),
        ("synchronous, fitted, with interval", Box::new(|i| fitted(&bsp, Protocol::Bsp, 0, i))),
        ("asynchronous from a profile, 1 to 4 servers", Box::new(|i| through_servers(&durations, i))),
        ("synchronous from a profile", Box::new(|i| from_profile(&durations, i))),
    ];
    let mut out = stdout().lock();
    writeln!(out, "| {CONFIGURATIONS} configurations of 1 to 64 workers | ms, median of 11 |\n|---|---|")?;
    for (name, one) in &timed {
        let mut runs_ms = Vec::new();
        for _ in 0..11 {
            let begin = Instant::now();
            for i in 0..CONFIGURATIONS {
                black_box(one(i)?);
            }
            runs_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        runs_ms.sort_by(f64::total_cmp);
        writeln!(out, "| {name} | {:.1} |", runs_ms[5])?;
    }
    Ok(())
}

fn configuration(protocol: Protocol, servers: u32, i: u32) -> Configuration {
    let workers = 1 + i % 64;
    let devices = vec![DeviceGroup { node: 0, device: "gpu".into(), count: workers }];
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    Configuration { protocol, servers, ..Configuration::synchronous(devices, 32 * u64::from(workers), link) }
}

fn measurements(protocol: Protocol, servers: u32) -> Vec<Measurement> {
    let of = |(workers, step_s): (u32, f64)| Measurement {
        configuration: configuration(protocol, servers, workers - 1),
        step_s,
        exchange_s: None,
    };
    [(1, 0.1), (2, 0.11), (4, 0.14), (8, 0.2)].map(of).to_vec()
}

fn fitted(model: &FittedModel, protocol: Protocol, servers: u32, i: u32) -> Result<f64, InputError> {
    Ok(predict(model, &configuration(protocol, servers, i))?.examples_per_s)
}

fn through_servers(durations: &Durations, i: u32) -> Result<f64, InputError> {
    let workers = 1 + i % 64;
    let transfer_s = BYTES as f64 / (1e9 + f64::from(i) * 1e5);
    let shares = Shares::equal(1 + i % 4)?;
    let network: ClosedNetwork = fork_join(durations.mean_s(), &[transfer_s, transfer_s], &shares)?;
    Ok(exact(&network, workers)?.throughput_per_s)
}

fn from_profile(durations: &Durations, i: u32) -> Result<f64, InputError> {
    let workers = 1 + i % 64;
    let link = Link { bandwidth_bytes_per_s: 1e9 + f64::from(i) * 1e5, latency_s: 1e-4 };
    let cost = CollectiveCost { s_per_byte: 1e-9, fixed_s: 1e-4 };
    let share = f64::from(most_virtual_nodes(64, workers)?) / 64.0;
    let exchange_s = DirectExchange::new(64, workers, BYTES)?.seconds(&link, &cost)?;
    let slowest_s = share * durations.expected_maximum_s(workers);
    Ok(synchronous_all_reduce(slowest_s, 0.001, exchange_s, 0.0)?.examples_per_s(workers, 1))
}
