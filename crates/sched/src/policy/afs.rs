//! AFS: each device goes to the short job or to the one that uses it better, whichever ends both sooner.
//!
//! # Idea
//!
//! Devices are dealt out one after another, and each to the job that wins against the others, two at a time. Let job a
//! end before job b on what they have, p be the speed and p' the speed with the next number of devices. Suppose that b
//! gets that number when a has ended. Giving it to b now is better for the sum of both completion times if and only if
//! (p'_b - p_b) / p'_b > (p'_a - p_a) / p_a. Of two jobs without devices the one that would end first wins.
//!
//! # Source
//!
//! Hwang et al., Elastic resource sharing for distributed deep learning, NSDI 2021, the variant that knows the lengths
//! of jobs (AFS-L). The rule was derived from its argument for two jobs, and agrees with another implementation of it.
//!
//! # Reads
//!
//! Remaining work (where it is unknown, all count alike) and the model's speed at the job's own batch.
//!
//! # Complexity
//!
//! O((jobs + devices) log jobs) for an event.
//!
//! # Bad when
//!
//! Restarts are expensive: every event may change many jobs' devices. Where speed grows in proportion to devices the
//! shortest job gets them all, and long ones starve while short ones keep coming.

use std::collections::BTreeSet;

use bellwether_core::cluster::JobId;
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use super::optimus::{is_due, nothing_new};
use crate::allocation::{AllocationState, Target, held_type};

/// AFS.
pub const ABOUT: About = About {
    name: "afs",
    idea: "each device goes to the short job or to the one that uses it better, whichever ends both sooner",
    options: &[],
    bad_when: "restarts are expensive, or long jobs must not wait behind short ones that scale well",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(Afs::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Afs {
    table: AllocationState,
}

/// A job that can still use more devices.
#[derive(Debug, Clone, Copy)]
struct Rival {
    job: JobId,
    remaining: f64,
    devices: u32,
    rate: f64,
    /// The next number of devices that it can use, and its speed then.
    next: u32,
    next_rate: f64,
}

impl Policy for Afs {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        let speeds_differ = self.table.follow(view, changes, model);
        if !(speeds_differ || is_due(changes)) {
            return nothing_new(view);
        }
        let mut free = self.table.devices();
        let mut targets: Vec<Target> = Vec::new();
        let mut open: Vec<JobId> = view.jobs.keys().copied().collect();
        // A job that holds devices is considered for their type first. If it loses them there it may have what is left
        // of another.
        for stays in [true, false] {
            for (device_type, free) in free.iter_mut().enumerate() {
                let is_elsewhere = |job: &JobId| {
                    let held = held_type(view, &view.jobs[job]);
                    stays && held.is_some_and(|held| usize::from(held) != device_type)
                };
                let here = open.iter().copied().filter(|job| !is_elsewhere(job));
                let rivals = here.filter_map(|job| {
                    let remaining = view.jobs[&job].remaining(now_s).unwrap_or(1.0);
                    self.rival(job, device_type, remaining, 0, *free)
                });
                let shares = self.deal(rivals.collect(), device_type, free);
                open.retain(|job| shares.binary_search_by_key(job, |(served, _)| *served).is_err());
                let target = |(job, devices)| Target { job, device_type: device_type as u16, devices };
                targets.extend(shares.into_iter().map(target));
            }
        }
        self.table.enact(view, targets, Rule::MarginalGain, None)
    }
}

impl Afs {
    /// A job with this many devices; `None` when up to `free` more are of no use to it.
    fn rival(
        &self,
        job: JobId,
        device_type: usize,
        remaining: f64,
        devices: u32,
        free: u32,
    ) -> Option<Rival> {
        let curve = &self.table.curves(job)[device_type];
        let most = devices.saturating_add(free);
        let next = if devices == 0 {
            curve.next(0).filter(|next| *next <= most)
        } else {
            curve.next_faster(devices, most)
        }?;
        let (rate, next_rate) = (curve.rate(devices), curve.rate(next));
        Some(Rival { job, remaining, devices, rate, next, next_rate })
    }

    /// Deals devices out as long as a job can use what is free: who gets how many, in the order of the rivals.
    fn deal(&self, rivals: Vec<Rival>, device_type: usize, free: &mut u32) -> Vec<(JobId, u32)> {
        let mut shares: Vec<(JobId, u32)> = rivals.iter().map(|rival| (rival.job, 0)).collect();
        let more = |rival: &Rival| rival.next - rival.devices;
        let mut wants: BTreeSet<(u32, usize)> =
            rivals.iter().enumerate().map(|(place, rival)| (more(rival), place)).collect();
        let mut contest = Contest::new(rivals);
        loop {
            // Free devices only become fewer: who wants more than is left wants less now, or nothing.
            while let Some((_, place)) = wants.last().copied().filter(|(more, _)| more > free) {
                wants.pop_last();
                let Some(rival) = contest.rivals[place] else { continue };
                let rival = self.rival(rival.job, device_type, rival.remaining, rival.devices, *free);
                wants.extend(rival.map(|rival| (more(&rival), place)));
                contest.set(place, rival);
            }
            let Some((place, winner)) = contest.winner() else { break };
            wants.remove(&(more(&winner), place));
            *free -= more(&winner);
            shares[place].1 = winner.next;
            let rival = self.rival(winner.job, device_type, winner.remaining, winner.next, *free);
            wants.extend(rival.map(|rival| (more(&rival), place)));
            contest.set(place, rival);
        }
        shares.retain(|(_, devices)| *devices > 0);
        shares
    }
}

/// Rivals in pairs, their winners in pairs, and so on: a rival that changes meets only O(log rivals) others.
struct Contest {
    rivals: Vec<Option<Rival>>,
    /// A binary tree, the root at 1: who wins below each node. Its last half are the rivals, and empty places.
    winners: Vec<Option<usize>>,
}

impl Contest {
    fn new(rivals: Vec<Rival>) -> Contest {
        let leaves = rivals.len().next_power_of_two();
        let mut winners = vec![None; leaves];
        winners.extend((0..leaves).map(|place| (place < rivals.len()).then_some(place)));
        let mut contest = Contest { rivals: rivals.into_iter().map(Some).collect(), winners };
        (1..leaves).rev().for_each(|node| contest.meet(node));
        contest
    }

    fn meet(&mut self, node: usize) {
        let [leader, challenger] = [self.winners[2 * node], self.winners[2 * node + 1]];
        let rival = |place: Option<usize>| place.and_then(|place| self.rivals[place].as_ref());
        self.winners[node] = match (rival(leader), rival(challenger)) {
            (Some(first), Some(second)) => {
                if wins(second, first) {
                    challenger
                } else {
                    leader
                }
            }
            (Some(_), None) => leader,
            _ => challenger,
        };
    }

    fn set(&mut self, place: usize, rival: Option<Rival>) {
        self.rivals[place] = rival;
        let mut node = self.winners.len() / 2 + place;
        while node > 1 {
            node /= 2;
            self.meet(node);
        }
    }

    fn winner(&self) -> Option<(usize, Rival)> {
        let place = self.winners[1]?;
        Some((place, self.rivals[place]?))
    }
}

/// Whether the next devices go to `challenger` and not to `leader`, who keeps them where both are equal.
fn wins(challenger: &Rival, leader: &Rival) -> bool {
    if challenger.devices == 0 && leader.devices == 0 {
        return challenger.remaining / challenger.next_rate < leader.remaining / leader.next_rate;
    }
    // A job without devices never ends.
    let left_s = |rival: &Rival| rival.remaining / rival.rate;
    let per_device = |rival: &Rival| f64::from(rival.next - rival.devices);
    let before = |rival: &Rival| (rival.next_rate - rival.rate) / rival.rate / per_device(rival);
    let after = |rival: &Rival| (rival.next_rate - rival.rate) / rival.next_rate / per_device(rival);
    if left_s(challenger) < left_s(leader) {
        before(challenger) >= after(leader)
    } else {
        after(challenger) > before(leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rival(job: u32, remaining: f64, devices: u32, rate: f64, next_rate: f64) -> Rival {
        Rival { job: JobId(job), remaining, devices, rate, next: devices + 1, next_rate }
    }

    /// The sum of the completion times of two jobs when one gets the next device now, and the longer one has it in any
    /// case when the shorter has ended.
    fn sum_s(short: &Rival, long: &Rival, to_short: bool) -> f64 {
        let (short_rate, long_rate) =
            if to_short { (short.next_rate, long.rate) } else { (short.rate, long.next_rate) };
        let first_s = short.remaining / short_rate;
        2.0 * first_s + (long.remaining - long_rate * first_s) / long.next_rate
    }

    #[test]
    fn the_winner_is_who_makes_the_sum_of_both_completion_times_smaller() {
        for next_rate in [1.05, 1.2, 1.4, 1.6, 1.9] {
            for long_next in [2.1, 2.4, 3.0, 4.0] {
                let short = rival(0, 10.0, 1, 1.0, next_rate);
                let long = rival(1, 400.0, 2, 2.0, long_next);
                let better = sum_s(&short, &long, false) < sum_s(&short, &long, true);
                assert_eq!(wins(&long, &short), better, "{next_rate} {long_next}");
                assert_eq!(wins(&short, &long), !better, "{next_rate} {long_next}");
            }
        }
    }

    #[test]
    fn a_job_without_devices_goes_first_unless_the_other_doubles() {
        let waiting = rival(1, 50.0, 0, 0.0, 1.0);
        assert!(wins(&waiting, &rival(0, 10.0, 1, 1.0, 1.9)));
        assert!(!wins(&waiting, &rival(0, 10.0, 1, 1.0, 2.0)));
        assert!(wins(&waiting, &rival(0, 60.0, 0, 0.0, 1.0)));
    }
}
