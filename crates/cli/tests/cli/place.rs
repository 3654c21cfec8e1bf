//! `bellwether place`: what it tells of the examples, how it scores a measured trace, and what it refuses.

use serde_json::Value;

use crate::harness::{Ended, Scene};

/// The examples' folder.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
/// Measured traces.
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/thread-blocks/");
const HEADER: &str = "device,run,test,kernel,grid_blocks,threads_per_block,registers_per_thread,shared_bytes,\
                      sm_of_block_in_order";

/// Places an example.
fn example(name: &str, gpu: &str, more: &[&str]) -> (Scene, Ended) {
    let scene = Scene::new("");
    let path = format!("{EXAMPLES}{name}");
    let ended = scene.call(&[&["place", path.as_str(), "--gpu", gpu], more].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{name}: {ended:?}");
    (scene, ended)
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {ended:?}"))
}

/// Places kernels that are written in a file.
fn placed(workload: &str, more: &[&str]) -> Ended {
    let scene = Scene::new("");
    scene.write("w.toml", workload);
    scene.call(&[&["place", "w.toml"], more].concat())
}

/// A kernel with one key more, on a V100.
fn kernel(more: &str) -> Ended {
    let head = if more.contains("blocks =") { "" } else { "blocks = 4\n" };
    let threads = if more.contains("threads_per_block") { "" } else { "threads_per_block = 64\n" };
    placed(&format!("[[kernel]]\nname = 'k'\n{head}{threads}time_us = 5.0\n{more}\n"), &["--gpu", "v100"])
}

#[test]
fn a_thread_more_isolates() {
    let (_, ended) = example("place/isolated.toml", "rtx-2080-ti", &[]);
    prints(&ended.stdout, ISOLATED);
    let (_, ended) = example("place/colocated.toml", "RTX 2080 Ti", &[]);
    prints(&ended.stdout, COLOCATED);
}

/// A table as it is printed: exactly these lines, and how far the rules of the device can be trusted.
#[track_caller]
fn prints(found: &str, expected: &str) {
    let (table, rules) = found.split_once("rules of ").expect("the rules");
    assert_eq!(table, expected.trim_start(), "\nfound:\n{found}");
    assert!(rules.starts_with("rtx-2080-ti: observed. "), "{rules}");
}

const ISOLATED: &str = "
75 blocks on GeForce RTX 2080 Ti under leftover: done after 500.0 µs

kernel  blocks  threads  per SM  limited by  launches  first start  last start       end     alone      here  slowdown   its SMs
a           67      512       2     threads         1            0           0  500.0 µs  500.0 µs  500.0 µs      1.00  isolated
b            8       33      16       warps         1            0           0  480.0 µs  300.0 µs  480.0 µs      1.60  isolated

a: on 67 SMs: 0–66
b: on 1 SM: 67
";

const COLOCATED: &str = "
75 blocks on GeForce RTX 2080 Ti under leftover: done after 550.0 µs

kernel  blocks  threads  per SM   limited by  launches  first start  last start       end     alone      here  slowdown  its SMs
a           67      512       2      threads         1            0           0  500.0 µs  500.0 µs  500.0 µs      1.00   with b
b            8       32      16  block slots         1            0           0  550.0 µs  300.0 µs  550.0 µs      1.83   with a

a: on 67 SMs: 0–66
b: on 8 SMs: 0, 2 … 12, 67
b: 33 threads per block instead of 32 would keep its blocks on SMs of their own: a launch would take 480.0 µs instead \
of 550.0 µs (tried, with blocks of the same time)
";

#[test]
fn three_formats_say_the_same() {
    let (_, ended) = example("place/colocated.toml", "rtx-2080-ti", &["--format", "json"]);
    let report = json(&ended);
    let kernels = report["kernels"].as_array().expect("kernels");
    assert_eq!((kernels.len(), &report["device"]), (2, &"rtx-2080-ti".into()));
    let blocks = report["blocks"].as_array().expect("blocks");
    assert_eq!(blocks.len(), 75);
    let of_b =
        blocks.iter().filter(|block| block["launch"] == 1).map(|block| block["multiprocessor"].as_u64());
    assert_eq!(of_b.collect::<Vec<_>>(), [67, 0, 2, 4, 6, 8, 10, 12].map(Some));
    let advice = &report["advice"][0];
    assert_eq!((&advice["kernel"], &advice["isolated_with_threads_per_block"]), (&"b".into(), &33.into()));
    let (_, ended) = example("place/colocated.toml", "rtx-2080-ti", &["--format", "csv"]);
    let lines: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3);
    let column = |name: &str| lines[0].iter().position(|head| *head == name).expect("a column");
    for (line, kernel) in lines[1..].iter().zip(kernels) {
        assert_eq!(line.len(), lines[0].len(), "{line:?}");
        assert_eq!(line[column("kernel")], kernel["name"]);
        for key in ["end_us", "mean_us", "slowdown"] {
            assert_eq!(line[column(key)].parse::<f64>().ok(), kernel[key].as_f64(), "{key}");
        }
        assert_eq!(line[column("isolated")], "false");
    }
}

#[test]
fn a_decision_is_explained() {
    let (_, ended) = example("place/colocated.toml", "rtx-2080-ti", &["--explain", "69"]);
    for line in [
        "block 69 of all is block 1 of b, placed on SM 0 at 0",
        "a block of b takes 32 threads, 1 warp, a block slot",
        "68 SMs have room for 15 of them, the most; it is the first in the device's order",
    ] {
        assert!(ended.stdout.lines().any(|found| found == line), "`{line}` is not in {}", ended.stdout);
    }
    let marked: Vec<&str> = ended.stdout.lines().filter(|line| line.contains('←')).collect();
    assert!(matches!(marked[..], [line] if line.starts_with("0–66 ←") && line.contains("block slots")));
    let (_, ended) = example("place/isolated.toml", "rtx-2080-ti", &["--explain", "69", "--format", "json"]);
    let rooms = json(&ended)["explained"]["rooms"].clone();
    let room = |number: u64| {
        let rows = rooms.as_array().expect("a row for each");
        assert_eq!(rows.len(), 68);
        rows.iter().find(|row| row["multiprocessor"] == number).map(|row| row["room"].as_u64())
    };
    assert_eq!((room(67), room(0)), (Some(Some(15)), Some(Some(8))));
    placed(ONE, &["--gpu", "v100", "--explain", "5"]).refused_with(&[
        "--explain",
        "no block 5",
        "4 were placed",
    ]);
}

/// Four blocks.
const ONE: &str = "[[kernel]]\nname = 'k'\nblocks = 4\nthreads_per_block = 64\ntime_us = 5.0\n";

#[test]
fn disciplines_are_put_side_by_side() {
    let words = ["--discipline", "time-slice,mps,priority"];
    let (_, ended) = example("place/training-and-inference.toml", "rtx-3090", &words);
    for word in ["time-slice", "mps", "priority"] {
        assert_eq!(ended.stdout.lines().filter(|line| line.starts_with(word)).count(), 2, "{}", ended.stdout);
    }
    let (_, ended) = example(
        "place/training-and-inference.toml",
        "rtx-3090",
        &[&words[..], &["--format", "csv"]].concat(),
    );
    let lines: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["discipline", "stream", "process", "rounds", "mean_turnaround_us", "end_us"]);
    let figure = |discipline: &str, stream: &str, column: usize| {
        let line = lines.iter().find(|line| line[..2] == [discipline, stream]).expect("a line");
        line[column].parse::<f64>().expect("a number")
    };
    let [slices, mps, priority] =
        ["time-slice", "mps", "priority"].map(|discipline| figure(discipline, "inference", 4));
    assert!(slices < mps && mps < priority, "turnaround: {slices} {mps} {priority}");
    let [slices, mps, priority] =
        ["time-slice", "mps", "priority"].map(|discipline| figure(discipline, "training", 5));
    assert!(mps < priority && priority < slices, "training: {slices} {mps} {priority}");
    let list = placed(ONE, &["--gpu", "v100", "--discipline", "mps,priority", "--format", "json"]);
    assert_eq!(json(&list).as_array().map(Vec::len), Some(2));
    let both = placed(ONE, &["--gpu", "v100", "--discipline", "mps,priority", "--plot", "p.svg"]);
    both.refused_with(&["--plot", "2 disciplines", "name one --discipline"]);
}

#[test]
fn the_picture_has_axes_and_a_legend() {
    let words = ["--plot", "p.svg"];
    let (scene, _) = example("place/colocated.toml", "rtx-2080-ti", &words);
    let svg = std::fs::read_to_string(scene.path("p.svg")).expect("a picture");
    assert!(svg.starts_with("<svg"), "{svg}");
    for text in [
        "75 blocks on GeForce RTX 2080 Ti, leftover",
        "multiprocessor (SM)",
        "time in microseconds",
        "b (8 × 32 threads)",
    ] {
        assert!(svg.contains(text), "no `{text}`");
    }
    // 67 rows of `a`, 7 of them beside `b`, which goes on when `a` is done, and the row of `b` alone.
    assert!(svg.matches("<rect").count() > 67 + 7 + 7, "{}", svg.matches("<rect").count());
}

#[test]
fn the_trace_opens_in_viewers() {
    let (scene, _) = example("place/colocated.toml", "rtx-2080-ti", &["--trace", "t.json"]);
    let text = std::fs::read_to_string(scene.path("t.json")).expect("a trace");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let of_kind = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    assert_eq!(of_kind("X").len(), 75);
    // No two slices of a row overlap.
    let mut rows: Vec<(u64, f64, f64)> = of_kind("X")
        .into_iter()
        .filter_map(|event| Some((event["tid"].as_u64()?, event["ts"].as_f64()?, event["dur"].as_f64()?)))
        .collect();
    assert_eq!(rows.len(), 75);
    rows.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    assert!(rows.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1 + two[0].2 <= two[1].1 + 1e-6));
    // 68 multiprocessors, 7 of which hold two blocks at a time.
    let named = of_kind("M").into_iter().filter(|event| event["name"] == "thread_name").count();
    assert_eq!(named, 68 + 7);
    let last = of_kind("C").pop().expect("a counter");
    assert_eq!((&last["args"]["blocks"], &last["name"]), (&0.into(), &"resident blocks of b".into()));
}

#[test]
fn measured_traces_are_scored() {
    let scene = Scene::new("");
    let compare = |file: &str, more: &[&str]| {
        let path = format!("{TRACES}{file}");
        let ended = scene.call(&[&["place", "--compare", path.as_str()], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let text = compare("V100.csv", &[]);
    assert!(text.contains("V100 as v100: 22 of 22 runs exact in every block"), "{text}");
    let text = compare("V100.csv", &["--gpu", "gtx-1080"]);
    assert!(text.contains("V100 as gtx-1080: 0 of 22 runs exact") && text.contains("not 1"), "{text}");
    let scores: Value = serde_json::from_str(&compare("RTX3090.csv", &["--format", "json"])).expect("JSON");
    assert_eq!(scores.as_array().map(Vec::len), Some(22));
    assert_eq!(scores[0]["launches"][0]["exact"], scores[0]["launches"][0]["blocks"]);
    let csv = compare("RTX3090.csv", &["--format", "csv"]);
    // Three launches of one run.
    assert_eq!(csv.lines().count(), 1 + 24);
    assert!(csv.lines().all(|line| line.split(',').count() == 12), "{csv}");
}

#[test]
fn a_trace_with_times_is_scored_and_judged() {
    let scene = Scene::new("");
    let rows = "v100,1,t,k,3,32,32,0,0 2 4,0 10 20,900 910 920\nv100,2,t,k,2,32,32,0,0 2,0 50,10 60\n";
    scene.write("t.csv", format!("{HEADER},start_ns,end_ns\n{rows}"));
    let ended = scene.call(&["place", "--compare", "t.csv"]);
    assert!(ended.stdout.contains("2 of 2 runs exact in every block"), "{ended:?}");
    assert!(ended.stdout.contains("no fair comparison") && ended.stdout.contains("run 2;"), "{ended:?}");
}

#[test]
fn malformed_traces_are_refused() {
    let scene = Scene::new("");
    let refused = |text: &str, words: &[&str]| {
        scene.write("t.csv", text);
        scene.call(&["place", "--compare", "t.csv"]).refused_with(words);
    };
    refused("", &["t.csv, line 1", "not a trace of blocks"]);
    refused(HEADER, &["t.csv", "no launch"]);
    refused(
        &format!("{HEADER}\nv100,1,t,k,3,32,32,0,0 2\n"),
        &["t.csv, line 2", "2 multiprocessors for a grid of 3"],
    );
    refused(&format!("{HEADER}\nv100,1,t,k,1,32,32,0,x\n"), &["t.csv, line 2", "`x`"]);
    refused(&format!("{HEADER}\nv100,1,t\n"), &["t.csv, line 2", "fields"]);
    refused(&format!("{HEADER}\nv10,1,t,k,1,32,32,0,0\n"), &["run 1", "\"v10\"", "did you mean `v100`?"]);
    refused(&format!("{HEADER}\nv100,1,t,k,1,4096,32,0,0\n"), &["4096 threads"]);
    refused(
        &format!("{HEADER},start_ns,end_ns\nv100,1,t,k,1,32,32,0,0,9,5\n"),
        &["t.csv, line 2", "end not before it"],
    );
    scene.call(&["place", "--compare", "none.csv"]).refused_with(&["none.csv", "cannot be read"]);
}

#[test]
fn what_fits_nowhere_says_why() {
    kernel("registers_per_thread = 255\nthreads_per_block = 1024").refused_with(&[
        "w.toml: kernel `k`",
        "fits no multiprocessor",
        "registers",
    ]);
    kernel("blocks = 0").refused_with(&["kernel `k`", "0 blocks"]);
    kernel("threads_per_block = 0").refused_with(&["kernel `k`", "no threads"]);
    kernel("threads_per_block = 1025").refused_with(&["kernel `k`", "1025 threads", "1024"]);
    kernel("shared_bytes = 98305").refused_with(&["98305 bytes of shared memory", "98304", "opt in"]);
    assert_eq!(kernel("shared_bytes = 98304").code, Some(0));
}

#[test]
fn what_cannot_be_read_is_refused() {
    placed(ONE, &["--gpu", "v10"]).refused_with(&["--gpu", "\"v10\"", "did you mean `v100`?"]);
    placed("[[kernel]]\nnam = 'k'\n", &["--gpu", "v100"])
        .refused_with(&["w.toml, line 2", "did you mean `name`?"]);
    placed(ONE, &["--gpu", "v100", "--discipline", "mp"]).refused_with(&[
        "--discipline",
        "\"mp\"",
        "did you mean `mps`?",
    ]);
    placed(ONE, &["--gpu", "v100", "--discipline", "mig"]).refused_with(&["v100", "cannot be cut"]);
    placed(ONE, &["--gpu", "v100", "--plot", "none/p.svg"]).refused_with(&["none/p.svg", "no folder"]);
    placed(ONE, &[]).refused_with(&["--gpu"]);
    let scene = Scene::new("");
    scene.call(&["place", "none.toml", "--gpu", "v100"]).refused_with(&["none.toml", "cannot be read"]);
    scene.call(&["place"]).refused_with(&["WORKLOAD.toml"]);
    scene.call(&["place", "--list", "--plot", "p.svg"]).refused_with(&["--list", "--plot"]);
}

#[test]
fn devices_are_listed_with_their_evidence_and_may_be_added() {
    let scene = Scene::new("");
    let list = scene.call(&["place", "--list"]);
    assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""));
    let line = |name: &str| list.stdout.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("v100").ends_with("observed") && line("h100").ends_with("assumed"), "{list:?}");
    let devices: Value = json(&scene.call(&["place", "--list", "--format", "json"]));
    let v100 =
        devices.as_array().and_then(|all| all.iter().find(|one| one["name"] == "v100")).expect("a V100");
    assert_eq!(v100["multiprocessors"], 80);
    let csv = scene.call(&["place", "--list", "--format", "csv"]).stdout;
    assert_eq!(csv.lines().count(), 1 + devices.as_array().map_or(0, Vec::len));
    // A device of the user's: two multiprocessors, otherwise a V100, under its name.
    let mut own = String::from("[[gpu]]\n");
    for (key, value) in v100.as_object().expect("a table") {
        let value = if key == "multiprocessors" { Value::from(2) } else { value.clone() };
        own.push_str(&format!("{key} = {value}\n"));
    }
    scene.write("own.toml", &own);
    scene.write("w.toml", ONE);
    let ended = scene.call(&["place", "w.toml", "--gpu", "V100", "--gpus", "own.toml"]);
    assert!(ended.stdout.contains("k: on 2 SMs: 0, 1"), "{ended:?}");
    scene.write("own.toml", own.replace("\nmultiprocessors = 2", "\nmultiprocessors = 0"));
    let ended = scene.call(&["place", "w.toml", "--gpu", "V100", "--gpus", "own.toml"]);
    ended.refused_with(&["own.toml", "`multiprocessors` is 0", "from 1 to"]);
}
