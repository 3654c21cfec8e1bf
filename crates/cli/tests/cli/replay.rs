//! `bellwether simulate --replay`: a ledger whose times are known, one that was falsified, and ones that are none.

use bellwether_core::cluster::JobId;
use bellwether_core::job::WorkerRange;
use bellwether_core::parse;
use bellwether_core::policy::{Action, Policy, PolicyInput};
use bellwether_core::record::StepRecord;
use bellwether_sched::registry::Registry;
use bellwether_serve::ledger::{Entry, Line, Outcome, Submitted, Task};
use bellwether_serve::machine::Machine;
use bellwether_serve::state::State;
use serde_json::Value;

use crate::harness::{Ended, Scene};
use crate::served::synthetic;

/// A ledger as a daemon would write it whose processes are as fast as its test says.
struct Written {
    state: State,
    policy: Box<dyn Policy>,
    text: String,
}

impl Written {
    fn new(name: &str, slots: u32) -> Written {
        let version = "test".to_owned();
        let entry = Entry::Opened { version, unix_s: 0.0, time_scale: 1.0, machine: Machine::slots(slots) };
        let line = Line { time_s: 0.0, entry };
        let state = State::open(&line).expect("it opens a ledger");
        let text = serde_json::to_string(&line).expect("plain data") + "\n";
        let (_, policy) = Registry::built_in().parse(name).expect("a policy of the catalogue");
        let mut written = Written { state, policy, text };
        written.add(0.0, Entry::PolicyChosen { policy: name.into(), by: "test".into() });
        written
    }

    fn add(&mut self, time_s: f64, entry: Entry) {
        let line = Line { time_s, entry };
        self.state.apply(&line).expect("it can be");
        self.text += &(serde_json::to_string(&line).expect("plain data") + "\n");
    }

    /// The ledger is compacted: its lines go, and the policy goes on.
    fn compact(&mut self) {
        self.text = String::from_utf8(self.state.compacted().expect("it can be written")).expect("JSON");
    }

    /// Another daemon takes it up, with a fresh policy.
    fn reopen(&mut self, time_s: f64) {
        self.add(time_s, Entry::Reopened { version: "test".into(), process: 1 });
        self.policy = Registry::built_in().parse(&self.state.policy).expect("a policy of the catalogue").1;
    }

    /// 100 steps of 2 virtual nodes of 50 ms each.
    fn submit(&mut self, time_s: f64, name: &str, most: u32) -> JobId {
        let text = synthetic(name, 1, 100, 50.0).replace("virtual_nodes = 8", "virtual_nodes = 2");
        let id = JobId(self.state.jobs.len() as u32);
        let submitted = Submitted {
            queue: None,
            user: None,
            provision: None,
            id,
            name: name.into(),
            job: parse::job(&text, name, &[]).expect("a job").into_job(),
            workers: WorkerRange { min: 1, max: most },
            weight: 1.0,
            deadline_s: None,
            task: Task { training_samples: 1_000, bytes: 4_096 },
            kind: "kind".into(),
            servers: 0,
            profiled: Vec::new(),
            device_types: Vec::new(),
            ways: Vec::new(),
            profile_first: false,
            key: None,
        };
        self.add(time_s, Entry::Submitted(Box::new(submitted)));
        id
    }

    /// The policy is asked.
    fn decide(&mut self, time_s: f64) {
        self.add(time_s, Entry::Moment { progress: Vec::new() });
        let State { now_s, view, changes, belief, .. } = &self.state;
        let input = PolicyInput { now_s: *now_s, view, changes, model: belief };
        let decision = self.policy.decide(&input);
        self.add(time_s, Entry::Decided { decision, deciding_s: 0.001 });
    }

    fn train(&mut self, time_s: f64, job: JobId, workers: u32) {
        self.add(time_s, Entry::Training { job, workers });
        let nodes_s = vec![0.05; 2 / workers as usize];
        let duration_s = nodes_s.iter().sum();
        let step = StepRecord { duration_s, nodes_s, ..StepRecord::default() };
        self.add(
            time_s,
            Entry::Learnt {
                job,
                workers,
                speed: 1.0,
                steps: vec![step; 9],
                processor_wait: None,
                matters: false,
            },
        );
    }

    fn end(&mut self, time_s: f64, job: JobId) {
        let outcome = Outcome::Finished;
        self.add(
            time_s,
            Entry::Ended {
                job,
                outcome,
                why: String::new(),
                step: 100,
                digest: None,
                loss: None,
                unix_s: None,
            },
        );
    }
}

/// One slot, two jobs of 10 s, of which the first has just ended; the other is returned. Half a second to start.
fn one_of_two() -> (Written, JobId) {
    let mut written = Written::new("fifo", 1);
    let one = written.submit(0.0, "one", 1);
    written.decide(0.0);
    let two = written.submit(0.25, "two", 1);
    written.decide(0.25);
    written.train(0.5, one, 1);
    written.end(10.5, one);
    (written, two)
}

/// The same until both have ended, one after the other. A third has just arrived.
fn one_after_the_other() -> Written {
    let (mut written, two) = one_of_two();
    written.decide(10.5);
    written.train(11.0, two, 1);
    written.end(21.0, two);
    written.decide(21.0);
    written.submit(22.0, "three", 1);
    written.decide(22.0);
    written
}

fn replayed(text: &str, more: &[&str]) -> (Ended, Value) {
    let scene = Scene::new("");
    scene.write("ledger.jsonl", text);
    let ended = scene.call(&[&["simulate", "--replay", "ledger.jsonl", "--format", "json"], more].concat());
    let value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    (ended, value)
}

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap_or(f64::NAN);
    assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
}

#[test]
fn an_ideal_daemon_is_simulated_to_the_second() {
    let written = one_after_the_other();
    let (ended, told) = replayed(&written.text, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((&told["decisions"]["all"], &told["decisions"]["same"]), (&5.into(), &5.into()));
    assert_eq!(told["policy"], "fifo");
    close(&told["start_s"], 0.5);
    for (job, name, seconds) in [(0, "one", 10.5), (1, "two", 20.75)] {
        let job = &told["jobs"][job];
        assert_eq!((&job["job"], &job["outcome"]), (&name.into(), &"finished".into()));
        close(&job["measured_s"], seconds);
        close(&job["simulated_s"], seconds);
    }
    // The third has not ended: the simulator says when it would.
    let last = &told["jobs"][2];
    assert_eq!((&last["outcome"], &last["measured_s"]), (&"not ended".into(), &Value::Null));
    close(&last["simulated_s"], 10.5);
    close(&told["mean_gap"], 0.0);
    assert_eq!((&told["allocations"]["same"], &told["allocations"]["measured"]), (&3.into(), &3.into()));
}

#[test]
fn a_resize_costs_what_it_was_measured_to() {
    let mut written = Written::new("wfs", 2);
    let one = written.submit(0.0, "one", 2);
    written.decide(0.0);
    written.train(0.0, one, 2);
    let two = written.submit(1.0, "two", 1);
    written.decide(1.0);
    // One gives a slot up at once.
    written.train(1.0, one, 1);
    written.train(1.0, two, 1);
    // 10 s for `two`; `one` did 20 steps, then 100 by the time `two` ends: it is done before, at 9.
    written.end(9.0, one);
    written.decide(9.0);
    written.end(11.0, two);
    let (ended, told) = replayed(&written.text, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    close(&told["restart_s"], 0.0);
    assert_eq!(told["jobs"][0]["measured_devices"], serde_json::json!([2, 1]));
    assert_eq!(told["jobs"][0]["simulated_devices"], told["jobs"][0]["measured_devices"]);
    close(&told["jobs"][0]["simulated_s"], 9.0);
    close(&told["jobs"][1]["simulated_s"], 10.0);
    // What somebody says it costs counts more than what was measured: `one` stops from 1 to 4, has 10 steps left when `two`
    // ends at 11, stops again when it gets that slot, and does them in 0.5 s.
    let (_, dear) = replayed(&written.text, &["--restart", "3s"]);
    close(&dear["jobs"][0]["simulated_s"], 14.5);
}

#[test]
fn another_policy_is_asked_what_it_would_have_done() {
    let written = one_after_the_other();
    let (ended, told) = replayed(&written.text, &["--policy", "srtf"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((&told["policy"], &told["decisions"]), (&"srtf".into(), &Value::Null));
    let scene = Scene::new("");
    scene.write("ledger.jsonl", &written.text);
    let table = scene.call(&["simulate", "--replay", "ledger.jsonl"]);
    for words in ["decisions: 5 of 5 the same", "mean of 2", "allocations: all 3 in the same order", "+0.0 %"]
    {
        assert!(table.stdout.contains(words), "`{words}` is not in: {table:?}");
    }
    let csv = scene.call(&["simulate", "--replay", "ledger.jsonl", "--format", "csv"]);
    assert!(
        csv.stdout
            .starts_with("job,outcome,submitted_s,measured_s,simulated_s,gap\none,finished,0,10.5,10.5,0\n"),
        "{csv:?}"
    );
}

#[test]
fn a_decision_that_the_policy_would_not_make_is_found() {
    let written = one_after_the_other();
    // The daemon is said to have let `two` wait at 10.5 s.
    let falsified = |line: &str| {
        let mut line: Line = serde_json::from_str(line).expect("a line of ours");
        if let Entry::Decided { decision, .. } = &mut line.entry
            && line.time_s == 10.5
        {
            decision.actions.retain(|action| matches!(action, Action::Refuse { .. }));
        }
        serde_json::to_string(&line).expect("plain data") + "\n"
    };
    let text: String =
        written.text.lines().filter(|line| !line.contains(r#""workers":1,"speed""#)).map(falsified).collect();
    let (ended, told) = replayed(&text, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let first = &told["decisions"]["first_difference"];
    close(&first["time_s"], 10.5);
    assert_eq!(first["number"], 3);
    assert!(first["recorded"].as_str().is_some_and(|text| text.starts_with("no change")), "{first}");
    assert!(first["replayed"].as_str().is_some_and(|text| text.starts_with("two: 1 on node 0")), "{first}");
}

#[test]
fn a_compacted_ledger_is_replayed_as_far_as_it_goes() {
    let (mut written, two) = one_of_two();
    written.compact();
    // By a policy of which it is not known what it remembers.
    written.decide(10.5);
    written.train(11.0, two, 1);
    written.reopen(12.0);
    written.decide(12.0);
    written.end(21.0, two);
    written.decide(21.0);
    let (ended, told) = replayed(&written.text, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((&told["decisions"]["all"], &told["decisions"]["same"]), (&2.into(), &2.into()));
    for (job, name, seconds) in [(0, "one", 10.5), (1, "two", 20.75)] {
        let job = &told["jobs"][job];
        assert_eq!((&job["job"], &job["outcome"]), (&name.into(), &"finished".into()));
        close(&job["measured_s"], seconds);
        close(&job["simulated_s"], seconds);
    }
    assert_eq!(told["allocations"], Value::Null);
    let remarks = told["remarks"].to_string();
    for words in ["compacted at 10.500 s, with 2 jobs", "ledger.jsonl.before", "1 decision was not compared"]
    {
        assert!(remarks.contains(words), "{remarks}");
    }
    let scene = Scene::new("");
    scene.write("ledger.jsonl", &written.text);
    let table = scene.call(&["simulate", "--replay", "ledger.jsonl"]);
    assert!(!table.stdout.contains("allocations: ") && table.stdout.contains("2 of 2 the same"), "{table:?}");
    // Without its last line it is not known who held what.
    let head: String = written.text.lines().take(2).map(|line| format!("{line}\n")).collect();
    replayed(&head, &[]).0.refused_with(&["ledger.jsonl.before"]);
}

#[test]
fn what_is_no_ledger_is_refused() {
    for (text, word) in [("", "empty"), ("{}\n", "line 1"), ("job_id,num_gpu\n1,2\n", "line 1")] {
        let (ended, _) = replayed(text, &[]);
        ended.refused_with(&["ledger.jsonl", word]);
    }
    let mut late = one_after_the_other().text;
    late += "{\"time_s\":1.0,\"entry\":\"resumed\",\"job\":0}\n";
    replayed(&late, &[]).0.refused_with(&["time goes back"]);
    let scene = Scene::new("");
    scene.call(&["simulate", "--replay", "nowhere.jsonl"]).refused_with(&["nowhere.jsonl", "ledger"]);
    let text = one_after_the_other().text;
    replayed(&text, &["--policy", "fifo,srtf"]).0.refused_with(&["--policy", "one policy"]);
    replayed(&text, &["--cluster", "1x4"]).0.refused_with(&["--replay", "--cluster"]);
    scene.call(&["simulate", "--policy", "fifo"]).refused_with(&["--cluster", "--trace"]);
}
