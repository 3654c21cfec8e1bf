//! What a fleet keeps in its lease, so that its machines are found when it is lost.

use std::collections::BTreeSet;

use bellwether_core::lease::Row;

use super::{Fleet, Held, Stage};

impl Fleet {
    /// All machines that were ever requested.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(number, held): (&u64, &Held)| Row {
            number: *number,
            pool: held.pool.clone(),
            dollars_per_hour: held.dollars_per_hour,
            requested_s: held.requested_s,
            running_s: held.running_s,
            ended_s: held.ended_s,
            over: match &held.stage {
                Stage::Over { how } => Some(how.clone()),
                Stage::Unanswered { .. } | Stage::Waits { .. } | Stage::Runs { .. } => None,
            },
            is_seen: held.is_seen,
            workers: held.workers.clone(),
        };
        self.held.iter().map(row).collect()
    }

    /// Takes over the machines of an earlier holder. Those that ran are its workers, and those that did not yet are
    /// given back. The provider's list has to be [taken in](Fleet::listed) next. Returns the machines that ran, with
    /// their workers.
    pub fn restore(&mut self, rows: &[Row], now_s: f64) -> Vec<(u64, BTreeSet<u64>)> {
        let mut running = Vec::new();
        for row in rows {
            let stage = match (&row.over, row.running_s) {
                (Some(how), _) => Stage::Over { how: how.clone() },
                (None, Some(_)) => Stage::Runs { place: String::new(), leaves: None },
                // Whether the provider has answered its last holder is not known.
                (None, None) => Stage::Unanswered { asked_s: Some(now_s), failures: 1 },
            };
            let runs = matches!(stage, Stage::Runs { .. });
            let workers = if runs { row.workers.clone() } else { BTreeSet::new() };
            if runs {
                running.push((row.number, workers.clone()));
            }
            self.last = self.last.max(row.number);
            let held = Held {
                pool: row.pool.clone(),
                dollars_per_hour: row.dollars_per_hour,
                requested_s: row.requested_s,
                running_s: row.running_s,
                ended_s: row.ended_s,
                stage,
                workers,
                is_stand_in: false,
                is_fruitless: false,
                is_to_be_cleared: false,
                has_joined: runs,
                is_seen: row.is_seen,
                missing: 0,
                released_s: None,
            };
            self.held.insert(row.number, held);
        }
        running
    }
}
