//! Successive halving: one in `reduction` trials of a rung goes on to the next one, which is `reduction` times as long.
//!
//! - *ASHA* (Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht and Talwalkar, A System for Massively Parallel
//!   Hyperparameter Tuning, MLSys 2020): a trial goes on as soon as it is among the best ⌊n/η⌋ of the n that have
//!   reached its rung so far; where none does, another trial begins.
//! - *Hyperband* (Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar, JMLR 18, 2018): brackets s = S … 0 of
//!   ⌈(S+1)/(s+1) η^s⌉ trials, the first rung of which is the (S-s)th of the ladder; S+1 is the number of rungs. The
//!   best ⌊n/η⌋ of a rung go on once all have reached it. Brackets begin one after another, and again from the first;
//!   slots that a bracket leaves free are taken by the next one. Of a bracket that the budget cut short at least one
//!   trial goes on.
//!
//! Equal figures are ordered by the number of the trial. A trial that failed counts as one that reached its rung with
//! the worst figure in Hyperband, and not at all in ASHA.

use bellwether_core::sweep::{Ladder, TrialScheduler};

pub use super::reason::Standing;
use super::{Decision, Reason, Search, Trial, TrialState};

/// A bracket of Hyperband: the trials in it and the first of its rungs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bracket {
    /// Its first trial.
    pub first: u64,
    /// Its trials.
    pub trials: u64,
    /// Rungs of the ladder that it leaves out at the beginning.
    pub skips: u32,
}

/// The bracket in which a trial is.
///
/// ```
/// # use bellwether_core::sweep::Ladder;
/// # use bellwether_sched::search::rungs::{Bracket, bracket};
/// // Table 1 of the source: R = 81, η = 3 gives 81, 34, 15, 8 and 5 trials.
/// let ladder = Ladder { minimum: 1, maximum: 81, reduction: 3 };
/// let of = |trial| bracket(&ladder, trial);
/// assert_eq!(of(80), Bracket { first: 0, trials: 81, skips: 0 });
/// assert_eq!(of(81), Bracket { first: 81, trials: 34, skips: 1 });
/// assert_eq!(of(142), Bracket { first: 138, trials: 5, skips: 4 });
/// assert_eq!(of(143), Bracket { first: 143, trials: 81, skips: 0 });
/// ```
pub fn bracket(ladder: &Ladder, trial: u64) -> Bracket {
    let rungs = ladder.rungs(0).len() as u64;
    let sizes: Vec<u64> = (0..rungs)
        .map(|skips| {
            let s = rungs - 1 - skips;
            let power = ladder.reduction.saturating_pow(u32::try_from(s).unwrap_or(u32::MAX));
            rungs.saturating_mul(power).div_ceil(s + 1)
        })
        .collect();
    let round = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
    let mut first = trial - trial % round;
    for (skips, trials) in (0..).zip(sizes) {
        if trial - first < trials {
            return Bracket { first, trials, skips };
        }
        first += trials;
    }
    // A round holds every trial.
    Bracket { first: trial, trials: 1, skips: 0 }
}

/// The rungs of a trial; none where trials have none.
fn rungs(search: &Search, trial: u64) -> Vec<u64> {
    let Some(ladder) = search.plan().ladder else { return Vec::new() };
    match search.plan().scheduler {
        TrialScheduler::Asha(_) => ladder.rungs(0),
        TrialScheduler::Hyperband(_) => ladder.rungs(bracket(&ladder, trial).skips),
        TrialScheduler::Median(_) => vec![ladder.maximum],
        TrialScheduler::None => Vec::new(),
    }
}

/// The length of a trial's first rung.
pub(super) fn first(search: &Search, trial: u64) -> Option<u64> {
    rungs(search, trial).first().copied()
}

/// The trials that are compared with this one at a rung, and how many of them go on: those of its bracket, or all.
fn peers<'s>(search: &'s Search, trial: &Trial, at: u64) -> (Vec<&'s Trial>, bool) {
    let reached = |other: &&Trial| other.reports.contains_key(&at);
    let TrialScheduler::Hyperband(_) = search.plan().scheduler else {
        return (search.trials.iter().filter(reached).collect(), false);
    };
    let Some(ladder) = search.plan().ladder else { return (Vec::new(), false) };
    let Bracket { first, trials, .. } = bracket(&ladder, trial.number);
    let numbers = first as usize..(first + trials).min(search.trials.len() as u64) as usize;
    (search.trials[numbers].iter().collect(), true)
}

/// A trial's place among those that reached its rung.
pub(super) fn standing(search: &Search, trial: &Trial) -> Option<Standing> {
    let at = trial.to?;
    let cost = |trial: &Trial| {
        trial.reports.get(&at).map_or(f64::INFINITY, |figure| search.plan().metric.cost(*figure))
    };
    trial.reports.get(&at)?;
    let (peers, is_bracket) = peers(search, trial, at);
    // Of a bracket those that could have reached this rung.
    let entered = |other: &&&Trial| other.to.is_some_and(|to| to >= at);
    let peers: Vec<&&Trial> = peers.iter().filter(entered).collect();
    let mine = cost(trial);
    let is_better = |other: &&&&Trial| {
        let theirs = cost(other);
        theirs.total_cmp(&mine).then(other.number.cmp(&trial.number)).is_lt()
    };
    let place = 1 + peers.iter().filter(is_better).count() as u64;
    let of = peers.len() as u64;
    let reduction = search.plan().ladder?.reduction;
    let kept = if is_bracket { (of / reduction).max(1) } else { of / reduction };
    Some(Standing { at, place, of, kept })
}

/// Whether all trials of a bracket have reached this rung, or ended.
fn is_full(search: &Search, trial: &Trial, at: u64) -> bool {
    let Some(ladder) = search.plan().ladder else { return false };
    let Bracket { first, trials, .. } = bracket(&ladder, trial.number);
    let begun = search.trials.len() as u64;
    if begun < first + trials && search.can_begin() {
        return false;
    }
    let done = |other: &Trial| other.reports.contains_key(&at) || other.state.has_ended();
    search.trials[first as usize..(first + trials).min(begun) as usize].iter().all(done)
}

/// Lets the trial, which has reached its rung, go on to the next one if it is among the best.
pub(super) fn promotion(search: &Search, trial: &Trial) -> Option<Decision> {
    let at = trial.to?;
    let to = rungs(search, trial.number).into_iter().find(|rung| *rung > at)?;
    let standing = standing(search, trial)?;
    let may = match search.plan().scheduler {
        TrialScheduler::Asha(_) => true,
        TrialScheduler::Hyperband(_) => is_full(search, trial, at),
        _ => false,
    };
    (may && standing.place <= standing.kept).then_some(Decision::Continue {
        trial: trial.number,
        to,
        reason: Reason::Promoted { standing },
    })
}

/// Lets a trial that waits go on: of those that may, one that climbed highest, the best of them.
pub(super) fn promoted(search: &Search) -> Option<Decision> {
    let waiting = search.trials.iter().filter(|trial| trial.state == TrialState::Paused);
    let ready = waiting.filter_map(|trial| Some((trial, promotion(search, trial)?)));
    let order = |trial: &Trial| {
        let (at, cost) = search.latest(trial).unwrap_or((0, f64::INFINITY));
        (u64::MAX - at, cost)
    };
    let first = ready.min_by(|(a, _), (b, _)| {
        let ((a_left, a_cost), (b_left, b_cost)) = (order(a), order(b));
        a_left.cmp(&b_left).then(a_cost.total_cmp(&b_cost)).then(a.number.cmp(&b.number))
    });
    first.map(|(_, decision)| decision)
}

/// Ends a trial of a bracket whose rung is full, and which is not among the best.
pub(super) fn halved(search: &Search) -> Option<Decision> {
    let TrialScheduler::Hyperband(_) = search.plan().scheduler else { return None };
    let mut waiting = search.trials.iter().filter(|trial| trial.state == TrialState::Paused);
    waiting.find_map(|trial| {
        let standing = standing(search, trial)?;
        (standing.place > standing.kept && is_full(search, trial, standing.at))
            .then_some(Decision::Stop { trial: trial.number, reason: Reason::Outdone { standing } })
    })
}
