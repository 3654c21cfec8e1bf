//! `bellwether plan`: what it chooses for a profile made by hand, how it says no, and what it refuses.

use bellwether_core::plan::{Market, Plan};
use serde_json::Value;

use crate::harness::{Ended, Scene};
use crate::predict::profile;

/// The profiled box at $1 an hour, and a device twice as fast; both cheaper as long as they live.
pub(crate) const PRICES: &str = r#"
fixed_price = "$0.01/h"

[[machine]]
name = "small"
device = "box"
region = "here"
price = "$1/h"
transient_price = "$0.3/h"
revocations = "exponential:10h,24h"
provision = "60s"
join = "20s"

[[machine]]
name = "big"
device = "fast"
speed = 2.0
region = "there"
price = "$3/h"
transient_price = "$0.9/h"
revocations = "exponential:10h,24h"
provision = "60s"
join = "20s"
"#;

/// About 2.8 hours of one worker, the profile's step taking 0.1 s or so.
const STEPS: &str = "100000";

fn scene() -> Scene {
    let scene = Scene::new("");
    scene.write("p.json", profile().to_string());
    scene.write("prices.toml", PRICES);
    scene
}

fn ask(scene: &Scene, arguments: &[&str]) -> Ended {
    let words = ["plan", "p.json", "--catalog", "prices.toml", "--steps", STEPS];
    scene.call(&[&words, arguments].concat())
}

#[track_caller]
fn planned(ended: &Ended, code: i32) -> Plan {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    Plan::read(&ended.stdout, "stdout").expect("a plan and nothing else")
}

#[test]
fn three_formats_and_a_plot_say_the_same() {
    let scene = scene();
    let wish = ["--transient", "--deadline", "2h", "--plot", "plan.svg"];
    let plan = planned(&ask(&scene, &[&wish[..], &["--format", "json"]].concat()), 0);
    let chosen = plan.chosen().expect("a choice");
    assert!(chosen.meets_deadline >= Some(0.95) && chosen.has_transient(), "{chosen:?}");
    assert!(plan.searched > 50 && plan.simulated > 5 && plan.on_demand.len() > 1, "{plan:?}");
    let csv = ask(&scene, &[&wish[..], &["--format", "csv"]].concat()).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), plan.candidates.len() + 1);
    for (line, candidate) in lines[1..].iter().zip(&plan.candidates) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), lines[0].split(',').count(), "{line}");
        let number = |place: usize| cells[place].parse::<f64>().ok();
        assert_eq!((number(3), number(5)), (Some(candidate.time_s), Some(candidate.cost_dollars)), "{line}");
    }
    assert_eq!(lines.iter().filter(|line| line.ends_with("true")).count(), 1);
    let table = ask(&scene, &wish).stdout;
    assert!(table.contains("meets deadline") && table.contains(&plan.reason), "{table}");
    let marked: Vec<&str> = table.lines().filter(|line| line.ends_with("← choice")).collect();
    assert!(matches!(marked[..], [line] if line.starts_with(&chosen.words())), "{table}");
    let svg = std::fs::read_to_string(scene.path("plan.svg")).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("choice: ") && svg.contains("deadline"), "{svg}");
    assert!(svg.contains("on demand alone"), "{svg}");
}

#[test]
fn each_rule_chooses_as_it_says() {
    let scene = scene();
    let choose = |wish: &[&str]| {
        let plan = planned(&ask(&scene, &[wish, &["--format", "json"]].concat()), 0);
        let chosen = plan.chosen().expect("a choice").clone();
        (plan, chosen)
    };
    let (_, relaxed) = choose(&["--deadline", "5h"]);
    let (_, hurried) = choose(&["--deadline", "45min"]);
    assert!(relaxed.cost_dollars <= hurried.cost_dollars && relaxed.time_s >= hurried.time_s);
    assert!(relaxed.machines.iter().all(|machines| machines.market == Market::OnDemand));
    let (_, transient) = choose(&["--deadline", "5h", "--transient"]);
    assert!(transient.cost_dollars < 0.5 * relaxed.cost_dollars, "{transient:?} {relaxed:?}");
    let (plan, rich) = choose(&["--budget", "$20"]);
    assert!(plan.candidates.iter().all(|other| other.cost_dollars > 20.0 || other.time_s >= rich.time_s));
    let (_, poor) = choose(&["--budget", "$3.5"]);
    assert!(poor.cost_dollars <= 3.5 && poor.time_s > rich.time_s, "{poor:?}");
    let (plan, balanced) = choose(&[]);
    let product = |time_s: f64, cost: f64| time_s * cost;
    let least = product(balanced.time_s, balanced.cost_dollars);
    assert!(plan.candidates.iter().all(|c| product(c.time_s, c.cost_dollars) >= least));
    assert!(plan.reason.contains("neither a deadline nor a budget"), "{}", plan.reason);
    // Bounds hold: two workers, one region.
    let (plan, _) = choose(&["--max-workers", "2", "--region", "here", "--transient"]);
    assert!(plan.candidates.iter().all(|candidate| candidate.workers <= 2));
    assert!(plan.candidates.iter().flat_map(|c| &c.machines).all(|machines| machines.machine == "small"));
    // The same seed, the same plan; and another one's luck differs a little.
    let seeded = |seed: &str| ask(&scene, &["--transient", "--format", "json", "--seed", seed]).stdout;
    assert_eq!(seeded("3"), seeded("3"));
    assert_ne!(seeded("3"), seeded("4"));
}

#[test]
fn protocols_and_servers_are_chosen_too() {
    let scene = scene();
    let ways = ["--protocols", "bsp,asp,ssp:2,switch:0.25", "--servers", "1..3", "--budget", "$50"];
    let plan = planned(&ask(&scene, &[&ways[..], &["--format", "json"]].concat()), 0);
    let chosen = plan.chosen().expect("a choice");
    let way = chosen.way.as_ref().expect("one of those");
    assert!(plan.reason.contains(&format!("{}, {way}", chosen.machines[0])), "{}", plan.reason);
    let together = plan.synchronisation.as_ref().expect("the words for the run");
    assert_eq!((together.servers, &together.phases), (way.servers, &way.policy.phases(100_000)));
    assert!(plan.candidates.iter().flat_map(|candidate| &candidate.way).all(|way| way.servers <= 3));
    let machines = |candidate: &bellwether_core::plan::Candidate| {
        candidate.machines.iter().map(|m| m.count).sum::<u32>()
    };
    assert!(plan.candidates.iter().all(|c| c.way.as_ref().is_some_and(|way| way.servers <= machines(c))));
    let csv = ask(&scene, &[&ways[..], &["--format", "csv"]].concat()).stdout;
    assert!(
        csv.lines()
            .next()
            .is_some_and(|head| head.ends_with("choice,protocol,servers,staleness,work_factor"))
    );
    // Nothing but the synchronous one is what is planned without a word.
    let plain = planned(&ask(&scene, &["--budget", "$50", "--format", "json"]), 0);
    let alone = planned(&ask(&scene, &["--budget", "$50", "--protocols", "bsp", "--format", "json"]), 0);
    let figures = |plan: &Plan| plan.chosen().map(|chosen| (chosen.time_s, chosen.cost_dollars));
    assert_eq!(figures(&plain), figures(&alone));
    assert!(chosen.time_s <= 1.01 * plain.chosen().expect("a choice").time_s);
    for (wrong, words) in [
        (&["--protocols", "auto"][..], &["--protocols", "auto", "hint"][..]),
        (&["--protocols", "bsp,bsp"], &["--protocols", "twice"]),
        (&["--protocols", "asp", "--servers", "0"], &["\"0\"", "at least 1"]),
        (&["--protocols", "asp", "--servers", "1..4000"], &["--servers", "64 ways"]),
        (&["--servers", "2"], &["--protocols"]),
        (&["--protocols", "asp", "--noise-scale", "5"], &["--target-loss"]),
    ] {
        ask(&scene, wrong).refused_with(words);
    }
}

#[test]
fn staleness_counts_where_a_loss_is_the_target() {
    let scene = scene();
    let curve: String = (0..400)
        .map(|step| {
            format!(
                "{{\"step\":{step},\"loss\":{},\"noise_scale\":1e6}}\n",
                0.2 + 2.0 / (1.0 + f64::from(step) / 50.0)
            )
        })
        .collect();
    scene.write("metrics.jsonl", &curve);
    // A link that seven workers do not fill, so that as many are worth having.
    scene.write("fast.toml", format!("{PRICES}\n[network]\nbandwidth = \"100Gbit/s\"\n"));
    let words =
        ["plan", "p.json", "--catalog", "fast.toml", "--target-loss", "0.5", "--curve", "metrics.jsonl"];
    let ask = |more: &[&str]| scene.call(&[&words, more].concat());
    let asp = ["--protocols", "asp", "--format", "json"];
    let noisy = ask(&asp);
    assert!(noisy.stderr.contains("noise scale of 1000000 samples"), "{noisy:?}");
    let factors = |ended: &Ended| -> Vec<(f64, f64)> {
        let of = |c: &bellwether_core::plan::Candidate| Some((c.staleness?, c.work_factor?));
        planned(ended, 0).candidates.iter().filter_map(of).collect()
    };
    assert!(factors(&noisy).iter().all(|(_, factor)| (1.0..1.001).contains(factor)), "{noisy:?}");
    // Without noise, updates of an eighth of the batch: an eighth of what a quadratic takes more of them, and never
    // less than in synchronous training.
    let quiet = factors(&ask(&[&asp[..], &["--noise-scale", "0"]].concat()));
    for (staleness, factor) in &quiet {
        let slower = 1.0 / (std::f64::consts::FRAC_PI_2 / (2.0 * staleness + 1.0)).sin();
        assert!((factor - (slower / 8.0).max(1.0)).abs() < 1e-9, "{staleness}: {factor}");
    }
    assert!(quiet.iter().any(|(_, factor)| *factor > 1.03), "{quiet:?}");
    ask(&["--protocols", "gossip"]).refused_with(&["--protocols", "gossip", "hint"]);
}

#[test]
fn machines_with_too_little_memory_are_left_out() {
    let scene = scene();
    let mut measured = profile();
    measured["peak_resident_bytes"] = serde_json::json!(3_u64 << 30);
    scene.write("p.json", measured.to_string());
    let with_memory = |small: &str, big: &str| {
        let prices = PRICES.replace("provision = \"60s\"", "MEMORY\nprovision = \"60s\"");
        let prices = prices.replacen("MEMORY", &format!("memory = \"{small}\""), 1);
        scene.write("prices.toml", prices.replacen("MEMORY", &format!("memory = \"{big}\""), 1));
    };
    with_memory("2GiB", "4GiB");
    let plan = planned(&ask(&scene, &["--format", "json"]), 0);
    assert!(plan.candidates.iter().all(|one| one.machines.iter().all(|m| m.machine == "big")), "{plan:?}");
    assert!(plan.reason.contains("`small` is left out: a worker needs 3.0 GiB of memory"), "{}", plan.reason);
    with_memory("4GiB", "4GiB");
    let plan = planned(&ask(&scene, &["--format", "json"]), 0);
    assert!(!plan.reason.contains("left out"), "{}", plan.reason);
    with_memory("1GiB", "1GiB");
    ask(&scene, &[]).refused_with(&["catalogue: no machine is left", "1.0 GiB, which is 2.0 GiB too little"]);
    with_memory("0B", "1GiB");
    ask(&scene, &[]).refused_with(&["machine 1 (box): it has no memory"]);
}

#[test]
fn virtual_nodes_are_chosen_so_that_a_worker_fits() {
    let scene = scene();
    let mut measured = profile();
    let batch = |samples: u64, compute_s: f64, mib: u64| {
        let peak_resident_bytes = mib << 20;
        serde_json::json!({
            "samples": samples, "compute_s": compute_s, "error": 0.0, "peak_resident_bytes": peak_resident_bytes,
        })
    };
    measured["batches"] = serde_json::json!([batch(2, 0.004, 1024), batch(8, 0.01, 2048)]);
    scene.write("p.json", measured.to_string());
    let memory = "memory = \"1500MiB\"\nprovision = \"60s\"";
    scene.write("prices.toml", PRICES.replace("provision = \"60s\"", memory));
    ask(&scene, &[]).refused_with(&[
        "no machine is left",
        "548.0 MiB too little",
        "with 16 virtual nodes it fits",
    ]);
    let ended = ask(&scene, &["--virtual-nodes", "fit", "--format", "json"]);
    ended.says(&["planned for 16 virtual nodes in place of 8"]);
    let plan = planned(&ended, 0);
    assert!(!plan.reason.contains("left out"), "{}", plan.reason);
    // 4 samples take 6 ms, of which 16 make a step in place of 8 times 10 ms: 96 ms against 80 ms, and more workers.
    let alone = |plan: &Plan| {
        let one = plan.candidates.iter().chain(&plan.on_demand).find(|one| one.workers == 1);
        one.map(|one| one.examples_per_s).expect("a single machine")
    };
    assert!(alone(&plan) < 1_400.0, "{plan:?}");
    ask(&scene, &["--virtual-nodes", "64"]).refused_with(&["--virtual-nodes", "micro-batches of 1 samples"]);
    ask(&scene, &["--virtual-nodes", "24"]).refused_with(&["--virtual-nodes", "not cut into 24 equal parts"]);
    ask(&scene, &["--virtual-nodes", "none"]).refused_with(&["a number above 0, or fit"]);
}

#[test]
fn where_nothing_fits_it_says_what_would() {
    let scene = scene();
    let wish = ["--deadline", "10min", "--budget", "$2"];
    let no = ask(&scene, &wish);
    assert_eq!(no.code, Some(1), "{no:?}");
    no.says(&[
        "the deadline of 10min cannot be met",
        "hint: say --deadline",
        "the budget of $2.00 is too small",
    ]);
    assert!(no.stdout.contains("95 % within"), "what there is is shown: {no:?}");
    let plan = planned(&ask(&scene, &[&wish[..], &["--format", "json"]].concat()), 1);
    assert!(plan.choice.is_none() && !plan.relaxations.is_empty());
    for relaxed in &plan.relaxations {
        // What is said can be typed, and then something fits.
        let words = relaxed.say.replace('\'', "");
        let mut arguments: Vec<&str> = words.split(' ').collect();
        for pair in [["--deadline", "10min"], ["--budget", "$2"]] {
            if !arguments.contains(&pair[0]) {
                arguments.extend(pair);
            }
        }
        let retried = ask(&scene, &arguments);
        assert_eq!(retried.code, Some(0), "{arguments:?}: {retried:?}");
    }
    // Without a budget only the deadline is in the way.
    ask(&scene, &["--budget", "$2"]).says(&["hint: say --budget '$", "hint: say --transient: "]);
}

#[test]
fn the_published_catalogue_is_understood() {
    let scene = Scene::new("");
    let mut known = profile();
    known["device"] = "k80".into();
    scene.write("p.json", known.to_string());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plan/published-2019.toml");
    let words = ["plan", "p.json", "--catalog", path, "--steps", STEPS, "--transient", "--deadline", "2h"];
    let plan = planned(&scene.call(&[&words[..], &["--format", "json"]].concat()), 0);
    assert!(plan.searched > 100, "{}", plan.searched);
    let schema = scene.call(&["schema", "catalog"]);
    let schema: Value = serde_json::from_str(&schema.stdout).expect("JSON");
    assert!(schema["$defs"]["MachineFile"]["properties"]["transient_price"].is_object(), "{schema}");
    // Its machines have no price in a region that has none on demand.
    let words = ["plan", "p.json", "--catalog", path, "--steps", "1", "--region", "asia-east1"];
    scene.call(&words).refused_with(&["no machine has a price on demand", "--transient"]);
}

#[test]
fn workers_join_as_the_profiles_first_one_did_where_the_catalogue_says_nothing() {
    let scene = scene();
    let time_s = |join: &str| {
        scene.write("prices.toml", PRICES.replace("join = \"20s\"\n", join));
        let ended = ask(&scene, &["--format", "json"]);
        let plan = planned(&ended, 0);
        (plan.candidates[plan.choice.expect("it has one")].time_s, ended)
    };
    let (said_s, _) = time_s("join = \"20s\"\n");
    let (unsaid_s, _) = time_s("");
    let mut slow = profile();
    slow["boot"] =
        serde_json::json!({ "start_s": 2.0, "importing_s": 9.0, "building_s": 1.0, "compiling_s": 8.0 });
    scene.write("p.json", slow.to_string());
    let (measured_s, ended) = time_s("");
    ended.says(&[
        "their workers join as the profile's first one did, in 20.0 s: 2.0 s starting, 9.0 s importing",
    ]);
    assert!(
        (said_s - measured_s).abs() < 1e-6 && said_s > unsaid_s + 19.0,
        "{said_s} {measured_s} {unsaid_s}"
    );
    // What the catalogue says counts.
    assert!((time_s("join = \"5s\"\n").0 + 15.0 - measured_s).abs() < 1e-6);
}

#[test]
fn work_is_steps_or_epochs_or_a_loss() {
    let scene = scene();
    let asked = |arguments: &[&str]| {
        scene.call(&[&["plan", "p.json", "--catalog", "prices.toml", "--format", "json"], arguments].concat())
    };
    // The batch is of 64 samples.
    assert_eq!(planned(&asked(&["--steps", "1000"]), 0).samples, 64_000.0);
    assert_eq!(planned(&asked(&["--epochs", "3", "--samples", "1000"]), 0).samples, 3000.0);
    asked(&[]).refused_with(&["--steps", "--epochs", "--target-loss"]);
    asked(&["--epochs", "3"]).refused_with(&["--samples"]);
    // A loss of 0.5 + 2 / (1 + k/100): 0.7 after 900 steps.
    let line = |step: usize| {
        let loss = 0.5 + 2.0 / (1.0 + (step + 1) as f64 / 100.0);
        format!("{{\"step\":{step},\"loss\":{loss},\"duration_s\":0.1}}\n")
    };
    scene.write("metrics.jsonl", (0..400).map(line).collect::<String>() + "{\"step\":400,\"lo");
    let reached = asked(&["--target-loss", "0.7", "--curve", "metrics.jsonl"]);
    let steps = planned(&reached, 0).samples / 64.0;
    assert!((steps / 900.0 - 1.0).abs() < 0.1, "{steps}");
    reached.says(&["a loss of 0.7 is expected after", "95 % interval"]);
    let never = asked(&["--target-loss", "0.3", "--curve", "metrics.jsonl"]);
    assert_eq!(never.code, Some(1), "{never:?}");
    never.says(&["the loss of 0.3 is out of reach", "comes down to 0.5"]);
    let passed = asked(&["--target-loss", "1.5", "--curve", "metrics.jsonl"]);
    // The curve is of means of two steps: 1.5 is passed between 99.5 and 101.5 of them.
    assert_eq!(planned(&passed, 0).samples, 102.0 * 64.0);
    passed.says(&["a loss of 1.5 was reached after 102 steps, and not yet after 100"]);
    asked(&["--target-loss", "0.7", "--curve", "nowhere"]).refused_with(&["no such job"]);
    asked(&["--target-loss", "0.7"]).refused_with(&["--curve"]);
}

#[test]
fn a_fall_of_the_learning_rate_and_a_rise_of_the_loss_are_told() {
    let scene = scene();
    let asked = |target: &str, curve: &str| {
        scene.call(&["plan", "p.json", "--catalog", "prices.toml", "--target-loss", target, "--curve", curve])
    };
    let write = |name: &str, after: f64, slope: f64| {
        let line = |step: u32| {
            let fallen = if step < 300 { 1.0 } else { after };
            let jitter = f64::from(step * 7919 % 101) * 1e-4;
            let rise = slope * f64::from(step.saturating_sub(300));
            let loss = fallen * (0.2 + 2.0 / (1.0 + f64::from(step) / 20.0)) + rise + jitter;
            format!("{{\"step\":{step},\"loss\":{loss},\"duration_s\":0.1}}\n")
        };
        scene.write(name, (0..600).map(line).collect::<String>());
    };
    write("fallen.jsonl", 0.5, 0.0);
    write("rising.jsonl", 1.0, 0.005);
    asked("0.17", "fallen.jsonl").says(&["a loss of 0.17 was reached after"]);
    asked("0.13", "fallen.jsonl").says(&["a loss of 0.13 is expected after", "the curve breaks after step"]);
    let rising = asked("0.1", "rising.jsonl");
    assert_eq!(rising.code, Some(1), "{rising:?}");
    rising.says(&["the loss of 0.1 is out of reach", "it diverges", "smaller learning rate"]);
}

#[test]
fn wishes_that_make_no_sense_are_refused() {
    let scene = scene();
    let cases: [(&[&str], &[&str]); 10] = [
        (&["--deadline", "2001-01-01T00:00:00Z"], &["--deadline", "in the past"]),
        (&["--deadline", "-2h"], &["--deadline", "in the past"]),
        (&["--deadline", "0s"], &["--deadline", "no time is left"]),
        (&["--deadline", "2031-01-01"], &["--deadline", "expected a date, a time and its zone"]),
        (&["--budget", "$0"], &["--budget", "expected more than zero"]),
        (&["--budget", "-$5"], &["--budget", "$"]),
        (&["--budget", "20eur"], &["--budget", "expected dollars"]),
        (&["--region", "her"], &["--region", "did you mean `here`"]),
        (&["--confidence", "95"], &["--confidence", "probability"]),
        (&["--plot", "nowhere/plan.svg"], &["nowhere", "make the folder"]),
    ];
    for (arguments, words) in cases {
        ask(&scene, arguments).refused_with(words);
    }
}

#[test]
fn catalogues_that_make_no_sense_are_refused() {
    let scene = scene();
    let first = "[[machine]]\ndevice = \"box\"\n";
    let cases: [(String, &[&str]); 15] = [
        (String::new(), &["prices.toml", "no machines", "[[machine]]"]),
        (first.into(), &["machine 1 (box)", "no price", "transient_price"]),
        (
            format!("{first}price = \"$1\"\n"),
            &["prices.toml, line 3", "expected dollars per time", "$0.35/h"],
        ),
        (format!("{first}price = \"1 EUR/h\"\n"), &["line 3", "expected dollars"]),
        (format!("{first}prize = \"$1/h\"\n"), &["line 3", "did you mean `price`"]),
        (format!("{first}price = \"$1/h\"\nspeed = 0.0\n"), &["machine 1 (box)", "a speed of 0"]),
        (
            format!("{first}price = \"$1/h\"\ndevices = 0\n"),
            &["machine 1 (box)", "devices and limit are at least 1"],
        ),
        (format!("{first}price = \"$1/h\"\nlatency = \"1ms\"\n"), &["machine 1 (box)", "bandwidth"]),
        (
            format!("{first}price = \"$1/h\"\n{first}price = \"$2/h\"\n"),
            &["machine 2 (box)", "two machines called `box`"],
        ),
        (
            format!(
                "{first}price = \"$1/h\"\nspeed = 1.0\n{first}name = \"other\"\nprice = \"$2/h\"\nspeed = 2.0\n"
            ),
            &["machine 2 (box)", "two speeds"],
        ),
        (
            format!("{first}transient_price = \"$1/h\"\n"),
            &["machine 1 (box)", "how long a transient one lives", "revocations"],
        ),
        (
            format!("{first}transient_price = \"$1/h\"\nrevocations = \"points:1h=0.5,24h=1.2\"\n"),
            &["machine 1 (box): revocations", "1.2", "from 0 to 1"],
        ),
        (
            format!("{first}transient_price = \"$1/h\"\nrevocations = \"bathtub:0.7,1h,0.6,2h,24h\"\n"),
            &["machine 1 (box): revocations", "0.7", "so is their sum"],
        ),
        (
            format!("{first}transient_price = \"$1/h\"\nrevocations = \"k80:us-est1\"\n"),
            &["machine 1 (box): revocations", "us-east1"],
        ),
        (
            "[[machine]]\ndevice = \"tpu\"\nprice = \"$1/h\"\n".into(),
            &["unknown device `tpu`", "speed = 2.5"],
        ),
    ];
    for (text, words) in cases {
        scene.write("prices.toml", &text);
        ask(&scene, &["--transient"]).refused_with(words);
    }
    scene
        .call(&["plan", "p.json", "--catalog", "none.toml", "--steps", "1"])
        .refused_with(&["none.toml", "schema catalog"]);
    scene
        .call(&["plan", "none.json", "--catalog", "prices.toml", "--steps", "1"])
        .refused_with(&["none.json", "bellwether profile"]);
}

#[test]
fn lifetimes_of_ones_own_lie_beside_the_catalogue() {
    let scene = scene();
    let text = PRICES.replacen("exponential:10h,24h", "samples:lives.txt", 1);
    scene.write("prices.toml", &text);
    ask(&scene, &["--transient"]).refused_with(&["lives.txt", "beside the catalogue"]);
    scene.write("lives.txt", "2h\n5h\n24h+\n");
    assert_eq!(ask(&scene, &["--transient"]).code, Some(0));
    scene.write("lives.txt", "2h\nlong\n");
    ask(&scene, &["--transient"]).refused_with(&["lives.txt, line 2"]);
}

#[test]
fn profiles_of_kinds_of_machines_are_checked() {
    let scene = scene();
    let machine = |more: &str| format!("{PRICES}\n[[machine]]\ndevice = \"tpu\"\nprice = \"$1/h\"\n{more}\n");
    let refused = |catalogue: String, words: &[&str]| {
        scene.write("prices.toml", catalogue);
        ask(&scene, &[]).refused_with(words);
    };
    let named = "profile = \"kinds/tpu.json\"";
    refused(
        machine(&format!("speed = 2.0\n{named}")),
        &["machine 3 (tpu)", "a speed, 2", "kinds/tpu.json", "leave one"],
    );
    refused(machine(named), &["prices.toml", "kinds/tpu.json", "cannot be read", "beside the catalogue"]);
    std::fs::create_dir(scene.path("kinds")).expect("a folder");
    scene.write("kinds/tpu.json", "{}");
    refused(machine(named), &["machine 3 (tpu): kinds/tpu.json", "invalid profile", "bellwether profile"]);
    // Half a second to a step of the box that was profiled first.
    let mut other = profile();
    other["device"] = "the same words as another".into();
    for step in other["steps"].as_array_mut().expect("steps") {
        step["step_s"] = (step["step_s"].as_f64().expect("seconds") * 0.5).into();
        for seconds in step["operations_s"].as_array_mut().expect("durations") {
            *seconds = (seconds.as_f64().expect("seconds") * 0.5).into();
        }
    }
    scene.write("kinds/tpu.json", other.to_string());
    scene.write("prices.toml", machine(named));
    let plan = planned(&ask(&scene, &["--format", "json"]), 0);
    let rate = |name: &str| plan.kind(name).expect("a kind").examples_per_s[0];
    assert!((rate("tpu") / rate("small") - 2.0).abs() < 0.05, "{plan:?}");
    assert!(plan.candidates.iter().flat_map(|c| &c.machines).any(|machines| machines.machine == "tpu"));

    for (key, value, words) in [
        ("batch", Value::from(128), ["128 samples of a batch", "has 64"]),
        ("virtual_nodes", 4.into(), ["4 virtual nodes", "has 8"]),
        ("parameter_bytes", 2_000_000.into(), ["2000000 bytes of parameters", "has 1000000"]),
    ] {
        let mut wrong = other.clone();
        wrong[key] = value;
        wrong["job"] = "theirs".into();
        scene.write("kinds/tpu.json", wrong.to_string());
        ask(&scene, &[]).refused_with(&["kinds/tpu.json", "another job", "theirs", words[0], words[1]]);
    }
    // The same sizes, and another model.
    let (mut wrong, mut own) = (other.clone(), profile());
    (own["computation"], wrong["computation"]) = ("aaaa@cuda-1".into(), "bbbb".into());
    scene.write("p.json", own.to_string());
    scene.write("kinds/tpu.json", wrong.to_string());
    ask(&scene, &[]).refused_with(&["kinds/tpu.json", "another job", "aaaa", "bbbb"]);
    wrong["computation"] = "aaaa@cpu-4".into();
    scene.write("kinds/tpu.json", wrong.to_string());
    assert_eq!(ask(&scene, &[]).code, Some(0), "the same script on another device");
    // One device, one speed.
    scene.write("kinds/other.json", profile().to_string());
    for (second, words) in [
        ("profile = \"kinds/other.json\"", ["two profiles", "kinds/other.json"]),
        ("speed = 3.0", ["a speed, 3", "kinds/tpu.json"]),
    ] {
        let twice = format!("[[machine]]\nname = \"b\"\ndevice = \"tpu\"\nprice = \"$1/h\"\n{second}\n");
        refused(machine(named) + &twice, &["machine 4 (tpu)", words[0], words[1]]);
    }
}
