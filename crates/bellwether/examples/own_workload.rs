//! A workload of one's own, trained elastically on threads: the run grows from one worker to three, loses one of them,
//! and ends with the same bits as with one undisturbed worker:
//! `cargo run --release -p bellwether --example own_workload`.

use std::thread::sleep;
use std::time::Duration;

use bellwether::job;
use bellwether::session::{
    Director, DirectorCommand, RunEvent, RunStatus, Session, Spawn, StateDir, Summary,
};
use bellwether::workload::{Evaluation, Layout, Loss, MicroBatch, Tensor, Weights, Workload, WorkloadError};

/// The runtime names the samples and owns the parameters; what they mean is the workload's.
pub(crate) const JOB: &str = r#"
name = "line"
steps = 400
[batch]
size = 16
virtual_nodes = 8
[model]
kind = "custom"
name = "line"
[data]
kind = "custom"
[optimizer]
kind = "sgd"
learning_rate = 0.05
"#;

const FEATURES: usize = 4;

/// Least squares: a line through points that are made from their number.
pub(crate) struct Line {
    layout: Layout,
    /// Time that a micro-batch takes, as if there were more to compute; it changes no bit.
    pause: Duration,
}

impl Line {
    pub(crate) fn new(pause: Duration) -> Line {
        let tensor = |name: &str, length| Tensor { name: name.into(), shape: vec![length] };
        let layout =
            Layout { parameters: vec![tensor("slope", FEATURES), tensor("height", 1)], state: vec![] };
        Line { layout, pause }
    }

    /// The features of a sample, and its value.
    fn point(sample: u64) -> ([f32; FEATURES], f32) {
        let features = std::array::from_fn(|place| (sample as f32 * 0.7 + place as f32 * 1.9).sin());
        (features, 3.0 * features[0] - 2.0 * features[2] + 0.5)
    }

    /// What is wrong with the prediction for a sample.
    fn residual(parameters: &[f32], sample: u64) -> ([f32; FEATURES], f32) {
        let (features, value) = Line::point(sample);
        let products = features.iter().zip(parameters).map(|(feature, slope)| feature * slope);
        (features, products.sum::<f32>() + parameters[FEATURES] - value)
    }
}

impl Workload for Line {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn training_samples(&self) -> u64 {
        64
    }

    fn held_out_samples(&self) -> u64 {
        8
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], _: &mut [f32]) {
        parameters.fill(seed as f32 * 0.01);
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        _: u64,
        gradient_out: &mut [f32],
        _: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        sleep(self.pause);
        gradient_out.fill(0.0);
        let mut sum = 0.0;
        for sample in batch.samples {
            let (features, residual) = Line::residual(weights.parameters, *sample);
            let (slopes, height) = gradient_out.split_at_mut(FEATURES);
            slopes.iter_mut().zip(features).for_each(|(slope, feature)| *slope += residual * feature);
            height[0] += residual;
            sum += f64::from(residual * residual) / 2.0;
        }
        Ok(Loss { sum, weight: batch.samples.len() as f64 })
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        let loss =
            |sample: &u64| f64::from(Line::residual(weights.parameters, 1000 + sample).1.powi(2)) / 2.0;
        Ok(Evaluation { loss_sum: batch.samples.iter().map(loss).sum(), correct: 0, predictions: 0 })
    }

    fn fingerprint(&self) -> String {
        "line 1".into()
    }
}

/// Lets the run grow after some steps, and kills a worker once all are there.
#[derive(Default)]
struct Unrest {
    grown: bool,
    killed: bool,
}

impl Director for Unrest {
    fn direct(&mut self, _: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        if !self.grown && now.step >= 10 {
            self.grown = true;
            return vec![DirectorCommand::Scale { workers: 3, by: "the example".into() }];
        }
        if !self.killed && now.membership.active.len() == 3 {
            self.killed = true;
            return vec![DirectorCommand::Revoke(now.membership.active[0].worker)];
        }
        Vec::new()
    }
}

fn train(state_dir: &StateDir, pause: Duration, unrest: bool) -> Result<Summary, Box<dyn std::error::Error>> {
    let mut session = Session::builder(job::parse(JOB, "line", &[])?)
        .workload(move |_| Ok(Box::new(Line::new(pause))))
        .state_dir(state_dir.clone())
        .workers(1..=4)
        .start(1)
        .spawn(Spawn::Threads);
    if unrest {
        session = session.director(Box::new(Unrest::default()));
    }
    let (summary, _) = session.run(&mut |_| {})?;
    Ok(summary)
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("bellwether-own-workload-{}", std::process::id()));
    let state_dir = StateDir::find(Some(folder.clone()))?;
    let quiet = train(&state_dir, Duration::ZERO, false)?;
    let restless = train(&state_dir, Duration::from_millis(2), true)?;
    std::fs::remove_dir_all(folder)?;
    assert_eq!((quiet.steps, quiet.workers.as_slice()), (400, [1].as_slice()));
    assert!(restless.workers.contains(&3), "it grew: {:?}", restless.workers);
    assert_eq!(restless.crashes.len(), 1, "it lost a worker: {:?}", restless.crashes);
    assert!(quiet.final_loss < Some(0.01), "it learnt: {:?}", quiet.final_loss);
    assert_eq!(quiet.params_digest, restless.params_digest);
    assert!(quiet.params_digest.is_some());
    Ok(())
}
