//! Jobs whose batch may change: work, efficiency and steps against the tables they come from.

use std::sync::LazyLock;

use bellwether_core::prediction::{
    Configuration, DeviceGroup, JobDescription, Link, Prediction, StepModel, Validity,
};
use bellwether_model::elastic::jobs::{Applications, FittedJobs, MeasuredJobs, Sources};
use bellwether_model::elastic::{Goodput, efficiency, noise_scale};
use proptest::prelude::*;
use serde_json::Value;

use crate::tables;

static APPLICATIONS: LazyLock<Applications> = LazyLock::new(|| {
    let mut found = Applications::default();
    for job in &tables::POLLUX {
        let sources =
            Sources { placements: job.placements, scalability: job.scalability, validation: job.curves };
        found.add(job.name, &sources, job.name).unwrap();
    }
    found
});
static FITTED: LazyLock<FittedJobs> = LazyLock::new(|| FittedJobs(APPLICATIONS.clone()));
static MEASURED: LazyLock<MeasuredJobs> = LazyLock::new(|| MeasuredJobs(APPLICATIONS.clone()));

fn job(model: &str, batch: u64) -> JobDescription {
    JobDescription { name: "j".into(), model: model.into(), batch, devices: 1 }
}

fn initial(model: &str) -> JobDescription {
    job(model, APPLICATIONS.limits(model).unwrap().initial)
}

fn on(placement: &[u32], batch: u64, accumulation: u32) -> Configuration {
    let group =
        |(node, count): (usize, &u32)| DeviceGroup { node: node as u32, device: "t4".into(), count: *count };
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    let devices = placement.iter().enumerate().map(group).collect();
    Configuration { accumulation, ..Configuration::synchronous(devices, batch, link) }
}

fn close(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-9
}

#[test]
fn work_is_the_samples_of_all_epochs() {
    // The last progress of validation-M0 times M0.
    let work = |name: &str| APPLICATIONS.work(name, APPLICATIONS.limits(name)?.initial);
    assert_eq!(work("bert"), Some(14774.0 * 12.0));
    assert_eq!(work("cifar10"), Some(39063.0 * 128.0));
    assert_eq!(work("deepspeech2"), Some(28536.0 * 20.0));
    assert_eq!(work("ncf"), Some(194_174.0 * 256.0));
    assert_eq!(work("yolov3"), None);
    assert_eq!(APPLICATIONS.names().collect::<Vec<_>>(), ["bert", "cifar10", "deepspeech2", "ncf"]);
}

/// With batch B throughout, a run took as many steps of B as its validation curve says; the noise scales of its epochs
/// give that back, though they are those of the epochs' ends.
#[test]
fn the_work_at_another_batch_is_what_a_run_with_it_took() {
    for table in &tables::POLLUX {
        for &(batch, csv) in table.curves {
            let steps = tables::curve(csv).last().unwrap()[1];
            let (found, ran) = (APPLICATIONS.work(table.name, batch).unwrap(), steps * batch as f64);
            println!("{:11} {batch:5}: {:6.3} of the samples", table.name, found / ran);
            assert!((0.85..1.15).contains(&(found / ran)), "{} {batch}: {found} {ran}", table.name);
        }
    }
}

#[test]
fn limits_and_noise_scales_are_those_of_the_reference() {
    let cases: Value = serde_json::from_str(tables::GOODPUT_CASES).unwrap();
    for (name, case) in cases.as_object().unwrap() {
        let limits = APPLICATIONS.limits(name).unwrap();
        assert_eq!(limits.initial, case["init_batch_size"]);
        assert_eq!(limits.largest, case["max_batch_size"]);
        assert_eq!(limits.local, serde_json::from_value(case["atomic_bsz_range"].clone()).unwrap());
        let epoch = case["grad_epoch"].as_u64().unwrap();
        let [square, variance] = ["grad_sqr", "grad_var"].map(|key| case[key].as_f64().unwrap());
        let expected = noise_scale(limits.initial, square, variance).unwrap();
        // Some way into that epoch.
        let table = tables::POLLUX.iter().find(|table| table.name == name).unwrap();
        let before =
            epoch.checked_sub(1).map_or(0.0, |row| tables::curve(table.curves[0].1)[row as usize][0]);
        let progress = (before + 1.0) * limits.initial as f64;
        let found = APPLICATIONS.noise_scale(name, limits.initial, progress).unwrap();
        assert!(close(found, expected), "{name}: {found} {expected}");
    }
}

#[test]
fn efficiency_by_hand() {
    let bert = initial("bert");
    // First epoch, batch 12: 12 * 6894015304034181 / 195590723287826.75 = 422.966.
    let noise = APPLICATIONS.noise_scale("bert", 12, 0.0).unwrap();
    assert!((noise - 422.966).abs() < 0.001, "{noise}");
    assert!(close(FITTED.efficiency(&bert, 384, 0.0), efficiency(noise, 12.0, 384.0)));
    // With batch 384 itself: 12 * 6086044601707605 / 6509198881259.403 = 11219.897.
    let own = (11219.897 + 12.0) / (11219.897 + 384.0);
    assert!((MEASURED.efficiency(&bert, 384, 0.0) - own).abs() < 1e-6);
    // The first of two epochs ends after 7387 steps of 12.
    for model in [&*FITTED as &dyn StepModel, &*MEASURED] {
        assert_eq!(model.efficiency_changes_at(&bert, 0.0), Some(7387.0 * 12.0));
        assert_eq!(model.efficiency_changes_at(&bert, 7387.0 * 12.0), None);
        assert_eq!(model.efficiency_changes_at(&bert, 1e12), None);
        assert_eq!(model.efficiency(&bert, 12, 1e5), 1.0);
        assert_eq!(model.efficiency(&job("bert", 96), 96, 1e5), 1.0);
    }
    // An author who chose 384 counts in samples at 384: the epoch ends later by its efficiency.
    let end = MEASURED.efficiency_changes_at(&job("bert", 384), 0.0).unwrap();
    assert!((end - 7387.0 * 12.0 / own).abs() < 0.1, "{end}");
}

#[test]
fn measured_steps_come_back() {
    let cases: Value = serde_json::from_str(tables::GOODPUT_CASES).unwrap();
    for (name, case) in cases.as_object().unwrap() {
        for probe in case["table_probes"].as_array().unwrap() {
            let placement: Vec<u32> = serde_json::from_value(probe["placement"].clone()).unwrap();
            let local = probe["local_bsz"].as_u64().unwrap();
            let [step_s, exchange_s] = ["step_time", "sync_time"].map(|key| probe[key].as_f64().unwrap());
            let replicas = placement.iter().map(|count| u64::from(*count)).sum::<u64>();
            let at = |batch, accumulation| {
                MEASURED.predict(&initial(name), &on(&placement, batch, accumulation)).unwrap()
            };
            let one = at(replicas * local, 1);
            assert!((one.step_s / step_s - 1.0).abs() < 1e-6, "{name} {placement:?}: {one:?}");
            // Two further micro-batches take their gradients only.
            let three = at(3 * replicas * local, 3);
            let expected = step_s + 2.0 * (step_s - exchange_s);
            assert!((three.step_s / expected - 1.0).abs() < 1e-6, "{name} {placement:?}: {three:?}");
            assert!(close(three.examples_per_s, 3.0 * (replicas * local) as f64 / three.step_s));
        }
    }
}

#[test]
fn placements_over_more_nodes_lie_between_even_ones() {
    let ncf = initial("ncf");
    let step_s = |placement: &[u32], batch| MEASURED.predict(&ncf, &on(placement, batch, 1)).unwrap().step_s;
    let table = tables::scalability(tables::POLLUX[3].scalability);
    let measured = |nodes, replicas, local: f64| {
        let found =
            table.iter().find(|row| (row.nodes, row.replicas, row.local_batch) == (nodes, replicas, local));
        found.unwrap().step_s
    };
    assert!(close(step_s(&[2; 8], 16 * 129), measured(8, 16, 129.0)));
    assert!(close(step_s(&[3, 1, 3, 1, 3, 1, 2, 2], 16 * 129), measured(8, 16, 129.0)));
    // Seven nodes of two lie halfway between six and eight of two.
    let half = (measured(6, 12, 129.0) + measured(8, 16, 129.0)) / 2.0;
    assert!(close(step_s(&[2; 7], 14 * 129), half));
    // Five nodes lie between four, which `placements.csv` has, and six.
    let four = step_s(&[1; 4], 4 * 129);
    assert!(close(step_s(&[1; 5], 5 * 129), (four + measured(6, 6, 129.0)) / 2.0));
}

#[test]
fn a_share_that_does_not_fit_is_split() {
    // 96 samples on 2 devices: 48 each, of which 12 fit at a time.
    for model in [&*FITTED as &dyn StepModel, &*MEASURED] {
        let split = model.predict(&initial("bert"), &on(&[2], 96, 1)).unwrap();
        assert_eq!(split, model.predict(&initial("bert"), &on(&[2], 96, 4)).unwrap());
        assert_eq!(split.validity, Validity::Interpolated);
        let few = model.predict(&initial("bert"), &on(&[4], 12, 1)).unwrap();
        assert!(matches!(few.validity, Validity::Extrapolated(_)), "{few:?}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for model in [&*FITTED as &dyn StepModel, &*MEASURED] {
        let error = |name: &str, placement: &[u32], batch| {
            model.predict(&job(name, 12), &on(placement, batch, 1)).unwrap_err().to_string()
        };
        assert!(error("brt", &[1], 12).contains("did you mean `bert`"));
        assert!(error("bert", &[4], 3).contains("cannot share a batch of 3"));
        assert!(error("bert", &[], 3).contains("no device"));
        let crowd = model.best_batch(&initial("bert"), &on(&[4; 25], 0, 1), 0.0);
        assert!(crowd.is_err(), "{crowd:?}");
    }
    let error = |placement: &[u32]| {
        MEASURED.predict(&initial("ncf"), &on(placement, 4096, 1)).unwrap_err().to_string()
    };
    assert_eq!(error(&[8]), "at most 4 devices of a node were measured, not 8");
    assert_eq!(error(&[1; 17]), "at most 16 nodes were measured, not 17");
}

#[test]
fn the_believed_best_batch_is_the_optimum_of_goodput() {
    for name in APPLICATIONS.names() {
        let limits = APPLICATIONS.limits(name).unwrap();
        let progress = 0.3 * APPLICATIONS.work(name, limits.initial).unwrap();
        let noise = APPLICATIONS.noise_scale(name, limits.initial, progress).unwrap();
        let goodput = Goodput::new(APPLICATIONS.throughput(name).unwrap(), noise, limits).unwrap();
        for placement in [&[1][..], &[3], &[4, 4], &[4; 8]] {
            let replicas = placement.iter().sum();
            let expected = goodput.optimum(placement.len() as u32, replicas).unwrap();
            let found = FITTED.best_batch(&initial(name), &on(placement, 0, 1), progress).unwrap();
            assert!(close(found.goodput(), expected.goodput), "{name} {placement:?}");
            assert_eq!(found.accumulation, expected.accumulation_steps + 1);
        }
    }
}

/// How far the belief is from what was measured; printed, and kept from getting worse.
#[test]
fn the_belief_is_near_the_tables() {
    for name in APPLICATIONS.names() {
        let mut errors = Vec::new();
        for placement in [&[1][..], &[2], &[4], &[2, 2], &[4, 4], &[4; 4], &[4; 8], &[4; 16]] {
            let best = FITTED.best_batch(&initial(name), &on(placement, 0, 1), 0.0).unwrap();
            let configuration = on(placement, best.batch, best.accumulation);
            let [fitted, measured] = [&*FITTED as &dyn StepModel, &*MEASURED]
                .map(|model| model.predict(&initial(name), &configuration).unwrap().examples_per_s);
            errors.push(fitted / measured - 1.0);
        }
        let shown: Vec<String> = errors.iter().map(|error| format!("{:+.0} %", 100.0 * error)).collect();
        println!("{name:11}: {}", shown.join(", "));
        let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.35, "{name}: {mean}");
    }
}

fn is_lawful(p: &Prediction) -> bool {
    let fits = |value: f64| value.is_finite() && value > 0.0;
    [p.low, p.examples_per_s, p.high, p.step_s].into_iter().all(fits)
        && p.low <= p.examples_per_s
        && p.examples_per_s <= p.high
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn predictions_are_lawful(
        name in prop::sample::select(vec!["bert", "cifar10", "deepspeech2", "ncf"]),
        placement in prop::collection::vec(0u32..=4, 0..=16),
        own in 1u64..100_000, batch in 0u64..200_000, accumulation in 0u32.., part in 0.0f64..1.2,
    ) {
        let job = job(name, own);
        let progress = part * APPLICATIONS.work(name, own).unwrap();
        for model in [&*FITTED as &dyn StepModel, &*MEASURED] {
            for accumulation in [accumulation, accumulation % 9] {
                if let Ok(p) = model.predict(&job, &on(&placement, batch, accumulation)) {
                    prop_assert!(is_lawful(&p), "{p:?}");
                }
            }
            let relative = model.efficiency(&job, batch, progress);
            prop_assert!(relative.is_finite() && relative > 0.0);
            prop_assert!(close(model.efficiency(&job, own, progress), 1.0));
            if let Some(next) = model.efficiency_changes_at(&job, progress) {
                prop_assert!(next > progress, "{next} {progress}");
                // Nothing changes before it.
                let middle = progress + 0.5 * (next - progress);
                prop_assert_eq!(model.efficiency(&job, batch, middle), relative);
            }
            let configuration = on(&placement, batch, 1);
            if let Ok(best) = model.best_batch(&job, &configuration, progress) {
                let limits = APPLICATIONS.limits(name).unwrap();
                prop_assert!(best.batch >= limits.initial);
                let found = model.predict(&job, &on(&placement, best.batch, best.accumulation)).unwrap();
                prop_assert!(close(found.examples_per_s, best.examples_per_s), "{found:?} {best:?}");
                prop_assert!(close(model.efficiency(&job, best.batch, progress), best.efficiency));
                // The default batch is a candidate wherever it can be shared in whole.
                let workers = configuration.workers();
                let own = on(&placement, limits.initial.max(u64::from(workers) * limits.local.0), 1);
                let own = limits.initial.is_multiple_of(workers.into()).then_some(own);
                if let Some(p) = own.and_then(|own| model.predict(&job, &own).ok()) {
                    let goodput = p.examples_per_s * model.efficiency(&job, limits.initial, progress);
                    prop_assert!(best.goodput() >= 0.999 * goodput || limits.initial / u64::from(workers) < limits.local.0);
                }
            }
        }
    }

    #[test]
    fn no_text_panics(
        texts in prop::array::uniform3(".{0,60}"),
        places in "(placement,local_bsz,step_time,sync_time\n)(1?[0-3]{0,2},[0-9]{1,2},[-0-9.e]{1,4},0?\\.?[0-9]?\n){0,3}",
        spread in "(num_nodes,num_replicas,local_bsz,step_time,sync_time\n)([0-9]{0,2},[0-9]{1,2},[0-9]{0,3},[0-9]{1,2},0\n){0,3}",
        curve in "(progress,iteration,metric,grad_sqr,grad_var\n)([0-9]{1,2},1,x,[0-9.]{1,3},[0-9.]{1,3}\n){0,3}",
        batch in any::<u64>(),
    ) {
        for (placements, scalability, curve) in [
            (&texts[0], &texts[1], &texts[2]), (&places, &spread, &curve), (&places, &String::new(), &curve),
        ] {
            let mut found = Applications::default();
            let sources = Sources { placements, scalability, validation: &[(4, curve), (1 + batch % 50, curve)] };
            if found.add("a", &sources, "a").is_ok() {
                for model in [&FittedJobs(found.clone()) as &dyn StepModel, &MeasuredJobs(found.clone())] {
                    if let Ok(p) = model.predict(&job("a", 4), &on(&[1, 2], batch, 1)) {
                        prop_assert!(is_lawful(&p), "{p:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn bad_tables_are_refused_with_their_line() {
    let places = "placement,local_bsz,step_time,sync_time\n1,4,0.5,0.01\n";
    let curve = "progress,iteration,metric,grad_sqr,grad_var\n10,10,1,1,2\n20,20,1,1,2\n";
    let error = |placements: &str, scalability: &str, validation: &[(u64, &str)]| {
        Applications::default()
            .add("a", &Sources { placements, scalability, validation }, "dir/a")
            .unwrap_err()
    };
    let one = [(4, curve)];
    assert!(
        Applications::default()
            .add("a", &Sources { placements: places, scalability: "", validation: &one }, "a")
            .is_ok()
    );
    assert_eq!(error("", "", &one).place, "dir/a/placements.csv, line 1");
    assert!(error("placement,local_bsz\n", "", &one).hint.contains("step_time"));
    assert_eq!(error(&places.replace("1,4,0.5,0.01", "1,4,0.5"), "", &one).what, "there are 3 fields");
    assert!(error(&places.replace("\n1,", "\n1x,"), "", &one).what.contains("`1x`"));
    assert!(error(&places.replace("0.01", "0.5"), "", &one).what.contains("waiting"));
    assert!(error(&places.replace("0.5", "inf"), "", &one).what.contains("`inf`"));
    let spread = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,5,4,1,0\n";
    let found = error(places, spread, &one);
    assert_eq!(
        (found.place.as_str(), found.what.as_str()),
        ("dir/a/scalability.csv, line 2", "5 replicas in 6 nodes")
    );
    assert!(error(places, "", &[]).what.contains("no validation curve"));
    assert_eq!(
        error(places, "", &[(4, &curve.replace("20,20", "10,20"))]).place,
        "dir/a/validation-4.csv, line 3"
    );
    assert_eq!(
        error(places, "", &[(4, &curve.replace(",1,2\n20", ",0,0\n20"))]).place,
        "dir/a/validation-4.csv, line 2"
    );
    let short = curve.lines().take(2).collect::<Vec<_>>().join("\n");
    assert!(error(places, "", &[(4, curve), (8, &short)]).what.contains("1 epochs, but 2"));
}

#[test]
fn a_cap_of_the_local_batch_splits_the_share_of_a_device() {
    let mut capped = APPLICATIONS.clone();
    capped.cap_local_batches("application,max_local_bsz\ncifar10,64\nncf,9999999\n", "limits.csv").unwrap();
    assert_eq!(capped.limits("cifar10").unwrap().local, (32, 64));
    // No more than was measured, and nothing of those that are not named.
    assert_eq!(capped.limits("ncf"), APPLICATIONS.limits("ncf"));
    assert_eq!(capped.limits("bert"), APPLICATIONS.limits("bert"));
    let (truth, belief) = (MeasuredJobs(capped.clone()), FittedJobs(capped));
    let (configuration, job) = (on(&[2], 256, 1), initial("cifar10"));
    // 128 samples of each of two devices are two micro-batches of 64, the second of which exchanges nothing.
    let seconds = |model: &dyn StepModel, configuration: &Configuration| {
        configuration.batch as f64 / model.predict(&job, configuration).unwrap().examples_per_s
    };
    let twice = on(&[2], 256, 2);
    assert!(close(seconds(&truth, &configuration), seconds(&*MEASURED, &twice)));
    assert!(close(seconds(&belief, &configuration), seconds(&*FITTED, &twice)));
    assert!(seconds(&truth, &configuration) > seconds(&*MEASURED, &configuration));
    for model in [&truth as &dyn StepModel, &belief] {
        for devices in [1, 2, 4] {
            let best = model.best_batch(&job, &on(&[devices], 128, 1), 0.0).unwrap();
            let local = best.batch / u64::from(devices) / u64::from(best.accumulation);
            assert!((32..=64).contains(&local), "{devices} devices: {best:?}");
        }
    }
}

#[test]
fn caps_that_make_no_sense_are_refused() {
    for (csv, place, what, hint) in [
        ("cifar10,64\n", "limits.csv, line 1", "the head is", "application,max_local_bsz"),
        ("application,max_local_bsz\n", "limits.csv", "no row", "at least one"),
        ("application,max_local_bsz\nresnet,64\n", "limits.csv, line 2", "`resnet`", "bert, cifar10"),
        ("application,max_local_bsz\n\ncifar10,31\n", "limits.csv, line 3", "is 31", "is 32"),
        ("application,max_local_bsz\ncifar10,-1\n", "limits.csv, line 2", "`-1`", "from 1 to"),
        ("application,max_local_bsz\ncifar10,64,1\n", "limits.csv, line 2", "3 fields", "max_local_bsz"),
        ("application,max_local_bsz\ncifar10,64\ncifar10,32\n", "limits.csv, line 3", "twice", "leave"),
    ] {
        let mut applications = APPLICATIONS.clone();
        let error = applications.cap_local_batches(csv, "limits.csv").unwrap_err();
        assert_eq!(error.place, place, "{csv}");
        let hinted = error.hint.contains(hint);
        assert!(error.what.contains(what) && hinted, "{csv}: {error:?}");
        assert_eq!(applications, *APPLICATIONS, "{csv}: nothing is capped");
    }
}
