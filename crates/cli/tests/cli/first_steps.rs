//! What a newcomer types first: a job file, a look at the machine, curves, completions; and what is mistyped at first.

use std::fs;

use bellwether_testkit::Random;
use serde_json::{Value, json};

use crate::harness::{Ended, Scene};
use crate::jobs;
use crate::predict::profile;

/// Flowers of two kinds, told apart by their second column.
fn flowers(separator: char) -> String {
    let mut random = Random::new(3);
    let mut text = "sepal,petal,species\n".to_owned();
    for row in 0..120 {
        let (petal, kind) = if row % 2 == 0 { (1.0, "setosa") } else { (4.0, "virginica") };
        let noise = random.unit();
        text += &format!("{:.2},{:.2},{kind}\n", 50.0 + noise, petal + noise);
    }
    text.replace(',', &separator.to_string())
}

fn json_of(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn a_job_is_written_for_a_table_and_trains() {
    let scene = Scene::new("");
    for (file, separator) in [("flowers.csv", ','), ("german.csv", ';')] {
        scene.write(file, flowers(separator));
        let written = scene.call(&["init", "--data", file, "mine.toml", "--force"]);
        assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{written:?}");
        written.says(&["`bellwether run mine.toml`"]);
        let text = fs::read_to_string(scene.path("mine.toml")).expect("it is written");
        for line in ["header = true", "label = \"species\"", "classes = [\"setosa\", \"virginica\"]"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let summary = json_of(&scene.call(&["run", "mine.toml", "--workers", "1", "--format", "json"]));
        assert!(summary["accuracy"].as_f64() > Some(0.95), "{summary}");
        let folder = summary["run_dir"].as_str().expect("a folder");
        let job = fs::read_to_string(format!("{folder}/job.json")).expect("the run's job");
        let job: Value = serde_json::from_str(&job).expect("JSON");
        assert_eq!(job["data"]["classes"], json!(["setosa", "virginica"]), "the names are kept");
    }
}

#[test]
fn a_job_file_is_never_lost() {
    let scene = Scene::new("precious");
    scene.call(&["init"]).refused_with(&["job.toml", "is there already", "--force"]);
    assert_eq!(fs::read_to_string(scene.path("job.toml")).expect("it is there"), "precious");
    let shown = scene.call(&["init", "-", "--name", "mine"]);
    assert!(shown.stdout.contains("name = \"mine\"") && shown.code == Some(0), "{shown:?}");
    scene.write("prices.csv", "rooms,price\n3,100.5\n4,120.25\n");
    scene
        .call(&["init", "--data", "prices.csv", "-"])
        .says(&["column `price` holds no classes", "regression"]);
}

#[test]
fn a_machine_is_looked_at() {
    let scene = Scene::new("");
    let seen = scene.call(&["doctor", "--format", "json"]);
    let seen: Value = serde_json::from_str(&seen.stdout).unwrap_or_else(|error| panic!("{error}: {seen:?}"));
    let found = |what: &str| {
        let findings = seen["findings"].as_array().expect("findings");
        let finding = findings.iter().find(|finding| finding["what"] == what);
        finding.unwrap_or_else(|| panic!("no {what} in {seen}")).clone()
    };
    assert_eq!(
        (&found("loopback")["state"], &found("state directory")["state"]),
        (&json!("good"), &json!("good"))
    );
    assert!(!scene.path("state/bellwether").exists(), "it only looks");
    scene.write("file", "");
    let bad = scene.call(&["doctor", "--state-dir", "file/runs"]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    bad.says(&["would stop a run"]);
    assert!(
        bad.stdout.contains("file is not a folder") && bad.stdout.contains("BELLWETHER_STATE_DIR"),
        "{bad:?}"
    );
}

#[test]
fn the_program_says_what_it_is() {
    let scene = Scene::new("");
    let version = json_of(&scene.call(&["version", "--format", "json"]));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["kernels"].as_str().is_some_and(|kernels| kernels.starts_with("burn-flex")), "{version}");
    let set = version["instruction_set"].as_str().expect("a word");
    assert!(scene.call(&["--version"]).stdout.contains(&format!("instruction set: {set}")));
    assert_eq!(scene.call(&["-V"]).stdout, format!("bellwether {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn shells_and_manuals_know_the_verbs() {
    let scene = Scene::new("");
    for shell in ["bash", "zsh", "fish"] {
        let script = scene.call(&["completions", shell]);
        assert_eq!(script.code, Some(0), "{script:?}");
        for word in ["simulate", "max-workers"] {
            assert!(script.stdout.contains(word), "{shell} does not know {word}");
        }
    }
    assert_eq!(scene.call(&["man", "manual"]).code, Some(0));
    for (page, word) in [("bellwether.1", "doctor"), ("bellwether-run.1", "worker")] {
        let text = fs::read_to_string(scene.path("manual").join(page)).expect("the page is there");
        assert!(text.contains(word), "{word} is not in {page}");
    }
}

#[test]
fn curves_leave_the_house() {
    let scene = jobs::momentum().steps(60).scene();
    let more = ["--workers", "1", "--set", "evaluation.every_steps=20"];
    assert_eq!(scene.train(&more).summary().outcome.word(), "finished");
    let rows = scene.call(&["export", "job"]).stdout;
    let (head, rows) = rows.split_once('\n').expect("rows");
    assert_eq!(head, "step,time_s,training_loss,examples_per_s,workers,held_out_loss,accuracy,data_wait_s");
    let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split(',').collect()).collect();
    let training = rows.iter().filter(|row| !row[2].is_empty()).count();
    let held_out: Vec<&str> = rows.iter().filter(|row| !row[6].is_empty()).map(|row| row[0]).collect();
    assert_eq!((training, held_out), (60, vec!["20", "40", "60"]));

    let written = scene.call(&["export", "job", "--format", "tensorboard", "-o", "board"]);
    written.says(&["tensorboard --logdir board"]);
    let files: Vec<_> =
        fs::read_dir(scene.path("board/job-1")).expect("a folder of the run").flatten().collect();
    let bytes = fs::read(files[0].path()).expect("an event file");
    let holds = |word: &str| bytes.windows(word.len()).any(|window| window == word.as_bytes());
    assert!(holds("brain.Event:2") && holds("loss/training") && holds("accuracy/held_out"));

    assert_eq!(scene.call(&["export", "job", "--format", "svg", "-o", "curves.svg"]).code, Some(0));
    let picture = fs::read_to_string(scene.path("curves.svg")).expect("a picture");
    assert!(picture.contains("<svg") && picture.contains("held-out accuracy"), "{picture}");
    scene.call(&["export", "job", "--format", "tensorboard"]).refused_with(&["a folder", "-o DIR"]);

    let written = scene.call(&["export", "job", "-o", "model.safetensors"]);
    written.says(&["model.safetensors has the weights after 60 steps"]);
    let bytes = fs::read(scene.path("model.safetensors")).expect("the weights");
    let header = String::from_utf8_lossy(&bytes[8..200]);
    assert!(header.contains(r#"{"dtype":"F32""#) && !header.contains("parameters/"), "{header}");
    scene
        .call(&["export", "job", "--format", "safetensors"])
        .refused_with(&["a file", "-o model.safetensors"]);
}

#[test]
fn a_run_is_as_loud_as_it_is_asked_to_be() {
    let scene = jobs::momentum().steps(10).scene();
    let run = |how: &str| scene.call(&["run", "job.toml", "--workers", "1", how]);
    let quiet = run("-q");
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""), "{quiet:?}");
    assert!(quiet.stdout.contains("parameters"), "{quiet:?}");
    run("--verbose").says(&["\"event\":\"membership\"", "\"event\":\"task_known\"", "held-out loss"]);
    scene.call(&["run", "job.toml", "-q", "-v"]).refused_with(&["--quiet", "--verbose"]);
}

#[test]
fn the_environment_names_the_folder_of_runs() {
    let scene = jobs::momentum().steps(3).scene();
    let mut command = scene.command(&["run", "job.toml", "--workers", "1"]);
    command.env("BELLWETHER_STATE_DIR", scene.path("elsewhere"));
    assert_eq!(scene.start_command(command).end().code, Some(0));
    assert!(scene.path("elsewhere/job-1/journal.jsonl").exists() && !scene.path("state").exists());
    scene.write("file", "");
    scene.call(&["run", "job.toml", "--state-dir", "file"]).refused_with(&["file: is not a folder"]);
}

#[test]
fn colours_are_for_those_who_want_them() {
    let scene = Scene::new("");
    scene.write("p.json", profile().to_string());
    let ask = |when: &str| scene.call(&["predict", "p.json", "--workers", "1..8", "--color", when]).stdout;
    let (painted, plain) = (ask("always"), ask("auto"));
    assert!(painted.contains("\x1b[1m") && !plain.contains('\x1b'), "{painted}");
    assert_eq!(painted.replace("\x1b[1m", "").replace("\x1b[0m", ""), plain);
    scene.call(&["--color", "always", "run", "none.toml"]).says(&["\x1b[1;31merror:\x1b[0m none.toml"]);
}

#[test]
fn mistyped_words_are_answered_with_the_right_ones() {
    let scene = jobs::momentum().scene();
    scene.write("p.json", profile().to_string());
    for (command, words) in [
        ("predict p.json --plot x.png", &["invalid picture \"x.png\"", "plot.svg"][..]),
        ("predict p.json --bandwidth 1Gb", &["invalid bandwidth \"1Gb\"", "1Gbit/s or 1GB/s"]),
        ("predict p.json --latency 5sec", &["invalid quantity \"5sec\"", "instead of sec", "ms"]),
        ("plan p.json --catalog c.toml --budget 0", &["`$20`", "20usd"]),
        ("plan p.json --catalog c.toml --budget 20eur", &["invalid amount \"20eur\"", "dollars"]),
        ("worker --join 127.0.0.1 --token-file t", &["invalid address \"127.0.0.1\"", "HOST:PORT"]),
        ("server --join :7000 --token-file t", &["invalid address \":7000\"", "HOST:PORT"]),
        ("submit job.toml --deadline 2020-01-01T00:00:00Z", &["--deadline", " years in the past"]),
        ("submit job.toml --workers 1..2 --min 1", &["--workers", "--min"]),
        ("policies srft", &["did you mean `srtf`?"]),
    ] {
        scene.call(&command.split(' ').collect::<Vec<_>>()).refused_with(words);
    }
    scene.write("trace.csv", "when,what\n1,2\n");
    scene
        .call(&["simulate", "--cluster", "1x4", "--trace", "trace.csv", "--policy", "fifo"])
        .refused_with(&["is the header of no known trace", "a trace of format `csv` begins with"]);
}

#[test]
fn amounts_need_no_dollar_sign() {
    let scene = Scene::new("");
    scene.write("p.json", profile().to_string());
    scene.write("prices.toml", crate::plan::PRICES);
    let ask = |budget: &str| {
        scene.call(&["plan", "p.json", "--catalog", "prices.toml", "--steps", "1000", "--budget", budget])
    };
    let (with, without, word) = (ask("$20"), ask("20"), ask("20usd"));
    assert_eq!(with.code, Some(0), "{with:?}");
    assert_eq!((&with.stdout, &with.stdout), (&without.stdout, &word.stdout));
}

#[test]
fn every_policy_can_be_asked_for_at_once() {
    let scene = Scene::new("");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/itp-traces/cluster01.csv");
    let simulate = ["simulate", "--cluster", "16x8", "--trace", data, "--policy"];
    let table = scene.call(&[&simulate[..], &["fifo,srtf,las2d"]].concat()).stdout;
    // Whatever the magnitudes, the times of a column have one unit.
    let jct = |line: &str| line.split_whitespace().nth(2).map(|unit| unit.trim_end_matches('*').to_owned());
    let units: Vec<_> = table.lines().skip(1).take(3).map(jct).collect();
    assert!(units.iter().all(|unit| *unit == units[0]), "{table}");
    let known = json_of(&scene.call(&["policies", "srtf", "fifo", "--format", "json"]));
    assert_eq!(known.as_array().map(Vec::len), Some(2), "{known}");
    let schema = json_of(&scene.call(&["schema", "generator"]));
    assert!(schema["properties"]["arrivals"].is_object(), "{schema}");
    for kind in ["workload", "gpus"] {
        assert!(json_of(&scene.call(&["schema", kind]))["properties"].is_object(), "{kind}");
    }
}
