//! What a daemon would have foreseen at each decision of its ledger, beside what then happened.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bellwether_core::cluster::JobId;
use bellwether_core::outlook::{Coverage, Times};
use bellwether_sched::registry::Registry;
use bellwether_serve::ledger::{self, Entry};
use bellwether_serve::outlook::Outlook as _;
use bellwether_serve::state::State;

use crate::serve::Simulated;

/// Looks ahead wherever jobs of a ledger waited of which nothing was foreseen yet, and says when they started, beside
/// the interval.
pub(super) fn foresight(path: &Path, registry: &Registry) -> io::Result<Coverage> {
    let mut state = None;
    let mut outlook = Simulated { registry: registry.clone() };
    let mut foreseen: BTreeMap<JobId, Times> = BTreeMap::new();
    ledger::read(path, |line| -> Result<(), String> {
        State::fold(&mut state, &line).map_err(|error| error.to_string())?;
        let Some(state) = state.as_ref().filter(|_| matches!(line.entry, Entry::Decided { .. })) else {
            return Ok(());
        };
        // One that was stopped waits again, and has started long ago.
        let is_new = |id: &JobId| state.jobs.get(id).is_some_and(|record| record.started_s.is_none());
        let waiting =
            |id: &JobId| is_new(id) && state.view.jobs.get(id).is_some_and(|seen| !seen.is_running());
        if state.view.jobs.keys().filter(|id| waiting(id)).all(|id| foreseen.contains_key(id)) {
            return Ok(());
        }
        for (id, expected) in outlook.look(&state.question(line.time_s))? {
            if let Some(start) = expected.start.filter(|_| is_new(&id)) {
                foreseen.entry(id).or_insert(start);
            }
        }
        Ok(())
    })?;
    let mut coverage = Coverage::default();
    for (id, Times { low_s, high_s, .. }) in foreseen {
        let record = state.as_ref().and_then(|state| state.jobs.get(&id));
        if let Some(start_s) = record.and_then(|record| record.started_s) {
            coverage.count((low_s, high_s), start_s);
        }
    }
    Ok(coverage)
}
