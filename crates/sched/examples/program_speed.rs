//! How fast the programs of scheduling are solved, beside a general solver: `cargo run --release -p bellwether-sched
//! --example program_speed`.

#[path = "../tests/it/library/mod.rs"]
mod library;

use std::hint::black_box;
use std::time::Instant;

use bellwether_sched::program::choice::{self, Candidate};
use bellwether_sched::program::shares::{self, Job};
use bellwether_testkit::Random;

/// Jobs of 26 kinds on three generations of device, seven in ten on one device.
fn jobs(count: usize, stream: &mut Random) -> Vec<Job> {
    let kinds: Vec<Vec<f64>> = (0..26)
        .map(|_| {
            let slow = stream.between(0.3, 8.0);
            vec![slow * stream.between(3.0, 9.0), slow * stream.between(1.5, 5.0), slow]
        })
        .collect();
    let job = |_| {
        let devices = [1, 1, 1, 1, 1, 1, 1, 2, 4, 8][stream.below(10) as usize];
        let kind = &kinds[stream.below(26) as usize];
        let age_s = stream.between(0.0, 2e4);
        Job {
            speeds: kind.iter().map(|speed| speed * f64::from(devices).powf(0.8)).collect(),
            devices: f64::from(devices),
            weight: 1.0,
            remaining: stream.between(1e3, 1e6),
            age_s,
            isolated_s: age_s * 0.5,
        }
    };
    (0..count).map(job).collect()
}

/// Configurations of Sia for jobs of some kinds: powers of two in a node, whole nodes beyond; goodput grows less
/// than the devices.
fn candidates(
    count: usize,
    kinds: usize,
    devices: &[u32],
    node: &[u32],
    stream: &mut Random,
) -> Vec<Vec<Candidate>> {
    let mut job = |_| {
        let base: Vec<f64> = devices.iter().map(|_| stream.between(0.5, 3.0)).collect();
        let bend = stream.between(0.4, 0.95);
        let slowest = base.iter().copied().fold(f64::INFINITY, f64::min);
        let mut all = Vec::new();
        for (k, &total) in devices.iter().enumerate() {
            let inside = (0..).map(|power| 1 << power).take_while(|&count| count <= node[k]);
            let beyond = (2..=total / node[k]).map(|nodes| nodes * node[k]);
            for count in inside.chain(beyond) {
                let goodput = base[k] * f64::from(count).powf(bend) / slowest;
                let cost = (goodput.powf(-0.5) * 100.0).round() / 100.0;
                all.push(Candidate { value: 1.1 - cost, device_type: k, devices: count });
            }
        }
        all
    };
    let kinds: Vec<Vec<Candidate>> = (0..kinds).map(&mut job).collect();
    (0..count).map(|place| kinds[place % kinds.len()].clone()).collect()
}

type Program = fn(&[Job], &[f64]) -> shares::Shares;

/// Milliseconds per call, the fastest of some.
fn time_ms<T>(repeats: u32, run: impl Fn() -> T) -> f64 {
    let one = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..repeats).map(one).fold(f64::INFINITY, f64::min)
}

#[allow(clippy::print_stdout, reason = "an example prints")]
fn row(what: &str, ours_ms: f64, ours: f64, theirs: Option<(f64, f64)>) {
    match theirs {
        Some((ms, value)) => println!(
            "| {what} | {ours_ms:.3} | {ms:.2} | {:.0e} |",
            (ours - value).abs() / value.abs().max(1e-300)
        ),
        None => println!("| {what} | {ours_ms:.3} | | |"),
    }
}

#[allow(clippy::print_stdout, reason = "an example prints")]
fn main() {
    println!("| program | ours (ms) | microlp (ms) | relative difference |\n|---|---|---|---|");
    let devices = [36.0, 36.0, 36.0];
    for count in [20, 100, 200, 500] {
        let jobs = jobs(count, &mut Random(count as u64));
        let ours = shares::max_min(&jobs, &devices).objective;
        let ms = time_ms(20, || shares::max_min(&jobs, &devices));
        let theirs = (time_ms(1, || library::max_min(&jobs, &devices)), library::max_min(&jobs, &devices));
        row(&format!("max-min, {count} jobs, 3 types"), ms, ours, Some(theirs));
    }
    let jobs = jobs(200, &mut Random(7));
    let sum = |jobs: &[Job], devices: &[f64]| shares::max_sum(jobs, devices, &[1.0; 3]);
    let theirs = (time_ms(1, || library::max_sum(&jobs, &devices)), library::max_sum(&jobs, &devices));
    row(
        "sum, 200 jobs, 3 types",
        time_ms(20, || sum(&jobs, &devices)),
        sum(&jobs, &devices).objective,
        Some(theirs),
    );
    let others: [(&str, Program); 3] = [
        ("makespan", shares::makespan),
        ("finish-time fairness", shares::finish_time_fairness),
        ("water filling", shares::water_filling),
    ];
    for (name, program) in others {
        row(&format!("{name}, 200 jobs, 3 types"), time_ms(5, || program(&jobs, &devices)), 0.0, None);
    }
    let clusters: [(&[u32], &[u32]); 3] = [(&[64], &[4]), (&[32, 32], &[4, 8]), (&[24, 24, 16], &[4, 4, 8])];
    for ((devices, node), kinds) in clusters.into_iter().flat_map(|cluster| [(cluster, 160), (cluster, 6)]) {
        let mut worst: [f64; 4] = [0.0; 4];
        // With many jobs alike the general solver does not come to an end in minutes.
        let is_compared = kinds == 160;
        for seed in 0..5 {
            let jobs = candidates(160, kinds, devices, node, &mut Random(seed));
            let ours = choice::best(&jobs, devices);
            let ours_ms = time_ms(3, || choice::best(&jobs, devices));
            let start = Instant::now();
            let theirs = if is_compared { library::choice(&jobs, devices) } else { ours.value };
            let theirs_ms = start.elapsed().as_secs_f64() * 1e3;
            let figures = [ours_ms, theirs_ms, (ours.value - theirs).abs() / theirs, ours.gap];
            worst.iter_mut().zip(figures).for_each(|(worst, figure)| *worst = worst.max(figure));
        }
        let [ours_ms, theirs_ms, difference, gap] = worst;
        let compared = format!("{theirs_ms:.1} | {difference:.0e}");
        println!(
            "| choice, 160 jobs of {kinds} kinds, {devices:?} devices (worst of 5; gap {gap:.0e}) | {ours_ms:.3} | {} |",
            if is_compared { compared.as_str() } else { " | " }
        );
    }
}
