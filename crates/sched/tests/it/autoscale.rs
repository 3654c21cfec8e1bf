//! Heuristics at jobs whose speed by size was recorded.

use bellwether_sched::autoscale::{
    BatchRule, Bounds, Decision, Economy, Heuristic, History, ResizeCost, Situation, Utility, decide, named,
};
use proptest::prelude::*;

/// A job as it was recorded: samples per second by workers.
struct Recorded {
    rates: &'static [(u32, f64)],
    samples: f64,
    batch: BatchRule,
    virtual_nodes: Option<u32>,
    bounds: Bounds,
    resize: ResizeCost,
}

/// What became of a job.
struct Outcome {
    time_s: f64,
    worker_s: f64,
    workers: u32,
    /// When, to how many workers, and why.
    resizes: Vec<(f64, u32, String)>,
}

impl Recorded {
    /// Straight lines between the recorded sizes, in logarithms.
    fn rate(&self, workers: u32) -> f64 {
        let points: Vec<(f64, f64)> = self.rates.iter().map(|&(k, rate)| (f64::from(k), rate)).collect();
        bellwether_model::scaling::log_log(&points, f64::from(workers)).expect("sizes were recorded")
    }

    fn at_size(&self, workers: u32) -> f64 {
        f64::from(workers) * self.samples / self.rate(workers)
    }

    /// Runs the job; steps vary by `noise`, relative.
    fn run(&self, heuristic: &dyn Heuristic, start: u32, economy: Option<&Economy>, noise: f64) -> Outcome {
        let mut random = Random(u64::from(start));
        let mut history = History::default();
        let (mut time_s, mut worker_s, mut remaining) = (0.0, 0.0, self.samples);
        let (mut workers, mut paid, mut joins_s) = (start, start, f64::INFINITY);
        let mut resizes = Vec::new();
        while remaining > 0.0 {
            let batch = self.batch.samples(workers);
            let step_s = batch as f64 / self.rate(workers) * (1.0 + noise * (2.0 * random.next() - 1.0));
            history.record(workers, batch, step_s, None);
            let part = (remaining / batch as f64).min(1.0);
            time_s += step_s * part;
            worker_s += step_s * part * f64::from(paid);
            remaining -= batch as f64;
            if paid > workers {
                if time_s >= joins_s {
                    time_s += self.resize.grow_stall_s;
                    worker_s += self.resize.grow_stall_s * f64::from(paid);
                    workers = paid;
                }
                continue;
            }
            // Every tenth step, and every hundredth when nothing happened for long.
            let steps = history.steps_since_change(workers);
            if steps % (if steps < 200 { 10 } else { 100 }) != 0 {
                continue;
            }
            let situation = Situation {
                history: &history,
                workers,
                bounds: self.bounds,
                elapsed_s: time_s,
                remaining_samples: remaining.max(0.0),
                batch: self.batch,
                virtual_nodes: self.virtual_nodes,
                resize: self.resize,
                economy,
            };
            let Decision::Resize(target, reason) = decide(heuristic, &situation) else { continue };
            resizes.push((time_s, target, reason.to_string()));
            if target > workers {
                (paid, joins_s) = (target, time_s + self.resize.boot_s);
            } else {
                time_s += self.resize.shrink_stall_s;
                worker_s += self.resize.shrink_stall_s * f64::from(workers);
                (workers, paid) = (target, target);
            }
        }
        Outcome { time_s, worker_s, workers, resizes }
    }
}

/// A small generator for noise.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const CIFAR: f64 = 200.0 * 50_000.0;
const IMAGENET: f64 = 5.0 * 1_281_167.0;

/// ResNet-56 on CIFAR-10, 200 epochs: samples over the seconds of runs at a constant size. Newcomers joined after 37 to
/// 45 s, and four workers left every 4 to 5 s, of which ten steps take 1.4 s.
fn cifar() -> Recorded {
    Recorded {
        rates: &[
            (4, CIFAR / 1171.5),
            (8, CIFAR / 1216.2),
            (12, CIFAR / 1304.7),
            (16, CIFAR / 1302.8),
            (20, CIFAR / 1410.1),
            (24, CIFAR / 1407.6),
        ],
        samples: CIFAR,
        batch: BatchRule::Rising { per_worker: 256, most: 1024 },
        virtual_nodes: None,
        bounds: Bounds::new(4, 24, 4).expect("good bounds"),
        resize: ResizeCost { boot_s: 41.0, grow_stall_s: 3.0, shrink_stall_s: 3.0 },
    }
}

/// ResNet-50 on ImageNet, 5 epochs, likewise. Growing took 48 to 80 s.
fn imagenet() -> Recorded {
    Recorded {
        rates: &[
            (32, IMAGENET / 4550.0),
            (40, IMAGENET / 3638.0),
            (48, IMAGENET / 3070.0),
            (56, IMAGENET / 2742.0),
            (64, IMAGENET / 2357.0),
        ],
        samples: IMAGENET,
        batch: BatchRule::Rising { per_worker: 128, most: 8192 },
        virtual_nodes: None,
        bounds: Bounds::new(4, 64, 4).expect("good bounds"),
        resize: ResizeCost { boot_s: 48.0, grow_stall_s: 3.0, shrink_stall_s: 3.0 },
    }
}

/// ResNet-56 on CIFAR-10, 50 epochs on processors, from 1 worker: the calibration curve of the utility experiments.
fn processors() -> Recorded {
    Recorded {
        rates: &[(1, 115.0), (5, 486.0), (10, 902.0), (20, 1682.0), (30, 2296.0), (40, 2886.0), (50, 3246.0)],
        samples: 50.0 * 50_000.0,
        batch: BatchRule::Fixed(1024),
        virtual_nodes: None,
        bounds: Bounds::new(1, 50, 1).expect("good bounds"),
        resize: ResizeCost { boot_s: 10.0, grow_stall_s: 1.0, shrink_stall_s: 1.0 },
    }
}

/// A device that takes 20 ms for each of 8 virtual nodes: beyond 4 workers nothing is gained.
fn cliffs() -> Recorded {
    Recorded {
        rates: &[(1, 50.0), (2, 100.0), (3, 400.0 / 3.0), (4, 200.0), (5, 200.0), (6, 200.0), (7, 200.0)],
        samples: 1e5,
        batch: BatchRule::Fixed(8),
        virtual_nodes: Some(8),
        bounds: Bounds::new(1, 7, 1).expect("good bounds"),
        resize: ResizeCost { boot_s: 1.0, grow_stall_s: 0.01, shrink_stall_s: 0.01 },
    }
}

type Case = (&'static str, Recorded, u32, Vec<(u32, f64)>);

/// Both recorded jobs: the right size, and by starting size the worker-seconds that the engine of the authors took
/// beyond those of the right size held from the start.
fn recorded() -> [Case; 2] {
    let beyond =
        |right: f64, rows: &[(u32, f64)]| rows.iter().map(|&(start, all)| (start, all - right)).collect();
    let few = [(4, 4738.0), (8, 4763.0), (12, 5656.0), (16, 5275.0), (20, 6156.0), (24, 5021.0)];
    let right = 64.0 * 2357.0;
    // Static seconds by the recorded change of worker-seconds.
    let many: Vec<(u32, f64)> =
        [(32, 4550.0, 10.1), (40, 3638.0, 9.5), (48, 3070.0, 14.7), (56, 2742.0, 0.1), (64, 2357.0, 2.6)]
            .iter()
            .map(|&(start, time_s, percent)| (start, f64::from(start) * time_s * (1.0 + percent / 100.0)))
            .collect();
    [("CIFAR-10", cifar(), 4, beyond(4.0 * 1171.5, &few)), ("ImageNet", imagenet(), 64, beyond(right, &many))]
}

fn shown(name: &str, start: u32, outcome: &Outcome, beyond: f64) -> String {
    let Outcome { workers, time_s, worker_s, resizes } = outcome;
    let mut text = format!(
        "{name} from {start}: {workers} workers after {time_s:.0} s and {worker_s:.0} worker-s ({beyond:+.0})"
    );
    for (time_s, target, reason) in resizes {
        text += &format!("\n    {time_s:5.0} s -> {target}: {reason}");
    }
    text
}

#[test]
fn the_threshold_settles_where_it_settled() {
    for (name, job, right, starts) in recorded() {
        let heuristic = named("efficiency:0.1").unwrap();
        for (start, _) in starts {
            for noise in [0.0, 0.05] {
                let outcome = job.run(&*heuristic, start, None, noise);
                assert_eq!(outcome.workers, right, "{name} from {start}: {:?}", outcome.resizes);
            }
        }
    }
}

#[test]
fn the_fitted_model_settles_there_too_and_explores_for_less() {
    for (name, job, right, starts) in recorded() {
        let (ours, theirs) = (named("fitted:0.1").unwrap(), named("efficiency:0.1").unwrap());
        for noise in [0.0, 0.05] {
            let [mut sum, mut simulated, mut measured] = [0.0; 3];
            for &(start, recorded) in &starts {
                let outcome = job.run(&*ours, start, None, noise);
                let other = job.run(&*theirs, start, None, noise);
                let beyond = outcome.worker_s - job.at_size(right);
                println!("{}", shown(&format!("{name}, noise {noise}"), start, &outcome, beyond));
                println!(
                    "    threshold {:+.0}, recorded {recorded:+.0}",
                    other.worker_s - job.at_size(right)
                );
                assert_eq!(outcome.workers, right, "{name} from {start}: {:?}", outcome.resizes);
                sum += beyond;
                simulated += other.worker_s - job.at_size(right);
                measured += recorded;
                if right == 64 {
                    assert!(beyond <= 0.03 * job.at_size(right), "{name} from {start}: {beyond}");
                }
            }
            println!(
                "{name}, noise {noise}: ours {sum:.0}, threshold {simulated:.0}, recorded {measured:.0} worker-s"
            );
            assert!(sum <= 0.5 * measured, "{name}: {sum} against {measured}");
            assert!(sum < simulated, "{name}: {sum} against {simulated}");
        }
    }
}

#[test]
fn the_simple_heuristics_do_as_they_say() {
    let job = imagenet();
    for name in ["linear", "curve"] {
        assert_eq!(job.run(&*named(name).unwrap(), 32, None, 0.0).workers, 64, "{name}");
        assert_eq!(cifar().run(&*named(name).unwrap(), 4, None, 0.0).workers, 4, "{name}");
    }
    // It never looks below its start, and says so.
    assert_eq!(cifar().run(&*named("linear").unwrap(), 8, None, 0.0).workers, 8);
    assert_eq!(cifar().run(&*named("curve").unwrap(), 24, None, 0.0).workers, 4);
}

fn linear(value: f64, price_per_hour: f64) -> Economy {
    let utility = Utility::Linear { value, horizon_s: 180.0 * 60.0 };
    utility.check().expect("a good utility");
    Economy { utility, price_per_worker_s: price_per_hour / 3600.0 }
}

#[test]
fn only_the_ratio_of_worth_and_price_counts_and_the_dearer_worker_is_never_used_more() {
    let job = processors();
    for name in ["cost-benefit", "fitted"] {
        let heuristic = named(name).unwrap();
        let mut last = (u32::MAX, 0.0);
        for ratio in [1e4, 1e3, 1e2, 10.0, 1.0] {
            let outcomes = [(10.0, 1.0), (100.0, 10.0)].map(|(value, price)| {
                let economy = linear(value * ratio, price * 10.0);
                job.run(&*heuristic, 1, Some(&economy), 0.0)
            });
            let [one, other] = &outcomes;
            println!("{name}, Y/P {ratio}: {} workers, {:.0} min", one.workers, one.time_s / 60.0);
            assert_eq!(
                (one.workers, one.resizes.len()),
                (other.workers, other.resizes.len()),
                "{name} {ratio}"
            );
            assert!((one.time_s / other.time_s - 1.0).abs() < 1e-9, "{name} {ratio}");
            assert!(
                one.workers <= last.0 && one.time_s >= last.1,
                "{name} {ratio}: {one:?} after {last:?}",
                one = one.workers
            );
            last = (one.workers, one.time_s);
        }
        assert!(last.0 < 50, "a price of as much as the worth is not a reason to use them all");
    }
}

#[test]
fn a_deadline_is_met_at_a_good_price_and_given_up_at_a_bad_one() {
    let job = processors();
    let utility = Utility::Step { points: vec![(100.0, 3600.0)] };
    utility.check().unwrap();
    for name in ["cost-benefit", "fitted"] {
        let heuristic = named(name).unwrap();
        let run = |price: f64| {
            let economy = Economy { utility: utility.clone(), price_per_worker_s: price / 3600.0 };
            job.run(&*heuristic, 1, Some(&economy), 0.0)
        };
        let (cheap, dear) = (run(0.1), run(100.0));
        println!(
            "{name}: {:.0} min with {}, {:.0} min with {}",
            cheap.time_s / 60.0,
            cheap.workers,
            dear.time_s / 60.0,
            dear.workers
        );
        assert!(cheap.time_s <= 3700.0, "{name}: {}", cheap.time_s);
        assert!(dear.time_s > 2.0 * 3600.0, "{name}: {}", dear.time_s);
    }
    assert!(Utility::Step { points: vec![(1.0, 60.0), (2.0, 90.0)] }.check().is_err());
    assert!(Utility::Linear { value: f64::NAN, horizon_s: 1.0 }.check().is_err());
}

/// A history with one size.
fn measured_once(workers: u32, batch: u64, step_s: f64, exchange_s: Option<f64>) -> History {
    let mut history = History::default();
    for _ in 0..12 {
        history.record(workers, batch, step_s, exchange_s);
    }
    history
}

#[test]
fn a_measured_exchange_spares_the_trial() {
    let job = cifar();
    let decided = |exchange_s: Option<f64>| {
        let history = measured_once(4, 1024, 0.12, exchange_s);
        let situation = Situation {
            history: &history,
            workers: 4,
            bounds: job.bounds,
            elapsed_s: 1.3,
            remaining_samples: job.samples,
            batch: job.batch,
            virtual_nodes: None,
            resize: job.resize,
            economy: None,
        };
        let decision = decide(&*named("fitted").unwrap(), &situation);
        println!("exchange {exchange_s:?}: {}", decision.reason());
        decision
    };
    assert!(matches!(decided(None), Decision::Resize(..)));
    // Nearly all of the step is exchange: more workers cannot help.
    assert!(matches!(decided(Some(0.11)), Decision::Stay(_)));
    // Next to none is.
    assert!(matches!(decided(Some(0.002)), Decision::Resize(workers, _) if workers > 4));
}

#[test]
fn history_drops_the_first_step_and_what_a_batch_no_longer_holds() {
    let mut history = measured_once(4, 64, 0.5, None);
    history.record(4, 64, f64::NAN, None);
    assert_eq!((history.at(4).unwrap().steps, history.steps_since_change(4)), (11, 11));
    history.record(8, 64, 9.0, None);
    assert_eq!((history.at(8), history.steps_since_change(8), history.steps_since_change(4)), (None, 0, 0));
    history.record(8, 64, 0.25, None);
    history.record(8, 128, 0.4, None);
    let measured = history.at(8).unwrap();
    assert_eq!((measured.steps, measured.batch, measured.examples_per_s()), (1, 128, 320.0));
    // What was true long ago fades.
    for _ in 0..5000 {
        history.record(8, 128, 0.8, None);
    }
    assert!((history.at(8).unwrap().step_s - 0.8).abs() < 0.01);
    let text = serde_json::to_string(&history).unwrap();
    assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
}

#[test]
fn many_sizes_are_weighed_in_no_time_to_speak_of() {
    let history = measured_once(8, 65_536, 1.0, Some(0.1));
    let situation = Situation {
        history: &history,
        workers: 8,
        bounds: Bounds::new(1, 4096, 1).unwrap(),
        elapsed_s: 10.0,
        remaining_samples: 1e9,
        batch: BatchRule::Fixed(65_536),
        virtual_nodes: None,
        resize: ResizeCost { boot_s: 30.0, grow_stall_s: 1.0, shrink_stall_s: 0.1 },
        economy: None,
    };
    assert!(
        matches!(decide(&*named("fitted").unwrap(), &situation), Decision::Resize(workers, _) if workers > 8)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn decisions_are_sane_whatever_was_measured(
        sizes in prop::collection::vec((1_u32..40, 1e-4_f64..1e3, prop::option::of(0.0_f64..1.0)), 1..6),
        bounds in (1_u32..20, 0_u32..20, 1_u32..6),
        remaining_samples in prop_oneof![Just(0.0), 1.0_f64..1e12],
        batch in prop_oneof![
            (1_u64..5000).prop_map(BatchRule::Fixed),
            (1_u64..99, 1_u64..5000).prop_map(|(per_worker, most)| BatchRule::Rising { per_worker, most }),
        ],
        money in prop::option::of((1.0_f64..1e6, 0.0_f64..10.0)),
        boot_s in 0.0_f64..1000.0,
    ) {
        let bounds = Bounds::new(bounds.0, bounds.0 + bounds.1, bounds.2).unwrap();
        let mut history = History::default();
        for (workers, step_s, exchange) in &sizes {
            for _ in 0..12 {
                let exchange_s = exchange.map(|part| part * step_s);
                history.record(*workers, batch.samples(*workers), *step_s, exchange_s);
            }
        }
        let economy = money.map(|(value, price_per_worker_s)| Economy {
            utility: Utility::Linear { value, horizon_s: 1000.0 },
            price_per_worker_s,
        });
        let situation = Situation {
            history: &history,
            workers: sizes.last().unwrap().0,
            bounds,
            elapsed_s: 50.0,
            remaining_samples,
            batch,
            virtual_nodes: None,
            resize: ResizeCost { boot_s, grow_stall_s: 1.0, shrink_stall_s: 0.5 },
            economy: economy.as_ref(),
        };
        for name in ["efficiency", "cost-benefit", "linear", "curve", "fitted"] {
            let heuristic = named(name).unwrap();
            let decision = decide(&*heuristic, &situation);
            prop_assert_eq!(&decision, &decide(&*heuristic, &situation));
            prop_assert!(!decision.reason().to_string().contains("NaN"));
            let inside = situation.workers.clamp(bounds.least, bounds.most);
            match decision {
                Decision::Resize(target, _) => {
                    prop_assert!(target != situation.workers && (bounds.least..=bounds.most).contains(&target), "{name}");
                }
                Decision::Stay(_) => prop_assert_eq!(situation.workers, inside),
            }
        }
    }
}

#[test]
fn whole_virtual_nodes_make_no_step_shorter_than_the_largest_part() {
    // A worker costs what the time of the job is worth.
    let economy =
        Economy { utility: Utility::Linear { value: 10.0, horizon_s: 10.0 }, price_per_worker_s: 1.0 };
    for start in 1..=7 {
        for economy in [None, Some(&economy)] {
            let outcome = cliffs().run(&*named("fitted").unwrap(), start, economy, 0.02);
            assert_eq!(outcome.workers, 4, "from {start}: {:?}", outcome.resizes);
            assert!(outcome.resizes.len() <= 6, "from {start}: {:?}", outcome.resizes);
        }
    }
}
