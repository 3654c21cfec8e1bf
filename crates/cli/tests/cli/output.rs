//! What is printed: data on stdout, all else on stderr, the same words every time.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{PROGRAM, Scene};
use crate::jobs;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn a_summary_has_these_keys() {
    let scene = jobs::momentum().scene();
    let ended = scene.call(&["run", "job.toml", "--format", "json", "--steps", "20", "--resize", "10:3"]);
    let summary: Value = serde_json::from_str(&ended.stdout).expect("stdout has nothing but the summary");
    assert_eq!(
        keys(&summary),
        [
            "job",
            "run",
            "run_dir",
            "outcome",
            "reason",
            "steps",
            "examples",
            "final_loss",
            "held_out_loss",
            "accuracy",
            "examples_per_s",
            "elapsed_s",
            "params_digest",
            "workers",
            "resizes",
            "crashes",
            "slowest_boot",
            "peak_resident_bytes",
            "checkpoint",
            "predictions",
            "decisions",
        ]
        .map(String::from)
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .sorted()
    );
    assert_eq!(keys(&summary["resizes"][0]).sorted(), ["from", "reason", "stall_s", "step", "to"]);
}

#[test]
fn a_run_shows_predicted_beside_measured() {
    let job = "name = \"steady\"\nsteps = 80\nworkers = 2\n\
               [model]\nkind = \"synthetic\"\nstep_time = \"5ms\"\nparameters = \"64KiB\"\n\
               [data]\nkind = \"indices\"\nsamples = 1000\n\
               [batch]\nsize = 8\nvirtual_nodes = 4\n\
               [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.01\n";
    let scene = Scene::new(job);
    let ended = scene.call(&["run", "job.toml", "--format", "json", "--resize", "50:1"]);
    let summary: Value = serde_json::from_str(&ended.stdout).expect("stdout has nothing but the summary");
    let predictions = summary["predictions"].as_array().expect("an array");
    let workers: Vec<u64> = predictions.iter().filter_map(|p| p["workers"].as_u64()).collect();
    assert_eq!(workers, [1, 2], "{summary}");
    for prediction in predictions {
        let number = |name: &str| prediction[name].as_f64().expect("a number");
        assert!(number("low") <= number("predicted_examples_per_s"), "{prediction}");
        assert!(number("predicted_examples_per_s") <= number("high"), "{prediction}");
        let ratio = number("predicted_examples_per_s") / number("measured_examples_per_s");
        assert!((number("error") - (ratio - 1.0)).abs() < 1e-9, "{prediction}");
        // The machine may be busy; but a prediction of the wrong number of virtual nodes is off by a factor.
        assert!((0.6..1.7).contains(&ratio), "{prediction}");
    }
    // Half of the virtual nodes: nearly twice as fast.
    let predicted = |index: usize| predictions[index]["predicted_examples_per_s"].as_f64().expect("a number");
    assert!((1.3..2.1).contains(&(predicted(1) / predicted(0))), "{summary}");
}

/// Sorts, because JSON objects have no order.
trait Sorted {
    fn sorted(self) -> Self;
}

impl Sorted for Vec<&str> {
    fn sorted(mut self) -> Self {
        self.sort_unstable();
        self
    }
}

#[test]
fn a_table_tells_the_result() {
    let scene = jobs::momentum().scene();
    let ended = scene.call(&["run", "job.toml", "--steps", "300", "--workers", "2", "--resize", "100:1"]);
    let mut first_words: Vec<&str> =
        ended.stdout.lines().filter_map(|line| line.split("  ").next()).collect();
    // Whether the machine is busy is not up to the test.
    first_words.retain(|word| *word != "contention");
    let expected = [
        "run",
        "outcome",
        "steps",
        "examples",
        "final loss",
        "held-out loss",
        "accuracy",
        "examples/s",
        "time",
        "workers",
        "peak memory of a worker",
        "predicted at first",
        "predicted at first",
        "resize",
        "parameters",
        "checkpoint",
    ];
    assert_eq!(first_words, expected, "{ended:?}");
    assert!(ended.stdout.contains("2 → 1"), "{ended:?}");
    ended.says(&[
        "job-1 in ",
        "step 150: held-out loss",
        "step 100: 2 → 1 workers",
        "step 300: held-out loss",
    ]);
    assert!(
        ended.stderr.lines().count() <= 8,
        "notes are sparse where no terminal shows them: {}",
        ended.stderr
    );
}

#[test]
fn jobs_lists_runs_of_every_kind() {
    let scene = Scene::new(&jobs::slow(5));
    let empty = scene.call(&["jobs"]);
    assert_eq!((empty.code, empty.stdout.lines().count()), (Some(0), 1), "{empty:?}");
    assert_eq!(scene.call(&["jobs", "--format", "json"]).stdout.trim(), "[]");
    assert_eq!(scene.call(&["run", "job.toml", "--steps", "2"]).code, Some(0));
    let run = scene.start(&["run", "job.toml", "--workers", "2"]);
    let row = crate::harness::wait_for(
        || "a row of a run that trains".into(),
        || {
            let rows: Value = serde_json::from_str(&scene.call(&["jobs", "--format", "json"]).stdout).ok()?;
            rows.as_array()?.iter().find(|row| row["state"] == "running" && row["loss"].is_f64()).cloned()
        },
    );
    assert_eq!(
        keys(&row).sorted(),
        [
            "age_s",
            "examples_per_s",
            "loss",
            "phase",
            "run",
            "served",
            "state",
            "step",
            "total_steps",
            "workers"
        ]
    );
    assert_eq!(
        (&row["run"], &row["workers"], &row["total_steps"]),
        (&"job-2".into(), &2.into(), &100.into())
    );
    let table = scene.call(&["jobs"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("JOB"), "{table}");
    assert!(
        lines[1].contains("job-1") && lines[1].contains("finished") && lines[1].contains("2/2"),
        "{table}"
    );
    assert!(lines[2].contains("job-2") && lines[2].contains("running"), "{table}");
    run.kill();
    let table = scene.call(&["jobs"]).stdout;
    assert!(table.lines().any(|l| l.contains("job-2") && l.contains("lost")), "{table}");
}

#[test]
fn watch_follows_a_run_to_its_end() {
    let scene = Scene::new(&jobs::slow(3));
    let mut run = scene.train(&["--workers", "1"]);
    assert!(run.reach(1));
    let people = scene.start(&["watch", "job"]);
    let programs = scene.call(&["watch", "job", "--format", "json"]);
    let people = people.end();
    assert_eq!((programs.code, people.code), (Some(0), Some(0)));
    assert_eq!((programs.stderr.as_str(), people.stderr.as_str()), ("", ""));
    let lines: Vec<Value> = programs.stdout.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let last = lines.last().expect("there is a line");
    assert_eq!(last["total_steps"], 100);
    assert!(lines.is_sorted_by_key(|line| line["step"].as_u64()));
    assert!(people.stdout.lines().all(|line| line.starts_with("job-1  step ")), "{people:?}");
    assert_eq!(run.summary().outcome.word(), "finished");
}

#[test]
fn help_names_every_verb_and_flag() {
    let scene = Scene::new("");
    let help = scene.call(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for verb in ["run", "worker", "jobs", "scale", "stop", "watch", "audit", "schema"] {
        assert!(help.stdout.contains(&format!("\n  {verb} ")), "{verb}: {}", help.stdout);
    }
    let run = scene.call(&["run", "--help"]).stdout;
    for flag in [
        "--workers",
        "--resize",
        "--set",
        "--steps",
        "--resume",
        "--listen",
        "--no-spawn",
        "--state-dir",
        "--format",
    ] {
        assert!(run.contains(flag), "{flag}: {run}");
    }
    let worker = scene.call(&["worker", "--help"]).stdout;
    for flag in ["--join", "--token-file", "--listen", "--orphan-timeout"] {
        assert!(worker.contains(flag), "{flag}: {worker}");
    }
    assert!(!worker.contains("--worker-id"), "{worker}");
    assert_eq!(scene.call(&["rum"]).code, Some(2));
    assert_eq!(scene.call(&[]).code, Some(2));
}

#[test]
fn a_reader_that_hangs_up_is_no_fault() {
    let scene = jobs::momentum().scene();
    let mut child = Command::new(PROGRAM)
        .args(["schema", "job"])
        .current_dir(scene.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn only_the_user_may_read_the_token() {
    use std::os::unix::fs::PermissionsExt;
    let scene = jobs::momentum().scene();
    assert_eq!(scene.call(&["run", "job.toml", "--steps", "1"]).code, Some(0));
    let mode = std::fs::metadata(scene.run_folder().join("token")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
