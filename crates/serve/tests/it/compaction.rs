//! A ledger is compacted: by a daemon while it runs, by one that begins, and by one that is cut short at any step.

use std::fs;
use std::path::{Path, PathBuf};

use bellwether_serve::clock::SystemClock;
use bellwether_serve::engine::{Engine, EngineError, Options};
use bellwether_serve::ledger::{FileStore, LedgerFile, read};
use bellwether_serve::request::{Reply, Request, Submission};
use bellwether_serve::runner::{JobRunner, Wanted};
use bellwether_serve::snapshot::Phase;
use bellwether_serve::state::State;

use crate::engine::{Daemon, options, submission};

fn state(ledger: &Path) -> State {
    let mut state = None;
    read(ledger, |line| State::fold(&mut state, &line)).unwrap();
    state.unwrap()
}

fn told(mut state: State) -> String {
    state.touched.clear();
    (state.decisions_changed, state.slots.version) = (false, 0);
    format!("{state:?}")
}

fn is_compacted(ledger: &Path) -> bool {
    fs::read_to_string(ledger).unwrap().lines().next().is_some_and(|line| line.contains("\"compacted\""))
}

fn daemon(folder: &Path, policy: Option<&str>, compact_at: u64) -> Daemon {
    let options = Options { compact_at, machine: None, ..options(folder, policy, 2) };
    let store = Box::new(FileStore::new(options.ledger.clone()));
    Daemon::start_as(options, SystemClock::new().unwrap(), store)
}

/// A daemon has had jobs, some of which ended; its ledger, which was never compacted.
fn history(folder: &Path) -> PathBuf {
    let options = options(folder, Some("fifo"), 2);
    let ledger = options.ledger.clone();
    let store = Box::new(FileStore::new(ledger.clone()));
    let daemon = Daemon::start_as(options, SystemClock::new().unwrap(), store);
    for number in 0..3 {
        let key = Some(format!("key-{number}"));
        let named = Submission { key, name: None, ..submission("x", "1") };
        daemon.ask(Request::Submit(Box::new(named))).unwrap();
    }
    daemon.until("two start", |d| d.wanted(0) == Some(1) && d.wanted(1) == Some(1));
    daemon.trains(0, 1);
    daemon.trains(1, 1);
    daemon.until("one trains", |d| d.job("test-1").state == Phase::Running);
    daemon.finish(0);
    daemon.until("the third starts", |d| d.wanted(2) == Some(1));
    daemon.ask(Request::Suspend { job: "test-2".into(), by: "its user".into() }).unwrap();
    daemon.stop();
    ledger
}

#[test]
fn a_daemon_compacts_a_long_ledger_while_it_runs_and_the_next_one_knows_all() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = history(folder.path());
    let before = fs::metadata(ledger.with_file_name("ledger.jsonl")).unwrap().len();
    // Long enough after some more lines, not yet when it begins.
    let running = daemon(folder.path(), None, before + 2_000);
    assert!(!is_compacted(&ledger));
    running.until("it is compacted", |d| {
        let workers = Some("1".parse().unwrap());
        for weight in [Some(2.0), Some(3.0)] {
            d.ask(Request::Limit { job: "test-3".into(), workers, weight }).unwrap();
        }
        is_compacted(&ledger)
    });
    let shown = running.phases();
    assert_eq!(shown["test-1"], Phase::Finished);
    running.stop();
    let kept = ledger.with_file_name("ledger.jsonl.before");
    assert!(!is_compacted(&kept), "all lines before are kept");
    assert!(fs::metadata(&kept).unwrap().len() >= before + 2_000);
    let next = daemon(folder.path(), None, u64::MAX);
    assert_eq!(next.phases(), shown);
    assert_eq!(next.job("test-1").digest.as_deref(), Some("d1"));
    assert_eq!(next.policy(), "fifo");
    // The same submission is still the same, and names go on.
    let again = |key: &str| {
        let named = Submission { key: Some(key.into()), name: None, ..submission("x", "1") };
        match next.ask(Request::Submit(Box::new(named))).unwrap() {
            Reply::Job { job, created } => (job.name.clone(), created),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(again("key-1"), ("test-2".into(), false));
    assert_eq!(again("key-9"), ("test-4".into(), true));
    next.stop();
}

#[test]
fn a_ledger_is_not_compacted_again_before_it_has_grown() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = history(folder.path());
    for _ in 0..5 {
        daemon(folder.path(), None, 1).stop();
        assert!(is_compacted(&ledger));
    }
    // The first of them compacted it; a few lines more are not enough.
    let lines = fs::read_to_string(&ledger).unwrap();
    assert!(lines.matches("\"reopened\"").count() >= 5, "{lines}");
}

/// The folder of a ledger at one moment: the contents of its files.
type Moment<'c> = Vec<(&'static str, &'c [u8])>;

#[test]
fn a_daemon_that_is_cut_short_at_any_step_of_a_compaction_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = history(folder.path());
    let long = fs::read(&ledger).unwrap();
    let whole = state(&ledger);
    let short = whole.compacted().unwrap();
    let whole = told(whole);
    let mut moments: Vec<Moment<'_>> = Vec::new();
    for part in [0, 1, short.len() / 2, short.len() - 1, short.len()] {
        moments.push(vec![("", &long), (".part", &short[..part])]);
        moments.push(vec![("", &long), (".part", &short[..part]), (".before", b"older\n")]);
    }
    // `.before.part` and `.before` are other names of the ledger itself.
    moments.push(vec![("", &long), (".part", &short), (".before.part", &long), (".before", b"older\n")]);
    moments.push(vec![("", &long), (".part", &short), (".before.part", &long), (".before", &long)]);
    moments.push(vec![("", &long), (".part", &short), (".before", &long)]);
    moments.push(vec![("", &short), (".before", &long)]);
    for (number, moment) in moments.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.jsonl");
        fs::write(&ledger, moment[0].1).unwrap();
        for (ending, content) in &moment[1..] {
            let path = ledger.with_file_name(format!("ledger.jsonl{ending}"));
            match *content == long {
                true => fs::hard_link(&ledger, path).unwrap_or_else(|_| panic!("moment {number}")),
                false => fs::write(path, content).unwrap(),
            }
        }
        if moment[0].1 == short {
            let before = ledger.with_file_name("ledger.jsonl.before");
            fs::remove_file(&before).unwrap();
            fs::write(before, &long).unwrap();
        }
        let store = Box::new(FileStore::new(ledger.clone()));
        let (mut file, found, damage) = LedgerFile::open(store, 1, State::fold).unwrap();
        assert_eq!(damage, None);
        let found = found.unwrap();
        let bytes = found.compacted().unwrap();
        assert_eq!(told(found), whole, "moment {number}");
        file.compact(&bytes).unwrap();
        file.sync().unwrap();
        assert_eq!(told(state(&ledger)), whole, "moment {number}, compacted again");
        assert_eq!(fs::read(ledger.with_file_name("ledger.jsonl.before")).unwrap(), moment[0].1);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ledger.jsonl", "ledger.jsonl.before"], "moment {number}");
    }
}

struct NoRunner;

impl JobRunner for NoRunner {
    fn want(&mut self, _wanted: Wanted) {}

    fn release(&mut self, _runs: Vec<std::path::PathBuf>) {}
}

#[test]
fn a_compacted_ledger_that_lost_its_end_is_refused_and_one_that_lost_a_line_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = history(folder.path());
    let bytes = String::from_utf8(state(&ledger).compacted().unwrap()).unwrap();
    let lines: Vec<&str> = bytes.lines().collect();
    let open = || {
        let options = Options { machine: None, ..options(folder.path(), None, 2) };
        Engine::open(options, |_| NoRunner).map(|(engine, _)| (engine.damage().cloned(), engine.summary()))
    };
    fs::write(&ledger, lines[..lines.len() - 1].join("\n") + "\n").unwrap();
    let refused = open().unwrap_err();
    assert!(
        matches!(&refused, EngineError::Ledger { source, .. } if source.to_string().contains("ledger.jsonl.before")),
        "{refused}"
    );
    // A job's line is damaged: the job is lost, and that is said; the others are there.
    let mut damaged = lines.clone();
    damaged[2] = "damage";
    fs::write(&ledger, damaged.join("\n") + "\n").unwrap();
    let (damage, (policy, _, open_jobs)) = open().unwrap();
    assert_eq!(damage.map(|damage| damage.lines), Some(1));
    assert_eq!((policy.as_str(), open_jobs), ("fifo", 1));
    // Nothing that a compaction keeps may come later.
    let again = [lines.as_slice(), &lines[1..2]].concat().join("\n") + "\n";
    fs::write(&ledger, again).unwrap();
    assert_eq!(open().unwrap().0.map(|damage| damage.lines), Some(1));
}
