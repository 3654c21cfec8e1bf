//! Imported profiles: real traces of PyTorch and TensorFlow, GPU traces by hand, and bytes that no tool wrote.

use bellwether_core::profile::{OperationKind, Profile};
use bellwether_model::import::{Imported, read, read_with_notes};
use proptest::prelude::*;
use serde_json::{Value, json};

const PYTORCH: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/pytorch-ddp-gloo.json"));
const TENSORFLOW: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/tensorflow-cpu.json"));

/// Elements of the traced network: five layers of 384 units, one of 10.
const ELEMENTS: u64 = 5 * (384 * 384 + 384) + 384 * 10 + 10;

fn import(trace: &Value) -> Imported {
    read_with_notes(trace.to_string().as_bytes(), "folder/trace.json").expect("a sound trace")
}

fn refusal(trace: &Value) -> String {
    read(trace.to_string().as_bytes(), "trace.json").expect_err("the trace lacks something").to_string()
}

/// Duration of the operation of this name in each step, in milliseconds.
fn ms(profile: &Profile, name: &str) -> Vec<f64> {
    let number = profile.operations.iter().position(|o| o.name == name).expect("an operation of this name");
    profile.steps.iter().map(|step| 1e3 * step.operations_s[number]).collect()
}

fn all_near(values: &[f64], expected: f64) -> bool {
    !values.is_empty() && values.iter().all(|value| (value - expected).abs() < 1e-6)
}

#[test]
fn pytorch_tells_buckets_and_times() {
    let Imported { profile, notes } = read_with_notes(PYTORCH.as_bytes(), "pytorch-ddp-gloo.json").unwrap();
    let bytes: Vec<u64> = profile.parts.iter().map(|part| part.bytes).collect();
    assert_eq!(bytes, [299_530 * 4, 295_680 * 4, 147_840 * 4]);
    assert_eq!(profile.parameter_bytes, 4 * ELEMENTS);
    assert_eq!((profile.batch, profile.device.as_str(), profile.source.as_str()), (256, "cpu", "pytorch"));
    assert_eq!((profile.steps.len(), profile.job.as_str()), (3, "pytorch-ddp-gloo"));
    assert!(notes.iter().any(|note| note.contains("warm-up")), "{notes:?}");

    // By another way: from the events themselves, of the step after the warm-up.
    let trace: Value = serde_json::from_str(PYTORCH).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans = |name: &str| -> Vec<(f64, f64)> {
        let named = events.iter().filter(|event| event["name"].as_str().unwrap().starts_with(name));
        let span = |e: &Value| (e["ts"].as_f64().unwrap() / 1e3, e["dur"].as_f64().unwrap() / 1e3);
        named.filter(|event| event["ph"] == "X").map(span).collect()
    };
    let begin = spans("ProfilerStep#5")[0].0;
    let end = begin + spans("ProfilerStep#5")[0].1;
    let inside = |name: &str| -> Vec<(f64, f64)> {
        spans(name).into_iter().filter(|span| span.0 > begin && span.0 < end).collect()
    };
    let (backward, sent) = (inside("autograd::engine::evaluate_function"), inside("c10d::allreduce_"));
    assert_eq!(sent.len(), 3);
    let near = |name: &str, expected: f64| {
        assert!(
            (ms(&profile, name)[0] - expected).abs() < 1e-3,
            "{name}: {expected} {:?}",
            ms(&profile, name)
        );
    };
    near("forward", backward[0].0 - begin);
    near("backward until bucket 0", sent[0].0 - backward[0].0);
    near("backward until bucket 1", sent[1].0 - sent[0].0 - sent[0].1);
    near("backward until bucket 2", sent[2].0 - sent[1].0 - sent[1].1);
    let copies: f64 = inside("torch.distributed.ddp.reducer::copy_bucket_to_grad").iter().map(|s| s.1).sum();
    let update_ms = 1e3 * profile.update_s()[0];
    assert!((update_ms - inside("Optimizer.step")[0].1 - copies).abs() < 0.1 * copies + 1e-3, "{update_ms}");
    let own_ms = 1e3 * profile.steps[0].step_s;
    assert!(own_ms < end - begin - sent.iter().map(|span| span.1).sum::<f64>() + 1e-3, "{own_ms}");
}

#[test]
fn parts_leave_when_they_are_ready_and_come_back_before_the_update() {
    let profile = read(PYTORCH.as_bytes(), "t").unwrap();
    let operation = |number: u32| &profile.operations[number as usize];
    let uploads = profile.operations.iter().filter(|o| matches!(o.kind, OperationKind::Upload(_)));
    for (part, upload) in uploads.clone().enumerate() {
        assert_eq!(upload.kind, OperationKind::Upload(part as u32));
        let before = operation(upload.after[0]);
        assert_eq!(
            (before.kind, before.name.as_str()),
            (OperationKind::Compute, format!("backward until bucket {part}").as_str())
        );
    }
    let first = profile.operations.iter().find(|o| o.kind == OperationKind::Update(0)).unwrap();
    let waits = |kind| first.after.iter().any(|number| operation(*number).kind == kind);
    assert!((0..3).all(|part| waits(OperationKind::Upload(part))) && uploads.count() == 3);
}

/// Without all-reduces each tensor is a part; their order is that of the backward pass.
#[test]
fn a_single_process_of_pytorch_has_a_part_per_tensor() {
    let mut trace: Value = serde_json::from_str(PYTORCH).unwrap();
    let events = trace["traceEvents"].as_array_mut().unwrap();
    events.retain(|event| !event["name"].as_str().unwrap().contains("allreduce_"));
    events.retain(|event| !event["name"].as_str().unwrap().starts_with("gloo:"));
    let profile = import(&trace).profile;
    assert_eq!((profile.parts.len(), profile.parameter_bytes), (12, 4 * ELEMENTS));
    assert_eq!((profile.parts[0].bytes, profile.parts[1].bytes), (40, 15_360));
    // Without sizes there is nothing to send.
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        event["args"] = json!({});
    }
    let error = refusal(&trace);
    assert!(error.contains("record_shapes=True"), "{error}");
}

#[test]
fn tensorflow_tells_variables_and_times() {
    let Imported { profile, notes } = read_with_notes(TENSORFLOW.as_bytes(), "tensorflow-cpu.json").unwrap();
    assert_eq!((profile.parts.len(), profile.parameter_bytes), (12, 4 * ELEMENTS));
    assert_eq!(
        (profile.batch, profile.device.as_str(), profile.source.as_str()),
        (256, "/host:CPU", "tensorflow")
    );
    assert_eq!(profile.steps.len(), 3, "{notes:?}");
    // The order in which this run's single thread reached them, small ones last; the counter of steps is none.
    assert_eq!((profile.parts[0].bytes, profile.parts[11].bytes), (4 * 384 * 384, 4 * 10));
    let trace: Value = serde_json::from_str(TENSORFLOW).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of_step = |event: &&Value| event["args"]["group_id"] == "1" && event["ph"] == "X";
    let total = |scope: &str, kinds: &[&str]| -> f64 {
        let path = |event: &Value| event["args"]["long_name"].as_str().unwrap_or("").to_string();
        let counts = |event: &&Value| {
            path(event).starts_with(scope) && kinds.iter().any(|kind| path(event).contains(kind))
        };
        events.iter().filter(of_step).filter(counts).map(|e| e["dur"].as_f64().unwrap() / 1e3).sum()
    };
    // One thread computes, so durations add up: all of the optimizer, and at least the products of the passes.
    let update_ms = 1e3 * profile.update_s()[0];
    assert!((update_ms - total("SGD/", &[":"])).abs() < 1e-3, "{update_ms} {}", total("SGD/", &[":"]));
    let backward = profile.operations.iter().filter(|o| o.name.starts_with("backward"));
    let backward_ms: f64 = backward.map(|o| ms(&profile, &o.name)[0]).sum();
    assert!(backward_ms >= total("gradient_tape/", &["MatMul", "Grad"]), "{backward_ms}");
    let mark = events.iter().filter(of_step).find(|e| e["args"]["step_name"].is_string()).unwrap();
    assert!(1e3 * profile.steps[0].step_s <= mark["dur"].as_f64().unwrap() / 1e3 + 1e-6);
}

#[test]
fn tensorflow_without_shapes_or_with_replicas_is_refused() {
    let bare: Value = serde_json::from_str(&TENSORFLOW.replace("\"shape\"", "\"form\"")).unwrap();
    assert!(refusal(&bare).contains("host_tracer_level=3"), "{}", refusal(&bare));
    let two: Value =
        serde_json::from_str(&TENSORFLOW.replace("sequential/dense_1/", "replica_1/dense/")).unwrap();
    assert!(refusal(&two).contains("replicas"), "{}", refusal(&two));
    let unmarked: Value = serde_json::from_str(&TENSORFLOW.replace("step_name", "name_of")).unwrap();
    assert!(refusal(&unmarked).contains("marks no steps"), "{}", refusal(&unmarked));
}

fn event(category: &str, name: &str, lane: (u32, u32), span_ms: (f64, f64), args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": lane.0, "tid": lane.1,
        "ts": span_ms.0 * 1e3, "dur": (span_ms.1 - span_ms.0) * 1e3, "args": args})
}

/// Four steps of 11 ms on a device that lags behind the host. In each, from the first kernel on: forward 2 ms, backward
/// 1.5 ms until each of two buckets, then 2.5 ms of communication, update 0.5 ms, idle 3 ms.
fn gpu_trace() -> Value {
    let mut events = Vec::new();
    for number in 0..4 {
        let at = 11.0 * f64::from(number);
        let host = |name: &str, lane, span: (f64, f64), args| {
            let category =
                if name.contains("Step#") || name.contains('#') { "user_annotation" } else { "cpu_op" };
            event(category, name, (1, lane), (at + span.0, at + span.1), args)
        };
        events.push(host(&format!("ProfilerStep#{number}"), 1, (0.0, 11.0), json!({})));
        events.push(host("Optimizer.step#Adam.step", 1, (4.2, 5.0), json!({})));
        for (name, begin, end) in [("MmBackward0", 1.0, 2.0), ("AddBackward0", 2.4, 4.0)] {
            let name = format!("autograd::engine::evaluate_function: {name}");
            events.push(host(&name, 2, (begin, end), json!({})));
        }
        let reductions = [(2.0, "Float", 1000), (3.5, "Half", 500)];
        for (begin, dtype, elements) in reductions {
            let args = json!({"Collective name": "allreduce", "dtype": dtype, "In msg nelems": elements,
                "Group size": 8});
            events.push(host("record_param_comms", 2, (begin, begin + 0.1), args));
        }
        let kernels = [
            (0.1, 1.0, 3.0, "gemm", 7),
            (1.2, 3.0, 4.5, "gemm_dgrad", 7),
            (2.5, 4.5, 6.0, "gemm_wgrad", 7),
            (2.05, 4.5, 7.5, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 20),
            (3.55, 7.5, 8.5, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)", 20),
            (4.5, 8.5, 9.0, "multi_tensor_apply_kernel", 7),
        ];
        for (kernel, (launch, begin, end, name, stream)) in kernels.into_iter().enumerate() {
            let id = 100 * number + kernel as u32;
            let args = json!({"correlation": id, "stream": stream, "device": 0});
            events.push(event(
                "cuda_runtime",
                "cudaLaunchKernel",
                (1, 1),
                (at + launch, at + launch),
                args.clone(),
            ));
            events.push(event("kernel", name, (0, stream), (at + begin, at + end), args));
        }
    }
    json!({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA Test 40GB"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}, "traceEvents": events})
}

#[test]
fn a_gpu_trace_is_timed_by_its_kernels() {
    let Imported { profile, notes } = import(&gpu_trace());
    assert_eq!((profile.device.as_str(), profile.job.as_str()), ("NVIDIA Test 40GB", "trace"));
    let bytes: Vec<u64> = profile.parts.iter().map(|part| part.bytes).collect();
    assert_eq!(bytes, [4000, 1000]);
    // The last step has no successor, the first is warm-up.
    assert_eq!(profile.steps.len(), 2, "{notes:?}");
    for (name, expected) in [
        ("between steps", 3.0),
        ("forward", 2.0),
        ("backward until bucket 0", 1.5),
        ("backward until bucket 1", 1.5),
        ("backward, rest", 0.0),
        ("update bucket 0", 0.4),
        ("update bucket 1", 0.1),
    ] {
        assert!(all_near(&ms(&profile, name), expected), "{name} {:?}", ms(&profile, name));
    }
    assert!(notes.iter().any(|note| note.contains("samples")), "{notes:?}");
}

/// On a GPU TensorFlow's host tells sizes and the device's streams tell times.
#[test]
fn a_tensorflow_gpu_trace_is_timed_by_its_streams() {
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}}),
        json!({"ph": "M", "name": "process_name", "pid": 701, "args": {"name": "/host:CPU"}}),
        json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": 14, "args": {"name": "Stream #14(Compute)"}}),
        json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": 99, "args": {"name": "TensorFlow Ops"}}),
    ];
    for step in 0..2 {
        let at = 10.0 * f64::from(step);
        let mut add = |lane, name: &str, (begin, end), shape: &str| {
            let mut args = json!({"group_id": step, "long_name": name});
            if !shape.is_empty() {
                args["shape"] = json!(shape);
            }
            events.push(event("", "op", lane, (at + begin, at + end), args));
        };
        let update = "Adam/AssignSubVariableOp_1:AssignSubVariableOp";
        add((701, 5), "model/conv/Conv2D:Conv2D", (0.1, 0.2), "(float[32,8,8,3];float[3,3,3,4])");
        add((701, 5), update, (0.3, 0.4), "(;float[3,3,3,4])");
        add((1, 14), "model/conv/Conv2D:Conv2D", (1.0, 3.0), "");
        add((1, 14), "gradient_tape/model/conv/Conv2DBackpropFilter:Conv2DBackpropFilter", (3.0, 6.0), "");
        add((1, 14), update, (6.0, 6.5), "");
        add((1, 99), "gradient_tape/model/conv/Conv2DBackpropFilter:Conv2DBackpropFilter", (2.0, 9.0), "");
        let name = format!("train {step}");
        let args = json!({"group_id": step.to_string(), "step_name": name, "step_num": step.to_string()});
        events.push(event("", &name, (701, 4), (at, at + 8.0), args));
    }
    let profile = import(&json!({"displayTimeUnit": "ns", "traceEvents": events})).profile;
    assert_eq!((profile.batch, profile.parameter_bytes), (32, 4 * 3 * 3 * 3 * 4));
    assert_eq!(profile.device, "/device:GPU:0");
    let part = "backward until Adam/AssignSubVariableOp_1";
    assert!(all_near(&ms(&profile, part), 3.0), "{:?}", ms(&profile, part));
    assert!(all_near(&profile.update_s().iter().map(|s| s * 1e3).collect::<Vec<_>>(), 0.5));
}

#[test]
fn traces_of_other_tools_are_refused_by_name_of_what_was_sought() {
    let other = json!({"traceEvents": [{"ph": "X", "cat": "toplevel", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]});
    let error = refusal(&other);
    for word in ["cpu_op", "schemaVersion", "/device:", "toplevel", "1 events"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(refusal(&json!([])).contains("neither"));
    assert!(refusal(&json!({"version": 1})).contains("version"));
    let unmarked: Value = serde_json::from_str(&PYTORCH.replace("ProfilerStep#", "Step ")).unwrap();
    assert!(refusal(&unmarked).contains("ProfilerStep#N"), "{}", refusal(&unmarked));
    let inference: Value = serde_json::from_str(&PYTORCH.replace("autograd::engine", "x")).unwrap();
    assert!(refusal(&inference).contains("backward"), "{}", refusal(&inference));
    let packed = read(&[0x1f, 0x8b, 8, 0], "trace.json.gz").unwrap_err().to_string();
    assert!(packed.contains("gunzip"), "{packed}");
    for bad in ["", "{", "nul", "\"text\"", "{\"traceEvents\": 5}", "{\"traceEvents\": []} x"] {
        let error = read(bad.as_bytes(), "t.json").unwrap_err().to_string();
        assert!(error.starts_with("t.json: not a trace"), "{bad}: {error}");
    }
}

/// Bad times are skipped and counted; what remains is used.
#[test]
fn times_without_meaning_are_skipped() {
    let mut trace = gpu_trace();
    let events = trace["traceEvents"].as_array_mut().unwrap();
    let bad = [json!(-5.0), json!(1e300), json!("NaN"), json!(null), json!([1])];
    for duration in bad {
        let mut event = event("kernel", "bad", (0, 7), (12.0, 13.0), json!({}));
        event["dur"] = duration;
        events.push(event);
    }
    let Imported { profile, notes } = import(&trace);
    assert!(notes.iter().any(|note| note.starts_with("5 events without a usable time")), "{notes:?}");
    assert!(all_near(&ms(&profile, "forward"), 2.0));
    let text = gpu_trace().to_string().replacen("\"dur\":2000.0", "\"dur\":NaN", 1);
    assert!(read(text.as_bytes(), "t").is_err(), "NaN is not valid JSON");
}

#[test]
fn steps_with_other_gradients_are_left_out() {
    let mut trace = gpu_trace();
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        if event["ts"].as_f64().unwrap() < 11e3 && event["args"]["dtype"] == "Half" {
            event["args"]["In msg nelems"] = json!(123);
        }
    }
    let Imported { profile, notes } = import(&trace);
    assert_eq!(profile.parts[1].bytes, 1000);
    assert!(notes.iter().any(|note| note.starts_with("1 of 3 steps were left out")), "{notes:?}");
}

#[test]
fn deep_nesting_neither_overflows_nor_is_kept() {
    for opening in ["[", "{\"a\":"] {
        let deep = opening.repeat(200_000);
        assert!(read(deep.as_bytes(), "t").is_err());
        assert!(read(format!("{{\"x\": {deep}").as_bytes(), "t").is_err());
        let dims = format!("{{\"traceEvents\": [{{\"args\": {{\"Input Dims\": {deep}");
        let error = read(dims.as_bytes(), "t").unwrap_err().to_string();
        assert!(opening != "[" || error.contains("recursion"), "{error}");
    }
}

/// Whatever it is, it is refused or gives a profile that passes its own check.
fn survives(bytes: &[u8]) {
    if let Ok(imported) = read_with_notes(bytes, "t") {
        imported.profile.check().expect("an imported profile is sound");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "X",
        "M",
        "cpu_op",
        "kernel",
        "cuda_runtime",
        "user_annotation",
        "ProfilerStep#1",
        "Optimizer.step#SGD",
        "autograd::engine::evaluate_function: X",
        "torch::autograd::AccumulateGrad",
        "record_param_comms",
        "c10d::allreduce_",
        "allreduce",
        "Float",
        "float",
        "train 1",
        "process_name",
        "/host:CPU",
        "/device:GPU:0",
        "gradient_tape/a:MatMul",
        "SGD/AssignAddVariableOp:AssignAddVariableOp",
        "(float[3,4])",
        "(float[",
        "1",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1e3..1e3_f64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "traceEvents",
        "schemaVersion",
        "deviceProperties",
        "ph",
        "cat",
        "name",
        "pid",
        "tid",
        "ts",
        "dur",
        "args",
        "Input Dims",
        "Input type",
        "In msg nelems",
        "dtype",
        "Collective name",
        "correlation",
        "long_name",
        "group_id",
        "step_name",
        "shape",
    ]);
    leaf.prop_recursive(5, 120, 10, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..10).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..10).prop_map(|entries| Value::Object(
                entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
    }

    #[test]
    fn random_json_never_panics(value in any_json(), events in prop::collection::vec(any_json(), 0..12)) {
        survives(value.to_string().as_bytes());
        survives(json!({"schemaVersion": 1, "traceEvents": events}).to_string().as_bytes());
        let mut named = vec![json!({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/host:CPU"}})];
        named.extend(events);
        survives(json!({"traceEvents": named}).to_string().as_bytes());
    }

    #[test]
    fn cut_and_flipped_traces_never_panic(
        which in 0..3_usize, cut in 0.0..1.0_f64, flips in prop::collection::vec((0.0..1.0_f64, 0..8_u8), 0..6),
    ) {
        let gpu = gpu_trace().to_string();
        let mut bytes = [PYTORCH, TENSORFLOW, &gpu][which].as_bytes().to_vec();
        for (at, bit) in flips {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] ^= 1 << bit;
        }
        survives(&bytes);
        bytes.truncate((cut * bytes.len() as f64) as usize);
        prop_assert!(read(&bytes, "t").is_err(), "half a trace is none");
    }

    /// Fields are lost or become something else; whole events go.
    #[test]
    fn traces_without_some_fields_never_panic(
        which in 0..3_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), 0..9_usize, any_json()), 1..40),
        shift in prop::sample::select(vec![0.0, -1e9, 1e15]),
    ) {
        let mut trace = match which {
            0 => gpu_trace(),
            1 => serde_json::from_str(PYTORCH).unwrap(),
            _ => serde_json::from_str(TENSORFLOW).unwrap(),
        };
        let events = trace["traceEvents"].as_array_mut().unwrap();
        for (at, field, value) in changes {
            let event = at.get_mut(events);
            match ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"].get(field) {
                Some(key) => event[*key] = value,
                None => *event = json!({}),
            }
        }
        for event in events.iter_mut().filter(|event| event["ts"].is_number()) {
            event["ts"] = json!(event["ts"].as_f64().unwrap() + shift);
        }
        survives(trace.to_string().as_bytes());
    }
}
