//! How fast federations are judged: exact and sampled splits, the linear programs, and the best structure.
//!
//! `cargo run --release -p bellwether-federation --example splits_speed`
//!
//! Two kinds of game. *Queues*: clouds of 5 to 40 servers whose requests do not wait (M/M/s/s), all shared, with
//! loads from 0.3 to 1.6: what they forward less together, in closed form. *Random*: values between 0 and 1 times
//! the members of the coalition, whose core is empty. Milliseconds are the fastest of some runs of one thread.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::hint::black_box;
use std::time::Instant;

use bellwether_federation::game::sampling::{Sampling, sample};
use bellwether_federation::game::{Coalition, Game, advice, least_core, nucleolus, shapley};
use bellwether_testkit::Random;

struct Cloud {
    arrivals: f64,
    servers: u32,
}

fn clouds(count: usize, seed: u64) -> Vec<Cloud> {
    let mut stream = Random(seed);
    let cloud = |_| {
        let servers = stream.between(5.0, 41.0) as u32;
        Cloud { arrivals: f64::from(servers) * stream.between(0.3, 1.6), servers }
    };
    (0..count).map(cloud).collect()
}

/// What clouds forward together: Erlang's formula, by its recurrence.
fn forwarded<'a>(clouds: impl Iterator<Item = &'a Cloud>) -> f64 {
    let (arrivals, servers) = clouds
        .fold((0.0, 0), |(arrivals, servers), cloud| (arrivals + cloud.arrivals, servers + cloud.servers));
    if arrivals == 0.0 {
        return 0.0;
    }
    arrivals / (1..=servers).fold(1.0, |inverse, server| 1.0 + inverse * f64::from(server) / arrivals)
}

fn queues(members: usize, seed: u64) -> Game {
    let clouds = clouds(members, seed);
    let cost = |coalition: Coalition| forwarded(coalition.members().map(|member| &clouds[member]));
    let costs: Vec<f64> = Coalition::everyone(members).subsets().map(cost).collect();
    Game::savings(members, &costs).expect("a game")
}

fn random(members: usize, seed: u64) -> Game {
    let mut stream = Random(seed);
    Game::from_values(members, |coalition| coalition.size() as f64 * stream.between(0.0, 1.0))
        .expect("a game")
}

/// Milliseconds per call, the fastest of some.
fn time_ms<T>(repeats: u32, run: impl Fn() -> T) -> f64 {
    let one = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..repeats).map(one).fold(f64::INFINITY, f64::min)
}

fn row(what: &str, members: usize, ms: f64, found: &str) {
    println!("| {what} | {members} | {ms:.3} | {found} |");
}

fn main() {
    println!("| what | members | ms | found |\n|---|---|---|---|");
    let game = time_ms(3, || shapley::exact(&queues(12, 1)));
    row("values of queues and Shapley, exact", 12, game, "");
    for members in [12, 15, 20] {
        let game = random(members, 1);
        row("Shapley of given values, exact", members, time_ms(3, || shapley::exact(&game)), "");
    }
    for seed in 1..=3 {
        let clouds = clouds(50, seed);
        let wish = Sampling { half_width: 0.01, most_values: 10_000_000, seed };
        let alone: Vec<f64> = clouds.iter().map(|cloud| forwarded(std::iter::once(cloud))).collect();
        let saved = |members: &Vec<usize>| {
            members.iter().map(|&member| alone[member]).sum::<f64>()
                - forwarded(members.iter().map(|&member| &clouds[member]))
        };
        let run = || sample(50, &wish, |all| Ok::<_, ()>(all.iter().map(saved).collect())).expect("values");
        let found = run();
        let whole: f64 = found.members.iter().map(|member| member.mean).sum();
        let widest = found.members.iter().map(|member| member.half_width / whole).fold(0.0, f64::max);
        let words = format!("{} values, widest half-width {:.2} % of v(N)", found.values, 100.0 * widest);
        row("values of queues and Shapley, sampled to 1 %", 50, time_ms(3, run), &words);
    }
    type Kind = (&'static str, fn(usize, u64) -> Game);
    let kinds: [Kind; 2] = [("queues", queues), ("random", random)];
    for (kind, members) in kinds.into_iter().flat_map(|kind| [5, 10, 15, 20].map(|members| (kind, members))) {
        let (name, game) = (kind.0, kind.1(members, 1));
        let repeats = if members == 20 { 1 } else { 3 };
        let ms = time_ms(repeats, || least_core::least_core(&game));
        row(
            &format!("least core, {name}"),
            members,
            ms,
            &format!("{:.3e}", least_core::least_core(&game).excess),
        );
        if members <= nucleolus::MOST_MEMBERS {
            row(&format!("nucleolus, {name}"), members, time_ms(repeats, || nucleolus::nucleolus(&game)), "");
        }
        row(&format!("advice, {name}"), members, time_ms(repeats, || advice::advise(&game)), "");
        let ms = time_ms(repeats, || game.superadditivity());
        row(&format!("superadditivity, {name}"), members, ms, "");
    }
}
