//! The update rule, on flat vectors, element by element.
//!
//! An update of a range of parameters depends on that range only (and on numbers that all workers
//! share), so a newcomer can update the part of the state that it has already received.
//!
//! # Model
//!
//! ```text
//! g = c * sum / n + l * p             l = 0 for AdamW
//! SGD:    m' = u m + g                step = g + u m' (Nesterov), m', or g (u = 0)
//!         p' = p - r step
//! Adam:   m' = b1 m + (1 - b1) g      v' = b2 v + (1 - b2) g^2
//!         p' = p - r (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + e)
//! AdamW:  p (1 - r l) in place of p
//! ```
//!
//! with p a parameter, sum its gradient summed over n samples, c ≤ 1 the clipping factor, l the weight
//! decay, u the momentum, r the learning rate of the step and t the number of the step, counted from 1.
//!
//! Where the batch may move, an update covers a steps at once: n counts the samples of all, r is their mean learning
//! rate times a factor (the gain of AdaScale, a, or sqrt a), b1^a and b2^a stand for b1 and b2, e / sqrt a for e, and
//! AdamW's r l is the sum over the steps, so that decay and moments keep their pace per sample. With t the last step
//! that is covered, b^t is still the exact correction.
//!
//! An outer step, after local ones, takes what the virtual nodes have moved as g, and is SGD of Nesterov's form with
//! rate and momentum of its own, in a slot of its own. In the local steps before it t counts from where they began.
//!
//! # Source
//!
//! Sutskever et al., ICML 2013, in the form of PyTorch's `SGD` (the first momentum is the gradient); Kingma and Ba,
//! ICLR 2015; Loshchilov and Hutter, ICLR 2019. For moving batches: Johnson et al., ICML 2020 (AdaScale); Goyal et al.,
//! 2017 (linear); Malladi et al., NeurIPS 2022 (square root, for Adam).

use bellwether_core::job::{AsyncMomentum, Goodput, Job, Optimizer as Rule, RateRule, Schedule};

use crate::noise::{SCALE_MAX, gain};
use crate::workload::{Workload, WorkloadError};

/// The job's update rule with its schedule.
#[derive(Debug, Clone)]
pub struct Optimizer {
    rule: Rule,
    schedule: Schedule,
    total_steps: u64,
    batch: u64,
    goodput: Option<Goodput>,
    /// Where some phases have local steps.
    outer: Option<Outer>,
}

/// The rule of outer steps.
#[derive(Debug, Clone, Copy)]
struct Outer {
    rate: f32,
    momentum: f32,
}

/// How one piece of the flat vectors is updated.
pub trait UpdateRule {
    /// Updates the piece that begins at the element `start` of the parameters from the same piece of the summed
    /// gradient.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule is a workload's own and fails.
    fn apply(
        &mut self,
        update: Update,
        start: usize,
        parameters: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) -> Result<(), WorkloadError>;
}

/// The rules of this module.
impl UpdateRule for &Optimizer {
    fn apply(
        &mut self,
        update: Update,
        _: usize,
        parameters: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) -> Result<(), WorkloadError> {
        self.update(update, parameters, slots, gradient);
        Ok(())
    }
}

/// The rule that a workload brings.
pub struct OwnRule<'a> {
    workload: &'a mut dyn Workload,
    /// The clipped mean of the piece.
    mean: &'a mut Vec<f32>,
}

impl<'a> OwnRule<'a> {
    /// The rule of this workload; `mean` is memory for the gradient of a piece.
    pub fn new(workload: &'a mut dyn Workload, mean: &'a mut Vec<f32>) -> OwnRule<'a> {
        OwnRule { workload, mean }
    }
}

impl UpdateRule for OwnRule<'_> {
    fn apply(
        &mut self,
        update: Update,
        start: usize,
        parameters: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) -> Result<(), WorkloadError> {
        self.mean.clear();
        self.mean.extend(gradient.iter().map(|sum| sum * update.scale));
        self.workload.update(update.step, start, parameters, slots, self.mean)
    }
}

/// What all elements of one update share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// Number of the step, the first that is covered; the first of all is 0.
    pub step: u64,
    /// Steps that are covered, at least 1.
    pub steps: u64,
    /// What the steps' mean learning rate is multiplied with: 1 for a single step.
    pub rate_factor: f64,
    /// Factor on the summed gradient: clipping over samples.
    pub scale: f32,
    /// The step at whose beginning the moments were zero.
    pub since: u64,
    /// Whether this is an outer step, after local ones.
    pub is_outer: bool,
}

impl Update {
    /// The update of a single step.
    pub fn single(step: u64, scale: f32) -> Self {
        Update { step, steps: 1, rate_factor: 1.0, scale, since: 0, is_outer: false }
    }

    /// A local step of a virtual node, whose moments were zero before the step `since`.
    pub fn local(step: u64, since: u64, scale: f32) -> Self {
        Update { since, ..Update::single(step, scale) }
    }
}

impl Optimizer {
    /// The optimizer of a job that runs for `total_steps`.
    pub fn new(job: &Job, total_steps: u64) -> Self {
        Optimizer {
            rule: job.optimizer.clone(),
            schedule: job.schedule.clone(),
            total_steps,
            batch: job.batch.size,
            goodput: job.mode.goodput().cloned(),
            outer: job.sync.has_outer_steps().then_some(Outer {
                rate: job.sync.outer_learning_rate as f32,
                momentum: job.sync.outer_momentum as f32,
            }),
        }
    }

    /// The rule for updates of single units of asynchronous training, whose momentum may be another. Their learning
    /// rate is multiplied where they are applied ([`Update::rate_factor`]).
    pub fn of_units(job: &Job, total_steps: u64) -> Self {
        let share = f64::from(job.sync.nodes_per_update) / f64::from(job.batch.virtual_nodes);
        let factor = match job.sync.momentum {
            AsyncMomentum::Keep => 1.0,
            AsyncMomentum::Scale => share,
            // Not 0: the slot that a rule with momentum keeps has to stay.
            AsyncMomentum::Zero => f64::MIN_POSITIVE,
        };
        let mut optimizer = Optimizer::new(job, total_steps);
        match &mut optimizer.rule {
            Rule::Sgd { momentum, .. } if *momentum > 0.0 => {
                *momentum = (*momentum * factor).max(f64::MIN_POSITIVE);
            }
            Rule::Adam { betas, .. } | Rule::Adamw { betas, .. } => betas[0] *= factor,
            Rule::Sgd { .. } | Rule::Own { .. } => {}
        }
        optimizer
    }

    /// Whether the batch may move, so that the noise of the gradient is to be measured.
    pub fn moves(&self) -> bool {
        self.goodput.is_some()
    }

    /// What the learning rate of an update over `steps` steps is multiplied with, at a noise scale in samples (where
    /// none is known, a larger batch counts for all it could be worth).
    pub fn rate_factor(&self, steps: u64, noise_scale: Option<f64>) -> f64 {
        let Some(goodput) = self.goodput.as_ref().filter(|_| steps > 1) else { return 1.0 };
        let sgd = matches!(self.rule, Rule::Sgd { .. });
        match goodput.rule.unwrap_or(if sgd { RateRule::Adascale } else { RateRule::SquareRoot }) {
            RateRule::Adascale => gain(self.batch, steps, noise_scale.unwrap_or(SCALE_MAX)),
            RateRule::Linear => steps as f64,
            RateRule::SquareRoot => libm::sqrt(steps as f64),
        }
    }

    /// Names of the vectors that the rule keeps, each as long as the parameters; that of outer steps comes last.
    pub fn slots(&self) -> Vec<&str> {
        let mut slots = match &self.rule {
            Rule::Sgd { momentum: 0.0, .. } => vec![],
            Rule::Sgd { .. } => vec!["momentum"],
            Rule::Adam { .. } | Rule::Adamw { .. } => vec!["moment1", "moment2"],
            Rule::Own { slots, .. } => slots.iter().map(String::as_str).collect(),
        };
        slots.extend(std::iter::repeat_n("outer_momentum", self.outer_slots()));
        slots
    }

    /// How many of the [`slots`](Self::slots) a local step uses: all but that of outer steps.
    pub fn local_slots(&self) -> usize {
        self.slots().len() - self.outer_slots()
    }

    /// Whether outer steps have a slot, as a number.
    fn outer_slots(&self) -> usize {
        usize::from(self.outer.is_some_and(|outer| outer.momentum > 0.0))
    }

    /// Whether the rule is the workload's own ([`Workload::update`]).
    pub fn is_own(&self) -> bool {
        self.rule.is_own()
    }

    /// Whether the rule clips, and so needs the gradient's sum of squares.
    pub fn clips(&self) -> bool {
        self.rule.clip_norm().is_some()
    }

    /// Factor on the summed gradient of losses of this weight (their number, unless the workload weighs them) with sum
    /// of squares `square_sum`, which counts only when the rule [clips](Self::clips).
    pub fn scale(&self, weight: f64, square_sum: f64) -> f32 {
        let mean = 1.0 / weight;
        let norm = square_sum.sqrt() * mean;
        match self.rule.clip_norm() {
            Some(limit) if norm > limit => (mean * limit / norm) as f32,
            _ => mean as f32,
        }
    }

    /// Learning rate of `step`; 0 for a rule of the workload's own, which knows its rates.
    pub fn learning_rate(&self, step: u64) -> f64 {
        let learning_rate = self.rule.learning_rate().unwrap_or(0.0);
        let warm_up_steps = match self.schedule {
            Schedule::Constant { warm_up_steps }
            | Schedule::Step { warm_up_steps, .. }
            | Schedule::Cosine { warm_up_steps, .. } => warm_up_steps,
            Schedule::Table { .. } => 0,
        };
        if step < warm_up_steps {
            return learning_rate * (step + 1) as f64 / warm_up_steps as f64;
        }
        let factor = match &self.schedule {
            Schedule::Table { factors } => {
                let last = factors.len().saturating_sub(1);
                let place = usize::try_from(step).map_or(last, |step| step.min(last));
                factors.get(place).copied().unwrap_or(1.0)
            }
            Schedule::Constant { .. } => 1.0,
            Schedule::Step { at, factor, .. } => {
                at.iter().filter(|s| **s <= step).fold(1.0, |f, _| f * factor)
            }
            Schedule::Cosine { floor, .. } => {
                let span = self.total_steps.saturating_sub(warm_up_steps).max(1) as f64;
                let done = ((step - warm_up_steps) as f64 / span).min(1.0);
                // libm's cosine: the system's may round differently from machine to machine.
                floor + (1.0 - floor) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done))
            }
        };
        learning_rate * factor
    }

    /// Updates a range of parameters and of each slot from the same range of the summed gradient. A local step needs no
    /// slot of outer ones.
    ///
    /// # Panics
    ///
    /// When the slices differ in length, the number of slots is not the rule's, or the rule is not one of these.
    pub fn update(&self, update: Update, parameters: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        assert_eq!(parameters.len(), gradient.len());
        let local = self.local_slots();
        assert!(slots.len() == local || slots.len() == local + self.outer_slots());
        assert!(slots.iter().all(|s| s.len() == parameters.len()));
        let (slots, outer) = slots.split_at_mut(local);
        if update.is_outer {
            return self.outer_step(update, parameters, outer.first_mut(), gradient);
        }
        let steps = update.steps as f64;
        let covered = (update.step..update.step + update.steps).map(|step| self.learning_rate(step));
        let mean = covered.sum::<f64>() / steps;
        let rate = mean * update.rate_factor;
        match self.rule {
            Rule::Own { .. } => unreachable!("the workload applies its own rule"),
            Rule::Sgd { momentum, nesterov, weight_decay, .. } => {
                let sgd = Sgd {
                    rate: rate as f32,
                    momentum: momentum as f32,
                    decay: weight_decay as f32,
                    scale: update.scale,
                    first: update.step == update.since,
                };
                match slots {
                    [] => sgd.plain(parameters, gradient),
                    [slot] if nesterov => sgd.nesterov(parameters, slot, gradient),
                    [slot, ..] => sgd.momentum(parameters, slot, gradient),
                }
            }
            Rule::Adam { betas, epsilon, weight_decay, .. } => {
                let adam = Adam::new(rate, betas, epsilon, update, weight_decay as f32, 1.0);
                adam.apply(parameters, slots, gradient);
            }
            Rule::Adamw { betas, epsilon, weight_decay, .. } => {
                // Over several steps the decay keeps its pace per sample; a part of a step decays by its part.
                let part = if update.steps == 1 { update.rate_factor } else { 1.0 };
                let shrink = (1.0 - mean * steps * weight_decay * part) as f32;
                Adam::new(rate, betas, epsilon, update, 0.0, shrink).apply(parameters, slots, gradient);
            }
        }
    }

    /// Follows what was moved on average; `slot` is that of the outer momentum, where there is one.
    fn outer_step(
        &self,
        update: Update,
        parameters: &mut [f32],
        slot: Option<&mut &mut [f32]>,
        moved: &[f32],
    ) {
        let Outer { rate, momentum } = self.outer.expect("the job has phases of local steps");
        let sgd = Sgd { rate, momentum, decay: 0.0, scale: update.scale, first: update.step == 0 };
        match slot {
            Some(slot) => sgd.nesterov(parameters, slot, moved),
            None => sgd.plain(parameters, moved),
        }
    }
}

struct Sgd {
    rate: f32,
    momentum: f32,
    decay: f32,
    scale: f32,
    first: bool,
}

impl Sgd {
    fn plain(&self, parameters: &mut [f32], gradient: &[f32]) {
        for (p, sum) in parameters.iter_mut().zip(gradient) {
            *p -= self.rate * (sum * self.scale + self.decay * *p);
        }
    }

    fn momentum(&self, parameters: &mut [f32], slot: &mut [f32], gradient: &[f32]) {
        let keep = if self.first { 0.0 } else { self.momentum };
        for ((p, m), sum) in parameters.iter_mut().zip(slot).zip(gradient) {
            *m = keep * *m + (sum * self.scale + self.decay * *p);
            *p -= self.rate * *m;
        }
    }

    fn nesterov(&self, parameters: &mut [f32], slot: &mut [f32], gradient: &[f32]) {
        let keep = if self.first { 0.0 } else { self.momentum };
        for ((p, m), sum) in parameters.iter_mut().zip(slot).zip(gradient) {
            let g = sum * self.scale + self.decay * *p;
            *m = keep * *m + g;
            *p -= self.rate * (g + self.momentum * *m);
        }
    }
}

struct Adam {
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    scale: f32,
    decay: f32,
    shrink: f32,
    /// r / (1 - b1^t)
    step_size: f32,
    /// 1 / sqrt(1 - b2^t)
    root: f32,
}

impl Adam {
    fn new(rate: f64, betas: [f64; 2], epsilon: f64, update: Update, decay: f32, shrink: f32) -> Self {
        let correction =
            |beta: f64| 1.0 - libm::pow(beta, (update.step + update.steps - update.since) as f64);
        let single = update.steps == 1;
        let pace = |beta: f64| if single { beta } else { libm::pow(beta, update.steps as f64) };
        let [beta1, beta2] = betas.map(pace);
        Adam {
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            epsilon: (epsilon / libm::sqrt(update.steps as f64)) as f32,
            scale: update.scale,
            decay,
            shrink,
            step_size: (rate / correction(betas[0])) as f32,
            root: (1.0 / libm::sqrt(correction(betas[1]))) as f32,
        }
    }

    fn apply(&self, parameters: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [first, second] = slots else { unreachable!("Adam keeps two slots") };
        for (((p, m), v), sum) in
            parameters.iter_mut().zip(first.iter_mut()).zip(second.iter_mut()).zip(gradient)
        {
            let g = sum * self.scale + self.decay * *p;
            *m = self.beta1 * *m + (1.0 - self.beta1) * g;
            *v = self.beta2 * *v + (1.0 - self.beta2) * (g * g);
            *p = *p * self.shrink - self.step_size * *m / (v.sqrt() * self.root + self.epsilon);
        }
    }
}
