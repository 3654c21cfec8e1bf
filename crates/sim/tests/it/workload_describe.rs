//! The description of a trace: figures by hand, laws of arrival found again, and generators that follow from it.

use bellwether_sim::trace::{ReadOptions, Trace, read};
use bellwether_sim::workload::{
    Amount, Arrivals, Class, Description, Law, State, Workload, describe, generate,
};
use proptest::prelude::*;

macro_rules! cluster {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/itp-traces/", $name, ".csv"))
    };
}

/// Times and work of every size, some of them alike.
fn size() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(7.0), 0.0..1e-3f64, 0.0..1e3f64, 0.0..1e12f64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However odd a trace is, it can be described, and a generator follows.
    #[test]
    fn any_trace_is_described_and_has_a_generator(
        jobs in prop::collection::vec((size(), size(), 1..=u32::MAX, prop::option::of(size())), 1..60),
        steps in any::<bool>(),
    ) {
        let header = if steps { "arrival_s\ttotal_steps\tscale_factor\tjob_type" } else { "job_id,submit_time,num_gpu,duration,deadline" };
        let mut text = format!("{header}\n");
        for (at, (arrival_s, work, gpus, deadline_s)) in jobs.iter().enumerate() {
            let deadline = deadline_s.map_or(String::new(), |deadline_s| deadline_s.to_string());
            text += &if steps { format!("{arrival_s}\t{work}000\t{gpus}\tm\n") } else { format!("{at},{arrival_s},{gpus},{work},{deadline}\n") };
        }
        let description = describe(&traced(text.as_bytes()), Some(8));
        prop_assert_eq!(description.jobs, jobs.len());
        let workload = description.workload();
        let file = workload.to_toml();
        let parsed = Workload::parse(&file, "w");
        prop_assert!(parsed.is_ok(), "{:?} in {}", parsed, file);
        // Arrivals may be too rare for the times that a trace can hold.
        let _ = generate(&workload, 1, &[]);
    }
}

fn traced(bytes: &[u8]) -> Trace {
    read(bytes, None, &ReadOptions::default()).unwrap()
}

fn drawn(jobs: u32, arrivals: Arrivals, seed: u64) -> Trace {
    let duration = Some(Law::Exponential { mean: Amount(1800.0) });
    let class = Class { share: 1.0, gpus: 2, duration, ..Class::default() };
    let workload =
        Workload { jobs: Some(jobs), horizon: None, load: None, gpus: None, arrivals, classes: vec![class] };
    generate(&workload, seed, &[]).unwrap()
}

fn best(description: &Description) -> &Arrivals {
    &description.arrivals.as_ref().unwrap().candidates[0].law
}

/// The trace that the generator of a description draws, described.
fn again(description: &Description, seed: u64) -> Description {
    let file = description.workload().to_toml();
    let workload = Workload::parse(&file, "w.toml").unwrap_or_else(|error| panic!("{error}\n{file}"));
    describe(&generate(&workload, seed, &[]).unwrap(), None)
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a / b - 1.0).abs() <= tolerance
}

#[test]
fn figures_by_hand() {
    let text = "job_id,submit_time,num_gpu,duration,device\na,0,1,100,\nb,50,4,100,v100\nc,150,4,300,v100|p100\nd,1000,1,0,\n";
    let description = describe(&traced(text.as_bytes()), Some(10));
    assert_eq!((description.jobs, description.span_s, description.says_durations), (4, 1000.0, true));
    assert_eq!(
        (description.work.mean, description.work.median, description.work.largest),
        (125.0, 100.0, 300.0)
    );
    assert!(close(description.work.variation, (47_500.0f64 / 3.0).sqrt() / 125.0, 1e-12));
    let sizes: Vec<(&str, usize)> =
        description.sizes.iter().map(|size| (size.name.as_str(), size.jobs)).collect();
    assert_eq!(sizes, [("1", 2), ("4", 2)]);
    let types: Vec<(&str, usize)> =
        description.device_types.iter().map(|size| (size.name.as_str(), size.jobs)).collect();
    assert_eq!(types, [("any", 2), ("v100", 1), ("v100|p100", 1)]);
    assert_eq!(description.gpu_hours, Some(1700.0 / 3600.0));
    assert_eq!((description.offered_gpus, description.offered_load), (Some(1.7), Some(1.7 / 10.0)));
    let concurrency = description.concurrency.unwrap();
    assert_eq!((concurrency.most_jobs, concurrency.most_gpus), (2, 5));
    assert!(
        close(concurrency.mean_jobs, 500.0 / 450.0, 1e-12)
            && close(concurrency.mean_gpus, 1700.0 / 450.0, 1e-12),
        "{concurrency:?}"
    );
    assert_eq!(description.windows.len(), 1);
    assert_eq!((description.windows[0].jobs, description.windows[0].offered_gpus), (4, 1700.0 / 3600.0));
    assert!(description.arrivals.is_none());
    assert_eq!(again(&description, 1).jobs, 4);
}

#[test]
fn steps_have_no_load() {
    let text = "job_id\tarrival_s\tjob_type\tscale_factor\ttotal_steps\n0\t0\tLM (batch size 5)\t1\t5000\n1\t9\tLM (batch size 5)\t1\t7000\n";
    let description = describe(&traced(text.as_bytes()), Some(10));
    assert!(
        !description.says_durations && description.offered_load.is_none() && description.windows.is_empty()
    );
    let workload = description.workload();
    assert_eq!(workload.classes[0].model.as_deref(), Some("LM (batch size 5)"));
    assert!(workload.classes[0].work.is_some() && workload.classes[0].duration.is_none());
    again(&description, 1);
}

#[test]
fn a_poisson_law_is_found_again() {
    for seed in 0..10 {
        let description = describe(&drawn(5000, Arrivals::Poisson { per_hour: Some(20.0) }, seed), None);
        let fit = description.arrivals.as_ref().unwrap();
        let Arrivals::Poisson { per_hour: Some(rate) } = best(&description) else {
            panic!("seed {seed}: {:?}", fit.candidates)
        };
        assert_eq!(description.workload().arrivals.kind(), "poisson", "seed {seed}");
        // Four standard errors.
        assert!(close(*rate, 20.0, 4.0 / 5000f64.sqrt()), "seed {seed}: {rate}");
        assert!(
            fit.dispersion.p_value > 1e-4 && close(fit.dispersion.index, 1.0, 0.3),
            "{:?}",
            fit.dispersion
        );
        let Arrivals::Poisson { per_hour: Some(second) } = best(&again(&description, seed + 100)).clone()
        else {
            panic!("seed {seed}: not Poisson again")
        };
        assert!(close(second, *rate, 4.0 / 5000f64.sqrt()), "seed {seed}: {second} after {rate}");
    }
}

#[test]
fn a_diurnal_law_is_found_again_with_and_without_days() {
    let per_hour: Vec<f64> = (0..24).map(|hour| 5.0 + 20.0 * f64::from(hour % 12)).collect();
    for (seed, days) in [(1, vec![]), (2, vec![1.4, 1.4, 1.4, 1.2, 1.0, 0.3, 0.3])] {
        let law = Arrivals::Diurnal { per_hour: per_hour.clone(), days: days.clone() };
        let description = describe(&drawn(60_000, law, seed), None);
        let fit = description.arrivals.as_ref().unwrap();
        assert!(fit.dispersion.p_value < 1e-6 && fit.dispersion.index > 5.0);
        assert_eq!(description.workload().arrivals.kind(), "diurnal");
        for described in [&description, &again(&description, 7)] {
            let Arrivals::Diurnal { per_hour: found, days: found_days } = best(described) else {
                panic!("{:?}", fit.candidates)
            };
            assert_eq!(found_days.len(), days.len());
            let weeks = 60_000.0 / per_hour.iter().sum::<f64>() / 7.0;
            for (found, true_rate) in found.iter().zip(&per_hour) {
                // Five standard errors of a count (twice, where it was drawn twice), and of the factors beside it.
                let error = 7.0 / (true_rate * weeks * 7.0).sqrt() + 0.02;
                assert!(close(*found, *true_rate, error), "{found} for {true_rate}, {error}");
            }
            for (found, day) in found_days.iter().zip(&days) {
                assert!(close(*found, *day, 0.1), "{found} for {day}");
            }
        }
    }
}

#[test]
fn a_modulated_law_is_found_again() {
    let state = |per_hour, stay| State { per_hour, stay: Amount(stay) };
    let truth = [state(4.0, 100_000.0), state(60.0, 40_000.0)];
    let description = describe(&drawn(60_000, Arrivals::Mmpp { states: truth.to_vec() }, 3), None);
    for described in [&description, &again(&description, 11)] {
        let Arrivals::Mmpp { states } = best(described) else { panic!("{:?}", described.arrivals) };
        for (found, state) in states.iter().zip(&truth) {
            // Rates are known well. A stay is known as well as the mean of that many stays: some 80 here.
            assert!(close(found.per_hour, state.per_hour, 0.1), "{states:?}");
            assert!(close(found.stay.0, state.stay.0, 0.5), "{states:?}");
        }
    }
    assert_eq!(description.workload().arrivals.kind(), "mmpp");
    assert!(description.arrivals.unwrap().dispersion.index > 5.0);
}

/// Both states of a modulated law; how long bursts last, and how many jobs they bring.
fn bursts(description: &Description) -> (State, State, f64) {
    let Arrivals::Mmpp { states } = best(description) else { panic!("{:?}", description.arrivals) };
    (states[0], states[1], states[1].per_hour * states[1].stay.0 / 3600.0)
}

/// All four come in bursts of minutes, which no hour of the day explains.
#[test]
fn the_clusters_of_itp_are_described_and_drawn_again() {
    let clusters: [(&str, &[u8], u32, f64); 4] = [
        ("01", cluster!("cluster01"), 128, 0.22),
        ("04", cluster!("cluster04"), 768, 0.64),
        ("07", cluster!("cluster07"), 512, 0.50),
        ("10", cluster!("cluster10"), 16, 0.32),
    ];
    for (name, bytes, gpus, load) in clusters {
        let description = describe(&traced(bytes), Some(gpus));
        let fit = description.arrivals.as_ref().unwrap();
        println!("cluster {name}: {:?}, {} bins of {} s", fit.dispersion, fit.bins, fit.bin_s);
        for candidate in &fit.candidates {
            println!(
                "    {}: {} parameters, BIC {:.0}",
                candidate.law.kind(),
                candidate.parameters,
                candidate.bic
            );
        }
        println!("    {:?}", best(&description));
        assert!((description.offered_load.unwrap() - load).abs() < 0.005);
        assert!(fit.dispersion.p_value < 1e-6 && fit.candidates.len() == 4);
        // Gaps say more than rates; what the rates say is drawn again.
        let by_gaps = description.workload();
        assert_eq!(by_gaps.arrivals.kind(), "gaps");
        let by_rates = Workload { arrivals: best(&description).clone(), ..by_gaps };
        let second = describe(&generate(&by_rates, 1, &[]).unwrap(), None);
        assert_eq!(second.jobs, description.jobs);
        // Five standard errors of a mean.
        let error = 5.0 * description.work.variation / (description.jobs as f64).sqrt();
        assert!(close(second.work.mean, description.work.mean, error), "{:?}", second.work);
        // The more bursts there are, the better they are known: each is about as uncertain as an exponential number.
        // Bursts are shorter than the bins, so how many jobs they bring is known, and hardly how fast.
        let ((calm, burst, jobs), (calm_again, _, jobs_again)) = (bursts(&description), bursts(&second));
        let error = 5.0 / (description.span_s / (calm.stay.0 + burst.stay.0)).sqrt();
        println!("    {jobs:.1} jobs in a burst, again {jobs_again:.1}, within {error:.2}");
        assert!(close(jobs_again, jobs, error) && close(calm_again.stay.0, calm.stay.0, error), "{second:?}");
        assert!(close(calm_again.per_hour, calm.per_hour, 0.3), "{calm_again:?} after {calm:?}");
    }
}
