//! The result of a run, from the account that the state machine keeps.

use std::path::Path;

use bellwether_core::record::{LastEvaluation, Summary};

use super::Run;
use crate::membership::coordinator::End;
use crate::state::hex;

impl Run {
    pub(super) fn summary(&self, end: &End) -> Summary {
        let progress = self.machine.progress();
        let steps = progress.committed();
        let samples = |step| self.order.map_or(0, |order| order.samples_before(step));
        let (since, first) = self.training_since.unwrap_or((self.began, steps));
        let elapsed_s = since.elapsed().as_secs_f64();
        let evaluation = progress.evaluation.filter(|e| e.step == steps && e.samples > 0);
        Summary {
            job: self.options.job.name.clone(),
            run: self.options.run.clone(),
            run_dir: display(&self.options.folder),
            outcome: end.how.clone(),
            ended_early: self.machine.ended_early().cloned(),
            steps,
            examples: samples(steps),
            final_loss: progress.last.as_ref().and_then(|last| last.loss),
            held_out_loss: evaluation.map(|e| e.loss),
            accuracy: evaluation.and_then(|e| e.accuracy()),
            last_evaluation: self
                .lines
                .history()
                .evaluation
                .filter(|_| evaluation.is_none())
                .map(|last| LastEvaluation { step: last.step, loss: last.loss, accuracy: last.accuracy }),
            examples_per_s: (samples(steps).saturating_sub(samples(first))) as f64 / elapsed_s,
            elapsed_s: self.began.elapsed().as_secs_f64(),
            params_digest: end.digest.map(|d| hex(&d)),
            workers: progress.worker_counts.clone(),
            slowest_boot: progress.slowest_boot,
            resizes: progress.resizes.clone(),
            crashes: progress.crashes.clone(),
            mismatches: progress.mismatches.clone(),
            batches: self.batches.changes().to_vec(),
            phases: self.machine.phases(),
            staleness: self.machine.staleness(),
            peak_resident_bytes: progress.peak_resident_bytes,
            data_wait: progress.data_wait(),
            data_waits: progress.data_waits,
            processor_wait: None,
            checkpoint: self.last_checkpoint.clone(),
            predictions: Vec::new(),
            planned: None,
            revocations: None,
            provisioned: None,
            decisions: Vec::new(),
        }
    }
}

fn display(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.into()).display().to_string()
}
