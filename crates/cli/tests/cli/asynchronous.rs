//! Training through parameter servers: the same bits where all wait for all, a bound on staleness that holds, and runs that
//! go on whichever process is killed.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event, Summary};
use rustix::process::Signal;

use crate::harness::{Live, Random, Scene, signal, wait_for};
use crate::jobs::{self, Recipe};
use crate::served::synthetic;

const ASP: &str = "sync.policy=\"asp\"";
const THROUGH_SERVERS: &str = "sync.reduce=\"servers\"";
const CHECKPOINTS: &str = "checkpoint.every_steps=20";
const REPLICA: &str = "sync.replica=true";

/// `--workers N` and a `--set` for each of these.
fn arguments<'a>(workers: &'a str, sets: &[&'a str]) -> Vec<&'a str> {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    ["--workers", workers].into_iter().chain(sets).collect()
}

/// No network, and steps of a few milliseconds.
fn brief() -> Recipe {
    jobs::patient().steps(120)
}

/// Number and process of the living servers, by number.
fn servers(scene: &Scene) -> Vec<(u64, u32)> {
    let attached = scene.picked(|event| match event {
        Event::ServerAttached { server, process, .. } => Some((*server, *process)),
        _ => None,
    });
    let mut living: Vec<(u64, u32)> = attached.into_iter().filter(|(_, p)| scene.owns(*p)).collect();
    living.sort_unstable();
    living.dedup();
    living
}

/// What the journal tells of servers that were replaced: lost updates and checkpoint.
fn replaced(scene: &Scene) -> Vec<(u64, Option<u64>)> {
    scene.picked(|event| match event {
        Event::ServerReplaced { lost_updates, checkpoint, .. } => Some((*lost_updates, *checkpoint)),
        _ => None,
    })
}

fn rolled_back(scene: &Scene) -> Vec<u64> {
    scene.picked(|event| match event {
        Event::RolledBack { to } => Some(*to),
        _ => None,
    })
}

/// The run did all its steps, each once, and left no process behind.
#[track_caller]
fn whole(scene: &Scene, summary: &Summary) {
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    scene.audit();
    no_worker_left(scene);
}

#[track_caller]
fn no_worker_left(scene: &Scene) {
    // Those that another coordinator started hear of the end, and take a moment.
    let left = || scene.workers().into_iter().chain(servers(scene)).collect::<Vec<_>>();
    wait_for(|| format!("an end of {:?}", left()), || left().is_empty().then_some(()));
}

/// Updates of pieces that the servers applied.
fn updates(summary: &Summary) -> u64 {
    summary.staleness.as_ref().map_or(0, |staleness| staleness.updates())
}

/// Updates of pieces in an undisturbed run of this job: each unit updates each piece once.
fn undisturbed(recipe: &Recipe, servers: &str) -> u64 {
    let set = arguments("2", &[ASP, servers, "model.step_time=\"0s\""]);
    let summary = recipe.scene().train(&set).summary();
    let updates = updates(&summary);
    assert!(updates > 0 && updates.is_multiple_of(summary.steps), "{summary:?}");
    updates
}

#[test]
fn through_servers_the_parameters_are_the_same() {
    for recipe in [jobs::momentum().steps(60), jobs::adam_dropout().steps(60), jobs::batch_norm().steps(12)] {
        for servers in ["sync.servers=1", "sync.servers=2", "sync.servers=3"] {
            let summary = recipe.scene().train(&arguments("3", &[THROUGH_SERVERS, servers])).summary();
            assert_eq!(summary.params_digest, Some(recipe.digest()), "{servers}: {summary:?}");
            let phases: Vec<_> = summary.phases.iter().map(|s| (s.protocol, s.steps)).collect();
            assert_eq!(phases, [(Protocol::Bsp, summary.steps)]);
        }
    }
}

#[test]
fn a_run_changes_its_protocol_without_a_new_process() {
    let recipe = brief();
    let scene = recipe.scene();
    let phases =
        "sync.policy={ phases = [[0.0, \"bsp\"], [0.25, \"asp\"], [0.5, \"ssp:1\"], [0.75, \"bsp\"]] }";
    let summary = scene.train(&arguments("3", &[phases, "sync.servers=2"])).summary();
    whole(&scene, &summary);
    let phases: Vec<_> = summary.phases.iter().map(|s| (s.protocol, s.step, s.steps, s.servers)).collect();
    let (bsp, asp, ssp) = (Protocol::Bsp, Protocol::Asp, Protocol::Ssp(1));
    assert_eq!(phases, [(bsp, 0, 30, 0), (asp, 30, 30, 2), (ssp, 60, 30, 2), (bsp, 90, 30, 0)]);
    let changes = scene.picked(|event| match event {
        Event::Protocol { step, protocol, .. } => Some((*step, *protocol)),
        _ => None,
    });
    assert_eq!(changes, [(0, bsp), (30, asp), (60, ssp), (90, bsp)]);
    let processes = scene.picked(|event| match event {
        Event::WorkerAttached { process, .. } | Event::ServerAttached { process, .. } => Some(*process),
        _ => None,
    });
    assert_eq!((processes.len(), summary.crashes.len()), (5, 0), "{summary:?}");
}

/// Most updates of a piece between a pull and its push under `ssp:BOUND`, when this many workers ever took part. While one
/// computes at clock c, each other does units of the clocks c - BOUND to c + BOUND: those it was granted before the
/// grant at c, which needs the slowest to be no further behind, and those until it is too far ahead.
fn most_stale(workers: u64, bound: u64) -> u64 {
    (workers - 1) * (2 * bound + 1)
}

#[test]
fn staleness_stays_within_its_bound_whichever_process_is_killed() {
    let recipe = brief();
    let stale = |summary: &Summary| summary.staleness.as_ref().expect("updates were applied").largest;
    let scene = recipe.scene();
    let asp = scene.train(&[&arguments("3", &[ASP])[..], &["--worker-speed", "1,1,0.1@0.1s"]].concat());
    let free = stale(&asp.summary());
    assert!(free > most_stale(3, 1), "without a bound it is exceeded: {free}");
    for (policy, bound) in [("sync.policy=\"ssp:0\"", 0), ("sync.policy=\"ssp:1\"", 1)] {
        let scene = recipe.scene();
        let speeds = ["--worker-speed", "1,1,0.3@0.1s"];
        let mut run = scene.train(&[&arguments("3", &[policy])[..], &speeds].concat());
        let mut random = Random(bound);
        for step in [15, 50] {
            assert!(run.reach(step));
            let workers = scene.workers();
            scene.kill_worker(random.pick(&workers).expect("somebody lives").1);
        }
        let summary = run.summary();
        whole(&scene, &summary);
        let ever = 3 + summary.crashes.len() as u64;
        assert!(stale(&summary) <= most_stale(ever, bound), "{policy}: {summary:?}");
        assert_eq!(
            updates(&summary),
            undisturbed(&recipe, "sync.servers=1"),
            "each unit counts once: {summary:?}"
        );
    }
}

#[test]
fn workers_that_are_killed_lose_no_update() {
    let recipe = brief();
    let expected = undisturbed(&recipe, "sync.servers=2");
    for (seed, all) in [(0, false), (1, false), (2, true)] {
        let scene = recipe.scene();
        let mut random = Random(seed);
        let mut run = scene.train(&arguments("3", &[ASP, "sync.servers=2"]));
        for step in [20, 50, 80] {
            assert!(run.reach(step), "the run is over at {}", scene.step());
            let workers = scene.workers();
            let one = random.below(workers.len() as u64) as usize;
            let killed = workers.iter().enumerate().filter(|(place, _)| all || *place == one);
            killed.for_each(|(_, (_, process))| scene.kill_worker(*process));
        }
        let summary = run.summary();
        whole(&scene, &summary);
        assert!(!summary.crashes.is_empty(), "{summary:?}");
        assert_eq!((rolled_back(&scene), replaced(&scene)), (vec![], vec![]));
        assert_eq!(updates(&summary), expected, "{summary:?}");
    }
}

/// Kills the server of the last shard when `step` is reached.
fn kill_a_server(scene: &Scene, run: &mut Live<'_>, step: u64) {
    assert!(run.reach(step), "the run is over at {}", scene.step());
    // Replicas have the smallest numbers, then come the servers of the shards in their order.
    let (_, process) = *servers(scene).last().expect("servers are there");
    scene.kill_worker(process);
}

#[test]
fn a_replica_takes_the_place_of_a_server() {
    let recipe = brief();
    let expected = undisturbed(&recipe, "sync.servers=1");
    let scene = recipe.scene();
    let mut run = scene.train(&arguments("3", &[ASP, "sync.servers=1", REPLICA]));
    kill_a_server(&scene, &mut run, 40);
    let summary = run.summary();
    whole(&scene, &summary);
    assert_eq!(replaced(&scene), [(0, None)]);
    assert_eq!(updates(&summary), expected, "nothing is lost: {summary:?}");

    let recipe = jobs::patient().steps(60);
    let scene = recipe.scene();
    let mut run = scene.train(&arguments("2", &[THROUGH_SERVERS, "sync.servers=1", REPLICA]));
    kill_a_server(&scene, &mut run, 20);
    let summary = run.summary();
    whole(&scene, &summary);
    assert_eq!((replaced(&scene), rolled_back(&scene)), (vec![(0, None)], vec![]));
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
}

#[test]
fn without_a_replica_the_loss_is_stated() {
    let recipe = brief();
    let scene = recipe.scene();
    let mut run = scene.train(&arguments("3", &[ASP, "sync.servers=2", CHECKPOINTS]));
    kill_a_server(&scene, &mut run, 50);
    let summary = run.summary();
    whole(&scene, &summary);
    let [(lost, Some(checkpoint))] = replaced(&scene)[..] else { panic!("{:?}", replaced(&scene)) };
    // Four units in a step; what came between the journal's line and the kill counts too.
    assert!(checkpoint >= 40 && checkpoint.is_multiple_of(20) && lost < 4 * (120 - checkpoint), "{lost}");
    assert!(rolled_back(&scene).is_empty());
}

#[test]
fn where_all_wait_for_all_the_steps_of_a_lost_shard_are_done_again() {
    let recipe = jobs::patient().steps(90);
    let scene = recipe.scene();
    let mut run = scene.train(&arguments("3", &[THROUGH_SERVERS, "sync.servers=2", CHECKPOINTS]));
    kill_a_server(&scene, &mut run, 50);
    let summary = run.summary();
    whole(&scene, &summary);
    let [(_, Some(checkpoint))] = replaced(&scene)[..] else { panic!("{:?}", replaced(&scene)) };
    assert!(checkpoint >= 40, "{checkpoint}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
}

#[test]
fn a_run_whose_coordinator_is_killed_goes_back_to_its_checkpoint() {
    let recipe = brief();
    let scene = recipe.scene();
    let mut run = scene.train(&arguments("3", &[ASP, CHECKPOINTS]));
    assert!(run.reach(50));
    run.kill();
    let summary = scene.resume(&["--workers", "3"]).summary();
    whole(&scene, &summary);
    let [to] = rolled_back(&scene)[..] else { panic!("{:?}", rolled_back(&scene)) };
    assert!(to >= 40 && to.is_multiple_of(20), "{to}");
    let asynchronous = summary.phases.iter().all(|phase| phase.protocol == Protocol::Asp);
    assert!(asynchronous && summary.phases.len() == 1, "{summary:?}");
}

#[test]
fn a_phase_follows_its_schedule_and_can_be_stopped() {
    let recipe = brief();
    let scene = recipe.scene();
    let mut run = scene.train(&[&arguments("2", &[ASP])[..], &["--resize", "20:4,40:1"]].concat());
    assert!(run.reach(50));
    let counts = scene.picked(|event| match event {
        Event::Membership { workers, .. } => Some(workers.len()),
        _ => None,
    });
    assert!(counts.contains(&4) && counts.last() == Some(&1), "{counts:?}");
    let (worker, process) = scene.workers()[0];
    assert_eq!(scene.call(&["scale", "job", "--workers", "2"]).code, Some(0));
    run.until("two workers", |event| match event {
        Event::Membership { step, workers, .. } if *step > 45 && workers.len() == 2 => Some(()),
        _ => None,
    });
    signal(process, Signal::TERM);
    run.until("a membership without it", |event| match event {
        Event::Membership { step, workers, .. } if *step > 45 => (!workers.contains(&worker)).then_some(()),
        _ => None,
    });
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    let stopped = run.summary();
    assert_eq!((stopped.outcome.word(), stopped.crashes.len()), ("stopped", 0), "{stopped:?}");
    no_worker_left(&scene);
    let resumed = scene.resume(&["--workers", "2"]).summary();
    whole(&scene, &resumed);
    assert!(rolled_back(&scene).is_empty());
}

#[test]
fn workers_and_servers_join_by_hand() {
    let recipe = brief();
    let scene = recipe.scene();
    let run = scene.train(&[&arguments("2", &[ASP])[..], &["--no-spawn"]].concat());
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    let join = |verb: &'static str| scene.start(&[verb, "--join", &address, "--token-file", &token]);
    let joined = [join("worker"), join("server"), join("worker")];
    let summary = run.summary();
    whole(&scene, &summary);
    for process in joined {
        let ended = process.end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    }
}

#[test]
fn a_wrong_table_is_refused_with_what_is_right() {
    let scene = jobs::momentum().scene();
    for (set, words) in [
        ("sync.polcy=\"bsp\"", &["unknown field `polcy`", "did you mean `policy`?"][..]),
        ("sync.policy=\"bps\"", &["invalid policy \"bps\"", "bsp, asp, ssp:K", "auto"]),
        ("sync.policy=\"ssp:x\"", &["invalid policy \"ssp:x\"", "ssp:3"]),
        ("sync.policy={ switch_at = 1.5 }", &["invalid share of the steps \"1.5\"", "from 0 to 1"]),
        (
            "sync.policy={ phases = [[0.5, \"asp\"]] }",
            &["invalid beginning of the first phase \"0.5\": expected 0"],
        ),
        ("sync.servers=0", &["sync.servers", "0 is not in 1…1024"]),
        ("sync.nodes_per_update=3", &["sync.nodes_per_update", "do not divide the 8"]),
        ("sync.order=\"windw\"", &["invalid order \"windw\"", "fifo, window:64KiB or priority"]),
        ("sync.reduce=\"server\"", &["unknown variant `server`", "did you mean `servers`?"]),
        ("sync.replica=2", &["expected a boolean"]),
    ] {
        scene.call(&["run", "job.toml", "--set", set]).refused_with(words);
    }
}

#[test]
fn a_server_that_holds_workers_up_is_named_in_the_journal() {
    let scene = Scene::new("");
    // Pulls and pushes of 4 MiB take longer than the gradients, and four workers want them at once.
    let job =
        synthetic("crowd", 1, 150, 2.0).replace("4KiB", "4MiB") + "[sync]\npolicy = \"asp\"\nservers = 1\n";
    scene.write("crowd.toml", &job);
    let run = scene.call(&["run", "crowd.toml", "--workers", "4"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let logs = scene.call(&["logs", "crowd-1", "-n", "10000"]).stdout;
    assert!(logs.contains("1 parameter server holds 4 workers up"), "{logs}");
    assert!(logs.contains("% of the"), "{logs}");
}
