//! What coalitions of datacenters forward: from the chain where it can be solved, else from simulation.

use bellwether_core::InputError;
use rayon::prelude::*;

use super::{Unanswered, Valuation};
use crate::description::{self, Description, HOUR_S, Jobs};
use crate::game::prices::Performance;
use crate::queue::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Length, Priority, Simulator, Site, SiteSummary, Summary,
    System, Target, Work, replicate, run_once, summarise,
};
use crate::queue::{Cloud, Federation, Limits, Unsolved, overflow};

/// Replications of a simulation: at least as many as an interval needs, at most as many as a user waits for.
const REPLICATIONS: (u64, u64) = (10, 100);
/// Relaxation times that a large system warms up and is measured, the jobs from which on it is large, and those
/// that are too many.
const RELAXATIONS: [f64; 2] = [5.0, 15.0];
const SUGGESTED_JOBS: f64 = 2e6;
const MOST_JOBS: f64 = 2e7;
/// Where many choices are compared each is simulated only for so long: the same jobs arrive in all of them.
const SHORT: Length = Length::Arrivals { warm_up: 2e3, measured: 2e4 };
const SHORT_REPLICATIONS: u64 = 4;
/// Jobs per hour below which a forwarded stream is as good as none, relative to all arrivals.
const NEXT_TO_NONE: f64 = 1e-4;
/// Part of all arrivals that is rounding.
const NEVER: f64 = 1e-14;

/// Where the jobs of a coalition go in the long run; members in the order in which they were named.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Jobs of each member that the public cloud does, per second.
    pub forwarded_per_s: Vec<f64>,
    /// Servers of each member that are busy, on average.
    pub busy: Vec<f64>,
    /// Half the width of the 95 % interval of all that is forwarded; 0 where it was computed.
    pub half_width_per_s: f64,
    /// Why it was simulated, if it was.
    pub simulated: Option<String>,
}

impl Outcome {
    /// Jobs of all members that the public cloud does, per second.
    pub fn total_per_s(&self) -> f64 {
        self.forwarded_per_s.iter().sum()
    }
}

/// Values coalitions of a description that has jobs.
#[derive(Debug)]
pub struct Valuer<'a> {
    federation: &'a Description,
    jobs: &'a Jobs,
    how: Valuation,
    /// Why the chain does not apply, if it does not.
    beyond_the_chain: Option<&'static str>,
}

impl<'a> Valuer<'a> {
    /// Values the coalitions of a description in this way.
    ///
    /// # Errors
    ///
    /// Returns [`Unanswered::NoJobs`].
    pub fn new(federation: &'a Description, how: &Valuation) -> Result<Self, Unanswered> {
        let jobs = federation.jobs.as_ref().ok_or(Unanswered::NoJobs)?;
        let poisson = |member: &description::Member| matches!(member.arrivals, Arrivals::Poisson { .. });
        let beyond_the_chain = if how.simulate {
            Some("it was asked for")
        } else if jobs.law != Law::Exponential {
            Some("the time of a job is not exponential")
        } else if jobs.transfer_s > 0.0 {
            Some("jobs take longer away from home")
        } else if !federation.members.iter().all(poisson) {
            Some("jobs do not arrive at random at one rate")
        } else {
            None
        };
        Ok(Valuer { federation, jobs, how: *how, beyond_the_chain })
    }

    /// The description whose coalitions are valued.
    pub(super) fn federation(&self) -> &'a Description {
        self.federation
    }

    /// What decides every draw.
    pub(super) fn seed(&self) -> u64 {
        self.how.seed
    }

    /// Its jobs.
    pub(super) fn jobs(&self) -> &'a Jobs {
        self.jobs
    }

    /// Servers that each member shares as the file says.
    pub fn shared(&self) -> Vec<u32> {
        self.federation.members.iter().map(|member| member.shared).collect()
    }

    /// Where the jobs of a coalition go, if every member shares as many servers as that. One alone shares with no
    /// other.
    ///
    /// # Errors
    ///
    /// Returns what the models refuse.
    pub(super) fn outcome(&self, members: &[usize], shared: &[u32]) -> Result<Outcome, Unanswered> {
        match self.beyond_the_chain {
            Some(why) => self.simulate(members, shared, why.to_string()),
            None => self.solve(members, shared),
        }
    }

    /// Where the jobs of each member go if it is alone and shares with no other.
    ///
    /// # Errors
    ///
    /// Returns what the models refuse.
    pub fn alone(&self) -> Result<Vec<Outcome>, Unanswered> {
        let shared = self.shared();
        (0..shared.len()).into_par_iter().map(|member| self.outcome(&[member], &shared)).collect()
    }

    /// How all together do with members who are first at their own servers, which only simulation knows.
    ///
    /// # Errors
    ///
    /// Returns what the simulation refuses.
    pub(super) fn lending(&self, shared: &[u32]) -> Result<Vec<Performance>, Unanswered> {
        let members: Vec<usize> = (0..self.federation.members.len()).collect();
        let system = self.system(false, shared, Priority::Owners);
        let simulator = Simulator::new(&system, &members, &SHORT)?;
        let summary = summarise(
            &(0..SHORT_REPLICATIONS)
                .map(|number| run_once(&simulator, self.how.seed, number))
                .collect::<Vec<_>>(),
        );
        let of = |site: &SiteSummary| Performance {
            lent: site.lent.mean,
            borrowed: site.borrowed.mean,
            forwarded_per_s: site.forwarded_per_s.mean,
            utilisation: site.utilisation.mean,
        };
        Ok(summary.sites.iter().map(of).collect())
    }

    /// What all members together forward at each of some sharing levels, per second.
    ///
    /// # Errors
    ///
    /// Returns the first of the models' refusals.
    pub(super) fn forwarded_per_s(&self, levels: &[Vec<u32>]) -> Result<Vec<f64>, Unanswered> {
        let everyone: Vec<usize> = (0..self.federation.members.len()).collect();
        levels.par_iter().map(|shared| Ok(self.outcome(&everyone, shared)?.total_per_s())).collect()
    }

    fn solve(&self, members: &[usize], shared: &[u32]) -> Result<Outcome, Unanswered> {
        let cloud = |member: &usize| {
            let known = &self.federation.members[*member];
            Cloud {
                arrivals_per_s: known.arrivals.mean_per_s(),
                servers: known.servers,
                shared: if members.len() == 1 { 0 } else { shared[*member] },
                longest_wait_s: known.longest_wait_s,
            }
        };
        let clouds: Vec<Cloud> = members.iter().map(cloud).collect();
        let service_per_s = self.jobs.service_per_s();
        let federation = Federation { service_per_s, clouds };
        let found = match overflow(&federation, &Limits { most_states: self.how.most_states }) {
            Ok(found) => found,
            Err(Unsolved::Input(error)) => return Err(error.into()),
            Err(unsolved) => return self.simulate(members, shared, unsolved.to_string()),
        };
        // A member that shares more does more of the pool's work.
        let pool: f64 = found.in_pool_per_s.iter().sum();
        let all: f64 = federation.clouds.iter().map(|cloud| f64::from(cloud.shared)).sum();
        let part = |cloud: &Cloud| if all > 0.0 { f64::from(cloud.shared) / all } else { 0.0 };
        let busy = federation.clouds.iter().zip(&found.at_home_per_s);
        let busy = busy.map(|(cloud, home)| (home + pool * part(cloud)) / service_per_s).collect();
        // What is hardly ever forwarded is not.
        let least = NEVER * federation.clouds.iter().map(|cloud| cloud.arrivals_per_s).sum::<f64>();
        let forwarded = found.forwarded_per_s.iter().map(|per_s| if *per_s < least { 0.0 } else { *per_s });
        Ok(Outcome { forwarded_per_s: forwarded.collect(), busy, half_width_per_s: 0.0, simulated: None })
    }

    fn simulate(&self, members: &[usize], shared: &[u32], why: String) -> Result<Outcome, Unanswered> {
        let system = self.system(members.len() == 1, shared, Priority::NoOne);
        let summary = simulate(&system, members, &self.how)?;
        let servers = |member: &usize| f64::from(self.federation.members[*member].servers);
        Ok(Outcome {
            forwarded_per_s: summary.sites.iter().map(|site| site.forwarded_per_s.mean).collect(),
            busy: summary
                .sites
                .iter()
                .zip(members)
                .map(|(site, m)| site.utilisation.mean * servers(m))
                .collect(),
            half_width_per_s: summary.forwarded_per_s.half_width,
            simulated: Some(why),
        })
    }

    /// All members, each of which shares this many servers; one that is alone shares nothing.
    fn system(&self, alone: bool, shared: &[u32], priority: Priority) -> System {
        let site = |(member, shared): (&description::Member, &u32)| Site {
            groups: vec![Group { kind: 0, servers: member.servers, shared: if alone { 0 } else { *shared } }],
            demands: vec![Demand { class: 0, arrivals: member.arrivals.clone() }],
            longest_wait_s: member.longest_wait_s,
        };
        let class = Class {
            work: Work { mean: self.jobs.mean_time_s, law: self.jobs.law },
            devices: 1,
            speeds: vec![1.0],
            transfer_s: self.jobs.transfer_s,
        };
        System {
            classes: vec![class],
            sites: self.federation.members.iter().zip(shared).map(site).collect(),
            admission: Admission::Count,
            priority,
        }
    }
}

/// Replications of a coalition until the interval is as narrow as was asked.
///
/// # Errors
///
/// Returns what the simulation refuses.
pub(super) fn simulate(system: &System, members: &[usize], how: &Valuation) -> Result<Summary, Unanswered> {
    let mut simulator = Simulator::new(system, members, &Length::Suggested)?;
    let relaxation_s = simulator.relaxation_s();
    let [warm_up, measured] = RELAXATIONS.map(|times| times * relaxation_s);
    let jobs = (warm_up + measured) * system.arrivals_per_s();
    if jobs > MOST_JOBS {
        let what = format!(
            "too large to simulate: its queues forget how they began only after {:.3e} hours, so that a run would take {jobs:.1e} jobs",
            relaxation_s / HOUR_S
        );
        return Err(InputError::new("federation", what)
            .hint("let members share all or nothing, shorten longest_wait, or raise --most-states")
            .into());
    }
    if jobs > SUGGESTED_JOBS {
        simulator = Simulator::new(system, members, &Length::Seconds { warm_up, measured })?;
    }
    let target = Target {
        relative: how.precision,
        absolute_per_s: NEXT_TO_NONE * system.arrivals_per_s(),
        least: REPLICATIONS.0,
        most: REPLICATIONS.1,
    };
    Ok(replicate(&simulator, how.seed, &target))
}
