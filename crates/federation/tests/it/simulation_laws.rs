//! What a simulated federation keeps whatever its numbers, and what it refuses.

use crate::systems::{chain, class, grand, poisson};
use bellwether_federation::queue::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Length, Priority, Replication, Simulator, Site, State,
    System, Work, run_once,
};
use proptest::prelude::*;

const LENGTH: Length = Length::Seconds { warm_up: 5.0, measured: 60.0 };

fn works() -> impl Strategy<Value = Work> {
    let law = prop_oneof![
        Just(Law::Deterministic),
        Just(Law::Exponential),
        (0.1..3.0).prop_map(|variation| Law::Lognormal { variation }),
        (1.0..9.0).prop_map(|squared_variation| Law::Hyperexponential { squared_variation }),
        (1.2..4.0).prop_map(|shape| Law::Pareto { shape }),
    ];
    (0.2..3.0, law).prop_map(|(mean, law)| Work { mean, law })
}

/// Two types; the second may be one on which the class cannot run.
fn classes() -> impl Strategy<Value = Class> {
    (works(), 1..4u32, 0.5..3.0, prop_oneof![Just(0.0), 0.5..3.0], 0.0..0.5).prop_map(
        |(work, devices, first, second, transfer_s)| Class {
            work,
            devices,
            speeds: vec![first, second],
            transfer_s,
        },
    )
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let state = (0.0..9.0, 0.5..9.0).prop_map(|(rate_per_s, mean_stay_s)| State { rate_per_s, mean_stay_s });
    let gaps = prop::collection::vec((0.0..1.0, 0.0..3.0), 1..40);
    let trace = (gaps, any::<bool>()).prop_map(|(gaps, cyclic)| {
        let mut now_s = 0.0;
        let mut jobs = Vec::new();
        for (gap_s, work) in gaps {
            now_s += gap_s;
            jobs.push((now_s, work));
        }
        Arrivals::Trace { jobs, period_s: cyclic.then_some(now_s + 0.5) }
    });
    prop_oneof![
        (0.0..9.0).prop_map(|rate_per_s| Arrivals::Poisson { rate_per_s }),
        prop::collection::vec(state, 2..4).prop_map(|states| Arrivals::Modulated { states }),
        trace,
    ]
}

fn sites() -> impl Strategy<Value = Site> {
    let group = (0..2usize, 0..9u32, 0..9u32).prop_map(|(kind, servers, shared)| Group {
        kind,
        servers,
        shared: shared.min(servers),
    });
    let demand = (0..2usize, arrivals()).prop_map(|(class, arrivals)| Demand { class, arrivals });
    (
        prop::collection::vec(group, 0..3),
        prop::collection::vec(demand, 0..3),
        prop_oneof![Just(0.0), 0.0..3.0],
    )
        .prop_map(|(groups, demands, longest_wait_s)| Site { groups, demands, longest_wait_s })
}

/// Any system; its first site has servers enough for every class.
fn systems() -> impl Strategy<Value = System> {
    (prop::collection::vec(classes(), 2), prop::collection::vec(sites(), 1..4), any::<bool>(), any::<bool>())
        .prop_map(|(classes, mut sites, count, owners)| {
            sites[0].groups.push(Group { kind: 0, servers: 6, shared: 3 });
            let admission = if count { Admission::Count } else { Admission::Estimate };
            let priority = if owners { Priority::Owners } else { Priority::NoOne };
            System { classes, sites, admission, priority }
        })
}

fn run(system: &System, members: &[usize]) -> Replication {
    let simulator = Simulator::new(system, members, &LENGTH).expect("a proper system");
    run_once(&simulator, 1, 0)
}

fn all(system: &System) -> Vec<usize> {
    (0..system.sites.len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_appears(system in systems()) {
        let seen = run(&system, &all(&system));
        for counts in &seen.sites {
            let total = counts.total();
            prop_assert_eq!(total.arrivals, total.home + total.pool + total.forwarded);
            prop_assert_eq!(counts.in_system_before + total.home + total.pool, counts.finished + counts.in_system);
            prop_assert!(counts.late <= counts.started && counts.wait_s >= 0.0);
        }
        let sum = |figure: fn(&bellwether_federation::queue::simulation::Counts) -> f64| {
            seen.sites.iter().map(figure).sum::<f64>()
        };
        let (lent, borrowed) = (sum(|counts| counts.lent_device_s), sum(|counts| counts.borrowed_device_s));
        prop_assert!((lent - borrowed).abs() < 1e-6 * (1.0 + lent));
    }

    #[test]
    fn no_site_lends_more_than_it_shares_or_works_more_than_it_owns(system in systems()) {
        let seen = run(&system, &all(&system));
        for (counts, site) in seen.sites.iter().zip(&system.sites) {
            let shared: u32 = site.groups.iter().map(|group| group.shared).sum();
            let servers: u32 = site.groups.iter().map(|group| group.servers).sum();
            let most = |servers: u32| f64::from(servers) * seen.measured_s * (1.0 + 1e-9);
            prop_assert!(counts.lent_device_s <= most(shared));
            prop_assert!(counts.busy_device_s <= most(servers));
            prop_assert!(counts.lent_device_s <= counts.busy_device_s * (1.0 + 1e-9));
        }
    }

    #[test]
    fn who_asks_for_nothing_borrows_nothing_and_changes_no_other_arrivals(system in systems()) {
        let mut idle = system.clone();
        let last = idle.sites.len() - 1;
        idle.sites[last].demands.clear();
        let (with, without) = (run(&system, &all(&system)), run(&idle, &all(&idle)));
        prop_assert_eq!(without.sites[last].borrowed_device_s, 0.0);
        prop_assert_eq!(without.sites[last].total().arrivals, 0);
        for (a, b) in with.sites.iter().zip(&without.sites).take(last) {
            prop_assert_eq!(a.total().arrivals, b.total().arrivals);
        }
    }

    #[test]
    fn one_seed_one_story(system in systems()) {
        let simulator = grand(&system, LENGTH);
        prop_assert_eq!(run_once(&simulator, 3, 5), run_once(&simulator, 3, 5));
        prop_assert_eq!(run_once(&simulator.clone(), 3, 6), run_once(&simulator, 3, 6));
    }

    #[test]
    fn sites_that_share_nothing_are_as_if_alone(system in systems()) {
        let mut apart = system.clone();
        apart.sites.iter_mut().flat_map(|site| &mut site.groups).for_each(|group| group.shared = 0);
        let together = run(&apart, &all(&apart));
        for (number, counts) in together.sites.iter().enumerate() {
            // Alone, shared or not is the same.
            let alone = run(&system, &[number]);
            prop_assert_eq!(&alone.sites[0], counts);
        }
    }

    /// A gang of k on k times as many servers is a job of one.
    #[test]
    fn whole_gangs_are_single_servers(sites in prop::collection::vec((0.0..9.0, 0..9u32, 0..9u32, 0.0..2.0), 1..4), gang in 2..5u32) {
        let sites: Vec<(f64, u32, u32, f64)> =
            sites.into_iter().map(|(rate, servers, shared, wait)| (rate, servers + 1, shared.min(servers), wait)).collect();
        let single = chain(&sites);
        let times: Vec<_> = sites.iter().map(|(rate, servers, shared, wait)| (*rate, servers * gang, shared * gang, *wait)).collect();
        let mut gangs = chain(&times);
        gangs.classes[0].devices = gang;
        let (single, gangs) = (run(&single, &all(&single)), run(&gangs, &all(&gangs)));
        for (single, gangs) in single.sites.iter().zip(&gangs.sites) {
            prop_assert_eq!(&single.classes, &gangs.classes);
            prop_assert_eq!(single.wait_s, gangs.wait_s);
            let busy_s = gangs.busy_device_s / f64::from(gang);
            prop_assert!((single.busy_device_s - busy_s).abs() < 1e-6 * (1.0 + busy_s));
        }
    }

    /// Units of work and of time are only names.
    #[test]
    fn units_do_not_matter(system in systems(), exponent in -3..4i32) {
        let unit = 2f64.powi(exponent);
        let mut scaled = system.clone();
        for class in &mut scaled.classes {
            class.work.mean *= unit;
            class.speeds.iter_mut().for_each(|speed| *speed *= unit);
        }
        for demand in scaled.sites.iter_mut().flat_map(|site| &mut site.demands) {
            if let Arrivals::Trace { jobs, .. } = &mut demand.arrivals {
                jobs.iter_mut().for_each(|job| job.1 *= unit);
            }
        }
        let (a, b) = (run(&system, &all(&system)), run(&scaled, &all(&scaled)));
        for (a, b) in a.sites.iter().zip(&b.sites) {
            // Logarithms of lognormal work may round elsewhere.
            prop_assert_eq!(a.total().arrivals, b.total().arrivals);
            prop_assert!((a.busy_device_s - b.busy_device_s).abs() < 1e-3 * (1.0 + a.busy_device_s));
        }
    }
}

/// Three jobs by hand: two servers, the third waits for half a second, a fourth is sent away.
#[test]
fn a_trace_is_served_job_by_job() {
    let jobs = vec![(1.0, 2.0), (1.5, 1.0), (2.0, 4.0), (2.25, 1.0)];
    let mut system = chain(&[(0.0, 2, 0, 0.5)]);
    system.sites[0].demands[0].arrivals = Arrivals::Trace { jobs, period_s: None };
    let seen = run(&system, &[0]);
    // The warm-up of five seconds has seen all four arrive; the third works from 2.5 to 6.5.
    let counts = &seen.sites[0];
    assert_eq!((counts.total().arrivals, counts.in_system_before, counts.finished), (0, 1, 1));
    assert_eq!(counts.busy_device_s, 1.5);
    let simulator = grand(&system, Length::Suggested);
    let seen = run_once(&simulator, 1, 0);
    let counts = &seen.sites[0];
    assert_eq!((counts.total().arrivals, counts.total().home, counts.total().forwarded), (4, 3, 1));
    assert_eq!((seen.measured_s, counts.started, counts.in_system), (2.25, 2, 3));
    let whole = grand(&system, Length::Seconds { warm_up: 0.0, measured: 10.0 });
    let counts = &run_once(&whole, 1, 0).sites[0];
    assert_eq!((counts.wait_s, counts.late, counts.busy_device_s), (0.5, 0, 7.0));
}

/// A trace that repeats brings as many jobs per period as it has, wherever it begins.
#[test]
fn a_cyclic_trace_keeps_its_rate() {
    let jobs = vec![(0.0, 1.0), (0.5, 1.0), (3.0, 1.0)];
    let mut system = chain(&[(0.0, 9, 0, 0.0)]);
    system.sites[0].demands[0].arrivals = Arrivals::Trace { jobs, period_s: Some(4.0) };
    let simulator = grand(&system, Length::Seconds { warm_up: 8.0, measured: 40.0 });
    let mut phases = std::collections::BTreeSet::new();
    for replication in 0..10 {
        let counts = run_once(&simulator, 1, replication).sites.remove(0);
        assert_eq!(counts.total().arrivals, 30);
        phases.insert(counts.in_system);
    }
    assert!(phases.len() > 1, "every replication ends at the same point of the trace");
}

fn seen(class: usize, jobs: &[(f64, f64)]) -> Demand {
    Demand { class, arrivals: Arrivals::Trace { jobs: jobs.to_vec(), period_s: None } }
}

/// Jobs of one server (class 0) and of four (class 1), which wait for as long as it takes.
fn ones_and_fours(sites: &[(f64, u32, u32, f64)]) -> System {
    let mut system = chain(sites);
    system.admission = Admission::Estimate;
    system.classes.push(Class { devices: 4, ..class(Law::Exponential) });
    system
}

fn twenty_seconds(system: &System) -> Replication {
    run_once(&grand(system, Length::Seconds { warm_up: 0.0, measured: 20.0 }), 1, 0)
}

/// A gang of four waits and is not overtaken by single jobs for the servers that it waits for.
#[test]
fn a_gang_is_not_overtaken() {
    let mut system = ones_and_fours(&[(0.0, 4, 0, 100.0)]);
    system.sites[0].demands =
        vec![seen(0, &[(0.0, 2.0), (0.25, 3.0), (1.0, 1.0), (1.5, 1.0)]), seen(1, &[(0.5, 5.0)])];
    let counts = &twenty_seconds(&system).sites[0];
    // The gang starts at 3.25 when the second job ends; the two that came later start with it over, at 8.25.
    assert_eq!(counts.wait_s, 2.75 + 7.25 + 6.75);
    assert_eq!(counts.busy_device_s, 2.0 + 3.0 + 20.0 + 2.0);
}

/// Nor by borrowers, if the servers are its own: they get what is idle and no job at home waits for.
#[test]
fn an_owners_gang_is_not_overtaken_by_borrowers() {
    let mut system = ones_and_fours(&[(0.0, 4, 4, 100.0), (0.0, 0, 0, 100.0)]);
    system.priority = Priority::Owners;
    system.sites[0].demands = vec![seen(1, &[(0.5, 5.0)])];
    system.sites[1].demands = vec![seen(0, &[(0.0, 2.0), (0.25, 3.0), (1.0, 1.0)])];
    let sites = twenty_seconds(&system).sites;
    // The gang starts at 3.25 and ends at 8.25; the third borrower could have started at 2, and starts then.
    assert_eq!((sites[0].wait_s, sites[1].wait_s), (2.75, 7.25));
    assert_eq!((sites[0].lent_device_s, sites[1].borrowed_device_s), (6.0, 6.0));
}

/// What a gang kept free on one group is there for the next in line as soon as the gang starts on another.
#[test]
fn a_gang_that_starts_elsewhere_frees_what_it_kept() {
    let mut system = ones_and_fours(&[(0.0, 4, 0, 100.0)]);
    system.sites[0].groups.push(Group { kind: 0, servers: 4, shared: 0 });
    system.sites[0].demands = vec![seen(0, &[(0.0, 8.0), (0.75, 1.0)]), seen(1, &[(0.25, 2.0), (0.5, 1.0)])];
    // A single job holds one server of the first group, and a gang the second, until 2.25. Then the second gang
    // follows there, and the single job behind it starts on the first group.
    assert_eq!(twenty_seconds(&system).sites[0].wait_s, 1.75 + 1.5);
}

fn refusal(system: &System) -> String {
    let members = all(system);
    let error = Simulator::new(system, &members, &LENGTH).expect_err("it makes no sense");
    assert!(!error.hint.is_empty(), "{error} says not what to do");
    error.to_string()
}

#[test]
fn bad_systems_are_refused_by_what_is_wrong_with_them() {
    type Spoil = fn(&mut System);
    let cases: [(Spoil, &str); 19] = [
        (|s| s.classes[0].work.mean = 0.0, "job class 0 (counted from 0): the mean work is 0"),
        (|s| s.classes[0].work.mean = f64::NAN, "the mean work is NaN"),
        (|s| s.classes[0].speeds = vec![0.0], "its speed is 0 on every type of server"),
        (|s| s.classes[0].speeds = vec![-1.0], "the speed on servers of type 0 is -1"),
        (|s| s.classes[0].devices = 0, "a job holds no server"),
        (|s| s.classes[0].devices = 11, "the largest such group has 10"),
        (|s| s.classes[0].transfer_s = -1.0, "the transfer in seconds is -1"),
        (|s| s.classes[0].work.law = Law::Pareto { shape: 1.0 }, "the shape of Pareto work is 1"),
        (|s| s.classes[0].work.law = Law::Hyperexponential { squared_variation: 0.5 }, "is 0.5"),
        (|s| s.sites[1].groups[0].shared = 11, "site 1 (counted from 0): it shares 11 of its 10 servers"),
        (|s| s.sites[1].groups[0].kind = 1, "it has servers of type 1, and there are 1 types"),
        (|s| s.sites[1].longest_wait_s = f64::INFINITY, "the longest wait in seconds is inf"),
        (|s| s.sites[1].demands = poisson(-2.0), "the arrivals per second is -2"),
        (|s| s.sites[1].demands[0].class = 3, "jobs of class 3 arrive, and there are 1 classes"),
        (|s| trace(s, &[(2.0, 1.0), (1.0, 1.0)], None), "arrives at 1 s, after one at 2 s"),
        (|s| trace(s, &[(2.0, -1.0)], None), "the work of job 0 of its trace is -1"),
        (|s| trace(s, &[(2.0, 1.0)], Some(1.0)), "repeats after 1 s, and its last job arrives at 2 s"),
        (|s| modulated(s, &[(1.0, 1.0)]), "a modulated law of arrivals has 1 states"),
        (|s| modulated(s, &[(1.0, 1.0), (1.0, 0.0)]), "the mean stay in a state in seconds is 0"),
    ];
    for (spoil, what) in cases {
        let mut system = chain(&[(5.0, 10, 5, 0.0), (5.0, 10, 5, 0.0)]);
        spoil(&mut system);
        let refusal = refusal(&system);
        assert!(refusal.contains(what), "{refusal} does not say: {what}");
    }
}

fn trace(system: &mut System, jobs: &[(f64, f64)], period_s: Option<f64>) {
    system.sites[0].demands[0].arrivals = Arrivals::Trace { jobs: jobs.to_vec(), period_s };
}

fn modulated(system: &mut System, states: &[(f64, f64)]) {
    let states = states
        .iter()
        .map(|(rate_per_s, mean_stay_s)| State { rate_per_s: *rate_per_s, mean_stay_s: *mean_stay_s });
    system.sites[0].demands[0].arrivals = Arrivals::Modulated { states: states.collect() };
}

#[test]
fn a_class_that_no_site_can_run_is_refused_but_a_coalition_without_its_servers_forwards_it() {
    let mut system = chain(&[(5.0, 10, 5, 0.0), (5.0, 10, 5, 0.0)]);
    system.classes[0].speeds = vec![0.0, 1.0];
    assert!(refusal(&system).contains("no member owns a server on which it can run"));
    system.sites[1].groups[0].kind = 1;
    let alone = run(&system, &[0]);
    let total = alone.sites[0].total();
    assert!(total.arrivals > 0 && total.forwarded == total.arrivals);
    let together = run(&system, &[0, 1]);
    assert!(together.sites[0].total().pool > 0);
}

#[test]
fn bad_members_and_lengths_are_refused() {
    let system = chain(&[(5.0, 10, 5, 0.0), (5.0, 10, 5, 0.0)]);
    for members in [&[][..], &[2], &[1, 0], &[0, 0]] {
        assert!(Simulator::new(&system, members, &LENGTH).is_err());
    }
    let seconds = |warm_up, measured| Length::Seconds { warm_up, measured };
    for length in [seconds(-1.0, 1.0), seconds(0.0, 0.0), seconds(0.0, 1e12), seconds(f64::NAN, 1.0)] {
        assert!(Simulator::new(&system, &[0], &length).is_err());
    }
    let idle = chain(&[(0.0, 10, 5, 0.0)]);
    let length = Length::Arrivals { warm_up: 0.0, measured: 10.0 };
    let error = Simulator::new(&idle, &[0], &length).expect_err("nothing arrives");
    assert!(error.to_string().contains("give the length in seconds"));
    let nothing = run_once(&grand(&idle, Length::Suggested), 1, 0);
    assert_eq!(nothing.events, 0);
}
