//! `metrics.jsonl`: a line per committed update.

use super::{Run, Seen};
use crate::membership::{StepRecord, UnitRecord, WorkerId};

fn unit((worker, record): &(WorkerId, UnitRecord)) -> serde_json::Value {
    let mut unit = serde_json::json!(record);
    unit["worker"] = (*worker).into();
    unit
}

/// Memberships whose sizes are remembered.
const SIZES_KEPT: usize = 8;

impl Run {
    pub(super) fn committed(&mut self, records: &[StepRecord]) {
        self.note_batches(records);
        let goodput = self.options.job.mode.goodput().is_some();
        let mut text = String::new();
        for record in records {
            // Steps are reported some time after they were done, perhaps in a later membership.
            let in_force = self.sizes.iter().rev().find(|(from, ..)| *from <= record.step);
            let (_, workers, shadows) = in_force.copied().unwrap_or_default();
            let mut line = serde_json::json!({
                "step": record.step,
                "loss": record.loss,
                "duration_s": record.duration_s,
                "compute_s": record.compute_s,
                "exchange_s": record.exchange_s,
                "update_s": record.update_s,
                "nodes_s": record.nodes_s,
                "traffic": record.traffic,
                "workers": workers,
                "shadows": shadows,
            });
            if goodput {
                line["accumulation"] = record.steps().into();
                line["noise_scale"] = record.noise_scale.into();
                line["learning_rate_factor"] = record.learning_rate_factor.into();
            }
            if !record.units.is_empty() {
                line["units"] = record.units.iter().map(unit).collect();
            }
            text.push_str(&line.to_string());
            text.push('\n');
        }
        // One membership is in force, and records of the one or two before it may be on their way.
        let done = self.sizes.len().saturating_sub(SIZES_KEPT);
        self.sizes.drain(..done);
        self.write_metrics(&text);
        self.direct(Seen::Committed(records));
    }
}
