//! Every job in `examples/` parses, builds and reaches what its comments promise.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bellwether_core::job::Job;

use crate::common::{Outcome, train};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn load(name: &str) -> Job {
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    let job: Job = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    job.check().unwrap().into_job()
}

fn run(name: &str) -> Outcome {
    let job = load(name);
    let open = |path: &Path| std::fs::read(folder().join(path));
    let mut workload = bellwether_workloads::build(&job, &open).unwrap();
    let start = Instant::now();
    let outcome = train(&job, workload.as_mut());
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    println!(
        "{name}: {:.1} s, loss {:.4} -> {:.4}, held-out loss {:.4}, held-out accuracy {:.2} % of {}\n  {}",
        start.elapsed().as_secs_f64(),
        outcome.losses[0],
        mean(&outcome.losses[outcome.losses.len().saturating_sub(10)..]),
        outcome.held_out.loss_sum / workload.held_out_samples().max(1) as f64,
        100.0 * outcome.accuracy,
        outcome.held_out.predictions,
        workload.fingerprint(),
    );
    outcome
}

#[test]
fn digits_reaches_97_percent() {
    assert!(run("digits.toml").accuracy >= 0.97);
}

#[test]
fn convnet_reaches_97_percent() {
    assert!(run("convnet.toml").accuracy >= 0.97);
}

#[test]
fn resnet_reaches_97_percent() {
    assert!(run("resnet.toml").accuracy >= 0.97);
}

#[test]
fn teacher_is_learnt() {
    assert!(run("teacher.toml").accuracy >= 0.90);
}

#[test]
fn transformer_learns_the_text() {
    let outcome = run("transformer.toml");
    // The most frequent byte, a space, is right about one time in six.
    assert!(outcome.accuracy > 0.3, "{}", outcome.accuracy);
}

#[test]
fn synthetic_runs() {
    let outcome = run("synthetic.toml");
    assert!(outcome.losses.iter().all(|loss| loss.is_finite()));
}

#[test]
fn goodput_is_learnt_with_the_batch_that_it_begins_with() {
    assert!(run("goodput.toml").accuracy >= 0.95);
}

#[test]
fn the_asynchronous_example_is_learnt_synchronously() {
    assert!(run("asynchronous.toml").accuracy >= 0.95);
}

#[test]
fn the_verified_example_is_learnt() {
    assert!(run("verified.toml").accuracy >= 0.95);
}

#[test]
fn every_example_is_run_here() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let jobs: Vec<&String> = names
        .iter()
        .filter(|name| toml::from_str::<Job>(&std::fs::read_to_string(folder().join(name)).unwrap()).is_ok())
        .collect();
    assert_eq!(
        jobs,
        [
            // Synchronous here: who waits for whom is the runtime's.
            "asynchronous.toml",
            "convnet.toml",
            "digits.toml",
            "goodput.toml",
            "resnet.toml",
            // Read by ranges, which the command's tests do.
            "streamed.toml",
            "synthetic.toml",
            "teacher.toml",
            "transformer.toml",
            "verified.toml"
        ]
    );
}

/// How much luck is in the numbers above: `JOB=digits.toml cargo test … -- --ignored --nocapture`.
#[test]
#[ignore = "a sweep, to choose hyper-parameters by"]
fn accuracies_over_seeds() {
    let name = std::env::var("JOB").unwrap_or_else(|_| "digits.toml".to_owned());
    let mut job = load(&name);
    let open = |path: &Path| std::fs::read(folder().join(path));
    let mut workload = bellwether_workloads::build(&job, &open).unwrap();
    let mut accuracies: Vec<f64> = (0..8)
        .map(|seed| {
            job.seed = seed;
            100.0 * train(&job, workload.as_mut()).accuracy
        })
        .collect();
    accuracies.sort_by(f64::total_cmp);
    println!("{name}: {accuracies:.2?}");
}
