//! `bellwether capacity`: what it chooses, how it is handed on to `simulate`, how it says no, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::harness::{Ended, Scene};

/// The examples' folder.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// Two jobs at once and two later: with one machine of two devices the second waits an hour.
const TRACE: &str =
    "job_id,submit_time,num_gpu,duration\n0,0,2,3600\n1,0,2,3600\n2,20000,1,1800\n3,20100,1,1800\n";

const PRICES: &str = r#"
[[machine]]
name = "small"
device = "k80"
devices = 2
region = "here"
price = "$1/h"
transient_price = "$0.25/h"
revocations = "exponential:3h"
provision = "60s"
join = "30s"

[[machine]]
name = "fast"
device = "v100"
devices = 2
region = "there"
speed = 4.0
price = "$3/h"
"#;

fn scene() -> Scene {
    let scene = Scene::new("");
    scene.write("trace.csv", TRACE);
    scene.write("prices.toml", PRICES);
    scene
}

fn ask(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.call(&[&["capacity", "trace.csv", "--catalog", "prices.toml"], arguments].concat())
}

#[track_caller]
fn found(ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON and nothing else")
}

fn choice(answer: &Value) -> &Value {
    let place = answer["choice"].as_u64().expect("a choice");
    &answer["candidates"][place as usize]
}

#[test]
fn the_choice_is_the_one_worked_out_by_hand() {
    let scene = scene();
    // Two small machines hold it: each first job takes an hour, and all is over at 21,900 s: 2 x $1/h. One fast machine
    // does both in half an hour, and all at 20,550 s, for $3/h.
    let answer = found(&ask(&scene, &["--objective", "max completion < 61min", "--format", "json"]), 0);
    let chosen = choice(&answer);
    assert_eq!((&chosen["cluster"], &chosen["policy"]), (&"2 small".into(), &"fifo".into()));
    assert_eq!(chosen["makespan_s"], 21_900.0);
    assert_eq!(chosen["cost_dollars"], 2.0 * 21_900.0 / 3600.0);
    assert_eq!(chosen["figures"]["max_completion_s"], 3600.0);
    let answer = found(&ask(&scene, &["--objective", "max completion < 59min", "--format", "json"]), 0);
    let chosen = choice(&answer);
    assert_eq!(
        (&chosen["cluster"], &chosen["cost_dollars"]),
        (&"1 fast".into(), &(3.0 * 20_550.0 / 3600.0).into())
    );
    // One small machine is the cheapest where jobs may wait.
    let answer = found(&ask(&scene, &["--objective", "max completion <= 2h", "--format", "json"]), 0);
    assert_eq!(choice(&answer)["cluster"], "1 small");
    let counts = &answer["counts"];
    assert_eq!(counts["candidates"], 2 * 32 * 4);
    assert!(counts["measured"].as_u64().is_some_and(|measured| measured < 20), "{counts}");
}

/// The workload and the prices of the examples, and what is asked of them.
fn example() -> (Scene, Vec<&'static str>) {
    let scene = Scene::new("");
    for (name, example) in
        [("workload.toml", "capacity/workload.toml"), ("prices.toml", "capacity/prices.toml")]
    {
        scene.write(name, fs::read_to_string(format!("{EXAMPLES}/{example}")).expect("an example"));
    }
    let mut words = vec!["capacity", "--objective", "p95 completion < 4h, mean wait < 20min"];
    words.extend("workload.toml --catalog prices.toml --transient --max-machines 12 --runs 2".split(' '));
    words.extend("--policy fifo,srtf --truth power:0.8 --restart 1min --checkpoint 10min".split(' '));
    words.extend(["--format", "json"]);
    (scene, words)
}

#[test]
fn the_example_walks_from_capacity_to_simulate() {
    let (scene, wish) = example();
    let ended =
        scene.call(&[&wish[..], &["--cluster-out", "cluster.toml", "--plot", "capacity.svg"]].concat());
    let answer = found(&ended, 0);
    let chosen = choice(&answer);
    assert!(chosen["holds"] == true && chosen["runs"] == 2, "{chosen}");
    // The file says how it is simulated, and that comes to the same figures.
    let text = fs::read_to_string(scene.path("cluster.toml")).expect("a cluster");
    let command = text.lines().find_map(|line| line.strip_prefix("# bellwether ")).expect("a command");
    let words: Vec<&str> = command.split(' ').chain(["--format", "json"]).collect();
    let figures: Vec<Value> = serde_json::from_str(&scene.call(&words).stdout).expect("figures");
    assert_eq!((&figures[0]["policy"], &figures[0]["seeds"]), (&chosen["policy"], &chosen["runs"]));
    for (figure, simulated) in [("p95_completion_s", "p95_jct_s"), ("mean_wait_s", "avg_queueing_s")] {
        let (one, other) = (chosen["figures"][figure].as_f64(), figures[0][simulated].as_f64());
        let (one, other) = (one.expect("a figure"), other.expect("a figure"));
        assert!((one - other).abs() < 1e-9 * one, "{figure}: {one} {other}");
    }
    let svg = fs::read_to_string(scene.path("capacity.svg")).expect("a picture");
    for words in ["choice: ", "objective: p95 completion", "what nothing else beats", "cost in dollars"] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn the_example_has_the_answer_of_a_look_at_all_candidates() {
    let (scene, wish) = example();
    let once = scene.call(&wish).stdout;
    assert_eq!(once, scene.call(&wish).stdout);
    let answer: Value = serde_json::from_str(&once).expect("JSON");
    let all = found(&scene.call(&[&wish[..], &["--exhaustive"]].concat()), 0);
    assert_eq!(choice(&all), choice(&answer));
    let count = |name: &str| all["counts"][name].as_u64().expect("a count");
    assert_eq!(count("measured") + count("unable"), count("candidates"));
}

#[test]
fn three_formats_say_the_same() {
    let scene = scene();
    let wish = ["--objective", "max completion < 61min, mean slowdown < 2", "--front"];
    let answer = found(&ask(&scene, &[&wish[..], &["--format", "json"]].concat()), 0);
    let rows = answer["candidates"].as_array().expect("rows");
    let csv = ask(&scene, &[&wish[..], &["--format", "csv"]].concat()).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), rows.len() + 1);
    assert!(lines[0].contains("max_completion_s") && lines[0].contains("mean_slowdown"), "{}", lines[0]);
    assert_eq!(lines.iter().filter(|line| line.ends_with("true")).count(), 1);
    let table = ask(&scene, &wish).stdout;
    assert!(table.contains("max completion") && table.contains(answer["reason"].as_str().expect("a reason")));
    let marked: Vec<&str> = table.lines().filter(|line| line.ends_with("← choice")).collect();
    assert!(matches!(marked[..], [line] if line.starts_with("2 small")), "{table}");
    // A quarter of the limit is held by fast machines only.
    assert!(table.contains("max completion < 915s"), "{table}");
    assert_eq!(answer["front"].as_array().map(Vec::len), Some(8));
}

#[test]
fn what_cannot_be_held_is_said_with_what_could() {
    let scene = scene();
    let wish = ["--objective", "max completion < 10min", "--max-machines", "3", "--format", "json"];
    let ended = ask(&scene, &wish);
    let answer = found(&ended, 1);
    assert!(answer["choice"].is_null(), "{answer}");
    assert!(ended.stderr.contains("none of 24 candidates holds max completion < 10min"), "{ended:?}");
    // A fast machine takes a quarter of an hour for each hour, and two of them take both jobs at once.
    let hint = "say --objective 'max completion < 16min': 2 fast under fifo";
    assert!(ended.stderr.contains(hint), "{ended:?}");
    let said = answer["relaxations"][0]["say"].as_str().expect("what to say");
    let relaxed = found(&ask(&scene, &["--objective", said, "--max-machines", "3", "--format", "json"]), 0);
    assert_eq!(choice(&relaxed)["cluster"], "2 fast");
    // Two objectives, of which one stands in the way.
    let both = ask(&scene, &["--objective", "max completion < 61min, makespan < 1h"]);
    assert_eq!(both.code, Some(1));
    assert!(both.stderr.contains("--objective 'makespan < "), "{both:?}");
    assert!(!both.stderr.contains("--objective 'max completion"), "{both:?}");
    // A job that no cluster is wide enough for.
    scene.write("trace.csv", "job_id,submit_time,num_gpu,duration\n0,0,99,60\n");
    let wide = ask(&scene, &["--objective", "max completion < 1h", "--max-machines", "3"]);
    assert_eq!(wide.code, Some(1), "{wide:?}");
    assert!(wide.stderr.contains("needs 99 devices") && wide.stderr.contains("--max-machines"), "{wide:?}");
}

#[test]
fn bad_input_is_refused_by_name() {
    let scene = scene();
    let objective = ["--objective", "p95 completion < 2h"];
    let with = |more: &[&str]| ask(&scene, &[&objective[..], more].concat());
    ask(&scene, &["--objective", "p95 completoin < 2h"]).refused_with(&["completoin", "completion"]);
    ask(&scene, &["--objective", "p95 completion < soon"]).refused_with(&["soon", "one of"]);
    ask(&scene, &[]).refused_with(&["--objective"]);
    ask(&scene, &["--objective", "deadlines >= 95%"]).refused_with(&["deadline", "slack"]);
    ask(&scene, &["--objective", "max wait < 1h, max wait < 2h"]).refused_with(&["two limits of max wait"]);
    with(&["--policy", "fivo"]).refused_with(&["fivo", "did you mean `fifo`?"]);
    with(&["--region", "her"]).refused_with(&["her", "here"]);
    with(&["--truth", "liner"]).refused_with(&["liner", "linear"]);
    with(&["--remaining", "unknown", "--policy", "srtf"]).refused_with(&["srtf", "--remaining"]);
    with(&["--checkpoint", "0s"]).refused_with(&["--checkpoint", "10min"]);
    with(&["--max-machines", "0"]).refused_with(&["--max-machines"]);
    scene.write("prices.toml", PRICES.replace("there", "here"));
    with(&["--max-machines", "4096", "--kinds", "2", "--transient"])
        .refused_with(&["candidates", "--max-machines"]);
    scene.write("prices.toml", PRICES);
    with(&["--plot", "a.svg", "--cluster-out", "a.svg"])
        .refused_with(&["--cluster-out", "same file as --plot"]);
    with(&["--cluster-out", "none/cluster.toml"]).refused_with(&["none"]);
    scene
        .call(&["capacity", "none.csv", "--catalog", "prices.toml", "--objective", "makespan < 1h"])
        .refused_with(&["none.csv"]);
    scene
        .call(&["capacity", "trace.csv", "--catalog", "none.toml", "--objective", "makespan < 1h"])
        .refused_with(&["none.toml", "schema catalog"]);
    scene.write("prices.toml", PRICES.replace("exponential:3h", "exponential:1s"));
    with(&["--transient"]).refused_with(&["small", "revocations"]);
    scene.write(
        "prices.toml",
        "[[machine]]\ndevice = \"a\"\ntransient_price = \"$1/h\"\nrevocations = \"never\"\n",
    );
    with(&[]).refused_with(&["--transient"]);
    scene.write("trace.csv", "job_id,submit_time,num_gpu,duration\n");
    with(&["--transient"]).refused_with(&["trace.csv"]);
}

#[test]
fn cluster_files_with_lifetimes_are_checked() {
    let scene = scene();
    let simulate = |text: &str| {
        scene.write("cluster.toml", text);
        scene.call(&["simulate", "--cluster", "cluster.toml", "--trace", "trace.csv", "--policy", "fifo"])
    };
    let group = "[[nodes]]\ncount = 2\ndevices = 2\n";
    assert_eq!(
        simulate(&format!("{group}lifetimes = \"k80:us-west1\"\nreplacement = \"2min\"\n")).code,
        Some(0)
    );
    simulate(&format!("{group}lifetimes = \"k80:us-wst1\"\n")).refused_with(&["us-wst1", "us-west1"]);
    simulate(&format!("{group}replacement = \"2min\"\n")).refused_with(&["replacement", "lifetimes"]);
    simulate(&format!("{group}lifetimes = \"never\"\nlongest_life = \"2h\"\n"))
        .refused_with(&["twice", "longest_life"]);
    simulate(&format!("{group}lifetimes = \"samples:lives.txt\"\n"))
        .refused_with(&["lives.txt", "beside the cluster file"]);
    scene.write("lives.txt", "1h\n2h+\n");
    assert_eq!(simulate(&format!("{group}lifetimes = \"samples:lives.txt\"\n")).code, Some(0));
}
