//! `bellwether predict`: what it says of a profile made by hand, and what it refuses.

use bellwether_runtime::tree;
use serde_json::{Value, json};

use crate::harness::{Ended, Scene};

const NODES: usize = 8;

/// Updates of the whole batch, where no worker waits.
const WHOLE: [&str; 2] = ["--nodes-per-update", "8"];

/// Eight virtual nodes of about 10 ms, four parts of 1 MB in all, a link of 100 MB/s.
pub(crate) fn profile() -> Value {
    let parts = [400_000u64, 300_000, 200_000, 100_000];
    let mut operations = Vec::new();
    for node in 0..NODES {
        let after: Vec<usize> = node.checked_sub(1).into_iter().collect();
        operations.push(json!({ "name": format!("virtual node {node}"), "kind": "compute", "after": after }));
    }
    for part in 0..parts.len() {
        let kind = json!({ "upload": part });
        operations.push(json!({ "name": format!("send {part}"), "kind": kind, "after": [NODES - 1] }));
    }
    for part in 0..parts.len() {
        let kind = json!({ "update": part });
        operations.push(json!({ "name": format!("update {part}"), "kind": kind, "after": [NODES + part] }));
    }
    let steps: Vec<Value> = (0..20).map(step).collect();
    let parts: Vec<Value> = parts
        .iter()
        .enumerate()
        .map(|(number, bytes)| json!({ "name": format!("part {number}"), "bytes": bytes }))
        .collect();
    json!({
        "version": 1, "job": "made <by> hand & \"quoted\"", "source": "by hand", "device": "box", "batch": 64,
        "virtual_nodes": NODES, "parameter_bytes": 1_000_000, "parts": parts, "operations": operations, "steps": steps,
        "collective": { "s_per_byte": 1e-10, "fixed_s": 1e-5 },
        "network": { "bandwidth_bytes_per_s": 1e8, "latency_s": 1e-4 },
    })
}

/// A step whose virtual nodes take 9 to 11 ms, and 1 ms beside.
fn step(number: usize) -> Value {
    let mut operations_s: Vec<f64> =
        (0..NODES).map(|node| 0.009 + 0.001 * ((number * 5 + node * 3) % 7) as f64 / 3.0).collect();
    let compute_s: f64 = operations_s.iter().sum();
    operations_s.extend([0.0; 4]);
    operations_s.extend([0.0002; 4]);
    json!({ "step_s": compute_s + 4.0 * 0.0002 + 0.001, "operations_s": operations_s })
}

#[test]
fn models_count_the_sums_that_a_worker_keeps() {
    for nodes in 1..=40 {
        for workers in 1..=nodes {
            let needed = |range| tree::Accumulator::new(nodes, range, 0).buffers_needed();
            let most = tree::ranges(nodes, workers).into_iter().map(needed).max().expect("a worker");
            let vectors = bellwether_model::memory::vectors(nodes, workers).expect("they can share them");
            assert_eq!(vectors as usize, most, "{nodes} virtual nodes, {workers} workers");
        }
    }
}

#[test]
fn memory_is_predicted_where_it_was_measured() {
    let scene = Scene::new("");
    let mut measured = profile();
    let batch = |samples: u64, peak: u64| json!({ "samples": samples, "compute_s": 0.01, "error": 0.0, "peak_resident_bytes": peak << 20 });
    measured["batches"] = json!([batch(4, 100), batch(8, 110), batch(32, 170)]);
    scene.write("p.json", measured.to_string());
    let ask = |more: &[&str]| {
        let ended = scene.call(&[&["predict", "p.json", "--workers", "1..2"], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let rows: Value = serde_json::from_str(&ask(&["--format", "json", "--batch", "128"])).expect("JSON");
    // 16 samples: 130 MiB. One of two workers keeps a sum less, of 1 MB.
    let memory = |row: usize| rows[row]["worker_bytes"].as_f64().expect("bytes");
    assert_eq!((memory(0), memory(1)), (f64::from(130 << 20), f64::from(130 << 20) - 1e6));
    let table = ask(&["--batch", "128"]);
    assert!(table.contains("130.0 MiB") && table.contains("memory: of the largest worker"), "{table}");
    assert!(ask(&["--format", "csv"]).lines().next().is_some_and(|head| head.ends_with("worker_bytes")));
    scene.write("p.json", profile().to_string());
    assert!(!ask(&["--batch", "128"]).contains("memory"), "nothing is known of it");
    measured["batches"][1]["samples"] = json!(4);
    scene.write("p.json", measured.to_string());
    let ended = scene.call(&["predict", "p.json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    ended.says(&["batches[1]", "not more than those of the batch before it"]);
}

/// Throughput as it was measured.
fn measured() -> f64 {
    let profile = profile();
    let steps = profile["steps"].as_array().expect("steps");
    let total_s: f64 = steps.iter().map(|step| step["step_s"].as_f64().expect("seconds")).sum();
    64.0 * steps.len() as f64 / total_s
}

fn scene() -> Scene {
    let scene = Scene::new("");
    scene.write("p.json", profile().to_string());
    scene
}

fn ask(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.call(&[&["predict", "p.json"], arguments].concat())
}

/// One predicted row.
#[derive(Debug)]
struct Row {
    workers: u64,
    rate: f64,
    low: f64,
    high: f64,
    bottleneck: String,
    model: String,
    /// Why it is extrapolated; empty where it is not.
    validity: String,
    all: Value,
}

/// The rows of a prediction, which keep the laws of one.
#[track_caller]
fn rows(scene: &Scene, arguments: &[&str]) -> Vec<Row> {
    let ended = ask(scene, &[arguments, &["--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    let rows: Value = serde_json::from_str(&ended.stdout).expect("JSON and nothing else");
    let number = |row: &Value, key: &str| {
        row[key].as_f64().filter(|v| v.is_finite()).unwrap_or_else(|| panic!("no number {key}: {row}"))
    };
    let rows: Vec<Row> = rows
        .as_array()
        .expect("an array")
        .iter()
        .map(|row| Row {
            workers: row["workers"].as_u64().expect("a number of workers"),
            rate: number(row, "examples_per_s"),
            low: number(row, "low"),
            high: number(row, "high"),
            bottleneck: row["bottleneck"].as_str().expect("a word").into(),
            model: row["model"].as_str().expect("a word").into(),
            validity: match &row["validity"] {
                Value::String(word) if word == "interpolated" => String::new(),
                other => other["extrapolated"].as_str().expect("a reason").into(),
            },
            all: row.clone(),
        })
        .collect();
    for row in &rows {
        assert!(0.0 < row.low && row.low <= row.rate && row.rate <= row.high, "{row:?}");
        assert!(number(&row.all, "step_s") > 0.0 && number(&row.all, "efficiency") > 0.0, "{row:?}");
        assert!(["compute", "link", "server"].contains(&row.bottleneck.as_str()), "{row:?}");
    }
    rows
}

#[test]
fn three_formats_say_the_same() {
    let scene = scene();
    let rows = rows(&scene, &[]);
    let workers: Vec<u64> = rows.iter().map(|row| row.workers).collect();
    assert_eq!(workers, [1, 2, 3, 4, 5, 6, 7, 8], "as many as there are virtual nodes");
    let csv = ask(&scene, &["--format", "csv"]).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "workers,examples_per_s,low,high,step_s,bottleneck,efficiency,knee,validity,model");
    assert_eq!(lines.len(), 9);
    for (line, row) in lines[1..].iter().zip(&rows) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!((cells[0], cells[5]), (row.workers.to_string().as_str(), row.bottleneck.as_str()));
        let same = |cell: &str, value: f64| cell.parse::<f64>().is_ok_and(|cell| cell == value);
        assert!(same(cells[1], row.rate) && same(cells[2], row.low) && same(cells[3], row.high), "{line}");
    }
    let table = ask(&scene, &[]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("examples/s") && lines[0].contains("95 % interval"), "{table}");
    for (line, row) in lines[1..9].iter().zip(&rows) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], row.workers.to_string(), "{table}");
        let shown: f64 = words[1].replace(',', "").parse().expect("a number");
        assert!((shown / row.rate - 1.0).abs() < 1e-3, "{line}");
    }
    assert!(!table.contains("extrapolated"), "{table}");
}

#[test]
fn a_lone_worker_does_what_was_measured() {
    let scene = scene();
    for arguments in [&["--workers", "1"][..], &["--workers", "1", "--protocol", "gossip"]] {
        let row = &rows(&scene, &[arguments, &WHOLE].concat())[0];
        assert!((row.rate / measured() - 1.0).abs() < 0.02, "{row:?} of {}", measured());
        assert!(row.low <= measured() && measured() <= row.high, "{row:?} of {}", measured());
    }
}

#[test]
fn a_real_job_is_predicted_from_its_profile() {
    // Long enough that other tests beside it do not count.
    let scene = Scene::new(&crate::jobs::slow(20));
    let made = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "8"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let text = std::fs::read_to_string(scene.path("p.json")).expect("the profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let steps = profile["steps"].as_array().expect("steps");
    let total_s: f64 = steps.iter().map(|step| step["step_s"].as_f64().expect("seconds")).sum();
    let measured = 8.0 * steps.len() as f64 / total_s;
    let rows = rows(&scene, &[]);
    assert_eq!(rows.len(), 4);
    assert!((rows[0].rate / measured - 1.0).abs() < 0.02, "{:?} of {measured}", rows[0]);
    assert!(rows[3].rate > 1.5 * rows[0].rate, "four of them are faster: {rows:?}");
}

/// All ways to train, with the model that answers unasked.
const WAYS: [(&[&str], &str); 9] = [
    (&["--protocol", "bsp"], "coarse"),
    (&["--protocol", "bsp", "--servers", "2"], "coarse"),
    (&["--protocol", "bsp", "--servers", "2", "--model", "fine"], "fine"),
    (&["--protocol", "asp"], "coarse"),
    (&["--protocol", "asp", "--servers", "3", "--model", "coarse"], "coarse"),
    (&["--protocol", "asp", "--servers", "3", "--model", "fine"], "fine"),
    (&["--protocol", "ssp:2"], "fine"),
    (&["--protocol", "ssp:0", "--servers", "2"], "fine"),
    (&["--protocol", "gossip"], "coarse"),
];

#[test]
fn every_protocol_is_answered_and_none_beats_perfect_scaling() {
    let scene = scene();
    for (way, model) in WAYS {
        let rows = rows(&scene, &[way, &["--workers", "1..8"]].concat());
        assert_eq!(rows.len(), 8);
        for row in &rows {
            assert_eq!(row.model, model, "{way:?}");
            // The simulation is as exact as its interval.
            let bar = if model == "fine" { rows[0].high } else { rows[0].rate * (1.0 + 1e-9) };
            assert!(row.rate <= row.workers as f64 * bar, "{way:?}: {row:?}");
            assert!(row.all["efficiency"].as_f64().is_some_and(|e| e <= 1.02), "{way:?}: {row:?}");
        }
        assert!(rows.iter().filter(|row| row.all["knee"] == true).count() <= 1, "{way:?}");
    }
}

#[test]
fn the_coarse_and_the_fine_model_agree() {
    let scene = scene();
    for (way, bar) in [(&["--protocol", "asp"][..], 0.10), (&["--protocol", "bsp", "--servers", "1"], 0.10)] {
        let asked = |model: &str| rows(&scene, &[way, &["--workers", "1..8", "--model", model]].concat());
        for (coarse, fine) in asked("coarse").iter().zip(asked("fine")) {
            let off = coarse.rate / fine.rate - 1.0;
            assert!(off.abs() < bar, "{way:?}: {off} at {} workers", fine.workers);
        }
    }
}

#[test]
fn waiting_costs_and_more_servers_help() {
    let scene = scene();
    let at = |more: &[&str]| {
        let setting = [
            "--workers",
            "8",
            "--model",
            "fine",
            "--bandwidth",
            "200Mbps",
            "--device",
            "a=1:4",
            "--device",
            "b=2:4",
        ];
        rows(&scene, &[more, &setting].concat())[0].rate
    };
    // Eight times the batch, so that each worker computes as much as where it does not wait.
    let together = at(&["--servers", "1", "--batch", "512"]);
    let whole = |more: &[&str]| at(&[more, &WHOLE].concat());
    let (bounded, alone) = (whole(&["--protocol", "ssp:1"]), whole(&["--protocol", "asp"]));
    // Bounded, every gradient is applied by itself, and together once for all: a per cent here.
    assert!(together < 1.02 * bounded && bounded < 0.8 * alone, "{together} {bounded} {alone}");
    assert!(whole(&["--protocol", "asp", "--servers", "2"]) > 1.2 * alone);
    // Smaller updates fill the link with fewer samples.
    assert!(at(&["--protocol", "asp"]) < 0.5 * alone);
}

#[test]
fn chance_stays_within_the_interval() {
    let scene = scene();
    let with = |seed: &str| {
        let fine = ["--protocol", "asp", "--model", "fine", "--workers", "8", "--bandwidth", "200Mbps"];
        rows(&scene, &[&fine[..], &["--seed", seed]].concat()).remove(0)
    };
    let first = with("1");
    assert_eq!(with("1").all, first.all, "the same seed gives the same answer");
    for seed in ["2", "3", "4", "5"] {
        let other = with(seed);
        assert!(other.rate != first.rate, "another seed is another simulation");
        assert!(first.low <= other.rate && other.rate <= first.high, "{other:?} and {first:?}");
    }
}

/// The run of this many steps, by number of workers.
#[track_caller]
fn run(scene: &Scene, arguments: &[&str]) -> Vec<Value> {
    let ended = ask(scene, &[arguments, &["--steps", "4000", "--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON and nothing else")
}

#[test]
fn a_run_that_switches_takes_the_time_of_its_phases() {
    let scene = scene();
    let workers = ["--workers", "1..8"];
    let with = |way: &[&str]| run(&scene, &[way, &workers, &WHOLE].concat());
    let (together, stale) = (with(&["--sync", "bsp"]), with(&["--protocol", "asp"]));
    let switched = with(&["--switch-at", "0.25", "--switch-time", "3s"]);
    assert_eq!(switched, with(&["--sync", "{ switch_at = 0.25 }", "--switch-time", "3s"]));
    let time_s = |run: &Value| run["time_s"].as_f64().expect("a time");
    for ((switched, together), stale) in switched.iter().zip(&together).zip(&stale) {
        let expected_s = 0.25 * time_s(together) + 0.75 * time_s(stale) + 3.0;
        assert!((time_s(switched) / expected_s - 1.0).abs() < 1e-9, "{switched}: {expected_s}");
        assert_eq!(together["speedup"], 1.0);
        let speedup = switched["speedup"].as_f64().expect("a number");
        assert!((speedup * time_s(switched) / time_s(together) - 1.0).abs() < 1e-9, "{switched}");
        let phases = switched["stretches"].as_array().expect("stretches");
        assert_eq!(phases.iter().map(|s| s["from_step"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1000)]);
        let others = switched["workers"].as_f64().expect("a number") - 1.0;
        assert_eq!((&phases[0]["staleness"], phases[1]["staleness"].as_f64()), (&Value::Null, Some(others)));
    }
    let table = ask(&scene, &["--switch-at", "0.25", "--steps", "4000"]).stdout;
    assert!(table.contains("the accuracy may differ") && !table.contains("extrapolated"), "{table}");
    let csv = ask(&scene, &["--switch-at", "0.25", "--steps", "4000", "--format", "csv"]).stdout;
    assert_eq!(csv.lines().count(), 1 + 2 * 8, "{csv}");
    // Servers sum for synchronous phases only where that is asked for.
    let reduced = with(&["--switch-at", "0.25", "--servers", "2"]);
    assert_eq!(reduced[3]["stretches"][0], switched[3]["stretches"][0]);
}

#[test]
fn an_order_of_parts_is_for_the_fine_model() {
    let scene = scene();
    for order in ["fifo", "round-robin:64KiB", "tic", "tac"] {
        let more = ["--protocol", "asp", "--model", "fine", "--order", order, "--workers", "1..4"];
        assert!(rows(&scene, &more).iter().all(|row| row.model == "fine"), "{order}");
    }
    let unasked = rows(&scene, &["--protocol", "asp", "--order", "tac", "--workers", "2"]);
    assert_eq!(unasked[0].model, "fine", "the coarse model knows no order");
    ask(&scene, &["--order", "tac"]).refused_with(&["--order", "parameter servers", "--servers 1"]);
    let coarse = ["--protocol", "asp", "--model", "coarse", "--order", "tic"];
    ask(&scene, &coarse).refused_with(&["--order", "fine-grained"]);
}

#[test]
fn devices_of_other_speeds_are_answered() {
    let scene = scene();
    for way in [&[][..], &["--protocol", "asp"], &["--protocol", "gossip"], &["--protocol", "ssp:3"]] {
        let of = |more: &[&str]| rows(&scene, &[way, &WHOLE, &["--workers", "4"], more].concat()).remove(0);
        let (own, fast) = (of(&[]), of(&["--device", "gpu=3"]));
        assert!(own.validity.is_empty() && fast.validity.contains("another device"), "{own:?} {fast:?}");
        assert!(fast.rate > 1.2 * own.rate, "{way:?}: {fast:?} {own:?}");
        let mixed = of(&["--device", "gpu=3:1", "--device", "box=1:3"]);
        assert!(mixed.rate < fast.rate && mixed.workers == 4, "{way:?}: {mixed:?} {fast:?}");
        assert!(mixed.all["efficiency"].as_f64().is_some_and(|e| e <= 1.02), "{way:?}: {mixed:?}");
        // Workers that wait for the slowest gain nothing by one fast device.
        let gain = mixed.rate / own.rate;
        assert!(if way.is_empty() { (gain - 1.0).abs() < 0.02 } else { gain > 0.95 }, "{way:?}: {gain}");
    }
}

#[test]
fn devices_with_profiles_of_their_own_are_checked() {
    let scene = scene();
    ask(&scene, &["--device", "gpu=fast"]).refused_with(&["--device", "gpu=fast", "PROFILE.json"]);
    ask(&scene, &["--device", "gpu=gpu.json"]).refused_with(&[
        "gpu.json",
        "cannot be read",
        "bellwether profile",
    ]);
    scene.write("gpu.json", "no profile");
    ask(&scene, &["--device", "gpu=gpu.json:2"]).refused_with(&["gpu.json", "invalid profile"]);
    let mut other = profile();
    other["batch"] = json!(128);
    scene.write("gpu.json", other.to_string());
    ask(&scene, &["--device", "gpu=gpu.json"]).refused_with(&[
        "gpu.json",
        "another job",
        "128 samples",
        "has 64",
    ]);
    // A profile says the same of its device by whichever name.
    scene.write("gpu.json", profile().to_string());
    for way in [&[][..], &["--protocol", "asp"], &["--protocol", "ssp:3"], &["--protocol", "gossip"]] {
        let of = |more: &[&str]| rows(&scene, &[way, &WHOLE, more].concat()).remove(0);
        let own = of(&["--workers", "4"]);
        for more in [&["--workers", "4", "--device", "gpu=gpu.json"][..], &["--device", "gpu=gpu.json:4"]] {
            let there = of(more);
            assert!(
                (there.rate / own.rate - 1.0).abs() < 1e-9 && there.validity.is_empty(),
                "{there:?} {own:?}"
            );
        }
        let mixed = of(&["--device", "gpu=gpu.json:2", "--device", "box=1:2"]);
        assert!((mixed.rate / own.rate - 1.0).abs() < 1e-6, "{way:?}: {mixed:?} {own:?}");
        assert!(mixed.validity.contains("unlike devices"), "{mixed:?}");
    }
    let two = ["--device", "gpu=gpu.json", "--device", "box=1:2"];
    ask(&scene, &two).refused_with(&["--device", "how many workers have `gpu`", "gpu=gpu.json:4"]);
}

#[test]
fn another_batch_is_extrapolated() {
    let scene = scene();
    for way in [&["--workers", "2"][..], &["--workers", "2", "--protocol", "asp"]] {
        for model in ["coarse", "fine"] {
            let servers: &[&str] = if model == "fine" { &["--servers", "1"] } else { &[] };
            let setting = ["--model", model, "--nodes-per-update", "4"];
            let of = |more: &[&str]| rows(&scene, &[way, servers, &setting, more].concat()).remove(0);
            let (own, twice) = (of(&[]), of(&["--batch", "128"]));
            assert!(own.validity.is_empty(), "{own:?}");
            assert!(twice.validity.contains("batch"), "{twice:?}");
            // What does not grow with the batch is shared by more samples, and that is little here.
            assert!((1.0..1.6).contains(&(twice.rate / own.rate)), "{way:?} {model}: {own:?} {twice:?}");
        }
    }
}

#[test]
fn a_link_can_be_given() {
    let scene = scene();
    let of = |more: &[&str]| rows(&scene, &[more, &["--workers", "4"]].concat()).remove(0);
    let (own, slow, fast) = (of(&[]), of(&["--bandwidth", "10Mbps"]), of(&["--bandwidth", "100Gbps"]));
    assert!(slow.rate < own.rate && own.rate < fast.rate);
    assert_eq!((slow.bottleneck.as_str(), fast.bottleneck.as_str()), ("link", "compute"));
    assert!(fast.validity.contains("link") && own.validity.is_empty());
    assert!(of(&["--latency", "50ms"]).rate < own.rate);
}

#[test]
fn workers_of_one_machine_exchange_through_its_memory() {
    let scene = scene();
    let of = |more: &[&str]| rows(&scene, &[more, &["--workers", "4"]].concat()).remove(0);
    let over_sockets = (of(&[]), of(&["--servers", "1"]));
    let mut shared = profile();
    shared["shared_memory"] = json!({ "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6 });
    scene.write("p.json", shared.to_string());
    let fast = of(&[]);
    assert!(fast.rate > 1.2 * over_sockets.0.rate && fast.validity.is_empty(), "{fast:?} {over_sockets:?}");
    // To the rate of a link like that, as long as it is measured.
    assert!((fast.rate / of(&["--bandwidth", "80Gbps", "--latency", "1us"]).rate - 1.0).abs() < 1e-6);
    // Servers are reached through sockets, and a link that is given is between machines.
    assert_eq!(of(&["--servers", "1"]).rate, over_sockets.1.rate);
    assert!(of(&["--latency", "150us"]).rate < over_sockets.0.rate);
}

#[test]
fn the_knee_is_where_another_worker_adds_little() {
    let scene = scene();
    let asp = [&["--protocol", "asp"], &WHOLE[..]].concat();
    let rows = rows(&scene, &asp);
    assert_eq!(rows.len(), 64);
    let knee = rows.iter().position(|row| row.all["knee"] == true).expect("servers' links are full at last");
    let gain = |index: usize| (rows[index].rate - rows[index - 1].rate) / rows[0].rate;
    assert!((1..=knee).all(|index| gain(index) >= 0.5) && gain(knee + 1) < 0.5, "{knee}");
    let table = ask(&scene, &asp).stdout;
    assert!(table.lines().nth(knee + 1).is_some_and(|line| line.ends_with("← knee")), "{table}");
    let none = ask(&scene, &[&asp[..], &["--workers", "1..3"]].concat()).stdout;
    assert!(none.contains("no knee") && !none.contains('←'), "{none}");
}

#[test]
fn a_picture_is_drawn() {
    let scene = scene();
    let drawn = |arguments: &[&str]| {
        let ended = ask(&scene, &[arguments, &["--plot", "p.svg"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let svg = std::fs::read_to_string(scene.path("p.svg")).expect("the picture");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for bad in ["NaN", "inf", "<by>", "& "] {
            assert!(!svg.contains(bad), "`{bad}` is in {svg}");
        }
        for word in ["made &lt;by&gt; hand", "workers", "examples per second", "95 % interval"] {
            assert!(svg.contains(word), "`{word}` is not in {svg}");
        }
        svg
    };
    let words = |svg: &str, word: &str| svg.lines().filter(|line| line.trim() == word).count();
    let few = drawn(&["--workers", "1..4"]);
    for number in ["1", "2", "3", "4"] {
        assert_eq!(words(&few, number), 1, "each number of workers stands once at the axis: {few}");
    }
    assert!(few.contains("perfect scaling"));
    assert!(drawn(&["--protocol", "asp"]).contains("knee"));
    // A lone configuration is a point.
    assert!(drawn(&["--workers", "3"]).contains("<circle"));
    drawn(&["--protocol", "asp", "--workers", "1..500", "--bandwidth", "1B/s"]);
}

#[test]
fn an_execution_is_imagined() {
    let scene = scene();
    for way in [&["--protocol", "asp"][..], &["--servers", "2"], &["--protocol", "ssp:1", "--order", "tac"]] {
        let ended = ask(&scene, &[way, &["--workers", "1..3", "--trace", "t.json"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let text = std::fs::read_to_string(scene.path("t.json")).expect("the trace");
        let trace: Value = serde_json::from_str(&text).expect("JSON");
        let events = trace["traceEvents"].as_array().or(trace.as_array()).expect("events");
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        let positive = |value: &Value| value.as_f64().is_some_and(|value| value >= 0.0);
        assert!(slices.len() > 100 && slices.iter().all(|e| positive(&e["ts"]) && positive(&e["dur"])));
        let named = |name: &str| events.iter().any(|event| event["args"]["name"] == name);
        assert!(named("worker 0") && named("worker 2") && named("server 0") && !named("worker 3"));
        let nodes = slices.iter().filter(|event| event["name"] == "virtual node").count();
        assert!(nodes >= 3, "every worker computes: {nodes}");
    }
}

#[test]
fn profiles_of_other_frameworks_are_predicted() {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces");
    for name in ["pytorch-ddp-gloo", "tensorflow-cpu"] {
        let scene = Scene::new("");
        let path = format!("{traces}/{name}.json");
        assert_eq!(scene.call(&["profile", "--import", &path, "-o", "p.json"]).code, Some(0));
        ask(&scene, &[]).refused_with(&["--bandwidth", "no measured link", "10Gbps"]);
        for way in [&[][..], &["--protocol", "asp", "--model", "fine"], &["--protocol", "gossip"]] {
            let link = ["--bandwidth", "10Gbps", "--latency", "50us", "--workers", "1..4"];
            let rows = rows(&scene, &[way, &link].concat());
            assert!(rows[3].rate > rows[0].rate && rows[3].rate < 4.1 * rows[0].rate, "{name} {way:?}");
            assert!(rows[3].validity.contains("a link that was not measured"));
        }
    }
}

#[test]
fn extreme_questions_get_finite_answers() {
    let scene = scene();
    assert_eq!(rows(&scene, &["--protocol", "asp", "--workers", "1..1000"]).len(), 1000);
    assert_eq!(rows(&scene, &["--protocol", "gossip", "--workers", "1..1000"]).len(), 1000);
    rows(&scene, &["--protocol", "asp", "--workers", "1000000"]);
    rows(&scene, &["--protocol", "asp", "--model", "fine", "--workers", "1000"]);
    rows(&scene, &["--protocol", "asp", "--servers", "10000", "--workers", "1..8"]);
    rows(&scene, &["--device", "a=1e-6:3", "--device", "b=1e6:4"]);
    rows(&scene, &["--protocol", "gossip", "--device", "a=1:500", "--device", "b=2:500"]);
    let slow = ["--latency", "1s", "--bandwidth", "1B/s", "--workers", "1..3"];
    for way in [&["--protocol", "asp"][..], &["--protocol", "ssp:1"], &["--protocol", "gossip"], &[]] {
        let rows = rows(&scene, &[way, &slow].concat());
        assert_eq!(rows[2].bottleneck, "link");
        let table = ask(&scene, &[way, &slow].concat()).stdout;
        assert!(!table.contains("NaN") && !table.contains("inf") && !table.contains(" 0.000"), "{table}");
    }
    ask(&scene, &["--latency", "1e306h"]).refused_with(&["inf"]);
}

#[test]
fn words_on_the_command_line_are_checked() {
    let scene = scene();
    for (arguments, words) in [
        (&["--protocol", "spp"][..], &["\"spp\"", "ssp:K", "gossip"][..]),
        (&["--protocol", "ssp"], &["\"ssp\"", "ssp:3"]),
        (&["--protocol", "asp", "--servers", "0"], &["--servers", "missing servers", "asp", "hint"]),
        (&["--protocol", "ssp:2", "--servers", "0"], &["--servers", "missing servers", "hint"]),
        (&["--protocol", "gossip", "--servers", "2"], &["--servers", "gossip has no", "hint"]),
        (&["--servers", "many"], &["many"]),
        (&["--bandwidth", "0Gbps"], &["0Gbps", "more than zero"]),
        (&["--bandwidth", "10"], &["\"10\"", "expected a number with its unit", "Gbps"]),
        (&["--bandwidth=-1Gbps"], &["-1", "zero or more"]),
        (&["--latency", "50"], &["\"50\"", "expected a number with its unit", "us"]),
        (&["--workers", "0"], &["\"0\"", "at least 1"]),
        (&["--workers", "9"], &["--workers", "8 virtual nodes", "at most 8", "hint"]),
        (&["--servers", "1", "--workers", "9..12"], &["--workers", "8 virtual nodes"]),
        (&["--protocol", "asp", "--workers", "1..4000000000"], &["--workers", "4096", "hint"]),
        (&["--protocol", "ssp:1", "--workers", "1000000"], &["1000000 workers", "hint"]),
        (&["--batch", "0"], &["--batch"]),
        (&["--device", "gpu=0"], &["gpu=0", "NAME=SPEED"]),
        (&["--device", "gpu=-1"], &["gpu=-1", "NAME=SPEED"]),
        (&["--device", "gpu"], &["NAME=SPEED"]),
        (&["--device", "gpu=2:0"], &["--device", "0 workers", "`gpu`"]),
        (&["--device", "a=2", "--device", "b=1"], &["--device", "how many", "a=2:4"]),
        (&["--device", "a=2:2", "--device", "b=1"], &["--device", "how many", "b=1:4"]),
        (&["--device", "a=2:2", "--device", "a=1:1"], &["--device", "`a`", "twice"]),
        (&["--device", "a=2:5", "--device", "b=1:5"], &["--device", "8 virtual nodes"]),
        (&["--device", "a=2:2", "--workers", "1..4"], &["--workers", "exactly 2 workers", "hint"]),
        (&["--order", "lifo"], &["\"lifo\"", "tac"]),
        (&["--model", "fine"], &["--model", "parameter servers", "--servers 1"]),
        (&["--switch-at", "0.5"], &["--steps"]),
        (&["--switch-at", "1.5", "--steps", "9"], &["1.5", "from 0 to 1"]),
        (&["--sync", "swich:0.5", "--steps", "9"], &["\"swich:0.5\"", "switch:SHARE"]),
        (&["--sync", "auto", "--steps", "9"], &["--sync", "--switch-at", "hint"]),
        (&["--sync", "asp", "--steps", "9", "--servers", "0"], &["--servers", "missing servers"]),
        (&["--switch-at", "0.5", "--steps", "9", "--plot", "p.svg"], &["--plot", "--steps", "hint"]),
        (&["--switch-at", "0.5", "--steps", "9", "--protocol", "asp"], &["--protocol"]),
        (&["--reduce", "server"], &["\"server\"", "all-reduce"]),
        (&["--reduce", "servers", "--servers", "0"], &["--servers", "missing servers"]),
        (
            &["--reduce", "servers", "--nodes-per-update", "4", "--workers", "4"],
            &["--workers", "2 units", "hint"],
        ),
        (&["--trace", "t.json"], &["--trace", "parameter servers", "--servers 1"]),
        (&["--protocol", "gossip", "--trace", "t.json"], &["--trace", "--protocol asp"]),
        (&["--plot", "no/p.svg"], &["no/p.svg", "no folder `no`", "hint"]),
        (&["--servers", "1", "--trace", "no/t.json"], &["no/t.json", "no folder `no`", "hint"]),
        (&["--plot", "."], &["folder"]),
    ] {
        ask(&scene, arguments).refused_with(words);
    }
    assert!(!scene.path("t.json").exists(), "a refused question leaves no file");
}

#[test]
fn damaged_profiles_are_refused() {
    let scene = scene();
    let refused = |text: &str, words: &[&str]| {
        scene.write("p.json", text);
        ask(&scene, &["--workers", "1..2"]).refused_with(&[&["p.json", "hint"], words].concat());
    };
    let edited = |pointer: &str, value: Value, words: &[&str]| {
        let mut profile = profile();
        *profile.pointer_mut(pointer).expect("it is there") = value;
        refused(&profile.to_string(), words);
    };
    edited("/version", json!(2), &["version 2", "reads version 1"]);
    edited("/steps/3/operations_s/2", json!(-0.01), &["steps[3]", "-0.01", "not a duration"]);
    edited("/steps/4/step_s", json!(0.0), &["steps[4]", "a step cannot take"]);
    edited("/steps/5/operations_s", json!([0.1]), &["steps[5]", "1 durations for 16 operations"]);
    edited("/steps", json!([]), &["no measured step"]);
    edited("/operations/0/after", json!([7]), &["operations[", "circle", "virtual node"]);
    edited("/operations/3/after", json!([99]), &["operations[3]", "operation 99", "does not exist"]);
    edited("/operations/9/kind", json!({ "upload": 7 }), &["operations[9]", "no part 7"]);
    edited("/operations/9/kind", json!("sleep"), &["sleep"]);
    edited("/network/bandwidth_bytes_per_s", json!(0.0), &["network", "carries nothing"]);
    let mut early = profile();
    early["boot"] = json!({ "start_s": 0.1, "importing_s": -2.0, "building_s": 0.0, "compiling_s": 1.0 });
    refused(&early.to_string(), &["boot", "-2", "not a duration"]);
    edited("/network/latency_s", json!(-1.0), &["network.latency_s", "not a duration"]);
    edited("/collective/s_per_byte", json!(-1.0), &["collective.s_per_byte", "not a duration"]);
    let mut shared = profile();
    shared["shared_memory"] = json!({ "bandwidth_bytes_per_s": 0.0, "latency_s": 0.0 });
    refused(&shared.to_string(), &["shared_memory", "carries nothing"]);
    edited("/batch", json!(0), &["batch", "at least one sample"]);
    edited("/batch", json!(u64::MAX), &["batch", "no step has"]);
    edited("/virtual_nodes", json!(0), &["one virtual node"]);
    edited("/parts/1/bytes", json!(u64::MAX), &["parts", "more bytes than any machine"]);
    edited("/parts/1/bytes", json!(-1), &["-1"]);
    let whole = profile().to_string();
    refused(&whole[..whole.len() / 2], &["EOF"]);
    refused("", &["invalid profile"]);
    refused("name = \"job\"", &["invalid profile", "bellwether profile"]);
    refused("{}", &["invalid profile", "version"]);
    refused(&whole.replace("\"batch\"", "\"bach\""), &["`bach`"]);
    scene.call(&["predict", "absent.json"]).refused_with(&[
        "absent.json",
        "No such file",
        "bellwether profile",
    ]);
    scene.call(&["predict", "."]).refused_with(&["cannot be read", "hint"]);
    scene.call(&["predict"]).refused_with(&["PROFILE"]);
}
