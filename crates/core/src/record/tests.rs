//! Files of version 0.1 are read, and what they say is written again in the same words.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::*;

/// Runs in `data/records-0.1`.
const RUNS: [&str; 5] = ["synchronous", "asynchronous", "goodput", "stopped", "failed"];

fn file(run: &str, name: &str) -> String {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data/records-0.1");
    std::fs::read_to_string(data.join(run).join(name)).expect("the file is in the repository")
}

fn journal(run: &str) -> Vec<Event> {
    let lines = file(run, "journal.jsonl");
    let line = |text| serde_json::from_str::<Line>(text).expect("a line of a journal").event;
    lines.lines().map(line).collect()
}

fn metrics(run: &str) -> Vec<StepRecord> {
    let lines = file(run, "metrics.jsonl");
    lines.lines().map(|text| serde_json::from_str(text).expect("a step")).collect()
}

fn summary(run: &str) -> Summary {
    serde_json::from_str(&file(run, "summary.json")).expect("a summary")
}

fn end(run: &str) -> RunOutcome {
    // The last checkpoint may come after it.
    let outcome = |event| match event {
        Event::Ended { outcome, .. } => Some(outcome),
        _ => None,
    };
    journal(run).into_iter().rev().find_map(outcome).expect("an end")
}

/// The same without keys of the first level that say nothing.
fn without_nulls(mut value: Value, keys: &[&str]) -> Value {
    let object = value.as_object_mut().expect("an object");
    object.retain(|key, value| !(value.is_null() && keys.contains(&key.as_str())));
    Value::Object(object.clone())
}

#[test]
fn what_is_read_is_written_again_key_by_key() {
    for run in RUNS {
        for text in file(run, "journal.jsonl").lines() {
            let line: Line = serde_json::from_str(text).expect("a line of a journal");
            assert_eq!(serde_json::to_value(line).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        for text in file(run, "metrics.jsonl").lines() {
            let step: StepRecord = serde_json::from_str(text).expect("a step");
            // Version 0.1 wrote `null` for what it did not know of a batch that moves.
            let before = serde_json::from_str(text).unwrap();
            let before = without_nulls(before, &["noise_scale", "learning_rate_factor"]);
            assert_eq!(serde_json::to_value(step).unwrap(), before);
        }
        let before: Value = serde_json::from_str(&file(run, "summary.json")).unwrap();
        assert_eq!(serde_json::to_value(summary(run)).unwrap(), before);
    }
}

#[test]
fn how_runs_of_before_ended() {
    assert_eq!(RUNS[..3].iter().map(|run| end(run)).collect::<Vec<_>>(), vec![RunOutcome::Finished; 3]);
    assert_eq!(end("stopped"), RunOutcome::Stopped);
    let diverged = RunFailure::Diverged { what: "the loss is NaN".into(), step: 1 };
    assert_eq!(end("failed"), RunOutcome::Failed(diverged.clone()));
    let summary = summary("failed");
    assert_eq!(summary.outcome, RunOutcome::Failed(diverged));
}

#[test]
fn who_waited_for_whom_in_runs_of_before() {
    let phases = [(0, Protocol::Bsp), (4, Protocol::Asp)];
    let told = journal("asynchronous").into_iter().filter_map(|event| match event {
        Event::Protocol { step, protocol, .. } => Some((step, protocol)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), phases);
    let summed: Vec<_> = summary("asynchronous").phases.iter().map(|s| (s.step, s.protocol)).collect();
    assert_eq!(summed, phases);
}

#[test]
fn what_steps_of_before_took() {
    let steps = metrics("synchronous");
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), (0..24).collect::<Vec<_>>());
    assert!(steps.iter().all(|step| step.workers == if step.step < 12 { 1 } else { 2 }));
    assert!(steps.iter().all(|step| step.nodes_s.len() == 4 / step.workers as usize && step.steps() == 1));
    assert!(steps.iter().all(|step| step.traffic.len() + 1 == step.workers as usize));
    let times = |step: &StepRecord| step.compute_s > 0.0 && step.update_s > 0.0 && step.exchange_s > 0.0;
    assert!(steps.iter().all(|step| step.duration_s > step.compute_s && times(step)));
    assert_eq!(steps.last().and_then(|step| step.loss), summary("synchronous").final_loss);

    let steps = metrics("goodput");
    let covered: Vec<_> = steps.iter().map(|step| (step.step, step.accumulation)).collect();
    let (of_one, of_two) = ((0..4).map(|step| (step, 1)), (4..16).step_by(2).map(|step| (step, 2)));
    assert_eq!(covered, of_one.chain(of_two).collect::<Vec<_>>());
    assert!(steps.iter().all(|step| step.noise_scale.is_some() && step.learning_rate_factor >= Some(1.0)));

    let steps = metrics("asynchronous");
    let (together, apart) = steps.split_at(4);
    assert!(together.iter().all(|step| step.units.is_empty()));
    let units: Vec<&UnitRecord> = apart.iter().flat_map(|step| &step.units).collect();
    let mut numbers: Vec<u64> = units.iter().map(|unit| unit.unit).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (16..64).collect::<Vec<_>>(), "four of each step");
    assert!(units.iter().all(|unit| [1, 2].contains(&unit.worker) && unit.samples == 16));
    assert!(units.iter().all(|unit| unit.duration_s >= unit.compute_s && unit.loss_sum > 0.0));
    assert!(units.iter().any(|unit| unit.calls.first() == Some(&Call::Take(0))));
}

#[test]
fn of_many_peers_a_report_has_the_total() {
    let peer = |peer: u64| Traffic {
        peer,
        sent_bytes: 10 + peer,
        received_bytes: 20,
        sent_s: 0.5 / peer as f64,
        received_s: 0.25 * peer as f64,
        link: Some(LinkKind::Lent),
    };
    let most = Traffic::PEERS_MAX as u64;
    let few: Vec<Traffic> = (1..=most).map(peer).collect();
    assert_eq!(Traffic::reported(few.clone()), few);
    let count = most + 1;
    let total = Traffic {
        peer: 0,
        sent_bytes: 10 * count + count * (count + 1) / 2,
        received_bytes: 20 * count,
        sent_s: 0.5,
        received_s: 0.25 * count as f64,
        link: None,
    };
    assert_eq!(Traffic::reported((1..=count).map(peer).collect()), [total]);
}

#[test]
fn the_keys_of_a_step_are_these() {
    let unit = UnitRecord { calls: vec![Call::Take(0)], data_wait_s: 0.5, ..UnitRecord::default() };
    let step = StepRecord {
        data_wait_s: 0.5,
        hidden_s: 0.5,
        accumulation: 2,
        noise_scale: Some(1.0),
        learning_rate_factor: Some(1.0),
        traffic: vec![Traffic { link: Some(LinkKind::SharedMemory), ..Traffic::default() }],
        units: vec![unit],
        unit_count: 1,
        ..StepRecord::default()
    };
    let keys = |value: &Value| -> String {
        let keys: BTreeSet<&String> = value.as_object().expect("an object").keys().collect();
        keys.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    let written = serde_json::to_value(&step).unwrap();
    assert_eq!(
        keys(&written),
        "accumulation compute_s data_wait_s duration_s exchange_s hidden_s learning_rate_factor loss nodes_s noise_scale shadows step traffic \
         unit_count units update_s workers"
    );
    assert_eq!(keys(&written["traffic"][0]), "link peer received_bytes received_s sent_bytes sent_s");
    assert_eq!(written["traffic"][0]["link"], "shared_memory");
    assert_eq!(
        keys(&written["units"][0]),
        "calls compute_s data_wait_s duration_s loss_sum samples segments_s unit wait_s worker"
    );
    assert_eq!(serde_json::from_value::<StepRecord>(written).unwrap(), step);
    let least = serde_json::to_value(StepRecord::default()).unwrap();
    assert_eq!(
        keys(&least),
        "compute_s duration_s exchange_s loss nodes_s shadows step traffic update_s workers",
        "what every line has"
    );
}

#[test]
fn the_worker_that_had_its_gradients_last_tells_of_them() {
    let step = |compute_s, data_wait_s, exchange_s| StepRecord {
        compute_s,
        data_wait_s,
        exchange_s,
        duration_s: 1.0,
        ..StepRecord::default()
    };
    let merged = step(0.5, 0.0, 0.4).merge(step(0.25, 0.5, 0.1));
    assert_eq!((merged.compute_s, merged.data_wait_s, merged.exchange_s), (0.25, 0.5, 0.1));
}

#[test]
fn a_sentence_of_ours_is_told_from_others() {
    let unsaved = |waited_s, why: &str| RunFailure::Unsaved { step: 9, waited_s, why: why.into() };
    let ours = [
        (
            "failed: the checkpoint of the last step, 9, could not be written within 300 s: no space: x",
            unsaved(Some(300.0), "no space: x"),
        ),
        (
            "failed: the checkpoint of the last step, 9, could not be written until somebody asked for an end: why",
            unsaved(None, "why"),
        ),
        (
            "failed: the gradient of step 3 is not finite at step 3; the step was not committed",
            RunFailure::Diverged { what: "the gradient of step 3 is not finite".into(), step: 3 },
        ),
        ("failed: no worker comes up: why", RunFailure::Other("no worker comes up: why".into())),
        ("failed", RunFailure::Other(String::new())),
        // Almost, so it is kept as it is.
        (
            "failed: the loss is NaN at step 03; the step was not committed",
            RunFailure::Other("the loss is NaN at step 03; the step was not committed".into()),
        ),
    ];
    for (text, failure) in ours {
        let outcome: RunOutcome = text.parse().expect("an outcome");
        assert_eq!((outcome.to_string().as_str(), outcome), (text, RunOutcome::Failed(failure)));
    }
    assert_eq!("broken: why".parse(), Ok(RunOutcome::Broken("why".into())));
    assert_eq!(RunOutcome::Broken("why".into()).to_string(), "broken: why");
}

#[test]
fn what_a_start_took_is_in_its_line_and_said_of_scripts() {
    let boot = Boot { start_s: 0.25, importing_s: 2.0, building_s: 0.0, compiling_s: 1.75 };
    let event = Event::WorkerWarm { worker: 3, boot };
    let text = serde_json::to_string(&event).expect("plain data");
    let told = r#"{"event":"worker_warm","worker":3,"start_s":0.25,"importing_s":2.0,"building_s":0.0,"compiling_s":1.75}"#;
    assert_eq!(text, told);
    assert_eq!(serde_json::from_str::<Event>(&text).expect("its own line"), event);
    let said =
        "worker 3 can train after 4.0 s: 0.2 s starting, 2.0 s importing, 0.0 s building, 1.8 s compiling";
    assert_eq!(event.sentence().as_deref(), Some(said));
    let built_in = Event::WorkerWarm { worker: 3, boot: Boot { importing_s: 0.0, ..boot } };
    assert_eq!(built_in.sentence(), None);
}
