//! Arrivals by the gaps between them: which gap comes next, and which class of jobs, depends on a hidden state.
//!
//! Rates that change in steps have exponential gaps within each step. People submit jobs otherwise: a loop submits a
//! hundred in a second, a hand one per minute, and then nothing comes until the next morning. Here the gaps are those
//! that were seen, sorted into kinds from short to long; a state says how likely each kind is, how likely each class of
//! jobs is, and which state the next job has. Since states last, short gaps follow short ones, and the jobs of a burst
//! are alike.

use bellwether_core::InputError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::law::Amount;

/// More states than this describe nothing.
const STATES_MAX: usize = 64;

/// A state of a law of gaps; it changes from job to job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GapState {
    /// How often each kind of gap comes before a job of this state, relative to the others.
    pub gaps: Vec<f64>,
    /// How often each state is that of the next job, relative to the others.
    pub next: Vec<f64>,
    /// How often a job is of each class, relative to the others; the shares of the classes where nothing is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<f64>,
}

/// Whether jobs of `classes` classes can be drawn.
pub(super) fn check(gaps: &[Vec<Amount>], states: &[GapState], classes: usize) -> Result<(), InputError> {
    let wrong = |what: String| Err(InputError::new("arrivals", what));
    let is_gap = |gap: &Amount| (0.0..=1e12).contains(&gap.0);
    if gaps.is_empty() || gaps.iter().any(|kind| kind.is_empty() || !kind.iter().all(is_gap)) {
        return wrong("`gaps` needs lists of times from 0 to 1e12 s, none of them empty".into());
    }
    if states.is_empty() || states.len() > STATES_MAX {
        return wrong(format!("a law of gaps has 1 to {STATES_MAX} states, not {}", states.len()));
    }
    for (at, state) in states.iter().enumerate() {
        let odds = [
            ("gaps", &state.gaps, gaps.len(), "kinds of gaps"),
            ("next", &state.next, states.len(), "states"),
            ("classes", &state.classes, classes, "classes"),
        ];
        for (name, odds, needed, what) in odds {
            if name == "classes" && odds.is_empty() {
                continue;
            }
            if odds.len() != needed {
                let found = odds.len();
                let number = at + 1;
                return wrong(format!(
                    "`{name}` of state {number} has {found} numbers for {needed} {what}: give one for each"
                ));
            }
            let fine = odds.iter().all(|odd| (0.0..=1e12).contains(odd)) && odds.iter().any(|odd| *odd > 0.0);
            if !fine {
                let number = at + 1;
                return wrong(format!(
                    "`{name}` of state {number} needs numbers from 0 to 1e12, one of them above 0"
                ));
            }
        }
    }
    if frequencies(states).is_none() {
        return wrong("by `next`, some state is never reached or never left: remove it".into());
    }
    Ok(())
}

/// How many of all jobs each state has; `None` where not every state leads to every other.
///
/// States are taken out one after the other, as Grassmann, Taksar and Heyman do: only positive numbers are added, so
/// even states that hardly ever change lose no digits.
pub(super) fn frequencies(states: &[GapState]) -> Option<Vec<f64>> {
    let shares = |state: &GapState| {
        let sum: f64 = state.next.iter().sum();
        state.next.iter().map(|odd| odd / sum).collect()
    };
    let mut next: Vec<Vec<f64>> = states.iter().map(shares).collect();
    for out in (1..states.len()).rev() {
        let left: f64 = next[out][..out].iter().sum();
        if left <= 0.0 {
            return None;
        }
        let through = next[out].clone();
        for row in &mut next[..out] {
            row[out] /= left;
            let into = row[out];
            row.iter_mut().zip(&through).take(out).for_each(|(odd, onwards)| *odd += into * onwards);
        }
    }
    let mut frequencies = vec![1.0];
    for state in 1..states.len() {
        let into = frequencies.iter().zip(&next).map(|(frequency, row)| frequency * row[state]).sum();
        frequencies.push(into);
    }
    let sum: f64 = frequencies.iter().sum();
    frequencies.iter_mut().for_each(|frequency| *frequency /= sum);
    frequencies.iter().all(|frequency| frequency.is_finite() && *frequency > 0.0).then_some(frequencies)
}

/// Seconds between two jobs on average.
pub(super) fn mean_s(gaps: &[Vec<Amount>], states: &[GapState]) -> f64 {
    let means: Vec<f64> =
        gaps.iter().map(|kind| kind.iter().map(|gap| gap.0).sum::<f64>() / kind.len() as f64).collect();
    averaged(states, |state| &state.gaps).iter().zip(means).map(|(share, mean_s)| share * mean_s).sum()
}

/// The odds of a state, averaged over all jobs; they sum to 1.
pub(super) fn averaged(states: &[GapState], odds: impl Fn(&GapState) -> &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; odds(&states[0]).len()];
    for (state, frequency) in states.iter().zip(frequencies(states).unwrap_or_default()) {
        let sum: f64 = odds(state).iter().sum();
        shares.iter_mut().zip(odds(state)).for_each(|(share, odd)| *share += frequency * odd / sum);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(next: &[f64]) -> GapState {
        GapState { gaps: vec![1.0], next: next.to_vec(), classes: Vec::new() }
    }

    #[test]
    fn frequencies_by_hand() {
        // Flows between neighbours are equal: a : b = 1 : 2, b : c = 3 : 1.
        let states = [state(&[8.0, 2.0, 0.0]), state(&[0.1, 0.8, 0.1]), state(&[0.0, 0.3, 0.7])];
        let found = frequencies(&states).unwrap();
        for (found, hand) in found.iter().zip([3.0 / 11.0, 6.0 / 11.0, 2.0 / 11.0]) {
            assert!((found - hand).abs() < 1e-14, "{found} {hand}");
        }
        let slow = [state(&[1.0, 1e-18]), state(&[3e-18, 1.0])];
        assert!((frequencies(&slow).unwrap()[0] - 0.75).abs() < 1e-14);
        assert_eq!(frequencies(&[state(&[1.0, 0.0]), state(&[0.5, 0.5])]), None);
        assert_eq!(frequencies(&[state(&[0.5, 0.5]), state(&[0.0, 1.0])]), None);
        assert_eq!(frequencies(&[state(&[2.0])]), Some(vec![1.0]));
    }

    #[test]
    fn means_are_those_of_the_states() {
        let gaps = [vec![Amount(0.0)], vec![Amount(10.0), Amount(30.0)]];
        let states = [
            GapState { gaps: vec![3.0, 1.0], next: vec![3.0, 1.0], classes: vec![1.0, 0.0] },
            GapState { gaps: vec![0.0, 2.0], next: vec![1.0, 1.0], classes: vec![1.0, 1.0] },
        ];
        // States are as 2 to 1.
        assert!((mean_s(&gaps, &states) - (2.0 * 5.0 + 20.0) / 3.0).abs() < 1e-12);
        let shares = averaged(&states, |state| &state.classes);
        assert!((shares[0] - 2.5 / 3.0).abs() < 1e-12 && (shares[1] - 0.5 / 3.0).abs() < 1e-12);
    }
}
