//! Two jobs on one device: the world keeps its laws, policies gain by it, and nothing changes where no job shares.

use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, Node, NodeId, Share};
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput, Reason, Rule};
use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, PredictError, Prediction, StepModel, Validity,
};
use bellwether_model::colocation::Colocated;
use bellwether_model::throughput_table::GavelTable;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::report::report;
use bellwether_sim::trace::{Entry, ReadOptions, read};
use bellwether_sim::world::{Failures, Outage, Recording, Scenario, World};
use proptest::prelude::*;

const TRACE: &[u8] = include_bytes!("../../../../data/gavel/g120.trace.tsv");
const TABLE: &[u8] = include_bytes!("../../../../data/gavel/simulation_throughputs.json");

/// A step a second alone; beside another what `kept` says of both kinds: `None` for no room.
struct Kept<F>(F);

impl<F: Fn(u64, u64) -> Option<f64>> StepModel for Kept<F> {
    fn is_relative(&self) -> bool {
        true
    }

    fn predict(&self, job: &JobDescription, on: &Configuration) -> Result<Prediction, PredictError> {
        if on.workers() != job.devices {
            return Err(PredictError::DoesNotFit("it cannot run on this many".into()));
        }
        let validity = Validity::Interpolated;
        let bottleneck = Bottleneck::Compute;
        Ok(Prediction { examples_per_s: 1.0, low: 1.0, high: 1.0, step_s: 1.0, bottleneck, validity })
    }

    fn shared(
        &self,
        job: &JobDescription,
        _: &Configuration,
        beside: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        Ok((self.0)(job.batch, beside.batch))
    }
}

/// A job of a kind on this many devices.
fn job(row: usize, arrival_s: f64, kind: u64, devices: u32, seconds: f64) -> Entry {
    let description = JobDescription { name: row.to_string(), model: "m".into(), batch: kind, devices };
    let job = Job::rigid(description, arrival_s);
    Entry { job: Arc::new(job), work: seconds, is_duration: true, row }
}

fn cluster(nodes: u32, devices: u32, packs: bool) -> ClusterView {
    let node = Node { device_type: 0, devices, free: devices, up: true };
    ClusterView {
        device_types: vec!["gpu".into()],
        nodes: vec![node; nodes as usize],
        packs,
        ..ClusterView::default()
    }
}

fn audited(cluster: ClusterView) -> Scenario {
    let mut scenario = Scenario::new(cluster);
    (scenario.audit, scenario.keep_spans) = (true, true);
    scenario
}

fn run(
    name: &str,
    entries: &[Entry],
    scenario: &Scenario,
    truth: &dyn StepModel,
    belief: &dyn StepModel,
) -> Recording {
    let (_, mut policy) = Registry::built_in().parse(name).expect("it is there");
    let mut world = World::new(entries, truth, scenario);
    drive(policy.as_mut(), &mut world, belief).expect("no law is broken");
    world.into_recording()
}

/// The published trace on 36 devices; mean completion time in seconds.
fn g120(name: &str, packs: bool, truth: &dyn StepModel, belief: &dyn StepModel) -> (Recording, f64) {
    let mut cluster = cluster(9, 4, packs);
    cluster.device_types = ["v100", "p100", "k80"].map(str::to_owned).to_vec();
    cluster.nodes.iter_mut().enumerate().for_each(|(place, node)| node.device_type = place as u16 / 3);
    let options = ReadOptions { device_types: &cluster.device_types, ..ReadOptions::default() };
    let entries = read(TRACE, None, &options).expect("it is a trace").entries;
    let recording = run(name, &entries, &audited(cluster), truth, belief);
    let figures = report(&entries, &recording, 36);
    assert_eq!(figures.finished, 120.0);
    assert!(figures.utilisation <= 1.0 + 1e-9, "a shared device is held once: {}", figures.utilisation);
    (recording, figures.avg_jct_s)
}

fn table() -> GavelTable {
    GavelTable::parse(TABLE, "table").expect("it is a table")
}

const PACKING: [(&str, &str); 2] = [("gandiva", "fifo_skip"), ("gavel_max_min:packing=1", "gavel_max_min")];

#[test]
fn packing_ends_jobs_earlier_with_the_truth_and_with_what_was_fitted() {
    let table = table();
    let believed = Colocated::fit(table.clone(), |_, _| true).expect("it has pairs");
    for (with, without) in PACKING {
        let (_, plain_s) = g120(without, false, &table, &table);
        let (_, packed_s) = g120(with, true, &table, &table);
        assert!(packed_s < 0.97 * plain_s, "{with}: {packed_s} s, {plain_s} s without");
        let (_, believed_s) = g120(with, true, &table, &believed);
        assert!(believed_s < 0.97 * plain_s, "{with} by belief: {believed_s} s, {plain_s} s without");
    }
}

#[test]
fn nothing_changes_where_no_job_shares_or_sharing_gains_nothing() {
    let table = table();
    for (with, without) in PACKING {
        let (plain, _) = g120(without, false, &table, &table);
        let (off, _) = g120(with, false, &table, &table);
        assert!(off.jobs == plain.jobs, "{with} where no devices are shared");
        let (halved, _) = g120(with, true, &table, &Half(table.clone()));
        assert!(halved.jobs == plain.jobs, "{with} where everybody is at half speed");
    }
}

/// Speeds of the table, and half of them beside any other.
struct Half(GavelTable);

impl StepModel for Half {
    fn predict(&self, job: &JobDescription, on: &Configuration) -> Result<Prediction, PredictError> {
        self.0.predict(job, on)
    }

    fn shared(
        &self,
        _: &JobDescription,
        _: &Configuration,
        _: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        Ok(Some(0.5))
    }
}

/// By hand: alone, together, alone again.
#[test]
fn speeds_change_when_the_other_one_comes_and_goes() {
    let model = Kept(|own, _| Some(if own == 1 { 0.75 } else { 0.5 }));
    let entries = [job(0, 0.0, 1, 1, 100.0), job(1, 40.0, 2, 1, 30.0)];
    let scenario = audited(cluster(1, 1, true));
    let recording = run("gandiva", &entries, &scenario, &model, &model);
    // Together for 60 s: job 1 needs 30 / 0.5; job 0 has 60 - 45 left at 100 s.
    let ends: Vec<Option<f64>> = recording.jobs.iter().map(|job| job.end_s).collect();
    assert_eq!(ends, [Some(115.0), Some(100.0)]);
    // A shared device counts half for each.
    let held: Vec<f64> = recording.jobs.iter().map(|job| job.device_s).collect();
    assert_eq!(held, [85.0, 30.0]);
    assert_eq!(recording.jobs[0].restarts + recording.jobs[1].restarts, 0);
}

/// A job that finds no memory waits again, and no policy tries that again; what hurts is undone.
#[test]
fn wrong_beliefs_are_found_out() {
    let optimist = Kept(|_, _| Some(0.9));
    let mut view = cluster(1, 1, true);
    view.restart_s = 5.0;
    let entries = [job(0, 0.0, 1, 1, 100.0), job(1, 10.0, 2, 1, 100.0), job(2, 20.0, 2, 1, 100.0)];
    let (scenario, none) = (audited(view), Kept(|_, _| None));
    let recording = run("gandiva", &entries, &scenario, &none, &optimist);
    // The host does not suffer; one job was expelled once, and goes on alone.
    assert_eq!(recording.jobs[0].end_s, Some(100.0));
    let expelled: u32 = recording.jobs.iter().map(|job| job.preemptions).sum();
    assert!((1..=2).contains(&expelled), "{expelled}");
    let slow = Kept(|_, _| Some(0.1));
    let recording = run("gandiva:trial=10", &entries[..2], &scenario, &slow, &optimist);
    // Ten seconds of trial at a tenth of the speed.
    let end_s = recording.jobs[0].end_s.expect("it ends");
    assert!((109.0 - 1e-9..=112.0).contains(&end_s), "{end_s}");
    assert_eq!(recording.jobs[1].preemptions, 1);
}

/// Does what it is told at its first moments.
struct Scripted(Vec<Vec<Action>>);

impl Policy for Scripted {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, .. } = *input;
        let actions = if self.0.is_empty() { Vec::new() } else { self.0.remove(0) };
        let reason =
            Reason { rule: Rule::Packing, started: 0, stopped: 0, resized: 0, waiting: 0, reclaimed: 0 };
        let next_wakeup_s = (!self.0.is_empty()).then_some(now_s + 10.0);
        Decision { actions, reason, next_wakeup_s }
    }
}

fn put(id: u32, node: u32, devices: u32, beside: Option<u32>) -> Action {
    let allocation = Allocation::new(vec![Share { node: NodeId(node), devices }]);
    Action::Allocate {
        job: JobId(id),
        allocation,
        batch: None,
        expected: None,
        beside: beside.map(JobId),
        way: None,
    }
}

#[test]
fn what_breaks_a_law_of_sharing_is_caught() {
    let model = Kept(|_, _| Some(0.5));
    let entries: Vec<Entry> =
        [1, 1, 1, 2].into_iter().enumerate().map(|(row, devices)| job(row, 0.0, 1, devices, 50.0)).collect();
    let said = |packs: bool, actions: Vec<Action>| {
        let scenario = audited(cluster(2, 2, packs));
        let mut world = World::new(&entries, &model, &scenario);
        let done = drive(&mut Scripted(vec![actions]), &mut world, &model);
        done.err().map(|fault| fault.to_string()).unwrap_or_default()
    };
    let pair = || vec![put(0, 0, 1, None), put(1, 0, 1, Some(0))];
    assert_eq!(said(true, pair()), "");
    assert!(said(false, pair()).contains("no devices are shared here"));
    let third = [pair(), vec![put(2, 0, 1, Some(0))]].concat();
    assert!(said(true, third).contains("shares its devices already"));
    let third = [pair(), vec![put(2, 0, 1, Some(1))]].concat();
    assert!(said(true, third).contains("shares its devices already"));
    assert!(said(true, vec![put(1, 0, 1, Some(0))]).contains("holds nothing"));
    assert!(said(true, vec![put(0, 0, 1, Some(0))]).contains("holds nothing"));
    assert!(
        said(true, vec![put(0, 0, 1, None), put(1, 1, 1, Some(0))]).contains("not given the same devices")
    );
    assert!(said(true, vec![put(0, 0, 1, None), put(3, 0, 1, Some(0))]).contains("do not suit it"));
    // Its devices are still there when a pair parts: capacity is counted once.
    let parted = [pair(), vec![put(0, 0, 1, None), put(2, 1, 1, None), put(3, 0, 2, None)]].concat();
    assert!(said(true, parted).contains("over its capacity"));
}

/// A move to other devices of the same node is a restart, and a partner that stays pays nothing.
#[test]
fn who_moves_pays_and_who_stays_does_not() {
    let model = Kept(|_, _| Some(0.5));
    let entries = [job(0, 0.0, 1, 1, 100.0), job(1, 0.0, 1, 1, 100.0)];
    let mut view = cluster(1, 2, true);
    view.restart_s = 3.0;
    let scenario = audited(view);
    let mut world = World::new(&entries, &model, &scenario);
    let script = vec![vec![put(0, 0, 1, None), put(1, 0, 1, Some(0))], vec![put(1, 0, 1, None)]];
    drive(&mut Scripted(script), &mut world, &model).expect("it is lawful");
    let recording = world.into_recording();
    // Ten seconds at half speed; then 95 s, and for the one that moved three more.
    let ends: Vec<Option<f64>> = recording.jobs.iter().map(|job| job.end_s).collect();
    assert_eq!(ends, [Some(105.0), Some(108.0)]);
    assert_eq!([recording.jobs[0].restarts, recording.jobs[1].restarts], [0, 1]);
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (0_u32..30, 0_u64..4, 1_u32..60);
    prop::collection::vec(one, 1..20).prop_map(|jobs| {
        let mut time_s = 0.0;
        let one = |(row, (gap, kind, length)): (usize, (u32, u64, u32))| {
            time_s += f64::from(gap.saturating_sub(8));
            job(row, time_s, kind, 1, f64::from(length) * 7.0)
        };
        jobs.into_iter().enumerate().map(one).collect()
    })
}

/// What a job keeps beside another, by their kinds; some pairs have no room.
fn kept(seed: u64) -> Kept<impl Fn(u64, u64) -> Option<f64>> {
    let draw = move |a: u64, b: u64| {
        (seed ^ (a * 8 + b))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            >> 32
    };
    Kept(move |own: u64, other: u64| {
        let has_room = !draw(own.min(other) + 100, own.max(other)).is_multiple_of(5);
        has_room.then(|| 0.05 + 0.95 * (draw(own, other) % 1000) as f64 / 999.0)
    })
}

/// Work of each job, added up from who held the device of a node with whom; every node has one device.
fn work_of_spans(recording: &Recording, entries: &[Entry], truth: &impl StepModel) -> Vec<f64> {
    let mut times_s: Vec<f64> = recording.spans.iter().flat_map(|span| [span.start_s, span.end_s]).collect();
    times_s.sort_by(f64::total_cmp);
    times_s.dedup();
    let mut done = vec![0.0; entries.len()];
    for ends in times_s.windows(2) {
        let middle_s = f64::midpoint(ends[0], ends[1]);
        let there: Vec<_> =
            recording.spans.iter().filter(|span| span.start_s < middle_s && middle_s < span.end_s).collect();
        for span in &there {
            let others: Vec<_> =
                there.iter().filter(|other| other.node == span.node && other.job != span.job).collect();
            assert!(others.len() <= 1, "three jobs on one device at {middle_s} s");
            let [own, other] = [Some(span), others.first().copied()]
                .map(|span| span.map(|span| &entries[span.job.0 as usize].job.description));
            let on = Configuration::synchronous(
                Vec::new(),
                1,
                bellwether_core::prediction::Link { bandwidth_bytes_per_s: 1.0, latency_s: 0.0 },
            );
            let kept = match (own, other) {
                (Some(own), Some(other)) => truth.shared(own, &on, other).expect("it is known"),
                _ => Some(1.0),
            };
            done[span.job.0 as usize] +=
                (ends[1] - ends[0]) * kept.expect("who finds no room is gone at once");
        }
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// Never more than two jobs on a device, and what a job did is its speed over its time, whatever is believed.
    #[test]
    fn work_is_the_integral_of_speed(entries in entries(), nodes in 1_u32..4, truth in any::<u64>(), belief in any::<u64>()) {
        let scenario = audited(cluster(nodes, 1, true));
        let truth = kept(truth);
        for (with, _) in PACKING {
            let recording = run(with, &entries, &scenario, &truth, &kept(belief));
            for (entry, done) in entries.iter().zip(work_of_spans(&recording, &entries, &truth)) {
                prop_assert!((done - entry.work).abs() < 1e-6 * entry.work, "{with}: {done} of {}", entry.work);
            }
            prop_assert_eq!(&recording, &run(with, &entries, &scenario, &truth, &kept(belief)));
        }
    }

    /// Outages, restarts, gangs and many devices in a node: all laws hold, and all jobs end.
    #[test]
    fn everybody_ends(
        entries in entries(),
        widths in prop::collection::vec(0_u32..3, 20),
        seed in any::<u64>(),
        restart in 0_u32..3,
        fails in any::<bool>(),
    ) {
        let mut entries = entries;
        for (entry, width) in entries.iter_mut().zip(widths) {
            let job = Arc::make_mut(&mut entry.job);
            (job.description.devices, job.min_devices, job.max_devices) = (1 << width, 1 << width, 1 << width);
        }
        let mut view = cluster(3, 4, true);
        view.restart_s = f64::from(restart) * 4.0;
        let mut scenario = audited(view);
        scenario.seed = seed;
        if fails {
            scenario.outages = vec![Some(Outage::Failures(Failures { mean_up_s: 400.0, longest_up_s: Some(900.0), mean_down_s: 50.0 })); 3];
        }
        for (with, without) in PACKING {
            let recording = run(with, &entries, &scenario, &kept(seed), &kept(seed / 3));
            prop_assert!(recording.jobs.iter().all(|job| job.end_s.is_some()), "{with}");
            // Where no job shares, nothing differs.
            let mut alone = scenario.clone();
            alone.cluster.packs = false;
            let [off, plain] = [with, without].map(|name| run(name, &entries, &alone, &kept(seed), &kept(seed)));
            prop_assert_eq!(off, plain, "{}", with);
        }
    }
}
