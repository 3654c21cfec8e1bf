//! How long a job may take: to begin, and in all.

use super::{Observed, PodSeen, Role, Terms, Todo, group};

/// Why the job has failed, where it had workers for as long as it may.
pub(super) fn overdue(seen: &Observed, todo: &mut Todo) -> Option<String> {
    let most_s = seen.terms.active_deadline_s?;
    let left_s = most_s.saturating_sub(seen.allocation.ran_until_s(seen.now_s));
    if left_s > 0 {
        todo.again(left_s as f64);
        return None;
    }
    Some(format!("it ran for longer than the {most_s} s of its activeDeadlineSeconds"))
}

/// Why the job gives its nodes back: too few of its pods are ready, for too long.
pub(super) fn late(seen: &Observed, todo: &mut Todo) -> Option<String> {
    let ready = seen.pods.iter().filter(|pod| pod.role == Role::Worker && pod.is_ready()).count();
    let &Terms { min_workers, start_timeout_s, .. } = &seen.terms;
    if ready as u32 >= min_workers || group::is_ending(seen) {
        return None;
    }
    let worker_since = |pod: &&PodSeen| pod.role == Role::Worker && pod.is_live();
    // From when the last pod was created on: a job that lost one gets the same time for another.
    let since_s = seen.pods.iter().filter(worker_since).map(|pod| pod.created_s).fold(0.0, f64::max);
    let since_s = since_s.max(seen.allocation.since_s).max(seen.restarts.last_s).max(seen.watched_since_s);
    let left_s = since_s + f64::from(start_timeout_s) - seen.now_s;
    if left_s > 0.0 {
        todo.again(left_s);
        return None;
    }
    let waits = seen.pods.iter().filter_map(|pod| pod.waits_for.as_deref()).next();
    let waits = waits.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("{ready} of at least {min_workers} pods were ready after {start_timeout_s} s{waits}"))
}
