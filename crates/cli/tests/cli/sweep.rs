//! Sweeps through the command: trials of one job, of which the promising ones go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bellwether_core::record::Event;
use bellwether_runtime::journal;
use rustix::process::Signal;
use serde_json::Value;

use crate::disk::may_mount;
use crate::harness::{PROGRAM, Random, Scene, is_alive, signal, wait_for};

const JOB: &str = "name = \"job\"\nseed = 7\nepochs = 27\nworkers = \"1..2\"\n\
    [model]\nkind = \"mlp\"\nhidden = [16]\n[data]\nkind = \"teacher\"\nsamples = 600\nfeatures = 12\nclasses = 4\n\
    [batch]\nsize = 40\nvirtual_nodes = 4\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n\
    [schedule]\nkind = \"cosine\"\n";

const SWEEP: &str = "job = \"job.toml\"\nworkers = 2\n[space]\n\
    \"optimizer.learning_rate\" = { low = 1e-3, high = 1.0, scale = \"log\" }\n\
    \"model.hidden\" = { choices = [[8], [16], [8, 8]] }\n\
    [sampler]\nkind = \"random\"\nseed = 5\n\
    [scheduler]\nkind = \"asha\"\nminimum = 3\nreduction = 3\n[budget]\ntrials = 7\n";

fn scene(sweep: &str) -> Scene {
    let scene = Scene::new(JOB);
    scene.write("s.toml", sweep);
    scene
}

fn summary(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Processes of the scene that live: coordinators, workers, sweeps.
fn processes(scene: &Scene) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok());
    numbers.filter(|process| scene.owns(*process)).collect()
}

/// No process is left.
#[track_caller]
fn check_left(scene: &Scene) {
    let lines = processes(scene).into_iter().map(|process| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    });
    let left: Vec<String> = lines.collect();
    if !left.is_empty() {
        let runs = fs::read_dir(scene.path("state/bellwether")).into_iter().flatten().flatten();
        let journals = runs.filter_map(|run| fs::read_to_string(run.path().join("journal.jsonl")).ok());
        let journals: String = journals.collect::<Vec<String>>().join("\n");
        panic!("{} are left: {}\n{journals}", left.len(), left.join("\n"));
    }
}

/// The evaluations of a run by step, and its digest.
fn evaluations(run: &Path) -> (BTreeMap<u64, f64>, Option<String>) {
    let (mut found, mut digest) = (BTreeMap::new(), None);
    for line in journal::read(&run.join("journal.jsonl")).expect("a run has a journal") {
        match line.event {
            Event::Evaluated { step, accuracy: Some(accuracy), .. } => drop(found.insert(step, accuracy)),
            Event::Ended { params_digest: Some(told), .. } => digest = Some(told),
            _ => {}
        }
    }
    (found, digest)
}

/// Trains a trial by itself, with another number of workers and nothing that stops it.
fn alone(scene: &Scene, trial: &Value) -> (BTreeMap<u64, f64>, Option<String>) {
    let name = format!("alone{}", trial["trial"]);
    let mut arguments = vec!["run".to_owned(), "job.toml".to_owned(), "--workers".into(), "1".into()];
    let sets = trial["sample"].as_object().expect("a sample is an object").iter();
    let sets = sets.map(|(key, value)| format!("{key}={value}"));
    for set in sets.chain([format!("name={name}"), "evaluation.every_steps=36".into()]) {
        arguments.extend(["--set".to_owned(), set]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = scene.call(&arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    evaluations(&scene.path(&format!("state/bellwether/{name}-1")))
}

/// Nothing of the ledger is lost or done twice.
fn check_ledger(scene: &Scene) {
    let text = fs::read_to_string(scene.path("s.sweep/sweep.jsonl")).expect("a sweep has a ledger");
    let mut once = BTreeSet::new();
    for line in text.lines() {
        let line = summary(line);
        let what = match line["entry"].as_str() {
            Some("started" | "ended") => format!("{} {}", line["entry"], line["trial"]),
            Some("decided") if line["decision"] != "pause" => {
                format!("{} {} {}", line["decision"], line["trial"], line["to"])
            }
            Some("reported") => format!("reported {} {}", line["trial"], line["at"]),
            _ => continue,
        };
        assert!(once.insert(what.clone()), "twice: {what}\n{text}");
    }
}

#[test]
fn a_sweep_that_is_killed_goes_on_and_changes_no_bit() {
    let scene = scene(SWEEP);
    let mut random = Random::new(11);
    let mut workers_killed = 0;
    for kill in 0..5_u32 {
        let mut sweep = scene.start(&["sweep", "s.toml", "--format", "json"]);
        let lines =
            || fs::read_to_string(scene.path("s.sweep/sweep.jsonl")).map_or(0, |text| text.lines().count());
        let before = lines();
        // Between the first line of this process and the end, somewhere.
        let more = 2 + random.below(8) as usize;
        wait_for(
            || format!("{more} more lines of the ledger: {}", sweep.stderr()),
            || (lines() >= before + more || !is_alive(sweep.process())).then_some(()),
        );
        if kill % 2 == 0 {
            let own = sweep.process();
            let worker = processes(&scene).into_iter().rfind(|process| *process != own);
            worker.into_iter().for_each(|worker| signal(worker, Signal::KILL));
            workers_killed += u32::from(worker.is_some());
        }
        sweep.signal(Signal::KILL);
        wait_for(|| "the end of a killed sweep".into(), || sweep.try_end().map(drop));
    }
    assert!(workers_killed > 0);
    let ended = scene.call(&["sweep", "s.toml", "--format", "json", "--plot", "s.svg"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    check_left(&scene);
    check_ledger(&scene);
    let summary = summary(&ended.stdout);
    let trials = summary["trials"].as_array().expect("a list").clone();
    assert_eq!(trials.len(), 7);
    assert!(summary["processes"].as_u64() >= Some(5), "{summary}");
    let finished: Vec<&Value> = trials.iter().filter(|trial| trial["state"] == "finished").collect();
    assert!(!finished.is_empty() && finished.len() < 7, "{summary:#}");
    for trial in &trials {
        let (expected, digest) = alone(&scene, trial);
        for report in trial["reports"].as_array().expect("a list") {
            let step = report[0].as_u64().expect("a length") * 12;
            assert_eq!(report[1].as_f64(), expected.get(&step).copied(), "trial {trial} at step {step}");
        }
        if trial["state"] == "finished" {
            assert_eq!(trial["digest"].as_str(), digest.as_deref(), "trial {trial}");
        }
    }
    let picture = fs::read_to_string(scene.path("s.svg")).expect("a picture was drawn");
    assert!(picture.contains("learning_rate: ") && picture.contains("best figure of any evaluation"));
    // The winner's job file trains the winner.
    let winner = summary["winner"].as_u64().expect("there is a winner") as usize;
    fs::copy(scene.path("s.sweep/winner.toml"), scene.path("winner.toml")).expect("there is a job file");
    let run =
        scene.call(&["run", "winner.toml", "--workers", "2", "--format", "json", "--set", "name=winner"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let (_, digest) = evaluations(&scene.path("state/bellwether/winner-1"));
    assert_eq!(trials[winner]["digest"].as_str(), digest.as_deref());
    // A sweep that is over says the same again, and trains nothing.
    let again = scene.call(&["sweep", "s.toml", "--format", "json"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(serde_json::from_str::<Value>(&again.stdout).expect("JSON")["trials"], Value::Array(trials));
}

#[test]
fn a_sweep_that_is_stopped_pauses_its_trials() {
    let scene = scene(&SWEEP.replace("trials = 7", "trials = 3"));
    scene.write("job.toml", JOB.replace("epochs = 27", "epochs = 2700"));
    let sweep = scene.start(&["sweep", "s.toml"]);
    let ledger = || fs::read_to_string(scene.path("s.sweep/sweep.jsonl")).unwrap_or_default();
    wait_for(|| sweep.stderr(), || ledger().contains("\"reported\"").then_some(()));
    sweep.signal(Signal::INT);
    let ended = sweep.end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the same command goes on"), "{}", ended.stderr);
    check_left(&scene);
    assert!(ledger().lines().any(|line| summary(line)["entry"] == "halted"), "{}", ledger());
}

#[test]
fn a_grid_trains_every_combination_and_a_trial_that_diverges_ends_alone() {
    let scene = scene(
        "job = \"job.toml\"\nworkers = 2\n[set]\nepochs = 2\n[space]\n\
         \"optimizer.learning_rate\" = { choices = [0.1, 1e38] }\n\
         \"batch.size\" = { choices = [40, 42] }\n[objective]\nmetric = \"loss\"\n[sampler]\nkind = \"grid\"\n",
    );
    let ended = scene.call(&["sweep", "s.toml", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let summary = summary(&ended.stdout);
    let states: Vec<&str> = summary["trials"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|trial| trial["state"].as_str())
        .collect();
    // 42 samples are not divisible among four virtual nodes, and a rate of 1e38 makes no numbers.
    assert_eq!(states, ["finished", "failed", "failed", "failed"], "{summary:#}");
    assert_eq!(summary["winner"], 0);
    assert!(ended.stderr.contains("trial 2 failed: "), "{}", ended.stderr);
    assert!(
        summary["trials"][2]["why"].as_str().is_some_and(|why| why.contains("batch.size")),
        "{summary:#}"
    );
}

#[test]
fn what_cannot_be_searched_is_named() {
    let scene = scene("");
    let head = "job = \"job.toml\"\n[budget]\ntrials = 2\n[space]\n";
    let cases = [
        (
            format!("{head}\"optimizer.learning_rat\" = {{ low = 0.1, high = 1.0 }}\n"),
            "did you mean `learning_rate`?",
        ),
        (format!("{head}\"optimizer.momentum\" = {{ low = 2.0, high = 3.0 }}\n"), "optimizer.momentum"),
        (
            format!("{head}optimizer.momentum = {{ low = 0.2, high = 0.3 }}\n"),
            "write the whole key in quotes",
        ),
        (format!("{head}\"seed\" = {{ low = 3, high = 1 }}\n"), "no values from 3 to 1"),
        (
            format!(
                "{head}\"seed\" = {{ low = 0, high = 9 }}\n[scheduler]\nkind = \"asha\"\nunit = \"steps\"\n"
            ),
            "the job's length is not in steps",
        ),
        (
            "job = \"no.toml\"\n[budget]\ntrials = 1\n[space]\nseed = { low = 0, high = 9 }\n".into(),
            "there is no no.toml",
        ),
    ];
    for (text, expected) in cases {
        scene.write("s.toml", &text);
        let ended = scene.call(&["sweep", "s.toml"]);
        assert_eq!(ended.code, Some(2), "{text}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{text}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("s.toml") && ended.stderr.contains("hint: "),
            "{text}: {}",
            ended.stderr
        );
    }
    assert!(!scene.path("s.sweep/runs").exists(), "nothing was begun");
    // A device that only sleeps has no accuracy.
    let synthetic = "name = \"job\"\nsteps = 4\nworkers = 1\n[model]\nkind = \"synthetic\"\nstep_time = \"1ms\"\n\
        parameters = \"4KiB\"\n[data]\nkind = \"indices\"\nsamples = 64\n[batch]\nsize = 8\nvirtual_nodes = 1\n\
        [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
    scene.write("job.toml", synthetic);
    scene.write("s.toml", format!("{head}\"seed\" = {{ low = 0, high = 9 }}\n"));
    let ended = scene.call(&["sweep", "s.toml"]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("never reported its accuracy"), "{}", ended.stderr);
    check_left(&scene);
}

#[test]
fn a_prediction_comes_before_the_sweep_and_is_shown_beside_it() {
    let scene =
        scene(&SWEEP.replace("trials = 7", "trials = 3").replace("kind = \"asha\"", "kind = \"hyperband\""));
    let ended = scene.call(&["sweep", "s.toml", "--dry-run", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let predicted = summary(&ended.stdout);
    assert!(
        predicted["seconds"].as_f64() > Some(0.0) && predicted["step_s"].as_f64() > Some(0.0),
        "{predicted}"
    );
    assert_eq!(predicted["trials"], 3.0);
    assert!(!scene.path("s.sweep/sweep.jsonl").exists());
    let ended = scene.call(&["sweep", "s.toml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("predicted "), "{}", ended.stdout);
    check_left(&scene);
}

#[test]
fn a_full_disk_makes_the_sweep_wait() {
    if !may_mount() {
        return;
    }
    let scene = scene(&SWEEP.replace("trials = 7", "trials = 4"));
    let folder = scene.path("s.sweep");
    fs::create_dir(&folder).expect("it can be made");
    // The ledger's file system has no room from the first report on; the trials' has.
    let script = "mount -t tmpfs -o size=64k none s.sweep && mkdir \"$OUTSIDE\" && ln -s \"$OUTSIDE\" s.sweep/runs && \
        { \"$@\" & } && while ! grep -q started s.sweep/sweep.jsonl 2>/dev/null; do sleep 0.05; done; \
        cat /dev/zero > s.sweep/filler 2>/dev/null; echo full >&2; sleep 3; rm s.sweep/filler; wait; \
        cp s.sweep/sweep.jsonl \"$OUTSIDE/ledger\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", PROGRAM, "sweep", "s.toml", "--format", "json"]);
    command.current_dir(scene.path(".")).env("OUTSIDE", scene.path("outside"));
    let ended = scene.start_command(command).end();
    assert!(ended.stderr.contains("the sweep waits, its ledger cannot be written"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("it can be written again") || ended.stderr.contains("the sweep goes on"),
        "{}",
        ended.stderr
    );
    assert_eq!(summary(&ended.stdout)["over"], true);
}

#[test]
fn the_trials_may_be_jobs_of_a_daemon() {
    let scene = scene(&SWEEP.replace("trials = 7", "trials = 4"));
    let daemon = scene.start(&["serve", "--slots", "2"]);
    let socket = scene.path("state/bellwether/.serve/endpoint.json");
    wait_for(|| daemon.stderr(), || socket.exists().then_some(()));
    let ended = scene.call(&["sweep", "s.toml", "--daemon", "state/bellwether", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let summary = summary(&ended.stdout);
    let jobs = scene.call(&["jobs", "--format", "json"]);
    for trial in summary["trials"].as_array().expect("a list") {
        assert!(jobs.stdout.contains(trial["job"].as_str().expect("a name")), "{}", jobs.stdout);
        let (expected, digest) = alone(&scene, trial);
        let last = trial["reports"].as_array().and_then(|reports| reports.last()).expect("it was evaluated");
        let step = last[0].as_u64().expect("a length") * 12;
        assert_eq!(last[1].as_f64(), expected.get(&step).copied(), "trial {trial}");
        if trial["state"] == "finished" {
            assert_eq!(trial["digest"].as_str(), digest.as_deref(), "trial {trial}");
        }
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
    check_left(&scene);
}

#[test]
fn a_sweep_is_simulated_on_curves() {
    let scene = scene(SWEEP);
    // Nine trials of nine units: the figure is the number of the trial in percent, from the first unit on.
    let curves: String =
        (0..9).flat_map(|trial| (1..=9).map(move |at| format!("{trial},{at},0.0{trial}\n"))).collect();
    scene.write("curves.csv", format!("trial,length,value\n{curves}"));
    let sweep = SWEEP.replace("minimum = 3", "minimum = 3\nmaximum = 27").replace("trials = 7", "trials = 9");
    // The curves count in units of three epochs.
    scene.write("s.toml", sweep);
    let arguments =
        ["simulate", "--sweep", "s.toml", "--curves", "curves.csv", "--workers", "1,3", "--unit-time", "2s"];
    let ended = scene.call(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let rows = summary(&ended.stdout);
    let row = |scheduler: &str, workers: u64| {
        let rows = rows.as_array().expect("a list").iter();
        rows.clone()
            .find(|row| row["scheduler"] == scheduler && row["workers"] == workers)
            .expect("a row")
            .clone()
    };
    // Nine whole trials of 9 units of 2 s, by one worker and by three.
    assert_eq!(row("none", 1)["seconds"], 162.0);
    assert_eq!(row("none", 3)["seconds"], 54.0);
    // One bracket: 9 trials of 1 unit, 3 of them 2 more, 1 of these 6 more.
    assert_eq!(row("hyperband", 1)["units"], 9 + 6 + 6);
    assert_eq!(row("hyperband", 1)["best_trial"], 8);
    assert!(row("asha", 1)["units"].as_u64() < row("none", 1)["units"].as_u64());
    let table = scene.call(&arguments);
    assert!(table.stdout.contains("hyperband") && table.stdout.contains("best accuracy"), "{}", table.stdout);
    scene.write("curves.csv", "0,1,0.5\n0,x,0.5\n");
    let wrong = scene.call(&arguments);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("curves.csv, line 2"), "{}", wrong.stderr);
}

#[test]
fn the_example_is_foreseen() {
    let scene = scene("");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sweep/digits.toml");
    let ended = scene.call(&["sweep", example, "--dry-run", "--workers", "2"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("27, 2 at a time on 2 slots"), "{}", ended.stdout);
    assert!(scene.path("digits.sweep/predicted.json").exists());
}
