//! Plans that choose how workers are kept together: an exhaustive oracle, and what staleness does to the choice.

use bellwether_core::job::SyncPolicy;
use bellwether_core::plan::{Plan, SyncStrategy};
use bellwether_core::prediction::{Configuration, DeviceGroup, JobDescription, Link, Protocol, StepModel};
use bellwether_core::profile::Profile;
use bellwether_model::predict::ProfileModel;
use bellwether_model::staleness::Sensitivity;
use bellwether_sched::plan::strategies::{Staleness, list};
use bellwether_sched::plan::{Catalogue, Question, plan};
use serde_json::json;

const NODES: u32 = 8;
const BATCH: u64 = 512;
const SAMPLES: f64 = 2e6;
const LINK: Link = Link { bandwidth_bytes_per_s: 4e9, latency_s: 1e-4 };

/// Eight virtual nodes of 20 to 40 ms and two parts, of 6 and 2 MB.
fn model(catalogue: &Catalogue) -> ProfileModel {
    let nodes = NODES as usize;
    let mut operations: Vec<serde_json::Value> = (0..nodes)
        .map(|n| json!({ "name": n.to_string(), "kind": "compute", "after": if n > 0 { vec![n - 1] } else { vec![] } }))
        .collect();
    for part in 0..2 {
        let (send, update) = (json!({ "upload": part }), json!({ "update": part }));
        operations.push(json!({ "name": format!("send {part}"), "kind": send, "after": [nodes - 1] }));
        operations
            .push(json!({ "name": format!("update {part}"), "kind": update, "after": [nodes + 2 * part] }));
    }
    let step = |number: usize| {
        let mut seconds: Vec<f64> =
            (0..nodes).map(|node| 0.02 + 0.02 * ((number * 3 + node * 5) % 8) as f64 / 7.0).collect();
        let step_s = seconds.iter().sum::<f64>() + 0.002;
        seconds.extend([0.0, 0.001, 0.0, 0.001]);
        json!({ "step_s": step_s, "operations_s": seconds })
    };
    let profile = json!({
        "version": 1, "job": "made", "source": "by hand", "device": "a", "batch": BATCH, "virtual_nodes": nodes,
        "parameter_bytes": 8_000_000,
        "parts": [{ "name": "large", "bytes": 6_000_000 }, { "name": "small", "bytes": 2_000_000 }],
        "operations": operations, "steps": (0..16).map(step).collect::<Vec<_>>(),
    });
    let model =
        ProfileModel::new(Profile::read(&profile.to_string(), "made").expect("a profile")).expect("a model");
    catalogue.devices().iter().fold(model, |model, (device, speed)| {
        model.with_device(device, speed.unwrap_or(1.0)).expect("a speed")
    })
}

fn catalogue() -> Catalogue {
    let text = "[[machine]]\ndevice = \"a\"\nprice = \"$1/h\"\nprovision = \"60s\"\njoin = \"30s\"\n\
                [[machine]]\ndevice = \"b\"\nspeed = 2.5\nprice = \"$3.1/h\"\nprovision = \"50s\"\nlimit = 6\n";
    Catalogue::read(text, "prices.toml", &|_| unreachable!("no file is named")).expect("a catalogue")
}

fn policies(words: &[&str]) -> Vec<SyncPolicy> {
    words.iter().map(|word| word.parse().expect("a policy")).collect()
}

fn question<'a>(job: &'a JobDescription, ways: &'a [SyncStrategy]) -> Question<'a> {
    Question {
        job,
        virtual_nodes: NODES,
        batch: BATCH,
        samples: SAMPLES,
        link: Some(LINK),
        checkpoint_s: 5.0,
        deadline_s: None,
        budget_dollars: None,
        confidence: 0.95,
        transient: false,
        max_workers: 8,
        regions: &[],
        ways,
        nodes_per_update: 1,
        staleness: None,
        seed: 7,
        runs: 200,
    }
}

fn checked(found: Plan) -> Plan {
    assert_eq!(Plan::read(&serde_json::to_string(&found).expect("JSON"), "plan").as_ref(), Ok(&found));
    found
}

/// Seconds and dollars of one kind of machine with one strategy, computed independently of the planner.
fn by_hand(
    model: &ProfileModel,
    (device, price, begin_s): (&str, f64, f64),
    workers: u32,
    way: &SyncStrategy,
    staleness: Option<Staleness>,
) -> (f64, f64) {
    let SyncPolicy::Phases(phases) = &way.policy else { unreachable!("named phases") };
    let group = |node| DeviceGroup { node, device: device.into(), count: 1 };
    let devices: Vec<DeviceGroup> = (0..workers).map(group).collect();
    let mut work_s = 0.0;
    for (place, (from, protocol)) in phases.iter().enumerate() {
        let share = phases.get(place + 1).map_or(1.0, |(next, _)| *next) - from;
        let mut asked = Configuration::synchronous(devices.clone(), BATCH, LINK);
        let mut factor = 1.0;
        if *protocol != Protocol::Bsp {
            asked.protocol = *protocol;
            asked.servers = way.servers;
            asked.batch = u64::from(workers) * BATCH / u64::from(NODES);
            if let Some(Staleness { noise_scale, synchronous_momentum, momentum }) = staleness {
                let (batch, update) = (BATCH as f64, BATCH as f64 / f64::from(NODES));
                let job = Sensitivity { batch, update, noise_scale, synchronous_momentum, momentum };
                factor = job.work_factor(f64::from(workers - 1)).expect("a factor");
            }
        }
        let rate = model.predict(&model.job(), &asked).expect("a prediction").examples_per_s;
        work_s += share * factor * SAMPLES / rate;
    }
    let time_s = begin_s + work_s;
    // Machines are paid from when they run.
    (time_s, price)
}

#[test]
fn an_exhaustive_search_over_ways_finds_nothing_better() {
    let catalogue = catalogue();
    let model = model(&catalogue);
    let job = model.job();
    let ways = list(&policies(&["bsp", "asp", "ssp:2", "switch:0.25"]), 1..=3);
    assert_eq!(ways.len(), 1 + 3 * 3);
    for staleness in [
        None,
        Some(Staleness { noise_scale: 0.0, synchronous_momentum: 0.0, momentum: 0.0 }),
        Some(Staleness { noise_scale: 2000.0, synchronous_momentum: 0.9, momentum: 0.9 }),
    ] {
        // A generous budget: the fastest counts, within a per cent the cheapest.
        let asked = Question { staleness, budget_dollars: Some(1000.0), ..question(&job, &ways) };
        let found = checked(plan(&asked, &catalogue, &model).expect("a plan"));
        let chosen = found.chosen().expect("a choice");
        let mut least_s = f64::INFINITY;
        for (device, begin_s, most) in [("a", 90.0, 8), ("b", 50.0, 6)] {
            for workers in 1..=most {
                for way in ways.iter().filter(|way| way.servers <= workers) {
                    let (time_s, _) = by_hand(&model, (device, 0.0, begin_s), workers, way, staleness);
                    least_s = least_s.min(time_s);
                    let alike = found.candidates.iter().find(|c| {
                        c.way.as_ref() == Some(way)
                            && c.machines.len() == 1
                            && c.machines[0].device == device
                            && c.workers == workers
                    });
                    if let Some(alike) = alike {
                        assert!((alike.time_s / time_s - 1.0).abs() < 1e-6, "{}: {time_s}", alike.words());
                    }
                }
            }
        }
        // Both kinds together may be faster still, never slower.
        assert!(chosen.time_s <= 1.01 * least_s * (1.0 + 1e-9), "{least_s}: {}", chosen.words());
        let mixed = found.candidates.iter().any(|c| c.machines.len() > 1);
        assert!(mixed || chosen.time_s >= least_s * (1.0 - 1e-9), "{least_s}: {}", chosen.words());
    }
}

#[test]
fn more_ways_are_never_worse_and_none_is_the_synchronous_one() {
    let catalogue = catalogue();
    let model = model(&catalogue);
    let job = model.job();
    let ask = |ways: &[SyncStrategy]| {
        let asked = Question { deadline_s: Some(3600.0), ..question(&job, ways) };
        checked(plan(&asked, &catalogue, &model).expect("a plan"))
    };
    let plain = ask(&[]);
    let together = ask(&list(&policies(&["bsp"]), 1..=1));
    let (one, other) = (plain.chosen().expect("a choice"), together.chosen().expect("a choice"));
    assert_eq!((one.time_s, one.cost_dollars), (other.time_s, other.cost_dollars));
    assert_eq!((one.way.as_ref(), plain.synchronisation.as_ref()), (None, None));
    assert_eq!(together.synchronisation.expect("the words of the choice").phases, [(0, Protocol::Bsp)]);
    let more = ask(&list(&policies(&["bsp", "asp", "switch:0.0625"]), 1..=2));
    let best = more.chosen().expect("a choice");
    assert!(best.cost_dollars <= one.cost_dollars * (1.0 + 1e-9), "{} {}", best.words(), one.words());
    assert!(more.searched > plain.searched);
}

#[test]
fn staleness_moves_the_choice_only_where_a_target_asks_for_it() {
    let catalogue = catalogue();
    let model = model(&catalogue);
    let job = model.job();
    let ways = list(&policies(&["bsp", "asp", "switch:0.25"]), 1..=1);
    let ask = |staleness| {
        let asked = Question { staleness, budget_dollars: Some(1000.0), ..question(&job, &ways) };
        let found = checked(plan(&asked, &catalogue, &model).expect("a plan"));
        found.chosen().expect("a choice").clone()
    };
    let blind = ask(None);
    let policy = |candidate: &bellwether_core::plan::Candidate| {
        candidate.way.as_ref().map(|way| way.policy.to_string()).expect("a way")
    };
    assert_eq!((policy(&blind).as_str(), blind.work_factor), ("asp", None));
    assert!(blind.staleness.is_some_and(|mean| mean == f64::from(blind.workers - 1)), "{blind:?}");
    // With momentum and no noise to hide it, stale updates are hardly worth anything.
    let careful = ask(Some(Staleness { noise_scale: 0.0, synchronous_momentum: 0.9, momentum: 0.9 }));
    assert_eq!(policy(&careful), "bsp");
    let noisy = ask(Some(Staleness { noise_scale: 1e7, synchronous_momentum: 0.9, momentum: 0.9 }));
    assert_eq!(policy(&noisy), "asp");
    assert!(noisy.work_factor.is_some_and(|factor| (1.0..1.02).contains(&factor)), "{noisy:?}");
}

#[test]
fn ways_without_sense_are_refused() {
    let catalogue = catalogue();
    let model = model(&catalogue);
    let job = model.job();
    let refused = |ways: &[SyncStrategy], staleness, place: &str, words: &str| {
        let asked = Question { staleness, ..question(&job, ways) };
        let error = plan(&asked, &catalogue, &model).expect_err(words);
        assert!(error.place == place && error.to_string().contains(words), "{error}");
    };
    let way = |policy: &str, servers| SyncStrategy { policy: policy.parse().expect("a policy"), servers };
    let known = Staleness { noise_scale: 0.0, synchronous_momentum: 0.0, momentum: 0.0 };
    refused(&[way("auto", 0)], None, "--protocols", "auto");
    refused(&[way("bsp", 0), way("bsp", 0)], None, "--protocols", "twice");
    refused(&[way("gossip", 0)], Some(known), "--protocols", "gossip");
    refused(&[way("asp", 0)], None, "--servers", "missing servers");
    let wrong = Some(Staleness { noise_scale: -1.0, ..known });
    refused(&[way("asp", 1)], wrong, "machine `a` of the catalogue", "noise scale");
}
