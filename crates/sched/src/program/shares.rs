//! Which share of its time each job should spend on each type of device.
//!
//! Notation: job j runs at `T_jk` steps per second on its `sf_j` devices of type k, of which there are `N_k`. Shares
//! `X_jk` are not negative, `sum_k X_jk <= 1`, `sum_j sf_j X_jk <= N_k`; job j then runs at `thr_j = sum_k T_jk X_jk`.
//!
//! The programs are those of Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning
//! workloads", OSDI 2020, and of Mahajan et al., "Themis", NSDI 2020. Each is solved to its optimum, at a basic
//! solution of its relaxation: in addition to one corner per job at most as many are in use as there are types, so few
//! shares are fractions of more than one kind. The same input gives the same bits.
//!
//! A job that can run nowhere has no share, and no part in the objective.

use bellwether_numerics::grouped::{Capacity, Columns, minimise};

use super::level::{Cluster, Corner, Highest};

/// A job, in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Steps per second of the whole gang on each type; 0 where it cannot run.
    pub speeds: Vec<f64>,
    /// Devices that its gang takes.
    pub devices: f64,
    /// Its claim against those of others; more than 0.
    pub weight: f64,
    /// Steps that remain.
    pub remaining: f64,
    /// Seconds since it arrived.
    pub age_s: f64,
    /// Seconds that the steps done so far would have taken in [isolation](isolated).
    pub isolated_s: f64,
}

/// Shares of time, and how good they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// The objective; each program says which.
    pub objective: f64,
    types: usize,
    parts: Vec<f64>,
}

impl Shares {
    /// The shares of a job, by type.
    pub fn of(&self, job: usize) -> &[f64] {
        &self.parts[job * self.types..(job + 1) * self.types]
    }

    /// Steps per second of a job with its shares.
    pub fn speed(&self, job: usize, speeds: &[f64]) -> f64 {
        dot(self.of(job), speeds)
    }
}

/// Every job has the same share of each type, its part of all devices. The objective is the least speed.
///
/// Sizes of gangs do not count, so this may be more than the cluster holds: it is a yardstick.
pub fn proportional(jobs: &[Job], devices: &[f64]) -> Shares {
    let total: f64 = devices.iter().sum();
    let share = |count: &f64| if total > 0.0 { count / total } else { 0.0 };
    let parts = jobs.iter().flat_map(|_| devices.iter().map(share)).collect();
    with_least_speed(Shares { objective: 0.0, types: devices.len(), parts }, jobs)
}

/// Every job has the m-th part of each type for itself, where m is the number of jobs, and never more than all of its
/// time. The objective is the least speed.
pub fn isolated(jobs: &[Job], devices: &[f64]) -> Shares {
    let mut parts = Vec::with_capacity(jobs.len() * devices.len());
    for job in jobs {
        let share = |count: &f64| count / jobs.len() as f64 / job.devices;
        let sum: f64 = devices.iter().map(share).sum();
        parts.extend(devices.iter().map(|count| share(count) / sum.max(1.0)));
    }
    with_least_speed(Shares { objective: 0.0, types: devices.len(), parts }, jobs)
}

/// Maximises the least `sf_j thr_j / (w_j p_j)`, where `p_j` is the speed with [proportional] shares; that is the
/// objective.
pub fn max_min(jobs: &[Job], devices: &[f64]) -> Shares {
    Program::of_classes(jobs, devices, |job| normalised(job, devices)).max_min()
}

/// As [`max_min`], but all types count as equally fast: maximises the least `sf_j sum_k X_jk / w_j`.
pub fn max_min_agnostic(jobs: &[Job], devices: &[f64]) -> Shares {
    Program::of_classes(jobs, devices, |job| {
        let scale = job.devices / job.weight;
        job.speeds.iter().map(|&speed| if speed > 0.0 { scale } else { 0.0 }).collect()
    })
    .max_min()
}

/// As [`max_min`], and then the same again for the jobs that can have more, and so on. The objective is the least
/// level.
pub fn water_filling(jobs: &[Job], devices: &[f64]) -> Shares {
    Program::of_classes(jobs, devices, |job| normalised(job, devices)).fill()
}

/// Maximises the rate `z` at which all jobs would end together: `thr_j >= z rem_j`. The objective is the makespan `1 /
/// z`, in seconds; 0 when nothing remains.
pub fn makespan(jobs: &[Job], devices: &[f64]) -> Shares {
    let program = Program::of_classes(jobs, devices, |job| {
        let remains = job.remaining > 0.0;
        job.speeds.iter().map(|&speed| if remains { speed / job.remaining } else { 0.0 }).collect()
    });
    let mut shares = program.max_min();
    shares.objective = if shares.objective > 0.0 { 1.0 / shares.objective } else { 0.0 };
    shares
}

/// Minimises the largest `rho_j = (age_j + rem_j / thr_j) / (C_j + rem_j / I_j)`, the finish-time fairness, where `I_j`
/// is the speed in [isolation](isolated) and `C_j` the time there for what is done. The objective is that `rho`; 0 when
/// nothing remains.
pub fn finish_time_fairness(jobs: &[Job], devices: &[f64]) -> Shares {
    let alone = isolated(jobs, devices);
    let program = Program::new(jobs, devices, |job| job.speeds.clone());
    // In terms of u = 1 / rho a job needs thr_j >= rem_j u / (D_j - age_j u): convex, and 0 at u = 0.
    let due = |job: usize| jobs[job].isolated_s + jobs[job].remaining / alone.speed(job, &jobs[job].speeds);
    let counts = |job: usize| jobs[job].remaining > 0.0 && program.cluster.fastest(job) > 0.0;
    let dues: Vec<f64> = (0..jobs.len()).map(|job| if counts(job) { due(job) } else { 0.0 }).collect();
    let most = (0..jobs.len()).filter(|&job| counts(job)).fold(f64::INFINITY, |most: f64, job| {
        most.min(dues[job] / (jobs[job].age_s + jobs[job].remaining / program.cluster.fastest(job)))
    });
    if most == f64::INFINITY {
        return program.none();
    }
    let highest = program.cluster.highest(most, |job, u| {
        if !counts(job) {
            return (0.0, 0.0);
        }
        let left = dues[job] - jobs[job].age_s * u;
        (jobs[job].remaining * u / left, jobs[job].remaining * dues[job] / (left * left))
    });
    program.spread(1.0 / highest.level, &highest.mixes)
}

/// Maximises `sum_jk T_jk X_jk / cost_k`, which is the objective; costs of 1 count steps alone.
pub fn max_sum(jobs: &[Job], devices: &[f64], costs: &[f64]) -> Shares {
    let program = Program::new(jobs, devices, |job| {
        job.speeds.iter().zip(costs).map(|(speed, cost)| speed / cost).collect()
    });
    let cluster = &program.cluster;
    let types = cluster.devices.len();
    if types == 0 {
        return program.none();
    }
    let mut columns = Columns::new(types);
    for job in 0..cluster.jobs() {
        columns.push(0.0, vec![0.0; types]);
        for (k, &speed) in cluster.speeds(job).iter().enumerate() {
            columns.push(-speed, (0..types).map(|other| if other == k { cluster.sizes[job] } else { 0.0 }));
        }
        columns.end_group();
    }
    let optimum = minimise(&columns, &cluster.devices, Capacity::Hard, &[]);
    let mut shares = Shares { objective: -optimum.objective, ..program.none() };
    for job in 0..cluster.jobs() {
        for (column, &k) in columns.group(job).skip(1).zip(&program.present) {
            shares.parts[job * shares.types + k] = optimum.parts[column];
        }
    }
    shares
}

/// A program over those types of which there are devices.
struct Program {
    cluster: Cluster,
    /// The jobs that are one in the cluster, and their devices.
    members: Vec<Vec<(usize, f64)>>,
    jobs: usize,
    /// The types that it is about.
    present: Vec<usize>,
    /// How many types there are in all.
    types: usize,
}

impl Program {
    /// Each job for itself.
    fn new(jobs: &[Job], devices: &[f64], speeds: impl Fn(&Job) -> Vec<f64>) -> Program {
        let present: Vec<usize> = (0..devices.len()).filter(|&k| devices[k] > 0.0).collect();
        let mut of_jobs = Vec::with_capacity(jobs.len() * present.len());
        for job in jobs {
            let speeds = speeds(job);
            of_jobs.extend(present.iter().map(|&k| speeds[k]));
        }
        let cluster = Cluster {
            speeds: of_jobs,
            sizes: jobs.iter().map(|job| job.devices).collect(),
            devices: present.iter().map(|&k| devices[k]).collect(),
        };
        let members = jobs.iter().enumerate().map(|(job, numbers)| vec![(job, numbers.devices)]).collect();
        Program { cluster, members, jobs: jobs.len(), present, types: devices.len() }
    }

    /// Jobs of equal speeds as one that takes the devices of all: the optimum is the same, because it is convex.
    fn of_classes(jobs: &[Job], devices: &[f64], speeds: impl Fn(&Job) -> Vec<f64>) -> Program {
        let single = Program::new(jobs, devices, speeds);
        let row = |job: usize| single.cluster.speeds(job);
        let compare = |a: &usize, b: &usize| {
            let differs =
                row(*a).iter().zip(row(*b)).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
            differs.unwrap_or(a.cmp(b))
        };
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_unstable_by(compare);
        let mut cluster =
            Cluster { speeds: Vec::new(), sizes: Vec::new(), devices: single.cluster.devices.clone() };
        let mut members: Vec<Vec<(usize, f64)>> = Vec::new();
        for (place, &job) in order.iter().enumerate() {
            if place == 0 || row(order[place - 1]) != row(job) {
                cluster.speeds.extend(row(job));
                cluster.sizes.push(0.0);
                members.push(Vec::new());
            }
            let class = members.len() - 1;
            cluster.sizes[class] += jobs[job].devices;
            members[class].push((job, jobs[job].devices));
        }
        Program { cluster, members, ..single }
    }

    /// Maximises the least speed.
    fn max_min(&self) -> Shares {
        let counts = |job: usize| self.cluster.fastest(job) > 0.0;
        let most = self.least_of_fastest(counts);
        if most == f64::INFINITY {
            return self.none();
        }
        let highest =
            self.cluster.highest(most, |job, level| if counts(job) { (level, 1.0) } else { (0.0, 0.0) });
        self.spread(highest.level, &highest.mixes)
    }

    /// Maximises the least speed, then that of the jobs that can have more.
    fn fill(&self) -> Shares {
        let jobs = self.cluster.jobs();
        let mut fixed: Vec<Option<f64>> =
            (0..jobs).map(|job| if self.cluster.fastest(job) > 0.0 { None } else { Some(0.0) }).collect();
        let mut shares = self.none();
        let mut first = true;
        while fixed.iter().any(Option::is_none) {
            let most = self.least_of_fastest(|job| fixed[job].is_none());
            let highest = self.cluster.highest(most, |job, level| match fixed[job] {
                None => (level, 1.0),
                Some(speed) => (speed, 0.0),
            });
            let least = if first { highest.level } else { shares.objective };
            shares = self.spread(least, &highest.mixes);
            first = false;
            self.fix(&mut fixed, &highest);
        }
        shares
    }

    /// Fixes the jobs that can have no more than the level that was reached.
    fn fix(&self, fixed: &mut [Option<f64>], highest: &Highest) {
        let open: Vec<usize> = (0..fixed.len()).filter(|&job| fixed[job].is_none()).collect();
        let held = open.iter().filter(|&&job| self.cluster.is_held(job, highest.level, highest));
        let mut held: Vec<usize> = held.copied().collect();
        if held.is_empty() {
            // Rounding hid which jobs hold the level: all stay where they are.
            held = open;
        }
        held.into_iter().for_each(|job| fixed[job] = Some(highest.level));
    }

    fn least_of_fastest(&self, counts: impl Fn(usize) -> bool) -> f64 {
        let jobs = (0..self.cluster.jobs()).filter(|&job| counts(job));
        jobs.fold(f64::INFINITY, |least: f64, job| least.min(self.cluster.fastest(job)))
    }

    fn none(&self) -> Shares {
        Shares { objective: 0.0, types: self.types, parts: vec![0.0; self.jobs * self.types] }
    }

    /// Shares of jobs from what their classes do. Members take over one corner after the other, so that few of them
    /// have parts of two.
    fn spread(&self, objective: f64, mixes: &[Vec<(f64, Corner)>]) -> Shares {
        let mut shares = Shares { objective, ..self.none() };
        for (class, mix) in mixes.iter().enumerate() {
            let mut corners =
                mix.iter().map(|(part, corner)| (part * self.cluster.sizes[class], corner)).peekable();
            for &(job, devices) in &self.members[class] {
                let mut left = devices;
                while let Some((amount, corner)) = corners.peek_mut().filter(|_| left > 0.0) {
                    let taken = left.min(*amount);
                    for (place, &k) in self.present.iter().enumerate() {
                        shares.parts[job * self.types + k] += taken / devices * corner.on(place);
                    }
                    left -= taken;
                    *amount -= taken;
                    if *amount <= 0.0 {
                        corners.next();
                    }
                }
            }
        }
        shares
    }
}

/// Speeds on each type in terms of that with proportional shares, per claim.
pub(super) fn normalised(job: &Job, devices: &[f64]) -> Vec<f64> {
    let total: f64 = devices.iter().sum();
    let usual = dot(&job.speeds, devices) / total;
    let scale = if usual > 0.0 { job.devices / (job.weight * usual) } else { 0.0 };
    job.speeds.iter().map(|speed| scale * speed).collect()
}

fn with_least_speed(mut shares: Shares, jobs: &[Job]) -> Shares {
    let speeds = jobs.iter().enumerate().map(|(job, numbers)| shares.speed(job, &numbers.speeds));
    shares.objective = speeds.reduce(f64::min).unwrap_or(0.0);
    shares
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}
