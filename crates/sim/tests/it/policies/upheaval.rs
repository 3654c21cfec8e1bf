//! Policies while all changes around them: put in place where others gave the devices out, with models that learn and
//! users who revise, cancel, suspend and resume.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, JobView, Node, NodeId};
use bellwether_core::policy::{Action, Changes, Decision, Policy, PolicyInput};
use bellwether_sched::drive::drive;
use bellwether_sched::enforce_limits::WithLimits;
use bellwether_sched::policy::las::{Attained, Queues, WholeView};
use bellwether_sched::registry::Registry;
use proptest::prelude::*;

use super::common::{cluster, rigid};
use super::elastic::Forgetful;
use super::laws::Conserving;
use super::live::{Belief, Event, Live, NUMBERS, jagged};
use super::twins::Both;

/// Beside all of the catalogue: queues, rounds and intervals that are short against the jobs, and other options.
const ALSO: [&str; 8] = [
    "las:20,60",
    "las2d:30,31,100",
    "las:20,promote=1.5",
    "gittins2d:30,90,quantum=20",
    "gavel_max_min:5,20",
    "gavel_ftf:5,realloc=0",
    "pollux:interval=3",
    "sia:3",
];

/// Those that remember nothing which a view does not show.
const FORGETFUL: [&str; 16] = [
    "fifo",
    "fifo_skip",
    "easy",
    "priority",
    "srtf",
    "srsf",
    "edf",
    "equi",
    "fair",
    "wfs",
    "hell",
    "knee",
    "hesrpt",
    "srpt_greedy",
    "optimus",
    "afs",
];

fn names() -> Vec<&'static str> {
    Registry::built_in().iter().map(|about| about.name).chain(ALSO).chain(["elasticflow:refuse=1"]).collect()
}

/// A policy, beside its twin where it has one for this cluster.
fn made(name: &'static str, view: &ClusterView) -> Box<dyn Policy> {
    let (about, policy) = Registry::built_in().parse(name).expect("a policy");
    let (thresholds, promote): (&[f64], f64) = match name {
        "las:20,60" => (&[20.0, 60.0], 0.0),
        "las2d:30,31,100" => (&[30.0, 31.0, 100.0], 0.0),
        "las:20,promote=1.5" => (&[20.0], 1.5),
        _ => return policy,
    };
    if view.device_types.len() > 1 {
        return policy;
    }
    let attained = if name.starts_with("las2d") { Attained::Service } else { Attained::Time };
    let queues = Queues::new(attained, thresholds.to_vec(), promote).expect("they ascend");
    let twin = WithLimits::new(Box::new(WholeView::new(queues)), about.gangs);
    Box::new(Both { policy, twin: Box::new(twin) })
}

/// Holds a policy to what its rule says of jobs that run, and of what it need not remember.
struct Watched {
    inner: Box<dyn Policy>,
    name: &'static str,
}

impl Policy for Watched {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, .. } = *input;
        let decision = self.inner.decide(input);
        let Changes { ended, arrived, lost, nodes, relearnt, .. } = changes;
        let somebody = !(ended.is_empty() && arrived.is_empty() && lost.is_empty());
        if FORGETFUL.contains(&self.name) && (somebody || !nodes.is_empty() || *relearnt) {
            let fresh = Forgetful(self.name).decide(input);
            assert_eq!(decision, fresh, "{} at {now_s} s, after {changes:#?}", self.name);
        }
        if FORGETFUL[..4].contains(&self.name) {
            let undisturbed =
                |seen: &JobView| seen.is_running() && view.check(seen, &seen.allocation).is_ok();
            for (id, _) in view.jobs.iter().filter(|(_, seen)| undisturbed(seen)) {
                let text = format!("{:?}", decision.actions);
                assert!(!text.contains(&format!("job: {id:?},")), "{} disturbs {id:?}: {text}", self.name);
            }
        }
        decision
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) view: ClusterView,
    pub(crate) script: Vec<(f64, Event)>,
    pub(crate) salt: u64,
    pub(crate) knows_work: bool,
}

impl Case {
    /// Runs the script, first under the policy of this number, until all jobs have ended.
    fn check(&self, first: usize) {
        let names = names();
        let belief = Belief { salt: Cell::new(self.salt), law: jagged };
        let mut live = Live::new(self.view.clone(), &belief, self.script.clone(), self.knows_work);
        let mut trail = Vec::new();
        while let Some(turn) = live.replacement {
            let name = names[(first + turn) % names.len()];
            trail.push(name);
            let (about, _) = Registry::built_in().parse(name).expect("a policy");
            let mut watched = Watched { inner: made(name, &self.view), name };
            let mut checked = Conserving { inner: &mut watched, about };
            let driven = drive(&mut checked, &mut live, &belief);
            assert_eq!(driven, Ok(()), "under {trail:?}");
        }
        assert!(live.is_over(), "under {trail:?} these never end: {:#?}", live.view.jobs);
    }
}

/// A job with numbers that are asked for, and how much work it has.
fn jobs(two_types: bool) -> impl Strategy<Value = (Job, f64)> {
    let number = || prop::sample::select(&NUMBERS[..]);
    let limits = (number(), number(), number(), 0..3_u32);
    let types = prop::sample::select(vec![vec![], vec![], vec![], vec![0], vec![1]]);
    let weight = prop::sample::select(vec![1.0, 1.0, 3.0, 10.0]);
    let deadline_s = prop_oneof![2 => Just(None), 1 => (0.0..600.0_f64).prop_map(Some)];
    (limits, types, weight, deadline_s, 1..40_u32).prop_map(
        move |((asked, one, other, elastic), types, weight, deadline_s, length)| {
            let mut entry = rigid(0, 0.0, asked, f64::from(length) * 5.0 * f64::from(asked));
            let job = Arc::make_mut(&mut entry.job);
            if elastic > 0 {
                (job.min_devices, job.max_devices) = (one.min(other), one.max(other));
            }
            (job.weight, job.deadline_s) = (weight, deadline_s);
            if two_types {
                job.device_types = types;
            }
            (job.clone(), entry.work)
        },
    )
}

fn events(two_types: bool) -> impl Strategy<Value = Event> {
    let place = || 0..64_usize;
    prop_oneof![
        8 => jobs(two_types).prop_map(|(job, work)| Event::Arrive(job, work)),
        2 => place().prop_map(Event::Cancel),
        2 => place().prop_map(Event::Suspend),
        2 => place().prop_map(Event::Resume),
        5 => (place(), jobs(two_types)).prop_map(|(place, (job, _))| Event::Revise(place, job)),
        2 => any::<u64>().prop_map(Event::Learn),
        1 => place().prop_map(Event::Toggle),
        2 => (1..64_usize).prop_map(Event::Replace),
    ]
}

/// Some events, half of them at the same instant as the one before; in the end all nodes are up and all jobs resumed.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let settings = (1..4_u32, any::<bool>(), 0..3_u32, any::<u64>(), any::<bool>());
    settings.prop_flat_map(|(nodes, two_types, restart, salt, knows_work)| {
        let gap_s = prop_oneof![2 => Just(0.0), 1 => (1..30_u32).prop_map(f64::from), 1 => 0.0..40.0_f64];
        let script = proptest::collection::vec((gap_s, events(two_types)), 4..40);
        script.prop_map(move |events| {
            let mut view = cluster(nodes, 8);
            if two_types {
                view.device_types.push("other".into());
                view.nodes.push(Node { device_type: 1, devices: 12, free: 12, up: true });
            }
            view.restart_s = f64::from(restart) * 1.5;
            let mut up = vec![true; view.nodes.len()];
            let mut time_s = 0.0;
            let (mut script, mut suspended) = (Vec::new(), 0);
            for (gap_s, event) in events {
                time_s += gap_s;
                if let Event::Toggle(place) = &event {
                    let place = place % up.len();
                    up[place] = !up[place];
                }
                suspended += usize::from(matches!(event, Event::Suspend(_)));
                script.push((time_s, event));
            }
            let down = up.iter().enumerate().filter(|(_, up)| !**up);
            script.extend(down.map(|(place, _)| (time_s, Event::Toggle(place))));
            script.extend((0..suspended).map(|_| (time_s, Event::Resume(0))));
            Case { view, script, salt, knows_work }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// No law is broken, promises are kept, no job is forgotten or there twice, and all jobs end.
    #[test]
    fn every_policy_stands_upheaval(case in cases()) {
        for first in 0..names().len() {
            case.check(first);
        }
    }
}

/// Who holds what after a decision.
type Note = (f64, BTreeMap<JobId, Allocation>);

/// Notes what its decisions lead to.
struct Noting<'a> {
    inner: Box<dyn Policy + Send>,
    notes: &'a RefCell<Vec<Note>>,
}

impl Policy for Noting<'_> {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, .. } = *input;
        let decision = self.inner.decide(input);
        let mut held: BTreeMap<JobId, Allocation> =
            view.jobs.iter().map(|(&id, seen)| (id, seen.allocation.clone())).collect();
        for action in &decision.actions {
            if let Action::Allocate { job, allocation, .. } = action {
                held.insert(*job, allocation.clone());
            }
        }
        self.notes.borrow_mut().push((now_s, held));
        decision
    }
}

/// Runs a script on one node, under the first policy and then under those that it names; what everybody held when.
fn notes(
    policies: &[&str],
    view: ClusterView,
    law: fn(u64, u32, &str) -> Option<f64>,
    script: Vec<(f64, Event)>,
) -> Vec<Note> {
    let belief = Belief { salt: Cell::new(0), law };
    let mut live = Live::new(view, &belief, script, true);
    let notes = RefCell::new(Vec::new());
    while let Some(turn) = live.replacement {
        let (_, inner) = Registry::built_in().parse(policies[turn]).expect("a policy");
        let driven = drive(&mut Noting { inner, notes: &notes }, &mut live, &belief);
        assert_eq!(driven, Ok(()), "{policies:?}");
    }
    assert!(live.is_over(), "{policies:?}");
    notes.into_inner()
}

/// What a job held after the last decision up to `now_s`.
fn allocation(notes: &[Note], now_s: f64, job: u32) -> &Allocation {
    let (_, held) = notes.iter().rfind(|(time_s, _)| *time_s <= now_s).expect("somebody decided");
    &held[&JobId(job)]
}

/// How many devices that were.
fn held(notes: &[Note], now_s: f64, job: u32) -> u32 {
    allocation(notes, now_s, job).devices()
}

fn linear(_: u64, devices: u32, _: &str) -> Option<f64> {
    Some(f64::from(devices))
}

/// A job that runs on `least` to `most` devices and asks for the most, with work for `seconds` seconds on those.
fn arrival(time_s: f64, least: u32, most: u32, seconds: f64) -> (f64, Event) {
    let entry = rigid(0, 0.0, most, seconds * f64::from(most));
    (time_s, Event::Arrive(Job { min_devices: least, ..(*entry.job).clone() }, entry.work))
}

#[test]
fn a_job_that_runs_gets_its_new_number_at_once() {
    for name in names() {
        let narrow = Job { min_devices: 2, max_devices: 2, ..(*rigid(0, 0.0, 2, 1.0).job).clone() };
        let script =
            vec![arrival(0.0, 4, 4, 500.0), arrival(0.0, 4, 4, 500.0), (100.0, Event::Revise(0, narrow))];
        let notes = notes(&[name], cluster(1, 8), linear, script);
        assert_eq!((held(&notes, 99.0, 0), held(&notes, 99.0, 1)), (4, 4), "{name}");
        assert_eq!((held(&notes, 100.0, 0), held(&notes, 100.0, 1)), (2, 4), "{name}");
    }
}

#[test]
fn what_was_learnt_is_asked_for_again() {
    let falls = |salt: u64, devices: u32, _: &str| {
        Some(if salt == 0 { f64::from(devices) } else { 1.0 / f64::from(devices) })
    };
    let elastic = [
        "hell",
        "knee",
        "hesrpt",
        "srpt_greedy",
        "optimus",
        "afs",
        "elasticflow",
        "pollux:interval=5",
        "sia:5",
    ];
    for name in elastic {
        let script = vec![arrival(0.0, 1, 8, 100.0), (50.0, Event::Learn(1))];
        let notes = notes(&[name], cluster(1, 8), falls, script);
        assert_eq!((held(&notes, 49.0, 0), held(&notes, 56.0, 0)), (8, 1), "{name}");
    }
    // Who has turns by shares of time has them where it is fast.
    let moves = |salt: u64, _: u32, kind: &str| Some(if (kind == "gpu") == (salt == 0) { 9.0 } else { 1.0 });
    let mut view = cluster(1, 1);
    view.device_types.push("other".into());
    view.nodes.push(Node { device_type: 1, devices: 1, free: 1, up: true });
    for name in ["gavel_max_min:5,5", "gavel_ftf:5,5", "gavel_makespan:5,5", "gavel_sum:5,5", "sia:5"] {
        let script = vec![arrival(0.0, 1, 1, 100.0), (50.0, Event::Learn(1))];
        let notes = notes(&[name], view.clone(), moves, script);
        let node = |now_s: f64| allocation(&notes, now_s, 0).shares()[0].node;
        assert_eq!((node(49.0), node(66.0)), (NodeId(0), NodeId(1)), "{name}");
    }
}

/// A job that has run for long enters a later queue, whether it runs or comes back, and gives way to who has not.
#[test]
fn queues_know_what_a_job_has_had() {
    let script = vec![arrival(0.0, 1, 1, 300.0), arrival(90.0, 1, 1, 300.0), (100.0, Event::Replace(1))];
    let taken_over = notes(&["fifo", "las:20"], cluster(1, 1), linear, script);
    assert_eq!((held(&taken_over, 99.0, 0), held(&taken_over, 100.0, 1)), (1, 1));
    let script = vec![
        arrival(0.0, 1, 1, 300.0),
        (100.0, Event::Suspend(0)),
        arrival(140.0, 1, 1, 300.0),
        (150.0, Event::Resume(0)),
        arrival(155.0, 1, 1, 300.0),
    ];
    let resumed = notes(&["las:20"], cluster(1, 1), linear, script);
    assert_eq!((held(&resumed, 159.0, 1), held(&resumed, 160.0, 0), held(&resumed, 160.0, 2)), (1, 0, 1));
}

/// Twice what a job held under another policy, and not twice the nothing that was known of it.
#[test]
fn what_a_job_held_before_is_known_of_it() {
    let job = Job { min_devices: 1, max_devices: 16, ..(*rigid(0, 0.0, 4, 1.0).job).clone() };
    let script = vec![(0.0, Event::Arrive(job, 400.0)), (40.0, Event::Replace(1))];
    let grown = notes(&["fifo", "pollux"], cluster(1, 16), linear, script);
    assert_eq!((held(&grown, 39.0, 0), held(&grown, 40.0, 0)), (4, 8));
}

/// Who has already had much of what it would have had alone comes second.
#[test]
fn fairness_counts_what_was_done_under_another_policy() {
    let script = vec![arrival(0.0, 1, 1, 100.0), arrival(0.0, 1, 1, 100.0), (90.0, Event::Replace(1))];
    let notes = notes(&["fifo", "gavel_ftf"], cluster(1, 1), linear, script);
    assert_eq!((held(&notes, 89.0, 0), held(&notes, 90.0, 1)), (1, 1));
}

/// Eight jobs hold a device each, and then it is learnt that no job runs on one.
#[test]
fn who_needs_more_than_it_holds_is_admitted_again() {
    let pairs = |salt: u64, devices: u32, _: &str| (salt == 0 || devices > 1).then_some(f64::from(devices));
    let mut script: Vec<_> = (0..8).map(|_| arrival(0.0, 1, 8, 100.0)).collect();
    script.push((10.0, Event::Learn(1)));
    let notes = notes(&["wfs"], cluster(1, 8), pairs, script);
    let all = |now_s: f64| (0..8).map(|job| held(&notes, now_s, job)).collect::<Vec<_>>();
    assert_eq!((all(9.0), all(10.0)), (vec![1; 8], vec![2, 2, 2, 2, 0, 0, 0, 0]));
}

/// Whose deadline is withdrawn gives way to one that has a deadline.
#[test]
fn a_promise_ends_with_its_deadline() {
    let due = |time_s: f64, seconds: f64, deadline_s: Option<f64>| {
        let job = Job { deadline_s, ..(*rigid(0, 0.0, 8, 1.0).job).clone() };
        (time_s, Event::Arrive(job, 8.0 * seconds))
    };
    let (_, Event::Arrive(free, _)) = due(0.0, 1.0, None) else { unreachable!("it arrives") };
    let script =
        vec![due(0.0, 100.0, Some(100.0)), (10.0, Event::Revise(0, free)), due(20.0, 50.0, Some(75.0))];
    let notes = notes(&["elasticflow"], cluster(1, 8), linear, script);
    assert_eq!((held(&notes, 19.0, 0), held(&notes, 20.0, 1)), (8, 8));
}

/// A job that is cancelled while it waits did not need what it had had until then.
#[test]
fn who_gave_up_taught_nothing() {
    let script = vec![
        arrival(0.0, 1, 1, 50.0),
        arrival(1.0, 1, 1, 50.0),
        (60.0, Event::Toggle(0)),
        (60.0, Event::Cancel(0)),
        (60.0, Event::Toggle(0)),
        arrival(61.0, 1, 1, 100.0),
        arrival(76.0, 1, 1, 100.0),
    ];
    let notes = notes(&["gittins2d:quantum=20"], cluster(1, 1), linear, script);
    assert_eq!((held(&notes, 59.0, 1), held(&notes, 75.0, 2), held(&notes, 76.0, 2)), (1, 1, 1));
}

/// A job loses its node and is cancelled at the same moment: that it lost its devices is all that is said of it.
#[test]
fn who_is_lost_and_gone_is_forgotten() {
    for name in names() {
        let mut view = cluster(1, 4);
        view.nodes.push(Node { devices: 2, ..view.nodes[0] });
        let script = vec![
            arrival(0.0, 4, 4, 500.0),
            arrival(0.0, 2, 2, 500.0),
            (150.0, Event::Toggle(0)),
            (150.0, Event::Cancel(0)),
            (160.0, Event::Toggle(0)),
            arrival(170.0, 4, 4, 10.0),
        ];
        let notes = notes(&[name], view, linear, script);
        assert_eq!((held(&notes, 149.0, 0), held(&notes, 149.0, 1)), (4, 2), "{name}");
    }
}
