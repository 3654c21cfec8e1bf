//! The affinity game: work that suits some devices better than others, as a market; and what queues and whole
//! devices make of it.

use rayon::prelude::*;

use super::report::{Market, MemberRow, Report, Run, SplitSpec, split_row};
use super::{EXACT_MEMBERS, Split, Unanswered, Valuation, Wanted, savings, whole};
use crate::description::{Classes, Description, Member};
use crate::game::Coalition;
use crate::game::advice::Advice;
use crate::game::affinity::{self, Affinity, Owen, Plan};

/// What the members of a market save who share their devices, how that is split, and who should federate with whom.
/// With [`Valuation::simulate`] jobs queue for whole devices.
///
/// # Errors
///
/// Returns [`Unanswered::NoClasses`], [`Unanswered::NoJobLength`], or what the models refuse.
pub fn affinity(federation: &Description, how: &Valuation, wanted: Wanted) -> Result<Report, Unanswered> {
    let (Some(classes), Some(fluid)) = (&federation.affinity, federation.affinity_game()?) else {
        return Err(Unanswered::NoClasses);
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
    let named = SplitSpec { split: "market prices (Owen)", payment, half_widths: None };
    if count > EXACT_MEMBERS {
        report.splits.push(split_row(&named, None, &report.members));
        report.advice.stable = Some(true);
        report.advice.sentence = format!(
            "Federate all {count}: that saves ${:.2}/h, and no member gains by leaving when all pay the market's prices.",
            report.saved_dollars_per_hour
        );
        report.notes.push(format!("other splits are computed for up to {EXACT_MEMBERS} members"));
        return Ok(report);
    }
    let game = if how.simulate {
        let found = whole::simulated(federation, classes, how)?;
        if let Some(market) = &mut report.market {
            market.fluid_saved_dollars_per_hour = Some(report.saved_dollars_per_hour);
        }
        report.saved_dollars_per_hour = found.game.value(found.game.everyone());
        report.half_width_dollars_per_hour = found.half_width_dollars_per_hour;
        report.notes.push(
            "simulated: jobs queue and hold whole devices of the types that the best plan gives them; bills and market prices are those of the plan"
                .to_string(),
        );
        report.notes.push(format!(
            "with each job on the fastest free device instead, all together would save ${:.2}/h",
            found.greedy_dollars_per_hour
        ));
        found.game
    } else {
        let coalitions: Vec<Coalition> = Coalition::everyone(count).subsets().collect();
        let costs: Vec<f64> = coalitions.par_iter().map(|coalition| fluid.cost(*coalition)).collect();
        fluid.game_of(&costs)?
    };
    let advice = savings::fill(&mut report, &game, wanted.split, None);
    if wanted.stable
        && let Advice::Together(structure) | Advice::Apart { structure, .. } = advice
    {
        report.show(&game, structure);
        return Ok(report);
    }
    // What the market gives out is what the fluid saves.
    if !how.simulate && matches!(wanted.split, Split::Core | Split::All) {
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

fn owns(member: &Member, classes: &Classes) -> String {
    let some = member.devices.iter().zip(&classes.devices).filter(|(count, _)| **count > 0.0);
    let words: Vec<String> = some.map(|(count, device)| format!("{count} {device}")).collect();
    if words.is_empty() { "nothing".to_string() } else { words.join(", ") }
}

fn market(fluid: &Affinity, owen: &Owen, runs: &[affinity::Run]) -> Market {
    let name = |member: usize| fluid.members()[member].name.clone();
    // With a transfer cost the same device is worth more to some than to others.
    let alike = fluid.classes().iter().all(|class| class.transfer == 0.0);
    let seen = if alike { 1 } else { fluid.members().len() };
    let priced = |names: Vec<&String>, prices: &[Vec<f64>]| {
        let of = |member: usize| {
            let at = move |name: &String| {
                if alike { name.clone() } else { format!("{name} at {}", fluid.members()[member].name) }
            };
            names.iter().map(|name| at(name)).zip(prices[member].iter().copied()).collect::<Vec<_>>()
        };
        (0..seen).flat_map(of).collect()
    };
    Market {
        rents: priced(fluid.types().iter().collect(), &owen.rents),
        work: priced(fluid.classes().iter().map(|class| &class.name).collect(), &owen.work),
        runs: runs
            .iter()
            .filter(|run| run.units > whole::FEWEST_DEVICES)
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
