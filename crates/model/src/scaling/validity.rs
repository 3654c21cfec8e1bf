//! Where rows were measured, and what lies beyond.

use bellwether_core::prediction::Validity;

use crate::elastic::Row;

/// What the fitted rows span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranges {
    /// Smallest and largest count in one node; (0, 0) when none was measured.
    pub(super) in_node: (u32, u32),
    /// Smallest and largest count over several nodes; (0, 0) when none was measured.
    pub(super) over_nodes: (u32, u32),
    /// Smallest and largest local batch, in samples.
    pub(super) local_batch: (f64, f64),
    /// Smallest and largest global batch, in samples.
    pub(super) batch: (u64, u64),
}

impl Ranges {
    pub(super) fn of(rows: &[Row]) -> Self {
        let span = |counts: &mut dyn Iterator<Item = u32>| {
            counts.fold((0, 0), |(low, high), count| {
                (if low == 0 { count } else { low.min(count) }, high.max(count))
            })
        };
        let local = rows.iter().map(|row| row.local_batch);
        let local_batch =
            local.fold((f64::MAX, 0.0), |(low, high): (f64, f64), batch| (low.min(batch), high.max(batch)));
        let global = rows.iter().map(|row| (row.local_batch * f64::from(row.replicas)).round() as u64);
        Ranges {
            in_node: span(&mut rows.iter().filter(|row| row.nodes == 1).map(|row| row.replicas)),
            over_nodes: span(&mut rows.iter().filter(|row| row.nodes > 1).map(|row| row.replicas)),
            local_batch,
            batch: global.fold((u64::MAX, 0), |(low, high), batch| (low.min(batch), high.max(batch))),
        }
    }

    pub(super) fn validity(&self, nodes: u32, replicas: u32, local_batch: f64) -> Validity {
        let (low, high) = if nodes > 1 { self.over_nodes } else { self.in_node };
        let kind = if nodes > 1 { "over several nodes" } else { "in one node" };
        if high == 0 {
            return Validity::Extrapolated(format!("no step was measured {kind}"));
        }
        if !(low..=high).contains(&replicas) {
            return Validity::Extrapolated(format!(
                "{replicas} workers {kind}; measured were {low} to {high}"
            ));
        }
        let (low, high) = self.local_batch;
        // A quotient may miss an end by rounding.
        if local_batch < low * (1.0 - 1e-9) || local_batch > high * (1.0 + 1e-9) {
            return Validity::Extrapolated(format!(
                "{local_batch} samples per worker; measured were {low} to {high}"
            ));
        }
        Validity::Interpolated
    }
}
