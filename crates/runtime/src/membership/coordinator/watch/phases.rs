//! Who keeps a phase from getting on that has no membership: a worker that hangs with its units, or a link to a server.

use std::collections::BTreeMap;

use super::{Coordinator, Late, Stage};
use crate::membership::{Activity, Position, WorkerId};

/// A server and the worker that waits for it, and which of them to cut. `stalled` wait for servers and have got no
/// further for too long; `others` get on with them.
fn culprit(
    stalled: &BTreeMap<WorkerId, Vec<WorkerId>>,
    others: bool,
    suspects: impl Fn(WorkerId) -> bool,
) -> Option<(WorkerId, WorkerId)> {
    let mut waiting: BTreeMap<WorkerId, Vec<WorkerId>> = BTreeMap::new();
    for (worker, servers) in stalled {
        servers.iter().for_each(|server| waiting.entry(*server).or_default().push(*worker));
    }
    let (server, workers) = waiting.into_iter().max_by_key(|(server, workers)| (workers.len(), *server))?;
    let worker = workers[0];
    // What a worker holds is done again by others; what a server holds may be lost.
    let all = workers.len() > 1 && !others;
    Some(if all || suspects(server) { (server, worker) } else { (worker, server) })
}

impl Coordinator {
    /// No worker works for too long: then a worker that waits for a server waits in vain.
    pub(super) fn judge_servers(&mut self, positions: &BTreeMap<WorkerId, Position>, quiet_s: f64) {
        if self.gossips() {
            // A peer that does not answer there is left out, by and by.
            return;
        }
        let waiting: BTreeMap<WorkerId, Late> = positions
            .iter()
            .filter(|(_, position)| position.waits())
            .map(|(id, position)| (*id, self.late(*id, position, quiet_s)))
            .collect();
        if !waiting.values().any(|late| late.seconds > late.warn_s) {
            return;
        }
        // A worker that has waited for half as long was about to be named, too.
        let stalls = |late: &Late| late.seconds > 0.5 * late.warn_s;
        let awaited: BTreeMap<WorkerId, Vec<WorkerId>> = waiting
            .iter()
            .filter(|(_, late)| stalls(late))
            .map(|(id, _)| {
                let servers = positions[id].waits_for.iter().copied().filter(|id| self.is_server(*id));
                (*id, servers.collect())
            })
            .collect();
        let idle = |position: &Position| position.activity == Activity::Idle;
        let others = positions.iter().any(|(id, p)| !awaited.contains_key(id) && !idle(p));
        let suspects = |server: WorkerId| self.watch.suspects.contains(&server);
        let Some((worker, peer)) = culprit(&awaited, others, suspects) else { return };
        let (server, client) = if self.is_server(worker) { (worker, peer) } else { (peer, worker) };
        let Late { seconds, warn_s, lose_s, .. } = waiting[&client];
        let doing = format!(
            "nothing arrives between worker {client} and server {server}: {}",
            positions[&client].sentence()
        );
        let named = self.tell(&Late { worker, peer: Some(peer), doing, seconds, warn_s, lose_s }, false);
        if !named || seconds <= lose_s {
            return;
        }
        self.watch.told.remove(&(worker, Some(peer)));
        if worker == server {
            self.watch.suspects.remove(&server);
            let why = format!("it has not answered worker {client} for {seconds:.1} s");
            self.say_goodbye(server, why.clone(), true);
            self.server_gone(server, &why);
        } else {
            // If another waits for it in vain, too, it is not the worker.
            self.watch.suspects.insert(server);
            self.expel(
                worker,
                &format!("nothing has arrived between it and server {server} for {seconds:.1} s"),
            );
        }
    }

    /// Workers of the phase under way, while units are granted and every shard is held.
    pub(super) fn relied_on_asynchronous(&self) -> Vec<WorkerId> {
        if !self.grants_units() {
            return Vec::new();
        }
        let here = |stage: Stage| matches!(stage, Stage::Active | Stage::Leaving);
        self.workers.iter().filter(|(_, w)| here(w.stage)).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        stalled: &[(WorkerId, &[WorkerId])],
        others: bool,
        suspect: WorkerId,
    ) -> Option<(WorkerId, WorkerId)> {
        let stalled = stalled.iter().map(|(id, servers)| (*id, servers.to_vec())).collect();
        culprit(&stalled, others, |server| server == suspect)
    }

    #[test]
    fn a_worker_goes_unless_none_gets_an_answer() {
        assert_eq!(found(&[(1, &[8])], false, 0), Some((1, 8)), "its units are done by another");
        assert_eq!(found(&[(1, &[8])], true, 0), Some((1, 8)));
        assert_eq!(found(&[(1, &[8]), (2, &[8, 9])], false, 0), Some((8, 1)));
        assert_eq!(found(&[(1, &[8]), (2, &[8])], true, 0), Some((1, 8)), "others are answered");
        assert_eq!(found(&[(3, &[8])], false, 8), Some((8, 3)), "another was cut for it before");
        assert_eq!(found(&[(1, &[])], false, 0), None);
    }
}
