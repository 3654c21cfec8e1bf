//! Traces that a fitted generator draws arrive as the trace it was fitted to: in the same gaps, in bursts as large, and
//! with tails of waiting of the same order.

use std::collections::BinaryHeap;
use std::fmt::Write;

use bellwether_des::Streams;
use bellwether_sim::trace::{ReadOptions, Trace, read};
use bellwether_sim::workload::{Arrivals, Description, Workload, describe, generate};
use proptest::prelude::*;

macro_rules! cluster {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/itp-traces/", $name, ".csv"))
    };
}

/// Clusters of ITP, and as many GPUs as they may have had.
const CLUSTERS: [(&str, &[u8], u32); 4] = [
    ("cluster01", cluster!("cluster01"), 128),
    ("cluster04", cluster!("cluster04"), 768),
    ("cluster07", cluster!("cluster07"), 512),
    ("cluster10", cluster!("cluster10"), 16),
];

const MINUTE_S: f64 = 60.0;
const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 86_400.0;

fn traced(bytes: &[u8]) -> Trace {
    read(bytes, None, &ReadOptions::default()).unwrap()
}

/// How jobs arrive, and how they would wait.
struct Figures {
    /// Gaps between arrivals in seconds, in ascending order.
    gaps_s: Vec<f64>,
    /// Variance over mean of the arrivals in a minute, an hour and a day.
    dispersions: [f64; 3],
    /// Hours that jobs wait, in ascending order.
    waits_h: Vec<f64>,
}

impl Figures {
    fn of(trace: &Trace, gpus: u32) -> Figures {
        let arrivals_s: Vec<f64> = trace.entries.iter().map(|entry| entry.job.arrival_s).collect();
        let mut gaps_s: Vec<f64> = arrivals_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps_s.sort_unstable_by(f64::total_cmp);
        let dispersions = [MINUTE_S, HOUR_S, DAY_S].map(|window_s| dispersion(&arrivals_s, window_s));
        let mut waits_h: Vec<f64> = waits(trace, gpus).into_iter().map(|wait_s| wait_s / HOUR_S).collect();
        waits_h.sort_unstable_by(f64::total_cmp);
        Figures { gaps_s, dispersions, waits_h }
    }

    fn wait_h(&self, share: f64) -> f64 {
        self.waits_h[((self.waits_h.len() - 1) as f64 * share) as usize]
    }
}

/// Variance over mean of the arrivals in windows of this length.
fn dispersion(arrivals_s: &[f64], window_s: f64) -> f64 {
    let first_s = arrivals_s[0];
    let windows = ((arrivals_s[arrivals_s.len() - 1] - first_s) / window_s) as usize + 1;
    let mut counts = vec![0.0; windows];
    for arrival_s in arrivals_s {
        counts[((arrival_s - first_s) / window_s) as usize] += 1.0;
    }
    let mean = arrivals_s.len() as f64 / windows as f64;
    counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / windows as f64 / mean
}

/// Seconds that each job waits if jobs begin in the order in which they arrive.
fn waits(trace: &Trace, gpus: u32) -> Vec<f64> {
    // Milliseconds, so that ends can be ordered; the earliest is the largest.
    let mut ends: BinaryHeap<(i64, u32)> = BinaryHeap::new();
    let (mut free, mut now) = (gpus, 0_i64);
    let wait = |entry: &bellwether_sim::trace::Entry| {
        let arrival = (entry.job.arrival_s * 1000.0) as i64;
        let asked = entry.job.asked().min(gpus);
        now = now.max(arrival);
        while let Some((end, held)) = ends.peek().copied().filter(|(end, _)| -end <= now || free < asked) {
            ends.pop();
            (free, now) = (free + held, now.max(-end));
        }
        free -= asked;
        ends.push((-(now + (entry.work * 1000.0) as i64), asked));
        (now - arrival) as f64 / 1000.0
    };
    trace.entries.iter().map(wait).collect()
}

/// The largest difference between the shares of both up to a number: the distance of Kolmogorov and Smirnov.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let up_to = |sorted: &[f64], point: f64| {
        sorted.partition_point(|value| *value <= point) as f64 / sorted.len() as f64
    };
    a.iter().chain(b).map(|point| (up_to(a, *point) - up_to(b, *point)).abs()).fold(0.0, f64::max)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What several traces of a generator are like, compared with the one to which it was fitted.
struct Comparison {
    distance: f64,
    /// Minutes, hours and days: those drawn over the true ones.
    dispersions: [f64; 3],
    /// p90 and p99 of waiting in hours, and the range of the latter.
    p90_h: f64,
    p99_h: f64,
    range_h: [f64; 2],
}

fn compared(truth: &Figures, workload: &Workload, gpus: u32, seeds: u64) -> Comparison {
    let workload = Workload::parse(&workload.to_toml(), "w.toml").unwrap();
    let drawn: Vec<Figures> =
        (1..=seeds).map(|seed| Figures::of(&generate(&workload, seed, &[]).unwrap(), gpus)).collect();
    let of = |figure: &dyn Fn(&Figures) -> f64| median(drawn.iter().map(figure).collect());
    let p99s = drawn.iter().map(|figures| figures.wait_h(0.99));
    Comparison {
        distance: of(&|figures| distance(&truth.gaps_s, &figures.gaps_s)),
        dispersions: [0, 1, 2].map(|at| of(&|figures| figures.dispersions[at]) / truth.dispersions[at]),
        p90_h: of(&|figures| figures.wait_h(0.9)),
        p99_h: of(&|figures| figures.wait_h(0.99)),
        range_h: [p99s.clone().fold(f64::MAX, f64::min), p99s.fold(0.0, f64::max)],
    }
}

/// Sweeps of many short jobs that are submitted by a loop, sweeps of few long ones by hand, and nights between them.
fn sweeps() -> Trace {
    let mut random = Streams::new(7).stream("sweeps", 0);
    let (mut text, mut at_s) = ("job_id,submit_time,num_gpu,duration\n".to_owned(), 0.0);
    let mut id = 0;
    for _ in 0..250 {
        at_s += random.lognormal(3.0 * HOUR_S, 2.0);
        let short = random.uniform() < 0.5;
        let jobs = 1 + random.below(if short { 60 } else { 12 });
        for _ in 0..jobs {
            let (gap_s, gpus, mean_s) = if short { (0.7, 1, 1800.0) } else { (120.0, 8, 4.0 * HOUR_S) };
            at_s += random.exponential(gap_s);
            id += 1;
            let _ = writeln!(text, "{id},{},{gpus},{}", at_s.floor(), random.exponential(mean_s).ceil());
        }
    }
    traced(text.as_bytes())
}

fn within(value: f64, factor: f64) -> bool {
    (1.0 / factor..=factor).contains(&value)
}

#[test]
fn sweeps_and_nights_are_drawn_as_they_were() {
    let trace = sweeps();
    let truth = Figures::of(&trace, 64);
    let drawn = compared(&truth, &describe(&trace, Some(64)).workload(), 64, 9);
    assert!(drawn.distance < 0.05, "gaps are {} apart", drawn.distance);
    // Sweeps end after a random number of jobs that has a memory, which states have not.
    assert!(drawn.dispersions.iter().all(|ratio| within(*ratio, 2.2)), "{:?}", drawn.dispersions);
    let p99_h = truth.wait_h(0.99);
    assert!(within(drawn.p99_h / p99_h, 2.0), "{} h, not {p99_h} h", drawn.p99_h);
}

#[test]
fn clusters_are_drawn_with_their_gaps_and_bursts() {
    for (name, bytes, gpus) in CLUSTERS {
        let trace = traced(bytes);
        let truth = Figures::of(&trace, gpus);
        let drawn = compared(&truth, &describe(&trace, Some(gpus)).workload(), gpus, 5);
        // As far apart as two samples of that many gaps may be, which depend on each other.
        let error = 1.6 / (trace.entries.len() as f64).sqrt();
        assert!(drawn.distance < 0.03 + error, "{name}: gaps are {} apart", drawn.distance);
        assert!(
            drawn.dispersions[..2].iter().all(|ratio| within(*ratio, 1.8)),
            "{name}: {:?}",
            drawn.dispersions
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Whatever the gaps and sizes are, the law that is fitted to them is one that can be drawn and written.
    #[test]
    fn any_gaps_have_a_law(
        jobs in prop::collection::vec(
            (prop_oneof![Just(0.0), Just(1.0), 0.0..1e-4f64, 0.0..100.0f64, 0.0..1e9f64], 1..9u32),
            100..200,
        ),
    ) {
        let (mut text, mut at_s) = ("job_id,submit_time,num_gpu,duration\n".to_owned(), 0.0);
        for (id, (gap_s, gpus)) in jobs.iter().enumerate() {
            at_s += gap_s;
            let _ = writeln!(text, "{id},{at_s},{gpus},60");
        }
        let description = describe(&traced(text.as_bytes()), None);
        if let Some(fit) = &description.arrivals {
            let law = fit.gaps.as_ref().expect("there are enough jobs").law.clone();
            let workload = Workload { arrivals: law, ..description.workload() };
            prop_assert_eq!(&Workload::parse(&workload.to_toml(), "w").unwrap(), &workload);
            let drawn = generate(&workload, 1, &[]).unwrap();
            prop_assert!(drawn.entries.windows(2).all(|pair| pair[0].job.arrival_s <= pair[1].job.arrival_s));
            let mean_s = at_s / jobs.len() as f64;
            let Arrivals::Gaps { gaps, states } = &workload.arrivals else { unreachable!() };
            let longest_s = gaps.iter().flatten().map(|gap| gap.0).fold(0.0, f64::max);
            prop_assert!(states.len() <= 6 && longest_s >= mean_s * 0.5);
        }
    }
}

/// Of rates that change: what a description gave before it knew gaps.
fn by_rates(description: &Description) -> Workload {
    let law: Arrivals = description.arrivals.as_ref().unwrap().candidates[0].law.clone();
    Workload { arrivals: law, ..description.workload() }
}

/// The table of docs/accuracy.md; run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn how_near_drawn_traces_come() {
    let sweeps = ("sweeps", sweeps(), 64);
    let clusters = CLUSTERS.map(|(name, bytes, gpus)| (name, traced(bytes), gpus));
    for (name, trace, gpus) in clusters.into_iter().chain([sweeps]) {
        let description = describe(&trace, Some(gpus));
        // A cluster as large as it may have been, and one of which jobs ask 80 %, if the widest of them fit.
        let widest = trace.entries.iter().map(|entry| entry.job.asked()).max().unwrap();
        let tight = ((description.offered_gpus.unwrap() / 0.8).ceil() as u32).max(widest);
        for gpus in if tight < gpus { vec![gpus, tight] } else { vec![gpus] } {
            let truth = Figures::of(&trace, gpus);
            let [minute, hour, day] = truth.dispersions;
            let [p90_h, p99_h] = [0.9, 0.99].map(|share| truth.wait_h(share));
            println!(
                "{name} on {gpus} GPUs: variance over mean {minute:.1} {hour:.1} {day:.1}; waits \
                 p90 {p90_h:.2} h, p99 {p99_h:.2} h"
            );
            for (law, workload) in [("rates", by_rates(&description)), ("best", description.workload())] {
                let drawn = compared(&truth, &workload, gpus, 15);
                let [minute, hour, day] = drawn.dispersions;
                let Comparison { distance, p90_h, p99_h, range_h: [low_h, high_h], .. } = drawn;
                println!(
                    "  {law} ({}): distance {distance:.3}; variance over mean ×{minute:.2} ×{hour:.2} ×{day:.2}; \
                     p90 {p90_h:.2} h, p99 {p99_h:.2} h ({low_h:.2} to {high_h:.2})",
                    workload.arrivals.kind(),
                );
            }
        }
    }
}

/// Fitted to one half of a trace, how far gaps are from those of the other half; the distance of the halves themselves
/// is as near as a law that learns all can come. Run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn how_near_drawn_traces_come_to_the_other_half() {
    for (name, bytes, gpus) in CLUSTERS {
        let whole = traced(bytes);
        let (first, second) = whole.entries.split_at(whole.entries.len() / 2);
        let halves = [first, second].map(|entries| Trace { entries: entries.to_vec(), ..whole.clone() });
        for (learnt, other) in [(0, 1), (1, 0)] {
            let truth = Figures::of(&halves[other], gpus);
            let description = describe(&halves[learnt], None);
            let far = |workload: &Workload| compared(&truth, workload, gpus, 9).distance;
            println!(
                "{name}, half {} by half {}: rates {:.3}, best ({}) {:.3}, the half itself {:.3}",
                other + 1,
                learnt + 1,
                far(&by_rates(&description)),
                description.workload().arrivals.kind(),
                far(&description.workload()),
                distance(&truth.gaps_s, &Figures::of(&halves[learnt], gpus).gaps_s)
            );
        }
    }
}
