//! One virtual node of a step, computed again by another worker and compared before the step is applied.

use std::ops::Range;

use bellwether_core::job::Job;

use super::gradients::compute;
use super::{Engine, Fault};
use crate::collective::Outcome;
use crate::membership::{Verdict, WorkerId};
use crate::order::micro_batch_seed;
use crate::transfer::read;
use crate::verification::{Check, Digest, digest, due};

/// What the checks of a run need to remember.
#[derive(Debug)]
pub(super) struct Verification {
    /// Steps between two checks; 0 for none.
    every: u64,
    /// Step and node whose digest is taken when this worker computes it.
    watched: Option<(u64, u32)>,
    /// That digest. A node without samples leaves it as it is.
    own: Digest,
}

impl Verification {
    pub(super) fn of(job: &Job) -> Self {
        Verification { every: job.verify_every, watched: None, own: Digest::default() }
    }

    /// Whether this worker takes the digest of one of its own nodes.
    pub(super) fn watches(&self) -> bool {
        self.watched.is_some()
    }

    /// This worker computed a node.
    pub(super) fn computed(&mut self, step: u64, node: u32, values: &[f32], loss_sum: f64) {
        if self.watched == Some((step, node)) {
            self.own = digest(values, loss_sum);
        }
    }
}

/// Two workers computed a virtual node differently.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Found {
    /// Which, and who.
    pub(in crate::worker) check: Check,
    /// What its worker and its checker computed.
    digests: [Digest; 2],
}

impl Engine {
    /// The check that is due in these steps; from now on this worker looks out for the node, if it is its own.
    pub(super) fn watch_for(&mut self, steps: &Range<u64>) -> Option<Check> {
        let check = due(self.verification.every, steps, self.order.virtual_nodes, &self.membership);
        let own = check.as_ref().filter(|check| check.worker == self.me);
        self.verification.watched = own.map(|check| (check.step, check.node));
        self.verification.own = Digest::default();
        check
    }

    /// What this worker has to say in a check: the digest of its own node, or of the one that it computes again.
    pub(super) fn evidence(
        &mut self,
        check: Option<&Check>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Fault> {
        let Some(check) = check else { return Ok(Vec::new()) };
        if check.worker == self.me {
            let own = self.verification.own;
            if check.checker != self.me {
                return Ok(own.to_vec());
            }
            // Alone: at least what is wrong only once is found.
            let again = self.again(check, urgent)?;
            if own != again {
                return Err(Fault::Mismatch(Found { check: *check, digests: [own, again] }));
            }
            return Ok(Vec::new());
        }
        if check.checker == self.me { Ok(self.again(check, urgent)?.to_vec()) } else { Ok(Vec::new()) }
    }

    /// Computes the node of a check that is another worker's.
    fn again(&mut self, check: &Check, urgent: &dyn Fn() -> bool) -> Result<Digest, Fault> {
        if urgent() {
            return Err(Fault::interrupted());
        }
        self.order.micro_batch(check.step, check.node, &mut self.samples);
        if self.samples.is_empty() {
            return Ok(Digest::default());
        }
        self.part.resize(self.length, 0.0);
        let seed = micro_batch_seed(self.seed, check.step, check.node);
        let state = read(&self.state);
        let loss = compute(self.workload.as_mut(), &state, self.version, &self.samples, seed, &mut self.part)
            .map_err(|error| Fault::Workload(error, Some((check.step, check.node))))?;
        Ok(digest(&self.part, loss.sum))
    }

    /// Takes the two digests off the control bytes, and compares them.
    pub(super) fn compare(&self, check: Option<Check>, outcome: &mut Outcome) -> Result<(), Fault> {
        let Some(check) = check.filter(|check| check.worker != check.checker) else { return Ok(()) };
        let mut said = |worker| -> Result<Digest, Fault> {
            let bytes = &mut outcome.headers[self.rank(worker)];
            let digest = bytes.split_last_chunk().map(|(_, digest)| *digest).ok_or_else(|| silent(worker))?;
            bytes.truncate(bytes.len() - digest.len());
            Ok(digest)
        };
        let digests = [said(check.worker)?, said(check.checker)?];
        if digests[0] == digests[1] { Ok(()) } else { Err(Fault::Mismatch(Found { check, digests })) }
    }

    fn rank(&self, worker: WorkerId) -> usize {
        self.membership.rank(worker).expect("a check names members")
    }

    /// Hears what a third worker computes; every member does.
    pub(in crate::worker) fn judge(
        &mut self,
        found: &Found,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Verdict, Fault> {
        let Some(judge) = found.check.judge else { return Ok(Verdict::Open) };
        let mine = if judge == self.me { self.again(&found.check, urgent)?.to_vec() } else { Vec::new() };
        let outcome = self.exchange_control(found.check.step, &mine)?;
        let said = outcome.headers[self.rank(judge)].as_slice();
        let judged: Digest = said.try_into().map_err(|_| silent(judge))?;
        Ok(found.check.verdict(found.digests, judged))
    }
}

fn silent(worker: WorkerId) -> Fault {
    Fault::Collective(Some(worker), "it did not say what it computed for a check".into())
}
