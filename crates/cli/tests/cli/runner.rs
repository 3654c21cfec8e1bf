//! A job's processes, as they are wanted: started, resized, stopped, lost, taken over.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_core::parse;
use bellwether_core::record::{Event, RunOutcome};
use bellwether_runtime::control::Token;
use bellwether_serve::runner::{JobRunner, Patience, Processes, Report, Wanted};
use rustix::process::Signal;

use crate::harness::{PROGRAM, Scene, is_alive, signal, wait_for};
use crate::jobs::{self, Recipe};

/// A daemon's runner with what it reported, and one run that was not started.
struct Daemon<'s> {
    scene: &'s Scene,
    runner: Processes,
    reports: Arc<Mutex<Vec<Report>>>,
}

/// Makes the folder of a run, as the engine does.
fn prepare(recipe: &Recipe) -> Scene {
    prepare_text(recipe.scene(), &recipe.text())
}

fn prepare_text(scene: Scene, text: &str) -> Scene {
    let folder = scene.run_folder();
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    let mut job = parse::job(text, "job.toml", &[]).expect("the recipe is right").into_job();
    job.paths_mut().into_iter().for_each(|path| *path = scene.path("").join(&*path));
    let text = serde_json::to_vec(&job).expect("a job is plain data");
    fs::write(folder.join("job.json"), text).expect("the test's folder can be written");
    let token = Token::random().expect("there is randomness").to_text();
    fs::write(folder.join("token"), token).expect("the test's folder can be written");
    scene
}

impl<'s> Daemon<'s> {
    fn new(scene: &'s Scene) -> Daemon<'s> {
        Daemon::with(scene, Patience::default())
    }

    fn with(scene: &'s Scene, patience: Patience) -> Daemon<'s> {
        let reports: Arc<Mutex<Vec<Report>>> = Arc::default();
        let heard = Arc::clone(&reports);
        let runner = Processes::new(PROGRAM.into(), move |report| {
            heard.lock().expect("no thread panics with this lock").push(report)
        })
        .with_patience(patience);
        Daemon { scene, runner, reports }
    }

    fn want(&mut self, workers: u32) {
        self.want_on(workers, 1.0);
    }

    /// Wants workers on slots of this speed.
    fn want_on(&mut self, workers: u32, speed: f64) {
        let told = self.reports().iter().rev().find_map(|report| match report {
            Report::Ended { unix_s, .. } => Some(*unix_s),
            _ => None,
        });
        self.want_after(workers, speed, told);
    }

    /// Wants workers of a run whose end at this time is known.
    fn want_after(&mut self, workers: u32, speed: f64, known_end_unix_s: Option<f64>) {
        let run = self.scene.run_folder();
        self.runner.want(Wanted {
            provision: None,
            job: JobId(1),
            run,
            workers,
            servers: 0,
            speed,
            places: None,
            profiles: false,
            begins: true,
            known_end_unix_s,
        });
    }

    fn reports(&self) -> Vec<Report> {
        self.reports.lock().expect("no thread panics with this lock").clone()
    }

    /// Waits for the first report from number `from` on for which `pick` gives something.
    fn until<T>(&self, from: usize, what: &str, pick: impl Fn(&Report) -> Option<T>) -> T {
        wait_for(
            || format!("{what} in {:?}\n{:?}", self.reports(), self.scene.events()),
            || self.reports().iter().skip(from).find_map(&pick),
        )
    }

    fn until_trained_by(&self, from: usize, wanted: u32) {
        self.until(from, "a membership", |report| match report {
            Report::Training { workers, .. } => (*workers == wanted).then_some(()),
            _ => None,
        });
    }

    /// Waits until this many steps were reported to be committed.
    fn until_step(&self, least: u64) {
        self.until(0, "progress", |report| match report {
            Report::Progress { step, .. } => (*step >= least).then_some(()),
            _ => None,
        });
    }

    /// Waits for the end that is reported from number `from` on: how, and after which step with which digest.
    fn until_ended(&self, from: usize) -> (RunOutcome, u64, Option<String>) {
        self.until(from, "an end", |report| match report {
            Report::Ended { outcome, step, digest, .. } => Some((outcome.clone(), *step, digest.clone())),
            Report::Lost { why, .. } => panic!("it was lost: {why}"),
            _ => None,
        })
    }

    fn until_lost(&self, from: usize) -> String {
        self.until(from, "a loss", |report| match report {
            Report::Lost { why, .. } => Some(why.clone()),
            _ => None,
        })
    }

    /// The last thing that was said is an end, and it is the only one.
    #[track_caller]
    fn ended_once(&self, from: usize) {
        let reports = self.reports().split_off(from);
        let ends = |report: &Report| matches!(report, Report::Ended { .. } | Report::Lost { .. });
        assert_eq!(reports.iter().filter(|report| ends(report)).count(), 1, "{reports:?}");
        assert!(reports.last().is_some_and(ends), "{reports:?}");
    }
}

/// The process of the coordinator that began last.
fn coordinator(scene: &Scene) -> u32 {
    let began = |event: &Event| match event {
        Event::CoordinatorStarted { process, .. } => Some(*process),
        _ => None,
    };
    wait_for(|| "no coordinator".into(), || scene.picked(began).last().copied())
}

/// No coordinator began while another one was at work, unless that was killed.
#[track_caller]
fn one_at_a_time(scene: &Scene, killed: usize) {
    let mut at_work = false;
    let mut surprises = 0;
    for event in scene.events() {
        match event {
            Event::CoordinatorStarted { .. } => {
                surprises += usize::from(std::mem::replace(&mut at_work, true))
            }
            Event::Ended { .. } => at_work = false,
            _ => assert!(at_work, "{event:?} without a coordinator"),
        }
    }
    assert_eq!(surprises, killed, "{:?}", scene.events());
    scene.audit();
}

#[test]
fn from_the_start_to_the_end_through_changes_of_size() {
    let recipe = jobs::patient().steps(300);
    let scene = prepare(&recipe);
    let mut daemon = Daemon::new(&scene);
    daemon.want(1);
    daemon.until_trained_by(0, 1);
    daemon.until_step(20);
    let before = daemon.reports().len();
    daemon.want(3);
    daemon.until_trained_by(before, 3);
    let before = daemon.reports().len();
    daemon.want(2);
    daemon.until_trained_by(before, 2);
    // Then the third is gone, not only out of the membership.
    daemon.until(before, "two are left", |report| match report {
        Report::Settled { workers, .. } => (*workers == 2).then_some(()),
        _ => None,
    });
    assert!(scene.workers().len() <= 2, "{:?}", scene.workers());
    let (end, step, digest) = daemon.until_ended(0);
    assert_eq!((end, step, digest), (RunOutcome::Finished, 300, Some(recipe.digest())));
    daemon.ended_once(0);
    let reports = daemon.reports();
    let progress: Vec<u64> = reports
        .iter()
        .filter_map(|report| match report {
            Report::Progress { step, .. } => Some(*step),
            _ => None,
        })
        .collect();
    assert!(progress.windows(2).all(|pair| pair[0] < pair[1]), "{progress:?}");
    assert_eq!(progress.last(), Some(&300), "the last step is told before the end");
    let rates = |report: &Report| match report {
        Report::Progress { examples_per_s, loss, .. } => loss.and(*examples_per_s),
        _ => None,
    };
    // 16 samples in 10 ms on each of 4 virtual nodes, shared by at most 3 workers.
    assert!(reports.iter().filter_map(rates).all(|rate| rate > 50.0 && rate < 1600.0), "{reports:?}");
    let learnt = |report: &Report| match report {
        Report::Steps { workers, steps, .. } => Some((*workers, steps.len())),
        _ => None,
    };
    let learnt: Vec<(u32, usize)> = reports.iter().filter_map(learnt).collect();
    assert!(
        learnt.iter().any(|(workers, _)| *workers == 1) && learnt.iter().any(|(workers, _)| *workers == 2)
    );
    assert!(learnt.iter().map(|(_, steps)| steps).sum::<usize>() > 100, "{learnt:?}");
    one_at_a_time(&scene, 0);
    let summary =
        wait_for(|| "no summary".into(), || fs::read_to_string(scene.run_folder().join("summary.json")).ok());
    assert!(summary.is_empty() || serde_json::from_str::<serde_json::Value>(&summary).is_ok(), "{summary}");
}

#[test]
fn stopped_and_wanted_again() {
    let recipe = jobs::patient().steps(200);
    let scene = prepare(&recipe);
    let mut daemon = Daemon::new(&scene);
    // It is wanted away before it has begun.
    daemon.want(2);
    daemon.want(0);
    let (end, step, _) = daemon.until_ended(0);
    assert_eq!(end, RunOutcome::Stopped);
    assert!(step < 200);
    daemon.ended_once(0);
    let mut committed = step;
    for workers in [2, 1] {
        let before = daemon.reports().len();
        daemon.want(workers);
        daemon.until_trained_by(before, workers);
        daemon.until_step(committed + 20);
        daemon.want(0);
        let (end, step, _) = daemon.until_ended(before);
        assert_eq!(end, RunOutcome::Stopped);
        daemon.ended_once(before);
        assert!(step >= committed + 20, "what was reported is committed");
        committed = step;
        // It is gone: there is nothing more to say.
        daemon.want(0);
    }
    let before = daemon.reports().len();
    daemon.want(4);
    let (end, step, digest) = daemon.until_ended(before);
    assert_eq!((end, step, digest), (RunOutcome::Finished, 200, Some(recipe.digest())));
    daemon.ended_once(before);
    let rollbacks = scene.picked(|event| matches!(event, Event::RolledBack { .. }).then_some(()));
    assert_eq!(rollbacks.len(), 0, "no committed step was lost");
    one_at_a_time(&scene, 0);
}

#[test]
fn a_change_that_crosses_the_end_begins_nothing() {
    let recipe = jobs::patient().steps(20);
    let scene = prepare(&recipe);
    let mut daemon = Daemon::new(&scene);
    daemon.want(1);
    assert_eq!(daemon.until_ended(0).0, RunOutcome::Finished);
    let change = |workers, begins| {
        let run = scene.run_folder();
        Wanted {
            provision: None,
            job: JobId(1),
            run,
            workers,
            servers: 0,
            speed: 1.0,
            places: None,
            profiles: false,
            begins,
            known_end_unix_s: None,
        }
    };
    // A daemon that has not heard of the end wants it to grow.
    daemon.runner.want(change(2, false));
    daemon.runner.want(change(0, false));
    // A job of which nothing was ever wanted is left alone, too.
    let other = prepare(&recipe);
    let mut runner = Daemon::new(&other);
    runner.runner.want(Wanted { run: other.run_folder(), ..change(2, false) });
    std::thread::sleep(Duration::from_millis(300));
    daemon.ended_once(0);
    assert!(runner.reports().is_empty() && other.workers().is_empty());
}

#[test]
fn wanted_back_while_it_leaves() {
    let recipe = jobs::patient().steps(100);
    let scene = prepare(&recipe);
    let mut daemon = Daemon::new(&scene);
    daemon.want(1);
    daemon.until_step(10);
    daemon.want(0);
    wait_for(
        || "no stop".into(),
        || scene.picked(|event| matches!(event, Event::StopRequested { .. }).then_some(())).pop(),
    );
    daemon.want(2);
    let (end, step, digest) = daemon.until(0, "an end", |report| match report {
        Report::Ended { outcome: RunOutcome::Stopped, .. } => None,
        Report::Ended { outcome, step, digest, .. } => Some((outcome.clone(), *step, digest.clone())),
        _ => None,
    });
    assert_eq!((end, step, digest), (RunOutcome::Finished, 100, Some(recipe.digest())));
    one_at_a_time(&scene, 0);
}

#[test]
fn a_step_may_take_longer_than_the_patience_with_all_jobs() {
    let recipe = jobs::patient().steps(50);
    // A step is the sleep of 4 virtual nodes.
    let text = recipe.text().replace("step_time = \"10ms\"", "step_time = \"250ms\"");
    assert_ne!(text, recipe.text());
    let scene = prepare_text(recipe.scene(), &text);
    let floor = Duration::from_millis(500);
    let mut daemon = Daemon::with(&scene, Patience { floor, ..Patience::default() });
    daemon.want(1);
    daemon.until_step(1);
    daemon.want(0);
    let (end, step, _) = daemon.until_ended(0);
    assert!(end == RunOutcome::Stopped && step >= 1);
    // Who does not leave at all is killed, and what it had committed since its checkpoint is gone.
    let before = daemon.reports().len();
    let known = daemon.until(0, "an end", |report| match report {
        Report::Ended { unix_s, .. } => Some(*unix_s),
        _ => None,
    });
    daemon.want_after(1, 1.0, Some(known));
    daemon.until_trained_by(before, 1);
    signal(coordinator(&scene), Signal::STOP);
    daemon.want(0);
    let why = daemon.until_lost(before);
    assert!(why.contains("did not leave within") && why.contains("were killed"), "{why}");
}

#[test]
fn what_was_stopped_by_hand_without_a_daemon_stays_so() {
    let scene = prepare(&jobs::patient().steps(300));
    let mut first = Daemon::new(&scene);
    first.want(1);
    first.until_step(10);
    drop(first);
    assert_eq!(scene.call(&["stop", "job-1"]).code, Some(0));
    wait_for(
        || "no end".into(),
        || scene.picked(|event| matches!(event, Event::Ended { .. }).then_some(())).pop(),
    );
    let mut second = Daemon::new(&scene);
    second.want(1);
    let unix_s = second.until(0, "an end", |report| match report {
        Report::Ended { outcome: RunOutcome::Stopped, unix_s, .. } => Some(*unix_s),
        _ => None,
    });
    second.ended_once(0);
    // A daemon that knows of that end and wants it again gets it.
    drop(second);
    let mut third = Daemon::new(&scene);
    third.want_after(1, 1.0, Some(unix_s));
    third.until_trained_by(0, 1);
    third.want(0);
    assert_eq!(third.until_ended(0).0, RunOutcome::Stopped);
}

#[test]
fn a_coordinator_is_killed() {
    let recipe = jobs::patient().steps(200);
    let scene = prepare(&recipe);
    let mut daemon = Daemon::new(&scene);
    daemon.want(2);
    daemon.until_step(20);
    let workers = scene.workers();
    signal(coordinator(&scene), Signal::KILL);
    let why = daemon.until_lost(0);
    assert!(why.contains("signal: 9"), "{why}");
    daemon.ended_once(0);
    assert!(workers.iter().all(|(_, process)| is_alive(*process)), "its workers wait");
    let before = daemon.reports().len();
    daemon.want(2);
    let (end, step, digest) = daemon.until_ended(before);
    assert_eq!((end, step, digest), (RunOutcome::Finished, 200, Some(recipe.digest())));
    let came_back = scene.picked(|event| match event {
        Event::WorkerAttached { held_step: Some(_), process, .. } => Some(*process),
        _ => None,
    });
    assert_eq!(came_back.len(), 2);
    one_at_a_time(&scene, 1);
}

#[test]
fn its_port_is_taken_meanwhile() {
    let recipe = jobs::patient().steps(100);
    let scene = prepare(&recipe);
    let mut daemon = Daemon::new(&scene);
    daemon.want(1);
    daemon.until_step(10);
    let address = scene.endpoint().control;
    signal(coordinator(&scene), Signal::KILL);
    daemon.until_lost(0);
    let taken = wait_for(|| format!("a free {address}"), || std::net::TcpListener::bind(address).ok());
    let before = daemon.reports().len();
    daemon.want(1);
    let (end, step, digest) = daemon.until_ended(before);
    assert_eq!((end, step, digest), (RunOutcome::Finished, 100, Some(recipe.digest())));
    // The last to leave takes a moment after the end was told.
    wait_for(
        || format!("those who looked at the old port to be gone: {:?}", scene.workers()),
        || scene.workers().is_empty().then_some(()),
    );
    drop(taken);
    one_at_a_time(&scene, 1);
}

#[test]
fn slow_slots_slow_all_workers_down() {
    let scene = prepare(&jobs::patient().steps(100_000));
    let mut daemon = Daemon::new(&scene);
    daemon.want_on(1, 0.5);
    daemon.until_trained_by(0, 1);
    daemon.want_on(2, 0.5);
    daemon.until_trained_by(0, 2);
    let words = |process: u32| fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    for (_, process) in scene.workers() {
        let words = String::from_utf8_lossy(&words(process)).replace('\0', " ");
        assert!(words.contains("--speed=0.5"), "{words}");
    }
    let process = coordinator(&scene);
    let group = |process: u32| {
        let process = rustix::process::Pid::from_raw(i32::try_from(process).unwrap());
        rustix::process::getpgid(process).unwrap().as_raw_nonzero().get().unsigned_abs()
    };
    assert_eq!(group(process), process, "no Ctrl-C of ours reaches it");
    daemon.want_on(0, 0.5);
    assert_eq!(daemon.until_ended(0).0, RunOutcome::Stopped);
}

#[test]
fn the_next_daemon_takes_over() {
    let recipe = jobs::patient().steps(300);
    let scene = prepare(&recipe);
    let mut first = Daemon::new(&scene);
    first.want(2);
    first.until_step(10);
    let process = coordinator(&scene);
    drop(first);
    let mut second = Daemon::new(&scene);
    second.want(2);
    second.until_trained_by(0, 2);
    second.until_step(20);
    second.want(3);
    second.until_trained_by(0, 3);
    assert_eq!(coordinator(&scene), process, "it is the same as before");
    drop(second);
    // It ends while no daemon looks.
    wait_for(
        || "no end".into(),
        || scene.picked(|event| matches!(event, Event::Ended { .. }).then_some(())).pop(),
    );
    let mut third = Daemon::new(&scene);
    third.want(3);
    let (end, step, digest) = third.until_ended(0);
    assert_eq!((end, step, digest), (RunOutcome::Finished, 300, Some(recipe.digest())));
    third.ended_once(0);
    let asked = scene.picked(|event| match event {
        Event::ScaleRequested { workers, .. } => Some(*workers),
        _ => None,
    });
    assert_eq!(asked, [3], "who has what is wanted is not asked again");
    one_at_a_time(&scene, 0);
}

/// Processes that coordinate the scene's run, or try to.
fn coordinators(scene: &Scene) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok());
    let coordinates = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        scene.owns(*process) && String::from_utf8_lossy(&line).contains("--resume")
    };
    numbers.filter(coordinates).collect()
}

#[test]
fn two_daemons_want_the_same_run() {
    let recipe = jobs::patient().steps(400);
    let scene = prepare(&recipe);
    let mut daemons = [Daemon::new(&scene), Daemon::new(&scene), Daemon::new(&scene)];
    daemons.iter_mut().for_each(|daemon| daemon.want(2));
    // One that starts late would find the run stopped, and take it up again: each must follow it by now,
    // and the coordinators that lost must be gone.
    daemons.iter().for_each(|daemon| daemon.until_step(20));
    wait_for(
        || format!("one coordinator of {:?}", coordinators(&scene)),
        || (coordinators(&scene).len() == 1).then_some(()),
    );
    daemons[1].want(0);
    for daemon in &daemons {
        assert_eq!(daemon.until_ended(0).0, RunOutcome::Stopped);
        daemon.ended_once(0);
    }
    daemons.iter_mut().for_each(|daemon| daemon.want(1));
    for daemon in &daemons {
        let finished = daemon.until(0, "the end", |report| match report {
            Report::Ended { outcome: RunOutcome::Finished, digest, .. } => digest.clone(),
            Report::Lost { why, .. } => panic!("lost: {why}"),
            _ => None,
        });
        assert_eq!(finished, recipe.digest());
    }
    one_at_a_time(&scene, 0);
}

#[test]
fn a_job_that_cannot_run() {
    let recipe = jobs::transformer();
    let scene = prepare(&recipe);
    fs::remove_file(scene.path("text.txt")).unwrap();
    let mut daemon = Daemon::new(&scene);
    for _ in 0..2 {
        let before = daemon.reports().len();
        daemon.want(2);
        let why = daemon.until_lost(before);
        assert!(why.contains("text.txt") && why.contains("No such file"), "{why}");
        assert!(!why.contains('\n') && !why.starts_with("error"), "{why}");
        daemon.ended_once(before);
    }
    // A run that never began, and one without a folder.
    let mut other = Daemon::new(&scene);
    other.want(0);
    assert_eq!(other.until_ended(0), (RunOutcome::Stopped, 0, None));
    fs::remove_dir_all(scene.run_folder()).unwrap();
    let before = daemon.reports().len();
    daemon.want(1);
    assert!(daemon.until_lost(before).contains("job-1"));
}
