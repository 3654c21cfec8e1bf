//! What a workload may bring beside its gradient: an update rule, weights of its losses, and failures of its own.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::job;
use bellwether::session::{
    Director, DirectorCommand, RunEvent, RunOutcome, RunStatus, Session, Spawn, StateDir, Summary,
};
use bellwether::workload::{
    Evaluation, Layout, Leaf, LeafResult, Loss, MicroBatch, Tensor, TensorExchange, Weights, Workload,
    WorkloadError,
};

/// More than one chunk, so that the rule is applied in pieces.
const PARAMETERS: usize = 70_000;

const SAMPLES: u64 = 64;

/// From which step on which virtual nodes were a worker's.
type Assigned = Arc<Mutex<Vec<(u64, Range<u32>)>>>;

/// Parameters that are drawn to numbers which the samples name.
struct Springs {
    layout: Layout,
    pause: Duration,
    /// Weight of a sample's loss.
    weight: fn(u64) -> f64,
    /// The step at which the program has a bug.
    bug: Option<u64>,
    step: u64,
    built: Arc<AtomicU32>,
    assigned: Assigned,
    /// Whether it keeps sums of gradients, and how many micro-batches went there.
    sums: bool,
    summed: Arc<AtomicU32>,
}

impl Springs {
    fn new(pause: Duration) -> Springs {
        let tensor = Tensor { name: "springs".into(), shape: vec![PARAMETERS] };
        Springs {
            layout: Layout { parameters: vec![tensor], state: vec![] },
            pause,
            weight: |_| 1.0,
            bug: None,
            step: 0,
            built: Arc::default(),
            assigned: Arc::default(),
            sums: false,
            summed: Arc::default(),
        }
    }

    fn target(sample: u64, place: usize) -> f32 {
        ((sample * 31 + place as u64) % 17) as f32 / 17.0
    }
}

impl Workload for Springs {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn training_samples(&self) -> u64 {
        SAMPLES
    }

    fn held_out_samples(&self) -> u64 {
        0
    }

    fn initialize(&mut self, _: u64, parameters: &mut [f32], _: &mut [f32]) {
        parameters.fill(2.0);
    }

    fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        self.assigned.lock().expect("no panic").push((step, nodes));
    }

    /// Lion: the sign of an average between gradient and momentum.
    fn update(
        &mut self,
        step: u64,
        start: usize,
        parameters: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) -> Result<(), WorkloadError> {
        assert!(start + parameters.len() <= PARAMETERS);
        let rate = 0.01 / (1.0 + step as f32);
        let [momentum] = slots else { panic!("one slot") };
        for ((p, m), g) in parameters.iter_mut().zip(momentum.iter_mut()).zip(gradient) {
            *p -= rate * (0.9 * *m + 0.1 * g).signum();
            *m = 0.99 * *m + 0.01 * g;
        }
        Ok(())
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        _: u64,
        gradient_out: &mut [f32],
        _: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        std::thread::sleep(self.pause);
        self.step += 1;
        if self.bug.is_some_and(|bug| self.step > bug) {
            return Err(WorkloadError::of_user("train.py:7: ValueError: a bug"));
        }
        gradient_out.fill(0.0);
        let mut loss = Loss::default();
        for sample in batch.samples {
            let weight = (self.weight)(*sample);
            for (place, (slope, value)) in gradient_out.iter_mut().zip(weights.parameters).enumerate() {
                *slope += weight as f32 * (value - Springs::target(*sample, place));
            }
            let first = f64::from(weights.parameters[0] - Springs::target(*sample, 0));
            loss.sum += weight * first * first / 2.0;
            loss.weight += weight;
        }
        Ok(loss)
    }

    fn keeps_sums(&self) -> bool {
        self.sums
    }

    fn sum_of_gradients(
        &mut self,
        weights: Weights<'_>,
        leaves: &[Leaf],
        (sum_out, _): (&mut [f32], &mut [f32]),
        _: Option<&mut dyn TensorExchange>,
        computed: &mut dyn FnMut(LeafResult) -> bool,
    ) -> Result<(), WorkloadError> {
        let mut sums: Vec<Vec<f32>> = Vec::new();
        for Leaf { samples, seed, merges } in leaves {
            let mut gradient = vec![0.0; PARAMETERS];
            let loss = self.gradient(weights, MicroBatch { samples }, *seed, &mut gradient, &mut [])?;
            self.summed.fetch_add(1, Ordering::Relaxed);
            sums.push(gradient);
            for _ in 0..*merges {
                let right = sums.pop().expect("a sum");
                let left = sums.last_mut().expect("another");
                left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
            }
            if !computed(LeafResult { loss, data_wait_s: 0.0 }) {
                return Ok(());
            }
        }
        assert_eq!(sums.len(), 1, "one sum is left of a subtree");
        sum_out.copy_from_slice(&sums[0]);
        Ok(())
    }

    fn evaluate(&mut self, _: Weights<'_>, _: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        Ok(Evaluation::default())
    }

    fn fingerprint(&self) -> String {
        "springs 1".into()
    }
}

const LION: &str = "kind = \"own\"\nname = \"lion\"\nslots = [\"momentum\"]\n";

fn job(optimizer: &str, steps: u64) -> String {
    format!(
        "name = \"springs\"\nsteps = {steps}\n[batch]\nsize = 16\nvirtual_nodes = 8\n[model]\nkind = \"custom\"\nname = \
         \"springs\"\n[data]\nkind = \"custom\"\n[optimizer]\n{optimizer}"
    )
}

/// Grows, then loses a worker.
#[derive(Default)]
struct Unrest(bool, bool);

impl Director for Unrest {
    fn direct(&mut self, _: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        if !self.0 && now.step >= 5 {
            self.0 = true;
            return vec![DirectorCommand::Scale { workers: 3, by: "the test".into() }];
        }
        if !self.1 && now.membership.active.len() == 3 {
            self.1 = true;
            return vec![DirectorCommand::Revoke(now.membership.active[0].worker)];
        }
        Vec::new()
    }
}

fn train(
    text: &str,
    unrest: bool,
    build: impl Fn() -> Springs + Send + Sync + 'static,
) -> (Summary, RunOutcome) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut session = Session::builder(job::parse(text, "springs", &[]).expect("a good job"))
        .workload(move |_| {
            let springs = build();
            springs.built.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(springs))
        })
        .state_dir(StateDir::find(Some(folder.path().into())).expect("a folder"))
        .workers(1..=4)
        .start(if unrest { 1 } else { 2 })
        .spawn(Spawn::Threads);
    if unrest {
        session = session.director(Box::new(Unrest::default()));
    }
    session.run(&mut |_| {}).expect("it begins")
}

#[test]
fn an_own_rule_is_the_same_for_any_number_of_workers() {
    let text = job(LION, 80);
    let (quiet, outcome) = train(&text, false, || Springs::new(Duration::ZERO));
    assert_eq!((outcome, quiet.steps), (RunOutcome::Finished, 80));
    let assigned = Assigned::default();
    let told = Arc::clone(&assigned);
    let (restless, _) = train(&text, true, move || Springs {
        assigned: Arc::clone(&told),
        ..Springs::new(Duration::from_millis(3))
    });
    assert!(restless.workers.contains(&3) && restless.crashes.len() == 1, "{restless:?}");
    assert_eq!(quiet.params_digest, restless.params_digest);
    assert!(quiet.params_digest.is_some());
    // Workers heard what is theirs: all at first, and parts from a later step on.
    let assigned = assigned.lock().unwrap();
    assert_eq!(assigned[0], (0, 0..8));
    assert!(assigned.iter().any(|(step, nodes)| *step > 0 && nodes.len() < 8), "{assigned:?}");
}

#[test]
fn sums_that_a_workload_keeps_change_no_bits() {
    let sgd = "kind = \"sgd\"\nlearning_rate = 0.01\n";
    for text in [job(sgd, 40), "verify_every = 3\n".to_owned() + &job(sgd, 40)] {
        let (plain, outcome) = train(&text, false, || Springs::new(Duration::ZERO));
        assert_eq!((outcome, plain.steps), (RunOutcome::Finished, 40));
        let summed: Arc<AtomicU32> = Arc::default();
        let counted = Arc::clone(&summed);
        let (restless, _) = train(&text, true, move || Springs {
            sums: true,
            summed: Arc::clone(&counted),
            ..Springs::new(Duration::from_millis(3))
        });
        assert_eq!(restless.crashes.len(), 1, "{restless:?}");
        assert_eq!(plain.params_digest, restless.params_digest, "{text}");
        assert!(summed.load(Ordering::Relaxed) > 0, "{text}");
    }
}

#[test]
fn an_update_divides_by_the_weights_of_the_losses() {
    // One step of plain descent from 2.0: the mean is over the weights, which differ between workers.
    let text = job("kind = \"sgd\"\nlearning_rate = 1.0\n", 1);
    let weight = |sample: u64| if sample.is_multiple_of(2) { 3.0 } else { 0.5 };
    let (heavy, _) = train(&text, false, move || Springs { weight, ..Springs::new(Duration::ZERO) });
    let (light, _) = train(&text, false, || Springs::new(Duration::ZERO));
    let order = bellwether_runtime::order::SampleOrder {
        samples: SAMPLES,
        batch: 16,
        virtual_nodes: 8,
        seed: 0,
        block: None,
    };
    let mut samples = Vec::new();
    let (mut sum, mut total, mut plain) = (0.0, 0.0, 0.0);
    for node in 0..8 {
        order.micro_batch(0, node, &mut samples);
        for sample in &samples {
            let loss = f64::from(2.0 - Springs::target(*sample, 0)).powi(2) / 2.0;
            sum += weight(*sample) * loss;
            total += weight(*sample);
            plain += loss / 16.0;
        }
    }
    let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-9;
    assert!(near(heavy.final_loss, sum / total), "{:?} {}", heavy.final_loss, sum / total);
    assert!(near(light.final_loss, plain), "{:?} {plain}", light.final_loss);
    assert_ne!(heavy.params_digest, light.params_digest);
}

#[test]
fn a_bug_in_the_users_code_ends_the_run_after_two_workers() {
    let built: Arc<AtomicU32> = Arc::default();
    let counted = Arc::clone(&built);
    let (summary, outcome) = train(&job(LION, 80), false, move || Springs {
        // Each of two workers has four virtual nodes: after some steps.
        bug: Some(41),
        built: Arc::clone(&counted),
        ..Springs::new(Duration::ZERO)
    });
    let RunOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    let failure = failure.to_string();
    assert!(failure.starts_with("train.py:7: ValueError: a bug (worker "), "{failure}");
    assert!(summary.steps < 80);
    // One to describe the workload, two that began, and at most one that took the place of the first that failed.
    assert!(built.load(Ordering::Relaxed) <= 4, "{built:?}");
}

#[test]
fn a_bug_before_the_first_step_ends_the_run_at_once() {
    let built: Arc<AtomicU32> = Arc::default();
    let counted = Arc::clone(&built);
    let (_, outcome) = train(&job(LION, 80), false, move || Springs {
        bug: Some(0),
        built: Arc::clone(&counted),
        ..Springs::new(Duration::ZERO)
    });
    let RunOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.to_string().contains("ValueError: a bug"), "{failure}");
    assert!(built.load(Ordering::Relaxed) <= 3, "{built:?}");
}
