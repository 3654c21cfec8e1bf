//! `bellwether profile`: what it measures of a job, what it reads of other frameworks, and what it refuses.

use std::io::Write;

use bellwether_core::profile::{OperationKind, Profile};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::harness::{Ended, Scene};
use crate::jobs;

/// Traces of other frameworks' profilers.
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces");

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.toml");

fn trace(name: &str) -> Vec<u8> {
    std::fs::read(format!("{TRACES}/{name}.json")).expect("the trace is there")
}

/// The profile that the command left in `p.json`.
fn profiled(scene: &Scene, ended: &Ended) -> Profile {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = std::fs::read_to_string(scene.path("p.json")).expect("the profile is there");
    Profile::read(&text, "p.json").expect("a sound profile")
}

/// What every measured profile has.
fn is_plausible(profile: &Profile, nodes: u32, steps: usize) {
    let nodes_usize = nodes as usize;
    assert_eq!((profile.virtual_nodes, profile.steps.len()), (nodes, steps));
    let computes = profile.operations.iter().filter(|o| o.kind == OperationKind::Compute).count();
    assert_eq!(computes, nodes_usize, "one computation per virtual node");
    assert_eq!(profile.operations.len(), nodes_usize + 2 * profile.parts.len());
    assert_eq!(profile.upload_bytes(), profile.parts.iter().map(|part| part.bytes).sum::<u64>());
    assert_eq!(profile.upload_bytes(), profile.parameter_bytes);
    for ((step, compute_s), update_s) in profile.steps.iter().zip(profile.compute_s()).zip(profile.update_s())
    {
        assert!(compute_s > 0.0 && update_s > 0.0, "{step:?}");
        assert!(compute_s + update_s <= step.step_s * 1.05, "{step:?}");
    }
    let network = profile.network.expect("the link between two processes of one machine");
    assert!(network.bandwidth_bytes_per_s > 1e6 && network.latency_s < 0.1, "{network:?}");
    let shared = profile.shared_memory.expect("the memory that they share");
    assert!(shared.bandwidth_bytes_per_s > 1e6 && shared.latency_s < 0.1, "{shared:?}");
    assert!(profile.collective.is_some(), "two workers trained");
    assert!(profile.checkpoint_s.is_some_and(|seconds| seconds > 0.0));
    assert!(profile.peak_resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
    assert!(profile.data_wait_s().iter().all(|seconds| *seconds == 0.0), "its samples are in memory");
}

#[test]
fn a_synthetic_job_is_measured() {
    let scene = Scene::new(&jobs::slow(2));
    let ended = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "8"]);
    let profile = profiled(&scene, &ended);
    is_plausible(&profile, 4, 8);
    assert_eq!((profile.job.as_str(), profile.batch, profile.parameter_bytes), ("job", 8, 65_536));
    // A device that sleeps 2 ms per virtual node sleeps no less.
    assert!(profile.compute_s().iter().all(|seconds| *seconds >= 0.008), "{:?}", profile.compute_s());
    for word in ["synthetic", "64.0 KiB in 1 part", "Gbit/s"] {
        assert!(ended.stdout.contains(word), "`{word}` is not in {}", ended.stdout);
    }
    ended.says(&["one worker", "two workers", "bellwether predict p.json"]);
    assert!(!scene.path("state").exists(), "measuring leaves no run");
}

/// What `predict` says of one worker with this batch, in examples per second, and whether it extrapolates.
/// Gradients that get ready one after another are measured, and predicted to travel beside computing.
#[test]
fn an_exchange_beside_computing_is_measured_and_predicted() {
    let scene = jobs::layered().scene();
    let ended = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "12"]);
    let profile = profiled(&scene, &ended);
    // Two thirds of 12 ms are the backward pass; the first of eight layers is complete after an eighth of it.
    // A machine with other work takes longer, and may notice late that a layer is ready.
    let tail_s = profile.tail_s.expect("gradients by layers");
    assert!((0.004..1.0).contains(&tail_s), "{tail_s}");
    assert!(ended.stdout.contains("gradients get ready within the last"), "{}", ended.stdout);
    let step_s = |profile: &Profile| {
        scene.write("p.json", serde_json::to_string(profile).expect("a profile"));
        // 8 MiB take 67 ms at 1 Gbit/s.
        let question = ["predict", "p.json", "--workers", "2", "--bandwidth", "125MB/s", "--format", "json"];
        let answer = scene.call(&question);
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
        answer[0]["step_s"].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    let said = |seconds: f64| step_s(&Profile { tail_s: Some(seconds), ..profile.clone() });
    let (with, without) = (step_s(&profile), said(0.0));
    assert!(with < without, "{without} {with} {tail_s}");
    // A virtual node takes 12 ms at least, so that all of 8 ms can be hidden.
    let hidden_s = without - said(0.008);
    assert!((hidden_s - 0.008).abs() < 1e-4, "{hidden_s}");
}

fn predicted(scene: &Scene, batch: &str) -> (f64, String) {
    let ended = scene.call(&["predict", "p.json", "--workers", "1", "--batch", batch, "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    (rows[0]["examples_per_s"].as_f64().expect("a rate"), rows[0]["validity"].to_string())
}

#[test]
fn other_batches_are_measured_and_predicted() {
    // Up to 8 samples a micro-batch takes 8 ms, and then 1 ms for each.
    let scene = Scene::new(&jobs::slow(8).replace("[data]", "saturation = 8\n[data]"));
    let ended = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "4", "--batches", "32,96,4"]);
    let profile = profiled(&scene, &ended);
    is_plausible(&profile, 4, 4);
    let samples: Vec<u64> = profile.batches.iter().map(|batch| batch.samples).collect();
    assert_eq!(samples, [1, 2, 8, 24], "with the job's own, 8 samples of 4 virtual nodes");
    for (batch, at_least) in profile.batches.iter().zip([0.008, 0.008, 0.008, 0.024]) {
        assert!(batch.compute_s >= at_least && batch.compute_s < 1.5 * at_least, "{batch:?}");
    }
    ended.says(&["batches of 96", "bellwether predict p.json"]);
    assert!(ended.stdout.contains("micro-batches"), "{ended:?}");
    // 16 samples take 16 ms each: a straight line from the profile's own batch would say 64 ms.
    let (rate, validity) = predicted(&scene, "64");
    assert!(rate > 600.0 && rate < 1_000.0 && !validity.contains("batch"), "{rate}: {validity}");
    // Half as many samples as the job's own take as long.
    let (rate, _) = predicted(&scene, "4");
    assert!(rate > 75.0 && rate < 125.0, "{rate}");
    let (_, validity) = predicted(&scene, "128");
    assert!(validity.contains("a micro-batch beyond the measured ones"), "{validity}");
}

#[test]
fn batches_that_cannot_be_measured_are_refused() {
    let scene = Scene::new(&jobs::slow(1));
    for (arguments, says) in [
        (&["--batches", "6"][..], "a batch of 6 cannot be cut into the job's 4 virtual nodes"),
        (&["--batches", "0"], "a batch of 0 cannot be cut"),
        (&["--batches", "8"], "8 is the batch of the job, which is measured anyway"),
        (&["--batches", "16", "--set", "sync.policy=asp"], "this job begins otherwise"),
    ] {
        let ended = scene.call(&[&["profile", "job.toml", "-o", "p.json"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.says(&["--batches", says]);
        assert!(!scene.path("p.json").exists());
    }
}

#[test]
fn a_job_file_has_no_framework_to_trace() {
    let scene = jobs::momentum().scene();
    let ended = scene.call(&["profile", "job.toml", "--framework-trace", "traces"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    ended.says(&["--framework-trace: only a Python script", "leave it out"]);
    assert!(!scene.path("traces").exists());
}

#[test]
fn the_digits_are_measured() {
    let scene = Scene::new("");
    let ended = scene.call(&["profile", DIGITS, "-o", "p.json", "--steps", "5"]);
    let profile = profiled(&scene, &ended);
    is_plausible(&profile, 8, 5);
    assert_eq!((profile.job.as_str(), profile.batch), ("digits", 64));
    // 64 · 256 + 256 + 256 · 128 + 128 + 128 · 10 + 10 parameters of 4 bytes.
    assert_eq!((profile.parameter_bytes, profile.parts.len()), (4 * 50_826, 6));
}

#[test]
fn gradients_in_bfloat16_are_predicted_with_half_the_bytes() {
    let scene = Scene::new(&jobs::slow(1));
    let set = ["--set", "model.parameters=1MiB", "--set", "exchange.precision=bf16", "--steps", "3"];
    let profile =
        profiled(&scene, &scene.call(&[&["profile", "job.toml", "-o", "p.json"], &set[..]].concat()));
    assert_eq!((profile.parameter_bytes, profile.upload_bytes()), (1 << 20, 1 << 19));
}

#[test]
fn keys_can_be_set_and_the_profile_goes_to_stdout() {
    let scene = Scene::new(&jobs::slow(1));
    let set = ["--set", "batch.virtual_nodes=2", "--set", "model.parameters=1MiB"];
    let ended = scene.call(&[&["profile", "job.toml", "--steps", "3"], &set[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    is_plausible(&Profile::read(&ended.stdout, "stdout").expect("a sound profile"), 2, 3);
}

#[test]
fn one_virtual_node_is_measured_without_a_peer() {
    let job = jobs::slow(1).replace("virtual_nodes = 4", "virtual_nodes = 1");
    let scene = Scene::new(&format!("workers = 1\n{job}"));
    let ended = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "3"]);
    let profile = profiled(&scene, &ended);
    assert_eq!((profile.virtual_nodes, profile.steps.len()), (1, 3));
    assert!(!ended.stderr.contains("two workers"), "{ended:?}");
}

#[test]
fn traces_of_other_frameworks_are_read() {
    for (name, source, parts) in [("pytorch-ddp-gloo", "pytorch", 3), ("tensorflow-cpu", "tensorflow", 12)] {
        let scene = Scene::new("");
        let whole = trace(name);
        scene.write("trace.json", &whole);
        let ended = scene.call(&["profile", "--import", "trace.json", "-o", "p.json"]);
        let plain = profiled(&scene, &ended);
        assert_eq!((plain.source.as_str(), plain.parts.len(), plain.batch), (source, parts, 256));
        // Both trained the same network: 743,050 parameters.
        assert_eq!((plain.parameter_bytes, plain.virtual_nodes), (4 * 743_050, 1));
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&whole).expect("memory takes it");
        scene.write("trace.json.gz", packer.finish().expect("memory takes it"));
        let ended = scene.call(&["profile", "--import", "trace.json.gz", "-o", "p.json"]);
        let packed = profiled(&scene, &ended);
        // But for its name, which is the file's.
        assert_eq!(Profile { job: plain.job.clone(), ..packed }, plain);
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let scene = Scene::new("");
    let import = |name: &str, content: &[u8], words: &[&str]| {
        scene.write(name, content);
        let ended = scene.call(&["profile", "--import", name, "-o", "p.json"]);
        ended.refused_with(&[&[name], words].concat());
        assert!(!scene.path("p.json").exists());
    };
    let whole = trace("pytorch-ddp-gloo");
    import("text.json", b"step 1 took 20 ms", &["JSON"]);
    import("empty.json", b"", &["empty.json"]);
    import("half.json", &whole[..whole.len() / 2], &["half.json"]);
    let other = br#"{"traceEvents": [{"ph": "X", "name": "frame", "cat": "v8", "pid": 1, "tid": 1, "ts": 0, "dur": 9}]}"#;
    import("other.json", other, &["PyTorch", "TensorFlow", "hint"]);
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&whole).expect("memory takes it");
    let packed = packer.finish().expect("memory takes it");
    import("half.json.gz", &packed[..packed.len() / 2], &["unpacked", "hint"]);
    import("p2.json", crate::predict::profile().to_string().as_bytes(), &["p2.json", "hint"]);
    let absent = scene.call(&["profile", "--import", "absent.json"]);
    absent.refused_with(&["absent.json", "No such file", "hint"]);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let scene = Scene::new(&jobs::slow(1));
    let refused = |arguments: &[&str], words: &[&str]| {
        scene.call(&[&["profile"], arguments].concat()).refused_with(words);
    };
    refused(&[], &["JOB.toml", "--help"]);
    refused(&["other.toml"], &["other.toml", "No such file"]);
    refused(&["job.toml", "--steps", "0"], &["--steps", "0"]);
    refused(&["job.toml", "--set", "sead=1"], &["--set sead", "did you mean `seed`?"]);
    refused(&["job.toml", "--import", "trace.json"], &["--import", "cannot be used with"]);
    refused(&["job.toml", "--peer-by-hand"], &["--listen"]);
    // Before a minute is spent on measuring.
    refused(&["job.toml", "-o", "no/p.json"], &["no/p.json", "no folder `no`", "hint"]);
    refused(&["job.toml", "-o", "."], &["folder"]);
    assert!(!scene.path("state").exists(), "a refused job leaves no run");
}
