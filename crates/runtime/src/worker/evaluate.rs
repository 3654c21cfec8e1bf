//! A worker's part of an evaluation on held-out samples.

use std::sync::Arc;
use std::time::Instant;

use super::Worker;
use crate::membership::member::Task;

impl Worker {
    pub(super) fn evaluate(&mut self, task: &Task) {
        if self.engine.workload.held_out_samples() == 0 {
            return self.member.evaluated();
        }
        let began = Instant::now();
        let (step, offer) = (self.member.step(), self.member.offer(task));
        let mailbox = Arc::clone(&self.connection.mailbox);
        match self.engine.evaluate(step, offer, &|| mailbox.urgent()) {
            Ok(record) => {
                if self.member.is_active() {
                    self.reporter.evaluated(record);
                }
                self.member.evaluated();
                // An evaluation is neither part of a step nor of a switch.
                self.boundary += began.elapsed();
            }
            Err(fault) => self.fault(fault),
        }
    }
}
