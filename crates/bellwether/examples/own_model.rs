//! Trains a model of one's own on data of one's own: `cargo run --release -p bellwether --example own_model`.
//!
//! Bellwether names the samples of each step, adds gradients up, updates the parameters, and moves work when workers
//! come and go. What is left for a model is below: its tensors, and the gradient of some samples.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bellwether::job::{self, InputError, Job};
use bellwether::session::{RunOutcome, Session, Spawn, StateDir, Summary};
use bellwether::workload::{Evaluation, Layout, Loss, MicroBatch, Tensor, Weights, Workload, WorkloadError};
use serde::Deserialize;

/// A job as in any job file. `custom` says that this program brings the model and the data; the options are its own.
pub(crate) const JOB: &str = r#"
name = "line"
steps = 300
batch = { size = 32, virtual_nodes = 4 }          # the same 4 parts of a batch on 1, 2 or 4 workers: the same bits
model = { kind = "custom", name = "line" }
data = { kind = "custom", options = { points = 200, noise = 0.1 } }
optimizer = { kind = "sgd", learning_rate = 0.2 }
"#;

#[derive(Deserialize)]
struct DataOptions {
    points: usize,
    noise: f32,
}

/// The data are pairs (x, y), the model is y = slope · x + height, the loss half the square of what is wrong with y.
struct Line {
    layout: Layout,
    points: Vec<(f32, f32)>,
}

/// Points that are held out: the last ones.
const HELD_OUT: usize = 40;

impl Line {
    /// Every worker builds its own from the job. Here the points are computed; yours may come from a file.
    fn build(job: &Job) -> Result<Box<dyn Workload>, InputError> {
        let DataOptions { points, noise } = job.data.options()?;
        let point = |number: usize| {
            let x = (number as f32 * 0.7).sin();
            (x, 3.0 * x - 1.0 + noise * (number as f32 * 5.3).sin())
        };
        let tensor = |name: &str| Tensor { name: name.into(), shape: vec![1] };
        let layout = Layout { parameters: vec![tensor("slope"), tensor("height")], state: vec![] };
        Ok(Box::new(Line { layout, points: (0..points).map(point).collect() }))
    }

    fn residual(weights: Weights<'_>, (x, y): (f32, f32)) -> f32 {
        weights.parameters[0] * x + weights.parameters[1] - y
    }
}

impl Workload for Line {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn training_samples(&self) -> u64 {
        (self.points.len() - HELD_OUT) as u64
    }

    fn held_out_samples(&self) -> u64 {
        HELD_OUT as u64
    }

    /// All parameters lie in one vector, tensor after tensor.
    fn initialize(&mut self, _seed: u64, parameters: &mut [f32], _state: &mut [f32]) {
        parameters.fill(0.0);
    }

    /// The gradient of the sum of the losses: Bellwether divides by the samples of the whole batch.
    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        _seed: u64,
        gradient_out: &mut [f32],
        _state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        gradient_out.fill(0.0);
        let mut sum = 0.0;
        for sample in batch.samples {
            let point = self.points[*sample as usize];
            let residual = Line::residual(weights, point);
            gradient_out[0] += residual * point.0;
            gradient_out[1] += residual;
            sum += f64::from(residual * residual) / 2.0;
        }
        Ok(Loss { sum, weight: batch.samples.len() as f64 })
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        let held_out = &self.points[self.points.len() - HELD_OUT..];
        let loss =
            |sample: &u64| f64::from(Line::residual(weights, held_out[*sample as usize]).powi(2)) / 2.0;
        Ok(Evaluation { loss_sum: batch.samples.iter().map(loss).sum(), correct: 0, predictions: 0 })
    }

    /// Whatever decides bits beside the job: workers that differ in it do not train together.
    fn fingerprint(&self) -> String {
        "line 1".into()
    }
}

/// Trains on `workers` threads of this process, and keeps the run under `state_dir`.
pub(crate) fn train(state_dir: StateDir, workers: u32) -> Result<Summary, Box<dyn std::error::Error>> {
    let job = job::parse(JOB, "line", &[])?;
    let session = Session::builder(job).workload(Line::build).state_dir(state_dir).start(workers);
    let (summary, outcome) = session.workers(1..=4).spawn(Spawn::Threads).run(&mut |_| {})?;
    assert_eq!(outcome, RunOutcome::Finished, "{}", summary.outcome.reason());
    Ok(summary)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `bellwether jobs`, `audit` and `metrics.jsonl` know the run as they know any other.
    let summary = train(StateDir::find(None)?, 2)?;
    println!("{}: loss {:?}, parameters {:?}", summary.run, summary.final_loss, summary.params_digest);
    Ok(())
}
