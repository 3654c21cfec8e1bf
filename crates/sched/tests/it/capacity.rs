//! Capacity planning: the search finds what a look at all candidates finds, bounds are bounds, words are read.

use std::cell::Cell;

use bellwether_sched::capacity::bounds::{Least, Leasts};
use bellwether_sched::capacity::search::Limits;
use bellwether_sched::capacity::{
    Figure, Grid, Limit, Measured, Objective, Oracle, Outcome, Search, Statistic, Wishes,
};
use bellwether_sched::plan::Catalogue;
use proptest::prelude::*;

/// Candidates whose outcomes are known, with bounds that lie below these, and measurements that end early.
#[derive(Debug, Clone)]
struct Table {
    outcomes: Vec<Option<Outcome>>,
    /// The part of an outcome that its bounds are.
    sharpness: Vec<f64>,
    measured: Cell<usize>,
}

impl Oracle for Table {
    type Error = String;

    fn cost_at_least(&self, candidate: usize) -> f64 {
        let outcome = self.outcomes[candidate].as_ref();
        outcome.map_or(0.0, |outcome| outcome.cost_dollars) * self.sharpness[candidate]
    }

    fn levels_at_least(&self, candidate: usize) -> Vec<f64> {
        let Some(outcome) = &self.outcomes[candidate] else { return vec![0.0; 2] };
        outcome.levels.iter().map(|level| level * self.sharpness[candidate]).collect()
    }

    fn measure(&self, candidates: &[usize], limits: &Limits) -> Result<Vec<Measured>, String> {
        self.measured.set(self.measured.get() + candidates.len());
        let one = |candidate: &usize| {
            let Some(outcome) = &self.outcomes[*candidate] else {
                return Measured::Unable("too wide".into());
            };
            let breaks =
                limits.levels.iter().zip(&outcome.levels).position(|(limit, level)| !limit.holds(*level));
            match breaks {
                Some(at) => Measured::Breaks(at, outcome.levels[at] * 0.999),
                None if outcome.cost_dollars > limits.cost_dollars => Measured::Dear(limits.cost_dollars),
                None => Measured::Whole(outcome.clone()),
            }
        };
        Ok(candidates.iter().map(one).collect())
    }
}

fn tables() -> impl Strategy<Value = Table> {
    // Few values, so that many candidates are equal.
    let outcome = (1..9_u32, 1..9_u32, 1..9_u32).prop_map(|(cost, first, second)| Outcome {
        cost_dollars: f64::from(cost),
        levels: vec![f64::from(first), f64::from(second)],
    });
    let one = (prop::option::weighted(0.9, outcome), prop_oneof![Just(0.0), Just(0.5), Just(0.9), Just(1.0)]);
    prop::collection::vec(one, 0..60).prop_map(|all| {
        let (outcomes, sharpness) = all.into_iter().unzip();
        Table { outcomes, sharpness, measured: Cell::new(0) }
    })
}

/// The best of all candidates that keep the limits: least by `key`, then the first.
fn brute_force(table: &Table, limits: &[Limit], key: impl Fn(&Outcome) -> (f64, f64)) -> Option<usize> {
    let keeps =
        |outcome: &Outcome| limits.iter().zip(&outcome.levels).all(|(limit, level)| limit.holds(*level));
    let kept = table.outcomes.iter().enumerate().filter_map(|(at, outcome)| Some((at, outcome.as_ref()?)));
    kept.filter(|(_, outcome)| keeps(outcome))
        .min_by(|(_, a), (_, b)| key(a).partial_cmp(&key(b)).expect("no NaN"))
        .map(|(at, _)| at)
}

proptest! {
    #[test]
    fn the_search_finds_what_a_look_at_all_finds(
        table in tables(),
        limits in prop::collection::vec((1..9_u32, any::<bool>()), 2),
        order in prop::collection::vec(0..3_usize, 1..5),
    ) {
        let limits: Vec<Limit> = limits
            .into_iter()
            .map(|(level, is_inclusive)| Limit { level: f64::from(level), is_inclusive })
            .collect();
        let mut search = Search::new(&table, table.outcomes.len());
        // What an earlier search has learnt must not lead a later one astray.
        for wanted in order {
            let (found, best) = match wanted {
                0 => (
                    search.cheapest(&limits).expect("it measures"),
                    brute_force(&table, &limits, |outcome| (outcome.cost_dollars, outcome.levels[0])),
                ),
                1 => {
                    let looser = [limits[0], Limit::NONE];
                    (
                        search.cheapest(&looser).expect("it measures"),
                        brute_force(&table, &looser, |outcome| (outcome.cost_dollars, outcome.levels[0])),
                    )
                }
                _ => {
                    let without = [Limit::NONE, limits[1]];
                    (
                        search.best_level(0, &without).expect("it measures"),
                        brute_force(&table, &without, |outcome| (outcome.levels[0], outcome.cost_dollars)),
                    )
                }
            };
            prop_assert_eq!(found, best);
        }
    }

    #[test]
    fn a_pool_of_one_queue_keeps_the_bounds(
        jobs in prop::collection::vec((0.0..50.0_f64, 0.1..20.0_f64), 1..30),
        capacity in 0.5..8.0_f64,
        within_s in 1.0..60.0_f64,
        part_late in 0.0..1.0_f64,
    ) {
        // First come, first served, at the speed of the whole cluster: what no bound may exceed.
        let mut jobs = jobs;
        jobs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let leasts: Vec<Least> = jobs
            .iter()
            .map(|&(arrival_s, work)| Least { arrival_s, alone_s: work / capacity, work })
            .collect();
        let leasts = Leasts::new(leasts);
        let mut now_s = f64::MIN;
        let mut times = Vec::new();
        for (arrival_s, work) in &jobs {
            now_s = now_s.max(*arrival_s) + work / capacity;
            times.push(now_s - arrival_s);
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        prop_assert!(leasts.span_s(capacity) <= (now_s - jobs[0].0) * (1.0 + 1e-9));
        prop_assert!(leasts.mean_completion_s(capacity) <= mean * (1.0 + 1e-9));
        let late = times.iter().filter(|time| **time > within_s).count();
        prop_assert!(leasts.capacity_for(within_s, late) <= capacity * (1.0 + 1e-9));
        // Where fewer jobs may be late, more is needed.
        let allowed = (part_late * jobs.len() as f64) as usize;
        prop_assert!(leasts.capacity_for(within_s, allowed) <= leasts.capacity_for(within_s, 0));
    }

    #[test]
    fn what_is_written_is_read_back(
        percent in 1..100_u32,
        limit in 1.0..1e6_f64,
        which in 0..4_usize,
        level in 0.01..1e7_f64,
    ) {
        let words = [
            format!("p{percent} completion < {limit}s"),
            format!("mean wait <= {limit}s"),
            format!("max slowdown < {limit}"),
            format!("deadlines >= {percent}%"),
        ];
        let objective: Objective = words[which].parse().expect("an objective");
        prop_assert_eq!(objective.to_string().parse::<Objective>().expect("its own words"), objective);
        let level = if objective.figure == Figure::Deadlines { level / 1e7 } else { level };
        let relaxed = objective.relaxed_to(level);
        let read: Objective = relaxed.to_string().parse().expect("its own words");
        prop_assert!(read.level_limit().holds(level), "{} for {}", read, level);
    }
}

#[test]
fn a_search_looks_at_few_candidates_where_bounds_are_sharp() {
    let outcome =
        |cost: usize| Outcome { cost_dollars: cost as f64, levels: vec![1000.0 - cost as f64, 0.0] };
    let outcomes: Vec<Option<Outcome>> = (0..1000).map(|cost| Some(outcome(cost))).collect();
    let table = Table { outcomes, sharpness: vec![0.99; 1000], measured: Cell::new(0) };
    let mut search = Search::new(&table, 1000);
    let limits = [Limit { level: 500.0, is_inclusive: true }, Limit::NONE];
    assert_eq!(search.cheapest(&limits), Ok(Some(500)));
    let counts = search.counts();
    assert!(counts.measured + counts.cut_short < 40 && counts.refused > 450, "{counts:?}");
    assert_eq!(table.measured.get(), counts.measured + counts.cut_short);
}

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let error = text.parse::<Objective>().expect_err("no objective").at("--objective").to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn words_that_are_no_objective_are_met_with_what_is_near() {
    refused("p95 completion", &["FIGURE < LIMIT"]);
    refused("completion < 2h", &["which completion", "p95"]);
    refused("p95 completoin < 2h", &["did you mean `completion`?"]);
    refused("maen wait < 2h", &["did you mean `mean`?"]);
    refused("makespn < 2h", &["did you mean `makespan`?"]);
    refused("p100 wait < 2h", &["below p100"]);
    refused("p95 completion < 2", &["unit"]);
    refused("p95 completion < -2h", &["zero or more"]);
    refused("p95 completion < 0s", &["above 0"]);
    refused("p95 completion > 2h", &["less of it is better"]);
    refused("deadlines < 95%", &["deadlines >= 95%"]);
    refused("deadlines >= 95", &["per cent"]);
    refused("deadlines >= 195%", &["0% to 100%"]);
    refused("p99 slowdown < 3h", &["without a unit"]);
    refused("", &["FIGURE < LIMIT"]);
    refused("p95 mean completion < 2h", &["FIGURE < LIMIT"]);
    let median: Objective = "median wait <= 90s".parse().expect("an objective");
    assert_eq!(median.figure, Figure::Wait(Statistic::Median));
    assert!(median.holds(90.0) && !median.holds(90.1));
    let deadlines: Objective = "deadlines >= 90%".parse().expect("an objective");
    // One of ten is missed: that is 90 per cent, whatever 1 - 0.9 is in binary.
    assert!(deadlines.level_limit().holds(0.1) && deadlines.holds(0.9) && !deadlines.holds(0.89));
}

const PRICES: &str = r#"
[[machine]]
name = "a"
device = "k80"
region = "here"
price = "$1/h"
transient_price = "$0.3/h"
revocations = "exponential:10h"
limit = 3

[[machine]]
name = "b"
device = "p100"
region = "here"
price = "$2/h"

[[machine]]
name = "c"
device = "v100"
region = "there"
transient_price = "$1/h"
revocations = "never"
"#;

#[test]
fn a_grid_has_every_cluster_once() {
    let catalogue =
        Catalogue::read(PRICES, "prices.toml", &|_| unreachable!("no file is named")).expect("prices");
    let usual = Wishes { max_machines: 4, max_kinds: 1, transient: false, regions: &[] };
    let count = |wishes: &Wishes<'_>| Grid::new(&catalogue, wishes, 1).map(|grid| grid.clusters.len());
    // Three of a, four of b; c is transient only.
    assert_eq!(count(&usual), Ok(7));
    // Of a: 1 has 0, 1 transient; 2 has 0, 1, 2; 3 has 0, 1, 2, 3. Four of b and four of c.
    let transient = Wishes { transient: true, ..usual };
    assert_eq!(count(&transient), Ok(2 + 3 + 4 + 4 + 4));
    // Pairs of a and b: 1 + 3, 2 + 2, 3 + 1 and fewer: 3 + 2 + 1. c is elsewhere.
    assert_eq!(count(&Wishes { max_kinds: 2, ..usual }), Ok(7 + 6));
    let there = ["there".to_owned()];
    let error = count(&Wishes { regions: &there, ..usual }).expect_err("nothing is left");
    assert!(error.to_string().contains("--transient"), "{error}");
    let grid = Grid::new(&catalogue, &Wishes { max_kinds: 4, ..transient }, 1).expect("a grid");
    for (place, cluster) in grid.clusters.iter().enumerate() {
        assert!(!grid.clusters[..place].contains(cluster), "{cluster:?}");
        assert!(cluster.iter().map(|part| part.machines()).sum::<u32>() <= 4);
    }
    let many = Wishes { max_machines: 4096, max_kinds: 4, transient: true, regions: &[] };
    let error = Grid::new(&catalogue, &many, 40).expect_err("too many");
    assert!(error.to_string().contains("--max-machines"), "{error}");
}
