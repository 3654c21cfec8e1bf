//! The simulated federation against the chain, at published cases (Song, Paolieri and Golubchik, IEEE CLOUD 2022).
//!
//! `examples/federation_agreement.rs` prints all of them.

use crate::systems::{chain, grand};
use bellwether_des::statistics::{Interval, student_quantile};
use bellwether_federation::queue::simulation::{
    Length, Replication, Simulator, Summary, Target, replicate, run_once, saving, summarise,
};
use bellwether_federation::queue::{Cloud, Federation, Limits, Overflow, overflow};

type Clouds = &'static [(f64, u32, u32, f64)];

/// Arrivals per second, servers, shared ones, longest wait in seconds.
const CASES: [Clouds; 20] = [
    &[(100.0, 100, 0, 0.0)],
    &[(100.0, 100, 100, 0.0), (100.0, 100, 100, 0.0)],
    &[(100.0, 100, 100, 0.0), (100.0, 100, 100, 1.0)],
    &[(100.0, 100, 100, 0.0), (100.0, 100, 100, 0.0), (100.0, 100, 100, 1.0)],
    &[(30.0, 50, 50, 0.0), (150.0, 50, 50, 0.0)],
    &[(50.0, 50, 50, 0.0), (150.0, 50, 50, 0.0)],
    &[(100.0, 50, 50, 0.0), (150.0, 50, 50, 0.0)],
    &[(100.0, 50, 50, 0.0), (10.0, 50, 50, 0.0)],
    &[(50.0, 50, 50, 0.0), (100.0, 100, 100, 10.0)],
    &[(50.0, 50, 0, 0.0), (50.0, 50, 0, 1.0)],
    &[(50.0, 50, 10, 0.0), (50.0, 50, 0, 1.0)],
    &[(50.0, 50, 10, 0.0), (50.0, 50, 2, 1.0)],
    &[(50.0, 50, 50, 0.0), (50.0, 50, 50, 1.0)],
    &[(10.0, 50, 50, 0.0), (150.0, 50, 0, 0.0)],
    &[(10.0, 50, 25, 0.0), (150.0, 50, 25, 0.0)],
    &[(150.0, 50, 50, 0.0), (150.0, 50, 50, 0.0)],
    &[(10.0, 30, 30, 0.0), (70.0, 50, 50, 0.0), (140.0, 100, 100, 0.0)],
    &[(30.0, 50, 50, 0.0), (30.0, 100, 100, 0.0), (150.0, 50, 50, 0.0)],
    &[(50.0, 50, 50, 0.0), (50.0, 50, 50, 0.0), (200.0, 200, 200, 1.0)],
    &[
        (10.0, 30, 30, 0.0),
        (50.0, 30, 30, 0.0),
        (30.0, 30, 30, 0.0),
        (50.0, 50, 50, 0.0),
        (100.0, 100, 100, 1.0),
    ],
];

fn solved(clouds: Clouds) -> Overflow {
    let cloud = |&(arrivals_per_s, servers, shared, longest_wait_s)| Cloud {
        arrivals_per_s,
        servers,
        shared,
        longest_wait_s,
    };
    let federation = Federation { service_per_s: 1.0, clouds: clouds.iter().map(cloud).collect() };
    overflow(&federation, &Limits::default()).expect("published cases have a chain")
}

/// Widens a 95 % interval so that all of `CASES` contain what is true at once, 95 times of 100.
fn jointly(interval: &Interval, replications: u64) -> Interval {
    // The mean and two controls are estimated.
    let quantile = |level: f64| student_quantile(0.5 + level / 2.0, (replications - 3) as f64);
    let wider = quantile(1.0 - 0.05 / CASES.len() as f64) / quantile(0.95);
    Interval { mean: interval.mean, half_width: interval.half_width * wider }
}

#[test]
fn intervals_narrower_than_two_percent_contain_the_chain() {
    // So narrow that even the wider, joint intervals are narrower than 2 %.
    let target = Target { relative: 0.0059, absolute_per_s: 0.0, least: 20, most: 400 };
    let mut inside = 0;
    for clouds in CASES {
        let exact = solved(clouds);
        let summary = replicate(&grand(&chain(clouds), Length::Suggested), 1, &target);
        assert!(summary.reached(&target), "{clouds:?}: {:?}", summary.forwarded_per_s);
        let joint = jointly(&summary.forwarded_per_s, summary.replications);
        assert!(joint.relative() < 0.01, "{clouds:?}: {joint:?}");
        assert!(joint.contains(exact.total_per_s()), "{clouds:?}: {joint:?}, exact {}", exact.total_per_s());
        inside += u32::from(summary.forwarded_per_s.contains(exact.total_per_s()));
        members_agree(clouds, &summary, &exact);
    }
    // Of twenty true statements at 95 %, five or more are false once in four hundred times.
    assert!(inside >= 16, "{inside} of {} intervals at 95 % contain the chain's value", CASES.len());
}

/// Each member's jobs, and the waits of all of them, within three half-widths: hundreds of statements.
fn members_agree(clouds: Clouds, summary: &Summary, exact: &Overflow) {
    let near = |what: &str, interval: &Interval, exact: f64| {
        let off = (interval.mean - exact).abs();
        assert!(off <= 3.0 * interval.half_width + 1e-3, "{clouds:?}: {what} {interval:?}, exact {exact}");
    };
    let mut waiting = 0.0;
    for (number, site) in summary.sites.iter().enumerate() {
        near("forwarded", &site.forwarded_per_s, exact.forwarded_per_s[number]);
        near("at home", &site.home_per_s, exact.at_home_per_s[number]);
        near("in the pool", &site.pool_per_s, exact.in_pool_per_s[number]);
        // Little's law.
        waiting += site.wait_s.mean * (site.home_per_s.mean + site.pool_per_s.mean);
    }
    let exact_waiting = exact.waiting_in_pool + exact.waiting_at_home.iter().sum::<f64>();
    assert!(
        (waiting - exact_waiting).abs() < 0.1 + 0.05 * exact_waiting,
        "{clouds:?}: {waiting}, {exact_waiting}"
    );
    let lent: f64 = summary.sites.iter().map(|site| site.lent.mean).sum();
    let borrowed: f64 = summary.sites.iter().map(|site| site.borrowed.mean).sum();
    assert!((lent - borrowed).abs() < 1e-6 * (1.0 + lent));
}

/// Replications that share their luck know what a coalition saves better than the totals that it is the difference of.
#[test]
fn savings_are_the_chains_and_narrower_than_their_parts() {
    const FIGURE_2: Clouds = &[(100.0, 100, 100, 0.0), (100.0, 100, 100, 0.0), (100.0, 100, 100, 1.0)];
    let system = chain(FIGURE_2);
    let length = Length::Arrivals { warm_up: 3e4, measured: 3e5 };
    let runs = |members: &[usize]| -> Vec<Replication> {
        let simulator = Simulator::new(&system, members, &length).expect("a proper system");
        (0..20).map(|replication| run_once(&simulator, 1, replication)).collect()
    };
    let alone = [runs(&[0]), runs(&[1]), runs(&[2])];
    for (members, exact) in [(&[0, 1][..], 4.27), (&[0, 2], -1.86), (&[1, 2], -1.86), (&[0, 1, 2], 2.91)] {
        let together = runs(members);
        let parts: Vec<&[Replication]> = members.iter().map(|member| alone[*member].as_slice()).collect();
        let saved = saving(&parts, &together);
        assert!(
            (saved.mean - exact).abs() < 2.0 * saved.half_width + 0.005,
            "{members:?}: {saved:?}, {exact}"
        );
        let squares = |runs: &[Replication]| summarise(runs).forwarded_per_s.half_width.powi(2);
        let independent = (squares(&together) + parts.iter().map(|runs| squares(runs)).sum::<f64>()).sqrt();
        println!("{members:?} {saved:?} {independent}");
        assert!(saved.half_width < independent, "{members:?}: {saved:?}, not below {independent}");
        assert!(saved.high() < 0.0 || saved.low() > 0.0, "{members:?}: {saved:?} leaves the sign open");
    }
}
