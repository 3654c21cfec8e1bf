//! The laws of a workload: pure, complete, additive; and what a job that cannot work is told.

use std::path::Path;
use std::process::Command;

use bellwether_core::job::{CellEdges, CellOperation, Job};
use bellwether_runtime::workload::{MicroBatch, Weights, Workload, tensor_ranges};
use bellwether_workloads::Supernet;

use crate::common::{IDX, build_with, evaluate, gradient, idx_files, initial, job, train};

/// A cell of which every edge decides the output.
const ARCHITECTURE: &str = "|conv3x3~0|+|avgpool3x3~0|conv1x1~1|+|skip~0|conv3x3~1|conv1x1~2|";

/// One small job per model.
fn all() -> Vec<(&'static str, Job, Box<dyn Workload>)> {
    let text: Vec<u8> = (0..2000u32).map(|place| b'a' + (place * place % 26) as u8).collect();
    let cell = format!("{{ kind = \"cell\", channels = 4, stages = 2, architecture = {ARCHITECTURE:?} }}");
    let models = [
        ("mlp", "{ kind = \"mlp\", hidden = [32, 16], dropout = 0.2 }", "{ kind = \"digits\" }"),
        ("convnet", "{ kind = \"convnet\" }", "{ kind = \"digits\" }"),
        ("resnet", "{ kind = \"resnet\", blocks = 1, width = 4 }", "{ kind = \"digits\" }"),
        ("supernet", "{ kind = \"cell\", channels = 4, cells = 2, stages = 2 }", "{ kind = \"digits\" }"),
        ("cell", &cell, "{ kind = \"digits\" }"),
        (
            "transformer",
            "{ kind = \"transformer\", context = 16, width = 16, layers = 1, heads = 2, dropout = 0.1 }",
            "{ kind = \"text\", path = \"t\" }",
        ),
        (
            "teacher",
            "{ kind = \"mlp\", hidden = [16] }",
            "{ kind = \"teacher\", samples = 200, features = 6, classes = 3 }",
        ),
        (
            "synthetic",
            "{ kind = \"synthetic\", step_time = \"1us\", parameters = \"4KiB\" }",
            "{ kind = \"indices\", samples = 100 }",
        ),
    ];
    let build = |(name, model, data): (&'static str, &str, &str)| {
        let job = job(model, data);
        let workload = build_with(&job, &[("t", text.clone())]);
        (name, job, workload)
    };
    models.into_iter().map(build).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn gradient_and_evaluate_are_pure_and_complete() {
    for ((name, _, mut workload), (_, _, mut fresh)) in all().into_iter().zip(all()) {
        let (parameters, state) = initial(workload.as_mut(), 3);
        let (other, _) = initial(workload.as_mut(), 4);
        assert_ne!(bits(&parameters), bits(&other), "{name}");
        let samples = [7, 1, 19, 4];
        let first = gradient(workload.as_mut(), (&parameters, &state, 0), &samples, 5);
        assert!(first.gradient.iter().chain(&first.state).all(|value| value.is_finite()), "{name}");
        let held_out: Vec<u64> = (0..workload.held_out_samples().min(20)).collect();
        let weights = Weights { parameters: &parameters, state: &state, version: 0 };
        let evaluation = workload.evaluate(weights, MicroBatch { samples: &held_out }).unwrap();
        // Other samples, other parameters, other seeds in between.
        gradient(workload.as_mut(), (&parameters, &state, 0), &[2, 3], 6);
        gradient(workload.as_mut(), (&other, &state, 1), &samples, 5);
        for workload in [&mut workload, &mut fresh] {
            let again = gradient(workload.as_mut(), (&parameters, &state, 2), &samples, 5);
            assert_eq!(first.loss.to_bits(), again.loss.to_bits(), "{name}");
            assert_eq!(bits(&first.gradient), bits(&again.gradient), "{name}");
            assert_eq!(bits(&first.state), bits(&again.state), "{name}");
            let weights = Weights { version: 2, ..weights };
            let repeated = workload.evaluate(weights, MicroBatch { samples: &held_out }).unwrap();
            assert_eq!(evaluation, repeated, "{name}");
        }
        assert_eq!(workload.fingerprint(), fresh.fingerprint(), "{name}");
    }
}

#[test]
fn micro_batches_add_up_to_the_batch() {
    for (name, job, _) in all() {
        // Without dropout and paths, which belong to a micro-batch, and without batch statistics.
        if ["resnet", "cell", "supernet"].contains(&name) {
            continue;
        }
        let mut job = job;
        match &mut job.model {
            bellwether_core::job::Model::Mlp { dropout, .. }
            | bellwether_core::job::Model::Transformer { dropout, .. } => *dropout = 0.0,
            _ => {}
        }
        let text: Vec<u8> = (0..2000u32).map(|place| (place * place % 251) as u8).collect();
        let mut workload = build_with(&job, &[("t", text)]);
        let (parameters, state) = initial(workload.as_mut(), 3);
        let samples: Vec<u64> = (0..24).collect();
        let at = (&parameters[..], &state[..], 0);
        let whole = gradient(workload.as_mut(), at, &samples, 0);
        let mut sum = vec![0.0f64; parameters.len()];
        let mut loss = 0.0;
        for micro in samples.chunks(6) {
            let part = gradient(workload.as_mut(), at, micro, 0);
            sum.iter_mut().zip(&part.gradient).for_each(|(total, value)| *total += f64::from(*value));
            loss += part.loss;
        }
        let norm = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
        let off = sum.iter().zip(&whole.gradient).map(|(sum, value)| (sum - f64::from(*value)).powi(2));
        let error = off.sum::<f64>().sqrt() / norm;
        println!("{name}: {error:.1e}");
        assert!(error < 1e-5, "{name}: {error:.1e}");
        assert!((loss - whole.loss).abs() < 1e-5 * loss.abs(), "{name}");
    }
}

#[test]
fn training_lowers_the_loss() {
    for (name, mut job, mut workload) in all() {
        job.steps = Some(40);
        (job.batch.size, job.batch.virtual_nodes) = (32, 2);
        let outcome = train(&job, workload.as_mut());
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let (before, after) = (mean(&outcome.losses[..5]), mean(&outcome.losses[35..]));
        println!("{name}: {before:.3} -> {after:.3}");
        assert!(after < 0.95 * before, "{name}: {before} -> {after}");
    }
}

#[test]
fn evaluation_covers_the_held_out_set() {
    for (name, _, mut workload) in all() {
        let (parameters, state) = initial(workload.as_mut(), 3);
        let weights = Weights { parameters: &parameters, state: &state, version: 0 };
        let count = workload.held_out_samples();
        let total = evaluate(workload.as_mut(), weights);
        let positions = match name {
            "transformer" => 16,
            // As many paths.
            "supernet" => 4,
            _ => 1,
        };
        assert_eq!(total.predictions, count * positions, "{name}");
        assert!(total.loss_sum.is_finite() && total.correct <= total.predictions, "{name}");
    }
}

/// Digest of gradients of every model; the child process prints it.
fn digest() -> String {
    let mut hasher = blake3::Hasher::new();
    for (_, _, mut workload) in all() {
        let (parameters, state) = initial(workload.as_mut(), 3);
        let samples: Vec<u64> = (0..48).collect();
        let call = gradient(workload.as_mut(), (&parameters, &state, 0), &samples, 5);
        hasher.update(&call.loss.to_le_bytes());
        call.gradient.iter().chain(&call.state).for_each(|value| {
            hasher.update(&value.to_le_bytes());
        });
        hasher.update(workload.fingerprint().as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
#[ignore = "prints the digest for bits_do_not_depend_on_threads_or_process"]
fn print_digest() {
    println!("digest {}", digest());
}

#[test]
fn bits_do_not_depend_on_threads_or_process() {
    let run = |threads: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "laws::print_digest", "--ignored", "--nocapture"])
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, rest) = text.split_once("digest ").unwrap_or_else(|| panic!("{text}"));
        rest[..64].to_owned()
    };
    let here = digest();
    for threads in ["1", "2", "5"] {
        assert_eq!(run(threads), here, "{threads} threads");
    }
}

/// The paths of micro-batches are drawn from all of the space, and only they decide which weights get a gradient.
#[test]
fn a_supernet_trains_one_path_of_each_micro_batch() {
    let job = job("{ kind = \"cell\", channels = 3 }", "{ kind = \"digits\" }");
    let mut workload = build_with(&job, &[]);
    let (parameters, state) = initial(workload.as_mut(), 3);
    assert!(state.is_empty(), "no statistics of other paths");
    let ranges = tensor_ranges(workload.layout());
    let convolutions: Vec<usize> = (0..ranges.len())
        .filter(|tensor| workload.layout().parameters[*tensor].name.contains(".edge."))
        .collect();
    assert_eq!(convolutions.len(), 12);
    let mut trained = vec![0; convolutions.len()];
    for seed in 0..300 {
        let call = gradient(workload.as_mut(), (&parameters, &state, 0), &[0, 1, 2, 3, 4, 5], seed);
        let has = |tensor: &usize| call.gradient[ranges[*tensor].clone()].iter().any(|value| *value != 0.0);
        let moved: Vec<bool> = convolutions.iter().map(has).collect();
        // Of the two convolutions of an edge never both.
        assert!(moved.chunks(2).all(|edge| !(edge[0] && edge[1])), "{moved:?}");
        trained.iter_mut().zip(moved).for_each(|(count, moved)| *count += usize::from(moved));
    }
    // A fifth of the paths at most, and fewer where the edge goes nowhere.
    println!("{trained:?}");
    assert!(trained.iter().all(|count| (15..=85).contains(count)), "{trained:?}");
}

/// A path of the supernet is the network with that architecture and the same weights, by the samples' own statistics.
#[test]
fn a_path_scores_as_its_network_trains() {
    let open = |_: &Path| unreachable!();
    let free = job("{ kind = \"cell\", channels = 4, stages = 2 }", "{ kind = \"digits\" }");
    let mut supernet = Supernet::open(&free, &open).unwrap();
    let layout = supernet.layout().clone();
    let mut parameters = vec![0.0; layout.parameter_count()];
    supernet.initialize(7, &mut parameters, &mut []);
    let weights = Weights { parameters: &parameters, state: &[], version: 0 };
    let path = ARCHITECTURE.parse::<CellEdges>().unwrap().0.concat();
    let scored = supernet.score(weights, &path).unwrap();
    assert_eq!(scored.predictions, 359);
    let mut other = path.clone();
    other[0] = CellOperation::Skip;
    assert_ne!(scored.loss_sum, supernet.score(weights, &other).unwrap().loss_sum);
    assert_eq!(scored, supernet.score(weights, &path).unwrap());
    let nothing = supernet.score(weights, &[CellOperation::None; 6]).unwrap();
    let mean = nothing.loss_sum / 359.0;
    assert!((mean - 10f64.ln()).abs() < 0.05, "where nothing comes through, all classes are alike: {mean}");
}

#[test]
fn the_fingerprint_tells_data_and_models_apart() {
    let print = |files: &[(&str, Vec<u8>)], width: usize| {
        let job = job(&format!("{{ kind = \"mlp\", hidden = [{width}] }}"), IDX);
        build_with(&job, files).fingerprint()
    };
    let files = idx_files(8, 4, 4, 2);
    let mut changed = files.clone();
    changed[0].1[100] ^= 1;
    let one = print(&files, 5);
    println!("{one}");
    assert!(one.starts_with("burn-flex 0.22.1; isa "), "{one}");
    assert_eq!(one, print(&files, 5));
    assert_ne!(one, print(&changed, 5));
    assert_ne!(one, print(&files, 6));
}

#[test]
fn a_job_that_cannot_work_is_told_why() {
    let refuse = |job: &Job, files: &[(&str, Vec<u8>)]| {
        let open = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, bytes)| bytes.clone()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
        };
        let Err(error) = bellwether_workloads::build(job, &open) else { panic!("it was built") };
        error.to_string()
    };
    let mlp = "{ kind = \"mlp\", hidden = [5] }";
    let mut big = job(mlp, "{ kind = \"digits\" }");
    big.batch.size = 2000;
    assert!(refuse(&big, &[]).contains("2000 samples is larger than the training set of 1438"));
    let small = job("{ kind = \"convnet\" }", IDX);
    assert!(refuse(&small, &idx_files(8, 3, 3, 2)).contains("cannot take images of 3×3"));
    let text = job(
        "{ kind = \"transformer\", context = 64, width = 8, layers = 1, heads = 1 }",
        "{ kind = \"text\", path = \"t\" }",
    );
    assert!(refuse(&text, &[("t", vec![b'a'; 50])]).contains("shorter than one window of 65 bytes"));
    assert!(refuse(&text, &[]).starts_with("t: cannot be read"));
}
