//! What queues and whole devices make of the affinity game.

use rayon::prelude::*;

use super::{Unanswered, Valuation, value};
use crate::description::{self, Classes, Description, Member};
use crate::game::{Coalition, Game};
use crate::queue::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Priority, Site, System, Work,
};

/// Devices of a run below which it is rounding.
pub(super) const FEWEST_DEVICES: f64 = 1e-6;

/// The game as it was simulated.
pub(super) struct Simulated {
    pub(super) game: Game,
    /// The widest interval of all coalitions.
    pub(super) half_width_dollars_per_hour: f64,
    /// What all would save if every job went to the fastest free device.
    pub(super) greedy_dollars_per_hour: f64,
}

/// What a coalition pays the public cloud.
struct Cost {
    dollars_per_hour: f64,
    half_width: f64,
}

/// The savings of all coalitions when jobs queue and hold whole devices.
///
/// # Errors
///
/// Returns an error for a class whose jobs' length is unknown, or what the simulation refuses.
pub(super) fn simulated(
    federation: &Description,
    classes: &Classes,
    how: &Valuation,
) -> Result<Simulated, Unanswered> {
    let system = system(federation, classes)?;
    let count = federation.members.len();
    let coalitions: Vec<Coalition> = Coalition::everyone(count).subsets().collect();
    let outcome = |coalition: &Coalition| -> Result<Cost, Unanswered> {
        let members: Vec<usize> = coalition.members().collect();
        let (planned, forwarded) = planned(federation, classes, &system, &members)?;
        let mut cost = cost(classes, &planned, &members, how)?;
        cost.dollars_per_hour += forwarded;
        Ok(cost)
    };
    let outcomes: Vec<Cost> = coalitions.par_iter().map(outcome).collect::<Result<_, _>>()?;
    let widest = outcomes.iter().map(|cost| cost.half_width).fold(0.0, f64::max);
    let costs: Vec<f64> = outcomes.iter().map(|cost| cost.dollars_per_hour).collect();
    let greedy = cost(classes, &system, &(0..count).collect::<Vec<_>>(), how)?;
    let apart: f64 = (0..count).map(|member| costs[1 << member]).sum();
    Ok(Simulated {
        game: Game::savings(count, &costs)?.with_tolerance(widest),
        half_width_dollars_per_hour: widest,
        greedy_dollars_per_hour: apart - greedy.dollars_per_hour,
    })
}

fn cost(classes: &Classes, system: &System, members: &[usize], how: &Valuation) -> Result<Cost, Unanswered> {
    let mut cost = Cost { dollars_per_hour: 0.0, half_width: 0.0 };
    if members.iter().all(|member| system.sites[*member].demands.is_empty()) {
        return Ok(cost);
    }
    let found = value::simulate(system, members, how)?;
    for site in &found.sites {
        for (class, forwarded) in classes.classes.iter().zip(&site.class_forwarded_per_s) {
            // A job is this many examples; one example per second costs the class's price for an hour.
            let dollars = class.public_dollars_per_hour * class.job_examples.unwrap_or(0.0);
            cost.dollars_per_hour += dollars * forwarded.mean;
            cost.half_width += dollars * forwarded.half_width;
        }
    }
    Ok(cost)
}

/// The system in which each class runs only where the coalition's best plan lets it, and what the classes cost that
/// the plan sends away altogether, in dollars per hour.
fn planned(
    federation: &Description,
    classes: &Classes,
    system: &System,
    members: &[usize],
) -> Result<(System, f64), Unanswered> {
    let mut within = federation.clone();
    let mut system = system.clone();
    let mut forwarded = 0.0;
    for (place, member) in within.members.iter_mut().enumerate() {
        if !members.contains(&place) {
            member.devices.fill(0.0);
            member.demand.fill(0.0);
        }
    }
    let runs_somewhere = |class: usize| {
        let speeds = &classes.classes[class].examples_per_s;
        within
            .members
            .iter()
            .any(|member| member.devices.iter().zip(speeds).any(|(n, speed)| n * speed > 0.0))
    };
    let lost: Vec<bool> = (0..classes.classes.len()).map(|class| !runs_somewhere(class)).collect();
    for member in &mut within.members {
        for (demand, _) in member.demand.iter_mut().zip(&lost).filter(|(_, lost)| **lost) {
            *demand = 0.0;
        }
    }
    let plan = match within.affinity_game()? {
        Some(fluid) => fluid.plan(),
        None => return Ok((system, 0.0)),
    };
    for (number, class) in system.classes.iter_mut().enumerate() {
        let used = |kind: usize| {
            plan.runs
                .iter()
                .any(|run| run.class == number && run.device_type == kind && run.units > FEWEST_DEVICES)
        };
        if (0..class.speeds.len()).any(used) {
            class
                .speeds
                .iter_mut()
                .enumerate()
                .filter(|(kind, _)| !used(*kind))
                .for_each(|(_, speed)| *speed = 0.0);
            continue;
        }
        // None of its work is worth a device here.
        for place in members {
            let price = classes.classes[number].public_dollars_per_hour;
            forwarded += price * federation.members[*place].demand[number];
            system.sites[*place].demands.retain(|demand| demand.class != number);
        }
    }
    Ok((system, forwarded))
}

/// Jobs that queue for whole devices, with the demand and the speeds of the fluid.
fn system(federation: &Description, classes: &Classes) -> Result<System, Unanswered> {
    let class = |class: &description::Class| {
        let mean = class.job_examples.ok_or_else(|| Unanswered::NoJobLength { class: class.name.clone() })?;
        // Work away from home takes longer by its transfer; of a mean job that is this many seconds.
        let fastest = class.examples_per_s.iter().copied().fold(0.0, f64::max) * f64::from(class.job_devices);
        Ok(Class {
            work: Work { mean, law: Law::Exponential },
            devices: class.job_devices,
            speeds: class.examples_per_s.iter().map(|speed| speed * f64::from(class.job_devices)).collect(),
            transfer_s: if class.transfer > 0.0 { class.transfer * mean / fastest } else { 0.0 },
        })
    };
    let site = |member: &Member| {
        let groups = member.devices.iter().enumerate().filter(|(_, count)| **count >= 1.0);
        let whole = |(kind, count): (usize, &f64)| {
            let servers = count.floor() as u32;
            Group { kind, servers, shared: servers }
        };
        let asked = member.demand.iter().enumerate().filter(|(_, per_s)| **per_s > 0.0);
        let demand = |(class, per_s): (usize, &f64)| Demand {
            class,
            arrivals: Arrivals::Poisson {
                rate_per_s: per_s / classes.classes[class].job_examples.unwrap_or(f64::INFINITY),
            },
        };
        Site {
            groups: groups.map(whole).collect(),
            demands: asked.map(demand).collect(),
            longest_wait_s: member.longest_wait_s,
        }
    };
    Ok(System {
        classes: classes.classes.iter().map(class).collect::<Result<_, Unanswered>>()?,
        sites: federation.members.iter().map(site).collect(),
        admission: Admission::Count,
        priority: Priority::NoOne,
    })
}
