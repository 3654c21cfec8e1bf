//! Unlike workers in one run: two kernel classes, and shares that follow what each worker takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::job;
use bellwether::session::{
    Director, DirectorCommand, Event, RunEvent, RunOutcome, RunStatus, Session, Sharing, StateDir, Summary,
};
use bellwether::workload::{Evaluation, Layout, Loss, MicroBatch, Weights, Workload, WorkloadError};

use crate::session::own_workload::{JOB, Line};

const MIXED: &str = "mode = \"mixed\"\n";

/// The line, by other kernels: class 1 rounds otherwise. Each virtual node takes as long as the number says that the
/// worker shares with its test, in milliseconds.
struct Unlike {
    line: Line,
    class: usize,
    node_ms: Arc<AtomicU64>,
}

impl Workload for Unlike {
    fn layout(&self) -> &Layout {
        self.line.layout()
    }

    fn training_samples(&self) -> u64 {
        self.line.training_samples()
    }

    fn held_out_samples(&self) -> u64 {
        self.line.held_out_samples()
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        self.line.initialize(seed, parameters, state);
        // Another mathematics library draws other weights.
        parameters[0] += self.class as f32 * 1e-3;
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        std::thread::sleep(Duration::from_millis(self.node_ms.load(Ordering::Relaxed)));
        let loss = self.line.gradient(weights, batch, seed, gradient_out, state_out)?;
        let rounding = 1.0 + self.class as f32 * 3e-7;
        gradient_out.iter_mut().for_each(|value| *value *= rounding);
        Ok(loss)
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        self.line.evaluate(weights, batch)
    }

    fn fingerprint(&self) -> String {
        format!("line 1; kernels {}; data 64", self.class)
    }
}

/// Keeps what the journal says, and does what a test wants once.
struct Watch<F> {
    seen: Arc<Mutex<Vec<Event>>>,
    act: F,
}

impl<F: FnMut(&RunStatus<'_>) -> Vec<DirectorCommand>> Director for Watch<F> {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        if let RunEvent::Journal(event) = seen {
            self.seen.lock().expect("no thread panicked").push(event.clone());
        }
        (self.act)(now)
    }
}

/// A session of workers of which the one that is built k-th is of class `classes[k]`, the last of them for all that
/// come later, and takes as long as `node_ms[k]`.
fn session(text: &str, folder: &StateDir, classes: &'static [usize], node_ms: &[Arc<AtomicU64>]) -> Session {
    let built = AtomicU64::new(0);
    let node_ms = node_ms.to_vec();
    let build = move |_: &job::Job| {
        let place = built.fetch_add(1, Ordering::SeqCst) as usize;
        let (class, node_ms) =
            (classes[place.min(classes.len() - 1)], node_ms[place.min(node_ms.len() - 1)].clone());
        Ok(Box::new(Unlike { line: Line::new(Duration::ZERO), class, node_ms }) as _)
    };
    Session::builder(job::parse(text, "line", &[]).expect("a job")).workload(build).state_dir(folder.clone())
}

fn watched(
    session: Session,
    act: impl FnMut(&RunStatus<'_>) -> Vec<DirectorCommand> + 'static,
) -> (Summary, RunOutcome, Vec<Event>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let session = session.director(Box::new(Watch { seen: seen.clone(), act }));
    let (summary, outcome) = session.run(&mut |_| {}).expect("it begins");
    let seen = seen.lock().expect("no thread panicked").clone();
    (summary, outcome, seen)
}

fn times<const N: usize>(node_ms: [u64; N]) -> [Arc<AtomicU64>; N] {
    node_ms.map(|node_ms| Arc::new(AtomicU64::new(node_ms)))
}

fn state_dir() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let state_dir = StateDir::find(Some(folder.path().into())).expect("a folder");
    (folder, state_dir)
}

/// The kernel classes that workers were said to have, and what was trained.
fn classes(seen: &[Event]) -> (Vec<&str>, Vec<&str>) {
    let mut classes: Vec<&str> = seen
        .iter()
        .filter_map(|event| match event {
            Event::KernelClass { class, .. } => Some(class.as_str()),
            _ => None,
        })
        .collect();
    classes.sort_unstable();
    classes.dedup();
    let tasks = seen.iter().filter_map(|event| match event {
        Event::TaskKnown { fingerprint, .. } => Some(fingerprint.as_str()),
        _ => None,
    });
    (classes, tasks.collect())
}

const BOTH: [&str; 2] = ["line 1; kernels 0; data 64", "line 1; kernels 1; data 64"];

#[test]
fn a_mixed_run_trains_with_two_kernel_classes_and_says_whose_is_which() {
    let (_folder, state_dir) = state_dir();
    let exact = session(JOB, &state_dir, &[0], &times([0])).run(&mut |_| {}).unwrap().0;
    let text = format!("{MIXED}{JOB}clip_norm = 10.0\n");
    // The first is built before the run begins, to look at its layout.
    let session = session(&text, &state_dir, &[0, 0, 1, 0, 1], &times([1])).workers(1..=4).start(1);
    let (mut grown, mut killed) = (false, false);
    let (summary, outcome, seen) = watched(session.sharing(Sharing::Equal), move |now| {
        if !grown && now.step >= 10 {
            grown = true;
            return vec![DirectorCommand::Scale { workers: 3, by: "the test".into() }];
        }
        if !killed && now.membership.active.len() == 3 {
            killed = true;
            return vec![DirectorCommand::Revoke(now.membership.active[0].worker)];
        }
        Vec::new()
    });
    assert_eq!((outcome, summary.steps), (RunOutcome::Finished, 400));
    assert!(summary.final_loss < Some(0.05) && summary.workers.contains(&3), "{summary:?}");
    // Another rounding of the same training.
    let apart = summary.final_loss.zip(exact.final_loss).map(|(mixed, exact)| (mixed - exact).abs());
    assert!(apart < Some(1e-4), "{apart:?}");
    assert_eq!(classes(&seen), (BOTH.to_vec(), vec!["mixed; data 64"]));
    assert!(!seen.iter().any(|event| matches!(event, Event::Refused { .. })));
}

#[test]
fn a_mixed_run_is_taken_up_again_by_another_kernel_class() {
    let (_folder, state_dir) = state_dir();
    let text = format!("{MIXED}{JOB}");
    let mut asked = false;
    let (stopped, outcome, _) = watched(session(&text, &state_dir, &[0], &times([1])), move |now| {
        let stops = !asked && now.step >= 50;
        asked |= stops;
        if stops { vec![DirectorCommand::Stop { by: "the test".into() }] } else { Vec::new() }
    });
    assert_eq!(outcome, RunOutcome::Stopped);
    let again = || {
        let run = state_dir.run(&stopped.run).unwrap();
        session(&text, &state_dir, &[1], &times([0])).resume(run)
    };
    let (summary, outcome, seen) = watched(again(), |_| Vec::new());
    assert_eq!((outcome, summary.steps), (RunOutcome::Finished, 400));
    assert_eq!(classes(&seen).0, &BOTH[1..]);
}

#[test]
fn a_run_of_one_class_goes_on_with_no_other() {
    let (_folder, state_dir) = state_dir();
    let short = JOB.replace("steps = 400", "steps = 10");
    let digest = |classes| {
        let run = session(&short, &state_dir, classes, &times([0])).workers(1..=1).run(&mut |_| {});
        run.unwrap().0.params_digest
    };
    assert_ne!(digest(&[0]), digest(&[1]), "unlike kernels train other bits");
    let mut asked = false;
    let (stopped, ..) = watched(session(JOB, &state_dir, &[0], &times([1])), move |now| {
        let stops = !asked && now.step >= 20;
        asked |= stops;
        if stops { vec![DirectorCommand::Stop { by: "the test".into() }] } else { Vec::new() }
    });
    let run = state_dir.run(&stopped.run).unwrap();
    let error = session(JOB, &state_dir, &[1], &times([0])).resume(run).run(&mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("kernels 1"), "{error}");
}

#[test]
fn asynchronous_phases_are_open_to_any_kernel_class() {
    let (_folder, state_dir) = state_dir();
    let text = format!("{JOB}[sync]\npolicy = \"asp\"\n");
    let session = session(&text, &state_dir, &[0, 0, 1], &times([1]));
    let (summary, outcome, seen) = watched(session, |_| Vec::new());
    assert_eq!((outcome, summary.steps), (RunOutcome::Finished, 400));
    assert!(summary.final_loss < Some(0.05), "{:?}", summary.final_loss);
    assert_eq!(classes(&seen), (BOTH.to_vec(), vec!["mixed; data 64"]));
}

/// The virtual nodes of each worker of all memberships, by the boundary at which each began.
fn shares(seen: &[Event]) -> Vec<(u64, Vec<(u64, u32)>)> {
    let membership = |event: &Event| match event {
        Event::Membership { step, workers, bounds, .. } => {
            let counts = bounds.windows(2).map(|pair| pair[1] - pair[0]);
            Some((*step, workers.iter().copied().zip(counts).collect()))
        }
        _ => None,
    };
    seen.iter().filter_map(membership).collect()
}

fn decisions(seen: &[Event]) -> Vec<String> {
    let decided = seen.iter().filter_map(|event| match event {
        Event::Decided(decision) if decision.by == "shares" => Some(decision.sentence()),
        _ => None,
    });
    decided.collect()
}

#[test]
fn shares_follow_measured_speeds_and_the_bits_stay_the_same() {
    let (_folder, state_dir) = state_dir();
    let text = JOB.replace("steps = 400", "steps = 80");
    let quiet = session(&text, &state_dir, &[0], &times([0])).workers(1..=1).run(&mut |_| {}).unwrap().0;
    let (_folder, state_dir) = self::state_dir();
    let unlike =
        session(&text, &state_dir, &[0], &times([0, 3, 12])).workers(2..=2).sharing(Sharing::Measured);
    let (summary, outcome, seen) = watched(unlike, |_| Vec::new());
    assert_eq!(outcome, RunOutcome::Finished);
    assert_eq!(summary.params_digest, quiet.params_digest);
    let shares = shares(&seen);
    let (_, last) = shares.last().unwrap();
    let counts: Vec<u32> = last.iter().map(|(_, count)| *count).collect();
    assert!(shares.len() >= 2 && counts.iter().max() >= Some(&6), "{shares:?}");
    let decisions = decisions(&seen);
    assert!(decisions[0].contains("samples/s are expected"), "{decisions:?}");
}

#[test]
fn a_mixed_run_shares_the_work_by_what_it_measures() {
    let (_folder, state_dir) = state_dir();
    let text = format!("{MIXED}{}", JOB.replace("steps = 400", "steps = 120"));
    let node_ms = times([0, 6, 6]);
    let slow = node_ms[2].clone();
    let mixed = session(&text, &state_dir, &[0, 0, 1], &node_ms).workers(2..=2);
    let changed = Arc::new(AtomicU64::new(0));
    let at = changed.clone();
    let (_, outcome, seen) = watched(mixed, move |now| {
        if now.step >= 30 && slow.swap(24, Ordering::Relaxed) != 24 {
            at.store(now.step, Ordering::Relaxed);
        }
        Vec::new()
    });
    assert_eq!(outcome, RunOutcome::Finished);
    let changed = changed.load(Ordering::Relaxed);
    let uneven = |(_, counts): &&(u64, Vec<(u64, u32)>)| counts.iter().any(|(_, count)| *count >= 6);
    let shares = shares(&seen);
    let (step, _) = shares.iter().find(uneven).unwrap_or_else(|| panic!("{shares:?} {:?}", decisions(&seen)));
    // A busy machine takes a few steps more to see than the twenty that the law promises.
    assert!((changed..changed + 40).contains(step), "slow after {changed}: {shares:?}");
}

#[test]
fn a_worker_that_holds_up_the_others_is_left_out_with_the_figures() {
    let (_folder, state_dir) = state_dir();
    let text = format!("{MIXED}{}", JOB.replace("steps = 400", "steps = 60"));
    let mixed = session(&text, &state_dir, &[0, 0, 1], &times([0, 4, 80])).workers(1..=2).start(2);
    let (summary, outcome, seen) = watched(mixed, |_| Vec::new());
    assert_eq!(outcome, RunOutcome::Finished);
    assert_eq!(summary.workers.last(), Some(&1), "{summary:?}");
    let decisions = decisions(&seen);
    assert!(decisions[0].contains("2 → 1: without worker"), "{decisions:?}");
    assert_eq!(summary.crashes, []);
    // The same where the job is to have two.
    let two = session(&text.replace("steps = 60", "steps = 20"), &state_dir, &[0, 0, 1], &times([0, 4, 80]));
    let (summary, _, seen) = watched(two.workers(2..=2), |_| Vec::new());
    assert!(summary.workers.iter().all(|workers| *workers == 2), "{summary:?}");
    let decisions = self::decisions(&seen);
    assert!(decisions[0].ends_with("the run is to have no fewer"), "{decisions:?}");
}

#[test]
fn a_straggler_has_less_before_it_is_replaced() {
    let (_folder, state_dir) = state_dir();
    let text = format!("{MIXED}{}", JOB.replace("steps = 400", "steps = 80"));
    let mixed =
        session(&text, &state_dir, &[0], &times([0, 4, 4, 60, 4])).workers(3..=3).replace_stragglers(4);
    let (summary, outcome, seen) = watched(mixed, |_| Vec::new());
    assert_eq!((outcome, summary.crashes.len()), (RunOutcome::Finished, 0));
    let is_less = |event: &Event| matches!(event, Event::Decided(decision) if decision.reason.starts_with("virtual nodes"));
    let less = seen.iter().position(is_less);
    let replaced = seen.iter().enumerate().find_map(|(place, event)| match event {
        Event::Straggler { worker, .. } => Some((place, *worker)),
        _ => None,
    });
    let (Some(less), Some((replaced, slow))) = (less, replaced) else {
        panic!("{less:?} {replaced:?}: {:?}", decisions(&seen))
    };
    assert!(less < replaced);
    let shares = shares(&seen);
    assert!(shares.last().unwrap().1.iter().all(|(worker, _)| *worker != slow), "{shares:?}");
}
