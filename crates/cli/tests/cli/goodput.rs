//! Mode `goodput`: the batch moves, every change is in the journal, and the changes alone decide the bits.

use bellwether_core::record::{Event, Summary};
use rustix::process::Signal;

use crate::harness::{self, Scene};

/// A job of many short steps, whose gradients are noisy.
const JOB: &str = r#"
name = "job"
seed = 3
steps = 600

[mode.goodput]
max_batch = 256

[model]
kind = "mlp"
hidden = [24]

[data]
kind = "teacher"
samples = 6000
features = 12
classes = 4
held_out = 0.1

[batch]
size = 32
virtual_nodes = 4

[optimizer]
kind = "sgd"
learning_rate = 0.1
momentum = 0.9

[evaluation]
every_steps = 100
"#;

const SCHEDULE: [&str; 2] = ["--batch-schedule", "50:2,130:5,300:3"];

/// Boundaries and batches of the changes in the journal.
fn changes(scene: &Scene) -> Vec<(u64, u64, u64)> {
    scene.picked(|event| match event {
        Event::BatchChanged { step, from, to, .. } => Some((*step, *from, *to)),
        _ => None,
    })
}

fn forced(more: &[&str]) -> Summary {
    let scene = Scene::new(JOB);
    let summary = scene.train(&[&SCHEDULE, more].concat()).summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    // The first boundaries that are not before the steps.
    assert_eq!(changes(&scene), [(50, 32, 64), (130, 64, 160), (300, 160, 96)]);
    scene.audit();
    summary
}

#[test]
fn a_fixed_batch_gives_the_same_bits_for_any_workers() {
    let alone = forced(&["--workers", "1"]);
    assert_eq!((alone.steps, alone.batches.len()), (600, 3));
    for more in
        [&["--workers", "2"][..], &["--workers", "4"], &["--workers", "2", "--resize", "61:4,205:1,390:3"]]
    {
        assert_eq!(forced(more).params_digest, alone.params_digest, "{more:?}");
    }
}

#[test]
fn the_rate_follows_the_rule() {
    let factors = |rule: &str, kind: &str| -> Vec<f64> {
        let scene = Scene::new(&JOB.replace("kind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9", kind));
        let set = format!("mode.goodput.rule={rule}");
        let summary = scene.train(&[&SCHEDULE[..], &["--set", &set]].concat()).summary();
        summary.batches.iter().map(|change| change.learning_rate_factor).collect()
    };
    let sgd = "kind = \"sgd\"\nlearning_rate = 0.02";
    assert_eq!(factors("linear", sgd), [2.0, 5.0, 3.0]);
    let root = [2f64.sqrt(), 5f64.sqrt(), 3f64.sqrt()];
    assert_eq!(factors("square-root", "kind = \"adam\"\nlearning_rate = 0.002"), root);
    let gains = factors("adascale", sgd);
    let bounds = [2.0, 5.0, 3.0];
    assert!(gains.iter().zip(bounds).all(|(gain, most)| *gain > 1.0 && *gain <= most), "{gains:?}");
}

#[test]
fn a_measured_batch_grows_and_every_sample_counts_once() {
    let scene = Scene::new(JOB);
    let summary = scene.train(&["--workers", "2", "--steps", "3000"]).summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    let changes = changes(&scene);
    assert!(!changes.is_empty(), "the batch never moves");
    let largest = changes.iter().map(|(.., to)| *to).max().unwrap_or(0);
    assert!((64..=256).contains(&largest), "{changes:?}");
    assert!(
        summary.batches.iter().all(|change| change.reason.contains("samples/s are expected")),
        "{summary:?}"
    );
    assert_eq!((summary.steps, summary.crashes.len()), (3000, 0));
    scene.audit();
    // What the journal tells is enough to train the same bits again.
    let mut schedule: Vec<String> = Vec::new();
    for (step, _, to) in &changes {
        schedule.push(format!("{step}:{}", to / 32));
    }
    let again = Scene::new(JOB);
    let second = again
        .train(&["--workers", "3", "--steps", "3000", "--batch-schedule", &schedule.join(",")])
        .summary();
    assert_eq!(second.params_digest, summary.params_digest);
}

#[test]
fn a_fixed_batch_survives_the_death_of_workers_and_of_the_coordinator() {
    let undisturbed = forced(&["--workers", "1", "--steps", "600"]);
    let scene = Scene::new(JOB);
    let mut run = scene.train(&[&SCHEDULE[..], &["--workers", "3"]].concat());
    assert!(run.reach(90));
    let (_, process) = scene.workers()[1];
    scene.kill_worker(process);
    if run.reach(200) {
        harness::signal(run.process(), Signal::KILL);
    }
    run.end();
    let summary = scene.resume(&[]).summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    assert_eq!(summary.params_digest, undisturbed.params_digest);
    scene.audit();
}

#[test]
fn a_measured_batch_survives_the_death_of_workers_and_of_the_coordinator() {
    let scene = Scene::new(JOB);
    let mut run = scene.train(&["--workers", "3", "--steps", "4000"]);
    assert!(run.reach(400));
    let (_, process) = scene.workers()[0];
    scene.kill_worker(process);
    assert!(run.reach(900));
    harness::signal(run.process(), Signal::KILL);
    run.end();
    let summary = scene.resume(&[]).summary();
    assert_eq!((summary.outcome.word(), summary.steps), ("finished", 4000), "{summary:?}");
    assert!(!changes(&scene).is_empty());
    scene.audit();
}

#[test]
fn what_cannot_be_is_refused() {
    let exact = JOB.replace("[mode.goodput]\nmax_batch = 256", "");
    let refused = |job: &str, arguments: &[&str], words: &[&str]| {
        let ended = Scene::new(job).call(&[&["run", "job.toml"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
    };
    refused(&exact, &SCHEDULE, &["--batch-schedule", "`exact`", "max_batch"]);
    refused(&exact, &["--set", "mode.exact.rule=linear"], &["mode"]);
    refused(&exact.replace("name =", "max_batch = 64\nname ="), &[], &["unknown field `max_batch`"]);
    refused(JOB, &["--batch-schedule", "50:9"], &["9 times the batch of 32", "256"]);
    refused(JOB, &["--batch-schedule", "50:2,50:3"], &["do not rise"]);
    refused(JOB, &["--set", "mode.goodput.max_batch=8"], &["max_batch", "not in 32"]);
    refused(JOB, &["--set", "batch.virtual_nodes=1", "--workers", "1"], &["virtual_nodes", "noisy"]);
    let adam = JOB.replace(
        "kind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9",
        "kind = \"adam\"\nlearning_rate = 0.001",
    );
    refused(&adam, &["--set", "mode.goodput.rule=linear"], &["mode.goodput.rule", "square-root"]);
    refused(JOB, &["--set", "mode.goodput.rule=cubic"], &["cubic", "adascale"]);
}

#[test]
fn the_example_grows_its_batch_and_learns_as_well() {
    let job = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/goodput.toml"));
    let job = job.expect("the example is there").replace("name = \"goodput\"", "name = \"job\"");
    // Whether larger batches pay depends on the machine: the schedule makes them grow here, and there the measurement.
    let grown = Scene::new(&job).train(&["--batch-schedule", "100:2,400:4,900:8"]).summary();
    let exact = Scene::new(&job).train(&["--set", "mode=exact"]).summary();
    assert_eq!((grown.batches.len(), grown.examples), (3, exact.examples));
    let (grown, exact) = (grown.accuracy.expect("it has one"), exact.accuracy.expect("it has one"));
    // Five seeds differ by 0.3 points at most.
    assert!((grown - exact).abs() <= 0.01, "{grown} beside {exact}");
}
