//! Kinds of machines on the whole road: profiled on each, predicted, planned for, simulated and run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use bellwether_core::job::Job;
use bellwether_core::parse;
use bellwether_core::plan::Plan;
use bellwether_core::profile::task;
use bellwether_core::record::Summary;
use bellwether_runtime::metrics;
use bellwether_session::kind;
use serde_json::Value;

use crate::harness::{Ended, Scene};

/// How fast a machine of the slow kind computes, relative to one of the quick kind.
const SLOWNESS: &str = "0.4";

/// Twelve virtual nodes of 10 ms on a quick machine.
const JOB: &str = "name = \"job\"\nseed = 7\nsteps = 60\n[model]\nkind = \"synthetic\"\nstep_time = \"10ms\"\n\
    parameters = \"64KiB\"\n[data]\nkind = \"indices\"\nsamples = 1000\n[batch]\nsize = 24\nvirtual_nodes = 12\n\
    [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";

/// Machines of both kinds; those of the slow one are started by a command that slows them down.
const PRICES: &str = "
    [network]
    bandwidth = \"10Gbit/s\"
    [[machine]]
    device = \"quick\"
    profile = \"kinds/quick.json\"
    price = \"$2/h\"
    limit = 1
    [[machine]]
    device = \"slow\"
    profile = \"kinds/slow.json\"
    price = \"$1/h\"
    limit = 2
    [machine.obtain]
    here = [\"SLOWLY\"]
";

/// Starts a machine's script, whose workers compute at this part of their speed.
const SLOWLY: &str = "#!/bin/sh\n\
    exec \"$1\" \"$2\" \"$(printf %s \"$3\" | sed \"s/'worker'/'worker' '--speed=SPEED'/\")\"\n";

#[track_caller]
fn rows(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("an array")
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no number {key}: {row}"))
}

/// A scene with the job, and its profiles on both kinds of machine.
fn scene() -> Scene {
    let scene = Scene::new(JOB);
    fs::create_dir(scene.path("kinds")).expect("a folder");
    let profile = |more: &[&str]| {
        let ended = scene.call(&[&["profile", "job.toml", "--steps", "8", "-o"], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    profile(&["kinds/quick.json"]);
    profile(&["kinds/slow.json", "--speed", SLOWNESS]);
    let slowly = scene.write("slowly.sh", SLOWLY.replace("SPEED", SLOWNESS));
    fs::set_permissions(&slowly, Permissions::from_mode(0o755)).expect("a script");
    scene.write("prices.toml", PRICES.replace("SLOWLY", &slowly.display().to_string()));
    scene
}

/// The samples per second of a run in its last steps, by their median.
fn measured(scene: &Scene, summary: &Summary) -> f64 {
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    let mut steps_s: Vec<f64> =
        metrics::read(&scene.run_folder()).map(|step| step.duration_s).skip(40).collect();
    steps_s.sort_by(f64::total_cmp);
    24.0 / steps_s[steps_s.len() / 2]
}

#[test]
fn each_kind_of_machine_is_predicted_from_its_own_profile() {
    let scene = scene();
    let predict = |words: &[&str]| rows(&scene.call(&[&["predict"], words, &["--format", "json"]].concat()));
    // What is said of the other kind is what its own profile says.
    for more in [&["--workers", "1..4"][..], &["--protocol", "asp", "--workers", "3"], &["--batch", "48"]] {
        let there = predict(&[&["kinds/quick.json", "--device", "slow=kinds/slow.json"], more].concat());
        assert_eq!(there, predict(&[&["kinds/slow.json"], more].concat()), "{more:?}");
    }
    let quick = predict(&["kinds/quick.json", "--workers", "1..2"]);
    let slow = predict(&["kinds/slow.json", "--workers", "1..2"]);
    let ratio = number(&slow[0], "examples_per_s") / number(&quick[0], "examples_per_s");
    assert!((0.3..0.55).contains(&ratio), "{ratio}");

    // Both kinds together, with equal shares: every step waits for the slow one.
    let mixture = ["--device", "quick=kinds/quick.json:1", "--device", "slow=kinds/slow.json:1"];
    let mixed = predict(&[&["kinds/quick.json"], &mixture[..]].concat()).remove(0);
    assert!(mixed["validity"]["extrapolated"].as_str().is_some_and(|why| why.contains("unlike devices")));
    let slower = number(&slow[1], "examples_per_s");
    assert!((number(&mixed, "examples_per_s") / slower - 1.0).abs() < 0.2, "{mixed} {slow:?}");
    let unequal = ["--workers", "2", "--worker-speed", &format!("1,{SLOWNESS}@0s"), "--shares", "equal"];
    let rate = measured(&scene, &scene.train(&unequal).summary());
    let predicted = number(&mixed, "examples_per_s");
    assert!((rate / predicted - 1.0).abs() < 0.25, "{rate} samples/s, {predicted} predicted");
}

#[test]
fn plans_know_each_kind_by_its_profile_and_are_carried_out() {
    let scene = scene();
    let plan = |more: &[&str]| {
        let words =
            ["plan", "kinds/quick.json", "--catalog", "prices.toml", "--steps", "60", "--format", "json"];
        let ended = scene.call(&[&words[..], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        scene.write("plan.json", &ended.stdout);
        Plan::read(&ended.stdout, "plan.json").expect("a plan")
    };
    let made = plan(&["--budget", "1usd"]);
    // What a run needs to plan again stands in the plan: each kind as its own profile says.
    let link = ["--bandwidth", "10Gbps", "--latency", "0s", "--format", "json"];
    for (name, most) in [("quick", 1), ("slow", 2)] {
        let kind = made.kind(name).expect("a kind of the plan");
        let file = format!("kinds/{name}.json");
        let workers = format!("1..{most}");
        let words = ["predict", &file, "--workers", &workers];
        let predicted = rows(&scene.call(&[&words[..], &link].concat()));
        assert_eq!(kind.examples_per_s.len(), most, "{kind:?}");
        for (planned, row) in kind.examples_per_s.iter().zip(&predicted) {
            assert!((planned / number(row, "examples_per_s") - 1.0).abs() < 1e-6, "{kind:?} {row}");
        }
    }
    // The fastest are all of them, each with as many virtual nodes as it can compute.
    let chosen = made.chosen().expect("a choice");
    assert_eq!((chosen.workers, chosen.machines.len()), (3, 2), "{}", chosen.words());
    let nodes: Vec<u32> =
        chosen.machines.iter().flat_map(|machines| machines.virtual_nodes.clone()).collect();
    assert_eq!(nodes.iter().sum::<u32>(), 12, "{chosen:?}");
    assert!(nodes[0] > nodes[1] && nodes[0] > nodes[2], "{chosen:?}");
    assert!(chosen.examples_per_s > made.kind("quick").expect("a kind").examples_per_s[0], "{chosen:?}");

    // It is carried out without profiles and catalogue.
    fs::remove_dir_all(scene.path("kinds")).expect("the folder");
    fs::remove_file(scene.path("prices.toml")).expect("the catalogue");
    let run = scene.train(&["--plan", "plan.json", "--provision", "here", "--shares", "measured"]);
    let summary = run.summary();
    let (rate, planned) = (measured(&scene, &summary), chosen.examples_per_s);
    assert!((rate / planned - 1.0).abs() < 0.25, "{rate} samples/s, {planned} planned");
    let account = summary.provisioned.as_ref().expect("a provider gave machines");
    assert_eq!((account.obtained, account.left), (3, 0), "{account:?}");
    scene.audit();
}

#[test]
fn a_script_is_the_same_job_on_another_device() {
    let computation = |model: &str| {
        let text = format!(
            "name = \"job\"\nsteps = 1\n[model]\nkind = \"python\"\nscript = \"train.py\"\n{model}\n\
             [data]\nkind = \"indices\"\nsamples = 10\n[batch]\nsize = 4\nvirtual_nodes = 2\n\
             [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
        );
        kind::computation(&parse::document::<Job>(&text, "job.toml").expect("a job"))
    };
    let here = computation("source = \"ab\"");
    let there = computation("source = \"ab\"\ndevice = \"cuda\"\nthreads = 4");
    assert_eq!((there.as_str(), task(&there)), (format!("{here}@cuda-4").as_str(), here.as_str()));
    assert_eq!(computation("source = \"ab\"\nthreads = 2"), format!("{here}@cpu-2"));
    assert_ne!(task(&computation("source = \"cd\"\ndevice = \"cuda\"")), here, "another script");
}
