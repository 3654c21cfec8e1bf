//! The exactly-once ledger, proven from the journal alone.

use bellwether_core::record::{Event, Line};

use crate::order::SampleOrder;

/// Which committed step each sample of each epoch is in, as far as the journal tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Committed steps, each exactly once and without a gap.
    pub steps: u64,
    /// Samples in those of which lines of their own tell.
    pub samples: u64,
    /// Epochs that lie within one stretch: each of their samples is in exactly one step.
    pub epochs: u64,
    /// The steps in order, cut where data, kernels or the evidence change.
    pub stretches: Vec<Stretch>,
}

/// Steps that were done with the same data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
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

/// What steps are trained on from a line on.
#[derive(Debug, Clone, Copy)]
struct Task<'l> {
    fingerprint: &'l str,
    order: SampleOrder,
}

/// Checks the exactly-once ledger of a run with this seed: every committed step follows the one before, and in every epoch
/// (the last one may be unfinished) no sample index is in two micro-batches, and none is missing. Steps that were done
/// with other data count by the order of those.
///
/// # Errors
///
/// The first violation, as a sentence.
pub fn ledger(lines: &[Line], seed: u64) -> Result<Ledger, String> {
    let (mut steps, mut stretches): (u64, Vec<(Stretch, SampleOrder)>) = (0, Vec::new());
    let (mut task, mut found) = (lines.iter().find_map(|line| known(&line.event, seed)), 0..0);
    for line in lines {
        match line.event {
            Event::Committed { first, last, .. } => {
                if first != steps || last < first {
                    return Err(format!("steps {first}…{last} were committed when {steps} steps were done"));
                }
                let task = task.ok_or("steps were committed, and no line tells of which data")?;
                add(&mut stretches, first, last, task, !found.contains(&first));
                steps = last + 1;
            }
            Event::RolledBack { to } if to <= steps => {
                steps = to;
                stretches.retain(|(stretch, _)| stretch.first < to);
                if let Some((stretch, _)) = stretches.last_mut() {
                    stretch.last = stretch.last.min(to - 1);
                }
            }
            Event::RolledBack { to } => return Err(format!("rolled back to {to} with {steps} steps done")),
            Event::FoundInCheckpoint { first, last } => found = first..last.saturating_add(1),
            _ => task = known(&line.event, seed).or(task),
        }
    }
    let mut ledger = Ledger { steps, samples: 0, epochs: 0, stretches: Vec::new() };
    for (mut stretch, order) in stretches {
        if stretch.is_proven {
            let (samples, epochs) = prove(&stretch, order)?;
            stretch.epochs = epochs;
            ledger.samples += samples;
            ledger.epochs += epochs;
        }
        ledger.stretches.push(stretch);
    }
    Ok(ledger)
}

fn known(event: &Event, seed: u64) -> Option<Task<'_>> {
    match event {
        Event::TaskKnown { fingerprint, training_samples: samples, batch, virtual_nodes, .. } => {
            let order = SampleOrder { samples: *samples, batch: *batch, virtual_nodes: *virtual_nodes, seed };
            Some(Task { fingerprint, order })
        }
        _ => None,
    }
}

fn add(stretches: &mut Vec<(Stretch, SampleOrder)>, first: u64, last: u64, task: Task<'_>, is_proven: bool) {
    let Task { fingerprint, order } = task;
    let training_samples = order.samples;
    match stretches.last_mut() {
        Some((same, _))
            if (same.fingerprint.as_str(), same.training_samples, same.is_proven)
                == (fingerprint, training_samples, is_proven) =>
        {
            same.last = last;
        }
        _ => {
            let fingerprint = fingerprint.to_string();
            let stretch = Stretch { first, last, fingerprint, training_samples, is_proven, epochs: 0 };
            stretches.push((stretch, order));
        }
    }
}

/// Looks at every sample of a stretch; its samples, and the epochs that lie within.
fn prove(stretch: &Stretch, order: SampleOrder) -> Result<(u64, u64), String> {
    let (mut samples, mut epochs, mut micro_batch) = (0, 0, Vec::new());
    let mut seen = vec![u64::MAX; usize::try_from(order.samples).map_err(|e| e.to_string())?];
    for step in stretch.first..=stretch.last {
        let (epoch, _) = order.positions(step);
        for node in 0..order.virtual_nodes {
            order.micro_batch(step, node, &mut micro_batch);
            for sample in &micro_batch {
                if std::mem::replace(&mut seen[*sample as usize], epoch) == epoch {
                    return Err(format!("sample {sample} is twice in epoch {epoch}"));
                }
                samples += 1;
            }
        }
        let per_epoch = order.steps_per_epoch();
        let begins_here = (step / per_epoch) * per_epoch >= stretch.first;
        if begins_here && (step + 1) % per_epoch == 0 {
            if let Some(missing) = seen.iter().position(|e| *e != epoch) {
                return Err(format!("sample {missing} is missing in epoch {epoch}"));
            }
            epochs += 1;
        }
    }
    Ok((samples, epochs))
}
