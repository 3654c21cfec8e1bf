//! Compares the goodput optimiser with a genetic algorithm after the published description, in fitness and in time.
//!
//! `cargo run --release -p bellwether-sched --example goodput_speed [-- SEEDS]`
//!
//! 160 jobs over the tables of bert, cifar10, deepspeech2 and ncf on 16 nodes of 4 GPUs; restart 30 s, p = -1.
//!
//! - *Driven*: jobs arrive by a Poisson process over 40 minutes, a decision every 60 s. The genetic algorithm
//!   (population 100, 100 generations a decision, population kept from decision to decision) decides what is done; the
//!   optimiser is asked the same question each time.
//! - *Snapshots*: 10 to 160 jobs of different ages hold nothing, or what an earlier decision gave them; the genetic
//!   algorithm starts with what they hold and gets 100 generations, then 900 more.

#![allow(clippy::print_stdout)]

#[path = "goodput_speed/genetic.rs"]
mod genetic;
#[path = "goodput_speed/workload.rs"]
mod workload;

use std::time::Instant;

use bellwether_sched::goodput::{bound, fitness, optimise};
use genetic::Population;
use workload::{Random, Tables, World};

const SEEDS: u64 = 20;
const GENERATIONS: u32 = 100;
const DECISIONS: u32 = 50;
const REPEATS: u32 = 3;
const ROUNDING: f64 = 1.0 - 1e-9;

/// One question and both answers.
struct Answer {
    jobs: usize,
    ours: f64,
    theirs: f64,
    bound: f64,
    ours_s: f64,
    theirs_s: f64,
}

fn main() {
    let seeds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let tables = Tables::new();
    println!("driven by the genetic algorithm, {DECISIONS} decisions a seed");
    println!(
        "seed  decisions  ours>=GA  mean ratio  least ratio  mean ours/bound  ours ms (mean, most)  GA ms"
    );
    let mut all = Vec::new();
    let mut won = 0;
    for seed in 1..=seeds {
        let answers = driven(World::new(&tables, seed), seed);
        won += u32::from(mean(&answers, |a| a.ours / a.theirs) >= 1.0);
        println!("{seed:4}  {}", line(&answers));
        all.extend(answers);
    }
    println!(" all  {}", line(&all));
    println!("seeds whose mean ratio is at least 1: {won} of {seeds}");
    for (from, to) in [(1, 16), (17, 32), (33, 64), (65, 159), (160, 160)] {
        let some: Vec<Answer> = all.extract_if(.., |a| (from..=to).contains(&a.jobs)).collect();
        if !some.is_empty() {
            println!("{from:3} to {to:3} jobs  {}", line(&some));
        }
    }
    for (what, generations) in [("100 generations", GENERATIONS), ("1,000 generations", 10 * GENERATIONS)] {
        for held in [false, true] {
            println!(
                "snapshots, {what}, jobs hold {}",
                if held { "what was decided before" } else { "nothing" }
            );
            for jobs in [10, 20, 40, 80, 160] {
                let ask = |seed| snapshot(World::snapshot(&tables, seed, jobs, held), seed, generations);
                let answers: Vec<Answer> = (1..=seeds).map(ask).collect();
                println!("{jobs:3} jobs  {}", line(&answers));
            }
        }
    }
}

fn driven(mut world: World, seed: u64) -> Vec<Answer> {
    let mut population = Population::default();
    let mut random = Random::new(seed ^ 0xabcd);
    let mut answers = Vec::new();
    for _ in 0..DECISIONS {
        world.advance();
        if world.active().is_empty() {
            continue;
        }
        let (answer, decided) = ask(&world, &mut population, &mut random, GENERATIONS);
        answers.push(answer);
        world.apply(&decided);
    }
    answers
}

fn snapshot(world: World, seed: u64, generations: u32) -> Answer {
    ask(&world, &mut Population::default(), &mut Random::new(seed ^ 0xabcd), generations).0
}

/// Asks both; the allocations are those of the genetic algorithm.
fn ask(
    world: &World,
    population: &mut Population,
    random: &mut Random,
    generations: u32,
) -> (Answer, Vec<bellwether_core::cluster::Allocation>) {
    world.with_problem(|problem| {
        // It answers the same each time: the least of several times is the least disturbed one.
        let (mut found, mut ours_s) = (Vec::new(), f64::INFINITY);
        for _ in 0..REPEATS {
            let begin = Instant::now();
            found = optimise(problem);
            ours_s = ours_s.min(begin.elapsed().as_secs_f64());
        }
        let begin = Instant::now();
        let evolved = population.evolve(problem, world.active(), generations, random);
        let theirs_s = begin.elapsed().as_secs_f64();
        let answer = Answer {
            jobs: problem.jobs.len(),
            ours: fitness(problem, &found),
            theirs: fitness(problem, &evolved),
            bound: bound(problem),
            ours_s,
            theirs_s,
        };
        (answer, evolved)
    })
}

fn mean(answers: &[Answer], of: impl Fn(&Answer) -> f64) -> f64 {
    answers.iter().map(of).sum::<f64>() / answers.len() as f64
}

fn line(answers: &[Answer]) -> String {
    let ratio = |a: &Answer| a.ours / a.theirs;
    let won = answers.iter().filter(|a| ratio(a) >= ROUNDING).count();
    let least = answers.iter().map(ratio).fold(f64::INFINITY, f64::min);
    let most_ms = answers.iter().map(|a| 1e3 * a.ours_s).fold(0.0, f64::max);
    format!(
        "{:9}  {won:8}  {:10.4}  {least:11.4}  {:15.4}  {:8.2} {:8.2}  {:12.1}",
        answers.len(),
        mean(answers, ratio),
        mean(answers, |a| a.ours / a.bound),
        mean(answers, |a| 1e3 * a.ours_s),
        most_ms,
        mean(answers, |a| 1e3 * a.theirs_s),
    )
}
