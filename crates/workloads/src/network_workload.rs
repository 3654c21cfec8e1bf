//! A network with its data, as the runtime sees it.
//!
//! Nothing is kept between calls but the uploaded parameters of the last version, which the runtime
//! promises to be the same bytes: so that the micro-batches of one step upload them once; and samples that were read
//! ahead.

use std::ops::Range;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::{CellOperation, Job};
use bellwether_runtime::inference::BLOCK;
use bellwether_runtime::order::SampleOrder;
use bellwether_runtime::workload::{
    Evaluation, Examined, Inputs, Layout, Loss, MicroBatch, Weights, Workload, WorkloadError,
};
use burn_tensor::{Device, Tensor, TensorData};

use crate::data::{Batch, Dataset, Part};
use crate::fingerprint;
use crate::model::{Declaration, Losses, Mode, Network, Pass, cross_entropy};
use crate::prefetch::Prefetch;

/// Most samples of the gradient that the fingerprint is drawn from.
const PROBE_SAMPLES: u64 = 16;

/// Most numbers that the fingerprint of scores is drawn from.
const PROBE_VALUES: usize = 1 << 16;

/// The workload of every network.
pub(crate) struct NetworkTrainee {
    network: Box<dyn Network>,
    declaration: Declaration,
    data: Arc<Dataset>,
    /// Where samples stay in files.
    prefetch: Option<Prefetch>,
    /// Version and tensors of the parameters uploaded last.
    uploaded: Option<(u64, Vec<Tensor<1>>)>,
    fingerprint: String,
}

impl NetworkTrainee {
    /// Joins a network with its data and takes its fingerprint.
    pub(crate) fn new(job: &Job, network: Box<dyn Network>, data: Dataset) -> Result<Self, InputError> {
        let (declaration, data) = (network.declare(), Arc::new(data));
        let prefetch = data.is_streamed().then(|| {
            let order = SampleOrder::of(job, data.count(Part::Training));
            let steps = job.mode.goodput().map_or(1, |goodput| goodput.max_accumulation(job.batch.size));
            Prefetch::new(Arc::clone(&data), order, u64::from(steps).saturating_sub(1))
        });
        let mut workload = NetworkTrainee {
            network,
            declaration,
            data,
            prefetch,
            uploaded: None,
            fingerprint: String::new(),
        };
        let micro = (job.batch.size / u64::from(job.batch.virtual_nodes)).clamp(1, PROBE_SAMPLES);
        let probe = workload
            .probe(micro)
            .map_err(|error| InputError::new("model", format!("cannot compute a gradient: {error}")))?;
        let parameters = workload.layout().parameter_count();
        workload.fingerprint = fingerprint::text(&job.model, parameters, workload.data.digest(), &probe);
        Ok(workload)
    }

    /// Joins a network with data that it is only applied to: held-out ones, or none. Its fingerprint is of scores.
    pub(crate) fn applied(job: &Job, network: Box<dyn Network>, data: Dataset) -> Result<Self, InputError> {
        let declaration = network.declare();
        let fault = |error: WorkloadError| InputError::new("model", format!("cannot be applied: {error}"));
        let (data, fingerprint) = (Arc::new(data), String::new());
        let mut workload =
            NetworkTrainee { network, declaration, data, prefetch: None, uploaded: None, fingerprint };
        let layout = workload.layout();
        let (mut parameters, mut state) =
            (vec![0.0; layout.parameter_count()], vec![0.0; layout.state_count()]);
        let width: usize = workload.data.image().iter().product();
        workload.initialize(0, &mut parameters, &mut state);
        let weights = Weights { parameters: &parameters, state: &state, version: 0 };
        let rows = BLOCK.min(PROBE_VALUES / width.max(1)).max(1);
        let values: Vec<f32> = (0..rows * width).map(|place| (place % 7) as f32 / 8.0).collect();
        let mut scores = Vec::new();
        workload.predict(weights, Inputs { values: &values, width }, &mut scores).map_err(fault)?;
        workload.uploaded = None;
        let probe = blake3::hash(bytemuck::cast_slice(&scores)).to_hex()[..16].to_owned();
        workload.fingerprint = fingerprint::applied(&job.model, parameters.len(), &probe);
        Ok(workload)
    }

    /// Digest of one gradient of this very network: equal where the kernels compute equal bits.
    fn probe(&mut self, samples: u64) -> Result<String, WorkloadError> {
        let (parameter_count, state_count) = (self.layout().parameter_count(), self.layout().state_count());
        let (mut parameters, mut state) = (vec![0.0; parameter_count], vec![0.0; state_count]);
        self.initialize(0, &mut parameters, &mut state);
        let (mut gradient, mut state_out) = (vec![0.0; parameter_count], vec![0.0; state_count]);
        let weights = Weights { parameters: &parameters, state: &state, version: 0 };
        let samples: Vec<u64> = (0..samples.min(self.training_samples())).collect();
        self.gradient(weights, MicroBatch { samples: &samples }, 0, &mut gradient, &mut state_out)?;
        // The runtime's versions start again: what was uploaded here must not be taken for one of them.
        self.uploaded = None;
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytemuck::cast_slice(&gradient)).update(bytemuck::cast_slice(&state_out));
        Ok(hasher.finalize().to_hex()[..16].to_owned())
    }

    /// The parameters as tensors that collect gradients, one per entry of the layout.
    fn upload(&mut self, weights: Weights<'_>) -> Vec<Tensor<1>> {
        if let Some((version, tensors)) = &self.uploaded
            && *version == weights.version
        {
            return tensors.clone();
        }
        let device = Device::flex().autodiff();
        let mut rest = weights.parameters;
        let mut tensors = Vec::new();
        for entry in &self.declaration.layout().parameters {
            let (values, after) = rest.split_at(entry.len());
            let data = TensorData::new(values.to_vec(), [entry.len()]);
            tensors.push(Tensor::from_data(data, &device).require_grad());
            rest = after;
        }
        self.uploaded = Some((weights.version, tensors.clone()));
        tensors
    }

    /// The samples of a gradient, whose seed tells it from others.
    fn training_batch(&mut self, batch: MicroBatch<'_>, seed: u64) -> Result<Batch, WorkloadError> {
        match &mut self.prefetch {
            Some(prefetch) => prefetch.batch(batch.samples, seed),
            None => self.data.batch(Part::Training, batch.samples),
        }
    }

    /// One evaluation: along this path of a supernet, or that which `part` draws.
    pub(crate) fn evaluate_along(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        path: Option<&[CellOperation]>,
        part: u64,
    ) -> Result<Evaluation, WorkloadError> {
        let mut batch = self.data.batch(Part::HeldOut, batch.samples)?;
        let logits = self.logits(weights, &mut batch, path, part);
        let losses = self.losses(&logits, &batch.targets, |_, _| ())?;
        Ok(evaluation(&losses, &batch))
    }

    /// The loss of scores against their targets.
    fn losses(
        &self,
        logits: &Tensor<2>,
        targets: &[u32],
        each: impl FnMut(f64, u32),
    ) -> Result<Losses, WorkloadError> {
        let scores = logits.to_data();
        let scores = slice(&scores)?;
        Ok(cross_entropy(scores, targets, 1.0 / self.network.positions() as f64, each))
    }

    /// The scores of a batch in inference mode: along this path of a supernet, or that which `part` draws.
    fn logits(
        &mut self,
        weights: Weights<'_>,
        batch: &mut Batch,
        path: Option<&[CellOperation]>,
        part: u64,
    ) -> Tensor<2> {
        let leaves: Vec<_> = self.upload(weights).into_iter().map(Tensor::without_autodiff).collect();
        let mode = Mode::Inference { part };
        let pass = Pass::new(self.declaration.layout(), &leaves, weights.state, &mut [], mode);
        self.network.logits(&mut pass.along(path), batch)
    }
}

impl Workload for NetworkTrainee {
    fn layout(&self) -> &Layout {
        self.declaration.layout()
    }

    fn training_samples(&self) -> u64 {
        self.data.count(Part::Training)
    }

    fn held_out_samples(&self) -> u64 {
        self.data.count(Part::HeldOut)
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        self.declaration.initialize(seed, parameters, state);
    }

    fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        if let Some(prefetch) = &mut self.prefetch {
            prefetch.assigned(step, nodes);
        }
    }

    fn take_data_wait_s(&mut self) -> f64 {
        self.prefetch.as_mut().map_or(0.0, Prefetch::take_waited_s)
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        let samples = batch.samples.len();
        let mut batch = self.training_batch(batch, seed)?;
        let leaves = self.upload(weights);
        let mode = Mode::Training { seed };
        let mut pass = Pass::new(self.declaration.layout(), &leaves, weights.state, state_out, mode);
        let logits = self.network.logits(&mut pass, &mut batch);
        let losses = self.losses(&logits, &batch.targets, |_, _| ())?;
        // Its derivative with respect to the scores is the constant factor: the loss's gradient.
        let factor = Tensor::from_data(TensorData::new(losses.gradient, logits.dims()), &Device::flex());
        let mut gradients = (logits * factor).sum().backward();
        let mut rest = gradient_out;
        for leaf in &leaves {
            let (slot, after) = rest.split_at_mut(leaf.dims()[0]);
            match leaf.grad_remove(&mut gradients).map(Tensor::into_data) {
                Some(data) => {
                    let values = data
                        .as_slice::<f32>()
                        .map_err(|error| WorkloadError::new(format!("a gradient: {error:?}")))?;
                    slot.copy_from_slice(values);
                }
                None => slot.fill(0.0),
            }
            rest = after;
        }
        Ok(Loss { sum: losses.sum, weight: samples as f64 })
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        let (parts, first) = (self.network.evaluation_parts(), batch.samples[0]);
        let mut total = Evaluation::default();
        for part in 0..parts {
            let part = first.wrapping_mul(parts).wrapping_add(part);
            let evaluation = self.evaluate_along(weights, batch, None, part)?;
            total.loss_sum += evaluation.loss_sum / parts as f64;
            total.correct += evaluation.correct;
            total.predictions += evaluation.predictions;
        }
        Ok(total)
    }

    fn examine(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        examined: &mut Vec<Examined>,
    ) -> Result<Evaluation, WorkloadError> {
        let mut batch = self.data.batch(Part::HeldOut, batch.samples)?;
        let logits = self.logits(weights, &mut batch, None, 0);
        let mut targets = batch.targets.iter();
        let each = |loss: f64, predicted: u32| {
            examined.extend(targets.next().map(|target| Examined { loss, target: *target, predicted }));
        };
        let losses = self.losses(&logits, &batch.targets, each)?;
        Ok(evaluation(&losses, &batch))
    }

    fn predict(
        &mut self,
        weights: Weights<'_>,
        inputs: Inputs<'_>,
        scores: &mut Vec<f32>,
    ) -> Result<(), WorkloadError> {
        let [channels, height, width] = self.data.image();
        if inputs.width != channels * height * width {
            let (found, needed) = (inputs.width, channels * height * width);
            return Err(WorkloadError::of_user(format!(
                "a row has {found} values, and the model takes {needed}"
            )));
        }
        let mut batch = Batch { samples: inputs.values.len() / inputs.width, ..Batch::default() };
        if self.data.is_text() {
            batch.tokens = inputs.values.iter().map(|byte| *byte as i32).collect();
        } else {
            batch.values = inputs.values.to_vec();
        }
        let logits = self.logits(weights, &mut batch, None, 0).to_data();
        let all = slice(&logits)?;
        // Of a text, what follows its last byte.
        let (positions, classes) = (self.network.positions(), self.data.classes());
        for sample in all.chunks_exact(positions * classes) {
            scores.extend_from_slice(&sample[(positions - 1) * classes..]);
        }
        Ok(())
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }
}

fn slice(data: &TensorData) -> Result<&[f32], WorkloadError> {
    data.as_slice::<f32>().map_err(|error| WorkloadError::new(format!("scores: {error:?}")))
}

fn evaluation(losses: &Losses, batch: &Batch) -> Evaluation {
    Evaluation { loss_sum: losses.sum, correct: losses.correct, predictions: batch.targets.len() as u64 }
}
