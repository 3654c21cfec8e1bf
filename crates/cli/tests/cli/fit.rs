//! `bellwether fit`, and the road on from it: `predict` and `simulate` take what it made.

use std::fs;

use serde_json::Value;

use crate::harness::Scene;
use crate::served::synthetic;

/// 0.01 s of each of 64 samples, and an exchange of 0.02 s with 2 workers that grows as a ring's does.
const SYNCHRONOUS: &str = "workers,batch,step_s\n1,64,0.64\n2,64,0.34\n4,64,0.19\n8,64,0.115\n";

/// Steps of one worker of 1 s, and a server that is full with ten.
const ASYNCHRONOUS: &str = "kind,workers,examples_per_s,batch,protocol,servers\n\
    free,1,32.0,32,asp,1\nfree,2,63.5,64,asp,1\nfree,4,125.0,128,asp,1\nfree,8,235.0,256,asp,1\n";

fn predicted(scene: &Scene, more: &[&str]) -> Vec<Value> {
    let ended = scene.call(&[&["predict", "fitted.json", "--format", "json"], more].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("an array")
}

#[test]
fn tables_become_models_that_predict_and_simulate() {
    let scene = Scene::new("");
    scene.write("sync.csv", SYNCHRONOUS);
    scene.write("free.csv", ASYNCHRONOUS);
    let ended = scene.call(&["fit", "sync.csv", "free.csv", "-o", "fitted.json", "--bytes", "1MiB"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for word in ["sync", "free", "held out", "queueing (asynchronous, 1 servers)", "4, on 1 to 8 workers"] {
        assert!(ended.stdout.contains(word), "{word}: {ended:?}");
    }
    let rate = |row: &Value| row["examples_per_s"].as_f64().expect("a number");
    let rows = predicted(&scene, &["--kind", "sync", "--workers", "1..16"]);
    assert_eq!(rows.len(), 16);
    assert!((rate(&rows[3]) / (64.0 / 0.19) - 1.0).abs() < 0.05, "{}", rows[3]);
    assert_eq!(rows[3]["model"], "fitted");
    assert!(rows[15]["validity"].to_string().contains("extrapolated"), "{}", rows[15]);
    let rows = predicted(&scene, &["--kind", "free", "--workers", "1..32"]);
    assert!((rate(&rows[3]) / 125.0 - 1.0).abs() < 0.05, "{}", rows[3]);
    // With unlimited servers it would be 1024.
    assert!(rate(&rows[31]) < 900.0 && rows[31]["low"].as_f64() < rows[31]["high"].as_f64(), "{}", rows[31]);

    scene.write(
        "trace.csv",
        "job_id,submit_time,num_gpu,duration,model,min_gpu,max_gpu,work,protocol,servers\n\
         a,0,1,,sync,1,8,6400,,\nb,0,2,,free,2,8,6400,asp,1\n",
    );
    let words = ["simulate", "--cluster", "1x8", "--trace", "trace.csv", "--truth", "fitted:fitted.json"];
    let ended = scene.call(&[&words[..], &["--policy", "hell,equi", "--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    assert!(results.iter().all(|result| result["jobs"] == 2 && result["refused"] == 0), "{ended:?}");
}

/// Workers of two speeds at one server: a lone step takes 1 s on the one and 0.25 s on the other.
#[test]
fn types_of_device_are_fitted_apart_and_predicted_together() {
    let scene = Scene::new("");
    let row =
        |device: &str, workers: u32, rate: f64| format!("net,{device},{workers},{rate},{workers},asp,1\n");
    let rows = [
        row("slow", 1, 1.0),
        row("slow", 2, 1.99),
        row("slow", 4, 3.95),
        row("quick", 1, 4.0),
        row("quick", 2, 7.9),
        row("quick", 4, 15.3),
    ];
    let header = "kind,device,workers,examples_per_s,batch,protocol,servers\n".to_string();
    scene.write("mixed.csv", header + &rows.concat());
    let ended = scene.call(&["fit", "mixed.csv", "-o", "fitted.json"]);
    assert!(ended.code == Some(0) && ended.stdout.contains("net on quick"), "{ended:?}");
    let both = predicted(&scene, &["--device", "slow=1:2", "--device", "quick=1:1"]);
    let (rate, low, high) = (&both[0]["examples_per_s"], &both[0]["low"], &both[0]["high"]);
    // Far from full the server adds up their own speeds.
    assert!((rate.as_f64().expect("a number") / 5.95 - 1.0).abs() < 0.02, "{both:?}");
    assert!(low.as_f64() < rate.as_f64() && rate.as_f64() < high.as_f64(), "{both:?}");
    assert!(both[0]["workers"] == 3 && both[0]["validity"].to_string().contains("together"), "{both:?}");
    // Of one type they are what its own model says.
    let alike = predicted(&scene, &["--device", "quick=1:4"]);
    let own = predicted(&scene, &["--kind", "net on quick", "--workers", "4"]);
    let ratio =
        |one: &Value, other: &Value| one.as_f64().expect("a number") / other.as_f64().expect("a number");
    assert!((ratio(&alike[0]["examples_per_s"], &own[0]["examples_per_s"]) - 1.0).abs() < 1e-6, "{alike:?}");
    let refused = |more: &[&str], words: &[&str]| {
        scene.call(&[&["predict", "fitted.json"], more].concat()).refused_with(words);
    };
    refused(&["--device", "other=1:2"], &["--device", "not measured on `other`", "net on quick"]);
    refused(&["--device", "quick=1"], &["--device", "how many workers", "quick=1:2"]);
    refused(&["--device", "quick=1:2", "--workers", "3"], &["--workers", "leave it out"]);
    refused(&["--device", "quick=1:0"], &["--device", "how many workers"]);
}

#[test]
fn few_measurements_are_enough_for_fewer_terms() {
    let scene = Scene::new("");
    scene.write("few.csv", "workers,batch,step_s\n1,64,0.64\n2,64,0.34\n4,64,0.19\n");
    let ended = scene.call(&["fit", "few.csv", "-o", "fitted.json", "--bytes", "1MiB"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows = predicted(&scene, &["--workers", "2"]);
    let rate = rows[0]["examples_per_s"].as_f64().expect("a number");
    assert!((rate / (64.0 / 0.34) - 1.0).abs() < 0.05, "{rows:?}");
}

/// Without bytes the ways to sum differ in their hops: 0.01 s for each of the 2 (W - 1) of a ring.
#[test]
fn the_way_to_sum_is_the_one_that_fits() {
    let scene = Scene::new("");
    scene.write("ring.csv", "workers,batch,step_s\n1,64,0.64\n2,64,0.34\n4,64,0.22\n8,64,0.22\n16,64,0.34\n");
    let ended = scene.call(&["fit", "ring.csv", "-o", "fitted.json"]);
    assert!(ended.stdout.contains("collective::ring"), "{ended:?}");
}

#[test]
fn a_run_is_fitted_by_its_own_steps() {
    let scene = Scene::new(&synthetic("job", 1, 120, 2.0));
    let ended = scene.call(&["run", "job.toml", "--workers", "1..2", "--resize", "40:2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let profile = scene.call(&["profile", "job.toml", "-o", "profile.json"]);
    assert_eq!(profile.code, Some(0), "{profile:?}");
    for sources in [&["job"][..], &["job", "profile.json"]] {
        let ended = scene.call(&[&["fit"], sources, &["-o", "fitted.json"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows = predicted(&scene, &["--workers", "1..4"]);
        let rates: Vec<f64> = rows.iter().filter_map(|row| row["examples_per_s"].as_f64()).collect();
        // 16 samples in 8 virtual nodes that sleep 2 ms each: at most 1,000 per second and worker.
        assert!(rates[0] > 100.0 && rates[0] < 1_100.0 && rates[1] > rates[0], "{rates:?}");
    }
}

#[test]
fn the_worker_with_most_virtual_nodes_sets_the_pace() {
    let scene = Scene::new("");
    let rows = [(1, 0.160), (2, 0.080), (4, 0.040), (8, 0.020)].map(|(n, s)| format!("{n},{s},8,8"));
    scene.write("v.csv", format!("workers,step_s,batch,virtual_nodes\n{}\n", rows.join("\n")));
    let ended = scene.call(&["fit", "v.csv", "-o", "fitted.json"]);
    assert!(ended.stdout.contains("virtual nodes") && ended.code == Some(0), "{ended:?}");
    let rows = predicted(&scene, &["--workers", "1..8"]);
    let rate = |workers: usize| rows[workers - 1]["examples_per_s"].as_f64().expect("a number");
    // Three of eight on one of three workers, two on one of five to seven.
    for (workers, nodes) in [(1, 8.0), (2, 4.0), (3, 3.0), (4, 2.0), (5, 2.0), (6, 2.0), (7, 2.0), (8, 1.0)] {
        let expected = 8.0 / (0.020 * nodes);
        assert!((rate(workers) / expected - 1.0).abs() < 0.02, "{workers}: {} {expected}", rate(workers));
    }
    scene.call(&["predict", "fitted.json", "--workers", "9"]).refused_with(&["9", "8"]);
}

/// Four workers share the link of a node: 0.4 s of computing, and an exchange that two nodes wait for.
const PLACED: &str = "workers,nodes,batch,step_s\n1,1,16,0.40\n2,1,32,0.42\n4,1,64,0.44\n2,2,32,0.52\n8,2,128,0.90\n\
    12,3,192,0.94\n16,4,256,0.97\n";

#[test]
fn placements_are_fitted_by_laws_that_know_nodes() {
    let scene = Scene::new("");
    scene.write("placed.csv", PLACED);
    let fitted = |law: &str| {
        let ended = scene.call(&["fit", "placed.csv", "-o", "fitted.json", "--law", law, "--format", "json"]);
        assert_eq!(ended.code, Some(0), "{law}: {ended:?}");
        let file: Value = serde_json::from_str(&ended.stdout).expect("an object");
        file["kinds"][0].clone()
    };
    for (law, model) in [("scaling", "scaling"), ("goodput", "elastic")] {
        let kind = fitted(law);
        assert_eq!((kind["model"]["model"].as_str(), kind["per_node"].as_u64()), (Some(model), Some(4)));
        let rows = predicted(&scene, &["--workers", "1..16", "--batch", "64"]);
        let four = rows[3]["examples_per_s"].as_f64().expect("a number");
        assert!((four / (64.0 / 0.44) - 1.0).abs() < 0.2, "{law}: {}", rows[3]);
        assert!(rows.iter().all(|row| row["low"].as_f64() < row["high"].as_f64()), "{law}");
    }
    // Of all, the one that predicts what it has not seen best; all-reduce knows nothing of nodes.
    let errors = ["all-reduce", "scaling", "goodput", "auto"]
        .map(|law| fitted(law)["held_out_error"].as_f64().expect("seven measurements"));
    assert!(errors[3] <= errors[..3].iter().copied().fold(f64::INFINITY, f64::min) + 1e-12, "{errors:?}");
    assert!(errors[3] < errors[0], "{errors:?}");
    let refused = |law: &str, words: &[&str]| {
        scene.call(&["fit", "free.csv", "-o", "f.json", "--law", law]).refused_with(words);
    };
    scene.write("free.csv", ASYNCHRONOUS);
    refused("scaling", &["`free`", "--law", "queueing"]);
    refused("power", &["all-reduce", "scaling"]);
    scene.write("free.csv", "workers,nodes,step_s\n2,3,1.0\n");
    refused("auto", &["free.csv, line 2", "nodes"]);
}

#[test]
fn what_cannot_be_fitted_or_asked_is_refused() {
    let scene = Scene::new("");
    let fit = |table: &str| {
        scene.write("table.csv", table);
        scene.call(&["fit", "table.csv", "-o", "fitted.json"])
    };
    fit("").refused_with(&["table.csv", "empty"]);
    fit("workers,step_s\n").refused_with(&["table.csv", "no row"]);
    fit("workers,steps_s\n1,1\n").refused_with(&["did you mean `step_s`"]);
    fit("workers\n1\n").refused_with(&["either `step_s` or `examples_per_s`"]);
    fit("workers,step_s\n1,1\n2,-3\n").refused_with(&["line 3", "above 0"]);
    fit("workers,step_s\n0,1\n").refused_with(&["line 2", "from 1 to"]);
    fit("workers,step_s\n1,1\n1,1.1\n").refused_with(&["kind `table`", "at least two workers"]);
    let both = "workers,step_s,protocol\n1,1,bsp\n2,1,asp\n";
    fit(both).refused_with(&["kind `table`", "different kinds"]);
    scene.call(&["fit", "nothing.csv", "-o", "fitted.json"]).refused_with(&["nothing.csv", "cannot be read"]);
    scene.call(&["fit", "no-such-run", "-o", "fitted.json"]).refused_with(&["no-such-run"]);

    scene.write("sync.csv", SYNCHRONOUS);
    scene.write("free.csv", ASYNCHRONOUS);
    assert_eq!(scene.call(&["fit", "sync.csv", "free.csv", "-o", "fitted.json"]).code, Some(0));
    let ask = |more: &[&str]| scene.call(&[&["predict", "fitted.json"], more].concat());
    ask(&[]).refused_with(&["2 kinds", "--kind NAME"]);
    ask(&["--kind", "snc"]).refused_with(&["no kind `snc`", "free, sync"]);
    ask(&["--kind", "sync", "--device", "x=2"]).refused_with(&["--device", "profile"]);
    ask(&["--kind", "sync", "--servers", "1"]).refused_with(&["--servers", "measured with 0 servers"]);
    ask(&["--kind", "free", "--batch", "7"]).refused_with(&["--batch", "measure that batch too"]);
    scene.write("fitted.json", "{\"version\":9,\"kinds\":[]}");
    ask(&[]).refused_with(&["version 9"]);
    scene.write("fitted.json", "{\"version\":1,\"kinds\":[]}");
    ask(&[]).refused_with(&["no kind of job"]);
}

#[test]
fn a_network_that_was_never_run_is_estimated_and_goes_on_along_the_road() {
    let scene = Scene::new("");
    let network = "operations=1.66G,tensors=104,bytes=7.43MB,device=K80";
    let ended =
        scene.call(&["predict", "--network", network, "--output", "estimated.json", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let estimate: Value = serde_json::from_str(&ended.stdout).expect("an object");
    let time = |of: &str| ["low", "seconds", "high"].map(|end| estimate[of][end].as_f64().expect("a number"));
    // ResNet-32 on a K80 was measured at 0.218 s, and its checkpoint at 3.83 s.
    for (of, seconds) in [("step", 0.218), ("checkpoint", 3.83)] {
        let [low, typical, high] = time(of);
        assert!(low < seconds && seconds < high && (typical / seconds - 1.0).abs() < 0.25, "{estimate}");
    }
    // The estimate is a profile: for `predict`, and with its checkpoint for `plan`.
    let alone = |of: &[&str]| {
        let words = ["--bandwidth", "1Gbps", "--workers", "1", "--format", "json"];
        scene.call(&[&["predict"], of, &words[..]].concat())
    };
    let one = alone(&["estimated.json"]);
    let rows: Value = serde_json::from_str(&one.stdout).expect("an array");
    let of_file = rows[0]["examples_per_s"].as_f64().expect("a number");
    assert!((of_file / (128.0 / time("step")[1]) - 1.0).abs() < 0.01, "{one:?}");
    assert!(rows[0]["low"].as_f64() < Some(0.97 * of_file), "its interval is that of the estimate");
    let at_once = alone(&["--network", network]);
    assert_eq!(at_once.stdout, one.stdout);
    let profile: Value =
        serde_json::from_slice(&fs::read(scene.path("estimated.json")).expect("a file")).expect("an object");
    assert_eq!(profile["checkpoint_s"].as_f64(), Some(time("checkpoint")[1]));

    let refused = |network: &str, more: &[&str], words: &[&str]| {
        scene.call(&[&["predict", "--network", network], more].concat()).refused_with(words);
    };
    refused("operations=1G,tensors=9,bytes=1MB,device=h100", &[], &["h100", "k80, p100", "--known"]);
    refused("operations=1G,tensors=9,device=k80", &[], &["bytes=SIZE"]);
    refused("operations=-1G,tensors=9,bytes=1MB,device=k80", &[], &["operations"]);
    scene.write("known.csv", "network,device,operations,tensors\na,k80,1,1\n");
    refused(network, &["--known", "known.csv"], &["known.csv", "parameter_bytes"]);
    let rows: Vec<String> = (1..=5).map(|k| format!("n{k},box,{k}e9,10,{k}000,{}.5,", k - 1)).collect();
    let head = "network,device,operations,tensors,parameter_bytes,step_s,checkpoint_s\n";
    scene.write("known.csv", format!("{head}{}\n", rows.join("\n")));
    let own = scene.call(&[
        "predict",
        "--network",
        "operations=9G,tensors=10,bytes=9000B,device=box",
        "--known",
        "known.csv",
    ]);
    assert!(own.code == Some(0) && own.stdout.contains("extrapolated: operations"), "{own:?}");
    assert!(!own.stdout.contains("checkpoint"), "none was measured: {own:?}");
}
