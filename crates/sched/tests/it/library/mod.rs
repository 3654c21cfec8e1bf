//! The programs of scheduling as a general solver is told them: the yardstick of our own.

#![allow(dead_code, reason = "each user of this module asks for some of it")]

use bellwether_sched::program::choice;
use bellwether_sched::program::shares::{Job, isolated};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions, Variable};

/// Shares of each job on each type, and the rows that bound them.
fn with_shares(
    problem: &mut Problem,
    jobs: &[Job],
    devices: &[f64],
    value: impl Fn(&Job, usize) -> f64,
) -> Vec<Vec<Variable>> {
    let shares: Vec<Vec<Variable>> = jobs
        .iter()
        .map(|job| (0..devices.len()).map(|k| problem.add_var(value(job, k), (0.0, f64::INFINITY))).collect())
        .collect();
    for row in &shares {
        problem.add_constraint(row.iter().map(|&share| (share, 1.0)), ComparisonOp::Le, 1.0);
    }
    for (k, &count) in devices.iter().enumerate() {
        let column = shares.iter().zip(jobs).map(|(row, job)| (row[k], job.devices));
        problem.add_constraint(column, ComparisonOp::Le, count);
    }
    shares
}

fn objective(problem: &Problem) -> f64 {
    // The default of 1e-7 per row is more than the differences that tests look for.
    let mut options = SolveOptions::default();
    options.tolerances.feasibility = 1e-10;
    let outcome = problem.solve_with(options);
    let solution = outcome.ok().and_then(|outcome| outcome.into_solution().ok());
    solution.expect("it has an optimum").objective()
}

/// The largest `t` such that every job reaches `t` with these speeds of its own.
pub(crate) fn level(jobs: &[Job], devices: &[f64], speed: impl Fn(&Job, usize) -> f64) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let shares = with_shares(&mut problem, jobs, devices, |_, _| 0.0);
    let least = problem.add_var(1.0, (0.0, f64::INFINITY));
    for (row, job) in shares.iter().zip(jobs) {
        let reached = row.iter().enumerate().map(|(k, &share)| (share, speed(job, k)));
        problem.add_constraint(reached.chain([(least, -1.0)]), ComparisonOp::Ge, 0.0);
    }
    objective(&problem)
}

fn normalised(job: &Job, devices: &[f64], k: usize) -> f64 {
    let total: f64 = devices.iter().sum();
    let usual: f64 = job.speeds.iter().zip(devices).map(|(speed, count)| speed * count / total).sum();
    job.devices / job.weight * job.speeds[k] / usual
}

/// Gavel's max-min.
pub(crate) fn max_min(jobs: &[Job], devices: &[f64]) -> f64 {
    level(jobs, devices, |job, k| normalised(job, devices, k))
}

/// The most that one job can have of its normalised speed while others keep what they have, or what it has
/// itself where that is less.
pub(crate) fn most_beside(jobs: &[Job], devices: &[f64], levels: &[f64], favourite: usize) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let shares = with_shares(&mut problem, jobs, devices, |_, _| 0.0);
    let most = problem.add_var(1.0, (0.0, f64::INFINITY));
    for (j, (row, job)) in shares.iter().zip(jobs).enumerate() {
        let reached = row.iter().enumerate().map(|(k, &share)| (share, normalised(job, devices, k)));
        if j == favourite {
            problem.add_constraint(reached.chain([(most, -1.0)]), ComparisonOp::Ge, 0.0);
        } else {
            let kept = levels[j].min(levels[favourite]) * (1.0 - 1e-9);
            problem.add_constraint(reached, ComparisonOp::Ge, kept);
        }
    }
    objective(&problem)
}

/// The largest sum of speeds.
pub(crate) fn max_sum(jobs: &[Job], devices: &[f64]) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    with_shares(&mut problem, jobs, devices, |job, k| job.speeds[k]);
    objective(&problem)
}

/// By how much all jobs could be faster than a finish-time fairness of `rho` needs; 1 at the least `rho`.
pub(crate) fn slack_at(rho: f64, jobs: &[Job], devices: &[f64]) -> f64 {
    let alone = isolated(jobs, devices);
    let need = |j: usize| {
        let due_s = jobs[j].isolated_s + jobs[j].remaining / alone.speed(j, &jobs[j].speeds);
        jobs[j].remaining / (rho * due_s - jobs[j].age_s)
    };
    let needs: Vec<f64> = (0..jobs.len()).map(need).collect();
    let numbered: Vec<Job> = (0..jobs.len())
        .map(|j| Job {
            speeds: jobs[j].speeds.iter().map(|speed| speed / needs[j]).collect(),
            ..jobs[j].clone()
        })
        .collect();
    level(&numbered, devices, |job, k| job.speeds[k])
}

/// The best choice of configurations.
pub(crate) fn choice(options: &[Vec<choice::Candidate>], devices: &[u32]) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut used: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); devices.len()];
    for options in options {
        let variables: Vec<Variable> =
            options.iter().map(|option| problem.add_binary_var(option.value)).collect();
        for (&variable, option) in variables.iter().zip(options) {
            used[option.device_type].push((variable, f64::from(option.devices)));
        }
        problem.add_constraint(variables.iter().map(|&variable| (variable, 1.0)), ComparisonOp::Le, 1.0);
    }
    for (row, &count) in used.into_iter().zip(devices) {
        problem.add_constraint(row, ComparisonOp::Le, f64::from(count));
    }
    objective(&problem)
}
