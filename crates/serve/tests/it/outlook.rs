//! What the engine asks of an outlook, and what clients see of the answer.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bellwether_core::cluster::JobId;
use bellwether_core::outlook::{Expected, Times};
use bellwether_core::parse;
use bellwether_serve::clock::SystemClock;
use bellwether_serve::engine::Options;
use bellwether_serve::ledger::{self, FileStore};
use bellwether_serve::outlook::{Outlook, Question};
use bellwether_serve::request::{Request, Submission};
use bellwether_serve::runner::Report;
use bellwether_serve::snapshot::{JobOutlook, Phase};
use bellwether_serve::state::State;

use crate::engine::{Daemon, options, submission};

type Answer = Result<BTreeMap<JobId, Expected>, String>;

/// Says what it is told to say, or panics, and hands on what it was asked.
struct Played {
    asked: Sender<Question>,
    answers: Box<dyn FnMut(&Question) -> Answer + Send>,
}

impl Outlook for Played {
    fn look(&mut self, question: &Question) -> Answer {
        let answer = (self.answers)(question);
        let Question { present, belief, deciding } = question;
        let question =
            Question { present: present.clone(), belief: belief.as_of_now(), deciding: deciding.clone() };
        // The test may be over.
        let _ = self.asked.send(question);
        answer
    }
}

fn start(
    policy: &str,
    queues: Option<&str>,
    answers: impl FnMut(&Question) -> Answer + Send + 'static,
) -> (Daemon, Receiver<Question>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (asked, questions) = channel();
    let outlook = Box::new(Played { asked, answers: Box::new(answers) });
    let queues = queues.map(|text| parse::document(text, "test").expect("a file of queues"));
    let options = Options { outlook: Some(outlook), queues, ..options(folder.path(), Some(policy), 4) };
    let store = Box::new(FileStore::new(folder.path().join("ledger.jsonl")));
    let clock = SystemClock::new().expect("the system gives what is needed");
    (Daemon::start_as(options, clock, store), questions, folder)
}

/// Each job starts 100 s after the one before it, and ends 50 s later.
fn in_line(question: &Question) -> Answer {
    let from_s = question.present.now_s;
    let times = |middle_s: f64| Times { low_s: middle_s - 10.0, middle_s, high_s: middle_s + 10.0 };
    let jobs = question.present.view.jobs.iter();
    let expected = jobs.enumerate().map(|(place, (id, seen))| {
        let start_s = from_s + 100.0 * place as f64;
        (*id, Expected { start: (!seen.is_running()).then(|| times(start_s)), end: times(start_s + 50.0) })
    });
    Ok(expected.collect())
}

fn outlook(daemon: &Daemon, job: &str) -> JobOutlook {
    daemon.until("it was foreseen", |daemon| daemon.job(job).outlook.is_some());
    daemon.job(job).outlook.clone().unwrap()
}

#[test]
fn who_waits_is_told_for_what_and_until_when() {
    let (daemon, questions, _folder) = start("fifo", None, in_line);
    daemon.submit("runs", "3").unwrap();
    daemon.until("it starts", |daemon| daemon.wanted(0) == Some(3));
    daemon.trains(0, 3);
    for (name, workers) in [("wide", "4"), ("narrow", "2"), ("last", "1")] {
        daemon.submit(name, workers).unwrap();
    }
    let wide = outlook(&daemon, "wide");
    assert_eq!(wide.waits_for, "it needs 4 slots, and 1 is free");
    assert_eq!((wide.ahead, wide.ahead_names.len()), (0, 0));
    let submitted_s = daemon.job("wide").submitted_s;
    let start = wide.start.unwrap();
    let waits_s = start.middle_s.unwrap() - submitted_s;
    assert!((99.0..115.0).contains(&waits_s), "{waits_s}");
    assert_eq!(start.high_s.unwrap().round(), (start.low_s + 20.0).round());
    let last = outlook(&daemon, "last");
    assert_eq!(last.waits_for, "1 slot is free, and `fifo` lets it wait");
    assert_eq!((last.ahead, last.ahead_names), (2, vec!["wide".to_owned(), "narrow".to_owned()]));
    let runs = outlook(&daemon, "runs");
    assert_eq!((runs.waits_for.as_str(), runs.start, runs.end.is_some()), ("", None, true));
    // What ended is foreseen no more, and what its end brought is.
    daemon.finish(0);
    daemon.until("it ended", |daemon| daemon.job("runs").state == Phase::Finished);
    assert_eq!(daemon.job("runs").outlook, None);
    daemon.until("the next one has what it waited for", |daemon| daemon.wanted(1) == Some(4));
    daemon.trains(1, 4);
    daemon.until("and is told when it ends", |daemon| {
        let wide = daemon.job("wide");
        wide.state == Phase::Running && wide.outlook.as_ref().is_some_and(|it| it.waits_for.is_empty())
    });
    daemon.until("the others move up", |daemon| outlook(daemon, "narrow").ahead == 0);
    daemon.stop();
    let question = questions.into_iter().last().expect("it was asked");
    assert_eq!(question.present.past.parts.iter().map(|(_, part)| *part).collect::<Vec<_>>(), [1.0]);
    // They came within a second of each other: as one.
    assert_eq!(question.present.past.arrivals.len(), 1);
    assert!((0.0..60.0).contains(&question.present.past.over_s), "since the ledger began");
    assert_eq!(question.present.view.jobs.len(), 3);
}

#[test]
fn a_limit_is_named_and_no_job_of_another_queue() {
    let queues = "[[queues]]\nname = \"a\"\nlimit = 2\n[[queues]]\nname = \"b\"\n";
    let (daemon, _questions, _folder) = start("fifo", Some(queues), in_line);
    for (name, workers, queue) in
        [("one", "2", "a"), ("two", "2", "a"), ("other", "4", "b"), ("three", "1", "a")]
    {
        let queue = Some(queue.into());
        let submission = Submission { queue, ..submission(name, workers) };
        daemon.ask(Request::Submit(Box::new(submission))).unwrap();
    }
    daemon.until("one starts", |daemon| daemon.wanted(0) == Some(2));
    assert_eq!(
        outlook(&daemon, "two").waits_for,
        "it needs 2 slots, and its queue `a` holds as many as it may"
    );
    assert_eq!(outlook(&daemon, "other").waits_for, "it needs 4 slots, and 2 are free");
    let three = outlook(&daemon, "three");
    assert_eq!((three.ahead, three.ahead_names), (2, vec!["two".to_owned()]));
    daemon.stop();
}

#[test]
fn a_job_has_gone_on_since_it_was_heard_of() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 4);
    daemon.submit("a", "1").unwrap();
    daemon.until("it starts", |daemon| daemon.wanted(0) == Some(1));
    daemon.trains(0, 1);
    std::thread::sleep(Duration::from_millis(150));
    let (since, examples_per_s) = (Duration::from_millis(100), Some(160.0));
    daemon.report(Report::Progress { job: JobId(0), step: 50, since, loss: None, examples_per_s });
    daemon.until("it was heard", |daemon| daemon.job("a").step == 50);
    // The policy is asked.
    daemon.submit("b", "4").unwrap();
    daemon.until("b was decided about", |daemon| {
        daemon.job("b");
        let text = std::fs::read_to_string(folder.path().join("ledger.jsonl")).unwrap();
        text.matches("\"moment\"").count() == 2
    });
    daemon.stop();
    let mut state = None;
    let fold = |line| State::fold(&mut state, &line).map_err(|error| error.to_string());
    ledger::read(&folder.path().join("ledger.jsonl"), fold).unwrap();
    let state = state.unwrap();
    let seen = &state.view.jobs[&JobId(0)];
    // A step of 8 samples takes 50 ms, and reports may be 250 ms apart: it is not known that it goes on for longer.
    let gone_on = (seen.done(state.now_s) - 50.0 * 8.0) / 160.0;
    assert!((0.1..0.31).contains(&gone_on), "{gone_on} s");
}

#[test]
fn an_outlook_that_fails_is_asked_again_and_says_why() {
    let mut turn = 0;
    let (asked, _questions) = channel();
    let (teller, told) = channel();
    let answers = move |question: &Question| {
        turn += 1;
        match turn {
            // A panic whose backtrace is not printed: the time that this takes would count as time of the look.
            1 => std::panic::resume_unwind(Box::new("it is made to")),
            2 => Err("it does not know".into()),
            // No news: it is said once.
            3 => Err("it does not know".into()),
            _ => in_line(question),
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        outlook: Some(Box::new(Played { asked, answers: Box::new(answers) })),
        tell: Box::new(move |what| drop(teller.send(what.to_owned()))),
        ..options(folder.path(), Some("fifo"), 4)
    };
    let store = Box::new(FileStore::new(folder.path().join("ledger.jsonl")));
    let daemon = Daemon::start_as(options, SystemClock::new().unwrap(), store);
    daemon.submit("a", "4").unwrap();
    daemon.submit("b", "4").unwrap();
    let (mut shown, since) = (vec![None], Instant::now());
    let mut news = Duration::ZERO;
    while daemon.job("b").outlook.is_none() {
        let passed = since.elapsed();
        assert!(passed < Duration::from_secs(30), "the fourth look is shown");
        if passed >= news {
            // Each look takes some news.
            let _ = daemon.submit(&format!("more-{}", daemon.phases().len()), "4");
            news = passed + Duration::from_millis(200);
        }
        let failure = daemon.cluster().no_outlook.clone();
        if shown.last() != Some(&failure) {
            shown.push(failure);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.until("what failed before is not shown any more", |daemon| daemon.cluster().no_outlook.is_none());
    daemon.stop();
    // Clients see it, and it is said when it changes.
    let (failed, ignorant) = ("the simulation failed".to_owned(), "it does not know".to_owned());
    shown.retain(Option::is_some);
    assert_eq!(shown, [Some(failed.clone()), Some(ignorant.clone())]);
    let why = |why: String| format!("it is not foreseen when jobs start and end: {why}");
    let again = "it is foreseen again when jobs start and end".to_owned();
    assert_eq!(told.iter().collect::<Vec<_>>(), [why(failed), why(ignorant), again]);
}
