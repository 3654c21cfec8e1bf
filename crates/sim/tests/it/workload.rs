//! Workloads: what is drawn follows its laws, is the same for the same seed, and reads back from CSV.

use bellwether_sim::trace::{ReadOptions, Trace, read};
use bellwether_sim::workload::{
    Amount, Arrivals, Class, GapState, Law, State, Workload, describe, generate, write_csv,
};
use proptest::prelude::*;

const EXAMPLE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate/workload.toml"));

fn one_class(jobs: u32, arrivals: Arrivals, duration: Law) -> Workload {
    let class = Class { share: 1.0, gpus: 1, duration: Some(duration), ..Class::default() };
    Workload { jobs: Some(jobs), horizon: None, load: None, gpus: None, arrivals, classes: vec![class] }
}

fn hourly(per_hour: f64) -> Arrivals {
    Arrivals::Poisson { per_hour: Some(per_hour) }
}

fn minute() -> Law {
    Law::Fixed { value: Amount(60.0) }
}

fn drawn(workload: &Workload, seed: u64) -> Trace {
    generate(workload, seed, &[]).unwrap()
}

/// Device-seconds per second from the beginning to the last arrival.
fn offered(trace: &Trace) -> f64 {
    let device_s: f64 = trace.entries.iter().map(|entry| entry.work * f64::from(entry.job.asked())).sum();
    device_s / trace.entries.last().unwrap().job.arrival_s
}

fn works(law: Law) -> Vec<f64> {
    let mut works: Vec<f64> =
        drawn(&one_class(100_000, hourly(60.0), law), 3).entries.iter().map(|entry| entry.work).collect();
    works.sort_unstable_by(f64::total_cmp);
    works
}

/// Checks the mean within `tolerance`, and the share of numbers up to each point against the law's, within 4 standard
/// errors.
fn follows(law: Law, mean: f64, tolerance: f64, shares: &[(f64, f64)]) {
    // A load is reached by the mean of the law.
    let loaded = Workload { load: Some(0.5), gpus: Some(8), ..one_class(100_000, hourly(1.0), law.clone()) };
    let load = offered(&drawn(&loaded, 3)) / 8.0;
    assert!((load / 0.5 - 1.0).abs() < tolerance + 0.015, "{law:?}: a load of {load}");
    let works = works(law.clone());
    let seen = works.iter().sum::<f64>() / works.len() as f64;
    assert!((seen / mean - 1.0).abs() < tolerance, "{law:?}: a mean of {seen}, not {mean}");
    for (point, share) in shares {
        let below = works.partition_point(|work| work <= point) as f64 / works.len() as f64;
        let error = (share * (1.0 - share) / works.len() as f64).sqrt();
        assert!((below - share).abs() < 4.0 * error + 1e-9, "{law:?}: {below} up to {point}, not {share}");
    }
}

#[test]
fn durations_follow_their_laws() {
    let amounts = |values: &[f64]| values.iter().copied().map(Amount).collect::<Vec<_>>();
    let below = |rate: f64, x: f64| 1.0 - (-x / rate).exp();
    follows(minute(), 60.0, 1e-9, &[(59.9, 0.0), (60.0, 1.0)]);
    follows(
        Law::Uniform { least: Amount(100.0), most: Amount(300.0) },
        200.0,
        0.01,
        &[(150.0, 0.25), (300.0, 1.0)],
    );
    follows(
        Law::Exponential { mean: Amount(500.0) },
        500.0,
        0.02,
        &[(100.0, below(500.0, 100.0)), (1000.0, below(500.0, 1000.0))],
    );
    // The median of a lognormal law is its mean over sqrt(1 + variation²).
    follows(
        Law::Lognormal { mean: Amount(600.0), variation: 2.0 },
        600.0,
        0.03,
        &[(600.0 / 5f64.sqrt(), 0.5)],
    );
    let hyper = Law::HyperExponential { shares: vec![3.0, 1.0], means: amounts(&[100.0, 2000.0]) };
    let share = |x: f64| 0.75 * below(100.0, x) + 0.25 * below(2000.0, x);
    follows(hyper, 575.0, 0.03, &[(100.0, share(100.0)), (1000.0, share(1000.0))]);
    let pareto = |x: f64, shape: f64| (1.0 - (10.0 / x).powf(shape)) / (1.0 - 0.001f64.powf(shape));
    for (shape, mean, tolerance) in
        [(1.0, 10_000.0 * 10.0 / 9990.0 * 1000f64.ln(), 0.05), (2.0, 19.98001998, 0.02)]
    {
        let law = Law::BoundedPareto { least: Amount(10.0), most: Amount(10_000.0), shape };
        follows(
            law,
            mean,
            tolerance,
            &[(9.99, 0.0), (20.0, pareto(20.0, shape)), (200.0, pareto(200.0, shape)), (10_000.0, 1.0)],
        );
    }
    follows(Law::Samples { values: amounts(&[1.0, 2.0, 3.0, 10.0]) }, 4.0, 0.01, &[(1.0, 0.25), (3.0, 0.75)]);
}

#[test]
fn poisson_arrivals_have_exponential_gaps() {
    let trace = drawn(&one_class(100_000, hourly(3600.0), minute()), 5);
    let times: Vec<f64> = trace.entries.iter().map(|entry| entry.job.arrival_s).collect();
    assert!((times[99_999] / 1e5 - 1.0).abs() < 4.0 / 1e5f64.sqrt(), "{}", times[99_999]);
    let longer = times.windows(2).filter(|pair| pair[1] - pair[0] > 1.0).count() as f64 / 99_999.0;
    assert!((longer - (-1f64).exp()).abs() < 0.007, "{longer}");
}

#[test]
fn diurnal_arrivals_keep_to_their_hours_and_days() {
    let mut per_hour = vec![0.0; 24];
    (per_hour[3], per_hour[20]) = (100.0, 300.0);
    let days = vec![0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0];
    let trace = drawn(&one_class(20_000, Arrivals::Diurnal { per_hour, days }, minute()), 1);
    let mut seen = [[0.0_f64; 24]; 7];
    for entry in &trace.entries {
        let hour = (entry.job.arrival_s / 3600.0) as usize;
        seen[hour / 24 % 7][hour % 24] += 1.0;
    }
    assert_eq!(seen.as_flattened().iter().filter(|count| **count > 0.0).count(), 4);
    assert!((seen[1][20] / seen[1][3] / 3.0 - 1.0).abs() < 0.1, "{seen:?}");
    assert!((seen[2][20] / seen[1][20] / 2.0 - 1.0).abs() < 0.06, "{seen:?}");
}

#[test]
fn modulated_arrivals_are_as_many_as_their_states_say_and_come_in_bursts() {
    let state = |per_hour, stay| State { per_hour, stay: Amount(stay) };
    let states = vec![state(6.0, 36_000.0), state(600.0, 3600.0), state(0.0, 7200.0)];
    let arrivals = Arrivals::Mmpp { states };
    let trace = drawn(&one_class(200_000, arrivals, minute()), 2);
    let per_hour = 200_000.0 / (trace.entries[199_999].job.arrival_s / 3600.0);
    // (6 · 10 + 600 · 1) / 13 hours.
    assert!((per_hour / (660.0 / 13.0) - 1.0).abs() < 0.15, "{per_hour}");
}

/// Bursts of small jobs, and large ones between them: jobs are as 3 to 1.
fn small_bursts() -> Workload {
    let amounts = |values: &[f64]| values.iter().copied().map(Amount).collect::<Vec<_>>();
    let state = |gaps: [f64; 2], next: [f64; 2], classes: [f64; 2]| GapState {
        gaps: gaps.to_vec(),
        next: next.to_vec(),
        classes: classes.to_vec(),
    };
    let states = vec![state([1.0, 0.0], [9.0, 1.0], [1.0, 0.0]), state([0.0, 1.0], [0.3, 0.7], [0.0, 1.0])];
    let arrivals = Arrivals::Gaps { gaps: vec![amounts(&[0.0, 1.0]), amounts(&[600.0, 1800.0])], states };
    let small = Class { share: 1.0, gpus: 1, duration: Some(minute()), ..Class::default() };
    let large = Class { gpus: 8, duration: Some(Law::Exponential { mean: Amount(7200.0) }), ..small.clone() };
    Workload { classes: vec![small, large], ..one_class(100_000, arrivals, minute()) }
}

#[test]
fn gaps_and_classes_follow_the_states() {
    let trace = drawn(&small_bursts(), 3);
    let mut seen = [0.0_f64; 2];
    for pair in trace.entries.windows(2) {
        let gap_s = pair[1].job.arrival_s - pair[0].job.arrival_s;
        let small = pair[1].job.asked() == 1;
        let of = if small { [0.0, 1.0] } else { [600.0, 1800.0] };
        assert!(
            of.iter().any(|of| (gap_s - of).abs() < 0.002),
            "{gap_s} before {} GPUs",
            pair[1].job.asked()
        );
        seen[usize::from(small)] += 1.0;
    }
    // Bursts last ten jobs; the four changes of a thousand jobs make for an error of some per cent.
    assert!((seen[1] / seen[0] / 3.0 - 1.0).abs() < 0.05, "{seen:?}");
    // Three quarters of the gaps are half a second, the others 20 min.
    let span_s = trace.entries[99_999].job.arrival_s;
    assert!((span_s / 1e5 / (0.75 * 0.5 + 0.25 * 1200.0) - 1.0).abs() < 0.05, "{span_s}");
    let loaded = Workload { load: Some(0.6), gpus: Some(64), ..small_bursts() };
    let load = offered(&drawn(&loaded, 1)) / 64.0;
    assert!((load / 0.6 - 1.0).abs() < 0.05, "{load}");
    assert_eq!(Workload::parse(&loaded.to_toml(), "w").unwrap(), loaded);
}

#[test]
fn gaps_that_make_no_sense_are_refused() {
    let message = |change: fn(&mut Vec<Vec<Amount>>, &mut Vec<GapState>)| {
        let mut workload = small_bursts();
        let Arrivals::Gaps { gaps, states } = &mut workload.arrivals else { unreachable!() };
        change(gaps, states);
        Workload::parse(&workload.to_toml(), "w.toml").unwrap_err().to_string()
    };
    assert!(message(|gaps, _| gaps.clear()).contains("w.toml: arrivals: `gaps` needs lists of times"));
    assert!(message(|gaps, _| gaps[1].clear()).contains("none of them empty"));
    assert!(message(|gaps, _| gaps[1][0].0 = -1.0).contains("from 0 to 1e12 s"));
    assert!(message(|_, states| states.clear()).contains("1 to 64 states, not 0"));
    assert!(
        message(|_, states| states[1].gaps.truncate(1)).contains("`gaps` of state 2 has 1 numbers for 2")
    );
    assert!(message(|_, states| states[0].next.push(1.0)).contains("`next` of state 1 has 3 numbers"));
    assert!(message(|_, states| states[0].classes.push(1.0)).contains("for 2 classes: give one for each"));
    assert!(message(|_, states| states[0].classes[0] = 0.0).contains("one of them above 0"));
    assert!(message(|_, states| states[0].next[0] = f64::NAN).contains("from 0 to 1e12"));
    assert!(message(|_, states| states[0].next[1] = 0.0).contains("never reached or never left"));
    assert!(message(|_, states| states[1].next[0] = 0.0).contains("never reached or never left"));
    let at_once = message(|gaps, _| gaps.iter_mut().flatten().for_each(|gap| gap.0 = 0.0));
    assert!(at_once.contains("invalid average arrival rate"), "{at_once}");
}

#[test]
fn the_load_is_what_was_asked_for() {
    let workload = Workload::parse(EXAMPLE, "workload.toml").unwrap();
    let long = Workload { jobs: Some(200_000), ..workload };
    assert!((offered(&drawn(&long, 1)) / (0.9 * 512.0) - 1.0).abs() < 0.05, "{}", offered(&drawn(&long, 1)));
}

#[test]
fn the_example_draws_what_its_comments_say() {
    let workload = Workload::parse(EXAMPLE, "workload.toml").unwrap();
    let trace = drawn(&workload, 1);
    assert_eq!(trace.entries.len(), 4800);
    let of = |gpus: u32| trace.entries.iter().filter(move |entry| entry.job.asked() == gpus);
    assert!((of(1).count() as f64 / 4800.0 - 0.7).abs() < 0.03);
    for entry in of(8) {
        let slack = (entry.job.deadline_s.unwrap() - entry.job.arrival_s) / entry.work;
        assert!((1.19..3.01).contains(&slack) || entry.work < 1.0, "{slack}");
        assert_eq!(
            (entry.job.min_devices, entry.job.max_devices, entry.job.description.model.as_str()),
            (1, 32, "resnet50")
        );
    }
    assert!(of(32).all(|entry| entry.job.weight == 2.0 && (600.0..=360_000.0).contains(&entry.work)));
    assert_eq!(Workload::parse(&workload.to_toml(), "w").unwrap(), workload);
}

#[test]
fn a_change_of_one_thing_leaves_the_luck_of_all_others() {
    let workload = Workload::parse(EXAMPLE, "workload.toml").unwrap();
    let mut other = workload.clone();
    other.classes[1].slack = None;
    other.classes[2].duration = Some(minute());
    (other.load, other.gpus) = (None, None);
    let (a, b) = (drawn(&workload, 9), drawn(&other, 9));
    let pairs = a.entries.iter().zip(&b.entries);
    assert!(pairs.clone().all(|(a, b)| a.job.asked() == b.job.asked()));
    assert!(pairs.filter(|(a, _)| a.job.asked() < 32).all(|(a, b)| a.work == b.work));
}

#[test]
fn a_horizon_ends_the_trace() {
    let workload =
        Workload { jobs: None, horizon: Some(Amount(360_000.0)), ..one_class(1, hourly(50.0), minute()) };
    let trace = drawn(&workload, 4);
    assert!((trace.entries.len() as f64 - 5000.0).abs() < 300.0, "{}", trace.entries.len());
    assert!(trace.entries.last().unwrap().job.arrival_s <= 360_000.0);
    let rare = Workload { horizon: Some(Amount(1.0)), ..workload };
    assert!(generate(&rare, 1, &[]).unwrap_err().what.contains("no job arrives"));
}

#[test]
fn types_of_device_are_those_of_the_cluster() {
    let mut workload = one_class(10, hourly(50.0), minute());
    workload.classes[0].devices = vec!["v100".into(), "p100".into()];
    assert_eq!(drawn(&workload, 1).device_types, ["v100", "p100"]);
    let types = ["k80".to_string(), "p100".to_string()];
    assert_eq!(generate(&workload, 1, &types).unwrap().entries[0].job.device_types, [1]);
    let error = generate(&workload, 1, &["v1000".to_string()]).unwrap_err().to_string();
    assert!(error.contains("did you mean `v1000`?"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_key() {
    let class = "[[class]]\ngpus = 1\nduration = { kind = \"fixed\", value = 60 }\n";
    let poisson = "[arrivals]\nkind = \"poisson\"\nper_hour = 6\n";
    let message = |text: String| Workload::parse(&text, "w.toml").unwrap_err().to_string();
    let top = |line: &str| message(format!("{line}\n{poisson}{class}"));
    assert!(top("").contains("neither `jobs` nor `horizon`"));
    assert!(top("jobs = 0").contains("w.toml: jobs"));
    assert!(top("jbos = 5").contains("did you mean `jobs`?"));
    assert!(top("horizon = \"-5s\"").contains("w.toml"));
    assert!(top("horizon = 1e12").contains("can be drawn"));
    assert!(top("jobs = 5\nload = 0.5").contains("w.toml: gpus"));
    assert!(top("jobs = 5\nload = nan\ngpus = 4").contains("not a load"));
    let law =
        |law: &str| message(format!("jobs = 5\n{poisson}[[class]]\ngpus = 1\nduration = {{ {law} }}\n"));
    assert!(law("kind = \"fixed\", value = 0").contains("class 1: duration"));
    assert!(law("kind = \"fixed\", value = \"soon\"").contains("a time with its unit"));
    assert!(law("kind = \"lognormal\", mean = 5, variaton = 2").contains("variation"));
    assert!(law("kind = \"uniform\", least = 5, most = 4").contains("larger `most`"));
    assert!(law("kind = \"bounded-pareto\", least = 1, most = 4, shape = 0").contains("shape"));
    assert!(law("kind = \"hyper-exponential\", shares = [1], means = []").contains("as many shares"));
    assert!(law("kind = \"samples\", values = []").contains("positive"));
    let arrivals = |arrivals: &str| message(format!("jobs = 5\n[arrivals]\n{arrivals}\n{class}"));
    assert!(arrivals("kind = \"poisson\"").contains("neither `per_hour` nor `load`"));
    assert!(arrivals("kind = \"poisson\"\nper_hour = 0").contains("invalid average arrival rate"));
    assert!(arrivals("kind = \"diurnal\"\nper_hour = [1, 2]").contains("24 hours"));
    assert!(arrivals("kind = \"mmpp\"\nstates = []").contains("two states"));
    let of_class = |line: &str| message(format!("jobs = 5\n{poisson}{class}{line}\n"));
    assert!(of_class("min_gpu = 2").contains("can use 2 to 1"));
    assert!(of_class("weight = 0").contains("not a weight"));
    assert!(of_class("share = -1").contains("not a share"));
    assert!(of_class("work = { kind = \"fixed\", value = 60 }").contains("either a `duration` or a `work`"));
    let fast = "jobs = 5\n[arrivals]\nkind = \"mmpp\"\nstates = [{ per_hour = 1, stay = 1e-9 }, { per_hour = 2, stay = 1e-9 }]\n";
    let fast = Workload::parse(&format!("{fast}{class}"), "w").unwrap();
    assert!(generate(&fast, 1, &[]).unwrap_err().what.contains("a thousand times"));
    let rare = Workload::parse(
        &format!(
            "jobs = 5\n[arrivals]\nkind = \"diurnal\"\nper_hour = [{}1e-300]\n{class}",
            "0, ".repeat(23)
        ),
        "w",
    );
    assert!(generate(&rare.unwrap(), 1, &[]).unwrap_err().what.contains("so rare"));
}

/// A name that is more than a word, but does not begin or end with space.
fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z,\"é\n ]{0,6}[a-z]"
}

fn law() -> impl Strategy<Value = Law> {
    let amount = || (1e-3..1e7f64).prop_map(Amount);
    prop_oneof![
        amount().prop_map(|value| Law::Fixed { value }),
        amount().prop_map(|mean| Law::Exponential { mean }),
        (amount(), 0.0..5.0f64).prop_map(|(mean, variation)| Law::Lognormal { mean, variation }),
        prop::collection::vec(amount(), 1..5).prop_map(|values| Law::Samples { values }),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    let declared = (law(), any::<bool>(), prop::option::of(name()), prop::option::of(1..10_000u64));
    let elastic =
        (1..100u32, prop::option::of(0..5u32), prop::option::of(0..50u32), prop::option::of(0.1..9.0f64));
    let rest = (
        any::<bool>(),
        any::<bool>(),
        prop::sample::subsequence(vec!["v100".to_string(), "a,\"b".into()], 0..=2),
    );
    (declared, elastic, rest)
        .prop_map(
            |((law, timed, model, batch), (gpus, less, more, weight), (slack, adaptive_batch, devices))| {
                Class {
                    share: 1.0,
                    gpus,
                    duration: timed.then(|| law.clone()),
                    work: (!timed).then_some(law),
                    model,
                    batch,
                    min_gpu: less.map(|less| gpus.saturating_sub(less).max(1)),
                    max_gpu: more.map(|more| gpus + more),
                    weight,
                    slack: (slack && timed).then_some(Law::Uniform { least: Amount(0.5), most: Amount(2.0) }),
                    devices,
                    adaptive_batch,
                    protocol: None,
                    servers: None,
                    nodes_per_update: None,
                    switch_at: None,
                    queue: None,
                }
            },
        )
        .prop_flat_map(|class| {
            // Two servers and a worker need three devices.
            let most = class.max_gpu.unwrap_or(class.gpus);
            let ways = if most < 3 { vec![[""; 4]] } else { WAYS.to_vec() };
            (Just(class), prop::sample::select(ways)).prop_map(|(class, [protocol, servers, nodes, at])| {
                Class {
                    protocol: Some(protocol).filter(|text| !text.is_empty()).map(String::from),
                    servers: Some(servers).filter(|text| !text.is_empty()).map(String::from),
                    nodes_per_update: nodes.parse().ok(),
                    switch_at: at.parse().ok(),
                    ..class
                }
            })
        })
}

/// The cells `protocol`, `servers`, `nodes_per_update` and `switch_at` of some jobs.
const WAYS: [[&str; 4]; 5] = [
    [""; 4],
    ["asp", "", "", ""],
    ["bsp|asp", "1..2", "", ""],
    ["ssp:2", "2", "3", ""],
    ["asp", "1", "", "0.25"],
];

#[test]
fn classes_say_who_waits_for_whom() {
    let file = |class: &str| {
        let class = format!(
            "jobs = 20\narrivals = {{ kind = \"poisson\", per_hour = 60 }}\n[[class]]\ngpus = 4\nwork = {{ kind = \"fixed\", value = 100 }}\n{class}"
        );
        Workload::parse(&class, "w.toml")
    };
    let workload =
        file("min_gpu = 1\nprotocol = \"bsp|asp\"\nservers = \"1..2\"\nnodes_per_update = 2\n").unwrap();
    let trace = drawn(&workload, 1);
    let job = &trace.entries[0].job;
    let servers: Vec<u32> = job.ways.iter().map(|way| way.servers).collect();
    assert_eq!((servers, job.min_devices), (vec![0, 1, 2], 1));
    // What is fitted to such a trace draws such jobs again.
    let again = describe(&trace, Some(8)).workload();
    assert_eq!(again.classes[0].protocol.as_deref(), Some("bsp|asp"));
    assert_eq!(drawn(&again, 2).entries[0].job.ways, job.ways);
    let switched = drawn(&file("protocol = \"asp\"\nswitch_at = 0.25\n").unwrap(), 1);
    assert_eq!(switched.entries[0].job.switch.as_ref().map(|switch| switch.at), Some(0.25));
    assert_eq!(switched.entries[0].job.min_devices, 4);
    for (wrong, word) in [
        ("servers = \"2\"", "protocol"),
        ("protocol = \"asp\"\nservers = \"4\"", "max_gpu"),
        ("protocol = \"isp\"", "protocol"),
        ("protocol = \"asp\"\nswitch_at = 1.5", "switch_at"),
    ] {
        let error = file(wrong).unwrap_err().to_string();
        assert!(error.contains("class 1") && error.contains(word), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_drawn_reads_back_from_csv(classes in prop::collection::vec(class(), 1..4), seed in any::<u64>(), rate in 1.0..1e6f64) {
        let workload = Workload { classes, ..one_class(50, hourly(rate), minute()) };
        let trace = drawn(&workload, seed);
        let types = ["k80".to_string(), "v100".to_string(), "a,\"b".to_string()];
        let trace_on_cluster = generate(&workload, seed, &types).unwrap();
        for (trace, types) in [(&trace, trace.device_types.as_slice()), (&trace_on_cluster, &types)] {
            let text = write_csv(&trace.entries, types);
            let options = ReadOptions { device_types: types, ..ReadOptions::default() };
            let back = read(text.as_bytes(), None, &options).unwrap();
            // Rows differ where a name holds the end of a line.
            prop_assert_eq!(back.entries.len(), trace.entries.len());
            for (back, entry) in back.entries.iter().zip(&trace.entries) {
                prop_assert_eq!((&back.job, back.work), (&entry.job, entry.work));
            }
            prop_assert!(back.refused.is_empty() && back.repairs.is_empty());
        }
        prop_assert_eq!(Workload::parse(&workload.to_toml(), "w").unwrap(), workload.clone());
        prop_assert_eq!(write_csv(&drawn(&workload, seed).entries, &trace.device_types), write_csv(&trace.entries, &trace.device_types));
    }

    #[test]
    fn any_text_is_a_workload_or_refused(text in "[a-z_\\[\\]{}=\", \n0-9.-]{0,120}", at in 0.0..1.0f64) {
        let _ = Workload::parse(&text, "w");
        let cut = (EXAMPLE.len() as f64 * at) as usize;
        let _ = Workload::parse(&(EXAMPLE[..cut].to_string() + &text), "w");
    }
}

/// One million jobs; run with `--ignored --nocapture` for the time.
#[test]
#[ignore = "a measurement"]
fn a_million_jobs() {
    let workload = Workload { jobs: Some(1_000_000), ..Workload::parse(EXAMPLE, "workload.toml").unwrap() };
    let begin = std::time::Instant::now();
    let trace = drawn(&workload, 1);
    println!("drawn in {:?}", begin.elapsed());
    let begin = std::time::Instant::now();
    let text = write_csv(&trace.entries, &trace.device_types);
    println!("{} bytes written in {:?}", text.len(), begin.elapsed());
    let begin = std::time::Instant::now();
    let description = bellwether_sim::workload::describe(&trace, Some(512));
    println!("described in {:?}: offered {:?}", begin.elapsed(), description.offered_load);
}
