//! What the tests share: jobs from text, files from memory, and a plain training loop on one worker,
//! written apart from the runtime's.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bellwether_core::job::{Job, Optimizer, Schedule};
use bellwether_runtime::workload::{Evaluation, MicroBatch, Weights, Workload};

/// A job of this model and data, with everything else as small as it may be.
pub fn job(model: &str, data: &str) -> Job {
    let text = format!(
        "name = \"test\"\nsteps = 1\nworkers = 1\nmodel = {model}\ndata = {data}\n\
         batch = {{ size = 2, virtual_nodes = 1 }}\noptimizer = {{ kind = \"sgd\", learning_rate = 0.1 }}\n"
    );
    let job: Job = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    job.check().unwrap().into_job()
}

/// A workload whose files lie in memory.
pub fn build_with(job: &Job, files: &[(&str, Vec<u8>)]) -> Box<dyn Workload> {
    let files: BTreeMap<&str, &Vec<u8>> = files.iter().map(|(name, bytes)| (*name, bytes)).collect();
    let open = |path: &Path| {
        let name = path.to_str().unwrap();
        files.get(name).map(|bytes| bytes.to_vec()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    bellwether_workloads::build(job, &open).unwrap()
}

/// Pseudo-random numbers of the tests (xorshift*), apart from the crate's own.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    /// Uniform in -1…1.
    pub fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// IDX files of `count` images of `channels`=1 with random pixels and labels below `classes`.
pub fn idx_files(count: usize, height: usize, width: usize, classes: u64) -> [(&'static str, Vec<u8>); 2] {
    let mut numbers = Numbers(99);
    let size = |number: usize| (number as u32).to_be_bytes();
    let mut images = vec![0, 0, 8, 3];
    [count, height, width].iter().for_each(|number| images.extend(size(*number)));
    images.extend((0..count * height * width).map(|_| numbers.below(256) as u8));
    let mut labels = vec![0, 0, 8, 1];
    labels.extend(size(count));
    labels.extend((0..count as u64).map(|index| (index % classes) as u8));
    [("images", images), ("labels", labels)]
}

pub const IDX: &str = "{ kind = \"idx\", images = \"images\", labels = \"labels\", held_out = 0.0 }";

/// A CIFAR-10 file of `count` random images.
pub fn cifar_file(count: usize) -> (&'static str, Vec<u8>) {
    let mut numbers = Numbers(98);
    let record = |index: usize, numbers: &mut Numbers| {
        let mut bytes = vec![(index % 10) as u8];
        bytes.extend((0..3072).map(|_| numbers.below(256) as u8));
        bytes
    };
    ("cifar", (0..count).flat_map(|index| record(index, &mut numbers)).collect())
}

/// Parameters, state and the results of one call.
pub struct Call {
    pub loss: f64,
    pub gradient: Vec<f32>,
    pub state: Vec<f32>,
}

/// One gradient at these parameters. Each call gets its own version, so that nothing is reused.
pub fn gradient(workload: &mut dyn Workload, at: (&[f32], &[f32], u64), samples: &[u64], seed: u64) -> Call {
    let (parameters, state, version) = at;
    let mut gradient = vec![f32::NAN; parameters.len()];
    let mut state_out = vec![f32::NAN; state.len()];
    let weights = Weights { parameters, state, version };
    let loss =
        workload.gradient(weights, MicroBatch { samples }, seed, &mut gradient, &mut state_out).unwrap();
    Call { loss: loss.sum, gradient, state: state_out }
}

/// Initial parameters and state.
pub fn initial(workload: &mut dyn Workload, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let (parameters, state) = (workload.layout().parameter_count(), workload.layout().state_count());
    let (mut parameters, mut state) = (vec![f32::NAN; parameters], vec![f32::NAN; state]);
    workload.initialize(seed, &mut parameters, &mut state);
    (parameters, state)
}

/// Held-out results over all held-out samples.
pub fn evaluate(workload: &mut dyn Workload, weights: Weights<'_>) -> Evaluation {
    let all: Vec<u64> = (0..workload.held_out_samples()).collect();
    let mut total = Evaluation::default();
    for samples in all.chunks(256) {
        let part = workload.evaluate(weights, MicroBatch { samples }).unwrap();
        total.loss_sum += part.loss_sum;
        total.correct += part.correct;
        total.predictions += part.predictions;
    }
    total
}

/// What a training run came to.
#[derive(Debug)]
pub struct Outcome {
    pub losses: Vec<f64>,
    pub held_out: Evaluation,
    pub accuracy: f64,
    pub parameters: Vec<f32>,
}

/// Trains a whole job on one worker, looping over its virtual nodes.
pub fn train(job: &Job, workload: &mut dyn Workload) -> Outcome {
    let (mut parameters, mut state) = initial(workload, job.seed);
    let samples = workload.training_samples();
    let steps = job.total_steps(samples);
    let mut update = Update::new(parameters.len());
    let mut order: Vec<u64> = vec![];
    let mut numbers = Numbers(job.seed + 1);
    let mut losses = vec![];
    for step in 0..steps {
        // Whole batches only; what is left of an epoch is dropped.
        if (order.len() as u64) < job.batch.size {
            order = (0..samples).collect();
            for place in (1..order.len()).rev() {
                order.swap(place, numbers.below(place as u64 + 1) as usize);
            }
        }
        let batch = order.split_off(order.len() - job.batch.size as usize);
        let nodes = job.batch.virtual_nodes as usize;
        let mut sum = vec![0.0f32; parameters.len()];
        let mut merged = vec![0.0f32; state.len()];
        let mut loss = 0.0;
        for (node, micro) in batch.chunks(batch.len() / nodes).enumerate() {
            let seed = step * nodes as u64 + node as u64;
            let call = gradient(workload, (&parameters, &state, step), micro, seed);
            sum.iter_mut().zip(&call.gradient).for_each(|(total, value)| *total += value);
            merged.iter_mut().zip(&call.state).for_each(|(total, value)| *total += value / nodes as f32);
            loss += call.loss;
        }
        losses.push(loss / job.batch.size as f64);
        sum.iter_mut().for_each(|value| *value /= job.batch.size as f32);
        update.apply(&job.optimizer, factor(&job.schedule, step, steps), &mut parameters, &sum);
        state = merged;
    }
    let weights = Weights { parameters: &parameters, state: &state, version: steps };
    let held_out = evaluate(workload, weights);
    let accuracy = held_out.correct as f64 / held_out.predictions.max(1) as f64;
    Outcome { losses, held_out, accuracy, parameters }
}

fn factor(schedule: &Schedule, step: u64, steps: u64) -> f64 {
    let (value, warm_up) = match schedule {
        Schedule::Constant { warm_up_steps } => (1.0, warm_up_steps),
        Schedule::Step { at, factor, warm_up_steps } => {
            (factor.powi(at.iter().filter(|at| **at <= step).count() as i32), warm_up_steps)
        }
        Schedule::Cosine { floor, warm_up_steps } => {
            let share = step as f64 / steps as f64;
            (floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos()), warm_up_steps)
        }
        Schedule::Table { factors } => return factors[(step as usize).min(factors.len() - 1)],
    };
    value * if step < *warm_up { (step + 1) as f64 / *warm_up as f64 } else { 1.0 }
}

struct Update {
    first: Vec<f32>,
    second: Vec<f32>,
    steps: i32,
}

impl Update {
    fn new(len: usize) -> Self {
        Update { first: vec![0.0; len], second: vec![0.0; len], steps: 0 }
    }

    fn apply(&mut self, optimizer: &Optimizer, factor: f64, parameters: &mut [f32], gradient: &[f32]) {
        self.steps += 1;
        let norm = gradient.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let clip = |limit: &Option<f64>| limit.map_or(1.0, |limit| (limit / norm).min(1.0)) as f32;
        match optimizer {
            Optimizer::Sgd { learning_rate, momentum, nesterov, weight_decay, clip_norm } => {
                let (rate, momentum) = ((learning_rate * factor) as f32, *momentum as f32);
                for place in 0..parameters.len() {
                    let slope = gradient[place] * clip(clip_norm) + *weight_decay as f32 * parameters[place];
                    self.first[place] = momentum * self.first[place] + slope;
                    let step =
                        if *nesterov { slope + momentum * self.first[place] } else { self.first[place] };
                    parameters[place] -= rate * step;
                }
            }
            Optimizer::Adam { learning_rate, betas, epsilon, weight_decay, clip_norm }
            | Optimizer::Adamw { learning_rate, betas, epsilon, weight_decay, clip_norm } => {
                let decoupled = matches!(optimizer, Optimizer::Adamw { .. });
                let (rate, decay) = ((learning_rate * factor) as f32, *weight_decay as f32);
                let [beta1, beta2] = betas.map(|beta| beta as f32);
                let corrections = [1.0 - beta1.powi(self.steps), 1.0 - beta2.powi(self.steps)];
                for place in 0..parameters.len() {
                    let mut slope = gradient[place] * clip(clip_norm);
                    if decoupled {
                        parameters[place] -= rate * decay * parameters[place];
                    } else {
                        slope += decay * parameters[place];
                    }
                    self.first[place] = beta1 * self.first[place] + (1.0 - beta1) * slope;
                    self.second[place] = beta2 * self.second[place] + (1.0 - beta2) * slope * slope;
                    let (mean, square) =
                        (self.first[place] / corrections[0], self.second[place] / corrections[1]);
                    parameters[place] -= rate * mean / (square.sqrt() + *epsilon as f32);
                }
            }
            Optimizer::Own { name, .. } => panic!("{name} is not an optimizer of this program"),
        }
    }
}
