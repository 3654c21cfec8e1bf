//! Jobs on transient servers: Monte Carlo against what is known by hand and against the closed forms.

use bellwether_model::transient::{
    Checkpoints, Effect, FixedPoint, Job, Law, LawSpec, Losses, Outcomes, Servers, best_period_s, expected,
    published, remaining_s, simulate, time_with_losses_s,
};
use proptest::prelude::*;

const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 86_400.0;

fn law(words: &str) -> Law {
    match words.parse().expect("a law") {
        LawSpec::Law(law) => law,
        LawSpec::Samples(file) => panic!("{file} is a file"),
    }
}

/// Servers at a price of 1 per hour that start at once.
fn servers(count: u32, law: Law, replaced: bool) -> Servers {
    Servers { count, law, price_per_hour: 1.0, provision_s: 0.0, join_s: 0.0, replaced }
}

/// One unit of work per second and worker.
fn linear(counts: &[u32]) -> f64 {
    counts.iter().copied().map(f64::from).sum()
}

/// All servers live exactly so long.
fn exactly(seconds: f64) -> Law {
    Law::points(&[(seconds, 0.0)], seconds).expect("a law")
}

#[test]
fn without_losses_the_time_is_work_over_speed() {
    let mut job = Job::new(7200.0, vec![servers(2, Law::never(), false)], DAY_S);
    job.servers[0].provision_s = 80.0;
    job.servers[0].join_s = 20.0;
    job.fixed_price_per_hour = 0.5;
    // 100 s until both work, 3600 s of work in 6 periods of 600 s with 5 checkpoints between them.
    job.checkpoints = Some(Checkpoints { period_s: 600.0, time_s: 4.0 });
    let outcomes = simulate(&job, linear, 3, 1).unwrap();
    assert_eq!(outcomes.time_s().mean, 100.0 + 3600.0 + 20.0);
    // Two servers from 80 s on, the other price from the beginning.
    let cost = (2.0 * 3640.0 + 0.5 * 3720.0) / 3600.0;
    assert!((outcomes.cost().mean - cost).abs() < 1e-12);
    assert_eq!(outcomes.finished().value, 1.0);
    assert_eq!(outcomes.finished_by(3719.0).value, 0.0);
}

#[test]
fn one_loss_and_its_replacement_by_hand() {
    // The published form for what remains after a loss: one of two workers lives 1000 s, its replacement takes 90 s.
    let mut job =
        Job::new(4000.0, vec![servers(1, exactly(1000.0), true), servers(1, Law::never(), false)], DAY_S);
    job.servers[0].provision_s = 70.0;
    job.servers[0].join_s = 20.0;
    job.regroup_s = 3.0;
    let outcomes = simulate(&job, linear, 1, 1).unwrap();
    // The lasting one works from the beginning and does 90; the other joins at 90 s and all regroup until 93 s. Until
    // 1070 s they do 2 * 977. Then all pause until 1073 s, one works until 1160 s, all pause until 1163 s.
    let left = 4000.0 - 90.0 - 2.0 * 977.0 - 87.0;
    let end_s = 1163.0 + left / 2.0;
    assert!((outcomes.time_s().mean - end_s).abs() < 1e-9, "{} and not {end_s}", outcomes.time_s().mean);
    job.regroup_s = 0.0;
    let plain_s = simulate(&job, linear, 1, 1).unwrap().time_s().mean;
    let left = 4000.0 - 90.0 - 2.0 * 980.0;
    assert!((plain_s - (1070.0 + remaining_s(left, 90.0, 1.0, 2.0))).abs() < 1e-9);
}

#[test]
fn what_a_loss_does_is_what_the_design_says() {
    // A chief that lives 1000 s and is replaced at once; another that is never lost; 3000 units of work.
    let with = |losses: Losses, checkpoints: bool| {
        let mut job =
            Job::new(3000.0, vec![servers(1, exactly(1000.0), true), servers(1, Law::never(), false)], DAY_S);
        job.servers[0].join_s = 50.0;
        job.losses = losses;
        job.restore_s = 7.0;
        job.checkpoints = checkpoints.then_some(Checkpoints { period_s: 400.0, time_s: 10.0 });
        simulate(&job, linear, 1, 1).unwrap().runs()[0]
    };
    // The chief joins at 50 s and is lost at 1000 s, when 50 + 2 * 950 are done.
    let elastic = with(Losses::ELASTIC, false);
    assert_eq!((elastic.finished, elastic.end_s, elastic.losses), (true, 1050.0 + 500.0, 1));
    let chief = with(Losses::CHIEF, false);
    assert_eq!((chief.finished, chief.end_s, chief.losses), (false, 1000.0, 1));
    // Checkpoints are complete at 410 s (50 + 2 * 350) and at 820 s (with 800 more). 180 s of work are repeated.
    let rigid = with(Losses::RIGID, true);
    assert_eq!((rigid.repeated_work, rigid.losses), (360.0, 1));
    // From 1007 s on: 43 s of one worker, 350 s of both until the checkpoint, then 357 + 350 from 1417 s on, which
    // pass another one at 1817 s.
    let left = 3000.0 - 1550.0 - 43.0 - 2.0 * 357.0;
    assert!((rigid.end_s - (1417.0 + left / 2.0)).abs() < 1e-9, "{rigid:?}");
    // Without checkpoints every chief's life is too short.
    let nothing_saved = with(Losses::RIGID, false);
    assert!(!nothing_saved.finished && nothing_saved.losses == 86, "{nothing_saved:?}");
    assert!(nothing_saved.repeated_work >= 85.0 * 1950.0 - 85.0 * 100.0, "{nothing_saved:?}");
    assert!(Effect::GoesOn < Effect::RollsBack && Effect::RollsBack < Effect::Ends);
}

#[test]
fn when_all_are_lost_the_checkpoint_counts_or_no_server_is_left() {
    let mut job = Job::new(5000.0, vec![servers(4, exactly(1000.0), true)], DAY_S);
    job.servers[0].join_s = 100.0;
    job.checkpoints = Some(Checkpoints { period_s: 500.0, time_s: 20.0 });
    job.restore_s = 10.0;
    // 2000 are done at 600 s and saved at 620 s; 4 * 380 more are gone at 1000 s.
    let outcomes = simulate(&job, linear, 2, 1).unwrap();
    let run = outcomes.runs()[0];
    assert!(run.finished && run.repeated_work == 1520.0 && run.losses == 4, "{run:?}");
    // From 1110 s on 2000 more until 1610 s, a checkpoint, and the last 1000.
    assert!((run.end_s - (1630.0 + 250.0)).abs() < 1e-9, "{run:?}");
    job.servers[0].replaced = false;
    let stranded = simulate(&job, linear, 2, 1).unwrap();
    assert_eq!((stranded.finished().value, stranded.runs()[0].end_s), (0.0, 1000.0));
    assert_eq!(stranded.time_quantile_s(0.5).value, f64::INFINITY);
    assert!((stranded.cost().mean - 4.0 * 1000.0 / HOUR_S).abs() < 1e-12);
    // Servers that never live until their workers have joined: given up at the horizon.
    let mut hopeless = Job::new(5000.0, vec![servers(4, exactly(50.0), true)], DAY_S);
    hopeless.servers[0].join_s = 100.0;
    assert_eq!(simulate(&hopeless, linear, 1, 1).unwrap().finished().value, 0.0);
}

#[test]
fn known_losses_by_hand() {
    // Four workers, one unit of work per second each, and two are lost: 4 * 10 + 3 * 20 + 2 * t = 200.
    assert_eq!(time_with_losses_s(200.0, 4, &[30.0, 10.0], f64::from), Some(80.0));
    assert_eq!(time_with_losses_s(30.0, 4, &[30.0, 10.0], f64::from), Some(7.5));
    assert_eq!(time_with_losses_s(200.0, 2, &[30.0, 10.0], f64::from), None);
    // Amdahl-like speeds count as they are.
    let speed = |workers: u32| if workers == 2 { 1.5 } else { 1.0 };
    assert_eq!(time_with_losses_s(25.0, 2, &[10.0], speed), Some(20.0));
}

fn mean_s(job: &Job, speed: impl Fn(&[u32]) -> f64) -> (Outcomes, f64) {
    let outcomes = simulate(job, speed, 4000, 5).expect("a job");
    let time_s = outcomes.time_s().mean;
    (outcomes, time_s)
}

#[test]
fn monte_carlo_and_the_fixed_point_agree_for_short_jobs() {
    for (device, region, hours) in [
        ("k80", "us-west1", 2.0),
        ("k80", "us-central1", 4.0),
        ("v100", "europe-west4", 6.0),
        ("p100", "us-west1", 3.0),
    ] {
        let law = published::regional(device, region).unwrap();
        let work_s = hours * HOUR_S;
        let (period_s, time_s) = (600.0, 4.0);
        let provision_s = published::device(device).unwrap().provision_s;
        let mut job = Job::new(8.0 * work_s, vec![servers(8, law.clone(), true)], 100.0 * work_s);
        job.servers[0].provision_s = provision_s;
        job.servers[0].join_s = 78.7;
        job.checkpoints = Some(Checkpoints { period_s, time_s });
        let (outcomes, simulated_s) = mean_s(&job, linear);
        let start_s = provision_s + 78.7;
        let laws = vec![law; 8];
        let point = FixedPoint {
            work_s,
            checkpoints: (work_s / period_s).ceil(),
            checkpoint_s: time_s,
            laws: &laws,
            replacement_s: start_s,
        };
        // The published form has all wait for a replacement, of which only one eighth of the work is lost.
        let published_s = start_s + point.time_s();
        let eighth = FixedPoint { replacement_s: start_s / 8.0, ..point };
        let fixed_s = start_s + eighth.time_s();
        assert!(
            (fixed_s / simulated_s - 1.0).abs() < 0.03,
            "{device} {region}: {fixed_s} s, {simulated_s} s"
        );
        println!("{device} {region}: {simulated_s:.0} s, {fixed_s:.0} s, all waiting {published_s:.0} s");
        assert!(published_s > fixed_s);
        let closed = expected(&job, linear).unwrap().unwrap();
        assert!((closed.time_s / simulated_s - 1.0).abs() < 0.01, "{closed:?} {simulated_s}");
        assert!((closed.cost / outcomes.cost().mean - 1.0).abs() < 0.02, "{closed:?} {:?}", outcomes.cost());
    }
}

#[test]
fn monte_carlo_and_the_expected_course_agree() {
    let amdahl = |counts: &[u32]| {
        let k = linear(counts);
        if k > 0.0 { 1.0 / (0.05 + 0.95 / k) } else { 0.0 }
    };
    let laws = ["k80", "p100", "v100", "exponential:15h", "bathtub:0.3,1h,0.2,2h,24h", "exponential:3h"];
    for words in laws {
        for (count, replaced, hours) in [(8, true, 12.0), (32, true, 20.0), (16, false, 3.0), (8, false, 1.0)]
        {
            let all = f64::from(count);
            let mut group = servers(count, law(words), replaced);
            (group.provision_s, group.join_s) = (80.0, 79.0);
            let work = amdahl(&[count]) * hours * HOUR_S;
            let mut job = Job::new(work, vec![group], 200.0 * HOUR_S);
            job.regroup_s = 2.0;
            let (outcomes, simulated_s) = mean_s(&job, amdahl);
            let closed = expected(&job, amdahl).unwrap().unwrap();
            let off = closed.time_s / simulated_s - 1.0;
            // Where many are lost for good, runs differ so much that the mean time is not the time of the mean.
            let applies = replaced || closed.losses <= 0.25 * all;
            assert!(
                off.abs() < if applies { 0.03 } else { 0.05 },
                "{words}, {count} workers, {hours} h: {off}, {closed:?} {simulated_s}"
            );
            let losses = outcomes.losses().mean;
            println!(
                "{words}, {count} workers, {replaced}, {hours} h: {:+.2} %, {losses:.2} losses",
                100.0 * off
            );
            assert!(
                (closed.losses - losses).abs() < 0.03 * losses.max(all * 0.1),
                "{words}: {closed:?} {losses}"
            );
            let cost = outcomes.cost().mean;
            assert!(
                (closed.cost / cost - 1.0).abs() < 0.03,
                "{words}, {count}, {hours} h: {closed:?} {cost}"
            );
        }
    }
}

#[test]
fn a_mixed_cluster_with_a_chief_agrees_too() {
    let mut job = Job::new(
        6.0 * 2.0 * HOUR_S,
        vec![servers(2, law("v100"), true), servers(4, law("k80"), true)],
        DAY_S,
    );
    job.servers[0].price_per_hour = 3.0;
    job.losses = Losses::CHIEF;
    for group in &mut job.servers {
        (group.provision_s, group.join_s) = (70.0, 80.0);
    }
    let speed = |counts: &[u32]| 1.4 * f64::from(counts[0]) + 0.8 * f64::from(counts[1]);
    let (outcomes, simulated_s) = mean_s(&job, speed);
    let closed = expected(&job, speed).unwrap().unwrap();
    assert!((closed.time_s / simulated_s - 1.0).abs() < 0.03, "{closed:?} {simulated_s}");
    let finished = outcomes.finished();
    assert!(
        finished.low - 0.02 < closed.finishes && closed.finishes < finished.high + 0.02,
        "{closed:?} {finished:?}"
    );
    // Without a chief that may be lost, all runs finish.
    job.losses = Losses::ELASTIC;
    assert!(simulate(&job, speed, 500, 5).unwrap().finished().value > 0.99);
}

#[test]
fn rigid_training_is_fastest_at_the_best_period() {
    let law = law("exponential:6h");
    let best_s = best_period_s(&law, 8, 30.0).unwrap().unwrap();
    let at = |period_s: f64| {
        let mut job = Job::new(8.0 * 10.0 * HOUR_S, vec![servers(8, law.clone(), true)], 50.0 * DAY_S);
        job.losses = Losses::RIGID;
        job.checkpoints = Some(Checkpoints { period_s, time_s: 30.0 });
        let (_, simulated_s) = mean_s(&job, linear);
        let closed_s = expected(&job, linear).unwrap().unwrap().time_s;
        assert!((closed_s / simulated_s - 1.0).abs() < 0.03, "{period_s} s: {closed_s} and {simulated_s}");
        simulated_s
    };
    let best = at(best_s);
    for factor in [0.4, 0.6, 1.6, 2.5] {
        assert!(at(factor * best_s) > best, "{factor} times the best period, {best_s} s, is better");
    }
}

#[test]
fn the_same_seed_gives_the_same_luck() {
    let job = |replaced| Job::new(8.0 * 6.0 * HOUR_S, vec![servers(8, law("p100"), replaced)], 30.0 * DAY_S);
    let with = simulate(&job(true), linear, 300, 9).unwrap();
    assert_eq!(with, simulate(&job(true), linear, 300, 9).unwrap());
    assert_ne!(with, simulate(&job(true), linear, 300, 10).unwrap());
    // Replacements that come at once can only help, run by run.
    let without = simulate(&job(false), linear, 300, 9).unwrap();
    for (with, without) in with.runs().iter().zip(without.runs()) {
        assert!(!without.finished || with.end_s <= without.end_s + 1e-6, "{with:?} {without:?}");
    }
}

#[test]
fn quantiles_and_shares_have_intervals_that_hold() {
    // One server, exponential, not replaced: a run of 1 h finishes with the probability exp(-1/2).
    let job = Job::new(HOUR_S, vec![servers(1, law("exponential:2h"), false)], DAY_S);
    let truth = (-0.5f64).exp();
    let mut held = 0;
    for seed in 0..200 {
        let share = simulate(&job, linear, 400, seed).unwrap().finished();
        assert!(share.low <= share.value && share.value <= share.high);
        held += u32::from(share.low <= truth && truth <= share.high);
    }
    assert!((180..=198).contains(&held), "an interval of 95 % held {held} times of 200");
    // The cost is the lifetime, at most 1 h: its median is that of the law, 2 h ln 2, cut at 1 h; the lower quartile
    // is 2 h ln(4/3).
    let quartile = 2.0 * (4.0f64 / 3.0).ln();
    let held = (0..200u64).filter(|seed| {
        let cost = simulate(&job, linear, 400, *seed).unwrap().cost_quantile(0.25);
        assert!(cost.low <= cost.value && cost.value <= cost.high);
        cost.low <= quartile && quartile <= cost.high
    });
    assert!((180..=199).contains(&held.count()));
}

#[test]
fn what_cannot_be_run_is_refused() {
    let good = Job::new(10.0, vec![servers(2, law("k80"), true)], DAY_S);
    let refused = |change: &dyn Fn(&mut Job)| {
        let mut job = good.clone();
        change(&mut job);
        assert!(simulate(&job, linear, 10, 1).is_err() && expected(&job, linear).is_err(), "{job:?}");
    };
    refused(&|job| job.work = 0.0);
    refused(&|job| job.work = f64::NAN);
    refused(&|job| job.servers.clear());
    refused(&|job| job.servers[0].count = u32::MAX);
    refused(&|job| job.servers[0].price_per_hour = -1.0);
    refused(&|job| job.servers[0].join_s = f64::INFINITY);
    refused(&|job| job.horizon_s = -1.0);
    refused(&|job| job.checkpoints = Some(Checkpoints { period_s: 0.0, time_s: 1.0 }));
    refused(&|job| job.servers = vec![servers(4000, law("k80"), true); 2]);
    assert!(simulate(&good, |_| f64::NAN, 10, 1).is_err());
    assert!(simulate(&good, |_| 0.0, 10, 1).is_err());
    assert!(simulate(&good, linear, 0, 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_run_beats_work_over_speed(
        count in 1u32..12, hours in 0.1f64..30.0, replaced: bool, period in 0.0f64..2.0, design in 0usize..3,
        early_share in 0.0f64..1.0, join_s in 0.0f64..500.0,
    ) {
        let bathtub = format!("bathtub:{early_share},1h,0,1h,24h");
        let mut job =
            Job::new(f64::from(count) * hours * HOUR_S, vec![servers(count, law(&bathtub), replaced)], 60.0 * DAY_S);
        job.servers[0].join_s = join_s;
        job.losses = [Losses::ELASTIC, Losses::CHIEF, Losses::RIGID][design];
        job.checkpoints = (period > 1.0).then_some(Checkpoints { period_s: 900.0 * period, time_s: 10.0 });
        for run in simulate(&job, linear, 40, 3).unwrap().runs() {
            if run.finished {
                prop_assert!(run.end_s >= hours * HOUR_S + join_s - 1e-6, "{run:?}");
            }
            prop_assert!(run.end_s <= job.horizon_s && run.cost <= f64::from(count) * run.end_s / HOUR_S + 1e-9);
            prop_assert!(run.repeated_work >= 0.0);
        }
        if let Some(course) = expected(&job, linear).unwrap() {
            prop_assert!(course.time_s >= hours * HOUR_S + join_s - 1e-6 && course.cost.is_finite());
            prop_assert!((0.0..=1.0).contains(&course.finishes));
        }
    }
}
