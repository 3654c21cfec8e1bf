//! Machines of a plan that are jobs of Slurm's: obtained, lost, replaced, and given back whatever is killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bellwether_core::record::{Event, RunOutcome};
use bellwether_testkit::Random;
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::{Live, PROGRAM, Scene, wait_for};
use crate::jobs::{job, trains_with, undisturbed};

/// Kills of the long test.
const KILLS: u64 = 200;

/// A scene with a job of four workers, its profile, and a catalogue of nodes of a partition.
fn profiled(steps: u64, setup: &str) -> Scene {
    let scene = Scene::new(&job(steps, ""));
    let profiled = scene.call(&["profile", "job.toml", "-o", "profile.json"]);
    assert_eq!(profiled.code, Some(0), "{profiled:?}");
    let text = std::fs::read_to_string(scene.path("profile.json")).expect("a test's file, answer or number");
    let profile: Value = serde_json::from_str(&text).expect("a test's file, answer or number");
    let device = profile["device"].as_str().expect("a test's file, answer or number");
    let catalogue = format!(
        "[network]\nbandwidth = \"10Gbit/s\"\n[[machine]]\nname = \"node\"\ndevice = \"{device}\"\n\
         price = \"$1/h\"\nprovision = \"2s\"\n[machine.obtain]\nslurm = [\"--partition=low\", \"--exclusive\"]\n\
         setup = '{setup}'\n"
    );
    scene.write("prices.toml", catalogue);
    scene
}

/// The same with a plan.
fn planned(steps: u64, deadline: &str) -> Scene {
    let scene = profiled(steps, "");
    let steps = steps.to_string();
    let words =
        ["plan", "profile.json", "--catalog", "prices.toml", "--format", "json", "--max-workers", "3"];
    let made = scene.call(&[&words[..], &["--steps", &steps, "--deadline", deadline]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    // As many as may be: the cheapest plan would be one.
    let mut plan: Value = serde_json::from_str(&made.stdout).expect("a test's file, answer or number");
    let choice = plan["choice"].as_u64().expect("a test's file, answer or number") as usize;
    plan["candidates"][choice]["machines"][0]["count"] = 3.into();
    plan["candidates"][choice]["workers"] = 3.into();
    scene.write("plan.json", plan.to_string());
    scene
}

fn provisioned<'s>(cluster: &Cluster, scene: &'s Scene) -> Live<'s> {
    cluster
        .start(scene, &["run", "job.toml", "--plan", "plan.json", "--provision", "slurm", "--format", "json"])
}

#[test]
fn two_machines_are_lost_and_replaced_and_all_are_given_back() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = planned(2500, "10min");
    let run = provisioned(&cluster, &scene);
    let step = trains_with(&run, 3, 0);
    let known = cluster.say("scontrol", &["show", "job"]);
    let credentials = std::fs::read_to_string(scene.run_folder().join("token")).unwrap();
    assert!(known.contains("bellwether machine ") && !known.contains(credentials.trim()), "{known}");
    // One is killed with its processes, another is cancelled.
    let jobs = cluster.queue();
    cluster.say("scancel", &["--signal=KILL", "--full", &jobs[0].0.to_string()]);
    cluster.say("scancel", &[&jobs[1].0.to_string()]);
    let fewer = run.until("fewer workers", |event| match event {
        Event::Membership { workers, step: at, .. } if workers.len() < 3 && *at >= step => Some(*at),
        _ => None,
    });
    trains_with(&run, 3, fewer);
    let summary = run.summary();
    assert_eq!((&summary.outcome, summary.steps), (&RunOutcome::Finished, 2500));
    assert_eq!(summary.params_digest, Some(undisturbed(2500)));
    let account = summary.provisioned.as_ref().expect("machines");
    assert_eq!((account.obtained, account.left, account.provider.as_str()), (5, 0, "slurm"), "{account:?}");
    assert_eq!(cluster.queue(), []);
    scene.audit();
}

#[test]
fn an_exported_plan_is_a_script_that_sbatch_runs() {
    let Some(cluster) = Cluster::find() else { return };
    let program = Path::new(PROGRAM).parent().expect("a program lies in a folder").display().to_string();
    let scene = profiled(300, &format!("export PATH={program}:$PATH"));
    let words = ["plan", "profile.json", "--catalog", "prices.toml", "--steps", "300", "--max-workers", "2"];
    // With a budget alone the fastest is chosen: two nodes.
    let made =
        scene.call(&[&words[..], &["--budget", "$5", "--export", "slurm", "--job", "job.toml"]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("--nodes=2"), "{}", made.stdout);
    scene.write("script.sh", &made.stdout);
    let mut sbatch = Command::new("sbatch");
    sbatch.args(["--parsable", "--output=said", "script.sh"]).current_dir(scene.path(""));
    sbatch.env("SLURM_CONF", cluster.configuration()).env("XDG_STATE_HOME", scene.path("state"));
    let submitted = sbatch.output().unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    let said = || std::fs::read_to_string(scene.path("said")).unwrap_or_default();
    let digest = wait_for(said, || {
        scene
            .picked(|event| match event {
                Event::Ended { outcome: RunOutcome::Finished, params_digest, .. } => params_digest.clone(),
                _ => None,
            })
            .pop()
    });
    assert_eq!(digest, undisturbed(300));
    let most = scene.picked(|event| match event {
        Event::Membership { workers, .. } => Some(workers.len()),
        _ => None,
    });
    assert_eq!(most.into_iter().max(), Some(2), "both nodes trained: {}", said());
    wait_for(|| format!("{:?}", cluster.queue()), || cluster.queue().is_empty().then_some(()));
    scene.audit();
}

#[test]
#[ignore = "takes ten minutes; `machines` on this machine is killed in the short tests"]
fn two_hundred_kills_leave_nothing() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = planned(400_000, "1000h");
    let mut random = Random::new(25);
    let mut run = provisioned(&cluster, &scene);
    let mut held_s = 0.0;
    for kill in 0..KILLS {
        std::thread::sleep(Duration::from_millis(random.below(4000)));
        match random.below(4) {
            // A machine, by its engine.
            0 => {
                let jobs = cluster.queue();
                jobs.first()
                    .inspect(|(job, ..)| drop(cluster.say("scancel", &["--quiet", &job.to_string()])));
                continue;
            }
            // The engine.
            1 => {
                cluster.kill_controller();
                std::thread::sleep(Duration::from_millis(random.below(2000)));
                cluster.start_controller();
                continue;
            }
            _ => run.signal(Signal::KILL),
        }
        drop(run.end());
        let is_begun = scene.run_folder().join("journal.jsonl").exists();
        if random.chance(0.5) {
            let since = std::time::Instant::now();
            let released = cluster.start(&scene, &["machines", "release", "--orphaned"]).end();
            assert_eq!(released.code, Some(0), "kill {kill}: {released:?}");
            assert_eq!(cluster.queue(), [], "kill {kill}: {released:?}");
            held_s = f64::max(held_s, since.elapsed().as_secs_f64());
        }
        run = match is_begun {
            true => cluster.start(&scene, &["run", "--resume", "job-1", "--format", "json"]),
            false => provisioned(&cluster, &scene),
        };
    }
    run.signal(Signal::KILL);
    drop(run.end());
    let released = cluster.start(&scene, &["machines", "release", "--orphaned"]).end();
    assert_eq!(released.code, Some(0), "{released:?}");
    wait_for(|| format!("{:?}", cluster.queue()), || cluster.queue().is_empty().then_some(()));
    println!("{KILLS} kills; the longest release took {held_s:.1} s");
}
