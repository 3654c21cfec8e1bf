//! Many jobs: each gets its part of the fullest of its links.

use std::collections::BTreeMap;

use super::{Flow, ROUNDS_MAX, SETTLED};

/// The stretch of each job's exchange.
pub(super) fn stretches(flows: &[&Flow<'_>]) -> Vec<f64> {
    let count = flows.len();
    let sharing = Sharing::new(flows);
    // How much of the time j finds k exchanging, at k * count + j.
    let mut found = vec![0.0; count * count];
    let mut stretches = vec![1.0; count];
    for _ in 0..ROUNDS_MAX {
        let mut change = 0.0f64;
        for (k, flow) in flows.iter().enumerate() {
            stretches[k] = sharing.stretch(k, None, |other| found[other * count + k]);
            let idle = flow.exchange.idle(stretches[k]);
            for &j in &sharing.rivals[k] {
                let without = sharing.stretch(k, Some(j), |other| found[other * count + k]);
                let exchange = flow.exchange.alone() * without;
                let active = exchange / (exchange + idle);
                change = change.max((active - found[k * count + j]).abs());
                found[k * count + j] = active;
            }
        }
        if change < SETTLED {
            break;
        }
    }
    stretches
}

/// Who shares which link with whom.
struct Sharing {
    /// The others on each link of each job, where they are others than on its other links.
    crowds: Vec<Vec<Vec<usize>>>,
    rivals: Vec<Vec<usize>>,
}

impl Sharing {
    fn new(flows: &[&Flow<'_>]) -> Sharing {
        let mut by_link = BTreeMap::<u32, Vec<usize>>::new();
        for (job, flow) in flows.iter().enumerate() {
            flow.links.iter().for_each(|link| by_link.entry(*link).or_default().push(job));
        }
        let crowds_of = |(job, flow): (usize, &&Flow<'_>)| {
            let others = |link| by_link[link].iter().copied().filter(|other| *other != job).collect();
            let mut crowds: Vec<Vec<usize>> = flow.links.iter().map(others).collect();
            crowds.sort_by(|left, right| right.len().cmp(&left.len()).then_with(|| left.cmp(right)));
            let mut largest: Vec<Vec<usize>> = Vec::new();
            for crowd in crowds {
                // A link is never fuller than one with the same jobs and more.
                if !largest.iter().any(|known| crowd.iter().all(|other| known.contains(other))) {
                    largest.push(crowd);
                }
            }
            largest
        };
        let crowds: Vec<Vec<Vec<usize>>> = flows.iter().enumerate().map(crowds_of).collect();
        let rivals_of = |crowds: &Vec<Vec<usize>>| {
            let mut rivals: Vec<usize> = crowds.iter().flatten().copied().collect();
            rivals.sort_unstable();
            rivals.dedup();
            rivals
        };
        let rivals = crowds.iter().map(rivals_of).collect();
        Sharing { crowds, rivals }
    }

    /// The mean of `1 / r` of `job`, while every other one, except `without`, exchanges for the part of the time that
    /// `active` says.
    fn stretch(&self, job: usize, without: Option<usize>, active: impl Fn(usize) -> f64) -> f64 {
        let crowds = &self.crowds[job];
        let most = crowds.iter().map(Vec::len).max().unwrap_or(0);
        // How likely it is that no link has more others than 0, 1, …
        let mut at_most = vec![1.0; most];
        for crowd in crowds {
            let mut exactly = vec![1.0];
            for other in crowd.iter().filter(|other| Some(**other) != without) {
                let active = active(*other);
                exactly.push(0.0);
                for number in (0..exactly.len()).rev() {
                    let from_fewer = if number > 0 { exactly[number - 1] * active } else { 0.0 };
                    exactly[number] = exactly[number] * (1.0 - active) + from_fewer;
                }
            }
            let mut sum = 0.0;
            for (number, at_most) in at_most.iter_mut().enumerate() {
                sum += exactly.get(number).copied().unwrap_or(0.0);
                *at_most *= sum.min(1.0);
            }
        }
        1.0 + at_most.into_iter().map(|at_most| 1.0 - at_most).sum::<f64>()
    }
}
