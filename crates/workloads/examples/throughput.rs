//! Examples per second of the four reference models: gradient and a flat SGD step, one thread.
//!
//! `cargo run --release -p bellwether-workloads --example throughput [model…]`
//!
//! Rates are per second of CPU time where the system tells it (Linux), so that other programs on the machine disturb
//! little. Beside each rate stands that of the same network written directly in burn (measured 2026-11-20 on one core
//! with AVX-512), so that what this crate adds can be seen.

use std::io;
use std::path::Path;
use std::time::Instant;

use bellwether_core::job::Job;
use bellwether_runtime::workload::{MicroBatch, Weights};

struct Case {
    name: &'static str,
    model: &'static str,
    data: &'static str,
    batch: u64,
    burn_per_second: f64,
}

const MNIST: &str = "{ kind = \"idx\", images = \"images\", labels = \"labels\", held_out = 0.0 }";
const CASES: [Case; 4] = [
    Case {
        name: "mlp",
        model: "{ kind = \"mlp\", hidden = [256, 128] }",
        data: MNIST,
        batch: 64,
        burn_per_second: 81_303.0,
    },
    Case { name: "lenet", model: "{ kind = \"convnet\" }", data: MNIST, batch: 64, burn_per_second: 5_034.0 },
    Case {
        name: "resnet-20",
        model: "{ kind = \"resnet\" }",
        data: "{ kind = \"cifar10\", files = [\"cifar\"], held_out = 0.0 }",
        batch: 32,
        burn_per_second: 92.1,
    },
    Case {
        name: "gpt",
        model: "{ kind = \"transformer\", context = 64, width = 128, layers = 4, heads = 4 }",
        data: "{ kind = \"text\", path = \"text\", held_out = 0.0 }",
        batch: 16,
        burn_per_second: 90.0,
    },
];
const WINDOWS: usize = 7;
const WINDOW_SECONDS: f64 = 0.5;

/// Files of the right shape with arbitrary contents.
fn open(path: &Path) -> io::Result<Vec<u8>> {
    let noise = |count: usize| (0..count).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8);
    let samples = 256usize;
    Ok(match path.to_str() {
        Some("images") => [0, 0, 8, 3, 0, 0, 1, 0, 0, 0, 0, 28, 0, 0, 0, 28]
            .into_iter()
            .chain(noise(samples * 784))
            .collect(),
        Some("labels") => [0, 0, 8, 1, 0, 0, 1, 0].into_iter().chain((0..=255).map(|i| i % 10)).collect(),
        Some("cifar") => {
            noise(samples * 3073).enumerate().map(|(i, b)| if i % 3073 == 0 { b % 10 } else { b }).collect()
        }
        _ => noise(100_000).collect(),
    })
}

/// CPU time of all threads in seconds (convolutions run on a helper thread, even when it is the only
/// one), or else the time since `start`.
fn elapsed_seconds(start: Instant) -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return start.elapsed().as_secs_f64() };
    let nanoseconds = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() * 1e-9
}

fn rate(case: &Case) -> f64 {
    let text = format!(
        "name = \"x\"\nsteps = 1\nworkers = 1\nmodel = {}\ndata = {}\nbatch = {{ size = {}, virtual_nodes = 1 }}\n\
         optimizer = {{ kind = \"sgd\", learning_rate = 0.01 }}",
        case.model, case.data, case.batch
    );
    let job: Job = toml::from_str(&text).expect("the case is a job");
    let mut workload = bellwether_workloads::build(&job, &open).expect("the case builds");
    let layout = workload.layout().clone();
    let (mut parameters, mut state) = (vec![0.0; layout.parameter_count()], vec![0.0; layout.state_count()]);
    workload.initialize(1, &mut parameters, &mut state);
    let (mut gradient, mut state_out) = (vec![0.0; parameters.len()], vec![0.0; state.len()]);
    let samples: Vec<u64> = (0..case.batch).collect();
    let mut version = 0;
    let mut step = || {
        let weights = Weights { parameters: &parameters, state: &state, version };
        workload
            .gradient(weights, MicroBatch { samples: &samples }, version, &mut gradient, &mut state_out)
            .expect("a gradient");
        version += 1;
        let rate = 0.01 / case.batch as f32;
        parameters.iter_mut().zip(&gradient).for_each(|(value, slope)| *value -= rate * slope);
        state.copy_from_slice(&state_out);
    };
    step();
    let mut rates: Vec<f64> = (0..WINDOWS)
        .map(|_| {
            let clock = Instant::now();
            let (start, mut steps) = (elapsed_seconds(clock), 0);
            while elapsed_seconds(clock) - start < WINDOW_SECONDS {
                step();
                steps += 1;
            }
            (steps * case.batch) as f64 / (elapsed_seconds(clock) - start)
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[WINDOWS / 2]
}

#[allow(clippy::print_stdout, reason = "a table is the purpose of this program")]
fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    println!("{:<10} {:>12} {:>12} {:>6}", "model", "examples/s", "burn direct", "ratio");
    for case in CASES.iter().filter(|case| chosen.is_empty() || chosen.iter().any(|name| name == case.name)) {
        let rate = rate(case);
        let ratio = rate / case.burn_per_second;
        println!("{:<10} {rate:>12.0} {:>12.0} {ratio:>6.2}", case.name, case.burn_per_second);
    }
}
