//! `bellwether simulate` and `policies`: what they print, and what they refuse or repair.

use std::fs;

use serde_json::Value;

use crate::harness::Scene;

const TRACE: &str = "job_id,submit_time,num_gpu,duration\n0,0,4,100\n1,5,8,50\n2,5,1,10\n3,6,2,200\n";
const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate/cluster.toml");

/// Figures that a program may rely on.
const FIGURES: [&str; 9] = [
    "policy",
    "jobs",
    "avg_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "makespan_s",
    "preemptions",
    "refused",
    "wall_s",
];

fn scene(trace: &str) -> Scene {
    let scene = Scene::new("");
    scene.write("trace.csv", trace);
    scene
}

fn simulated(scene: &Scene, more: &[&str]) -> Vec<Value> {
    simulated_of(scene, "trace.csv", more)
}

fn simulated_of(scene: &Scene, trace: &str, more: &[&str]) -> Vec<Value> {
    let arguments = ["simulate", "--trace", trace, "--format", "json"];
    let ended = scene.call(&[&arguments, more].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("an array of objects")
}

#[test]
fn figures_of_a_small_trace_are_those_worked_out_by_hand() {
    // Job 0 holds 4 of 8 devices to 100, 1 needs all 8 and waits until 100, 2 and 3 wait behind it until 150.
    let scene = scene(TRACE);
    let results = simulated(&scene, &["--cluster", "2x4", "--policy", "fifo,fifo_skip"]);
    for figure in FIGURES {
        assert!(results.iter().all(|result| !result[figure].is_null()), "{figure}");
    }
    let fifo = &results[0];
    let times = [100.0, 145.0, 155.0, 344.0];
    assert_eq!(fifo["policy"], "fifo");
    assert_eq!(fifo["avg_jct_s"], times.iter().sum::<f64>() / 4.0);
    assert_eq!((&fifo["median_jct_s"], &fifo["p99_jct_s"]), (&145.0.into(), &155.0.into()));
    assert_eq!((&fifo["makespan_s"], &fifo["jobs"]), (&350.0.into(), &4.into()));
    // With skipping 2 and 3 start at once, and 1 starts when 3 has ended.
    assert_eq!(results[1]["makespan_s"], 256.0);
}

#[test]
fn rows_that_cannot_be_are_refused_or_repaired_by_name() {
    let trace = "job_id,submit_time,num_gpu,duration\na,9,1,10\nb,3,1,10\nc,-1,1,10\nb,4,1,10\nd,5,99,10\n";
    let scene = scene(trace);
    let arguments = ["simulate", "--trace", "trace.csv", "--cluster", "1x8", "--policy", "fifo"];
    let ended = scene.call(&arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in ["row 4", "row 5", "`c`", "`b`", "repaired"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
    assert!(
        ended.stdout.contains("3 jobs refused") && ended.stdout.contains("it needs 99 devices"),
        "{ended:?}"
    );
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    let scene = scene(TRACE);
    let mut written = Vec::new();
    for name in ["a", "b"] {
        let (jobs, decisions, picture) =
            (format!("{name}.csv"), format!("{name}.jsonl"), format!("{name}.svg"));
        simulated(
            &scene,
            &[
                "--cluster",
                CLUSTER,
                "--policy",
                "fifo,easy",
                "--remaining",
                "estimated:0.4",
                "--early",
                "0.3",
                "--seeds",
                "3",
                "--jobs-out",
                &jobs,
                "--decisions-out",
                &decisions,
                "--plot",
                &picture,
            ],
        );
        let read = |name: &str| fs::read_to_string(scene.path(name)).expect("the file was written");
        written.push((read(&jobs), read(&decisions), read(&picture)));
    }
    assert_eq!(written[0], written[1]);
    let (jobs, decisions, picture) = &written[0];
    assert!(jobs.starts_with("job_id,policy,submit_s,start_s,end_s,restarts\n0,fifo,0,0,"), "{jobs}");
    assert_eq!(jobs.lines().count(), 1 + 2 * 4);
    let decision: Value =
        decisions.lines().next().and_then(|line| serde_json::from_str(line).ok()).expect("JSON");
    assert_eq!(decision["reason"], "1 start, 0 stop, 0 change, 0 wait: who came first goes first");
    assert!(picture.starts_with("<svg") && picture.contains("completion time"));
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let scene = scene(TRACE);
    let call = |more: &[&str]| scene.call(&[&["simulate", "--trace", "trace.csv"], more].concat());
    call(&["--cluster", "2x4", "--policy", "fifos"])
        .refused_with(&["invalid policy \"fifos\": expected one of", "did you mean `fifo`"]);
    call(&["--cluster", "2x4", "--policy", "fifo:3"]).refused_with(&["no option", "takes no options"]);
    call(&["--cluster", "2by4", "--policy", "fifo"]).refused_with(&["\"2by4\"", "16x4"]);
    call(&["--cluster", "none.toml", "--policy", "fifo"]).refused_with(&["none.toml", "cannot be read"]);
    call(&["--cluster", "0x4", "--policy", "fifo"]).refused_with(&["0 devices"]);
    call(&["--cluster", "2x4", "--policy", "easy", "--remaining", "unknown"])
        .refused_with(&["easy", "remaining"]);
    call(&["--cluster", "2x4", "--policy", "fifo", "--truth", "linaer"]).refused_with(&["--truth", "linear"]);
    call(&["--cluster", "2x4", "--policy", "fifo", "--early", "2"]).refused_with(&["--early"]);
    call(&["--cluster", "2x4", "--policy", "fifo", "--plot", "no/where.svg"]).refused_with(&["no folder"]);
    call(&["--cluster", "2x4", "--policy", ""]).refused_with(&["--policy", "names no policy"]);
    call(&["--cluster", "2x4", "--policy", "fifo", "--jobs-out", "trace.csv"])
        .refused_with(&["--jobs-out", "same file as --trace"]);
    call(&["--cluster", "2x4", "--policy", "srtf", "--restart", "1e300s"]).refused_with(&["would end at"]);
    scene.write("cluster.toml", "[[nodes]]\ncount = 1\ndevices = 8\nspede = 2\n");
    call(&["--cluster", "cluster.toml", "--policy", "fifo"]).refused_with(&["line 4", "`speed`"]);
    scene.write("trace.csv", "this is not a trace\n");
    call(&["--cluster", "2x4", "--policy", "fifo"]).refused_with(&["trace.csv"]);
}

#[test]
fn what_no_job_tells_is_not_zero() {
    // A job that is too wide, and one whose nodes fail long before it has paid for its restart.
    let scene = scene("job_id,submit_time,num_gpu,duration\n0,0,99,10\n1,0,2,100\n");
    scene.write(
        "frail.toml",
        "restart = \"30s\"\n[[nodes]]\ncount = 1\ndevices = 2\nmean_time_to_failure = \"1s\"\nmean_time_to_repair = \"1s\"\n",
    );
    let results = simulated(&scene, &["--cluster", "frail.toml", "--policy", "fifo"]);
    let fifo = &results[0];
    assert_eq!((&fifo["refused"], &fifo["unfinished"], &fifo["finished"]), (&1.into(), &1.into(), &0.into()));
    assert!(fifo["avg_jct_s"].is_null() && fifo["makespan_s"].is_null(), "{fifo}");
    let table =
        scene.call(&["simulate", "--trace", "trace.csv", "--cluster", "1x1", "--policy", "fifo,srtf"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.contains("  -") && !table.stdout.contains("0s*"), "{}", table.stdout);
}

#[test]
fn jobs_without_work_do_not_spoil_ratios() {
    let scene = scene("job_id,submit_time,num_gpu,duration\n0,0,2,100\n1,1,1,0\n");
    let results = simulated(&scene, &["--cluster", "1x2", "--policy", "fifo"]);
    let figure = |name: &str| results[0][name].as_f64().expect("a number");
    assert_eq!(figure("avg_slowdown"), 1.0);
    // Alone it would take as long; with 1.99 jobs there on average its share is that much smaller.
    assert!((figure("max_rho") - 1.0 / 1.99).abs() < 1e-12, "{results:?}");
}

#[test]
fn every_policy_is_explained() {
    let scene = Scene::new("");
    let ended = scene.call(&["policies", "--format", "json"]);
    let policies: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    let table = scene.call(&["policies"]).stdout;
    for policy in &policies {
        let name = policy["policy"].as_str().expect("a name");
        assert!(table.contains(&format!("{name}: ")), "{name}");
        let figures = "simulate --cluster 2x4 --policy";
        assert!(policy["idea"].as_str().is_some_and(|idea| idea.len() > 20), "{figures} {name}");
    }
}

#[test]
fn the_schema_knows_every_key_of_the_example() {
    let schema = Scene::new("").call(&["schema", "cluster"]).stdout;
    for line in fs::read_to_string(CLUSTER).expect("the example is there").lines() {
        if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| !key.starts_with('#')) {
            assert!(schema.contains(&format!("\"{key}\"")), "{key}");
        }
    }
}

/// The project's data.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");

#[test]
fn a_trace_is_described_and_drawn_again() {
    let scene = Scene::new("");
    let trace = format!("{DATA}/itp-traces/cluster10.csv");
    let ended = scene.call(&["trace", "describe", &trace, "--gpus", "16", "--output", "like.toml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in ["260 jobs (itp)", "a load of 0.32", "the best of these: "] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let drawn = |seed: &str| scene.call(&["trace", "generate", "like.toml", "--seed", seed]).stdout;
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
    scene.write("trace.csv", drawn("1"));
    // A generator and the trace that it draws are the same jobs.
    let by_file = simulated(&scene, &["--cluster", "2x8", "--policy", "fifo"]);
    let by_generator = simulated_of(&scene, "like.toml", &["--cluster", "2x8", "--policy", "fifo"]);
    let (file, generator) = (&by_file[0]["avg_jct_s"], &by_generator[0]["avg_jct_s"]);
    let (file, generator) = (file.as_f64().expect("a number"), generator.as_f64().expect("a number"));
    // The CSV has whole milliseconds.
    assert!((file - generator).abs() < 1.0, "{file} {generator}");
    scene.call(&["trace", "generate", "trace.csv"]).refused_with(&["trace.csv"]);
    let arguments = ["simulate", "--trace", "like.toml", "--cluster", "2x8", "--policy", "fifo"];
    scene.call(&[&arguments[..], &["--elastic", "1..4"]].concat()).refused_with(&["--elastic", "generator"]);
    scene.call(&["trace", "describe", "nothing.csv"]).refused_with(&["nothing.csv", "cannot be read"]);
}

/// Jobs share devices only where the command or the cluster file says so, and what is believed of that is a model of its own.
#[test]
fn packing_is_asked_for_and_ends_jobs_earlier() {
    let scene = Scene::new("");
    let table = format!("{DATA}/gavel/simulation_throughputs.json");
    let (truth, belief) = (format!("gavel:{table}"), format!("gavel_colocated:{table}"));
    let trace = format!("{DATA}/gavel/g120.trace.tsv");
    let policies = "fifo_skip,gandiva,gavel_max_min,gavel_max_min:packing=1";
    let arguments = [
        "--cluster",
        "3x4:v100,3x4:p100,3x4:k80",
        "--truth",
        &truth,
        "--belief",
        &belief,
        "--policy",
        policies,
    ];
    let alone = simulated_of(&scene, &trace, &arguments);
    let shared = simulated_of(&scene, &trace, &[&arguments[..], &["--packing"]].concat());
    for place in [0, 2] {
        assert_eq!(alone[place]["avg_jct_s"], alone[place + 1]["avg_jct_s"], "no job shares unasked");
        assert_eq!(alone[place]["avg_jct_s"], shared[place]["avg_jct_s"], "not every policy packs");
        let mean_s = |place: usize| shared[place]["avg_jct_s"].as_f64().expect("a number");
        assert!(mean_s(place + 1) < 0.95 * mean_s(place), "{} {}", mean_s(place + 1), mean_s(place));
    }
    let file = "packing = true\n[[nodes]]\ncount = 3\ndevices = 4\ndevice = \"v100\"\n[[nodes]]\ncount = 3\ndevices = 4\n\
                device = \"p100\"\n[[nodes]]\ncount = 3\ndevices = 4\ndevice = \"k80\"\n";
    scene.write("packing.toml", file);
    let arguments =
        ["--cluster", "packing.toml", "--truth", &truth, "--belief", &belief, "--policy", policies];
    let by_file = simulated_of(&scene, &trace, &arguments);
    assert!((0..4).all(|place| by_file[place]["avg_jct_s"] == shared[place]["avg_jct_s"]), "{by_file:?}");
}

/// Two jobs with a node in common slow each other down where the command or the cluster file says so, by a truth that
/// knows their exchanges.
#[test]
fn links_are_shared_where_that_is_asked_for() {
    let scene = Scene::new("");
    let row = "bert,36,100000";
    scene.write(
        "two.csv",
        format!("job_id,submit_time,num_gpu,duration,model,batch,work\n1,0,3,,{row}\n2,0,3,,{row}\n"),
    );
    let truth = format!("measured:{DATA}/pollux-tables");
    let mean_s = |cluster: &str, more: &[&str]| {
        let arguments = ["--cluster", cluster, "--truth", &truth, "--policy", "fifo"];
        let results = simulated_of(&scene, "two.csv", &[&arguments[..], more].concat());
        results[0]["avg_jct_s"].as_f64().expect("a number")
    };
    let (alone_s, shared_s) = (mean_s("3x2", &[]), mean_s("3x2", &["--shared-links"]));
    // Half of a step is exchange: 1.25 of the time alone, if all of the step were as the tables say of three GPUs.
    assert!((1.1..1.5).contains(&(shared_s / alone_s)), "{alone_s} {shared_s}");
    // No node is shared where each has a node for itself.
    assert_eq!(mean_s("2x4", &[]), mean_s("2x4", &["--shared-links"]));
    scene.write("links.toml", "shared_links = true\n[[nodes]]\ncount = 3\ndevices = 2\n");
    assert_eq!(mean_s("links.toml", &[]), shared_s);
    // The example: who fills nodes in parts is slower, and Pollux leaves a node to one job that spans several.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate/exchange.toml");
    let of_example = |more: &[&str]| {
        let arguments = ["--cluster", "16x4", "--truth", &truth, "--policy", "fifo,pollux"];
        simulated_of(&scene, example, &[&arguments[..], more].concat())
    };
    let (alone, shared) = (of_example(&[]), of_example(&["--shared-links"]));
    let figure = |results: &[Value], place: usize| results[place]["avg_jct_s"].as_f64().expect("a number");
    assert!(figure(&shared, 0) > 1.2 * figure(&alone, 0), "{alone:?} {shared:?}");
    assert_eq!(figure(&shared, 1), figure(&alone, 1));
    let arguments = ["simulate", "--trace", "two.csv", "--policy", "fifo", "--truth", "linear"];
    for cluster in [&["--cluster", "3x2", "--shared-links"][..], &["--cluster", "links.toml"]] {
        let refused = scene.call(&[&arguments[..], cluster].concat());
        refused.refused_with(&["--truth linear", "no job is slower with less of a link", "profiles:FOLDER"]);
    }
}

#[test]
fn tables_of_models_say_how_fast_jobs_are() {
    let scene = Scene::new("");
    let gavel = format!("gavel:{DATA}/gavel/simulation_throughputs.json");
    let trace = format!("{DATA}/gavel/g120.trace.tsv");
    let cluster = "3x4:v100,3x4:p100,3x4:k80";
    let arguments =
        ["simulate", "--trace", &trace, "--cluster", cluster, "--truth", &gavel, "--format", "json"];
    let ended = scene.call(&[&arguments[..], &["--policy", "gavel_max_min,fifo"]].concat());
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    assert_eq!((&results[0]["finished"], &results[0]["jobs"]), (&120.into(), &120.into()));
    let mean_s = |place: usize| results[place]["avg_jct_s"].as_f64().expect("a number");
    assert!(mean_s(0) < 0.8 * mean_s(1), "{} {}", mean_s(0), mean_s(1));

    // What a type of device cannot run is placed on another, also by policies that do not look at speeds.
    let rows = "job_id,submit_time,num_gpu,duration,model\n1,0,2,100,ResNet-50 (batch size 128)\n";
    scene.write("large.csv", rows);
    let arguments = ["--cluster", "1x4:k80,1x2:v100", "--policy", "fifo,srtf", "--truth", &gavel];
    let results = simulated_of(&scene, "large.csv", &arguments);
    assert!(results.iter().all(|result| result["avg_jct_s"] == 100.0), "{results:?}");

    // Work, limits of batches and noise come from the tables; belief is what a fit makes of them.
    let (truth, belief) = (format!("measured:{DATA}/pollux-tables"), format!("goodput:{DATA}/pollux-tables"));
    let mut rows = String::from("name,time,application,num_replicas,batch_size\n");
    for (number, (name, batch)) in [("cifar10", 128), ("bert", 12), ("ncf", 256)].into_iter().enumerate() {
        rows += &format!("{name}-{number},{},{name},2,{batch}\n", 60 * number);
    }
    scene.write("pollux.csv", rows);
    let arguments =
        ["simulate", "--trace", "pollux.csv", "--cluster", "2x4", "--truth", &truth, "--belief", &belief];
    let ended = scene.call(
        &[&arguments[..], &["--policy", "fifo,pollux", "--restart", "30s", "--format", "json"]].concat(),
    );
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    assert!(results.iter().all(|result| result["finished"] == 3), "{results:?}");
    assert!(results[1]["avg_jct_s"].as_f64() < results[0]["avg_jct_s"].as_f64(), "{results:?}");
    // A cap of what a device computes at once slows its job down.
    let tables = copied_tables(&scene);
    let truth = format!("measured:{tables}");
    let mean_s = || {
        let arguments = ["simulate", "--trace", "cifar10.csv", "--cluster", "1x2", "--truth", &truth];
        let ended = scene.call(&[&arguments[..], &["--policy", "fifo", "--format", "json"]].concat());
        let results: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
        results[0]["avg_jct_s"].as_f64().expect("it ended")
    };
    scene.write("cifar10.csv", "name,time,application,num_replicas,batch_size\nc,0,cifar10,2,256\n");
    let free_s = mean_s();
    scene.write("tables/limits.csv", "application,max_local_bsz\ncifar10,64\n");
    assert!(mean_s() > free_s, "{} {free_s}", mean_s());
    scene.write("tables/limits.csv", "application,max_local_bsz\ncifar10,31\n");
    let arguments =
        ["simulate", "--trace", "cifar10.csv", "--cluster", "1x2", "--truth", &truth, "--policy", "fifo"];
    scene.call(&arguments).refused_with(&["limits.csv, line 2", "`max_local_bsz` is 31", "is 32"]);
    // Without the tables the work is unknown.
    let arguments = ["simulate", "--trace", "pollux.csv", "--cluster", "2x4", "--policy", "fifo"];
    scene.call(&arguments).refused_with(&["pollux.csv, row 2", "has no work", "measured:"]);
}

/// A copy of the tables of one application, to which a file may be added.
fn copied_tables(scene: &Scene) -> String {
    let from = std::path::Path::new(DATA).join("pollux-tables/cifar10");
    let to = scene.path("tables/cifar10");
    std::fs::create_dir_all(&to).expect("there is room");
    for entry in std::fs::read_dir(from).expect("the tables are there") {
        let file = entry.expect("the folder can be read");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("there is room");
    }
    to.parent().expect("it has one").display().to_string()
}
