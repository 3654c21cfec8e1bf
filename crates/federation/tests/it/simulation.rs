//! The simulated federation against exact theory: Erlang's formulae, Pollaczek's, and small chains solved here.

use crate::systems::{chain, class, grand, poisson, precise};
use bellwether_des::statistics::Interval;
use bellwether_federation::queue::simulation::{
    Admission, Arrivals, Class, Group, Law, Length, Priority, Simulator, Site, State, Summary, System,
    Target, replicate, run_once,
};

/// Whether an exact value lies within twice the half-width: fifty true statements of this file would fail by chance
/// in one of two hundred seeds.
fn near(interval: &Interval, exact: f64) {
    let off = (interval.mean - exact).abs();
    assert!(off <= 2.0 * interval.half_width + 1e-12, "{interval:?} is far from {exact}");
}

/// Jobs per second that M/M/s/c forwards, and the seconds that those wait whom it takes; service of mean 1.
fn erlang(arrivals_per_s: f64, servers: u32, most: u32) -> (f64, f64) {
    let mut weights = vec![1.0];
    for jobs in 1..=most {
        let before: f64 = weights[weights.len() - 1];
        weights.push(before * arrivals_per_s / f64::from(jobs.min(servers)));
    }
    let all: f64 = weights.iter().sum();
    let full = weights[weights.len() - 1] / all;
    let waiting: f64 = (servers..=most).map(|jobs| f64::from(jobs - servers) * weights[jobs as usize]).sum();
    (arrivals_per_s * full, waiting / all / (arrivals_per_s * (1.0 - full)))
}

/// The stationary probabilities of a chain with these transitions, by elimination of states (Grassmann, Taksar and
/// Heyman), which subtracts nothing.
fn stationary(states: usize, transitions: &[(usize, usize, f64)]) -> Vec<f64> {
    let mut rates = vec![vec![0.0; states]; states];
    transitions
        .iter()
        .filter(|(from, to, _)| from != to)
        .for_each(|(from, to, rate)| rates[*from][*to] += rate);
    for last in (1..states).rev() {
        let out: f64 = rates[last][..last].iter().sum();
        for from in 0..last {
            rates[from][last] /= out;
            for to in 0..last {
                rates[from][to] += rates[from][last] * rates[last][to];
            }
        }
    }
    let mut weights = vec![1.0];
    while weights.len() < states {
        let state = weights.len();
        weights.push(weights.iter().zip(&rates).map(|(weight, rates)| weight * rates[state]).sum());
    }
    let all: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / all).collect()
}

#[test]
fn a_site_alone_is_erlangs() {
    for (arrivals_per_s, servers, wait_s) in
        [(100.0, 100, 0.0), (50.0, 50, 0.1), (10.0, 10, 0.5), (70.0, 50, 0.1)]
    {
        let summary = precise(&chain(&[(arrivals_per_s, servers, 0, wait_s)]), 100.0, 2000.0);
        let most = servers + (f64::from(servers) * wait_s) as u32;
        let (forwarded_per_s, waits_s) = erlang(arrivals_per_s, servers, most);
        near(&summary.forwarded_per_s, forwarded_per_s);
        let only = &summary.sites[0];
        near(&only.forwarded_share, forwarded_per_s / arrivals_per_s);
        near(&only.arrivals_per_s, arrivals_per_s);
        // How much arrives is known, and so is what home and cloud get together.
        let all_per_s = only.home_per_s.mean + only.forwarded_per_s.mean;
        assert!((all_per_s / arrivals_per_s - 1.0).abs() < 1e-9, "{all_per_s}");
        near(&only.wait_s, waits_s);
        near(&only.utilisation, (arrivals_per_s - forwarded_per_s) / f64::from(servers));
    }
}

#[test]
fn sites_that_share_everything_are_one() {
    let summary = precise(&chain(&[(100.0, 100, 100, 0.0), (100.0, 100, 100, 0.0)]), 100.0, 500.0);
    let (forwarded_per_s, _) = erlang(200.0, 200, 200);
    near(&summary.forwarded_per_s, forwarded_per_s);
    for site in &summary.sites {
        near(&site.forwarded_per_s, forwarded_per_s / 2.0);
        // Neither home nor law tells them apart.
        near(&site.lent, site.borrowed.mean);
    }
}

/// Erlang's loss formula holds for every law of the work with the same mean.
#[test]
fn what_is_lost_without_waiting_depends_on_no_law() {
    let (forwarded_per_s, _) = erlang(20.0, 20, 20);
    for law in [
        Law::Deterministic,
        Law::Exponential,
        Law::Lognormal { variation: 1.5 },
        Law::Hyperexponential { squared_variation: 5.0 },
        Law::Pareto { shape: 3.5 },
    ] {
        let system = System { classes: vec![class(law)], ..chain(&[(20.0, 20, 0, 0.0)]) };
        near(&precise(&system, 100.0, 2000.0).forwarded_per_s, forwarded_per_s);
    }
}

/// Pollaczek's formula: one server, and no job is forwarded.
#[test]
fn one_server_waits_as_its_second_moment_says() {
    for (law, squared_variation) in [
        (Law::Deterministic, 0.0),
        (Law::Exponential, 1.0),
        (Law::Lognormal { variation: 0.5 }, 0.25),
        (Law::Hyperexponential { squared_variation: 4.0 }, 4.0),
    ] {
        let system = System { classes: vec![class(law)], ..chain(&[(0.6, 1, 0, 1e6)]) };
        let simulator = grand(&system, Length::Arrivals { warm_up: 2e3, measured: 2e4 });
        let target = Target { relative: 0.0, absolute_per_s: 0.0, least: 30, most: 30 };
        let only = &replicate(&simulator, 1, &target).sites[0];
        near(&only.wait_s, 0.6 * (1.0 + squared_variation) / 2.0 / (1.0 - 0.6));
        // None was seen, which does not prove that there are none.
        assert!(only.forwarded_per_s.mean == 0.0 && only.forwarded_per_s.half_width > 0.0);
        assert!(only.wait_s.relative() < 0.05, "{:?}", only.wait_s);
    }
}

/// Two states, five servers, three who wait.
#[test]
fn bursts_are_lost_as_their_chain_says() {
    let states =
        vec![State { rate_per_s: 8.0, mean_stay_s: 3.0 }, State { rate_per_s: 1.0, mean_stay_s: 5.0 }];
    let mut transitions = Vec::new();
    for (state, law) in states.iter().enumerate() {
        for jobs in 0..=8 {
            let at = state * 9 + jobs;
            transitions.push((at, (1 - state) * 9 + jobs, 1.0 / law.mean_stay_s));
            transitions.push((at, at + usize::from(jobs < 8), law.rate_per_s));
            transitions.push((at, at - usize::from(jobs > 0), jobs.min(5) as f64));
        }
    }
    let at = stationary(18, &transitions);
    let mut system = chain(&[(0.0, 5, 0, 0.6)]);
    system.sites[0].demands[0].arrivals = Arrivals::Modulated { states };
    let summary = precise(&system, 50.0, 5000.0);
    near(&summary.forwarded_per_s, 8.0 * at[8] + at[17]);
    near(&summary.sites[0].arrivals_per_s, (8.0 * 3.0 + 5.0) / 8.0);
}

/// The smallest case with homes and a pool: two sites of two servers, one shared each, one of which waits.
#[test]
fn homes_and_pool_are_the_published_chain() {
    let (rates, bounds) = ([1.5, 2.0], [[1, 2], [2, 4]]);
    let index = |a: usize, b: usize, pool: usize| (a * 3 + b) * 5 + pool;
    let (mut transitions, mut states) = (Vec::new(), Vec::new());
    for a in 0..=bounds[0][0] {
        for b in 0..=bounds[1][0] {
            for pool in 0..=4 {
                let at = index(a, b, pool);
                states.push((a, b, pool));
                let to_pool = |limit: usize| if pool < limit { index(a, b, pool + 1) } else { at };
                transitions.push((at, if a < 1 { index(a + 1, b, pool) } else { to_pool(2) }, rates[0]));
                transitions.push((at, if b < 2 { index(a, b + 1, pool) } else { to_pool(4) }, rates[1]));
                transitions.push((at, index(a - a.min(1), b, pool), a.min(1) as f64));
                transitions.push((at, index(a, b - b.min(1), pool), b.min(1) as f64));
                transitions.push((at, index(a, b, pool - pool.min(1)), pool.min(2) as f64));
            }
        }
    }
    // States of the pool that are not reached without jobs of the second site are reached all the same.
    let at = stationary(states.len(), &transitions);
    let probability = |full: &dyn Fn(usize, usize, usize) -> bool| -> f64 {
        states.iter().zip(&at).filter(|((a, b, pool), _)| full(*a, *b, *pool)).map(|(_, p)| p).sum()
    };
    let summary = precise(&chain(&[(1.5, 2, 1, 0.0), (2.0, 2, 1, 1.0)]), 50.0, 5000.0);
    near(&summary.sites[0].forwarded_per_s, 1.5 * probability(&|a, _, pool| a == 1 && pool >= 2));
    near(&summary.sites[1].forwarded_per_s, 2.0 * probability(&|_, b, pool| b == 2 && pool == 4));
    let pool_busy: f64 = states.iter().zip(&at).map(|((.., pool), p)| (*pool).min(2) as f64 * p).sum();
    let home_busy = probability(&|a, _, _| a > 0) + probability(&|_, b, _| b > 0);
    let busy = |site: usize| summary.sites[site].utilisation.mean * 2.0;
    assert!((busy(0) + busy(1) - pool_busy - home_busy).abs() < 0.02);
}

/// Owners wait before borrowers: three servers of the first site, whose two jobs may wait at home, and the pool's line
/// of two from either.
#[test]
fn owners_are_served_before_borrowers() {
    let (own_per_s, other_per_s) = (2.0, 1.5);
    let index = |busy: usize, own: usize, pool: usize| if busy < 3 { busy } else { 3 + own * 4 + pool };
    let mut transitions = Vec::new();
    for busy in 0..3 {
        transitions.push((busy, busy + 1, own_per_s + other_per_s));
        transitions.push((busy + 1, busy, (busy + 1) as f64 * f64::from(u8::from(busy < 2))));
    }
    for own in 0..=3 {
        for pool in 0..=3 {
            let at = index(3, own, pool);
            let waits = if pool < 3 { index(3, own, pool + 1) } else { at };
            transitions.push((at, if own < 3 { index(3, own + 1, pool) } else { waits }, own_per_s));
            transitions.push((at, waits, other_per_s));
            let next = match (own, pool) {
                (0, 0) => 2,
                (0, _) => index(3, 0, pool - 1),
                _ => index(3, own - 1, pool),
            };
            transitions.push((at, next, 3.0));
        }
    }
    let at = stationary(19, &transitions);
    let full = |own: usize| at[index(3, own, 3)];
    let mut system = chain(&[(own_per_s, 3, 3, 1.0), (other_per_s, 0, 0, 1.0)]);
    system.priority = Priority::Owners;
    let summary = precise(&system, 50.0, 5000.0);
    near(&summary.sites[0].forwarded_per_s, own_per_s * full(3));
    near(&summary.sites[1].forwarded_per_s, other_per_s * (0..=3).map(full).sum::<f64>());
    near(&summary.sites[0].lent, summary.sites[1].borrowed.mean);
    assert!(summary.sites[0].wait_s.high() < summary.sites[1].wait_s.low());
}

/// A fast and a slow server without a line: the fast one is taken first.
#[test]
fn the_fastest_free_server_is_taken_first() {
    let (arrivals_per_s, fast, slow) = (1.0, 2.0, 0.5);
    // None, fast, slow, both.
    let transitions = [
        (0, 1, arrivals_per_s),
        (1, 3, arrivals_per_s),
        (2, 3, arrivals_per_s),
        (1, 0, fast),
        (2, 0, slow),
        (3, 2, fast),
        (3, 1, slow),
    ];
    let at = stationary(4, &transitions);
    let system = System {
        classes: vec![Class { speeds: vec![slow, fast], ..class(Law::Exponential) }],
        sites: vec![Site {
            groups: [0, 1].map(|kind| Group { kind, servers: 1, shared: 0 }).to_vec(),
            demands: poisson(arrivals_per_s),
            longest_wait_s: 0.0,
        }],
        ..chain(&[])
    };
    let summary = precise(&system, 50.0, 10_000.0);
    near(&summary.forwarded_per_s, arrivals_per_s * at[3]);
    near(&summary.sites[0].utilisation, (at[1] + at[2]) / 2.0 + at[3]);
}

/// Work away from home holds servers for the transfer too; without waiting only the mean matters.
#[test]
fn a_transfer_is_served_too() {
    let mut system = chain(&[(0.0, 20, 20, 0.0), (12.0, 0, 0, 0.0)]);
    system.classes[0].transfer_s = 0.5;
    let summary = precise(&system, 50.0, 3000.0);
    let (forwarded, _) = erlang(18.0, 20, 20);
    near(&summary.sites[1].forwarded_share, forwarded / 18.0);
    near(&summary.sites[0].lent, 18.0 - forwarded);
}

/// Admission by estimate lets one more wait than by count, when the room is not a whole number.
#[test]
fn an_estimate_rounds_up_where_a_count_rounds_down() {
    let system = |admission, wait_s| System { admission, ..chain(&[(5.0, 4, 0, wait_s)]) };
    for (wait_s, by_count, by_estimate) in [(0.0, 4, 4), (0.5, 6, 6), (0.6, 6, 7), (0.1, 4, 5)] {
        for (admission, most) in [(Admission::Count, by_count), (Admission::Estimate, by_estimate)] {
            let summary = precise(&system(admission, wait_s), 50.0, 3000.0);
            near(&summary.forwarded_per_s, erlang(5.0, 4, most).0);
        }
    }
}

fn unequal() -> System {
    chain(&[(40.0, 50, 20, 0.2), (60.0, 50, 10, 0.0)])
}

/// One stop rule for all: what it promises is what it returns.
#[test]
fn replications_end_when_the_interval_is_narrow_or_there_are_enough() {
    let simulator = grand(&unequal(), Length::Arrivals { warm_up: 1e3, measured: 1e4 });
    let run = |relative, most| -> (Summary, Target) {
        let target = Target { relative, absolute_per_s: 0.0, least: 10, most };
        (replicate(&simulator, 7, &target), target)
    };
    let (wide, target) = run(0.2, 1000);
    assert!(wide.reached(&target) && wide.replications >= 10);
    let (narrow, target) = run(0.02, 1000);
    assert!(narrow.reached(&target) && narrow.replications > wide.replications);
    let (cut, target) = run(1e-6, 12);
    assert!(!cut.reached(&target) && cut.replications == 12);
}

/// The difference that a member makes is known better than either total: the others' luck is the same.
#[test]
fn coalitions_share_their_luck() {
    let system = chain(&[(100.0, 100, 100, 0.0), (100.0, 100, 100, 0.0), (10.0, 10, 0, 0.0)]);
    let length = Length::Seconds { warm_up: 50.0, measured: 500.0 };
    let run = |members: &[usize], replication| {
        let simulator = Simulator::new(&system, members, &length).expect("a proper system");
        run_once(&simulator, 3, replication)
    };
    for replication in 0..3 {
        let (all, pair, alone) =
            (run(&[0, 1, 2], replication), run(&[0, 2], replication), run(&[2], replication));
        let arrivals = |run: &bellwether_federation::queue::simulation::Replication, site: usize| {
            run.sites[site].total().arrivals
        };
        assert_eq!(arrivals(&all, 0), arrivals(&pair, 0));
        assert_eq!(arrivals(&all, 2), arrivals(&pair, 1));
        assert_eq!(arrivals(&all, 2), arrivals(&alone, 0));
    }
}
