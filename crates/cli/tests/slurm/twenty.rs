//! Twenty jobs of several kinds under a daemon on a cluster where everything happens that may happen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::{Random, Scene, wait_for};
use crate::jobs::{job, job_of};
use crate::served::{ask, begin, shown};

/// How long all jobs together may take: they take turns on eight slots.
const PATIENCE: Duration = Duration::from_secs(1500);

/// Kills, of the daemon and of Slurm's controller in turn.
const KILLS: u32 = 20;

/// How the daemon serves. Every job that is long enough meets its time limit.
const SERVED: [&str; 6] = [
    "--on=slurm",
    "--partition=low",
    "--processors-per-slot=2",
    "--policy=fair",
    "--retries=20",
    "--sbatch=--time=1",
];

const DIGITS: &str = "name = \"digits\"\nseed = 5\nepochs = 6\nworkers = \"1..4\"\n[model]\nkind = \"mlp\"\nhidden = [64]\n\
    [data]\nkind = \"digits\"\nheld_out = 0.2\n[batch]\nsize = 64\nvirtual_nodes = 8\n\
    [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9\n[checkpoint]\nevery_steps = 50\n";

/// A script of PyTorch's, whose samples take a while to be loaded, where there is a Python with PyTorch.
fn script() -> Option<String> {
    let python = std::env::var("BELLWETHER_TEST_PYTHON").ok()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/tests/scripts/torch_slow.py");
    Some(format!(
        "name = \"script\"\nworkers = \"1..4\"\n[model]\nkind = \"python\"\nscript = \"{script}\"\n\
         python = \"{python}\"\narguments = [\"0\", \"5\", \"200\", \"0\"]\n"
    ))
}

/// The jobs: names, files, and whether the digest does not depend on what happens.
fn jobs(scene: &Scene) -> Vec<(String, String, bool)> {
    let mut jobs = Vec::new();
    let script = script();
    if script.is_none() {
        eprintln!("no script of PyTorch's is among the jobs: BELLWETHER_TEST_PYTHON names no Python");
    }
    for number in 0..20 {
        let (kind, text, exact) = match number {
            7 => ("asynchronous", job(1200, "[sync]\npolicy = \"asp\"\nservers = 2\n"), false),
            9 => {
                let url = format!("url = \"file://{}\"\n", scene.path("checkpoints").display());
                ("sliced", job(1500, &url), true)
            }
            13 if script.is_some() => ("script", script.clone().unwrap_or_default(), true),
            n if n % 4 == 3 => ("digits", DIGITS.replace("seed = 5", &format!("seed = {n}")), true),
            n => ("synthetic", job(600 + 120 * n, ""), true),
        };
        let file = format!("{kind}-{number}.toml");
        scene.write(&file, text);
        jobs.push((format!("{kind}-{number}"), file, exact));
    }
    jobs
}

/// The digest of a job that nothing disturbs, on this machine.
fn undisturbed(file: &str, text: &str) -> String {
    let text = text.replace("step_time = \"8ms\"", "step_time = \"1us\"");
    let scene = Scene::new(&text);
    let ended = scene.call(&["run", "job.toml", "--workers=1", "--format=json"]);
    let summary: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{file}: {ended:?}"));
    summary["params_digest"].as_str().expect("a finished run has one").to_owned()
}

/// What else happens, after this many kills.
fn happen(cluster: &Cluster, killed: u32) {
    let node = |name: &str, state: &str| {
        cluster.say(
            "scontrol",
            &["update", &format!("nodename={name}"), &format!("state={state}"), "reason=test"],
        );
    };
    match killed {
        3 => drop(cluster.submit(&["--partition=high", "--nodes=2", "--exclusive", "--wrap", "sleep 15"])),
        6 => node("n2", "drain"),
        9 => node("n2", "resume"),
        12 => node("n3", "down"),
        15 => node("n3", "resume"),
        _ => {}
    }
}

#[test]
#[ignore = "takes about ten minutes: twenty jobs and twenty kills"]
fn twenty_jobs_end_once_each_whatever_happens() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job_of(10, "1us", ""));
    let mut daemon = Some(begin(&cluster, &scene, &SERVED));
    let jobs = jobs(&scene);
    for (name, file, _) in &jobs {
        ask(&scene, &["submit", file, "--name", name]);
    }
    let (since, mut random, mut killed, mut next) = (Instant::now(), Random(11), 0, Duration::from_secs(5));
    let mut done = BTreeMap::new();
    while done.len() < jobs.len() {
        assert!(
            since.elapsed() < PATIENCE,
            "{} of {} jobs are done\n{}",
            done.len(),
            jobs.len(),
            cluster.say("squeue", &[])
        );
        for (name, ..) in &jobs {
            if !done.contains_key(name) && daemon.is_some() {
                let job = shown(&scene, name);
                assert!(job["state"] != "failed", "{job}");
                if job["state"] == "finished" {
                    done.insert(name.clone(), job);
                }
            }
        }
        if since.elapsed() > next && killed < KILLS {
            next = since.elapsed() + Duration::from_secs(5 + random.below(6));
            if killed % 2 == 0 {
                if let Some(daemon) = daemon.take() {
                    daemon.kill();
                }
                std::thread::sleep(Duration::from_millis(random.below(3000)));
                daemon = Some(begin(&cluster, &scene, &[]));
            } else {
                cluster.kill_controller();
                std::thread::sleep(Duration::from_millis(500 + random.below(4000)));
                cluster.start_controller();
            }
            killed += 1;
            happen(&cluster, killed);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(killed, KILLS, "the jobs were over before all that was to happen had happened");
    println!("{killed} kills in {:.0} s", since.elapsed().as_secs_f64());
    for (name, file, exact) in &jobs {
        let audit = scene.call(&["audit", name]);
        assert_eq!(audit.code, Some(0), "{name}: {audit:?}");
        let text = std::fs::read_to_string(scene.path(file)).expect("it was written");
        if *exact {
            assert_eq!(done[name]["digest"].as_str(), Some(undisturbed(file, &text).as_str()), "{name}");
        }
        println!("{name}: {} failures, {} preemptions", done[name]["failures"], done[name]["preemptions"]);
    }
    wait_for(|| cluster.say("squeue", &[]), || cluster.queue().is_empty().then_some(()));
    if let Some(daemon) = daemon {
        daemon.signal(rustix::process::Signal::TERM);
        assert_eq!(daemon.end().code, Some(0));
    }
    assert_eq!(scene.workers(), []);
}
