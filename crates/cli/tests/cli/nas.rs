//! `nas`: a few-shot search from its file to a job that trains; the same on any workers, killed or not.

use std::fs;
use std::path::Path;

use bellwether_core::record::{Event, Summary};
use bellwether_runtime::journal;
use bellwether_runtime::run_dir::RunDir;
use rustix::process::Signal;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::harness::{Ended, Scene, signal, wait_for};

/// 27 cells of three edges, and digits that are soon learnt.
fn job(epochs: u64) -> String {
    format!(
        "name = \"cells\"\nseed = 3\nepochs = {epochs}\nworkers = 2\n[batch]\nsize = 64\nvirtual_nodes = 4\n\
         [model]\nkind = \"cell\"\nchannels = 2\nnodes = 3\noperations = [\"none\", \"skip\", \"conv3x3\"]\n\
         [data]\nkind = \"digits\"\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9\n"
    )
}

const SEARCH: &str = "job = \"job.toml\"\nsplit = [[0], [2]]\n[search]\nevaluations = 40\n";
const UNMEASURED: &str = "[device]\nmeasured = 0\n";

fn scene(epochs: u64, search: &str) -> Scene {
    let scene = Scene::new(&job(epochs));
    scene.write("search.toml", search);
    scene
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no report ({error}): {ended:?}"))
}

const NAS: [&str; 6] = ["nas", "search.toml", "--folder", "found", "--format", "json"];

/// The digests of all supernets, by name.
fn digests(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).expect("the folder of the search").flatten();
    let runs = entries.filter_map(|entry| RunDir::open(entry.path()));
    let digest = |run: RunDir| {
        let lines = journal::read(&run.path.join("journal.jsonl")).expect("a journal");
        let found = lines.into_iter().rev().find_map(|line| match line.event {
            Event::Ended { params_digest, .. } => params_digest,
            _ => None,
        });
        (run.name.clone(), found.unwrap_or_else(|| panic!("{} is not finished", run.name)))
    };
    let mut all: Vec<(String, String)> = runs.map(digest).collect();
    all.sort();
    all
}

/// The tensors under `prefix` of a run's checkpoint.
fn tensors(run: &Path, is_first: bool) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(run.join("checkpoints"))
        .expect("checkpoints")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let file = if is_first { files.first() } else { files.last() };
    let bytes = fs::read(file.expect("a checkpoint")).expect("it can be read");
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let all = tensors.iter().filter(|(name, _)| name.starts_with("parameters/"));
    all.map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect()
}

#[test]
fn a_few_shot_search_ends_with_a_job_that_trains() {
    let search =
        format!("{SEARCH}[limits]\nprice = \"$1\"\n[device]\nmeasured = 8\nsteps = 2\nprice = \"$1/h\"\n");
    let scene = scene(2, &search);
    let ended = scene.call(&[&NAS[..], &["--threads", "--plot", "scores.svg", "-o", "best.toml"]].concat());
    let found = report(&ended);
    let supernets = found["supernets"].as_array().expect("supernets");
    let spaces = |level: u64| -> Vec<f64> {
        let of_level = supernets.iter().filter(|one| one["level"] == level);
        of_level.map(|one| one["architectures"].as_f64().expect("a number")).collect()
    };
    assert_eq!((spaces(0), spaces(1), spaces(2)), (vec![27.0], vec![9.0; 3], vec![3.0; 9]));
    // Every sub-supernet began with the bytes of its parent.
    for number in 0..9 {
        let folder = scene.path("found");
        let (parent, child) =
            (folder.join(format!("cells-s1-{}", number / 3)), folder.join(format!("cells-s2-{number}")));
        let (parent, child) = (tensors(&parent, false), tensors(&child, true));
        assert!(child.iter().all(|tensor| parent.contains(tensor)), "cells-s2-{number}");
        assert!(child.len() <= parent.len() && child.len() >= 4, "{}", child.len());
    }
    let architectures = found["found"].as_array().expect("architectures");
    let score = |place: usize| architectures[place]["accuracy"].as_f64().expect("a score");
    assert!((1..architectures.len()).all(|place| score(place - 1) >= score(place)));
    assert!(architectures.iter().all(|one| one["predicted"]["step_s"].as_f64() > Some(0.0)), "{found:#}");
    assert!(fs::read_to_string(scene.path("scores.svg")).expect("a picture").contains("the best"));
    ended.says(&["measured 8 of 8", "cells-s2-8 is trained"]);
    // The winner is a job like any other.
    let best = architectures[0]["architecture"].as_str().expect("a text");
    let trained = scene.call(&["run", "best.toml", "--format", "json"]);
    let summary: Summary = serde_json::from_str(&trained.stdout).expect("a summary");
    assert_eq!((summary.outcome.word(), summary.job.as_str()), ("finished", "cells-best"), "{best}");
    // Asked again, it trains and measures nothing.
    let again = scene.call(&[&NAS[..], &["--threads", "-o", "best.toml"]].concat());
    assert_eq!(report(&again)["found"], found["found"]);
    let table = scene.call(&["nas", "search.toml", "--folder", "found", "--threads", "-o", "best.toml"]);
    for words in ["13 supernets", "different architectures in 40 questions", best, "left-out ones are off by"]
    {
        assert!(table.stdout.contains(words), "{words}: {}", table.stdout);
    }
}

#[test]
fn a_search_that_is_killed_finds_the_same_with_other_workers() {
    let search = format!("{SEARCH}{UNMEASURED}");
    let whole = scene(4, &search);
    let expected =
        report(&whole.call(&[&NAS[..], &["--threads", "--at-once", "2", "--set", "workers=1"]].concat()));
    let scene = scene(4, &search);
    for supernet in ["cells-s0-0", "cells-s1-1"] {
        let live = scene.start(&NAS);
        let path = scene.path(&format!("found/{supernet}/journal.jsonl"));
        let events = || journal::read(&path).unwrap_or_default();
        wait_for(
            || format!("{supernet}: {}", live.stderr()),
            || events().iter().any(|line| matches!(line.event, Event::Committed { .. })).then_some(()),
        );
        for line in events() {
            if let Event::WorkerAttached { process, .. } = line.event
                && scene.owns(process)
            {
                signal(process, Signal::KILL);
            }
        }
        live.kill();
    }
    let found = report(&scene.call(&[&NAS[..], &["--set", "workers=3"]].concat()));
    assert_eq!(found["found"], expected["found"]);
    assert_eq!(digests(&scene.path("found")), digests(&whole.path("found")));
    assert_eq!(digests(&scene.path("found")).len(), 13);
}

#[test]
fn the_supernets_may_be_jobs_of_a_daemon() {
    let search = format!("{}{UNMEASURED}", SEARCH.replace("[[0], [2]]", "[[0]]"));
    let alone = scene(1, &search);
    let expected = report(&alone.call(&[&NAS[..], &["--threads", "--set", "workers=1"]].concat()));
    let scene = scene(1, &search);
    let daemon = scene.start(&["serve", "--slots", "2"]);
    let endpoint = scene.path("state/bellwether/.serve/endpoint.json");
    wait_for(|| daemon.stderr(), || endpoint.exists().then_some(()));
    let shared = [&NAS[..], &["--daemon", "state/bellwether"]].concat();
    let first = scene.start(&shared);
    let journal = scene.path("state/bellwether/cells-s0-0/journal.jsonl");
    wait_for(|| first.stderr(), || journal.exists().then_some(()));
    // Its jobs go on without it, and the same command finds them again.
    first.kill();
    assert_eq!(report(&scene.call(&shared))["found"], expected["found"]);
    assert_eq!(digests(&scene.path("state/bellwether")), digests(&alone.path("found")));
    assert!(scene.call(&["jobs"]).stdout.contains("cells-s1-2"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn what_cannot_be_searched_is_refused_before_anything_is_trained() {
    let refused = |job: &str, search: &str, more: &[&str], words: &[&str]| {
        let scene = Scene::new(job);
        scene.write("search.toml", search);
        scene.call(&[&NAS[..], more].concat()).refused_with(words);
        let runs = fs::read_dir(scene.path("found")).into_iter().flatten().flatten();
        assert_eq!(runs.filter(|entry| RunDir::open(entry.path()).is_some()).count(), 0);
    };
    let good = job(1);
    refused(
        &good,
        "job = \"job.toml\"\nsplitt = [[0]]\n",
        &[],
        &["search.toml, line 2", "did you mean `split`?"],
    );
    refused(&good, "job = \"no.toml\"\n", &[], &["no.toml", "cannot be read"]);
    refused(&good, "job = \"job.toml\"\nsplit = [[3]]\n", &[], &["split[0]", "there is no edge 3"]);
    refused(
        &good,
        SEARCH,
        &["--set", "model.operations=[]"],
        &["model.operations", "no operation to choose from"],
    );
    refused(&good, SEARCH, &["--set", "model.operations=[\"conv5x5\"]"], &["conv5x5", "conv3x3"]);
    refused(&good, SEARCH, &["--set", "model.stages=5"], &["model.stages", "1×8×8", "use fewer stages"]);
    refused(&good, SEARCH, &["--set", "data.held_out=0.0"], &["data.held_out", "no sample is held out"]);
    let mlp = good.replace(
        "kind = \"cell\"\nchannels = 2\nnodes = 3\noperations = [\"none\", \"skip\", \"conv3x3\"]",
        "kind = \"mlp\"\nhidden = [4]",
    );
    refused(&mlp, SEARCH, &[], &["model.kind", "only a network of cells"]);
    let limited = format!("{SEARCH}[limits]\nstep_time = \"1ns\"\n[device]\nmeasured = 8\nsteps = 2\n");
    refused(&good, &limited, &["--threads"], &["limits", "no architecture", "the nearest is |", "a step"]);
}
