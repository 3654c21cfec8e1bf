//! The engine looks ahead: what it asks, when, and what it makes of the answer.
//!
//! A simulation of many jobs takes long beside an event, so it is done on a thread of its own, and never more of them
//! than a small part of the time allows.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bellwether_core::cluster::{JobId, JobView};
use bellwether_core::outlook::{self, Expected};
use bellwether_core::queue::DEFAULT_QUEUE;
use tokio::sync::mpsc::UnboundedSender;

use super::Engine;
use crate::clock::Clock;
use crate::outlook::{Outlook, Question};
use crate::runner::{JobRunner, Report};
use crate::snapshot::{JobOutlook, Phase, Times};
use crate::state::State;

/// The shortest time between two looks.
const PERIOD: Duration = Duration::from_secs(2);

/// The longest while something runs and nothing is decided: steps go on, and what is learnt of them is news.
const LONGEST: Duration = Duration::from_secs(60);

/// A look takes one part of this many of the time, at most.
const PARTS: u32 = 100;

/// Names of the jobs ahead that are told.
const NAMES: usize = 3;

/// Other times than those that were shown last are shown when they differ by this part of the time until then, and by
/// this much, in real seconds.
const CHANGE: f64 = 0.05;
const CHANGE_S: f64 = 2.0;

/// The thread that looks ahead, and what it was asked last.
pub(super) struct Lookout {
    questions: mpsc::Sender<Question>,
    is_looking: bool,
    /// When it was asked last, and until when it has a rest.
    asked: Option<Duration>,
    rests_until: Duration,
    /// Which moment was asked about.
    moment: u64,
    /// Why the last look failed, if it did.
    failure: Option<String>,
}

impl Lookout {
    /// Starts the thread. It ends with this.
    pub(super) fn start(mut outlook: Box<dyn Outlook>, reports: UnboundedSender<Report>) -> Lookout {
        let (questions, asked) = mpsc::channel::<Question>();
        std::thread::spawn(move || {
            for question in asked {
                let begun = Instant::now();
                // A simulation that panics must not silence the ones after it.
                let expected = catch_unwind(AssertUnwindSafe(|| outlook.look(&question)));
                let expected = expected.unwrap_or_else(|_| Err("the simulation failed".into()));
                if reports.send(Report::Expected { expected, took: begun.elapsed() }).is_err() {
                    return;
                }
            }
        });
        let (asked, rests_until) = (None, Duration::ZERO);
        Lookout { questions, is_looking: false, asked, rests_until, moment: u64::MAX, failure: None }
    }

    /// Whether it should be asked now.
    fn is_due(&self, now: Duration, moment: u64, runs: bool) -> bool {
        let is_news = self.moment != moment;
        let is_late = runs && self.asked.is_none_or(|asked| now.saturating_sub(asked) >= LONGEST);
        !self.is_looking && now >= self.rests_until && (is_news || is_late)
    }
}

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Asks what is to come, where something has changed and the last answer is long enough ago.
    pub(super) fn look_ahead(&mut self) {
        let (now, now_s) = (self.clock.elapsed(), self.now_s());
        let Some(lookout) = &mut self.lookout else { return };
        let runs = !self.state.active.holding.is_empty();
        // What has not been decided yet would be foreseen as it is decided a moment later.
        if !self.state.changes.is_empty() || !lookout.is_due(now, self.moments, runs) {
            return;
        }
        lookout.moment = self.moments;
        if self.state.view.jobs.is_empty() {
            // Of no job nothing need be foreseen.
            lookout.failure = None;
            return;
        }
        lookout.is_looking = lookout.questions.send(self.state.question(now_s)).is_ok();
        (lookout.asked, lookout.rests_until) = (Some(now), now + PERIOD);
    }

    /// What was foreseen is shown from now on.
    pub(super) fn foreseen(&mut self, expected: Result<BTreeMap<JobId, Expected>, String>, took: Duration) {
        let Some(lookout) = &mut self.lookout else { return };
        lookout.is_looking = false;
        lookout.rests_until = lookout.rests_until.max(self.clock.elapsed() + took * PARTS);
        let failure = expected.as_ref().err().cloned();
        if failure != lookout.failure {
            match &failure {
                Some(why) => {
                    (self.options.tell)(&format!("it is not foreseen when jobs start and end: {why}"))
                }
                None => (self.options.tell)("it is foreseen again when jobs start and end"),
            }
            lookout.failure = failure;
        }
        // Where nothing can be foreseen, nothing old is shown either.
        let expected = expected.unwrap_or_default();
        let now_s = self.state.unix_s(self.state.now_s);
        let outlooks = outlooks(&self.state, &expected);
        for job in self.outlooks.keys().filter(|job| !outlooks.contains_key(job)) {
            self.state.touched.insert(*job);
        }
        self.outlooks.retain(|job, _| outlooks.contains_key(job));
        for (job, outlook) in outlooks {
            if self.outlooks.get(&job).is_none_or(|before| is_news(before, &outlook, now_s)) {
                self.outlooks.insert(job, outlook);
                self.state.touched.insert(job);
            }
        }
    }

    /// Why nothing is foreseen, where the last look failed.
    pub(super) fn no_outlook(&self) -> Option<&String> {
        self.lookout.as_ref()?.failure.as_ref()
    }

    /// What was foreseen of a job, and still matters.
    pub(super) fn outlook_of(&self, job: JobId, phase: Phase) -> Option<JobOutlook> {
        let outlook = self.outlooks.get(&job).filter(|_| !phase.has_ended())?;
        match phase {
            Phase::Queued => Some(outlook.clone()),
            // It has what it waited for.
            Phase::Starting | Phase::Running => {
                Some(JobOutlook { end: outlook.end, ..JobOutlook::default() })
            }
            _ => None,
        }
    }
}

/// What is said of each job that has not ended meanwhile.
fn outlooks(state: &State, expected: &BTreeMap<JobId, Expected>) -> BTreeMap<JobId, JobOutlook> {
    let there =
        expected.iter().filter_map(|(job, expected)| Some((*job, expected, state.view.jobs.get(job)?)));
    let there: Vec<_> = there.collect();
    let waits = |(job, expected, seen): &(JobId, &Expected, &JobView)| {
        let start = expected.start.filter(|start| !seen.is_running() && start.low_s.is_finite())?;
        Some((start.middle_s, *job))
    };
    let mut line: Vec<(f64, JobId)> = there.iter().filter_map(waits).collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut places = BTreeMap::new();
    let mut last: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (place, (_, job)) in line.iter().enumerate() {
        let Some(record) = state.jobs.get(job) else { continue };
        let queue = record.submitted.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
        let names = last.entry(queue).or_default();
        places.insert(*job, (place as u32, names.clone()));
        if names.len() == NAMES {
            names.remove(0);
        }
        names.push(record.submitted.name.clone());
    }
    let waiting = state.waiting();
    let outlook = |(job, expected, seen): (JobId, &Expected, &JobView)| {
        let end = times(state, expected.end);
        if seen.is_running() {
            return (job, JobOutlook { end, ..JobOutlook::default() });
        }
        let (ahead, ahead_names) = places.remove(&job).unwrap_or_default();
        let start = expected.start.and_then(|start| times(state, start));
        (job, JobOutlook { waits_for: waiting.why(seen), ahead, ahead_names, start, end })
    };
    there.into_iter().map(outlook).collect()
}

/// The times as clients see them; `None` for what does not happen.
fn times(state: &State, times: outlook::Times) -> Option<Times> {
    let time = |time_s: f64| time_s.is_finite().then(|| state.unix_s(time_s));
    let (middle_s, high_s) = (time(times.middle_s), time(times.high_s));
    Some(Times { low_s: time(times.low_s)?, middle_s, high_s })
}

/// Whether clients should be told: in each look all times move a little.
fn is_news(before: &JobOutlook, after: &JobOutlook, now_s: f64) -> bool {
    let moved = |before: Option<f64>, after: Option<f64>| match (before, after) {
        (Some(before), Some(after)) => (after - before).abs() > CHANGE_S.max(CHANGE * (after - now_s).abs()),
        (before, after) => before.is_some() != after.is_some(),
    };
    let times = |times: Option<Times>| {
        let times = times.as_ref();
        [
            times.map(|times| times.low_s),
            times.and_then(|times| times.middle_s),
            times.and_then(|it| it.high_s),
        ]
    };
    let all = |outlook: &JobOutlook| times(outlook.start).into_iter().chain(times(outlook.end));
    before.waits_for != after.waits_for
        || (before.ahead, &before.ahead_names) != (after.ahead, &after.ahead_names)
        || all(before).zip(all(after)).any(|(before, after)| moved(before, after))
}
