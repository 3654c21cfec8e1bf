//! Policies that keep their order from event to event decide as their plain twins do, that work it out from the whole
//! view each time: decision by decision, to the last action.

use bellwether_core::policy::{Decision, Policy, PolicyInput, Rule};
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};
use bellwether_sched::decision_builder::DecisionBuilder;
use bellwether_sched::free_devices::FreeDevices;
use bellwether_sched::policy::las::{Attained, Queues};
use bellwether_sched::policy::srtf::Measure;
use bellwether_sched::policy::{las, srtf};
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{EarlyTermination, Failures, Knowledge, Outage, Scenario};
use proptest::prelude::*;

use super::common::{Linear, cluster, rigid, run};
use super::rigid::entries as reference;

/// Gangs on several nodes are slower, and something about a job is revised every 50 s of its work.
struct Spread;

impl StepModel for Spread {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let mut prediction = Linear.predict(job, configuration)?;
        prediction.examples_per_s /= 1.0 + 0.125 * (configuration.devices.len() as f64 - 1.0);
        Ok(prediction)
    }

    fn efficiency_changes_at(&self, _: &JobDescription, done: f64) -> Option<f64> {
        Some((done / 50.0).floor() * 50.0 + 50.0)
    }
}

/// First come, first served as it is written in books: all that wait, in order.
struct PlainFifo {
    skips: bool,
}

impl Policy for PlainFifo {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, .. } = *input;
        let mut board = FreeDevices::new(view);
        let mut draft = DecisionBuilder::new(&mut board);
        let mut waiting = view.jobs.iter().filter(|(_, seen)| !seen.is_running());
        let mut left = waiting.clone().count();
        let mut goes_on = true;
        while let Some((&id, seen)) = waiting.next().filter(|_| goes_on) {
            let starts = draft.start_on(id, seen, seen.job.asked());
            left -= usize::from(starts);
            goes_on = starts || self.skips;
        }
        draft.finish(Rule::ArrivalOrder, left, None)
    }
}

/// Asks both, and compares.
pub(crate) struct Both {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) twin: Box<dyn Policy>,
}

impl Policy for Both {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, changes, .. } = *input;
        let decision = self.policy.decide(input);
        let twin = self.twin.decide(input);
        assert_eq!(decision, twin, "at {now_s} s, after {changes:#?}");
        decision
    }
}

#[derive(Debug, Clone)]
struct Case {
    entries: Vec<Entry>,
    scenario: Scenario,
    spread: bool,
}

impl Case {
    fn check(&self, name: &str, twin: impl Policy + 'static) {
        let (_, policy) = Registry::built_in().parse(name).expect("a policy");
        let mut both = Both { policy, twin: Box::new(twin) };
        let model: &dyn StepModel = if self.spread { &Spread } else { &Linear };
        let recording = run(&mut both, &self.entries, &self.scenario, model).expect("no law is broken");
        let over = recording.jobs.iter().all(|job| job.end_s.is_some() || job.refused.is_some());
        assert!(over, "some job neither ended nor was refused");
    }
}

/// Bursts and ties: half of the jobs arrive together with the one before, and times are whole in half of the cases.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let gap = prop_oneof![2 => Just(0.0), 1 => (1..40u32).prop_map(f64::from), 1 => 0.0..60.0f64];
    let whole = (1..30u32).prop_map(|tens| f64::from(tens) * 10.0);
    let seconds = prop_oneof![3 => whole, 1 => 1.0..500.0f64];
    let width = prop_oneof![3 => 1..5u32, 2 => 1..17u32, 1 => 1..40u32];
    let job = (gap, width, seconds);
    (proptest::collection::vec(job, 1..70), any::<bool>()).prop_map(|(jobs, whole)| {
        let mut arrival_s = 0.0;
        let entry = |(row, (gap, width, seconds)): (usize, (f64, u32, f64))| {
            arrival_s += if whole { gap.round() } else { gap };
            rigid(row, arrival_s, width, if whole { seconds.round() } else { seconds })
        };
        jobs.into_iter().enumerate().map(entry).collect()
    })
}

fn knowledge() -> impl Strategy<Value = Knowledge> {
    prop_oneof![
        4 => Just(Knowledge::Exact),
        1 => Just(Knowledge::Nominal),
        1 => Just(Knowledge::Expected),
        1 => Just(Knowledge::Estimated(0.7)),
        1 => Just(Knowledge::Unknown),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let outages = prop_oneof![2 => Just(None), 1 => (1000.0..4000.0f64).prop_map(Some)];
    let restart_s = prop_oneof![2 => Just(0.0), 1 => Just(30.0), 1 => 0.0..60.0f64];
    let checkpoint_s = prop_oneof![Just(None), Just(Some(20.0))];
    let settings = (knowledge(), any::<bool>(), any::<bool>(), any::<u64>());
    (entries(), 1..7u32, 1..9u32, restart_s, outages, checkpoint_s, settings).prop_map(
        |(entries, nodes, devices, restart_s, mean_up_s, checkpoint_s, (knowledge, spread, early, seed))| {
            let mut scenario = Scenario::new(cluster(nodes, devices));
            scenario.cluster.restart_s = restart_s;
            let outage = mean_up_s.map(|mean_up_s| {
                Outage::Failures(Failures { mean_up_s, longest_up_s: None, mean_down_s: 40.0 })
            });
            scenario.outages = vec![outage; nodes as usize];
            (scenario.checkpoint_s, scenario.knowledge, scenario.seed) = (checkpoint_s, knowledge, seed);
            scenario.early_termination =
                early.then(|| EarlyTermination::new(0.4, 1.0, 1.0).expect("it is a law"));
            Case { entries, scenario, spread }
        },
    )
}

#[test]
fn the_480_jobs_with_costly_restarts() {
    let mut scenario = Scenario::new(cluster(16, 4));
    scenario.cluster.restart_s = 30.0;
    let case = Case { entries: reference(), scenario, spread: true };
    case.check("srtf", srtf::WholeView::new(Measure::Time));
    case.check("srsf", srtf::WholeView::new(Measure::Service));
    let queues = |attained| Queues::new(attained, vec![3250.0, 7200.0], 0.0).expect("they ascend");
    case.check("las", las::WholeView::new(queues(Attained::Time)));
    case.check("las2d", las::WholeView::new(queues(Attained::Service)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn first_come_first_served(case in cases()) {
        case.check("fifo", PlainFifo { skips: false });
        case.check("fifo_skip", PlainFifo { skips: true });
    }

    #[test]
    fn shortest_remaining(case in cases()) {
        case.check("srtf", srtf::WholeView::new(Measure::Time));
        case.check("srsf", srtf::WholeView::new(Measure::Service));
    }

    #[test]
    fn least_attained(mut case in cases(), promotes in any::<bool>()) {
        // A job that is promoted again and again, and pays for each restart more than its queue lasts, never makes
        // progress.
        case.scenario.cluster.restart_s *= f64::from(u8::from(!promotes));
        let (promote, suffix) = if promotes { (1.5, ",promote=1.5") } else { (0.0, "") };
        for (thresholds, text) in [(vec![90.0], "90"), (vec![60.0, 61.0, 250.0], "60,61,250")] {
            let queues = |attained| Queues::new(attained, thresholds.clone(), promote).expect("they ascend");
            case.check(&format!("las:{text}{suffix}"), las::WholeView::new(queues(Attained::Time)));
            case.check(&format!("las2d:{text}{suffix}"), las::WholeView::new(queues(Attained::Service)));
        }
    }
}
