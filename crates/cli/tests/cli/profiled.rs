//! What a profile does for a scheduler: `simulate --truth profiles:FOLDER`, and `submit --profile` to a daemon.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Scene;
use crate::served::{Served, ledger, synthetic};

/// A profile of [`synthetic`] with steps of 8 virtual nodes of `node_s`, over a link of this bandwidth.
fn profile(job: &str, node_s: f64, bandwidth_bytes_per_s: f64) -> Value {
    let compute = |node: usize| {
        let after: Vec<usize> = node.checked_sub(1).into_iter().collect();
        json!({ "name": format!("virtual node {node}"), "kind": "compute", "after": after })
    };
    let mut operations: Vec<Value> = (0..8).map(compute).collect();
    operations.push(json!({ "name": "send", "kind": { "upload": 0 }, "after": [7] }));
    operations.push(json!({ "name": "update", "kind": { "update": 0 }, "after": [8] }));
    let mut seconds = vec![node_s; 8];
    seconds.extend([0.0, 0.0]);
    let steps = vec![json!({ "step_s": 8.0 * node_s, "operations_s": seconds }); 5];
    json!({
        "version": 1, "job": job, "source": "by hand", "device": "box", "batch": 16, "virtual_nodes": 8,
        "parameter_bytes": 4096, "parts": [{ "name": "all", "bytes": 4096 }], "operations": operations, "steps": steps,
        "network": { "bandwidth_bytes_per_s": bandwidth_bytes_per_s, "latency_s": 0.0 },
    })
}

#[test]
fn a_simulation_takes_speeds_from_profiles() {
    let scene = Scene::new("");
    fs::create_dir(scene.path("profiles")).expect("a folder");
    // 64 samples in 8 virtual nodes of 1 s: 8 s on one device, 1 s and a bit on eight.
    scene.write("profiles/quick.json", profile("quick", 0.125, 1e12).to_string());
    // Every worker more sends for longer than it computes less.
    scene.write("profiles/chatty.json", profile("chatty", 0.125, 1e3).to_string());
    scene.write(
        "trace.csv",
        "job_id,submit_time,num_gpu,duration,model,batch,min_gpu,max_gpu,work\n\
         a,0,1,,quick,16,1,8,1600\nb,0,1,,chatty,16,1,8,1600\n",
    );
    let simulate = |more: &[&str]| {
        let words = ["simulate", "--cluster", "1x8", "--trace", "trace.csv", "--format", "json"];
        scene.call(&[&words, more].concat())
    };
    let ended = simulate(&["--truth", "profiles:profiles", "--policy", "hell,equi"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    let makespan_s = |at: usize| results[at]["makespan_s"].as_f64().expect("a number");
    // HELL gives the quick one all eight for 100 steps of 0.125 s, and then the chatty one a single device for 100
    // steps of 1 s; equal shares make it send.
    assert!((makespan_s(0) - 112.5).abs() < 1.0, "{ended:?}");
    assert!(makespan_s(1) > 300.0, "{ended:?}");
    // A policy that believes in linear speed is wrong about it.
    let ended = simulate(&["--truth", "profiles:profiles", "--belief", "linear", "--policy", "hell"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");

    simulate(&["--truth", "profiles:nowhere", "--policy", "hell"])
        .refused_with(&["nowhere", "cannot be read"]);
    fs::create_dir(scene.path("empty")).expect("a folder");
    simulate(&["--truth", "profiles:empty", "--policy", "hell"])
        .refused_with(&["empty", "bellwether profile"]);
    let mut newer = profile("quick", 0.1, 1e9);
    newer["version"] = json!(9);
    scene.write("profiles/newer.json", newer.to_string());
    simulate(&["--truth", "profiles:profiles", "--policy", "hell"]).refused_with(&["newer.json", "version"]);
}

#[test]
fn a_simulation_takes_the_speed_on_each_type_from_its_own_profile() {
    let scene = Scene::new("");
    fs::create_dir_all(scene.path("profiles/net")).expect("a folder");
    scene.write("profiles/net/k80.json", profile("net", 0.125, 1e12).to_string());
    scene.write("profiles/net/v100.json", profile("net", 0.025, 1e12).to_string());
    scene.write("trace.csv", "job_id,submit_time,num_gpu,duration,model,batch,work\na,0,1,,net,16,1600\n");
    let simulate = |cluster: &str| {
        let words = ["simulate", "--trace", "trace.csv", "--format", "json", "--truth", "profiles:profiles"];
        scene.call(&[&words[..], &["--policy", "fifo", "--cluster", cluster]].concat())
    };
    let makespan_s = |cluster: &str| {
        let ended = simulate(cluster);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
        results[0]["makespan_s"].as_f64().expect("a number")
    };
    // 100 steps of 8 virtual nodes.
    assert!((makespan_s("1x4:k80") - 100.0).abs() < 0.1);
    assert!((makespan_s("1x4:v100") - 20.0).abs() < 0.1);
    // What was measured counts, whatever the cluster's file says of the type.
    let typed = "[[nodes]]\ncount = 1\ndevices = 4\ndevice = \"v100\"\nspeed = 3.0\n";
    scene.write("typed.toml", typed);
    assert!((makespan_s("typed.toml") - 20.0).abs() < 0.1);
    // Of a type without a profile only a profile to which speeds are relative says something.
    let ended = simulate("1x4:p100");
    assert!(ended.code == Some(0) && ended.stdout.contains("\"refused\": 1"), "{ended:?}");
    assert!((makespan_s("1x4:p100,1x4:k80") - 100.0).abs() < 0.1, "it runs on the other type");
    scene.write("profiles/net.json", profile("net", 0.25, 1e12).to_string());
    assert!((makespan_s("1x4:p100") - 200.0).abs() < 0.1);
    assert!((makespan_s("1x4:k80") - 100.0).abs() < 0.1);

    let mut other = profile("net", 0.1, 1e12);
    other["batch"] = json!(32);
    scene.write("profiles/net/p100.json", other.to_string());
    simulate("1x4:p100").refused_with(&["net/p100.json", "another job", "32 samples", "has 16"]);
    scene.write("profiles/net/p100.json", "[]");
    simulate("1x4:p100").refused_with(&["net/p100.json", "invalid profile"]);
}

#[test]
fn jobs_do_not_run_where_their_workers_do_not_fit() {
    let scene = Scene::new("");
    fs::create_dir(scene.path("profiles")).expect("a folder");
    let mut large = profile("large", 0.125, 1e12);
    large["peak_resident_bytes"] = json!(3_u64 << 30);
    scene.write("profiles/large.json", large.to_string());
    scene.write(
        "trace.csv",
        "job_id,submit_time,num_gpu,duration,model,batch,min_gpu,max_gpu,work\na,0,1,,large,16,1,8,1600\n",
    );
    let simulate = |small: &str, big: &str| {
        let nodes = |device: &str, speed: f64, memory: &str| {
            let memory = format!("memory = \"{memory}\"");
            format!("[[nodes]]\ncount = 1\ndevices = 4\ndevice = \"{device}\"\nspeed = {speed:?}\n{memory}\n")
        };
        scene.write("cluster.toml", [nodes("small", 2.0, small), nodes("big", 1.0, big)].concat());
        let words = ["simulate", "--cluster", "cluster.toml", "--trace", "trace.csv", "--format", "json"];
        scene.call(&[&words[..], &["--truth", "profiles:profiles", "--policy", "fifo"]].concat())
    };
    // Four devices share a node's memory: 4 GiB each.
    let makespan_s = |ended: crate::harness::Ended| {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
        results[0]["makespan_s"].as_f64().expect("a number")
    };
    let anywhere_s = makespan_s(simulate("16GiB", "16GiB"));
    let on_big_s = makespan_s(simulate("8GiB", "16GiB"));
    assert!((on_big_s / anywhere_s - 2.0).abs() < 0.01, "{anywhere_s} s and {on_big_s} s");
    simulate("8GiB", "8GiB").refused_with(&[
        "trace.csv, row 2",
        "job `a` fits on no device of the cluster",
        "needs 3.0 GiB of memory and would have 2.0 GiB, which is 1.0 GiB too little",
    ]);
}

/// The devices that the first decision gave the job with this number.
fn first_devices(scene: &Scene, job: u64) -> u64 {
    let text = fs::read_to_string(ledger(scene)).expect("a ledger");
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let actions = lines.flat_map(|line| line["actions"].as_array().cloned().unwrap_or_default());
    let started = actions.into_iter().find_map(|action| {
        let start = action.get("allocate")?;
        (start["job"] == job).then(|| start["allocation"].clone())
    });
    let shares = started.expect("it was started");
    shares.as_array().expect("shares").iter().filter_map(|share| share["devices"].as_u64()).sum()
}

#[test]
fn the_first_decision_about_a_job_rests_on_its_profile() {
    let scene = Scene::new("");
    let job = synthetic("job", 1, 100_000, 2.0);
    // Every job runs on a slot, and further ones go where they save most time: HELL might let the slow one wait.
    let daemon = Served::start(&scene, &["--slots", "4", "--policy", "optimus"]);
    scene.write("job.toml", &job);
    scene.write("chatty.json", profile("job", 0.002, 1e5).to_string());
    let ended = scene.call(&[
        "submit",
        "job.toml",
        "--name",
        "chatty",
        "--workers",
        "1..4",
        "--profile",
        "chatty.json",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    daemon.until("it runs", |jobs| jobs["chatty"]["target_workers"] == 1);
    assert_eq!(first_devices(&scene, 0), 1);
    let shown = daemon.job("chatty");
    let predicted = shown["predicted_examples_per_s"].as_f64().expect("a forecast");
    assert!((predicted / 1000.0 - 1.0).abs() < 0.5, "{shown}");
    let show = scene.call(&["show", "chatty"]).stdout;
    assert!(show.contains("predicted") && show.contains("profile") || show.contains("error"), "{show}");
    // The others are for one that is not said to be slow with several, though nothing was measured of it, either.
    let other = synthetic("other", 1, 100_000, 2.0).replace("size = 16", "size = 32");
    assert_eq!(daemon.submit("plain", &other, json!({ "workers": "1..4" })).status, 201);
    daemon.until("it runs", |jobs| jobs["plain"]["target_workers"] == 3);

    // A profile of another job is refused, and so is what is none.
    let another = scene.call(&["submit", "job.toml", "--set", "batch.size=64", "--profile", "chatty.json"]);
    another.refused_with(&["profile", "another job", "bellwether profile"]);
    scene.write("none.json", "{}");
    scene.call(&["submit", "job.toml", "--profile", "none.json"]).refused_with(&["none.json"]);
    let mut torn = profile("job", 0.002, 1e5);
    torn["steps"] = json!([]);
    let answer = daemon.submit("torn", &job, json!({ "profile": torn }));
    assert_eq!(answer.status, 422, "{answer:?}");
}

/// The lines of a file of slots: two of this device type, which share this much memory.
fn two_slots(device: &str, memory: &str) -> String {
    format!("[[nodes]]\ncount = 1\ndevices = 2\ndevice = \"{device}\"\nmemory = \"{memory}\"\n")
}

#[test]
fn a_job_runs_only_on_slots_that_can_hold_it() {
    let scene = Scene::new("");
    scene.write("slots.toml", two_slots("small", "4GiB") + &two_slots("big", "16GiB"));
    let daemon = Served::start(&scene, &["--slots", "slots.toml", "--policy", "fifo_skip"]);
    scene.write("job.toml", synthetic("job", 1, 100_000, 2.0));
    let mut measured = profile("job", 0.002, 1e9);
    let submit = |measured: &Value, name: &str| {
        scene.write("p.json", measured.to_string());
        scene.call(&["submit", "job.toml", "--name", name, "--profile", "p.json"])
    };
    // 8 virtual nodes keep 4 sums, 16 keep 5: more do not help where nothing is known of smaller micro-batches.
    measured["peak_resident_bytes"] = json!(10_u64 << 30);
    submit(&measured, "huge").refused_with(&[
        "no slot can hold the job; on `big` a worker needs 10.0 GiB of memory and would have 8.0 GiB",
        "which is 2.0 GiB too little; more virtual nodes do not make it fit",
        "slots that have more memory",
    ]);
    measured["peak_resident_bytes"] = json!(3_u64 << 30);
    assert_eq!(submit(&measured, "large").code, Some(0));
    daemon.until("it runs", |jobs| jobs["large"]["workers"] == 2);
    assert!(scene.call(&["show", "large"]).stdout.contains("fits on                  big"));
    // One of its kind is known to be as large; another one is not, and takes the small slots.
    assert_eq!(scene.call(&["submit", "job.toml", "--name", "again"]).code, Some(0));
    let unlike = ["submit", "job.toml", "--name", "unlike", "--set", "batch.size=32"];
    assert_eq!(scene.call(&unlike).code, Some(0));
    daemon.until("it runs", |jobs| jobs["unlike"]["workers"] == 2);
    assert_eq!(daemon.job("again")["state"], "queued");
    assert_eq!(scene.call(&["cancel", "large"]).code, Some(0));
    daemon.until("the large slots are its own", |jobs| jobs["again"]["workers"] == 2);
}

#[test]
fn a_job_that_turns_out_to_fit_nowhere_is_suspended() {
    let scene = Scene::new("");
    // Less than any process needs.
    scene.write("slots.toml", two_slots("small", "2MiB"));
    let daemon = Served::start(&scene, &["--slots", "slots.toml", "--policy", "fifo"]);
    scene.write("job.toml", synthetic("job", 1, 100_000, 2.0));
    assert_eq!(scene.call(&["submit", "job.toml", "--name", "job", "--profile-first"]).code, Some(0));
    daemon.until("it was profiled", |jobs| jobs["job"]["state"] == "suspended");
    let shown = scene.call(&["show", "job"]).stdout;
    assert!(shown.contains("suspended by the daemon: no slot can hold the job; on `small`"), "{shown}");
    // Who knows better lets it train.
    assert_eq!(scene.call(&["resume", "job"]).code, Some(0));
    daemon.until("it trains", |jobs| jobs["job"]["workers"] == 2);
}

#[test]
fn an_asynchronous_job_is_scheduled_by_its_own_steps() {
    let scene = Scene::new("");
    let sync = "[sync]\npolicy = \"asp\"\nservers = 1\n";
    let job = synthetic("job", 1, 100_000, 4.0) + sync;
    let daemon = Served::start(&scene, &["--slots", "4", "--policy", "equi"]);
    assert_eq!(daemon.submit("free", &job, json!({ "workers": "1..8" })).status, 201);
    // Its server has a slot of its own.
    daemon.until("it has all slots", |jobs| {
        jobs["free"]["target_workers"] == 3 && jobs["free"]["servers"] == 1
    });
    let twin = synthetic("twin", 1, 100_000, 4.0);
    assert_eq!(daemon.submit("twin", &twin, json!({ "workers": "1..8" })).status, 201);
    daemon.until("both run", |jobs| jobs["free"]["workers"] == 1 && jobs["twin"]["workers"] == 2);
    // What was observed of its steps is what is said of it, and of the synchronous twin nothing else than its own.
    daemon.until("its steps teach", |jobs| {
        jobs["free"]["predicted_examples_per_s"].is_f64()
            && jobs["free"]["predicted_beyond"]
                .as_str()
                .is_none_or(|why| why.starts_with("the machine was busy"))
    });
    let text = fs::read_to_string(ledger(&scene)).expect("a ledger");
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |entry: &str| lines.iter().filter(|line| line["entry"] == entry).collect::<Vec<_>>();
    let kinds: Vec<&Value> = of("submitted").iter().map(|line| &line["kind"]).collect();
    assert!(kinds.len() == 2 && kinds[0] != kinds[1], "{kinds:?}");
    let lessons = of("learnt");
    let learnt = lessons.iter().find(|line| line["job"] == 0).expect("a lesson");
    assert!(learnt["steps"][0]["unit_count"].as_u64() > Some(0), "{learnt}");
    let many = daemon.submit("many", &job.replace("servers = 1", "servers = 4"), json!({}));
    assert_eq!(many.status, 422, "{many:?}");
    assert!(scene.call(&["show", "free"]).stdout.contains("with a slot each"));
}

#[test]
fn a_job_trains_in_the_way_that_is_fastest_on_its_first_slots() {
    let scene = Scene::new("");
    scene.write("job.toml", synthetic("job", 1, 100_000, 4.0));
    scene.write("fast.json", profile("job", 0.004, 1e12).to_string());
    // A transfer takes half as long as a virtual node: one server is full with a few workers.
    scene.write("slow.json", profile("job", 0.004, 2e6).to_string());
    let daemon = Served::start(&scene, &["--slots", "7", "--policy", "equi"]);
    let submit = |name: &str, more: &[&str]| {
        let words = ["submit", "job.toml", "--name", name, "--workers", "1..8"];
        scene.call(&[&words[..], more].concat())
    };
    let servers = ["--protocols", "asp", "--servers", "1..3", "--profile", "slow.json"];
    assert_eq!(submit("wide", &servers).code, Some(0));
    daemon.until("one server would be full", |jobs| {
        jobs["wide"]["workers"] == 5 && jobs["wide"]["servers"] == 2
    });
    // Others wait, and are shown as they were left open.
    assert_eq!(scene.call(&["policy", "fifo"]).code, Some(0));
    let open = ["--protocols", "bsp,asp", "--profile", "fast.json"];
    assert_eq!(submit("free", &open).code, Some(0));
    let shown = scene.call(&["show", "free"]).stdout;
    assert!(shown.contains("bsp, asp with 1 server; its first start decides"), "{shown}");
    // Synchronous, seven workers wait for the one with two virtual nodes: six that do not wait are faster.
    assert_eq!(scene.call(&["cancel", "wide"]).code, Some(0));
    daemon.until("it runs", |jobs| jobs["free"]["workers"] == 6 && jobs["free"]["servers"] == 1);
    let shown = daemon.job("free");
    let folder = std::path::Path::new(shown["run_dir"].as_str().expect("a folder"));
    let file = fs::read_to_string(folder.join("job.json")).expect("the job of its run");
    assert!(file.contains("\"policy\": \"asp\""), "{file}");
    // What it trains in once it has started stays.
    assert_eq!(scene.call(&["policy", "equi"]).code, Some(0));
    let other = ["--protocols", "bsp,asp", "--servers", "2", "--profile", "slow.json"];
    assert_eq!(submit("other", &other).code, Some(0));
    daemon.until("both run", |jobs| jobs["other"]["workers"].as_u64() > Some(0));
    assert_eq!(daemon.job("free")["servers"], 1);

    submit("none", &["--protocols", "bsp", "--servers", "2"]).refused_with(&["servers", "asp"]);
    submit("none", &["--protocols", "bsp,asp"]).refused_with(&["profile", "bellwether profile"]);
    submit("none", &["--protocols", "bsp,switch:0.5", "--profile", "fast.json"])
        .refused_with(&["switch:0.5", "several phases"]);
    submit("none", &["--servers", "0..2"]).refused_with(&["--servers"]);
    let text = fs::read_to_string(ledger(&scene)).expect("a ledger");
    drop(daemon);
    scene.write("ledger.jsonl", text);
    let replayed = scene.call(&["simulate", "--replay", "ledger.jsonl", "--format", "json"]);
    let told: Value = serde_json::from_str(&replayed.stdout).expect("an object");
    assert_eq!(told["decisions"]["same"], told["decisions"]["all"], "{replayed:?}");
}

#[test]
fn a_daemon_profiles_a_job_before_it_trains() {
    let scene = Scene::new("");
    let job = synthetic("job", 1, 100_000, 1.0);
    let daemon = Served::start(&scene, &["--slots", "4", "--policy", "equi"]);
    scene.write("job.toml", &job);
    let submit = |name: &str, more: &[&str]| {
        let words = ["submit", "job.toml", "--name", name, "--workers", "2..4"];
        scene.call(&[&words[..], more].concat())
    };
    assert_eq!(submit("first", &["--profile-first"]).code, Some(0));
    daemon.until("it is being profiled", |jobs| {
        jobs["first"]["state"] == "starting"
            && jobs["first"]["why"].as_str().is_some_and(|why| why.contains("profiled"))
    });
    // Suspended meanwhile, it begins again.
    assert_eq!(scene.call(&["stop", "first"]).code, Some(0));
    daemon.until("it waits", |jobs| jobs["first"]["state"] == "suspended");
    assert_eq!(scene.call(&["scale", "first", "--workers", "2..3"]).code, Some(0));
    assert_eq!(scene.call(&["resume", "first"]).code, Some(0));
    daemon.until("it trains", |jobs| jobs["first"]["workers"] == 3);
    assert!(scene.call(&["logs", "first"]).stdout.contains("step"));
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(ledger(&scene)).expect("a ledger");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    assert_eq!(first_devices(&scene, 0), 1, "one slot while it is profiled");
    let all = lines();
    let place = |entry: &str| all.iter().position(|line| line["entry"] == entry);
    let profiled = place("profiled").expect("a line");
    assert!(profiled < place("training").expect("a line"));
    let rates = all[profiled]["rates"].as_array().expect("rates");
    // The machine has one node of 4 slots, and 8 virtual nodes of 1 ms are 2,000 samples a second at most.
    let alone = rates[0]["examples_per_s"].as_f64().expect("a rate");
    assert!(rates.len() == 4 && (200.0..=2000.0).contains(&alone), "{rates:?}");
    assert!(scene.path("state/first/profile.json").exists() || alone > 0.0);

    // What the run left behind tells a daemon of the next job; of another kind of job it is refused.
    daemon.until("it has trained", |jobs| jobs["first"]["step"].as_u64() > Some(60));
    assert_eq!(submit("second", &["--profile", "first"]).code, Some(0));
    let told = lines().into_iter().find(|line| line["name"] == "second").expect("a line");
    assert_eq!(told["profiled"].as_array().map(Vec::len), Some(8), "{told}");
    submit("third", &["--profile", "first", "--set", "batch.size=64"])
        .refused_with(&["first", "another job"]);
    submit("fourth", &["--profile", "nothing"]).refused_with(&["nothing"]);
    let rate = json!({ "workers": 9, "speed": 1.0, "examples_per_s": 5.0, "low": 4.0, "high": 6.0, "bottleneck": "compute" });
    let answer = daemon.submit("fifth", &job, json!({ "rates": [rate] }));
    assert!(answer.status == 422 && format!("{answer:?}").contains("rates[0]"), "{answer:?}");
    let answer = daemon.submit("fifth", &job, json!({ "rates": [rate], "profile_first": true }));
    assert_eq!(answer.status, 422, "{answer:?}");

    // One that cannot be profiled trains without.
}
