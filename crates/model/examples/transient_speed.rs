//! Prints how long Monte Carlo, the expected course and the best checkpoint period of a job on transient servers take.
//!
//! `cargo run --release -p bellwether-model --example transient_speed`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use bellwether_model::transient::{
    Checkpoints, Job, Losses, Servers, best_period_s, expected, published, simulate,
};

const RUNS: u32 = 10_000;
const ROUNDS: u32 = 1_000;

fn main() {
    let law = published::hourly("k80").expect("a published device");
    let servers = Servers {
        count: 8,
        law: law.clone(),
        price_per_hour: 0.2556,
        provision_s: 83.0,
        join_s: 79.0,
        replaced: true,
    };
    let speed = |counts: &[u32]| 4.5 * f64::from(counts[0]);
    let mut job = Job::new(speed(&[8]) * 86_400.0, vec![servers], 864_000.0);
    job.checkpoints = Some(Checkpoints { period_s: 600.0, time_s: 4.0 });
    for (name, losses) in [("elastic", Losses::ELASTIC), ("rigid", Losses::RIGID), ("chief", Losses::CHIEF)] {
        job.losses = losses;
        let begin = Instant::now();
        let outcomes = simulate(&job, speed, RUNS, 1).expect("the job can be run");
        let wall_s = begin.elapsed().as_secs_f64();
        println!("{name}: {RUNS} runs of 8 workers for 24 h in {wall_s:.3} s");
        let (time_s, losses) = (outcomes.time_s(), outcomes.losses().mean);
        println!(
            "  {:.1} % finish, cost {:.2}, {losses:.1} losses",
            100.0 * outcomes.finished().value,
            outcomes.cost().mean
        );
        if outcomes.finished().value > 0.0 {
            let p95_s = outcomes.time_quantile_s(0.95).value;
            println!("  {:.0} s +- {:.0} s, of 95 % at most {p95_s:.0} s", time_s.mean, time_s.half_width);
        }
    }
    for count in [8, 64] {
        job.losses = Losses::ELASTIC;
        job.servers[0].count = count;
        job.work = speed(&[count]) * 86_400.0;
        let begin = Instant::now();
        let sum: f64 = (0..ROUNDS)
            .filter_map(|_| expected(&job, speed).expect("the job can be run"))
            .map(|course| course.time_s)
            .sum();
        let each_us = 1e6 * begin.elapsed().as_secs_f64() / f64::from(ROUNDS);
        println!("expected course of {count} workers: {:.0} s, in {each_us:.0} us", sum / f64::from(ROUNDS));
    }
    let begin = Instant::now();
    let period_s = best_period_s(&law, 8, 4.0).expect("a law and a time").expect("servers are lost");
    println!("best period: {period_s:.0} s, in {:.2} ms", 1e3 * begin.elapsed().as_secs_f64());
}
