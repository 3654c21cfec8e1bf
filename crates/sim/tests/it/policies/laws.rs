//! Laws that every policy of the catalogue keeps, on random traces, clusters and outages.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, JobId, Node};
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput};
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};
use bellwether_sched::free_devices::FreeDevices;
use bellwether_sched::policy::About;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Failures, Knowledge, Outage, Scenario};
use proptest::prelude::*;

use super::common::{Linear, cluster, rigid, run};

/// After every decision no job may wait that would fit, where the policy claims so.
pub(crate) struct Conserving<'a> {
    pub(crate) inner: &'a mut dyn Policy,
    pub(crate) about: About,
}

impl Policy for Conserving<'_> {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, .. } = *input;
        let decision = self.inner.decide(input);
        if self.about.promises.work_conserving {
            let mut held: BTreeMap<JobId, Allocation> =
                view.jobs.iter().map(|(&id, seen)| (id, seen.allocation.clone())).collect();
            let mut board = FreeDevices::new(view);
            for action in &decision.actions {
                match action {
                    Action::Allocate { job, allocation, .. } => {
                        board.release(&held[job]);
                        assert!(board.take(allocation), "over capacity");
                        held.insert(*job, allocation.clone());
                    }
                    Action::Refuse { job, .. } => {
                        held.remove(job);
                    }
                }
            }
            for (id, _) in held.iter().filter(|(_, allocation)| allocation.is_empty()) {
                let job = &view.jobs[id].job;
                assert_eq!(
                    board.type_with_room(job, job.asked()),
                    None,
                    "{}: job {id:?} waits at {now_s} s and would fit",
                    self.about.name
                );
            }
        }
        decision
    }
}

/// Jobs of some width, length and elasticity, some at the same instant.
pub(crate) fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let job = (0_u32..40, 0_u32..4, 1_u32..60, 0_u32..3, 0_u32..4);
    proptest::collection::vec(job, 1..24).prop_map(|jobs| {
        let mut time_s = 0.0;
        let one = |(index, (gap, width, length, elastic, weight)): (usize, (u32, u32, u32, u32, u32))| {
            time_s += f64::from(gap.saturating_sub(10));
            // Some ask for more than there is, and can do with less.
            let devices = if elastic == 0 { 3 << width } else { 1 << width };
            let mut entry = rigid(index, time_s, devices, f64::from(length) * 7.0);
            let job = Arc::make_mut(&mut entry.job);
            job.weight = [1.0, 1.0, 5.0, 10.0][weight as usize];
            if elastic == 0 {
                (job.min_devices, job.max_devices) = (1, devices);
            }
            if weight == 3 {
                job.deadline_s = Some(time_s + f64::from(length) * 30.0);
            }
            entry
        };
        jobs.into_iter().enumerate().map(one).collect()
    })
}

/// Answers like a badly measured table: some counts do not run, and more devices may be slower.
struct Jagged {
    seed: u64,
    scale: f64,
}

impl StepModel for Jagged {
    fn is_relative(&self) -> bool {
        true
    }

    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let mut prediction = Linear.predict(job, configuration)?;
        let (devices, nodes) = (u64::from(configuration.workers()), configuration.nodes());
        let luck = (self.seed ^ devices.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23) % 8;
        if luck == 0 && devices != u64::from(job.devices) {
            return Err(PredictError::Unsupported("that was not measured".into()));
        }
        let rate = &mut prediction.examples_per_s;
        *rate *= self.scale * (1.0 + luck as f64) / 4.0 / (1.0 + 0.125 * f64::from(nodes - 1));
        (prediction.low, prediction.high, prediction.step_s) = (*rate, *rate, 1.0 / *rate);
        Ok(prediction)
    }
}

/// The same jobs with claims and deadlines at the ends of what can be, some bound to a type.
fn extreme(mut entries: Vec<Entry>, types: u16, scale: f64, salt: u64) -> Vec<Entry> {
    for (index, entry) in entries.iter_mut().enumerate() {
        let draw = (salt ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let job = Arc::make_mut(&mut entry.job);
        job.weight = [1.0, 1e-300, 1e300, f64::MIN_POSITIVE, 3.0, f64::MAX][(draw % 6) as usize];
        job.deadline_s = [None, Some(-1e9), Some(job.arrival_s), Some(1e300)][(draw / 6 % 4) as usize];
        if (draw / 24).is_multiple_of(2) {
            job.device_types = vec![(draw / 48) as u16 % types];
        }
        entry.work *= scale;
    }
    entries
}

fn knowledge() -> impl Strategy<Value = Knowledge> {
    prop_oneof![
        Just(Knowledge::Exact),
        Just(Knowledge::Nominal),
        Just(Knowledge::Estimated(2.0)),
        Just(Knowledge::Unknown),
    ]
}

/// A small cluster of one or two types of device, perhaps with outages and with a price for restarts.
pub(crate) fn scenarios() -> impl Strategy<Value = Scenario> {
    (1_u32..4, any::<bool>(), any::<bool>(), 0_u32..3, any::<u64>()).prop_map(
        |(nodes, two_types, fails, restart, seed)| {
            let mut view = cluster(nodes, 8);
            if two_types {
                view.device_types.push("other".into());
                view.nodes.push(Node { device_type: 1, devices: 8, free: 8, up: true });
            }
            view.restart_s = f64::from(restart) * 2.5;
            let mut scenario = Scenario::new(view);
            let outage =
                Outage::Failures(Failures { mean_up_s: 400.0, longest_up_s: Some(900.0), mean_down_s: 50.0 });
            if fails {
                scenario.outages = vec![Some(outage); scenario.cluster.nodes.len()];
            }
            (scenario.seed, scenario.audit) = (seed, true);
            scenario
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn every_policy_keeps_its_word(entries in entries(), scenario in scenarios()) {
        for about in Registry::built_in().iter() {
            let simulate = || {
                let (_, mut policy) = Registry::built_in().parse(about.name).expect("the catalogue names it");
                let mut checked = Conserving { inner: policy.as_mut(), about: *about };
                run(&mut checked, &entries, &scenario, &Linear)
            };
            let first = simulate();
            prop_assert!(first.is_ok(), "{}: {:?}", about.name, first.err());
            let first = first.expect("it was good just now");
            prop_assert_eq!(&first, &simulate().expect("as before"), "{} is not deterministic", about.name);
            for (index, record) in first.jobs.iter().enumerate() {
                let settled = record.end_s.is_some() || record.refused.is_some();
                prop_assert!(settled, "{}: job {} never ends", about.name, index);
                // Linear speed: what it did is what it held.
                if record.end_s.is_some() && scenario.cluster.restart_s == 0.0 {
                    let work = entries[index].work * f64::from(entries[index].job.asked());
                    prop_assert!((record.device_s - work).abs() < 1e-6 * work, "{}: {} of {}", about.name, record.device_s, work);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// Jagged speeds, scales of work far from 1, wrong or no knowledge, extreme weights, deadlines that are over, and
    /// jobs bound to a type: no law is broken, and all jobs end.
    #[test]
    fn every_policy_bears_extremes(
        entries in entries(),
        mut scenario in scenarios(),
        knowledge in knowledge(),
        scale in prop::sample::select(vec![1e-200, 1e-9, 1.0, 1e9, 1e200]),
        seed in any::<u64>(),
    ) {
        scenario.knowledge = knowledge;
        let entries = extreme(entries, scenario.cluster.device_types.len() as u16, scale, seed);
        let model = Jagged { seed, scale };
        for about in Registry::built_in().iter() {
            let (_, mut policy) = Registry::built_in().parse(about.name).expect("the catalogue names it");
            let mut checked = Conserving { inner: policy.as_mut(), about: *about };
            let recording = run(&mut checked, &entries, &scenario, &model);
            prop_assert!(recording.is_ok(), "{}: {:?}", about.name, recording.err());
            for (index, record) in recording.expect("it was good just now").jobs.iter().enumerate() {
                let settled = record.end_s.is_some() || record.refused.is_some();
                prop_assert!(settled, "{}: job {} never ends", about.name, index);
            }
        }
    }
}

/// A policy that takes what is not there is stopped, and named.
#[test]
fn what_breaks_a_law_is_caught() {
    struct Greedy;
    impl Policy for Greedy {
        fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
            let PolicyInput { view, .. } = *input;
            let (_, mut fifo) = Registry::built_in().parse("fifo").expect("it is there");
            let mut decision = fifo.decide(input);
            let twice = decision.actions.clone();
            for (action, &id) in twice.into_iter().zip(view.jobs.keys().skip(1)) {
                if let Action::Allocate { allocation, batch, expected, beside, way, .. } = action {
                    decision.actions.push(Action::Allocate {
                        job: id,
                        allocation,
                        batch,
                        expected,
                        beside,
                        way,
                    });
                }
            }
            decision
        }
    }
    let entries = [rigid(0, 0.0, 8, 10.0), rigid(1, 0.0, 8, 10.0)];
    let fault =
        run(&mut Greedy, &entries, &Scenario::new(cluster(1, 8)), &Linear).expect_err("it takes 16 of 8");
    let text = fault.to_string();
    assert!(
        text.contains("job `1` is given 8 devices of node 0, over its capacity: 0 of 8 are free"),
        "{text}"
    );
}

#[test]
fn a_job_that_is_too_wide_is_refused_and_the_others_run() {
    let entries = [rigid(0, 0.0, 9, 10.0), rigid(1, 0.0, 8, 10.0)];
    for about in Registry::built_in().iter() {
        let (_, mut policy) = Registry::built_in().parse(about.name).expect("it is there");
        let recording = run(policy.as_mut(), &entries, &Scenario::new(cluster(1, 8)), &Linear);
        let recording = recording.expect("no law is broken");
        let why = recording.jobs[0].refused.as_deref();
        assert_eq!(why, Some("it needs 9 devices of one type, and there are 8"));
        assert!(recording.jobs[1].end_s.is_some(), "{}", about.name);
    }
}
