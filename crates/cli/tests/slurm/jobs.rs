//! Runs whose workers are jobs of Slurm's.

use bellwether_core::record::{Event, RunOutcome, Summary};
use bellwether_testkit::s3_server::{KEY_ID, SECRET, Server};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::harness::{Live, Scene, wait_for};

/// Steps that sleep, so that a run lasts as long as a test needs it to.
pub(crate) fn job(steps: u64, more: &str) -> String {
    job_of(steps, "8ms", more)
}

pub(crate) fn job_of(steps: u64, step_time: &str, more: &str) -> String {
    format!(
        "name = \"job\"\nseed = 3\nsteps = {steps}\nworkers = \"1..4\"\n\
         [model]\nkind = \"synthetic\"\nstep_time = \"{step_time}\"\nspread = 0.0\nparameters = \"64KiB\"\n\
         [data]\nkind = \"indices\"\nsamples = 4000\n[batch]\nsize = 16\nvirtual_nodes = 4\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n[checkpoint]\nevery_steps = 100\n{more}"
    )
}

/// The digest of a run that nothing disturbed, on this machine. It does not sleep: what is computed is the same.
pub(crate) fn undisturbed(steps: u64) -> String {
    let scene = Scene::new(&job_of(steps, "1us", ""));
    let summary = scene.train(&["--workers=2"]).summary();
    summary.params_digest.expect("a finished run has one")
}

fn has_all_steps(scene: &Scene, summary: &Summary, steps: u64) {
    assert_eq!((&summary.outcome, summary.steps), (&RunOutcome::Finished, steps));
    assert_eq!(summary.params_digest.as_ref(), Some(&undisturbed(steps)));
    scene.audit();
}

/// Waits until the run trains with this many workers.
pub(crate) fn trains_with(live: &Live<'_>, workers: usize, after: u64) -> u64 {
    live.until(&format!("{workers} workers"), |event| match event {
        Event::Membership { workers: members, step, .. } if members.len() == workers && *step >= after => {
            Some(*step)
        }
        _ => None,
    })
}

fn told(scene: &Scene, words: &str) -> bool {
    let tells = |event: &Event| match event {
        Event::Cluster { message } => message.contains(words).then_some(()),
        _ => None,
    };
    !scene.picked(tells).is_empty()
}

fn wait_until_told(live: &Live<'_>, words: &str) {
    live.until(words, |event| match event {
        Event::Cluster { message } if message.contains(words) => Some(()),
        _ => None,
    });
}

/// Drains the node of a worker, and waits until that has left it.
fn drain_a_node(cluster: &Cluster, run: &Live<'_>) {
    let nodes = cluster.say("squeue", &["-h", "-o", "%N"]);
    let node = nodes.lines().next().unwrap_or_default().trim().to_owned();
    cluster.say("scontrol", &["update", &format!("nodename={node}"), "state=drain", "reason=disk"]);
    wait_until_told(run, "is drained (disk)");
    let is_empty = || !cluster.say("squeue", &["-h", "-o", "%N"]).lines().any(|at| at.trim() == node);
    wait_for(|| format!("{node} to be empty"), || is_empty().then_some(()));
    cluster.say("scontrol", &["update", &format!("nodename={node}"), "state=resume"]);
}

#[test]
fn workers_come_go_and_are_replaced_as_slurm_has_room() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(1500, ""));
    let run = cluster.train(&scene, "1..4", &[]);
    trains_with(&run, 4, 0);
    wait_until_told(&run, "worker 4 is Slurm's job");
    let credentials = std::fs::read_to_string(scene.run_folder().join("token")).unwrap();
    let known = cluster.say("scontrol", &["show", "job"]);
    assert!(known.contains("bellwether-job-1-worker") && !known.contains(credentials.trim()), "{known}");
    // Somebody more important comes: two workers leave before they are killed, and come back afterwards.
    let important = cluster.submit(&["--partition=high", "--nodes=2", "--exclusive", "--wrap", "sleep 3"]);
    wait_until_told(&run, "a job of higher priority takes its place");
    let fewer = trains_with(&run, 2, 1);
    trains_with(&run, 4, fewer + 1);
    assert!(!cluster.queue().iter().any(|(job, ..)| *job == important));
    let summary = run.summary();
    has_all_steps(&scene, &summary, 1500);
    assert!(scene.picked(|event| matches!(event, Event::Crashed { .. }).then_some(())).is_empty());
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]), "all jobs have left, and all processes");
}

#[test]
#[ignore = "takes a while, and a coordinator that dies does so while a run begins and grows in the same way"]
fn a_run_begins_with_what_there_is_and_grows() {
    let Some(cluster) = Cluster::find() else { return };
    let taken = cluster.submit(&["--partition=low", "--nodes=3", "--exclusive", "--wrap", "sleep 60"]);
    wait_for(|| "it runs".into(), || (cluster.queue()[0].1 == "RUNNING").then_some(()));
    let scene = Scene::new(&job(700, ""));
    let mut run = cluster.train(&scene, "1..3", &[]);
    trains_with(&run, 1, 0);
    assert!(run.reach(50));
    wait_until_told(&run, "waits in Slurm's queue");
    cluster.say("scancel", &[&taken.to_string()]);
    trains_with(&run, 3, 50);
    let summary = run.summary();
    has_all_steps(&scene, &summary, 700);
    assert_eq!(cluster.queue(), []);
}

#[test]
fn a_coordinator_that_dies_finds_its_jobs_again() {
    let Some(cluster) = Cluster::find() else { return };
    let taken = cluster.submit(&["--partition=low", "--nodes=2", "--exclusive", "--wrap", "sleep 90"]);
    wait_for(|| "it runs".into(), || (cluster.queue()[0].1 == "RUNNING").then_some(()));
    let scene = Scene::new(&job(1100, ""));
    let mut run = cluster.train(&scene, "1..3", &[]);
    trains_with(&run, 2, 0);
    assert!(run.reach(60));
    // Two run, and one waits.
    let before = wait_for(
        || "three jobs".into(),
        || {
            Some(cluster.queue())
                .filter(|queue| queue.iter().filter(|(_, state, _)| state == "PENDING").count() == 1)
        },
    );
    run.kill();
    let arguments = ["run", "--resume", "job-1", "--format=json"];
    let mut run = cluster.start(&scene, &arguments);
    assert!(run.reach(400), "{}", run.stderr());
    assert!(told(&scene, "is Slurm's job"));
    // The job that waited is taken over, and keeps its place in the queue: none was submitted beside it.
    assert_eq!(cluster.queue().iter().map(|(job, ..)| *job).max(), before.iter().map(|(job, ..)| *job).max());
    cluster.say("scancel", &[&taken.to_string()]);
    trains_with(&run, 3, 0);
    let summary = run.summary();
    has_all_steps(&scene, &summary, 1100);
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]));
}

#[test]
fn a_coordinator_that_comes_back_on_another_host_is_found_and_watches_its_jobs() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(1200, ""));
    let mut run = cluster.train(&scene, "1..2", &[]);
    trains_with(&run, 2, 0);
    assert!(run.reach(100));
    let before = cluster.queue();
    run.kill();
    // Another address is what another host is to those who look for it.
    let elsewhere = ["run", "--resume", "job-1", "--format=json", "--listen=127.0.0.2:0"];
    let mut run = cluster.start(&scene, &elsewhere);
    assert!(run.reach(200), "{}", run.stderr());
    assert_eq!(scene.endpoint().control.ip().to_string(), "127.0.0.2");
    assert_eq!(cluster.queue(), before, "the same jobs go on");
    // What its predecessor submitted it watches as its own.
    drain_a_node(&cluster, &run);
    let summary = run.summary();
    has_all_steps(&scene, &summary, 1200);
    assert!(scene.picked(|event| matches!(event, Event::Crashed { .. }).then_some(())).is_empty());
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]));
}

#[test]
#[ignore = "takes a minute, until Slurm believes that a node is gone"]
fn a_node_that_loses_its_power_is_done_without() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(4000, ""));
    let mut run = cluster.train(&scene, "1..2", &["--heartbeat-timeout=2s"]);
    trains_with(&run, 2, 0);
    wait_until_told(&run, "worker 2 is Slurm's job");
    assert!(run.reach(50));
    let [(lost, _, _), (other, _, _)] = cluster.queue()[..] else { panic!("{:?}", cluster.queue()) };
    let node = cluster.say("squeue", &["-h", "-j", &lost.to_string(), "-o", "%N"]).trim().to_owned();
    // No connection breaks: nothing on the node answers any more, neither the worker nor Slurm's daemon.
    let still = cluster.freeze(&node, lost);
    let alone = trains_with(&run, 1, 1);
    let again = trains_with(&run, 2, alone + 1);
    assert!(run.reach(again + 20));
    let is_gone = || cluster.queue().iter().all(|(job, ..)| *job != lost);
    wait_for(|| cluster.say("squeue", &[]), || is_gone().then_some(()));
    assert!(cluster.queue().iter().any(|(job, ..)| *job == other), "the other worker was left alone");
    cluster.thaw(still);
    let summary = run.summary();
    has_all_steps(&scene, &summary, 4000);
    assert_eq!(cluster.queue(), []);
}

#[test]
fn a_controller_that_is_away_stops_nothing() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(1200, ""));
    let mut run = cluster.train(&scene, "2..4", &[]);
    trains_with(&run, 4, 0);
    // A controller keeps what it did on disk within five seconds; what it has forgotten its nodes would end.
    assert!(run.reach(550));
    cluster.kill_controller();
    let victim = scene.workers()[0].1;
    scene.kill_worker(victim);
    let step = trains_with(&run, 3, 1);
    assert!(run.reach(step + 50));
    cluster.start_controller();
    trains_with(&run, 4, step);
    let summary = run.summary();
    has_all_steps(&scene, &summary, 1200);
    assert_eq!(cluster.queue(), []);
}

#[test]
fn a_job_that_was_cancelled_and_a_node_that_is_drained_are_replaced() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(1600, ""));
    let run = cluster.train(&scene, "1..2", &[]);
    trains_with(&run, 2, 0);
    wait_until_told(&run, "worker 2 is Slurm's job");
    let first = cluster.queue()[0].0;
    cluster.say("scancel", &[&first.to_string()]);
    let step = trains_with(&run, 1, 1);
    let again = trains_with(&run, 2, step + 1);
    drain_a_node(&cluster, &run);
    trains_with(&run, 2, again);
    let summary = run.summary();
    has_all_steps(&scene, &summary, 1600);
    assert_eq!(cluster.queue(), []);
}

#[test]
fn a_run_goes_on_from_an_object_store_on_other_nodes() {
    let Some(cluster) = Cluster::find() else { return };
    let store = Server::start();
    let scene = Scene::new(&job(900, ""));
    // Slurm's records keep the environment of a job: credentials are in a file that the nodes see.
    std::fs::create_dir_all(scene.path("home/.aws")).expect("a new folder");
    let keys = format!("[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n");
    scene.write("home/.aws/credentials", keys);
    let home = scene.path("home").display().to_string();
    let train = |scene: &Scene, more: &[&str]| {
        let usual = ["run", "job.toml", "--format=json", "--on=slurm", "--workers=1..2"];
        let mut command = scene.command(&[&usual[..], more].concat());
        let place = store.environment().into_iter().filter(|(name, _)| !name.contains("KEY"));
        command.envs(place).env("SLURM_CONF", cluster.configuration()).env("HOME", &home);
        command.arg("--sbatch=--partition=low").arg("--set=checkpoint.url=s3://bucket/models");
        command
    };
    let mut run = scene.start_command(train(&scene, &["--sbatch=--exclude=n3,n4"]));
    assert!(run.reach(350), "{}", run.stderr());
    // The coordinator's host is lost, and its workers with it.
    run.kill();
    cluster.say("scancel", &["--user=root", "--signal=KILL", "--full"]);
    cluster.wait_until_idle();
    let elsewhere = Scene::new(&job(900, ""));
    let more = ["--sbatch=--exclude=n1,n2", "--resume-from=s3://bucket/models"];
    let run = elsewhere.start_command(train(&elsewhere, &more));
    wait_until_told(&run, "is Slurm's job");
    let nodes = cluster.say("squeue", &["-h", "-t", "RUNNING", "-o", "%N"]);
    assert!(!nodes.contains("n1") && !nodes.contains("n2"), "{nodes}");
    let summary = run.summary();
    assert_eq!((&summary.outcome, summary.steps), (&RunOutcome::Finished, 900));
    assert_eq!(summary.params_digest, Some(undisturbed(900)));
    assert_eq!(cluster.queue(), []);
}

#[test]
fn an_allocation_gives_a_worker_per_task() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(300, ""));
    let script = format!(
        "#!/bin/sh\ncd '{}'\nexec '{}' run job.toml --format=json --state-dir=state/bellwether --workers=1..4 \
         >out.json 2>err.txt\n",
        scene.path("").display(),
        crate::harness::PROGRAM
    );
    let file = scene.write("batch.sh", script);
    cluster.submit(&["--partition=low", "--nodes=3", "--ntasks=3", "--export=ALL", &file.to_string_lossy()]);
    let summary = wait_for(
        || std::fs::read_to_string(scene.path("err.txt")).unwrap_or_default(),
        || serde_json::from_str::<Summary>(&std::fs::read_to_string(scene.path("out.json")).ok()?).ok(),
    );
    has_all_steps(&scene, &summary, 300);
    assert!(summary.workers.iter().all(|workers| *workers <= 3), "{:?}", summary.workers);
    cluster.wait_until_idle();
    assert_eq!(scene.workers(), []);
}

#[test]
fn servers_are_jobs_too_and_every_sample_is_accounted_for() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(400, "[sync]\npolicy = \"asp\"\nservers = 2\n"));
    let usual = ["run", "job.toml", "--format=json", "--on=slurm", "--workers=2", "--sbatch=--partition=low"];
    let run = cluster.start(&scene, &usual);
    let server = |event: &Event| matches!(event, Event::ServerAttached { .. }).then_some(());
    run.until("a server", server);
    wait_until_told(&run, "server");
    let victim = cluster.queue().iter().find(|(_, _, name)| name.ends_with("worker")).map(|(job, ..)| *job);
    cluster.say("scancel", &["--signal=KILL", "--full", &victim.expect("a worker's job").to_string()]);
    let summary = run.summary();
    assert_eq!((&summary.outcome, summary.steps), (&RunOutcome::Finished, 400));
    scene.audit();
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]));
}

#[test]
#[ignore = "takes minutes: Slurm's shortest time limit is one"]
fn training_is_longer_than_the_time_limit() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(4500, ""));
    let mut run = cluster.train(&scene, "1..2", &["--sbatch=--time=1"]);
    // The harness waits for two minutes at a time.
    assert!(run.reach(2000) && run.reach(4000));
    let summary = run.summary();
    has_all_steps(&scene, &summary, 4500);
    assert!(told(&scene, "its time limit comes in"));
    assert!(scene.picked(|event| matches!(event, Event::Crashed { .. }).then_some(())).is_empty());
    assert_eq!(cluster.queue(), []);
}

#[test]
fn an_interrupted_run_takes_its_jobs_along() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(5000, ""));
    let mut run = cluster.train(&scene, "1..4", &["--sbatch=--nodes=1"]);
    assert!(run.reach(20));
    run.signal(Signal::INT);
    let ended = run.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]));
    // It goes on by jobs, as it was.
    let mut run = cluster.start(&scene, &["resume", "job-1"]);
    wait_for(|| run.stderr(), || (!cluster.queue().is_empty()).then_some(()));
    assert!(run.reach(40));
    run.signal(Signal::INT);
    assert_eq!(run.end().code, Some(130));
    assert_eq!(cluster.queue(), []);
}
