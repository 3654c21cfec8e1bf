//! What carries the exchanges between the workers of a run, as the verbs tell it pair by pair.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Scene, wait_for};
use crate::jobs;
use crate::served::{Served, synthetic};

/// Every way between two workers with what carries it, as `show` tells.
pub(crate) fn told(shown: &str) -> BTreeMap<(u64, u64), String> {
    let shown: Value = serde_json::from_str(shown).expect("JSON");
    let links = shown["links"].as_array().expect("a list").iter();
    let worker = |link: &Value, end: &str| link[end].as_u64().expect("a worker");
    let kind = |link: &Value| link["link"].as_str().expect("a word").to_owned();
    links.map(|link| ((worker(link, "from"), worker(link, "to")), kind(link))).collect()
}

/// Waits until every way among this many workers is carried so.
fn all_are(scene: &Scene, workers: u64, kind: &str) {
    let pairs = (1..=workers).flat_map(|from| (1..=workers).map(move |to| (from, to)));
    let all: BTreeMap<_, _> =
        pairs.filter(|(from, to)| from != to).map(|ways| (ways, kind.to_owned())).collect();
    let show = || told(&scene.call(&["show", "job", "--format", "json"]).stdout);
    wait_for(|| format!("{kind} among {workers}: {:?}", show()), || (show() == all).then_some(()));
}

#[test]
fn workers_of_one_machine_exchange_through_memory_and_verbs_say_so() {
    let scene = jobs::patient().steps(20_000).scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(1));
    // Small vectors go to the peer at once, long ones lie where they are.
    all_are(&scene, 2, "shared_memory");
    let shown = scene.call(&["show", "job"]).stdout;
    assert!(shown.contains("exchange through         shared memory: workers 1–2\n"), "{shown}");
    let watch = scene.start(&["watch", "job", "--format", "json"]);
    assert_eq!(scene.call(&["scale", "job", "--workers", "3"]).code, Some(0));
    all_are(&scene, 3, "lent");
    let shown = scene.call(&["show", "job"]).stdout;
    assert!(shown.contains("lent memory: workers 1–2, 1–3, 2–3\n"), "{shown}");
    let links = |line: &str| {
        // The last line may be half written.
        let status: Value = serde_json::from_str(line).unwrap_or_default();
        status["members"][0]["links"].clone()
    };
    let tells = || watch.stdout().lines().any(|line| links(line) == json!({ "lent": [2, 3] }));
    wait_for(|| format!("what carries the exchange: {}", watch.stdout()), || tells().then_some(()));
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    run.summary();
    watch.end();
    let metrics = std::fs::read_to_string(scene.run_folder().join("metrics.jsonl")).expect("the metrics");
    let counts =
        ["shared_memory", "lent"].map(|kind| metrics.matches(&format!("\"link\":\"{kind}\"")).count());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let ended = scene.call(&["show", "job", "--format", "json"]).stdout;
    assert!(told(&ended).is_empty(), "no worker is left: {ended}");
}

#[test]
fn a_job_of_a_daemon_tells_its_links_too() {
    let scene = Scene::new(&synthetic("job", 1, 4000, 4.0));
    let served = Served::start(&scene, &["--policy", "fifo", "--slots", "2"]);
    assert_eq!(scene.call(&["submit", "job.toml", "--min", "2", "--max", "2"]).code, Some(0));
    served.until("it trains", |jobs| jobs["job-1"]["step"].as_u64() > Some(5));
    all_are(&scene, 2, "shared_memory");
    let shown = scene.call(&["show", "job"]).stdout;
    assert!(shown.contains("exchange through         shared memory: workers 1–2\n"), "{shown}");
    assert_eq!(scene.call(&["cancel", "job-1"]).code, Some(0));
}
