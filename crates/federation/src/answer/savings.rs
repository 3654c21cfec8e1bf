//! The savings game: what jobs that queue for servers cost in the public cloud, alone and together.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::format::and;
use super::report::{MemberRow, Report, SplitSpec, advice_row, coalition_rows, names, split_row};
use super::{EXACT_MEMBERS, Outcome, Split, Unanswered, Valuer, Wanted};
use crate::description::{Description, HOUR_S, Jobs, Member};
use crate::game::advice::{Advice, Structure, advise};
use crate::game::sampling::{Sampling, sample};
use crate::game::splits::{Contribution, by_idle_and_work, by_idle_servers, by_servers, nash, utilisation};
use crate::game::{Coalition, Game, least_core, nucleolus, shapley};

/// Half the width of the interval of a sampled value, as a part of what all save together.
const SAMPLED_HALF_WIDTH: f64 = 0.01;
/// Coalitions that a sample values at most.
const MOST_SAMPLED: u64 = 200_000;

/// What all members save that share this many servers each, how that is split, and who should federate with whom.
/// `alone` is what [`Valuer::alone`] says. `watch` is told how many coalitions are valued so far, and of how many where
/// that is known.
///
/// # Errors
///
/// Returns [`Unanswered::OnlySampled`] with more than [`EXACT_MEMBERS`] members, or what the models refuse.
pub fn savings(
    valuer: &Valuer,
    shared: &[u32],
    alone: &[Outcome],
    wanted: Wanted,
    watch: &(dyn Fn(usize, Option<usize>) + Sync),
) -> Result<Report, Unanswered> {
    let federation = valuer.federation();
    let jobs = valuer.jobs();
    let count = federation.members.len();
    let everyone: Vec<usize> = (0..count).collect();
    let together = valuer.outcome(&everyone, shared)?;
    let alone_per_s: f64 = alone.iter().map(Outcome::total_per_s).sum();
    let members = member_rows(federation, jobs, shared, alone, &together);
    let saved = dollars_per_hour(jobs, alone_per_s - together.total_per_s());
    let mut report = Report::new("savings", saved, members);
    report.half_width_dollars_per_hour = dollars_per_hour(jobs, together.half_width_per_s);
    report.notes.extend(together.simulated.iter().map(|why| format!("simulated: {why}")));
    let expected = (count <= EXACT_MEMBERS).then(|| (1 << count) - 1);
    let valued = AtomicUsize::new(0);
    let value = |coalition: &[usize]| -> Result<(f64, f64), Unanswered> {
        let outcome = match coalition {
            [member] => alone[*member].clone(),
            _ if coalition.len() == count => together.clone(),
            _ => valuer.outcome(coalition, shared)?,
        };
        watch(valued.fetch_add(1, Ordering::Relaxed) + 1, expected);
        let apart: f64 = coalition.iter().map(|member| alone[*member].total_per_s()).sum();
        let saved = dollars_per_hour(jobs, apart - outcome.total_per_s());
        Ok((saved, dollars_per_hour(jobs, outcome.half_width_per_s)))
    };
    if count > EXACT_MEMBERS {
        let values = |coalitions: &[Vec<usize>]| -> Result<Vec<f64>, Unanswered> {
            coalitions.par_iter().map(|coalition| Ok(value(coalition)?.0)).collect()
        };
        sampled(&mut report, wanted.split, count, valuer.seed(), values)?;
        return Ok(report);
    }
    let game = game(count, value)?;
    let contributions = contributions(federation, jobs, shared, alone);
    let advice = fill(&mut report, &game, wanted.split, Some(&contributions));
    if wanted.stable
        && let Advice::Together(structure) | Advice::Apart { structure, .. } = advice
    {
        let apart = by_block(&structure, alone, |block| valuer.outcome(block, shared))?;
        report.members = member_rows(federation, jobs, shared, alone, &apart);
        report.show(&game, structure);
    }
    Ok(report)
}

/// The game of all coalitions, valued on all processors; what intervals leave open counts as no difference.
fn game(
    count: usize,
    value: impl Fn(&[usize]) -> Result<(f64, f64), Unanswered> + Sync,
) -> Result<Game, Unanswered> {
    let coalitions: Vec<Vec<usize>> =
        Coalition::everyone(count).subsets().map(|coalition| coalition.members().collect()).collect();
    let valued =
        |coalition: &Vec<usize>| if coalition.is_empty() { Ok((0.0, 0.0)) } else { value(coalition) };
    let values: Vec<(f64, f64)> = coalitions.par_iter().map(valued).collect::<Result<_, _>>()?;
    let widest = values.iter().map(|(_, half_width)| *half_width).fold(0.0, f64::max);
    let game = Game::new(count, values.iter().map(|(value, _)| *value).collect())?;
    Ok(if widest > 0.0 { game.with_tolerance(widest) } else { game })
}

/// Where the jobs go when each block is a federation of its own.
fn by_block(
    structure: &Structure,
    alone: &[Outcome],
    outcome: impl Fn(&[usize]) -> Result<Outcome, Unanswered>,
) -> Result<Outcome, Unanswered> {
    let none = vec![0.0; alone.len()];
    let mut all =
        Outcome { forwarded_per_s: none.clone(), busy: none, half_width_per_s: 0.0, simulated: None };
    for block in &structure.blocks {
        let block: Vec<usize> = block.members().collect();
        let found = match block[..] {
            [member] => alone[member].clone(),
            _ => outcome(&block)?,
        };
        all.half_width_per_s += found.half_width_per_s;
        for (place, member) in block.into_iter().enumerate() {
            all.forwarded_per_s[member] = found.forwarded_per_s[place];
            all.busy[member] = found.busy[place];
        }
    }
    Ok(all)
}

/// What the simple rules look at.
fn contributions(
    federation: &Description,
    jobs: &Jobs,
    shared: &[u32],
    alone: &[Outcome],
) -> Vec<Contribution> {
    let of = |((member, outcome), shared): ((&Member, &Outcome), &u32)| Contribution {
        shared: f64::from(*shared),
        utilisation: utilisation(
            member.arrivals.mean_per_s(),
            outcome.total_per_s(),
            f64::from(member.servers),
            jobs.service_per_s(),
        ),
        forwarded_per_s: outcome.total_per_s(),
    };
    federation.members.iter().zip(alone).zip(shared).map(of).collect()
}

/// Splits, coalitions and advice of a game whose values are all known.
pub(super) fn fill(
    report: &mut Report,
    game: &Game,
    split: Split,
    contributions: Option<&[Contribution]>,
) -> Advice {
    let whole = game.value(game.everyone());
    let mut named: Vec<(&'static str, Option<Vec<f64>>)> = Vec::new();
    let wanted = |one: Split| split == one || split == Split::All;
    if wanted(Split::Shapley) {
        named.push(("shapley", Some(shapley::exact(game))));
    }
    if wanted(Split::Core) {
        named.push(("core", least_core::core_payment(game)));
    }
    if wanted(Split::Nucleolus) {
        let small = game.members() <= nucleolus::MOST_MEMBERS;
        named.push(("nucleolus", small.then(|| nucleolus::nucleolus(game)).flatten()));
    }
    if wanted(Split::Nash) {
        named.push(("nash", nash(game, &vec![1.0; game.members()])));
    }
    if let Some(contributions) = contributions.filter(|_| split == Split::All) {
        named.push(("by servers (SR)", Some(by_servers(whole, contributions))));
        named.push(("by idle servers (SIR)", Some(by_idle_servers(whole, contributions))));
        named.push(("by idle servers and work (SIRW)", Some(by_idle_and_work(whole, contributions))));
    }
    for (split, payment) in named {
        match payment {
            Some(payment) => {
                let named = SplitSpec { split, payment, half_widths: None };
                report.splits.push(split_row(&named, Some(game), &report.members));
            }
            None => report.notes.push(why_not(split, game)),
        }
    }
    let advice = advise(game);
    report.coalitions = coalition_rows(game, &report.members);
    report.advice = advice_row(&advice, game, &report.members);
    let unions = game.superadditivity();
    if let Some(worst) = unions.worst.first() {
        let [a, b] = worst.parts.map(|part| and(&names(part, &report.members)));
        report.notes.push(format!(
            "uniting does not always pay: {a} with {b} save ${:.2}/h less than apart",
            worst.loss
        ));
    }
    advice
}

fn why_not(split: &str, game: &Game) -> String {
    match split {
        "core" => format!(
            "core: empty, some coalition always gains by leaving (at best ${:.2}/h)",
            least_core::least_core(game).excess
        ),
        "nucleolus" if game.members() > nucleolus::MOST_MEMBERS => {
            format!("nucleolus: computed for up to {} members", nucleolus::MOST_MEMBERS)
        }
        split => format!("{split}: all together save less than each alone, so there is nothing to share"),
    }
}

/// The Shapley value of more members than there are coalitions to value.
fn sampled(
    report: &mut Report,
    split: Split,
    count: usize,
    seed: u64,
    values: impl FnMut(&[Vec<usize>]) -> Result<Vec<f64>, Unanswered>,
) -> Result<(), Unanswered> {
    if !matches!(split, Split::Shapley | Split::All) {
        return Err(Unanswered::OnlySampled { members: count });
    }
    let wish = Sampling { half_width: SAMPLED_HALF_WIDTH, most_values: MOST_SAMPLED, seed };
    let found = sample(count, &wish, values)?;
    let named = SplitSpec {
        split: "shapley",
        payment: found.members.iter().map(|member| member.mean).collect(),
        half_widths: Some(found.members.iter().map(|member| member.half_width).collect()),
    };
    report.splits.push(split_row(&named, None, &report.members));
    let widest = found.members.iter().map(|member| member.half_width).fold(0.0, f64::max);
    report.notes.push(format!(
        "shapley: sampled from {} orders ({} coalitions valued), each within ${widest:.3}/h at 95 %{}",
        found.orders,
        found.values,
        if found.narrow { "" } else { "; it is less exact than wanted" }
    ));
    let saved = report.saved_dollars_per_hour;
    let losers: Vec<String> = named
        .payment
        .iter()
        .zip(&report.members)
        .filter(|(payment, _)| **payment < -widest)
        .map(|(_, member)| member.name.clone())
        .collect();
    let harm = match losers.len() {
        0 => String::new(),
        1 => format!(" {} does harm: the others save more without it.", losers[0]),
        _ => format!(" {} do harm: the others save more without them.", and(&losers)),
    };
    report.advice.sentence = format!(
        "All {count} together save ${saved:.2}/h; 2^{count} coalitions are too many to find out who would rather leave.{harm}"
    );
    Ok(())
}

fn member_rows(
    federation: &Description,
    jobs: &Jobs,
    shared: &[u32],
    alone: &[Outcome],
    together: &Outcome,
) -> Vec<MemberRow> {
    let row = |(place, member): (usize, &Member)| {
        let (before_per_s, after_per_s) = (alone[place].total_per_s(), together.forwarded_per_s[place]);
        // Busy servers cost their owner more, whosever jobs they do.
        let busy_dollars_per_hour = |busy: f64| busy * jobs.busy_dollars * HOUR_S / jobs.mean_time_s;
        let public = |per_s: f64| per_s * HOUR_S * jobs.public_dollars;
        let bill = |per_s: f64, busy: f64| public(per_s) + busy_dollars_per_hour(busy);
        let before = bill(before_per_s, alone[place].busy[0]);
        MemberRow {
            name: member.name.clone(),
            owns: format!("{} servers, shares {}", member.servers, shared[place]),
            alone_forwarded_per_hour: before_per_s * HOUR_S,
            forwarded_per_hour: after_per_s * HOUR_S,
            alone_dollars_per_hour: f64::from(member.servers) * jobs.server_dollars_per_hour + before,
            spared_dollars_per_hour: before - bill(after_per_s, together.busy[place]),
        }
    };
    federation.members.iter().enumerate().map(row).collect()
}

/// What it is worth that this many jobs per second are not forwarded.
pub(super) fn dollars_per_hour(jobs: &Jobs, per_s: f64) -> f64 {
    per_s * HOUR_S * jobs.saved_dollars()
}
