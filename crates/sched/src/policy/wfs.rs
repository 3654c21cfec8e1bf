//! Weighted fair sharing of elastic jobs: shares in powers of two by weight, resized at every arrival and completion.
//!
//! # Idea
//!
//! Jobs of a pool of G devices get G times their part of the weights, rounded down to a power of two, and at least the
//! fewest that they run on. If that is too much, shares are halved, the lowest weight first. Jobs whose share reaches
//! their demand get just that, and leave the rest to another round among the others. What rounding left over doubles
//! shares, the highest weight first. A job is admitted, the highest weight first, as long as no job of higher weight
//! would lose devices.
//!
//! # Source
//!
//! Or, Zhang, Freedman, VirtualFlow: decoupling deep learning models from the underlying hardware, MLSys 2022, and its
//! code. The demand is the most that a job can use. Each type of device is a pool of its own: a waiting job enters the
//! pool where it would get most, and stays there.
//!
//! # Reads
//!
//! Weights, limits and order of arrival; of the model only where a job can run at all.
//!
//! # Complexity
//!
//! O(jobs^2) for an event at worst, and about O(jobs log jobs) where most demands are alike.
//!
//! # Bad when
//!
//! Weights are equal and jobs many: all run on one device, and none overtakes. Low weights starve while higher ones
//! fill the cluster. Devices that no power of two fits stand idle.

use bellwether_core::cluster::{ClusterView, JobId};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, held_type};

/// Elastic weighted fair sharing.
pub const ABOUT: About = About {
    name: "wfs",
    idea: "elastic jobs share devices by weight, in powers of two, and are resized at every arrival and completion",
    options: &[],
    bad_when: "weights are equal and jobs many, low weights must not wait, or restarts are expensive",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: false, starvation_free: false },
    make: |_| Ok(Box::new(Wfs::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Wfs {
    table: AllocationState,
}

/// A job of a pool.
#[derive(Debug, Clone, Copy)]
struct Member {
    job: JobId,
    weight: f64,
    least: u32,
    demand: u32,
    /// What it holds now; 0 for one that waits.
    held: u32,
}

impl Policy for Wfs {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, changes, model, .. } = *input;
        self.table.follow(view, changes, model);
        let devices = self.table.devices();
        let mut pools: Vec<Vec<Member>> = vec![Vec::new(); devices.len()];
        let mut queue = Vec::new();
        for (&job, seen) in &view.jobs {
            let held = held_type(view, seen).map(usize::from);
            let member = held.and_then(|pool| Some((pool, self.member(view, job, pool)?)));
            // A job that needs more than it holds, by what is known now, has to be admitted again.
            match member.filter(|(_, member)| member.least <= member.held) {
                Some((pool, member)) => pools[pool].push(member),
                None => queue.push(job),
            }
        }
        for pool in &mut pools {
            pool.sort_by(order);
        }
        queue.sort_by(|a, b| view.jobs[b].job.weight.total_cmp(&view.jobs[a].job.weight).then(a.cmp(b)));
        for job in queue {
            let could_run = |pool: &usize| {
                self.member(view, job, *pool).is_some_and(|member| member.least <= devices[*pool])
            };
            if !(0..pools.len()).any(|pool| could_run(&pool)) {
                continue;
            }
            let offers = (0..pools.len()).filter_map(|place| {
                let (place, pool, got) = self.admit(view, job, place, &pools[place], devices[place])?;
                Some((f64::from(got), (place, pool)))
            });
            let Some((place, pool)) = best(offers) else { break };
            pools[place] = pool;
        }
        let mut targets = Vec::new();
        for (place, pool) in pools.iter().enumerate() {
            for (member, share) in pool.iter().zip(shares(pool, devices[place])) {
                let devices = self.table.curves(member.job)[place].usable(share);
                targets.push(Target { job: member.job, device_type: place as u16, devices });
            }
        }
        self.table.enact(view, targets, Rule::WeightedShares, None)
    }
}

impl Wfs {
    fn member(&self, view: &ClusterView, job: JobId, pool: usize) -> Option<Member> {
        let (seen, curve) = (&view.jobs[&job], &self.table.curves(job)[pool]);
        let least = curve.next(0)?;
        let (weight, held) = (seen.job.weight, seen.allocation.devices());
        Some(Member { job, weight, least, demand: curve.usable(seen.job.max_devices), held })
    }

    /// The pool with the job in it, and what that would get; `None` when it may not come in.
    fn admit(
        &self,
        view: &ClusterView,
        job: JobId,
        place: usize,
        pool: &[Member],
        devices: u32,
    ) -> Option<(usize, Vec<Member>, u32)> {
        let member = self.member(view, job, place)?;
        let least: u32 = pool.iter().map(|member| member.least).sum();
        if least.saturating_add(member.least) > devices {
            return None;
        }
        let mut pool = pool.to_vec();
        let at = pool.partition_point(|other| order(other, &member).is_lt());
        pool.insert(at, member);
        let shares = shares(&pool, devices);
        let loses = |(other, share): (&Member, &u32)| other.weight > member.weight && *share < other.held;
        if pool.iter().zip(&shares).any(loses) {
            return None;
        }
        Some((place, pool, shares[at]))
    }
}

/// Highest weight first, then in order of arrival.
fn order(a: &Member, b: &Member) -> std::cmp::Ordering {
    b.weight.total_cmp(&a.weight).then(a.job.cmp(&b.job))
}

/// The shares of members in [order](order); what they need at least must fit.
fn shares(pool: &[Member], devices: u32) -> Vec<u32> {
    let mut result = vec![0; pool.len()];
    let mut left = devices;
    let mut open: Vec<usize> = (0..pool.len()).collect();
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|&place| pool[place].weight).sum();
        let part = |&place: &usize| {
            let member = &pool[place];
            power_of_two(f64::from(left) * member.weight / weights).max(member.least)
        };
        let mut shares: Vec<u32> = open.iter().map(part).collect();
        let mut sum: u32 = shares.iter().sum();
        for (share, &place) in shares.iter_mut().zip(&open).rev() {
            while sum > left && *share > pool[place].least {
                let half = (*share / 2).max(pool[place].least);
                sum -= *share - half;
                *share = half;
            }
        }
        let reached = shares.iter().zip(&open).any(|(share, &place)| *share >= pool[place].demand);
        for (share, &place) in shares.iter().zip(&open) {
            if !reached || *share >= pool[place].demand {
                result[place] = (*share).min(pool[place].demand);
                left -= result[place];
            }
        }
        open.retain(|&place| result[place] == 0);
    }
    for (share, member) in result.iter_mut().zip(pool) {
        while *share <= left && share.saturating_mul(2) <= member.demand {
            left -= *share;
            *share *= 2;
        }
    }
    result
}

/// The largest power of two that is not above `value`; 0 for less than 1.
fn power_of_two(value: f64) -> u32 {
    (value as u32).checked_ilog2().map_or(0, |exponent| 1 << exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(jobs: &[(f64, u32, u32)]) -> Vec<Member> {
        let member = |(index, &(weight, least, demand)): (usize, &(f64, u32, u32))| Member {
            job: JobId(index as u32),
            weight,
            least,
            demand,
            held: 0,
        };
        let mut pool: Vec<Member> = jobs.iter().enumerate().map(member).collect();
        pool.sort_by(order);
        pool
    }

    #[test]
    fn shares_are_powers_of_two_by_weight() {
        // 8 devices by 10, 5 and 1: 5, 2.5 and 0.5 become 4, 2 and 1; one is left, and only the last can double.
        assert_eq!(shares(&pool(&[(10.0, 1, 8), (5.0, 1, 8), (1.0, 1, 8)]), 8), [4, 2, 2]);
        // A demand of 2 is met, and its surplus shared by the others: 6 by 5 and 1 are 5 and 1, so 4 and 1, then 4 and
        // 2.
        assert_eq!(shares(&pool(&[(10.0, 1, 2), (5.0, 1, 8), (1.0, 1, 8)]), 8), [2, 4, 2]);
        // Every job gets at least one, and the heaviest gives way last.
        assert_eq!(shares(&pool(&[(10.0, 1, 4), (1.0, 1, 4), (1.0, 1, 4), (1.0, 1, 4)]), 4), [1, 1, 1, 1]);
        // A rigid job has all that it asks for.
        assert_eq!(shares(&pool(&[(10.0, 1, 8), (1.0, 4, 4)]), 8), [4, 4]);
    }
}
