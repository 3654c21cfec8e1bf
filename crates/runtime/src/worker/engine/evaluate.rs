//! Evaluation of the held-out set, each member its virtual nodes' share.

use super::{Engine, Fault, Header, header};
use crate::evaluation::parts;
use crate::membership::{Activity, EvaluationRecord, Offer};
use crate::transfer::read;
use crate::workload::{Evaluation, MicroBatch, Weights};

impl Engine {
    /// Evaluates the held-out set together; every member learns the result.
    pub(in crate::worker) fn evaluate(
        &mut self,
        step: u64,
        offer: Offer,
        urgent: &dyn Fn() -> bool,
    ) -> Result<EvaluationRecord, Fault> {
        let range = self.accumulator.range();
        let held_out = self.workload.held_out_samples();
        let mut leaves = Vec::with_capacity(range.len());
        for node in range.clone() {
            let mut total = Evaluation::default();
            for part in parts(held_out, self.order.virtual_nodes, node) {
                if urgent() {
                    return Err(Fault::interrupted());
                }
                self.part(Activity::Evaluating, step);
                self.samples.clear();
                self.samples.extend(part);
                let state = read(&self.state);
                let weights = Weights {
                    parameters: &state.parameters,
                    state: &state.model_state,
                    version: self.version,
                };
                let part = self.workload.evaluate(weights, MicroBatch { samples: &self.samples });
                let part = part.map_err(|error| Fault::Workload(error, None))?;
                total.loss_sum += part.loss_sum;
                total.correct += part.correct;
                total.predictions += part.predictions;
            }
            leaves.push([total.loss_sum, total.correct as f64, total.predictions as f64]);
        }
        let sums = header::triples_per_node(self.order.virtual_nodes, range, &leaves);
        self.part(Activity::Exchanging, step);
        let (_, [loss, correct, predictions]) = self.confer(step, &Header { offer, sums })?;
        let loss = if held_out > 0 { loss / held_out as f64 } else { f64::NAN };
        Ok(EvaluationRecord {
            step,
            loss,
            correct: correct as u64,
            predictions: predictions as u64,
            samples: held_out,
        })
    }
}
