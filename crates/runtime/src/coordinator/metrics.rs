//! `metrics.jsonl`: a line per committed update.

use bellwether_core::record::StepRecord;

use super::{Run, RunEvent};

/// Memberships whose sizes are remembered.
const SIZES_KEPT: usize = 8;

impl Run {
    pub(super) fn committed(&mut self, mut records: Vec<StepRecord>) {
        self.note_batches(&records);
        let moves = self.options.job.mode.goodput().is_some();
        let mut text = String::new();
        for record in &mut records {
            // Steps are reported some time after they were done, perhaps in a later membership.
            let in_force = self.sizes.iter().rev().find(|(from, ..)| *from <= record.step);
            let (_, workers, shadows) = in_force.copied().unwrap_or_default();
            (record.workers, record.shadows) = (workers as u32, shadows as u32);
            if moves {
                record.accumulation = record.accumulation.max(1);
            } else {
                // Values that are the same in every step of a run are left out.
                (record.accumulation, record.noise_scale, record.learning_rate_factor) = (0, None, None);
            }
            text.push_str(&serde_json::to_string(record).expect("a step is plain data"));
            text.push('\n');
        }
        // One membership is in force, and records of the one or two before it may be on their way.
        let done = self.sizes.len().saturating_sub(SIZES_KEPT);
        self.sizes.drain(..done);
        self.write_metrics(&text);
        self.direct(RunEvent::Committed(&records));
    }
}
