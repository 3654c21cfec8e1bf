//! What is foreseen beside what then happens: days of a cluster whose speeds, ends and arrivals the outlook does not
//! know, and cases that can be told by hand.

use std::collections::BTreeMap;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, JobView, Node, NodeId, Share};
use bellwether_core::outlook::{Coverage, Expected, Past, Present, Times};
use bellwether_core::policy::{Decision, Policy, PolicyInput};
use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, PredictError, Prediction, StepModel, Validity,
};
use bellwether_des::Streams;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::outlook::{WORLDS, look};
use bellwether_sim::trace::Entry;
use bellwether_sim::workload::{Workload, generate};
use bellwether_sim::world::{EarlyTermination, Knowledge, Scenario, World};

/// Standard deviation of the logarithm of a model's speed, about what is believed of it.
const DEVIATION: f64 = 0.15;

/// Work per second of each worker: 1 as it is believed, with an interval; in truth, on one day, another number.
struct Speeds {
    day: Option<u64>,
    deviation: f64,
}

impl StepModel for Speeds {
    fn predict(&self, job: &JobDescription, on: &Configuration) -> Result<Prediction, PredictError> {
        let off = |day| Streams::new(day).stream(&job.model, 0).normal(0.0, self.deviation).exp();
        let examples_per_s = f64::from(on.workers()) * self.day.map_or(1.0, off);
        let width = (1.96 * self.deviation).exp();
        let (low, high) = (examples_per_s / width, examples_per_s * width);
        let (step_s, bottleneck) = (1.0 / examples_per_s, Bottleneck::Compute);
        Ok(Prediction { examples_per_s, low, high, step_s, bottleneck, validity: Validity::Interpolated })
    }
}

fn cluster(nodes: u32, devices: u32) -> ClusterView {
    let node = Node { device_type: 0, devices, free: devices, up: true };
    let nodes = vec![node; nodes as usize];
    ClusterView { device_types: vec!["gpu".into()], nodes, ..ClusterView::default() }
}

fn day(seed: u64) -> Vec<Entry> {
    let classes: String = [(1, "3h", 4.0), (2, "2h", 2.0), (4, "1h", 1.0)]
        .iter()
        .map(|(gpus, mean, share)| {
            format!(
                "[[class]]\nshare = {share:.1}\ngpus = {gpus}\nmodel = \"m{gpus}\"\n\
                 duration = {{ kind = \"exponential\", mean = \"{mean}\" }}\n"
            )
        })
        .collect();
    let text =
        format!("horizon = \"24h\"\nload = 1.1\ngpus = 16\narrivals = {{ kind = \"poisson\" }}\n{classes}");
    generate(&Workload::parse(&text, "day").unwrap(), seed, &["gpu".into()]).unwrap().entries
}

/// Lets a policy decide, and looks ahead once, at its first question from `at_s` on.
struct Watched<'a> {
    policy: Box<dyn Policy + Send>,
    name: &'a str,
    at_s: f64,
    past: Past,
    seen: Option<BTreeMap<JobId, Expected>>,
}

impl Policy for Watched<'_> {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        for id in &input.changes.arrived {
            let seen = &input.view.jobs[id];
            self.past.arrivals.push((seen.job.clone(), seen.remaining.unwrap()));
        }
        for (_, seen) in &input.changes.ended {
            let done = seen.done(input.now_s);
            let part = done / (done + seen.remaining(input.now_s).unwrap());
            self.past.parts.push((seen.job.description.model.clone(), part));
        }
        if self.seen.is_none() && input.now_s >= self.at_s {
            let past = Past { over_s: input.now_s, ..self.past.clone() };
            let present =
                Present { now_s: input.now_s, view: input.view.clone(), remaining: Knowledge::Nominal, past };
            self.seen = Some(ahead(&present, self.name));
        }
        self.policy.decide(input)
    }
}

fn ahead(present: &Present, policy: &str) -> BTreeMap<JobId, Expected> {
    let belief = Speeds { day: None, deviation: DEVIATION };
    let registry = Registry::built_in();
    look(present, &belief, WORLDS, |world| drive(registry.parse(policy).unwrap().1.as_mut(), world, &belief))
        .unwrap()
}

/// Of jobs that waited for their first start at one moment of each day: how many there were, and how many of them
/// started within the interval.
fn coverage(policy: &str, days: u64) -> Coverage {
    let mut coverage = Coverage::default();
    for number in 0..days {
        let entries = day(number);
        let truth = Speeds { day: Some(number), deviation: DEVIATION };
        let mut scenario = Scenario::new(cluster(4, 4));
        scenario.knowledge = Knowledge::Nominal;
        scenario.early_termination = Some(EarlyTermination::new(0.3, 1.0, 1.0).unwrap());
        scenario.seed = number;
        let mut world = World::new(&entries, &truth, &scenario);
        let at_s = Streams::new(number).stream("moment", 0).uniform_in(6.0, 18.0) * 3600.0;
        let inner = Registry::built_in().parse(policy).unwrap().1;
        let past = Past::default();
        let mut watched = Watched { policy: inner, name: policy, at_s, past, seen: None };
        let belief = Speeds { day: None, deviation: DEVIATION };
        drive(&mut watched, &mut world, &belief).unwrap();
        let recording = world.into_recording();
        for (id, expected) in watched.seen.iter().flatten() {
            let Some(Times { low_s, high_s, .. }) = expected.start else { continue };
            let Some(start_s) = recording.jobs[id.0 as usize].start_s.filter(|s| *s >= at_s) else {
                continue;
            };
            coverage.count((low_s, high_s), start_s);
        }
    }
    coverage
}

#[test]
fn nine_starts_of_ten_lie_in_their_interval() {
    let days = std::env::var("BELLWETHER_DAYS").map_or(200, |days| days.parse().unwrap());
    for policy in ["fifo", "srtf", "fair"] {
        let coverage = coverage(policy, days);
        let (Coverage { all, within, .. }, share) = (coverage, coverage.share());
        println!("{policy}: {days} days, {within} of {all} starts within the interval ({share:.3})");
        assert!(all > days / 2, "{all}");
        assert!((0.85..=0.95).contains(&share), "{policy}: {share}");
    }
}

fn job(id: u32, devices: u32, work: f64) -> (JobId, JobView) {
    let description = JobDescription { name: format!("job-{id}"), model: "m".into(), batch: 1, devices };
    (JobId(id), JobView::waiting(Job::rigid(description, 0.0).into(), 0.0, Some(work)))
}

fn running(view: &mut ClusterView, id: u32, since_s: f64) {
    let seen = view.jobs.get_mut(&JobId(id)).unwrap();
    let devices = seen.job.min_devices;
    seen.allocation = Allocation::new(vec![Share { node: NodeId(0), devices }]);
    (seen.allocated_s, seen.progress_s, seen.started_s) = (since_s, since_s, Some(since_s));
    seen.rate = f64::from(devices);
    view.nodes[0].free -= devices;
}

fn known(present: &Present) -> BTreeMap<JobId, Expected> {
    known_under("fifo", present)
}

fn known_under(policy: &str, present: &Present) -> BTreeMap<JobId, Expected> {
    let belief = Speeds { day: None, deviation: 0.0 };
    let registry = Registry::built_in();
    let drive = |world: &mut World<'_>| drive(registry.parse(policy).unwrap().1.as_mut(), world, &belief);
    look(present, &belief, WORLDS, drive).unwrap()
}

/// Whether something is expected at this time, give or take the few percent by which no speed is known better.
fn is_about(times: Times, time_s: f64, after_s: f64) -> bool {
    let within = |part: f64, from_s: f64| (time_s - from_s).abs() <= part * (time_s - after_s);
    within(0.02, times.middle_s) && within(0.06, times.low_s) && within(0.06, times.high_s)
}

#[test]
fn where_all_is_known_times_are_nearly_exact_and_numbers_of_jobs_may_have_gaps() {
    let mut view = cluster(1, 4);
    view.jobs = [job(7, 4, 400.0), job(70, 2, 100.0), job(71, 4, 40.0)].into();
    running(&mut view, 7, 1000.0);
    // It has run for 20 of its 100 seconds.
    let present = Present { now_s: 1020.0, view, remaining: Knowledge::Nominal, past: Past::default() };
    let expected = known(&present);
    let of = |id| expected[&JobId(id)];
    assert_eq!(of(7).start, None);
    assert!(is_about(of(7).end, 1100.0, 1020.0), "{expected:?}");
    assert_eq!(of(70).start, Some(of(7).end));
    assert!(is_about(of(70).end, 1150.0, 1020.0), "{expected:?}");
    assert_eq!(of(71).start, Some(of(70).end));
    assert!(is_about(of(71).end, 1160.0, 1020.0), "{expected:?}");
    // Starts that cost something make all later.
    let past = Past { starts_s: vec![30.0], ..Past::default() };
    let later = known(&Present { past, ..present });
    assert_eq!(later[&JobId(70)].start, expected[&JobId(70)].start);
    assert!((later[&JobId(71)].end.middle_s - expected[&JobId(71)].end.middle_s - 60.0).abs() < 1e-6);
}

#[test]
fn what_goes_on_after_a_stop_has_to_start_again() {
    let mut view = cluster(1, 4);
    view.jobs = [job(0, 4, 400.0), job(1, 4, 40.0)].into();
    running(&mut view, 0, 0.0);
    let end = |starts_s: Vec<f64>| {
        let past = Past { starts_s, ..Past::default() };
        known_under("srtf", &Present { now_s: 0.0, view: view.clone(), remaining: Knowledge::Nominal, past })
            [&JobId(0)]
            .end
            .middle_s
    };
    // The short one starts before it, and it goes on after that.
    assert!(
        (end(vec![30.0]) - end(Vec::new()) - 60.0).abs() < 1e-6,
        "{} and {}",
        end(vec![30.0]),
        end(vec![])
    );
}

#[test]
fn as_many_as_came_in_a_moment_do_not_come_all_the_time() {
    let mut view = cluster(1, 4);
    view.jobs = [job(0, 4, 400.0), job(1, 4, 8000.0)].into();
    running(&mut view, 0, 0.0);
    let arrivals = vec![(job(9, 4, 40.0).1.job, 40.0); 5];
    // Who began to look five seconds ago saw five jobs that overtake the one that waits.
    let past = Past { arrivals, over_s: 5.0, ..Past::default() };
    let start = known_under("srtf", &Present { now_s: 5.0, view, remaining: Knowledge::Nominal, past })
        [&JobId(1)]
        .start
        .unwrap();
    assert!(start.middle_s < 150.0, "{start:?}");
}

#[test]
fn what_never_happens_is_infinitely_late() {
    let mut view = cluster(1, 4);
    view.jobs = [job(0, 4, 400.0), job(1, 2, 100.0)].into();
    view.nodes[0].up = false;
    let expected = known(&Present { now_s: 0.0, view, remaining: Knowledge::Nominal, past: Past::default() });
    let never = Times { low_s: f64::INFINITY, middle_s: f64::INFINITY, high_s: f64::INFINITY };
    assert_eq!(expected[&JobId(1)], Expected { start: Some(never), end: never });
}

#[test]
fn jobs_that_ended_early_and_jobs_that_come_widen_the_interval() {
    let mut view = cluster(1, 4);
    view.jobs = [job(0, 4, 4000.0), job(1, 4, 8000.0)].into();
    running(&mut view, 0, 0.0);
    let parts = [0.5, 1.0, 0.25, 0.9].map(|part| ("elsewhere".to_owned(), part)).to_vec();
    let past = Past { parts, ..Past::default() };
    let expected = |past: Past| {
        let present = Present { now_s: 400.0, view: view.clone(), remaining: Knowledge::Nominal, past };
        ahead(&present, "fifo")[&JobId(1)].start.unwrap()
    };
    let Times { low_s, high_s, .. } = expected(past);
    assert!(low_s < 650.0 && high_s > 900.0, "{low_s} to {high_s}");
    // Whom others overtake waits longer than one who stands in line.
    let arrivals = vec![(job(9, 4, 200.0).1.job, 200.0)];
    let past = Past { arrivals, over_s: 100.0, ..Past::default() };
    let present = Present { now_s: 400.0, view: view.clone(), remaining: Knowledge::Nominal, past };
    let last = |policy| ahead(&present, policy)[&JobId(1)].start.unwrap().high_s;
    assert!(last("srtf") > last("fifo"), "{} and {}", last("srtf"), last("fifo"));
}
