//! Every policy on every seed, in parallel, with the same luck for all policies.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::policy::{Fault, Policy};
use bellwether_core::prediction::StepModel;
use bellwether_core::queue::QueueTree;
use bellwether_sched::registry::Registry;
use bellwether_sim::report::{Report, report};
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario};
use serde_json::{Map, Value, json};

use super::queues::{self, QueueReport};
use super::simulate;
use super::timed::Timed;

/// Time between two reports of the progress.
const PERIOD: Duration = Duration::from_millis(200);

/// The jobs of a seed, in order of arrival.
pub type Jobs<'a> = Cow<'a, [Entry]>;

/// What is simulated: policies, each on seeds 1 to `seeds`.
pub struct Experiment<'a> {
    /// The cluster and what happens in it. `seed` and `keep_spans` are set for each simulation.
    pub scenario: &'a Scenario,
    /// Where policies are named.
    pub registry: &'a Registry,
    /// The policies, with options after a colon.
    pub policies: &'a [String],
    /// How many seeds there are, from 1.
    pub seeds: u64,
    /// How fast jobs are.
    pub truth: &'a (dyn StepModel + Sync),
    /// What the policies are told of that.
    pub belief: &'a (dyn StepModel + Sync),
    /// The jobs of each seed.
    pub jobs: &'a (dyn Fn(u64) -> Result<Jobs<'a>, InputError> + Sync),
    /// The queues that divide the cluster, if any do.
    pub queues: Option<&'a QueueTree>,
    /// Keep who held what when, of the first seed.
    pub keep_spans: bool,
    /// Keep a line of JSON per decision that does something, of the first seed.
    pub keep_decisions: bool,
}

/// One policy on one seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The figures.
    pub report: Report,
    /// Those of each queue, where there are queues or jobs name some.
    pub queues: Vec<QueueReport>,
    /// Real seconds that the simulation took.
    pub wall_s: f64,
    /// Decisions of the policy.
    pub decisions: u64,
    /// Real seconds that they took together.
    pub deciding_s: f64,
    /// Real seconds of the longest.
    pub longest_decision_s: f64,
}

/// A policy on all seeds.
#[derive(Debug)]
pub struct PolicyResult {
    /// Its name, with options.
    pub policy: String,
    /// What came of each seed, in order.
    pub outcomes: Vec<Outcome>,
    /// The jobs of the first seed.
    pub entries: Arc<[Entry]>,
    /// What happened to them.
    pub recording: Recording,
    /// A line of JSON per decision, if they were wanted.
    pub decisions: Vec<String>,
}

impl PolicyResult {
    /// The mean over seeds.
    pub fn mean(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.outcomes.iter().map(of).sum::<f64>() / self.outcomes.len().max(1) as f64
    }

    /// The mean over seeds with a job that ended; not a number if there is none.
    pub fn mean_of_ended(&self, of: impl Fn(&Report) -> f64) -> f64 {
        let reports =
            || self.outcomes.iter().map(|outcome| &outcome.report).filter(|report| report.finished > 0.0);
        reports().map(of).sum::<f64>() / reports().count() as f64
    }

    /// The figures of each queue, means over the seeds; empty if there are none, and no job names one.
    pub fn queues(&self) -> Vec<QueueReport> {
        QueueReport::means(self.outcomes.iter().map(|outcome| outcome.queues.as_slice()))
    }

    /// All figures by their names, means over the seeds: those of [`Report`], the policy's name, the number of seeds,
    /// and the time of decisions.
    pub fn figures(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("policy".into(), json!(self.policy));
        object.insert("seeds".into(), json!(self.outcomes.len()));
        let figures: Vec<Value> =
            self.outcomes.iter().filter_map(|outcome| serde_json::to_value(&outcome.report).ok()).collect();
        let Some(Value::Object(first)) = figures.first() else { return object };
        for key in first.keys() {
            let any = !OF_ENDED.contains(&key.as_str());
            let counted = figures.iter().filter(|figures| any || figures["finished"].as_f64() > Some(0.0));
            let values: Vec<f64> = counted.filter_map(|figures| figures[key].as_f64()).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            // Counts of one seed are whole.
            let whole = mean.fract() == 0.0 && mean.abs() < 1e15 && !key.ends_with("_s");
            object.insert(key.clone(), if whole { json!(mean as i64) } else { json!(mean) });
        }
        object.insert("decisions".into(), json!(self.mean(|o| o.decisions as f64)));
        object.insert(
            "decision_mean_s".into(),
            json!(self.mean(|o| o.deciding_s / (o.decisions.max(1) as f64))),
        );
        object.insert("decision_max_s".into(), json!(self.mean(|o| o.longest_decision_s)));
        object.insert("wall_s".into(), json!(self.mean(|o| o.wall_s)));
        let queues = self.queues();
        if !queues.is_empty() {
            object.insert("queues".into(), json!(queues));
        }
        object
    }
}

/// Figures of jobs that ended: where none did, they are not known, and not zero.
const OF_ENDED: [&str; 10] = [
    "avg_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "avg_slowdown",
    "makespan_s",
    "avg_queueing_s",
    "max_rho",
    "p95_rho",
    "unfair",
];

/// An experiment did not come to its end.
#[derive(Debug)]
pub enum ExperimentError {
    /// A policy, or the jobs of a seed, cannot be used.
    Input(InputError),
    /// A simulation failed.
    Fault {
        /// Under this policy.
        policy: String,
        /// With this seed.
        seed: u64,
        /// For this reason.
        fault: Fault,
    },
}

impl std::fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExperimentError::Input(error) => error.fmt(f),
            ExperimentError::Fault { policy, seed, fault } => {
                write!(f, "policy `{policy}`, seed {seed}: {fault}")
            }
        }
    }
}

impl std::error::Error for ExperimentError {}

impl From<InputError> for ExperimentError {
    fn from(error: InputError) -> ExperimentError {
        ExperimentError::Input(error)
    }
}

/// What a thread leaves of one policy on one seed.
struct Piece {
    outcome: Outcome,
    recording: Option<Recording>,
    diary: Vec<String>,
}

impl Experiment<'_> {
    /// Simulates every policy on every seed, on all cores. `watch` is called five times a second with the number of
    /// jobs that ended in all simulations, and the number of jobs in all of them.
    ///
    /// # Errors
    ///
    /// Returns the first error by seed: a policy that is not registered, jobs that cannot be drawn, a policy that
    /// breaks a law, a model that does not know a job or a device.
    pub fn run(&self, watch: &mut dyn FnMut(usize, usize)) -> Result<Vec<PolicyResult>, ExperimentError> {
        let (policies, tasks) = (self.policies, self.policies.len() * self.seeds as usize);
        let pieces: Vec<Mutex<Option<Result<Piece, ExperimentError>>>> =
            (0..tasks).map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let entries: Arc<[Entry]> = (self.jobs)(1)?.into();
        let (done, all) = (AtomicUsize::new(0), tasks * entries.len());
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(tasks);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                // Dropped when the thread ends, which ends the watching below.
                let alive = sender.clone();
                let (pieces, next, done, first) = (&pieces, &next, &done, &*entries);
                scope.spawn(move || {
                    let _alive: mpsc::Sender<()> = alive;
                    while let Some((task, slot)) = task_of(next, pieces) {
                        // Policies vary fastest, so that a slow policy does not leave the others' seeds for last.
                        let (seed, place) = (task / policies.len(), task % policies.len());
                        let seed = seed as u64 + 1;
                        // Those of the first seed are there already.
                        let entries = if seed == 1 { Ok(Cow::Borrowed(first)) } else { (self.jobs)(seed) };
                        let entries = entries.map_err(ExperimentError::from);
                        let piece =
                            entries.and_then(|entries| self.one(&policies[place], seed, &entries, done));
                        *slot.lock().expect("no thread panics with it") = Some(piece);
                    }
                });
            }
            drop(sender);
            while receiver.recv_timeout(PERIOD) == Err(mpsc::RecvTimeoutError::Timeout) {
                watch(done.load(Ordering::Relaxed), all);
            }
        });
        let result = |name: &String| PolicyResult {
            policy: name.clone(),
            outcomes: Vec::new(),
            entries: entries.clone(),
            recording: Recording::default(),
            decisions: Vec::new(),
        };
        let mut results: Vec<PolicyResult> = policies.iter().map(result).collect();
        for (task, slot) in pieces.into_iter().enumerate() {
            let piece = slot.into_inner().expect("no thread panics with it").expect("every task was done")?;
            let result = &mut results[task % policies.len()];
            result.outcomes.push(piece.outcome);
            if let Some(recording) = piece.recording {
                (result.recording, result.decisions) = (recording, piece.diary);
            }
        }
        Ok(results)
    }

    fn one(
        &self,
        name: &str,
        seed: u64,
        entries: &[Entry],
        done: &AtomicUsize,
    ) -> Result<Piece, ExperimentError> {
        let mut plain = None;
        let mut queued = None;
        let policy: &mut dyn Policy = match self.queues {
            None => &mut **plain.insert(self.registry.parse(name)?.1),
            Some(tree) => queued.insert(self.registry.parse_with_queues(name, tree)?.1),
        };
        let first = seed == 1;
        let scenario = Scenario { seed, keep_spans: first && self.keep_spans, ..self.scenario.clone() };
        let start = Instant::now();
        let mut timed = Timed::new(policy, name, first && self.keep_decisions, done);
        let recording = simulate(&mut timed, entries, self.truth, self.belief, &scenario)
            .map_err(|fault| ExperimentError::Fault { policy: name.to_owned(), seed, fault })?;
        let mut outcome = Outcome {
            report: report(entries, &recording, scenario.cluster.devices(None)),
            queues: Vec::new(),
            wall_s: start.elapsed().as_secs_f64(),
            decisions: timed.decisions,
            deciding_s: timed.total_s,
            longest_decision_s: timed.longest_s,
        };
        let diary = timed.diary.unwrap_or_default();
        outcome.queues = queues::reports(queued.as_ref(), entries, &recording);
        Ok(Piece { outcome, recording: first.then_some(recording), diary })
    }
}

/// The next task, and where its result goes.
fn task_of<'a, T>(next: &AtomicUsize, slots: &'a [T]) -> Option<(usize, &'a T)> {
    let task = next.fetch_add(1, Ordering::Relaxed);
    slots.get(task).map(|slot| (task, slot))
}
