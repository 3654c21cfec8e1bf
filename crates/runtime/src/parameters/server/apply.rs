//! How a gradient becomes an update: once, under its piece's lock, and with the replica's knowledge.

use std::sync::Arc;
use std::time::Instant;

use super::connection::Connection;
use super::held::{Freed, Held};
use super::replica::Awaits;
use super::{Rule, Shared};
use crate::parameters::pipe::lock;
use crate::parameters::wire::{Header, Kind, WireError};

impl Shared {
    /// Applies a gradient, or finds that it was, and lets it be acknowledged. `values` is a buffer of the same length
    /// afterwards, of no particular values.
    pub(super) fn push(
        &self,
        from: Option<&Arc<Connection>>,
        push: &Header,
        local: usize,
        values: &mut Vec<f32>,
    ) -> Result<(), WireError> {
        if let Some(replica) = self.replica() {
            replica.wait_for_room();
        }
        let mut held = lock(&self.pieces[local]);
        // A primary has looked itself: what it gathers of a step may be of units that are complete elsewhere.
        let known = from.is_some() && self.knows(&held, push.unit);
        if !known && self.is_early(&held, push) {
            let worker = from.ok_or_else(|| push.out_of_turn())?;
            held.keep_early(worker, push, values);
            return Ok(());
        }
        let replica = if held.forwarded { self.replica() } else { None };
        let copy = replica.as_ref().filter(|_| !known).map(|replica| replica.copy(values));
        let staleness = if known { 0 } else { held.version.saturating_sub(push.version) };
        let mut freed = Freed::default();
        if known {
            lock(&self.counts).repeated += 1;
        } else {
            let begin = Instant::now();
            let (updated, stepped) = self.apply(&mut held, push, values)?;
            if stepped {
                freed = held.free();
            }
            self.remember(&mut held, push.unit);
            let seconds = begin.elapsed().as_secs_f64();
            held.applying_s += seconds;
            self.count(updated, staleness, seconds);
        }
        let applied = Header::new(Kind::Applied, push.piece, push.stamp);
        let applied = Header { unit: push.unit, step: known.into(), version: staleness, ..applied };
        let awaits = from.map_or(Awaits::NoOne, |worker| Awaits::Worker(Arc::clone(worker), applied));
        // Under the lock of the piece, so that the replica gets its updates in the same order.
        let awaits = match (replica, copy) {
            (None, _) => awaits,
            (Some(replica), Some(copy)) => replica.forward(*push, copy, awaits),
            (Some(replica), None) => {
                let known = Header { kind: Kind::Known, length_bytes: 0, ..*push };
                replica.forward(known, Vec::new(), awaits)
            }
        };
        drop(held);
        awaits.end();
        let piece = &self.options.map.pieces()[push.piece as usize];
        freed.pulls.into_iter().for_each(|(worker, pull)| worker.answer(piece.tensor, piece.bytes(), pull));
        self.received(piece.bytes());
        freed
            .pushes
            .into_iter()
            .try_for_each(|(worker, early, mut values)| self.push(Some(&worker), &early, local, &mut values))
    }

    /// Whether the gradient is of a later step than the piece, as a replica gets it that took the place of its primary
    /// before it had all that other workers pulled there.
    fn is_early(&self, held: &Held, push: &Header) -> bool {
        let phase = self.phase();
        phase.as_ref().is_some_and(|phase| phase.rule == Rule::Together) && push.step > held.step
    }

    /// Applies or gathers a gradient; whether the piece was updated, and whether a step was made.
    fn apply(
        &self,
        held: &mut Held,
        push: &Header,
        values: &mut Vec<f32>,
    ) -> Result<(bool, bool), WireError> {
        let phase = self.phase();
        let phase = phase.as_ref().ok_or_else(|| push.out_of_turn())?;
        let units = u64::from(self.options.units_per_step);
        let state = self.options.map.pieces()[push.piece as usize].state;
        match phase.rule {
            Rule::Each => {
                held.each(&phase.optimizer, push, state, values);
                Ok((true, false))
            }
            Rule::Together => {
                if push.step != held.step || push.unit / units != push.step {
                    return Err(push.out_of_turn());
                }
                held.gather((push.unit % units) as usize, push, values);
                let stepped = held.step_if_whole(&phase.optimizer, state);
                Ok((stepped, stepped))
            }
        }
    }

    fn count(&self, updated: bool, staleness: u64, seconds: f64) {
        let mut counts = lock(&self.counts);
        counts.applying_s += seconds;
        counts.staleness.add(staleness);
        counts.updates += u64::from(updated);
    }

    /// Whether a unit was applied to a piece. What the piece has forgotten is complete.
    pub(super) fn knows(&self, held: &Held, unit: u64) -> bool {
        held.applied.contains(&unit) || lock(&self.ledger).progress.has(unit)
    }

    /// Remembers that a unit was applied to a piece, and lets the piece forget what is complete.
    pub(super) fn remember(&self, held: &mut Held, unit: u64) {
        let mut ledger = lock(&self.ledger);
        ledger.note(unit, self.pieces.len());
        held.remember(unit, &ledger.progress);
    }
}
