//! The answer: the choice and why, what else was simulated, and where nothing holds, what could be held.

use std::collections::BTreeMap;

use bellwether_core::plan::Market;
use bellwether_sched::capacity::search::Counts;
use bellwether_sched::capacity::{Figure, Limit, Objective, Part, Search};
use serde::Serialize;

use super::Candidates;
use super::simulator::{Detail, Simulator};
use crate::Refusal;

/// Multiples of the first objective's limit for which the front has the cheapest candidates.
const MULTIPLES: [f64; 8] = [0.25, 0.35, 0.5, 0.71, 1.41, 2.0, 2.83, 4.0];

/// The cheapest cluster that holds a service level.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// What has to hold.
    pub objectives: Vec<String>,
    /// Jobs of the workload, of its first run.
    pub jobs: usize,
    /// The first seed; each run has the next one.
    pub seed: u64,
    /// Runs of a candidate where something is drawn.
    pub runs: u64,
    /// The candidate that was chosen, by its place in the list; nothing where none holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<usize>,
    /// Why.
    pub reason: String,
    /// What the choice is made of, as a cluster file for `bellwether simulate --cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_file: Option<String>,
    /// Objectives of which each alone could be relaxed, where none holds all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relaxations: Vec<Relaxation>,
    /// How many candidates there were, and how many had to be simulated.
    pub counts: Counts,
    /// The cheapest candidates for other service levels, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub front: Vec<FrontPoint>,
    /// All candidates that were simulated to their end, the cheapest first.
    pub candidates: Vec<CandidateRow>,
    /// The first objective, for pictures.
    #[serde(skip)]
    pub first: Option<Objective>,
    /// Names of the figures, in the order of the objectives.
    #[serde(skip)]
    pub figures: Vec<String>,
}

/// A candidate that was simulated to its end.
#[derive(Debug, Clone, Serialize)]
pub struct CandidateRow {
    /// Its machines in words: `4 v100 + 2 v100 transient`.
    pub cluster: String,
    /// Its machines.
    pub machines: Vec<MachineRow>,
    /// Its policy.
    pub policy: String,
    /// What it costs until the last job has ended, in dollars; the mean over the runs.
    pub cost_dollars: f64,
    /// What it costs per hour while all machines run, in dollars.
    pub price_dollars_per_hour: f64,
    /// The figures of the objectives by their names, means over the runs.
    pub figures: BTreeMap<String, f64>,
    /// Whether it holds all objectives.
    pub holds: bool,
    /// Whether no other candidate here is as cheap and as good in the first objective's figure, and better in one.
    pub is_pareto_optimal: bool,
    /// Its runs, and those that hold all objectives by themselves.
    pub runs: u64,
    /// See `runs`.
    pub runs_held: u64,
    /// From the first arrival to the last end, in seconds; the mean over the runs.
    pub makespan_s: f64,
    /// Part of the offered device-seconds that jobs held; the mean over the runs.
    pub utilisation: f64,
    /// Machines that were taken away; the mean over the runs.
    pub revoked: f64,
    /// The figures as the search compares them: less is better.
    #[serde(skip)]
    pub levels: Vec<f64>,
}

/// Machines of one kind and market.
#[derive(Debug, Clone, Serialize)]
pub struct MachineRow {
    /// The kind.
    pub machine: String,
    /// How many.
    pub count: u32,
    /// On demand or transient.
    pub market: Market,
}

/// An objective that could be relaxed, and what would be chosen then.
#[derive(Debug, Clone, Serialize)]
pub struct Relaxation {
    /// The objective to say instead.
    pub say: String,
    /// The candidate, by its place in the list.
    pub candidate: usize,
}

/// The cheapest candidate for another service level.
#[derive(Debug, Clone, Serialize)]
pub struct FrontPoint {
    /// The objective.
    pub objective: String,
    /// The candidate, by its place in the list; nothing where none holds it.
    pub candidate: Option<usize>,
}

/// Searches, and says what was found.
pub(super) fn answer(
    simulator: &Simulator<'_>,
    search: &mut Search<'_, Candidates<'_>>,
) -> Result<Answer, Refusal> {
    let objectives = &simulator.request.objectives;
    let limits: Vec<Limit> = objectives.iter().map(Objective::level_limit).collect();
    let chosen = search.cheapest(&limits)?;
    let counts = search.counts();
    let relaxed = if chosen.is_none() { relax(search, objectives, &limits)? } else { Vec::new() };
    let mut front = Vec::new();
    for multiple in MULTIPLES.iter().filter(|_| simulator.request.front) {
        let first = objectives[0];
        let level = first.level_limit().level * multiple;
        // No more than all deadlines can be missed, and no less than none.
        if first.figure == Figure::Deadlines && !(0.0..1.0).contains(&level) || level == 0.0 {
            continue;
        }
        let other = Objective { limit: round(first.figure.level(level)), ..first };
        let mut limits = limits.clone();
        limits[0] = other.level_limit();
        front.push((other, search.cheapest(&limits)?));
    }
    let mut measured: Vec<usize> = search.measured().map(|(candidate, _)| candidate).collect();
    let cost =
        |candidate: &usize| search.outcome(*candidate).map_or(f64::INFINITY, |found| found.cost_dollars);
    measured.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.cmp(b)));
    let mut rows: Vec<CandidateRow> =
        measured.iter().filter_map(|candidate| row(simulator, search, *candidate)).collect();
    mark_front(&mut rows);
    let place = |candidate: usize| measured.iter().position(|other| *other == candidate);
    let choice = chosen.and_then(place);
    let reason = match choice.map(|choice| &rows[choice]) {
        Some(chosen) => because(objectives, chosen, &counts),
        None => why_not(objectives, &rows, &counts, search.unable().next().map(|(_, why)| why)),
    };
    let relaxations = relaxed.into_iter().filter_map(|(objective, candidate)| {
        Some(Relaxation { say: objective.to_string(), candidate: place(candidate)? })
    });
    let front = front.into_iter().map(|(objective, candidate)| FrontPoint {
        objective: objective.to_string(),
        candidate: candidate.and_then(place),
    });
    let first_kinds = simulator.kinds.values().find_map(|kinds| kinds.as_ref().ok());
    Ok(Answer {
        objectives: objectives.iter().map(ToString::to_string).collect(),
        jobs: first_kinds.map_or(0, |kinds| kinds.run(0).entries.len()),
        seed: simulator.request.seed,
        runs: simulator.runs,
        choice,
        reason,
        cluster_file: chosen.map(|chosen| simulator.writer.text(simulator.grid.candidate(chosen).0)),
        relaxations: relaxations.collect(),
        counts,
        front: front.collect(),
        candidates: rows,
        first: objectives.first().copied(),
        figures: objectives.iter().map(|objective| objective.figure.name()).collect(),
    })
}

/// Three figures: what people would write.
fn round(limit: f64) -> f64 {
    let digits = 10_f64.powi(2 - limit.abs().max(f64::MIN_POSITIVE).log10().floor() as i32);
    if digits.is_finite() && digits > 0.0 { (limit * digits).round() / digits } else { limit }
}

/// The objectives of which each alone stands in the way, each with a limit that can be held, and who is the cheapest
/// then.
fn relax(
    search: &mut Search<'_, Candidates<'_>>,
    objectives: &[Objective],
    limits: &[Limit],
) -> Result<Vec<(Objective, usize)>, Refusal> {
    let mut relaxed = Vec::new();
    for (at, objective) in objectives.iter().enumerate() {
        let mut limits = limits.to_vec();
        limits[at] = Limit::NONE;
        let Some(best) = search.best_level(at, &limits)? else { continue };
        let Some(level) = search.outcome(best).map(|outcome| outcome.levels[at]) else { continue };
        let instead = objective.relaxed_to(level);
        limits[at] = instead.level_limit();
        if let Some(chosen) = search.cheapest(&limits)? {
            relaxed.push((instead, chosen));
        }
    }
    Ok(relaxed)
}

fn row(
    simulator: &Simulator<'_>,
    search: &Search<'_, Candidates<'_>>,
    candidate: usize,
) -> Option<CandidateRow> {
    let outcome = search.outcome(candidate)?;
    let (parts, policy) = simulator.grid.candidate(candidate);
    let details = simulator.details.lock().ok()?;
    let Detail { runs, runs_held, span_s, utilisation, revoked } =
        details.get(&candidate).copied().unwrap_or_default();
    let objectives = &simulator.request.objectives;
    let figures = objectives.iter().zip(&outcome.levels);
    let machines = machines(simulator, parts);
    let words = machines.iter().map(|row| match row.market {
        Market::OnDemand => format!("{} {}", row.count, row.machine),
        Market::Transient => format!("{} {} transient", row.count, row.machine),
    });
    Some(CandidateRow {
        cluster: words.collect::<Vec<_>>().join(" + "),
        policy: simulator.policies[policy].clone(),
        cost_dollars: outcome.cost_dollars,
        price_dollars_per_hour: simulator.dollars_per_hour(parts),
        figures: figures
            .map(|(objective, level)| (objective.figure.name(), objective.figure.level(*level)))
            .collect(),
        holds: objectives.iter().zip(&outcome.levels).all(|(one, level)| one.level_limit().holds(*level)),
        is_pareto_optimal: false,
        runs,
        runs_held,
        makespan_s: span_s,
        utilisation,
        revoked,
        levels: outcome.levels.clone(),
        machines,
    })
}

fn machines(simulator: &Simulator<'_>, parts: &[Part]) -> Vec<MachineRow> {
    let rows = parts.iter().flat_map(|part| {
        let machine = &simulator.catalogue.machines[part.kind].name;
        [(part.on_demand, Market::OnDemand), (part.transient, Market::Transient)]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, market)| MachineRow { machine: machine.clone(), count, market })
    });
    rows.collect()
}

/// Marks rows, which are in the order of cost, that no other one beats in cost and in the first level.
fn mark_front(rows: &mut [CandidateRow]) {
    let level = |row: &CandidateRow| row.levels.first().copied().unwrap_or(0.0);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&rows[*a], &rows[*b]);
        a.cost_dollars.total_cmp(&b.cost_dollars).then(level(a).total_cmp(&level(b)))
    });
    let mut least = f64::INFINITY;
    for place in order {
        rows[place].is_pareto_optimal = level(&rows[place]) < least;
        least = least.min(level(&rows[place]));
    }
}

fn all(objectives: &[Objective]) -> String {
    objectives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn because(objectives: &[Objective], chosen: &CandidateRow, counts: &Counts) -> String {
    format!(
        "the cheapest of {} candidates that holds {}: {} under {}; {}",
        counts.candidates,
        all(objectives),
        chosen.cluster,
        chosen.policy,
        looked_at(counts),
    )
}

/// How many candidates needed what.
fn looked_at(counts: &Counts) -> String {
    let Counts { candidates, measured, cut_short, refused, unable } = *counts;
    let rest = candidates.saturating_sub(measured + cut_short + refused + unable);
    let parts = [
        (measured, "simulated to the end"),
        (cut_short, "cut short"),
        (refused, "refused by a bound"),
        (unable, "unable to run all jobs"),
        (rest, "left out as dearer"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn why_not(objectives: &[Objective], rows: &[CandidateRow], counts: &Counts, unable: Option<&str>) -> String {
    let mut text = format!("none of {} candidates holds {}", counts.candidates, all(objectives));
    if let Some(why) = unable.filter(|_| rows.is_empty() && counts.unable > 0) {
        text.push_str(&format!("; {why}"));
    }
    text
}
