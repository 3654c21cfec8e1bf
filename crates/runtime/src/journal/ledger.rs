//! The exactly-once ledger, proven from the journal alone.

use std::num::NonZeroU64;
use std::ops::Range;

use bellwether_core::record::{Event, Line};

use crate::order::SampleOrder;

/// Which committed step each sample of each epoch is in, as far as the journal tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Committed steps, each exactly once and without a gap.
    pub steps: u64,
    /// Samples in those of which lines of their own tell.
    pub samples: u64,
    /// Epochs that lie within one segment: each of their samples is in exactly one step.
    pub epochs: u64,
    /// The steps in order, cut where data, kernels or the evidence change.
    pub segments: Vec<Segment>,
}

/// Steps that were done with the same data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// Data and kernels.
    pub fingerprint: String,
    /// Samples of an epoch.
    pub training_samples: u64,
    /// Whether lines tell of their commit; otherwise they are in a checkpoint, and that is all there is.
    pub is_proven: bool,
    /// Epochs that lie within.
    pub epochs: u64,
}

/// A journal that does not prove its ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Steps were committed, and no line says on which data.
    #[error("steps were committed, and no line tells of which data")]
    NoData,
    /// A commit does not follow the one before.
    #[error("steps {first}…{last} were committed when {done} steps were done")]
    OutOfOrder {
        /// The first step of the commit.
        first: u64,
        /// The last step of the commit.
        last: u64,
        /// Steps that were done before it.
        done: u64,
    },
    /// The run was rolled back to a step that it had not reached.
    #[error("rolled back to {to} with {done} steps done")]
    RolledBackAhead {
        /// Steps that should be left.
        to: u64,
        /// Steps that were done.
        done: u64,
    },
    /// A sample is in two micro-batches of an epoch.
    #[error("sample {sample} is twice in epoch {epoch}")]
    Twice {
        /// The sample's index.
        sample: u64,
        /// The epoch.
        epoch: u64,
    },
    /// A sample is in no micro-batch of a whole epoch.
    #[error("sample {sample} is missing in epoch {epoch}")]
    Missing {
        /// The sample's index.
        sample: u64,
        /// The epoch.
        epoch: u64,
    },
    /// The data set has more samples than this machine can count one by one.
    #[error("{samples} samples are more than this machine can hold")]
    TooLarge {
        /// Samples of the data set.
        samples: u64,
    },
}

/// What steps are trained on from a line on.
#[derive(Debug, Clone)]
struct Task {
    fingerprint: String,
    order: SampleOrder,
}

/// Collects what a journal tells of committed steps, line by line, and proves the ledger from it. It remembers
/// segments of steps, not steps.
#[derive(Debug, Clone)]
pub struct Audit {
    seed: u64,
    order_block: Option<NonZeroU64>,
    steps: u64,
    /// Those before the first line that tells of the data are of that line's, and have no order until then.
    segments: Vec<(Segment, Option<SampleOrder>)>,
    task: Option<Task>,
    /// Whether a step was committed.
    has_steps: bool,
    /// Steps that were found in a checkpoint, as the last such line says.
    found: Range<u64>,
    violation: Option<LedgerError>,
}

impl Audit {
    /// Of a run with this seed, and this block of its sample order ([`SampleOrder::block`]).
    pub fn new(seed: u64, order_block: Option<NonZeroU64>) -> Audit {
        Audit {
            seed,
            order_block,
            steps: 0,
            segments: Vec::new(),
            task: None,
            has_steps: false,
            found: 0..0,
            violation: None,
        }
    }

    /// Takes in the next line.
    pub fn take(&mut self, line: &Line) {
        match &line.event {
            // After a violation too: it is another one where no line tells of the data at all.
            Event::TaskKnown { fingerprint, training_samples, batch, virtual_nodes, .. } => {
                let order = SampleOrder {
                    samples: *training_samples,
                    batch: *batch,
                    virtual_nodes: *virtual_nodes,
                    seed: self.seed,
                    block: self.order_block,
                };
                self.learn(Task { fingerprint: fingerprint.clone(), order });
            }
            _ if self.violation.is_some() => {}
            Event::Committed { first, last, .. } => self.committed(*first, *last),
            Event::RolledBack { to } => self.rolled_back(*to),
            Event::FoundInCheckpoint { first, last } => self.found = *first..last.saturating_add(1),
            _ => {}
        }
    }

    fn learn(&mut self, task: Task) {
        if self.task.is_none() {
            for (segment, order) in &mut self.segments {
                segment.fingerprint.clone_from(&task.fingerprint);
                segment.training_samples = task.order.samples;
                *order = Some(task.order);
            }
        }
        self.task = Some(task);
    }

    fn committed(&mut self, first: u64, last: u64) {
        let steps = self.steps;
        if first != steps || last < first {
            self.violation = Some(LedgerError::OutOfOrder { first, last, done: steps });
            return;
        }
        (self.steps, self.has_steps) = (last + 1, true);
        let is_proven = !self.found.contains(&first);
        let order = self.task.as_ref().map(|task| task.order);
        let (fingerprint, training_samples) =
            self.task.as_ref().map_or(("", 0), |task| (&task.fingerprint, task.order.samples));
        match self.segments.last_mut() {
            Some((same, _))
                if (same.fingerprint.as_str(), same.training_samples, same.is_proven)
                    == (fingerprint, training_samples, is_proven) =>
            {
                same.last = last;
            }
            _ => {
                let fingerprint = fingerprint.to_string();
                let segment = Segment { first, last, fingerprint, training_samples, is_proven, epochs: 0 };
                self.segments.push((segment, order));
            }
        }
    }

    fn rolled_back(&mut self, to: u64) {
        if to > self.steps {
            self.violation = Some(LedgerError::RolledBackAhead { to, done: self.steps });
            return;
        }
        self.steps = to;
        self.segments.retain(|(segment, _)| segment.first < to);
        if let Some((segment, _)) = self.segments.last_mut() {
            segment.last = segment.last.min(to - 1);
        }
    }

    /// Checks the exactly-once ledger: every committed step follows the one before, and in every epoch (the last one
    /// may be unfinished) no sample index is in two micro-batches, and none is missing. Steps that were done with other
    /// data count by the order of those.
    ///
    /// # Errors
    ///
    /// Returns the first violation.
    pub fn prove(self) -> Result<Ledger, LedgerError> {
        if self.has_steps && self.task.is_none() {
            return Err(LedgerError::NoData);
        }
        self.violation.map_or(Ok(()), Err)?;
        let mut ledger = Ledger { steps: self.steps, samples: 0, epochs: 0, segments: Vec::new() };
        for (mut segment, order) in self.segments {
            if let Some(order) = order.filter(|_| segment.is_proven) {
                let (samples, epochs) = prove(&segment, order)?;
                segment.epochs = epochs;
                ledger.samples += samples;
                ledger.epochs += epochs;
            }
            ledger.segments.push(segment);
        }
        Ok(ledger)
    }
}

/// Proves the ledger of a run with this seed and no blocks from all lines of its journal, see [`Audit::prove`].
///
/// # Errors
///
/// Returns the first violation.
pub fn ledger(lines: &[Line], seed: u64) -> Result<Ledger, LedgerError> {
    let mut audit = Audit::new(seed, None);
    lines.iter().for_each(|line| audit.take(line));
    audit.prove()
}

/// The samples that were met in one epoch, a bit each.
struct Met {
    bits: Vec<u64>,
    epoch: Option<u64>,
}

impl Met {
    fn new(samples: u64) -> Result<Met, LedgerError> {
        let words = usize::try_from(samples.div_ceil(64)).map_err(|_| LedgerError::TooLarge { samples })?;
        Ok(Met { bits: vec![0; words], epoch: None })
    }

    /// Of this epoch from here on.
    fn turn(&mut self, epoch: u64) {
        if self.epoch.replace(epoch) != Some(epoch) {
            self.bits.fill(0);
        }
    }

    /// Takes a sample in; says whether it was met before.
    fn meet(&mut self, sample: u64) -> bool {
        let (word, bit) = (&mut self.bits[(sample / 64) as usize], 1 << (sample % 64));
        let before = *word & bit != 0;
        *word |= bit;
        before
    }

    fn has(&self, sample: u64) -> bool {
        self.bits[(sample / 64) as usize] & (1 << (sample % 64)) != 0
    }
}

/// Looks at every sample of a segment; its samples, and the epochs that lie within.
fn prove(segment: &Segment, order: SampleOrder) -> Result<(u64, u64), LedgerError> {
    let (mut samples, mut epochs, mut micro_batch) = (0, 0, Vec::new());
    let mut met = Met::new(order.samples)?;
    for step in segment.first..=segment.last {
        let (epoch, _) = order.positions(step);
        met.turn(epoch);
        for node in 0..order.virtual_nodes {
            order.micro_batch(step, node, &mut micro_batch);
            for sample in &micro_batch {
                if met.meet(*sample) {
                    return Err(LedgerError::Twice { sample: *sample, epoch });
                }
                samples += 1;
            }
        }
        let per_epoch = order.steps_per_epoch();
        let begins_here = (step / per_epoch) * per_epoch >= segment.first;
        if begins_here && (step + 1) % per_epoch == 0 {
            if let Some(missing) = (0..order.samples).find(|sample| !met.has(*sample)) {
                return Err(LedgerError::Missing { sample: missing, epoch });
            }
            epochs += 1;
        }
    }
    Ok((samples, epochs))
}
