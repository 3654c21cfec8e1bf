//! Why a configuration was chosen; and where none fits, why not, and which one wish would have to be given up.

use bellwether_core::InputError;
use bellwether_core::plan::{Constraints, Relaxation};
use bellwether_core::prediction::StepModel;
use bellwether_core::span::{written as duration, written_at_least as at_least};
use bellwether_core::units::{Dollars, Seconds};
use bellwether_core::words::count;

use super::search::{SLACK, Search};
use super::{Question, begin};

/// Below this probability a deadline is a matter of luck, and no wish.
const LEAST_CONFIDENCE: f64 = 0.5;

/// The flag whose value is known only when there is a choice.
const OTHER_REGIONS: &str = "--region";

/// One sentence that explains the choice.
pub(super) fn why(search: &mut Search, choice: usize) -> Result<String, InputError> {
    let constraints = search.evaluator.question.constraints();
    let (name, time_s, cost) = shown(search, choice);
    let meets =
        constraints.deadline_s.and_then(|deadline_s| Some(search.found(choice)?.figures.meets(deadline_s)));
    let of = count(search.len(), "configuration");
    let budget = constraints.budget_dollars.map(money);
    let rule = match (constraints.deadline_s, budget) {
        (Some(deadline_s), budget) => {
            let fits = budget.map_or(String::new(), |budget| format!(" and fit the budget of {budget}"));
            let (deadline, confidence) = (duration(deadline_s), percent(constraints.confidence));
            let meets = percent(meets.unwrap_or(0.0));
            format!(
                "of {of} the cheapest to meet the deadline of {deadline} with a probability of {confidence}{fits} \
                 (it does with {meets})"
            )
        }
        (None, Some(budget)) => {
            format!(
                "of {of} the fastest that is expected to fit the budget of {budget} (within 1 % the cheapest)"
            )
        }
        (None, None) => format!(
            "of {of} the one with the least product of time and cost, as neither a deadline nor a budget was given"
        ),
    };
    let mut text = format!("{name}: {rule}; {} and {} are expected", duration(time_s), money(cost));
    if search.setup(choice).is_transient()
        && let Some(firm) = search.best_of(&constraints, |setup| !setup.is_transient())?
    {
        let (name, time_s, cost) = shown(search, firm);
        text += &format!("; on demand it would be {name}, with {} and {}", duration(time_s), money(cost));
    }
    Ok(text + ".")
}

/// One sentence that says why nothing fits.
pub(super) fn why_not(search: &mut Search) -> Result<String, InputError> {
    let constraints = search.evaluator.question.constraints();
    let Constraints { deadline_s, budget_dollars, confidence, .. } = constraints;
    let of = count(search.len(), "configuration");
    let fastest =
        search.least(|_, rough| Some(rough.time_s), |figures| Some(figures.quantile_s(confidence)))?;
    let cheapest = search.least(|_, rough| Some(rough.cost), |figures| Some(figures.cost))?;
    let mut reasons = Vec::new();
    if let (Some(deadline_s), Some(fastest)) = (deadline_s, fastest) {
        let (name, _, cost) = shown(search, fastest);
        let time_s =
            search.found(fastest).map_or(f64::INFINITY, |found| found.figures.quantile_s(confidence));
        if time_s > deadline_s {
            let (deadline, confidence) = (duration(deadline_s), percent(confidence));
            let time = at_least(time_s);
            reasons.push(format!(
                "the deadline of {deadline} cannot be met with a probability of {confidence}: the fastest of {of}, {name}, needs {time} for {}",
                money(cost)
            ));
        }
    }
    if let (Some(budget), Some(cheapest)) = (budget_dollars, cheapest) {
        let (name, time_s, cost) = shown(search, cheapest);
        if cost > budget {
            reasons.push(format!(
                "the budget of {} is too small: the cheapest of {of}, {name}, costs {} and takes {}",
                money(budget),
                money(cost),
                duration(time_s)
            ));
        }
    }
    if reasons.is_empty() {
        reasons.push(format!("none of {of} both meets the deadline and fits the budget"));
    }
    Ok(reasons.join("; ") + ".")
}

/// What would fit if one wish were another: each was tried.
pub(super) fn relaxations(search: &mut Search, model: &dyn StepModel) -> Result<Vec<Relaxation>, InputError> {
    let question = search.evaluator.question.clone();
    let constraints = question.constraints();
    let mut all = Vec::new();
    let longer = longer_deadline(search, &constraints)?;
    let larger = larger_budget(search, &constraints)?;
    for relaxed in [&longer, &larger].into_iter().flatten() {
        push(search, &mut all, relaxed, &constraints)?;
    }
    if all.is_empty() && constraints.deadline_s.is_some() && constraints.budget_dollars.is_some() {
        // Neither alone helps: the fastest, at what it costs.
        let free = Constraints { budget_dollars: None, ..constraints.clone() };
        if let Some(later) = longer_deadline(search, &free)? {
            let both =
                larger_budget(search, &Constraints { budget_dollars: constraints.budget_dollars, ..later })?;
            if let Some(both) = both {
                push(search, &mut all, &both, &constraints)?;
            }
        }
    }
    if let Some(less) = less_confidence(search, &constraints) {
        push(search, &mut all, &less, &constraints)?;
    }
    for (say, other) in otherwise(&question, search) {
        let catalogue = search.evaluator.catalogue;
        let Ok(mut search) = begin(&other, catalogue, model) else { continue };
        if let Some(choice) = search.best(&other.constraints())? {
            let (machines, time_s, cost_dollars) = shown(&search, choice);
            let say = if say == OTHER_REGIONS { regions(&question, &search, choice) } else { say };
            all.push(Relaxation { say, machines, time_s, cost_dollars });
        }
    }
    Ok(all)
}

/// The regions that were asked for, and that of a choice.
fn regions(question: &Question, search: &Search, choice: usize) -> String {
    let machines = search.candidate(choice).map_or(Vec::new(), |candidate| candidate.machines);
    let mut all = question.regions.to_vec();
    for region in machines.into_iter().filter_map(|machines| machines.region) {
        if !all.contains(&region) {
            all.push(region);
        }
    }
    format!("{OTHER_REGIONS} {}", all.join(","))
}

/// The question without one of its bounds.
fn otherwise<'q>(question: &Question<'q>, search: &Search) -> Vec<(String, Question<'q>)> {
    let mut all = Vec::new();
    if !question.transient {
        all.push(("--transient".to_string(), Question { transient: true, ..question.clone() }));
    }
    if !question.regions.is_empty() {
        all.push((OTHER_REGIONS.to_string(), Question { regions: &[], ..question.clone() }));
    }
    let catalogue = search.evaluator.catalogue;
    let usable = (0..catalogue.machines.len())
        .map(|kind| search.evaluator.speeds.most_of_any(kind) * catalogue.machines[kind].devices)
        .max()
        .unwrap_or(0);
    let more = question.max_workers.saturating_mul(2).min(super::WORKERS_MAX);
    // Where the limit is not what holds them back, a larger one does not help.
    if usable == question.max_workers && more > question.max_workers {
        all.push((format!("--max-workers {more}"), Question { max_workers: more, ..question.clone() }));
    }
    all
}

fn push(
    search: &mut Search,
    all: &mut Vec<Relaxation>,
    relaxed: &Constraints,
    constraints: &Constraints,
) -> Result<(), InputError> {
    let Some(choice) = search.best(relaxed)? else { return Ok(()) };
    let (machines, time_s, cost_dollars) = shown(search, choice);
    let mut say = Vec::new();
    if relaxed.deadline_s != constraints.deadline_s {
        say.push(format!("--deadline {}", at_least(relaxed.deadline_s.unwrap_or(f64::INFINITY))));
    }
    if relaxed.budget_dollars != constraints.budget_dollars {
        say.push(format!("--budget '{}'", money(relaxed.budget_dollars.unwrap_or(f64::INFINITY))));
    }
    if relaxed.confidence != constraints.confidence {
        say.push(format!("--confidence {}", relaxed.confidence));
    }
    all.push(Relaxation { say: say.join(" "), machines, time_s, cost_dollars });
    Ok(())
}

/// The same wishes with the nearest later deadline that can be met.
fn longer_deadline(
    search: &mut Search,
    constraints: &Constraints,
) -> Result<Option<Constraints>, InputError> {
    let Constraints { deadline_s: Some(deadline_s), budget_dollars: budget, confidence, .. } = *constraints
    else {
        return Ok(None);
    };
    let fits = |cost: f64| budget.is_none_or(|budget| cost <= budget);
    let fastest = search.least(
        |_, rough| Some(rough.time_s).filter(|_| fits(rough.cost * (1.0 - SLACK))),
        |figures| Some(figures.quantile_s(confidence)).filter(|_| fits(figures.cost)),
    )?;
    let time_s = fastest.and_then(|place| Some(search.found(place)?.figures.quantile_s(confidence)));
    // As it will be typed: rounded up.
    let later = time_s.filter(|time_s| *time_s > deadline_s).and_then(|time_s| typed_s(&at_least(time_s)));
    Ok(later.map(|later_s| Constraints { deadline_s: Some(later_s), ..constraints.clone() }))
}

/// The same wishes with the nearest larger budget that is enough.
fn larger_budget(search: &mut Search, constraints: &Constraints) -> Result<Option<Constraints>, InputError> {
    let Some(budget) = constraints.budget_dollars else { return Ok(None) };
    let free = Constraints { budget_dollars: None, ..constraints.clone() };
    let cheapest = match constraints.deadline_s {
        Some(_) => search.best(&free)?,
        None => search.least(|_, rough| Some(rough.cost), |figures| Some(figures.cost))?,
    };
    let cost = cheapest.and_then(|place| Some(search.found(place)?.figures.cost));
    let larger = cost.filter(|cost| *cost > budget).map(round_up);
    Ok(larger.map(|larger| Constraints { budget_dollars: Some(larger), ..constraints.clone() }))
}

/// The same wishes with the highest probability that is reached.
fn less_confidence(search: &Search, constraints: &Constraints) -> Option<Constraints> {
    let deadline_s = constraints.deadline_s?;
    let fits = |cost: f64| constraints.budget_dollars.is_none_or(|budget| cost <= budget);
    let found = search.all_found().filter(|(_, found)| fits(found.figures.cost));
    let most = found.map(|(_, found)| found.figures.meets(deadline_s)).fold(0.0, f64::max);
    let confidence = (most * 100.0).floor() / 100.0;
    let is_less = confidence >= LEAST_CONFIDENCE && confidence < constraints.confidence;
    is_less.then(|| Constraints { confidence, ..constraints.clone() })
}

/// Name, expected time and expected cost.
fn shown(search: &Search, place: usize) -> (String, f64, f64) {
    let candidate = search.candidate(place);
    candidate.map_or((String::new(), 0.0, 0.0), |c| (c.words(), c.time_s, c.cost_dollars))
}

fn typed_s(text: &str) -> Option<f64> {
    text.parse().ok().map(Seconds::get)
}

fn money(dollars: f64) -> String {
    if dollars.is_finite() { Dollars::new(dollars).to_string() } else { "$…".to_string() }
}

/// As money is written, and no less.
fn round_up(dollars: f64) -> f64 {
    let unit = if dollars >= 0.1 { 0.01 } else { libm::pow(10.0, libm::log10(dollars).floor() - 2.0) };
    (dollars / unit).ceil() * unit
}

fn percent(share: f64) -> String {
    let percent = (share * 1000.0).floor() / 10.0;
    format!("{percent} %")
}
