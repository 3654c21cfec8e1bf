//! Sets of pods that begin and end together, because the script in them cannot change their number.
//!
//! A set is an allocation's generation. When another number of pods is wanted, or one of them fails, the next set takes
//! its place: all pods of the last one go, and then all of the next one come.

use super::{Action, Allocation, Backend, Failure, Final, Life, News, Observed, PodSeen, Role, Todo};

/// Pods of the set that is in force.
fn members(seen: &Observed) -> impl Iterator<Item = &PodSeen> {
    seen.pods.iter().filter(|pod| pod.role == Role::Worker && pod.generation == seen.allocation.generation)
}

/// Whether a script's process ended as it should.
fn succeeded(pod: &PodSeen) -> bool {
    pod.life == Life::Ended && pod.exit.as_ref().is_some_and(|exit| exit.code == Some(0))
}

/// Whether some pods of the set have done their work: they are not replaced, and the others are about to end.
pub(super) fn is_ending(seen: &Observed) -> bool {
    seen.terms.backend == Backend::Group && members(seen).any(succeeded)
}

/// How the script ended, once all of its processes ended well.
pub(super) fn finished(seen: &Observed, known_end: Option<u64>) -> Option<Final> {
    let done: Vec<&PodSeen> = members(seen).filter(|pod| succeeded(pod)).collect();
    let workers = seen.allocation.workers;
    if workers == 0 || done.len() < workers as usize {
        return None;
    }
    let unix_s = done.iter().filter_map(|pod| pod.exit.as_ref()).map(|exit| exit.at_s).fold(0.0, f64::max);
    let step = seen.terms.total_steps;
    let word = Final { outcome: "finished".into(), step, unix_s, ..Final::default() };
    (known_end != Some(unix_s.to_bits())).then_some(word)
}

/// What follows when a pod of the set has failed: another set, or the job's end. Says whether one has.
pub(super) fn replace_broken(seen: &Observed, todo: &mut Todo) -> bool {
    let has_failed = |pod: &&PodSeen| pod.life == Life::Ended && !pod.is_deleting && !succeeded(pod);
    let at_s = |pod: &PodSeen| pod.exit.as_ref().map_or(f64::INFINITY, |exit| exit.at_s);
    // The others fail for want of the first.
    let first = members(seen).filter(has_failed).min_by(|a, b| at_s(a).total_cmp(&at_s(b)));
    let (what, is_fault) = match first {
        Some(pod) => {
            let Failure { what, is_fault, ends_job } = Failure::of(seen, pod);
            if let Some(why) = ends_job {
                todo.then(Action::Tell(News::Failed(why)));
                return true;
            }
            (what, is_fault)
        }
        None if is_missed(seen) => ("a pod was taken away".to_owned(), false),
        None => return false,
    };
    let generation = seen.allocation.generation + 1;
    let (since_s, ran_s) = (seen.now_s, seen.allocation.ran_until_s(seen.now_s));
    let allocation = Allocation { generation, since_s, ran_s, ..seen.allocation.clone() };
    todo.then(Action::Replace { allocation, is_fault, what });
    true
}

/// Whether a pod of a set is gone whose processes have met: they cannot go on without it, nor with another one.
fn is_missed(seen: &Observed) -> bool {
    let Allocation { generation, workers, .. } = seen.allocation;
    let there = members(seen).filter(|pod| pod.is_live()).count();
    seen.whole == Some(generation) && there < workers as usize && !is_ending(seen)
}

/// Pods of earlier sets that have ended are removed; what they did was counted when their set was replaced.
pub(super) fn clear_earlier(seen: &Observed, todo: &mut Todo) {
    let is_earlier = |pod: &&PodSeen| pod.generation < seen.allocation.generation;
    let is_left = |pod: &&PodSeen| pod.life == Life::Ended && !pod.is_deleting;
    for pod in seen.pods.iter().filter(is_earlier).filter(is_left) {
        let why = "another set of pods has taken its place".to_owned();
        todo.then(Action::Delete { pod: pod.name.clone(), grace_s: 0, why });
    }
}
