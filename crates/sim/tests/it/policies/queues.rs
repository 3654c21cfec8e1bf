//! Queues around every policy of the catalogue: what they guarantee, what they take back, and that one queue with
//! everything is the policy without queues.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, JobView};
use bellwether_core::policy::{Action, Decision, Fault, Policy, PolicyInput};
use bellwether_core::queue::QueueTree;
use bellwether_sched::drive::drive;
use bellwether_sched::policy::About;
use bellwether_sched::queues::WithQueues;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario};
use proptest::prelude::*;

use super::common::{Linear, cluster, elastic, rigid, run};
use super::laws::{entries, scenarios};
use super::live::{Belief, Event, Live, jagged};
use super::twins::Both;
use super::upheaval::{self, Case};

/// By queue, and by type of device: what its policy saw when it was first asked for a decision.
type Shown = Arc<Mutex<BTreeMap<String, Vec<u32>>>>;

/// Notes how much of the cluster a policy sees.
struct Probe {
    inner: Box<dyn Policy + Send>,
    queue: String,
    shown: Shown,
}

impl Policy for Probe {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let types = 0..input.view.device_types.len() as u16;
        let devices = types.map(|kind| input.view.devices(Some(kind))).collect();
        self.shown.lock().expect("no thread panics").entry(self.queue.clone()).or_insert(devices);
        self.inner.decide(input)
    }
}

/// Holds queues to their laws after every decision.
pub(crate) struct Lawful {
    policy: WithQueues,
    about: About,
    tree: QueueTree,
    shown: Shown,
}

impl Lawful {
    pub(crate) fn new(name: &str, tree: &QueueTree) -> Lawful {
        let registry = Registry::built_in();
        let about = *registry.find(name.split(':').next().unwrap_or(name)).expect("the catalogue names it");
        let shown = Shown::default();
        let policy = WithQueues::new(tree.clone(), about.gangs, |queue| {
            let (_, inner) = registry.parse(name).expect("the catalogue names it");
            Box::new(Probe { inner, queue: queue.to_owned(), shown: shown.clone() })
        });
        Lawful { policy, about, tree: tree.clone(), shown }
    }

    fn leaf(&self, job: &Job) -> usize {
        self.tree.of_job(job.queue.as_deref()).expect("jobs are in queues that are there")
    }

    fn least(&self, job: &Job) -> u32 {
        if self.about.gangs { job.asked() } else { job.min_devices }
    }

    /// Devices that jobs of a leaf can use within its guarantee.
    fn demand(&self, view: &ClusterView, leaf: usize, kind: u16, guarantee: u32) -> u32 {
        let most = |seen: &JobView| {
            let job = &seen.job;
            let held =
                seen.allocation.shares().first().map(|share| view.nodes[share.node.0 as usize].device_type);
            let counts = job.accepts(kind) && held.is_none_or(|held| held == kind);
            let fits = self.leaf(job) == leaf && counts && self.least(job) <= guarantee;
            let most = if self.about.gangs { job.asked() } else { job.max_devices };
            if fits { most } else { 0 }
        };
        view.jobs.values().map(most).sum()
    }
}

/// What jobs hold after a decision; jobs that were refused are left out.
fn after(view: &ClusterView, decision: &Decision) -> BTreeMap<JobId, Allocation> {
    let mut held: BTreeMap<JobId, Allocation> =
        view.jobs.iter().map(|(&id, seen)| (id, seen.allocation.clone())).collect();
    for action in &decision.actions {
        match action {
            Action::Allocate { job, allocation, .. } => held.insert(*job, allocation.clone()),
            Action::Refuse { job, .. } => held.remove(job),
        };
    }
    held
}

impl Policy for Lawful {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, .. } = *input;
        self.shown.lock().expect("no thread panics").clear();
        let decision = self.policy.decide(input);
        let held = after(view, &decision);
        let name = self.about.name;
        for (kind, device_type) in view.device_types.iter().enumerate() {
            let guarantees = self.tree.guarantees(device_type, view.devices(Some(kind as u16)));
            let whole = view.nodes_of(kind as u16).map(|(_, devices)| devices).sum();
            let limits = self.tree.limits(device_type, whole);
            let mut sums = vec![0; guarantees.len()];
            for (id, allocation) in &held {
                let of_kind = allocation.shares().iter();
                let of_kind = of_kind
                    .filter(|share| usize::from(view.nodes[share.node.0 as usize].device_type) == kind);
                let devices: u32 = of_kind.map(|share| share.devices).sum();
                self.tree.path(self.leaf(&view.jobs[id].job)).for_each(|at| sums[at] += devices);
            }
            for leaf in 0..sums.len() {
                let queue = &self.tree.queues()[leaf].name;
                assert!(sums[leaf] <= limits[leaf], "{name}: `{queue}` holds {} at {now_s} s", sums[leaf]);
                if let Some(shown) = self.shown.lock().expect("no thread panics").get(queue) {
                    let due = guarantees[leaf].min(self.demand(view, leaf, kind as u16, guarantees[leaf]));
                    assert!(
                        shown[kind] >= due,
                        "{name}: `{queue}` sees {} of {due} at {now_s} s",
                        shown[kind]
                    );
                }
            }
            // What a waiting job needs is there within its queue's guarantee: a policy that leaves no such job waiting
            // where it sees devices must not do so here, whatever others have borrowed.
            for (id, _) in held.iter().filter(|(_, held)| held.is_empty()) {
                let job = &view.jobs[id].job;
                let leaf = self.leaf(job);
                let lacks = guarantees[leaf].saturating_sub(sums[leaf]);
                let fits = job.accepts(kind as u16) && job.asked() <= lacks;
                assert!(
                    !(fits && self.about.promises.work_conserving),
                    "{name}: {id:?} waits at {now_s} s, and its queue `{}` lacks {lacks} of {}: {:?}",
                    self.tree.queues()[leaf].name,
                    guarantees[leaf],
                    decision
                );
            }
        }
        decision
    }
}

/// Trees of up to six queues of which some lie below others, with guarantees and limits of all kinds.
pub(crate) fn trees() -> impl Strategy<Value = QueueTree> {
    let queue = (0_usize..3, 0_u32..5, 0_u32..5, 1_u32..4);
    proptest::collection::vec(queue, 1..6).prop_map(|queues| {
        let mut text = String::from("half_life = \"5min\"\n");
        let mut names: Vec<String> = Vec::new();
        let mut shares: BTreeMap<String, u32> = BTreeMap::new();
        for (number, (above, guarantee, limit, weight)) in queues.into_iter().enumerate() {
            let above = names.get(above).filter(|_| number % 2 == 1).cloned();
            let parent = above.clone().unwrap_or_default();
            let name = above.map_or(format!("q{number}"), |above| format!("{above}/q{number}"));
            let given = shares.entry(parent.clone()).or_insert(0);
            let percent = (guarantee * 20).min(100 - *given);
            *given += percent;
            // A limit below the guarantee of a queue cannot be, so it is at least half, and only of those at the top.
            let limit = if parent.is_empty() { [100, 100, 75, 60, 50][limit as usize].max(percent) } else { 100 };
            text += &format!(
                "[[queues]]\nname = \"{name}\"\nguarantee = \"{percent}%\"\nlimit = \"{limit}%\"\nweight = {weight}\n"
            );
            names.push(name);
        }
        QueueTree::parse(&text, "random").expect("it is a tree")
    })
}

/// Puts jobs into queues.
pub(crate) fn spread(entries: &mut [Entry], tree: &QueueTree, salt: u64) {
    let leaves: Vec<usize> = tree.leaves().collect();
    for (index, entry) in entries.iter_mut().enumerate() {
        let draw = (salt ^ (index as u64 / 2)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let queue = &tree.queues()[leaves[draw as usize % leaves.len()]];
        Arc::make_mut(&mut entry.job).queue = Some(queue.name.clone());
    }
}

pub(crate) fn simulate(name: &str, tree: &QueueTree, entries: &[Entry], scenario: &Scenario) -> Recording {
    let mut lawful = Lawful::new(name, tree);
    run(&mut lawful, entries, scenario, &Linear).unwrap_or_else(|fault| panic!("{name}: {fault}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn every_policy_keeps_the_laws_of_queues(
        mut entries in entries(),
        scenario in scenarios(),
        tree in trees(),
        salt in any::<u64>(),
    ) {
        spread(&mut entries, &tree, salt);
        for about in Registry::built_in().iter() {
            let recording = simulate(about.name, &tree, &entries, &scenario);
            prop_assert_eq!(&recording, &simulate(about.name, &tree, &entries, &scenario), "{}", about.name);
            for (index, record) in recording.jobs.iter().enumerate() {
                let settled = record.end_s.is_some() || record.refused.is_some();
                prop_assert!(settled, "{}: job {} never ends", about.name, index);
            }
        }
    }

    #[test]
    fn one_queue_with_everything_is_the_policy_alone(entries in entries(), scenario in scenarios()) {
        let tree = QueueTree::parse("queues = []", "test").expect("it is a tree");
        for about in Registry::built_in().iter() {
            let (_, policy) = Registry::built_in().parse(about.name).expect("the catalogue names it");
            let (_, twin) = Registry::built_in().parse_with_queues(about.name, &tree).expect("as before");
            let mut both = Both { policy, twin: Box::new(twin) };
            let ran = run(&mut both, &entries, &scenario, &Linear);
            prop_assert!(ran.is_ok(), "{}: {:?}", about.name, ran.err());
        }
    }
}

/// A limit may be any number, and a job that is wider than its queue asks for that many: the model knows all numbers.
pub(crate) fn always(salt: u64, devices: u32, kind: &str) -> Option<f64> {
    jagged(salt, devices, kind).or(Some(f64::from(devices)))
}

/// The same script, with jobs in queues, some of which change theirs.
fn in_queues(case: &Case, tree: &QueueTree, salt: u64) -> Vec<(f64, Event)> {
    let leaves: Vec<usize> = tree.leaves().collect();
    let mut script = case.script.clone();
    for (index, (_, event)) in script.iter_mut().enumerate() {
        if let Event::Arrive(job, _) | Event::Revise(_, job) = event {
            let draw = (salt ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            job.queue = Some(tree.queues()[leaves[draw as usize % leaves.len()]].name.clone());
        }
    }
    script
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// Policies are replaced while jobs run, models learn, nodes go, and jobs are revised, cancelled, suspended,
    /// resumed, and put into other queues.
    #[test]
    fn queues_stand_upheaval(case in upheaval::cases(), tree in trees(), salt in any::<u64>()) {
        let names: Vec<&str> = Registry::built_in().iter().map(|about| about.name).collect();
        for first in 0..names.len() {
            let belief = Belief { salt: Cell::new(case.salt), law: always };
            let script = in_queues(&case, &tree, salt);
            let mut live = Live::new(case.view.clone(), &belief, script, case.knows_work);
            let mut trail = Vec::new();
            while let Some(turn) = live.replacement {
                trail.push(names[(first + turn) % names.len()]);
                let mut lawful = Lawful::new(trail[trail.len() - 1], &tree);
                let driven = drive(&mut lawful, &mut live, &belief);
                // Some policies want to be woken for ever by a job that can never run.
                let idles = driven == Err(Fault::World("it never ends".into()));
                prop_assert!(idles || driven == Ok(()), "under {:?}: {:?}", trail, driven);
                if idles {
                    break;
                }
            }
            // A job that has run is not refused when it is revised to need more than its queue may hold.
            let limits = |kind: usize| {
                let devices = live.view.nodes_of(kind as u16).map(|(_, devices)| devices).sum();
                tree.limits(&live.view.device_types[kind], devices)
            };
            let fits = |job: &Job| {
                let leaf = tree.of_job(job.queue.as_deref()).expect("it is there");
                let mut kinds = (0..live.view.device_types.len()).filter(|kind| job.accepts(*kind as u16));
                kinds.any(|kind| tree.path(leaf).all(|at| limits(kind)[at] >= job.min_devices))
            };
            let left = live.view.jobs.iter().filter(|(_, seen)| fits(&seen.job)).count();
            let over = live.is_over() || (left == 0 && live.has_told_all());
            prop_assert!(over, "under {:?} these never end: {:#?}", trail, live.view.jobs);
        }
    }
}

/// A queue each for two teams, and one that is guaranteed nothing.
const TEAMS: &str = r#"queues = [{ name = "a", guarantee = "50%" }, { name = "b", guarantee = "50%" }]"#;

fn teams() -> QueueTree {
    QueueTree::parse(TEAMS, "test").expect("it is a tree")
}

pub(crate) fn of(queue: &str, mut entry: Entry) -> Entry {
    Arc::make_mut(&mut entry.job).queue = Some(queue.to_owned());
    entry
}

/// What jobs held after each decision, and how many devices it took back.
struct Notes {
    inner: Lawful,
    held: Vec<(f64, Vec<u32>, u32)>,
}

pub(crate) fn notes(
    name: &str,
    tree: &QueueTree,
    entries: &[Entry],
    view: ClusterView,
) -> Vec<(f64, Vec<u32>, u32)> {
    let mut noting = Notes { inner: Lawful::new(name, tree), held: Vec::new() };
    run(&mut noting, entries, &Scenario::new(view), &Linear).expect("no law is broken");
    noting.held
}

impl Policy for Notes {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let decision = self.inner.decide(input);
        let held = after(input.view, &decision);
        let most = held.keys().map(|id| id.0 + 1).max().unwrap_or(0);
        let devices = (0..most).map(|id| held.get(&JobId(id)).map_or(0, Allocation::devices)).collect();
        self.held.push((input.now_s, devices, decision.reason.reclaimed));
        decision
    }
}

/// What is claimed is taken from the elastic job that got its devices last, and no more than that; it does not stop.
#[test]
fn who_can_shrink_shrinks_before_others_stop() {
    let entries = [
        of("a", elastic(0, 0.0, 3, 900.0)),
        of("a", elastic(1, 1.0, 4, 900.0)),
        of("a", rigid(2, 2.0, 1, 900.0)),
        of("b", rigid(3, 10.0, 2, 50.0)),
        of("b", rigid(4, 20.0, 2, 100.0)),
    ];
    let notes = notes("fifo_skip", &teams(), &entries, cluster(1, 8));
    assert_eq!(notes[2], (2.0, vec![3, 4, 1], 0));
    // Job 1 has borrowed last, and gives two of its four devices.
    assert_eq!(notes[3], (10.0, vec![3, 2, 1, 2], 2));
    // Of what it holds beyond its guarantee, `a` gives the rest: job 1 can give one device, and job 0 another.
    assert_eq!(notes[4], (20.0, vec![2, 1, 1, 2, 2], 2));
    // Two devices are free again: job 0 gets back the one that it gave, and job 1 waits until its three are there.
    assert_eq!(notes[5], (60.0, vec![3, 1, 1, 0, 2], 0));
}

/// Where no job can shrink, the one that started last stops, and goes on when there is room again.
#[test]
fn who_started_last_stops_first() {
    let entries = [
        of("a", rigid(0, 0.0, 4, 100.0)),
        of("a", rigid(1, 1.0, 2, 100.0)),
        of("a", rigid(2, 2.0, 2, 100.0)),
        of("b", rigid(3, 10.0, 2, 50.0)),
    ];
    let notes = notes("fifo", &teams(), &entries, cluster(2, 4));
    assert_eq!(notes[3], (10.0, vec![4, 2, 0, 2], 2));
    assert_eq!(notes[4], (60.0, vec![4, 2, 2], 0));
}

/// A queue gets its guarantee though one job of another has borrowed all; the rest of that is lent again.
#[test]
fn a_gang_that_stops_leaves_its_rest_to_others() {
    let entries = [
        of("a", rigid(0, 0.0, 8, 100.0)),
        of("a", elastic(1, 5.0, 8, 100.0)),
        of("b", rigid(2, 10.0, 2, 50.0)),
    ];
    let notes = notes("equi", &teams(), &entries, cluster(1, 8));
    assert_eq!(notes[1], (5.0, vec![8, 0], 0));
    assert_eq!(notes[2], (10.0, vec![0, 6, 2], 2));
}

/// Of two queues with equal rights the surplus goes to the one that had less of late.
#[test]
fn surplus_goes_to_who_had_less_of_late() {
    let tree = |half_life: &str| {
        QueueTree::parse(
            &format!("half_life = \"{half_life}\"\nqueues = [{{ name = \"a\" }}, {{ name = \"b\" }}]"),
            "test",
        )
        .expect("it is a tree")
    };
    // `a` had 8 devices for 1000 s long ago, `b` had 8 for 100 s just now.
    let entries = [
        of("a", rigid(0, 0.0, 8, 1000.0)),
        of("b", rigid(1, 5000.0, 8, 100.0)),
        of("a", rigid(2, 5050.0, 8, 10.0)),
        of("b", rigid(3, 5050.0, 8, 10.0)),
    ];
    let first = |half_life: &str| {
        let notes = notes("fifo", &tree(half_life), &entries, cluster(1, 8));
        let (_, held, _) = notes.iter().find(|(time_s, ..)| *time_s == 5100.0).expect("job 1 ended");
        held.iter().position(|devices| *devices == 8)
    };
    assert_eq!((first("5min"), first("1d")), (Some(2), Some(3)));
}

/// What can never run in its queue is refused with the reason; what is wider than the queue's part waits, and holds up
/// no other job.
#[test]
fn jobs_wider_than_their_queue() {
    let text =
        r#"queues = [{ name = "a", guarantee = "50%", limit = "75%" }, { name = "b", guarantee = "50%" }]"#;
    let tree = QueueTree::parse(text, "test").expect("it is a tree");
    let entries = [
        of("b", rigid(0, 0.0, 4, 100.0)),
        of("a", rigid(1, 1.0, 7, 10.0)),
        of("a", rigid(2, 2.0, 6, 10.0)),
        of("a", rigid(3, 3.0, 2, 10.0)),
        of("a", elastic(4, 200.0, 8, 10.0)),
    ];
    let recording = simulate("fifo", &tree, &entries, &Scenario::new(cluster(1, 8)));
    let why = recording.jobs[1].refused.as_deref();
    assert_eq!(why, Some("it needs 7 devices of one type, and its queue `a` may hold 6"));
    let ends: Vec<_> = recording.jobs.iter().map(|job| job.end_s).collect();
    // The elastic job runs on the 6 devices that its queue may hold, in place of 8.
    assert_eq!(ends, [Some(100.0), None, Some(110.0), Some(13.0), Some(200.0 + 10.0 * 8.0 / 6.0)]);
}
