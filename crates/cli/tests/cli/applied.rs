//! A trained model is used: evaluated, and applied to rows by workers that come, go and are killed.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::disk::may_mount;
use crate::harness::{PROGRAM, Scene, signal, wait_for};
use crate::jobs;

/// The digits as a table, repeated: 64 pixels and a label in each row.
fn digits(times: usize) -> String {
    let packed = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/digits/digits.csv.gz"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("the digits are whole");
    text.repeat(times)
}

/// The same without labels.
fn unlabelled(digits: &str) -> String {
    digits.lines().map(|line| line.rsplit_once(',').expect("a label").0.to_owned() + "\n").collect()
}

/// A scene with a trained run of the digits, which ended with an evaluation.
fn trained() -> (Scene, Value) {
    let scene = jobs::momentum().steps(150).scene();
    let ended = scene.train(&["--workers", "2"]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    (scene, serde_json::from_str(&ended.stdout).expect("a summary"))
}

fn json(scene: &Scene, arguments: &[&str]) -> Value {
    let ended = scene.call(&[arguments, &["--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("one value on stdout")
}

/// Units that an inference has written down.
fn units(scene: &Scene, output: &str) -> usize {
    let progress =
        fs::read_to_string(scene.path(&format!("{output}.infer/progress.jsonl"))).unwrap_or_default();
    progress.lines().filter(|line| line.contains("\"unit\"")).count()
}

/// Processes that are workers of an inference, by their command lines.
fn workers(folder: &Path) -> Vec<u32> {
    let token = folder.join("token").display().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().into_string().ok()?.parse::<u32>().ok());
    let is_worker = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--infer") && line.contains(&token)
    };
    numbers.filter(is_worker).collect()
}

#[test]
fn an_evaluation_has_the_bits_of_the_runs_own_for_any_workers() {
    let (scene, summary) = trained();
    let one = json(&scene, &["evaluate", "job"]);
    assert_eq!(one["loss"], summary["held_out_loss"]);
    assert_eq!(one["accuracy"], summary["accuracy"]);
    assert_eq!(json(&scene, &["evaluate", "job-1", "--workers", "3"]), one);
    let ends: Vec<f64> =
        one["accuracy_interval"].as_array().expect("two").iter().filter_map(Value::as_f64).collect();
    let accuracy = one["accuracy"].as_f64().expect("a share");
    assert!(ends[0] < accuracy && accuracy < ends[1] && ends[1] - ends[0] < 0.1, "{one}");
    // The matrix has every sample once, and what is right on its diagonal.
    let rows: Vec<Vec<u64>> = serde_json::from_value(one["confusion"].clone()).expect("a matrix");
    assert_eq!(rows.iter().flatten().sum::<u64>(), one["samples"].as_u64().expect("a number"));
    let right: u64 = rows.iter().enumerate().map(|(class, row)| row[class]).sum();
    assert_eq!(Some(right), one["correct"].as_u64());
    let table = scene.call(&["evaluate", "job"]);
    assert!(
        table.stdout.contains("accuracy") && table.stdout.contains("is \\ predicted"),
        "{}",
        table.stdout
    );
    // A checkpoint in its run's folder is as good as its name.
    let mut checkpoint =
        json(&scene, &["evaluate", "state/bellwether/job-1/checkpoints/step-000000000150.safetensors"]);
    checkpoint["model"] = one["model"].clone();
    assert_eq!(checkpoint, one);
}

#[test]
fn predictions_are_the_same_bytes_for_any_workers_and_kills() {
    let (scene, _) = trained();
    let table = digits(60);
    scene.write("rows.csv", &table);
    let infer = |output: &str, more: &[&str]| {
        let words = ["infer", "job", "--data", "rows.csv", "-o", output, "--scores"];
        scene.start(&[&words[..], more].concat())
    };
    let whole = infer("one.csv", &["--format", "json"]).end();
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let one = fs::read_to_string(scene.path("one.csv")).expect("it is written");
    let rows = table.lines().count();
    assert_eq!(one.lines().count(), rows + 1);
    assert!(one.lines().skip(1).enumerate().all(|(row, line)| line.starts_with(&format!("{row},"))));
    let told: Value = serde_json::from_str(&whole.stdout).expect("one value");
    assert_eq!((told["rows"].as_u64(), told["workers"].as_u64()), (Some(rows as u64), Some(1)));
    // Slow enough that there is something to kill; a third worker comes later.
    let slow = ["--workers", "2", "--speed", "0.015"];
    let first = infer("more.csv", &slow);
    let folder = scene.path("more.csv.infer");
    let reach = |count: usize| {
        wait_for(
            || format!("{count} units: {}", first.stderr()),
            || (units(&scene, "more.csv") >= count).then_some(()),
        );
    };
    reach(2);
    let scaled = scene.call(&["scale", "more.csv.infer", "--workers", "3"]);
    assert_eq!(scaled.code, Some(0), "{scaled:?}");
    wait_for(|| "three workers".into(), || (workers(&folder).len() == 3).then_some(()));
    signal(workers(&folder)[0], Signal::KILL);
    reach(6);
    // Nothing stands at the output's place while it is not whole.
    assert!(!scene.path("more.csv").exists());
    // Another one may not write it at the same time.
    infer("more.csv", &[]).end().refused_with(&["another inference", "bellwether scale"]);
    first.kill();
    let before = units(&scene, "more.csv");
    assert!(before * 1024 < rows, "it was killed too late: {before} units");
    wait_for(|| "the end of its workers".into(), || workers(&folder).is_empty().then_some(()));
    // Half of a line, as a power cut leaves it, is not believed.
    let mut progress =
        fs::File::options().append(true).open(folder.join("progress.jsonl")).expect("it is there");
    progress.write_all(b"{\"unit\":{\"rows\":99").expect("it can be written");
    let mut part = fs::File::options().append(true).open(folder.join("part")).expect("it is there");
    part.write_all(b"4711,").expect("it can be written");
    let again = infer("more.csv", &["--workers", "3", "--format", "json"]).end();
    assert_eq!(again.code, Some(0), "{again:?}");
    again.says(&[&format!("{} rows were predicted before", before * 1024)]);
    assert_eq!(fs::read_to_string(scene.path("more.csv")).expect("it is written"), one);
    assert!(!folder.exists());
}

#[test]
fn predictions_agree_with_an_evaluation_of_the_same_rows() {
    let (scene, _) = trained();
    let table = digits(1);
    scene.write("labelled.csv", &table);
    scene.write("rows.csv", unlabelled(&table));
    for data in ["labelled.csv", "rows.csv"] {
        let ended = scene.call(&["infer", "job", "--data", data, "-o", &format!("{data}.out"), "--scores"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let read = |name: &str| fs::read_to_string(scene.path(name)).expect("it is written");
    let predicted = read("rows.csv.out");
    assert_eq!(predicted, read("labelled.csv.out"), "labels are not looked at");
    let fields: Vec<Vec<&str>> = predicted.lines().skip(1).map(|line| line.split(',').collect()).collect();
    for row in &fields {
        let shares: Vec<f64> = row[2..].iter().map(|share| share.parse().expect("a number")).collect();
        let best = (0..10).max_by(|a, b| shares[*a].total_cmp(&shares[*b])).expect("ten classes");
        assert_eq!((shares.len(), best.to_string().as_str()), (10, row[1]));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
    }
    let labels = table.lines().filter_map(|line| line.rsplit(',').next());
    let right = labels.zip(&fields).filter(|(label, row)| *label == row[1]).count();
    let evaluated = json(&scene, &["evaluate", "job", "--data", "labelled.csv"]);
    assert_eq!(evaluated["correct"].as_u64(), Some(right as u64));
    assert_eq!(evaluated["samples"].as_u64(), Some(1797));
}

#[test]
fn rows_that_keep_coming_are_answered_as_they_come() {
    let (scene, _) = trained();
    let rows = unlabelled(&digits(1));
    let lines: Vec<&str> = rows.lines().take(600).collect();
    scene.write("rows.csv", lines.join("\n"));
    let whole = scene.call(&["infer", "job", "--data", "rows.csv", "-o", "whole.csv", "--scores"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let words = ["infer", "job", "--data", "-", "-o", "stream.csv", "--scores", "--follow", "--workers", "2"];
    let mut child =
        scene.command(&words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let answered = || fs::read_to_string(scene.path("stream.csv")).unwrap_or_default().lines().count();
    for (part, until) in [(0..1, 2), (1..300, 301), (300..600, 601)] {
        writeln!(input, "{}", lines[part].join("\n")).expect("it reads");
        wait_for(|| format!("{until} lines, {}", answered()), || (answered() >= until).then_some(()));
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
    let read = |name: &str| fs::read_to_string(scene.path(name)).expect("it is written");
    assert_eq!(read("stream.csv"), read("whole.csv"), "the cut into batches changes no bit");
}

#[test]
fn a_text_has_a_perplexity_and_a_next_byte() {
    let scene = jobs::transformer().scene();
    assert_eq!(scene.train(&["--workers", "1"]).end().code, Some(0));
    let found = json(&scene, &["evaluate", "job"]);
    let [loss, perplexity] = ["loss", "perplexity"].map(|key| found[key].as_f64().expect("a number"));
    assert!((loss.exp() - perplexity).abs() < 1e-9 && loss < 5.5, "{found}");
    assert_eq!(found["predictions"].as_u64(), found["samples"].as_u64().map(|windows| windows * 8));
    assert_eq!(found["confusion"], serde_json::json!([]));
    let other = json(&scene, &["evaluate", "job", "--data", "text.txt"]);
    assert!(other["samples"].as_u64() > found["samples"].as_u64(), "{other}");
    let ended = scene.call(&["infer", "job", "--data", "text.txt", "-o", "-"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let windows = fs::metadata(scene.path("text.txt")).expect("it is there").len() / 8;
    assert_eq!(ended.stdout.lines().count() as u64, windows + 1, "a line per window");
}

#[test]
fn what_cannot_be_predicted_is_named() {
    let (scene, _) = trained();
    let rows = unlabelled(&digits(1));
    let infer = |content: &str| {
        scene.write("rows.csv", content);
        scene.call(&["infer", "job", "--data", "rows.csv", "-o", "out.csv"])
    };
    let line = |number: usize| rows.lines().nth(number - 1).expect("there are 1797");
    let short = rows.replacen(line(1200), "1,2,3", 1);
    infer(&short).refused_with(&[
        "rows.csv:1200:3",
        "has 3 columns, and the rows before it have 64",
        "hint:",
    ]);
    // The unit before it is written, and the mended file goes on after it.
    let again = infer(&rows);
    assert_eq!(again.code, Some(0), "{again:?}");
    again.says(&["1024 rows were predicted before"]);
    let word = rows.replacen(line(3), &line(3).replacen(|c: char| c.is_ascii_digit(), "x", 1), 1);
    infer(&word).refused_with(&["rows.csv:3:1", "is not a number"]);
    infer("1,2,3\n")
        .refused_with(&["rows.csv:1", "has 3 columns; the model takes 64 values, or 64 and a label"]);
    infer("").refused_with(&["rows.csv", "holds no row"]);
    assert!(!scene.path("out.csv.infer").exists(), "nothing is left of what did not begin");
    scene
        .call(&["infer", "job", "--data", "none.csv", "-o", "out.csv"])
        .refused_with(&["none.csv", "cannot be read"]);
    scene
        .call(&["infer", "job-2", "--data", "rows.csv", "-o", "out.csv"])
        .refused_with(&["did you mean `job-1`?"]);
    scene.write("other.csv", digits(1).replacen(",4\n", ",10\n", 1));
    let unknown = scene.call(&["evaluate", "job", "--data", "other.csv"]);
    unknown.refused_with(&["other.csv", "row 5 has the class 10, and the model knows 10 (0 to 9)"]);
    scene.write("few.csv", "1,2,0\n");
    scene.call(&["evaluate", "job", "--data", "few.csv"]).refused_with(&["2 values", "the model takes 64"]);
    // A checkpoint that another job wrote.
    let checkpoint = "state/bellwether/job-1/checkpoints/step-000000000150.safetensors";
    fs::copy(scene.path(checkpoint), scene.path("step-000000000150.safetensors")).expect("it can be copied");
    scene
        .call(&["evaluate", "step-000000000150.safetensors"])
        .refused_with(&["lies in no run's folder", "--job JOB.toml"]);
    scene.write("wide.toml", jobs::momentum().steps(150).text().replace("[48]", "[47]"));
    let other = scene.call(&["evaluate", "step-000000000150.safetensors", "--job", "wide.toml"]);
    other.refused_with(&["belongs to another job", "--job"]);
    assert_eq!(scene.call(&["evaluate", "step-000000000150.safetensors", "--job", "job.toml"]).code, Some(0));
    let synthetic = Scene::new(&jobs::slow(1).replace("steps = 100", "steps = 2"));
    assert_eq!(synthetic.train(&["--workers", "1"]).end().code, Some(0));
    synthetic.write("rows.csv", "1,2\n");
    let refused = synthetic.call(&["infer", "job", "--data", "rows.csv", "-o", "out.csv"]);
    refused.refused_with(&["model.kind", "only networks and scripts predict"]);
}

#[test]
fn a_full_disk_is_named_and_the_same_command_goes_on() {
    if !may_mount() {
        return;
    }
    let (scene, _) = trained();
    scene.write("rows.csv", digits(20));
    let infer = "infer job --data rows.csv --scores --format json -o";
    let whole = scene.call(&[&infer.split(' ').collect::<Vec<_>>()[..], &["whole.csv"]].concat());
    assert_eq!(whole.code, Some(0), "{whole:?}");
    fs::create_dir(scene.path("disk")).expect("it can be made");
    // The disk grows between two calls, in a name space of their own.
    let script = format!(
        "mount -t tmpfs -o size=1m none disk && {{ {PROGRAM} {infer} disk/out.csv; echo code $?; \
         mount -o remount,size=64m disk; {PROGRAM} {infer} disk/out.csv && cmp disk/out.csv whole.csv && echo equal; }}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).current_dir(scene.path("."));
    command.env("XDG_STATE_HOME", scene.path("state")).stdin(Stdio::null());
    let ended = scene.start_command(command).end();
    assert!(ended.stdout.contains("code 2") && ended.stdout.contains("equal"), "{ended:?}");
    ended.says(&["disk/out.csv", "cannot be written after", "make room", "rows were predicted before"]);
}
