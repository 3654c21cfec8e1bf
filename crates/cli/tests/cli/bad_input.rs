//! What a user may get wrong: each message says what is wrong, where, and what to do.

use std::net::TcpListener;

use crate::harness::{Ended, Scene};
use crate::jobs;

/// Runs the digits job with one text replaced by another.
fn edited(from: &str, to: &str) -> Ended {
    let text = jobs::momentum().text();
    assert!(text.contains(from), "{text}");
    Scene::new(&text.replace(from, to)).call(&["run", "job.toml"])
}

#[test]
fn an_unknown_key_names_the_nearest() {
    edited("hidden", "hiden").refused_with(&[
        "job.toml, line 9",
        "unknown field `hiden`",
        "did you mean `hidden`?",
    ]);
    edited("seed = 7", "sed = 7").refused_with(&["job.toml, line 2", "`sed`", "did you mean `seed`?"]);
}

#[test]
fn an_unknown_word_names_the_nearest() {
    edited("\"mlp\"", "\"mlpp\"").refused_with(&[
        "job.toml, line 8",
        "`mlpp`",
        "did you mean `mlp`?",
        "transformer",
    ]);
    edited("\"sgd\"", "\"sdg\"").refused_with(&["job.toml, line 13", "`sdg`", "did you mean `sgd`?"]);
}

#[test]
fn a_wrong_type_is_told_with_its_line() {
    edited("steps = 300", "steps = \"many\"").refused_with(&[
        "job.toml, line 3",
        "invalid type",
        "many",
        "u64",
    ]);
    edited("steps = 300", "steps = -3").refused_with(&["job.toml, line 3", "-3"]);
}

#[test]
fn a_syntax_error_is_told_with_its_line() {
    edited("steps = 300", "steps = = 300").refused_with(&["job.toml, line 3"]);
    edited("[batch]", "[batch").refused_with(&["job.toml, line 4"]);
}

#[test]
fn more_workers_than_virtual_nodes_are_refused() {
    let words = ["9 workers cannot share 8 virtual nodes", "at most 8"];
    edited("seed = 7", "workers = 9").refused_with(&[&["job.toml: workers"][..], &words].concat());
    let scene = jobs::momentum().scene();
    for (flag, value) in [("--workers", "9"), ("--workers", "1..9"), ("--resize", "10:9")] {
        let ended = scene.call(&["run", "job.toml", flag, value]);
        ended.refused_with(&[&[flag][..], &words].concat());
    }
    assert!(!scene.path("state").exists(), "a refused job leaves no run");
}

#[test]
fn words_on_the_command_line_are_checked() {
    let scene = jobs::momentum().scene();
    for (flag, value, words) in [
        ("--resize", "ten:4", ["ten:4", "STEP:N"]),
        ("--resize", "0:4", ["0:4", "at least 1"]),
        ("--resize", "20:4,10:2", ["--resize", "do not rise"]),
        ("--workers", "0", ["\"0\"", "at least 1"]),
        ("--workers", "4..2", ["\"4..2\"", "no fewer at its end"]),
        ("--workers", "many", ["many", "1..4"]),
        ("--set", "seed", ["seed", "KEY=VALUE"]),
        (
            "--set",
            "optimizer.learning_rat=0.1",
            ["--set optimizer.learning_rat", "did you mean `learning_rate`?"],
        ),
        ("--set", "sead=1", ["--set sead", "did you mean `seed`?"]),
        ("--set", "model.kind=mlpp", ["--set model.kind", "did you mean `mlp`?"]),
        ("--set", "steps.x=1", ["--set steps.x", "`steps` is a value"]),
        ("--set", "optimizer.learning_rate=fast", ["--set optimizer.learning_rate", "fast"]),
        ("--set", "optimizer.momentum=1.5", ["optimizer.momentum", "1.5"]),
        ("--steps", "0", ["steps", "at least 1"]),
        ("--heartbeat-timeout", "5", ["\"5\"", "unit"]),
    ] {
        scene.call(&["run", "job.toml", flag, value]).refused_with(&words);
    }
    assert!(!scene.path("state").exists(), "a refused job leaves no run");
}

#[test]
fn values_of_set_are_read_as_in_the_file() {
    let scene = jobs::momentum().scene();
    for (setting, key, value) in [
        ("optimizer.learning_rate=1e-3", "/optimizer/learning_rate", "0.001"),
        ("optimizer.nesterov=true", "/optimizer/nesterov", "true"),
        ("model.hidden=[8, 4]", "/model/hidden", "[8,4]"),
        ("model.hidden=[]", "/model/hidden", "[]"),
        ("name=job", "/name", "\"job\""),
        ("name=\"job\"", "/name", "\"job\""),
        ("schedule.kind=cosine", "/schedule/kind", "\"cosine\""),
        ("workers=1..3", "/workers", "\"1..3\""),
    ] {
        let ended = scene.call(&["run", "job.toml", "--steps", "1", "--format", "json", "--set", setting]);
        assert_eq!(ended.code, Some(0), "{setting}: {ended:?}");
        let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
        let run = summary["run_dir"].as_str().expect("a folder").to_string();
        let job = std::fs::read_to_string(std::path::Path::new(&run).join("job.json")).expect("the job");
        let job: serde_json::Value = serde_json::from_str(&job).expect("JSON");
        assert_eq!(job.pointer(key).expect("it is set").to_string(), value, "{setting}");
    }
}

#[test]
fn a_batch_must_divide_into_virtual_nodes() {
    let words = ["job.toml: batch.size", "30 samples do not divide into 8", "24 or 32"];
    edited("size = 32", "size = 30").refused_with(&words);
}

/// A job on images in files that the test makes.
fn images() -> Scene {
    let text = jobs::momentum().text();
    let data = "kind = \"idx\"\nimages = \"images\"\nlabels = \"labels\"";
    let scene = Scene::new(&text.replace("kind = \"digits\"", data));
    let mut header = vec![0, 0, 8, 3, 0, 0, 0, 100, 0, 0, 0, 2, 0, 0, 0, 2];
    header.resize(16 + 400, 7);
    scene.write("images", header);
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, 100];
    labels.extend((0..100).map(|i| i % 3));
    scene.write("labels", labels);
    scene
}

#[test]
fn images_that_are_whole_are_accepted() {
    let ended = images().call(&["run", "job.toml", "--steps", "2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_missing_file_is_named() {
    let scene = images();
    std::fs::remove_file(scene.path("labels")).expect("it is there");
    let path = scene.path("labels").display().to_string();
    scene.call(&["run", "job.toml"]).refused_with(&[&path, "No such file", "hint"]);
    scene.call(&["run", "other.toml"]).refused_with(&["other.toml", "No such file"]);
    assert!(!scene.path("state").exists(), "a refused job leaves no run");
}

#[test]
fn damaged_images_are_refused() {
    let scene = images();
    let path = scene.path("images").display().to_string();
    let whole = std::fs::read(&path).expect("it is there");
    scene.write("images", &whole[..300]);
    scene.call(&["run", "job.toml"]).refused_with(&[&path, "claims 400 bytes", "holds 284"]);
    scene.write("images", [&[0, 0, 9, 3], &whole[4..]].concat());
    scene.call(&["run", "job.toml"]).refused_with(&[&path, "it does not start with 00 00 08 03"]);
    scene.write("images", []);
    scene.call(&["run", "job.toml"]).refused_with(&[&path]);
}

#[test]
fn a_bad_cell_is_told_with_its_line() {
    let data = "kind = \"csv\"\npath = \"table.csv\"\nheader = true";
    let scene = Scene::new(&jobs::momentum().text().replace("kind = \"digits\"", data));
    let mut table = "a,b,label\n".to_string();
    (0..100).for_each(|i| table.push_str(&format!("0.5,{i},{}\n", i % 2)));
    scene.write("table.csv", &table);
    assert_eq!(scene.call(&["run", "job.toml", "--steps", "1"]).code, Some(0));
    scene.write("table.csv", table.replace("0.5,3,", "0.5,three,"));
    scene.call(&["run", "job.toml"]).refused_with(&["table.csv", "table.csv:5:2", "is not a number"]);
    scene.write("table.csv", table.replace("0.5,3,1", "0.5,3,1,1"));
    scene.call(&["run", "job.toml"]).refused_with(&["table.csv:5"]);
}

#[test]
fn a_port_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let ended = jobs::momentum().scene().call(&["run", "job.toml", "--listen", &address]);
    ended.refused_with(&[&address, "in use", "--listen"]);
}

#[test]
fn an_unknown_run_is_told() {
    let scene = jobs::momentum().scene();
    assert_eq!(scene.call(&["run", "job.toml", "--steps", "1"]).code, Some(0));
    for verb in ["watch", "stop", "audit"] {
        scene.call(&[verb, "jop-1"]).refused_with(&["jop-1", "no such job", "did you mean `job-1`?"]);
    }
    scene.call(&["run", "--resume", "nothing"]).refused_with(&["nothing", "no such job", "bellwether jobs"]);
    scene.call(&["scale", "job", "--workers", "2"]).refused_with(&["job-1", "finished"]);
    scene.call(&["stop", "job"]).refused_with(&["job-1", "finished"]);
    let last = scene.call(&["watch", "job"]);
    assert!(
        last.code == Some(0) && last.stdout.contains("step 1/1") && last.stdout.contains("finished"),
        "{last:?}"
    );
}

#[test]
fn a_finished_run_is_not_trained_again() {
    let scene = jobs::momentum().scene();
    assert_eq!(scene.call(&["run", "job.toml", "--steps", "5"]).code, Some(0));
    let before = scene.events().len();
    scene.resume(&[]).end().refused_with(&["job-1", "finished", "5 steps"]);
    assert_eq!(scene.events().len(), before);
}

#[test]
fn an_impossible_scale_is_refused() {
    let scene = Scene::new(&jobs::slow(5));
    let mut run = scene.train(&["--workers", "1"]);
    assert!(run.reach(1));
    let words = ["job-1", "9 workers cannot share 4 virtual nodes", "1…4"];
    scene.call(&["scale", "job", "--workers", "9"]).refused_with(&words);
    scene.call(&["scale", "job", "--workers", "0"]).refused_with(&["0"]);
}

#[test]
fn a_bad_token_file_is_told() {
    let scene = jobs::momentum().scene();
    let join = |file: &str| scene.call(&["worker", "--join", "127.0.0.1:9", "--token-file", file]);
    join("absent").refused_with(&["absent", "No such file", "token"]);
    scene.write("short", "0123");
    join("short").refused_with(&["short", "is not a token", "64 hexadecimal digits"]);
    scene.write("binary", [0xff, 0xfe]);
    join("binary").refused_with(&["binary", "token"]);
}

#[test]
fn a_missing_run_to_join_is_told() {
    let scene = jobs::momentum().scene();
    scene.write("token", "00".repeat(32));
    let ended = scene.call(&["worker", "--join", "127.0.0.1:9", "--token-file", "token"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&["127.0.0.1:9", "no coordinator answers"]);
}
