//! `bellwether serve` from outside: many jobs, real processes, and a daemon that is killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Live, Random, Scene, signal, wait_for};

/// A synthetic job: `steps` steps of 8 virtual nodes that take `node_ms` each.
pub(crate) fn synthetic(name: &str, seed: u64, steps: u64, node_ms: f64) -> String {
    format!(
        "name = \"{name}\"\nseed = {seed}\nsteps = {steps}\n[model]\nkind = \"synthetic\"\nstep_time = \"{node_ms}ms\"\n\
         parameters = \"4KiB\"\n[data]\nkind = \"indices\"\nsamples = 1000\n[batch]\nsize = 16\nvirtual_nodes = 8\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    )
}

/// A daemon of a scene.
pub(crate) struct Served<'s> {
    pub(crate) scene: &'s Scene,
    live: Option<Live<'s>>,
    endpoint: Value,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl<'s> Served<'s> {
    /// `bellwether serve MORE`, as soon as it answers.
    pub(crate) fn start(scene: &'s Scene, more: &[&str]) -> Served<'s> {
        Served::of(scene, scene.start(&[&["serve"], more].concat()))
    }

    /// This process, as soon as it answers.
    pub(crate) fn of(scene: &'s Scene, live: Live<'s>) -> Served<'s> {
        let process = live.process();
        let folder = scene.path("state/bellwether/.serve");
        let endpoint = wait_for(
            || format!("no daemon answers: {}{}", live.stdout(), live.stderr()),
            || {
                let text = fs::read(folder.join("endpoint.json")).ok()?;
                let endpoint: Value = serde_json::from_slice(&text).ok()?;
                (endpoint["process"] == process).then_some(endpoint)
            },
        );
        Served { scene, live: Some(live), endpoint }
    }

    /// Where browsers find it.
    pub(crate) fn address(&self) -> SocketAddr {
        let address = self.endpoint["address"].as_str().and_then(|address| address.parse().ok());
        address.expect("a daemon says its address")
    }

    /// What it printed so far.
    pub(crate) fn stdout(&self) -> String {
        self.live.as_ref().map_or_else(String::new, Live::stdout)
    }

    /// What it said beside that.
    pub(crate) fn stderr(&self) -> String {
        self.live.as_ref().map_or_else(String::new, Live::stderr)
    }

    pub(crate) fn process(&self) -> u32 {
        self.live.as_ref().map_or(0, Live::process)
    }

    /// Kills it without a warning.
    pub(crate) fn kill(mut self) {
        if let Some(live) = self.live.take() {
            live.kill();
        }
    }

    /// Ends it as its user would; says how it ended.
    pub(crate) fn interrupt(mut self) -> Option<i32> {
        let live = self.live.take()?;
        live.signal(Signal::INT);
        live.end().code
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Speaks HTTP/1.1 by hand.
    pub(crate) fn try_ask(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Answer> {
        let mut stream = UnixStream::connect(self.scene.path("state/bellwether/.serve/socket"))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let wrong = || std::io::Error::other(format!("no answer: {text}"));
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(wrong)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
        Ok(Answer { status, body: serde_json::from_str(body).unwrap_or(Value::Null) })
    }

    pub(crate) fn submit(&self, name: &str, job: &str, more: Value) -> Answer {
        let mut body = json!({ "name": name, "job_toml": job });
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        self.ask("POST", "/v1/jobs", Some(&body))
    }

    pub(crate) fn job(&self, name: &str) -> Value {
        self.ask("GET", &format!("/v1/jobs/{name}"), None).body
    }

    /// All jobs by name.
    pub(crate) fn jobs(&self) -> BTreeMap<String, Value> {
        let jobs = self.ask("GET", "/v1/jobs?limit=1000", None).body["jobs"].take();
        let jobs = jobs.as_array().cloned().unwrap_or_default();
        jobs.into_iter().map(|job| (job["name"].as_str().unwrap_or_default().to_owned(), job)).collect()
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&BTreeMap<String, Value>) -> bool) {
        let story = || format!("{what}: {:#?}\n{}", self.jobs(), self.story());
        wait_for(story, || is_so(&self.jobs()).then_some(()));
    }

    pub(crate) fn until_all(&self, state: &str) {
        self.until(state, |jobs| jobs.values().all(|job| job["state"] == state));
    }

    fn story(&self) -> String {
        let text = fs::read_to_string(ledger(self.scene)).unwrap_or_default();
        let logs = fs::read_dir(self.scene.path("state/bellwether")).into_iter().flatten().flatten();
        let logs = logs.map(|run| fs::read_to_string(run.path().join("coordinator.log")).unwrap_or_default());
        text + &logs.collect::<String>()
    }
}

pub(crate) fn ledger(scene: &Scene) -> PathBuf {
    scene.path("state/bellwether/.serve/ledger.jsonl")
}

/// Digest of what a job trains undisturbed. How long its device sleeps decides no bit.
pub(crate) fn undisturbed(job: &str) -> String {
    let scene = Scene::new(job);
    let quick = scene.train(&["--workers", "1", "--set", "model.step_time=\"0.01ms\""]);
    quick.summary().params_digest.expect("a finished run has a digest")
}

fn entries(scene: &Scene) -> Vec<Value> {
    let text = fs::read_to_string(ledger(scene)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn count(scene: &Scene, entry: &str, job: u64) -> usize {
    entries(scene).iter().filter(|line| line["entry"] == entry && line["job"] == job).count()
}

#[test]
fn elastic_jobs_share_the_slots_and_train_the_same_bits() {
    let jobs: Vec<(String, String)> = (0..4)
        .map(|number| (format!("job-{number}"), synthetic("job", number, 20 + 10 * number, 4.0)))
        .collect();
    let scene = Scene::new(&jobs[0].1);
    let served = Served::start(&scene, &["--policy", "wfs", "--slots", "4"]);
    for (name, job) in &jobs {
        let answer = served.submit(name, job, json!({ "workers": "1..4" }));
        assert_eq!(answer.status, 201, "{answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    served.until_all("finished");
    let ended = served.jobs();
    for (name, job) in &jobs {
        assert_eq!(ended[name]["digest"], undisturbed(job), "{name}");
        let audit = scene.call(&["audit", name]);
        assert_eq!(audit.code, Some(0), "{}", audit.stderr);
    }
    let free = served.ask("GET", "/v1/cluster", None).body["free"].clone();
    assert_eq!(free, 4);
    assert_eq!(served.interrupt(), Some(0));
}

#[test]
fn a_preempted_job_resumes_with_nothing_lost() {
    let (long, short) = (synthetic("long", 1, 200, 4.0), synthetic("short", 2, 10, 4.0));
    let scene = Scene::new(&long);
    let served = Served::start(&scene, &["--policy", "srtf", "--slots", "2"]);
    served.submit("long", &long, json!({ "workers": 2 }));
    served.until("long trains", |jobs| jobs["long"]["step"].as_u64() > Some(5));
    served.submit("short", &short, json!({ "workers": 2 }));
    served.until("short is done", |jobs| jobs["short"]["state"] == "finished");
    let stopped = served.job("long");
    assert!(stopped["preemptions"] == 1 && stopped["step"].as_u64() > Some(5), "{stopped}");
    served.until_all("finished");
    assert_eq!(served.job("long")["digest"], undisturbed(&long));
    assert_eq!(served.job("long")["failures"], 0);
    let audit = scene.call(&["audit", "long"]);
    assert_eq!(audit.code, Some(0), "{}", audit.stderr);
    // Nothing of it was done twice: no step is committed again after the checkpoint.
    let journal = fs::read_to_string(scene.path("state/bellwether/long/journal.jsonl")).unwrap();
    assert!(!journal.contains("rolled_back"), "{journal}");
}

#[test]
fn digits_share_the_slots_under_srtf_and_wfs() {
    let digits = |seed: u64, epochs: u64| {
        include_str!("../../../../examples/digits.toml")
            .replace("seed = 1 ", &format!("seed = {seed} "))
            .replace("epochs = 40 ", &format!("epochs = {epochs} "))
    };
    let jobs = [("long", digits(1, 60)), ("short", digits(2, 4)), ("elastic", digits(3, 10))];
    let scene = Scene::new(&jobs[0].1);
    let served = Served::start(&scene, &["--policy", "srtf", "--slots", "2"]);
    for (name, job) in &jobs {
        let workers = if *name == "elastic" { "1..2" } else { "2" };
        assert_eq!(served.submit(name, job, json!({ "workers": workers })).status, 201);
        std::thread::sleep(Duration::from_millis(400));
    }
    assert_eq!(served.ask("PUT", "/v1/policy", Some(&json!({ "policy": "wfs" }))).status, 200);
    served.until_all("finished");
    for (name, job) in &jobs {
        let alone = Scene::new(job).train(&["--workers", "1"]).summary();
        assert_eq!(served.job(name)["digest"].as_str(), alone.params_digest.as_deref(), "{name}");
        assert_eq!(scene.call(&["audit", name]).code, Some(0));
    }
}

#[test]
fn users_suspend_resume_scale_and_cancel() {
    let job = synthetic("job", 3, 400, 3.0);
    let scene = Scene::new(&job);
    let served = Served::start(&scene, &["--policy", "fifo", "--slots", "4"]);
    for name in ["a", "b"] {
        served.submit(name, &job, json!({ "workers": 2 }));
    }
    served.until("both train", |jobs| jobs.values().all(|job| job["state"] == "running"));
    assert_eq!(served.ask("POST", "/v1/jobs/a/suspend", None).status, 200);
    served.until("a is suspended", |jobs| jobs["a"]["state"] == "suspended");
    assert_eq!(served.ask("POST", "/v1/jobs/b/cancel", None).status, 200);
    served.until("b is cancelled", |jobs| jobs["b"]["state"] == "cancelled");
    let answer = served.ask("PATCH", "/v1/jobs/a", Some(&json!({ "workers": "4" })));
    assert_eq!((answer.status, &answer.body["max_workers"]), (200, &json!(4)));
    assert_eq!(served.ask("POST", "/v1/jobs/a/resume", None).status, 200);
    served.until("a trains on four", |jobs| jobs["a"]["workers"] == 4);
    let answer = served.ask("PATCH", "/v1/jobs/a", Some(&json!({ "workers": "1" })));
    assert_eq!(answer.status, 200);
    served.until("a trains on one", |jobs| jobs["a"]["workers"] == 1);
    assert_eq!(served.ask("POST", "/v1/jobs/a/cancel", None).status, 200);
    served.until("a is cancelled", |jobs| jobs["a"]["state"] == "cancelled");
    assert_eq!(served.interrupt(), Some(0));
}

#[test]
fn jobs_go_on_while_the_daemon_is_dead() {
    let job = synthetic("job", 4, 60, 4.0);
    let scene = Scene::new(&job);
    let served = Served::start(&scene, &["--policy", "srtf", "--slots", "2"]);
    served.submit("a", &job, json!({ "workers": 2 }));
    served.submit("b", &job, json!({ "workers": 2 }));
    served.until("a trains", |jobs| jobs["a"]["step"].as_u64() > Some(3));
    served.kill();
    // It ends while no daemon looks.
    let journal = scene.path("state/bellwether/a/journal.jsonl");
    wait_for(
        || "the end of a".into(),
        || fs::read_to_string(&journal).ok().filter(|text| text.contains("\"ended\"")),
    );
    let served = Served::start(&scene, &[]);
    served.until_all("finished");
    let ended = served.jobs();
    assert_eq!(ended["a"]["digest"], undisturbed(&job));
    assert_eq!(ended["b"]["digest"], ended["a"]["digest"]);
    assert_eq!((count(&scene, "ended", 0), count(&scene, "ended", 1)), (1, 1));
    assert_eq!(served.interrupt(), Some(0));
}

/// The daemon is killed again and again while clients submit and jobs come and go.
#[test]
fn a_daemon_that_is_killed_loses_nothing() {
    let kills = 12;
    let mut random = Random(7);
    let scene = Scene::new(&synthetic("job", 0, 1, 1.0));
    let mut served = Served::start(&scene, &["--policy", "wfs", "--slots", "4"]);
    let mut expected = BTreeMap::new();
    for round in 0..kills {
        let name = format!("job-{round}");
        let job = synthetic("job", round, 20 + random.below(40), 3.0);
        let answer = served.submit(&name, &job, json!({ "workers": "1..4", "key": name }));
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        expected.insert(name, job);
        std::thread::sleep(Duration::from_millis(random.below(300)));
        served.kill();
        std::thread::sleep(Duration::from_millis(random.below(100)));
        let since = Instant::now();
        served = Served::start(&scene, &[]);
        assert!(since.elapsed() < Duration::from_secs(20), "it comes back");
    }
    served.until_all("finished");
    let ended = served.jobs();
    assert_eq!(ended.len(), expected.len());
    for (place, (name, job)) in (0..).zip(&expected) {
        let _: u64 = place;
        assert_eq!(ended[name]["digest"], undisturbed(job), "{name}");
        assert_eq!(ended[name]["failures"], 0, "{name}: {}", ended[name]);
        let audit = scene.call(&["audit", name]);
        assert_eq!(audit.code, Some(0), "{}", audit.stderr);
    }
    let ends: Vec<Value> = entries(&scene).into_iter().filter(|line| line["entry"] == "ended").collect();
    assert_eq!(ends.len(), expected.len(), "each job ends once");
    signal(served.process(), Signal::TERM);
}

#[test]
fn a_damaged_ledger_is_mended_and_said() {
    let scene = Scene::new("");
    let first = Served::start(&scene, &["--policy", "fifo", "--slots", "2"]);
    assert_eq!(first.submit("a", &synthetic("job", 1, 100_000, 4.0), json!({ "workers": "1" })).status, 201);
    first.until("it runs", |jobs| jobs["a"]["state"] == "running");
    assert_eq!(first.interrupt(), Some(0));
    // The disk forgets half of a line in the middle.
    let ledger = ledger(&scene);
    let text = fs::read_to_string(&ledger).expect("a ledger");
    let damaged = text.replacen("\"entry\":\"held\"", "\"ent", 1);
    assert_ne!(damaged, text);
    fs::write(&ledger, &damaged).expect("it can be written");
    let second = Served::start(&scene, &[]);
    let said = || second.live.as_ref().map_or_else(String::new, Live::stderr);
    // The daemon may answer before it has said so.
    wait_for(said, || {
        let said = said();
        (said.contains("the ledger was damaged: 1 line") && said.contains("ledger.jsonl.damaged-1"))
            .then_some(())
    });
    let kept = fs::read_to_string(ledger.with_extension("jsonl.damaged-1")).expect("it is kept");
    assert_eq!(kept, damaged);
    // It left with a checkpoint, and is decided on again.
    second.until("it runs again", |jobs| jobs["a"]["state"] == "running");
    assert_eq!(second.ask("POST", "/v1/jobs/a/cancel", None).status, 200);
    second.until("it is cancelled", |jobs| jobs["a"]["state"] == "cancelled");
    assert_eq!(second.interrupt(), Some(0));
}

#[test]
fn a_job_that_waits_is_told_for_what_and_starts_when_it_was_foreseen() {
    let scene = Scene::new("");
    let served = Served::start(&scene, &["--policy", "fifo", "--slots", "1"]);
    for (name, steps) in [("first", 300), ("second", 20), ("third", 20)] {
        let answer = served.submit(name, &synthetic("job", 1, steps, 5.0), json!({ "workers": "1" }));
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    // As soon as the first one was seen to train, its speed is more than a guess.
    let soon = |jobs: &BTreeMap<String, Value>| {
        let high_s = jobs["third"]["outlook"]["start"]["high_s"].as_f64();
        high_s.is_some_and(|high_s| high_s < jobs["third"]["submitted_s"].as_f64().unwrap_or(0.0) + 60.0)
    };
    served.until("its start is foreseen", soon);
    let foreseen = served.jobs()["third"]["outlook"].clone();
    assert_eq!(foreseen["waits_for"], "it needs 1 slot, and none is free");
    assert_eq!((&foreseen["ahead"], &foreseen["ahead_names"]), (&json!(1), &json!(["second"])));
    let shown = scene.call(&["show", "third"]).stdout;
    assert!(shown.contains("waits for") && shown.contains("it needs 1 slot, and none is free"), "{shown}");
    assert!(shown.contains("ahead of it") && shown.contains("1 job: second"), "{shown}");
    assert!(shown.contains("expected start") && shown.contains("90 % within"), "{shown}");
    assert!(scene.call(&["jobs"]).stdout.contains("starts in"), "{shown}");
    served.until_all("finished");
    let third = &served.jobs()["third"];
    assert_eq!(third["outlook"], Value::Null);
    let started_s = third["started_s"].as_f64().expect("it started");
    let [low_s, high_s] = ["low_s", "high_s"].map(|key| foreseen["start"][key].as_f64().expect("a time"));
    // Processes take a while to start and to leave, on a machine where other tests run.
    assert!((low_s - 10.0..high_s + 20.0).contains(&started_s), "{low_s} to {high_s}, and {started_s}");
    assert_eq!(served.interrupt(), Some(0));
    let ledger = ledger(&scene);
    let replayed =
        scene.call(&["simulate", "--outlook", "--replay", ledger.to_str().expect("a path")]).stdout;
    let last = replayed.lines().last().unwrap_or_default();
    assert!(last.starts_with("outlook: ") && last.contains(" of 2 starts within the interval"), "{replayed}");
}
