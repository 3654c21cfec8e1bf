//! A workload that computes one virtual node of one step wrong, to try what finds it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use bellwether_core::ParseError;
use bellwether_runtime::order::micro_batch_seed;
use bellwether_runtime::workload::{Evaluation, Layout, Loss, MicroBatch, Weights, Workload, WorkloadError};

/// Which gradient is wrong: `17:3` is that of virtual node 3 in step 17, whenever it is computed, and `17:3:once` the
/// first time only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    /// The step.
    pub step: u64,
    /// The virtual node.
    pub node: u32,
    /// Whether it is right when it is computed again.
    pub once: bool,
}

impl FromStr for Flip {
    type Err = ParseError;

    /// ```
    /// use bellwether_workloads::Flip;
    /// assert_eq!("17:3".parse(), Ok(Flip { step: 17, node: 3, once: false }));
    /// assert_eq!("17:3:once".parse(), Ok(Flip { step: 17, node: 3, once: true }));
    /// assert!("17".parse::<Flip>().is_err() && "17:3:twice".parse::<Flip>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new("gradient", text, "STEP:NODE or STEP:NODE:once, for example 17:3");
        let (place, once) = match text.strip_suffix(":once") {
            Some(place) => (place, true),
            None => (text, false),
        };
        let (step, node) = place.split_once(':').ok_or_else(wrong)?;
        let (step, node) = (step.parse().map_err(|_| wrong())?, node.parse().map_err(|_| wrong())?);
        Ok(Flip { step, node, once })
    }
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.step, self.node, if self.once { ":once" } else { "" })
    }
}

/// `workload`, but for one bit of one gradient, in a job of this seed.
pub fn flipped(workload: Box<dyn Workload>, flip: Flip, seed: u64) -> Box<dyn Workload> {
    let seed = micro_batch_seed(seed, flip.step, flip.node);
    Box::new(Flipped { workload, seed, once: flip.once, done: false })
}

struct Flipped {
    workload: Box<dyn Workload>,
    /// The seed of the call that goes wrong.
    seed: u64,
    once: bool,
    done: bool,
}

impl Workload for Flipped {
    fn layout(&self) -> &Layout {
        self.workload.layout()
    }

    fn training_samples(&self) -> u64 {
        self.workload.training_samples()
    }

    fn held_out_samples(&self) -> u64 {
        self.workload.held_out_samples()
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        self.workload.initialize(seed, parameters, state);
    }

    fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        self.workload.assigned(step, nodes);
    }

    fn take_data_wait_s(&mut self) -> f64 {
        self.workload.take_data_wait_s()
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        let loss = self.workload.gradient(weights, batch, seed, gradient_out, state_out)?;
        if seed == self.seed && !(self.once && self.done) {
            self.done = true;
            // The lowest bit that there is: neither the loss nor norms show it.
            let middle = gradient_out.len() / 2;
            gradient_out[middle] = f32::from_bits(gradient_out[middle].to_bits() ^ 1);
        }
        Ok(loss)
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        self.workload.evaluate(weights, batch)
    }

    fn fingerprint(&self) -> String {
        self.workload.fingerprint()
    }
}
