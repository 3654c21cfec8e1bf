//! What of a job decides bits.

use super::{Feature, Job, Model, Sync};

impl Job {
    /// The part of the job that decides bits, as canonical text. Two runs with the same identity and
    /// the same kernel class train the same bytes, but in modes that [`Job::is_open_to_any_class`] names. Where data
    /// lies is not part of it; what the data contain is, through the workload's fingerprint.
    pub fn identity(&self) -> String {
        let mut parts = serde_json::json!({
            "mode": self.mode,
            "seed": self.seed,
            "model": self.model_identity(),
            "batch": self.batch,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "epochs": self.epochs,
            "steps": self.steps,
        });
        if let Some(path) = &self.initial_weights {
            parts["initial_weights"] = serde_json::json!(path);
        }
        // Where all steps are synchronous it decides no bits.
        if !self.sync.is_synchronous() {
            let Sync { policy, nodes_per_update, rate, momentum, .. } = &self.sync;
            parts["sync"] = serde_json::json!([policy, nodes_per_update, rate, momentum]);
        }
        if self.sync.has_outer_steps() {
            parts["outer"] = serde_json::json!([self.sync.outer_learning_rate, self.sync.outer_momentum]);
        }
        if !self.exchange.is_default() {
            parts["exchange"] = serde_json::json!(self.exchange);
        }
        if let Some(block) = self.data.order_block() {
            parts["order"] = serde_json::json!({ "block": block });
        }
        // A verdict may decide how long the run is.
        if !self.verdict.is_never() {
            parts["verdict"] = serde_json::json!(self.verdict);
        }
        // So may held-out results; time and money only interrupt it.
        if self.stop.by_results() {
            parts["stop"] = serde_json::json!([self.stop.identity(), self.evaluation]);
        }
        parts.to_string()
    }

    /// Whether workers of unlike kernel classes may train it together: in mode `mixed`, and where no step is done by
    /// all workers together, so that its bits follow from the time that each takes anyway.
    pub fn is_open_to_any_class(&self) -> bool {
        self.mode.is_mixed() || Feature::UnlikeKernels.check(self).is_ok()
    }

    /// What of the model decides bits: where a script and its interpreter lie does not, and the kernel class says on
    /// what it computes.
    fn model_identity(&self) -> serde_json::Value {
        match &self.model {
            Model::Python { arguments, layout, .. } => {
                serde_json::json!({ "kind": "python", "arguments": arguments, "layout": layout })
            }
            model => serde_json::json!(model),
        }
    }
}
