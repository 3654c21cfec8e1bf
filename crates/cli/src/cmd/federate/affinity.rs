//! The affinity game: work that suits some devices better than others, as a market; and what queues and whole devices make
//! of it.

use bellwether_core::InputError;
use bellwether_model::queueing::federation::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Priority, Site, System, Work,
};
use bellwether_sched::federation::affinity::{self, Affinity, Owen, Plan};
use bellwether_sched::federation::description::{Classes, Description, Member};
use bellwether_sched::federation::{Coalition, Game};
use rayon::prelude::*;

use super::report::{Market, MemberRow, Named, Report, Run, split_row};
use super::{FederateArguments, Split, savings, value};
use crate::failure::Failure;

/// Devices of a run below which it is rounding.
const FEWEST_DEVICES: f64 = 1e-6;

/// # Errors
///
/// A description without classes, or with more members than coalitions can be valued for.
pub(super) fn affinity(federation: &Description, arguments: &FederateArguments) -> Result<Report, Failure> {
    let place = arguments.federation.display().to_string();
    let (Some(classes), Some(fluid)) = (&federation.affinity, federation.affinity_game()?) else {
        return Err(InputError::new(place, "this game needs classes of jobs, and the file has no [[class]]")
            .hint("write [[class]] with speeds, or say --game savings")
            .into());
    };
    let owen = fluid.owen()?;
    let plan = fluid.plan();
    let members = member_rows(federation, classes, &fluid, &plan);
    let count = members.len();
    let apart: f64 = members.iter().map(|member| member.alone_forwarded_per_hour).sum();
    let mut report = Report::new("affinity", apart - owen.cost, members);
    report.market = Some(market(&fluid, &owen, &plan.runs));
    let payment: Vec<f64> = report
        .members
        .iter()
        .zip(&owen.charges)
        .map(|(row, charge)| row.alone_forwarded_per_hour - charge)
        .collect();
    let named = Named { split: "market prices (Owen)", payment, half_widths: None };
    if count > savings::EXACT_MEMBERS {
        report.splits.push(split_row(&named, None, &report.members));
        report.advice.stable = Some(true);
        report.advice.sentence = format!(
            "Federate all {count}: that saves ${:.2}/h, and nobody gains by leaving when all pay the market's prices.",
            report.saved_dollars_per_hour
        );
        report.notes.push(format!("other splits are computed for up to {} members", savings::EXACT_MEMBERS));
        return Ok(report);
    }
    let game = if arguments.simulate {
        let (game, half_width) = simulated(federation, classes, arguments)?;
        if let Some(market) = &mut report.market {
            market.fluid_saved_dollars_per_hour = Some(report.saved_dollars_per_hour);
        }
        report.saved_dollars_per_hour = game.value(game.everyone());
        report.half_width_dollars_per_hour = half_width;
        report.notes.push(
            "simulated: jobs queue and hold whole devices; members' bills and market prices are those of the fluid"
                .to_string(),
        );
        game
    } else {
        game_of(&fluid, count)?
    };
    savings::fill(&mut report, &game, arguments.split, None);
    // What the market gives out is what the fluid saves.
    if !arguments.simulate && matches!(arguments.split, Split::Core | Split::All) {
        report.splits.push(split_row(&named, Some(&game), &report.members));
    }
    Ok(report)
}

fn member_rows(federation: &Description, classes: &Classes, fluid: &Affinity, plan: &Plan) -> Vec<MemberRow> {
    let alone = |member: usize| fluid.cost(Coalition::of([member]));
    let row = |(place, member): (usize, &Member)| {
        let forwarded = classes.classes.iter().zip(&plan.forwarded[place]);
        let pays: f64 = forwarded.map(|(class, per_s)| class.public_dollars_per_hour * per_s).sum();
        let cost = alone(place);
        let own: f64 =
            member.devices.iter().zip(&classes.own_dollars_per_hour).map(|(n, price)| n * price).sum();
        MemberRow {
            name: member.name.clone(),
            owns: owns(member, classes),
            alone_forwarded_per_hour: cost,
            forwarded_per_hour: pays,
            alone_dollars_per_hour: own + cost,
            spared_dollars_per_hour: cost - pays,
        }
    };
    federation.members.iter().enumerate().map(row).collect()
}

fn game_of(fluid: &Affinity, count: usize) -> Result<Game, InputError> {
    let coalitions: Vec<Coalition> = Coalition::everyone(count).subsets().collect();
    let costs: Vec<f64> = coalitions.par_iter().map(|coalition| fluid.cost(*coalition)).collect();
    Game::savings(count, &costs)
}

fn owns(member: &Member, classes: &Classes) -> String {
    let some = member.devices.iter().zip(&classes.devices).filter(|(count, _)| **count > 0.0);
    let words: Vec<String> = some.map(|(count, device)| format!("{count} {device}")).collect();
    if words.is_empty() { "nothing".to_string() } else { words.join(", ") }
}

fn market(fluid: &Affinity, owen: &Owen, runs: &[affinity::Run]) -> Market {
    let name = |member: usize| fluid.members()[member].name.clone();
    // Without transfer all members see the same prices; with it the first member's stand for all.
    let rents = owen.rents.first().into_iter().flatten();
    let work = owen.work.first().into_iter().flatten();
    Market {
        rents: fluid.types().iter().cloned().zip(rents.copied()).collect(),
        work: fluid.classes().iter().map(|class| class.name.clone()).zip(work.copied()).collect(),
        runs: runs
            .iter()
            .filter(|run| run.units > FEWEST_DEVICES)
            .map(|run| Run {
                of: name(run.of),
                on: name(run.on),
                class: fluid.classes()[run.class].name.clone(),
                device: fluid.types()[run.device_type].clone(),
                devices: run.units,
            })
            .collect(),
        fluid_saved_dollars_per_hour: None,
    }
}

/// The savings of all coalitions when jobs queue and hold whole devices, and the widest interval among them.
fn simulated(
    federation: &Description,
    classes: &Classes,
    arguments: &FederateArguments,
) -> Result<(Game, f64), Failure> {
    let system = system(federation, classes, &arguments.federation.display().to_string())?;
    let count = federation.members.len();
    let coalitions: Vec<Vec<usize>> =
        Coalition::everyone(count).subsets().map(|coalition| coalition.members().collect()).collect();
    let outcome = |members: &Vec<usize>| -> Result<(f64, f64), Failure> {
        if members.is_empty() {
            return Ok((0.0, 0.0));
        }
        let found = value::simulate(&system, members, arguments.precision, arguments.seed)?;
        let mut cost = 0.0;
        let mut dearest = 0.0f64;
        for site in &found.sites {
            for (class, forwarded) in classes.classes.iter().zip(&site.class_forwarded_per_s) {
                let dollars = class.public_dollars_per_hour * class.job_examples.unwrap_or(0.0);
                cost += dollars * forwarded.mean;
                dearest = dearest.max(dollars);
            }
        }
        Ok((cost, dearest * found.forwarded_per_s.half_width))
    };
    let outcomes: Vec<(f64, f64)> = coalitions.par_iter().map(outcome).collect::<Result<_, _>>()?;
    let widest = outcomes.iter().map(|(_, half_width)| *half_width).fold(0.0, f64::max);
    let costs: Vec<f64> = outcomes.iter().map(|(cost, _)| *cost).collect();
    Ok((Game::savings(count, &costs)?.with_tolerance(widest), widest))
}

/// Jobs that queue for whole devices, with the demand and the speeds of the fluid.
fn system(federation: &Description, classes: &Classes, place: &str) -> Result<System, InputError> {
    let class = |class: &bellwether_sched::federation::description::Class| {
        let mean = class.job_examples.ok_or_else(|| {
            InputError::new(
                format!("{place}: class {}", class.name),
                "to simulate jobs one must know how long they are",
            )
            .hint("give it job_examples, the examples of a job on average")
        })?;
        // Work away from home takes longer by its transfer; of a mean job that is so many seconds.
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
        classes: classes.classes.iter().map(class).collect::<Result<_, InputError>>()?,
        sites: federation.members.iter().map(site).collect(),
        admission: Admission::Count,
        priority: Priority::Nobody,
    })
}
