//! Which one configuration each job should have, so that the sum of all values is largest.
//!
//! ```text
//! maximise    sum of the values of what is taken
//! subject to  at most one candidate per job; of each type no more devices than there are
//! ```
//!
//! This is the integer program of Sia (Subramanya et al., SOSP 2023), a multiple-choice knapsack with a capacity per
//! type. The linear relaxation gives a price per device of each type. At these prices every candidate has a *regret*:
//! what is lost against the job's best one; so has every device that stays idle: its price. What a choice loses against
//! the bound of the relaxation is the sum of its regrets, so a candidate whose regret alone is above what a known
//! choice loses cannot be part of a better one. Few candidates remain, and over these a dynamic program goes job by
//! job, whose states are the devices used. It keeps a limited number of states, the least lossy; what it dropped bounds
//! what it may have missed, and that gap is part of the answer.

use bellwether_numerics::grouped::{Capacity, Columns, minimise};

/// One thing that a job may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// What it is worth; not worth taking at 0 or less.
    pub value: f64,
    /// The type of its devices.
    pub device_type: usize,
    /// How many of them.
    pub devices: u32,
}

/// What to take.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// For each job the place of its candidate, or nothing.
    pub taken: Vec<Option<usize>>,
    /// The sum of values.
    pub value: f64,
    /// No choice is worth more than `value` and this, but for rounding; 0 when the choice is proven best.
    pub gap: f64,
}

/// States that [`best`] keeps per job in the end, after it has looked with fewer.
const WIDTHS: [usize; 3] = [32, 512, 8_192];

/// Differences of values, as parts of the bound, that are rounding.
const ROUNDING: f64 = 1e-10;

/// The choice with the largest sum of values, or one and how far it may be from that. The same input gives the same
/// choice; of equally good ones it is any, but always the same. Where the ways to use the types and devices cannot be
/// numbered (more than 10^19), a greedy choice has to do.
///
/// # Panics
///
/// When a candidate is of a type that is not there.
pub fn best(jobs: &[Vec<Candidate>], devices: &[u32]) -> Choice {
    if devices.is_empty() {
        return Choice { taken: vec![None; jobs.len()], value: 0.0, gap: 0.0 };
    }
    let problem = Problem::new(jobs, devices);
    let mut incumbent = problem.greedy();
    let mut missed = problem.loss(&incumbent);
    let strides = problem.strides();
    for (width, strides) in WIDTHS.into_iter().zip(strides.iter().cycle()) {
        let found = problem.search(problem.loss(&incumbent), width, strides);
        if let Some(better) = found.better {
            incumbent = better;
        }
        missed = problem.loss(&incumbent) - found.missed;
        if missed <= problem.rounding {
            missed = 0.0;
            break;
        }
    }
    let value = (0..jobs.len()).filter_map(|job| incumbent[job].map(|place| jobs[job][place].value)).sum();
    Choice { taken: incumbent, value, gap: missed }
}

struct Problem<'a> {
    jobs: &'a [Vec<Candidate>],
    devices: &'a [u32],
    /// Price of a device of each type.
    prices: Vec<f64>,
    /// What remains of each candidate's value after its devices are paid.
    profits: Vec<Vec<f64>>,
    /// The largest profit of each job, and at least the 0 of nothing.
    most: Vec<f64>,
    /// What the relaxation takes whole.
    whole: Vec<Option<usize>>,
    /// What does not count as a difference.
    rounding: f64,
}

/// What a search found.
struct Found {
    better: Option<Vec<Option<usize>>>,
    /// Nothing loses less than this.
    missed: f64,
}

/// Devices used so far, as one number, and what was lost for it.
#[derive(Debug, Clone, Copy)]
struct State {
    used: u64,
    loss: f64,
    /// Place of the state of the job before that it came from.
    from: u32,
    /// Place among the job's alternatives.
    alternative: u32,
}

/// A candidate, or nothing, that may still be part of a better choice.
#[derive(Debug, Clone, Copy)]
struct Alternative {
    place: Option<usize>,
    regret: f64,
}

impl<'a> Problem<'a> {
    fn new(jobs: &'a [Vec<Candidate>], devices: &'a [u32]) -> Problem<'a> {
        let types = devices.len();
        let mut columns = Columns::new(types);
        let mut places = Vec::new();
        for candidates in jobs {
            columns.push(0.0, vec![0.0; types]);
            places.push(None);
            for (place, candidate) in candidates.iter().enumerate() {
                if candidate.value > 0.0 && candidate.devices <= devices[candidate.device_type] {
                    let used =
                        |k| if k == candidate.device_type { f64::from(candidate.devices) } else { 0.0 };
                    columns.push(-candidate.value, (0..types).map(used));
                    places.push(Some(place));
                }
            }
            columns.end_group();
        }
        let capacity: Vec<f64> = devices.iter().map(|&count| f64::from(count)).collect();
        let optimum = minimise(&columns, &capacity, Capacity::Hard, &[]);
        let prices = optimum.prices;
        let whole_of = |job| columns.group(job).find(|&column| optimum.parts[column] > 1.0 - 1e-9);
        let whole = (0..jobs.len()).map(|job| whole_of(job).and_then(|column| places[column])).collect();
        let profit = |candidate: &Candidate| {
            if candidate.value > 0.0 && candidate.devices <= devices[candidate.device_type] {
                candidate.value - prices[candidate.device_type] * f64::from(candidate.devices)
            } else {
                f64::NEG_INFINITY
            }
        };
        let profits: Vec<Vec<f64>> = jobs.iter().map(|job| job.iter().map(profit).collect()).collect();
        let most: Vec<f64> = profits
            .iter()
            .map(|of_job: &Vec<f64>| of_job.iter().fold(0.0, |most: f64, &p| most.max(p)))
            .collect();
        let paid: f64 = prices.iter().zip(&capacity).map(|(price, count)| price * count).sum();
        let bound = paid + most.iter().sum::<f64>();
        Problem { jobs, devices, prices, profits, most, whole, rounding: ROUNDING * bound.max(1e-300) }
    }

    fn regret(&self, job: usize, place: Option<usize>) -> f64 {
        self.most[job] - place.map_or(0.0, |place| self.profits[job][place])
    }

    /// What stays idle.
    fn free(&self, taken: &[Option<usize>]) -> Vec<u32> {
        let mut free = self.devices.to_vec();
        for (candidates, place) in self.jobs.iter().zip(taken) {
            if let Some(candidate) = place.map(|place| candidates[place]) {
                free[candidate.device_type] -= candidate.devices;
            }
        }
        free
    }

    /// What a choice loses against the bound of the relaxation.
    fn loss(&self, taken: &[Option<usize>]) -> f64 {
        let idle: f64 =
            self.free(taken).iter().zip(&self.prices).map(|(&count, price)| f64::from(count) * price).sum();
        idle + taken.iter().enumerate().map(|(job, &place)| self.regret(job, place)).sum::<f64>()
    }

    /// What the relaxation takes whole, and then the change of one job that gains most, as long as there is one.
    fn greedy(&self) -> Vec<Option<usize>> {
        let mut taken = self.whole.clone();
        let mut free = self.free(&taken);
        loop {
            let mut best = (self.rounding, None);
            for (job, candidates) in self.jobs.iter().enumerate() {
                let now = taken[job].map(|place| candidates[place]);
                for (place, candidate) in candidates.iter().enumerate() {
                    let released = now
                        .filter(|now| now.device_type == candidate.device_type)
                        .map_or(0, |now| now.devices);
                    let gain = candidate.value - now.map_or(0.0, |now| now.value);
                    if gain > best.0 && candidate.devices <= free[candidate.device_type] + released {
                        best = (gain, Some((job, place)));
                    }
                }
            }
            let Some((job, place)) = best.1 else { return taken };
            if let Some(old) = taken[job].map(|place| self.jobs[job][place]) {
                free[old.device_type] += old.devices;
            }
            free[self.jobs[job][place].device_type] -= self.jobs[job][place].devices;
            taken[job] = Some(place);
        }
    }

    /// What each job may have in a choice that loses less than `limit`; first those jobs for whom another choice loses
    /// most, so that states stay few for long.
    fn alternatives(&self, limit: f64) -> Vec<(usize, Vec<Alternative>)> {
        let of_job = |job: usize| {
            let places = (0..self.jobs[job].len()).map(Some).chain([None]);
            let all = places.map(|place| Alternative { place, regret: self.regret(job, place) });
            let mut few: Vec<Alternative> = all.filter(|alternative| alternative.regret < limit).collect();
            few.sort_by(|a, b| a.regret.total_cmp(&b.regret));
            (job, few)
        };
        let mut jobs: Vec<(usize, Vec<Alternative>)> = (0..self.jobs.len()).map(of_job).collect();
        let second = |few: &[Alternative]| few.get(1).map_or(f64::INFINITY, |alternative| alternative.regret);
        jobs.sort_by(|(_, a), (_, b)| second(b).total_cmp(&second(a)));
        jobs
    }

    /// Looks for a choice that loses less than `limit`, with at most `width` states per job.
    fn search(&self, limit: f64, width: usize, strides: &[u64]) -> Found {
        let limit = limit - self.rounding;
        let jobs = self.alternatives(limit);
        // The most that the jobs from here on can use of each type: what is free beyond that stays idle.
        let mut reach = vec![vec![0; self.devices.len()]; jobs.len() + 1];
        for (step, (job, few)) in jobs.iter().enumerate().rev() {
            reach[step] = reach[step + 1].clone();
            for (k, reach) in reach[step].iter_mut().enumerate() {
                let of_type = |place: usize| {
                    Some(self.jobs[*job][place]).filter(|candidate| candidate.device_type == k)
                };
                let uses =
                    few.iter().filter_map(|a| a.place.and_then(of_type)).map(|candidate| candidate.devices);
                *reach += uses.max().unwrap_or(0);
            }
        }
        let mut layers = vec![vec![State { used: 0, loss: 0.0, from: 0, alternative: 0 }]];
        let mut missed = f64::INFINITY;
        for (step, (job, few)) in jobs.iter().enumerate() {
            let idle = |used: u64| self.idle(used, strides, &reach[step + 1]);
            let mut next = Vec::new();
            for (index, alternative) in few.iter().enumerate() {
                let candidate = alternative.place.map(|place| self.jobs[*job][place]);
                for (from, state) in layers[step].iter().enumerate() {
                    let Some(used) = self.with(state.used, candidate, strides) else { continue };
                    let loss = state.loss + alternative.regret;
                    if loss < limit && loss + idle(used) < limit {
                        next.push(State { used, loss, from: from as u32, alternative: index as u32 });
                    }
                }
            }
            // Stable: each alternative's states are in order already, and of equals the first stays.
            next.sort_by(|a, b| a.used.cmp(&b.used).then(a.loss.total_cmp(&b.loss)));
            next.dedup_by_key(|state| state.used);
            if next.len() > width {
                next.sort_by(|a, b| (a.loss + idle(a.used)).total_cmp(&(b.loss + idle(b.used))));
                missed = missed.min(next[width].loss + idle(next[width].used));
                next.truncate(width);
                next.sort_by_key(|state| state.used);
            }
            layers.push(next);
        }
        let better = self.trace(&jobs, &layers, strides);
        let found = better.as_deref().map_or(limit + self.rounding, |taken| self.loss(taken));
        Found { better, missed: missed.min(found) }
    }

    /// The choice that loses least in the last layer.
    fn trace(
        &self,
        jobs: &[(usize, Vec<Alternative>)],
        layers: &[Vec<State>],
        strides: &[u64],
    ) -> Option<Vec<Option<usize>>> {
        let nothing = vec![0; self.devices.len()];
        let total = |state: &State| state.loss + self.idle(state.used, strides, &nothing);
        let mut state = layers[jobs.len()].iter().min_by(|a, b| total(a).total_cmp(&total(b)))?;
        let mut taken = vec![None; jobs.len()];
        for (step, (job, few)) in jobs.iter().enumerate().rev() {
            taken[*job] = few[state.alternative as usize].place;
            state = &layers[step][state.from as usize];
        }
        Some(taken)
    }

    /// What a device of each type counts in the number of a state; `None` where there are too many states.
    fn strides(&self) -> Option<Vec<u64>> {
        let mut stride = 1_u64;
        let next = |&count: &u32| {
            let this = stride;
            stride = stride.checked_mul(u64::from(count) + 1)?;
            Some(this)
        };
        self.devices.iter().map(next).collect()
    }

    fn used(&self, used: u64, k: usize, strides: &[u64]) -> u32 {
        (used / strides[k] % (u64::from(self.devices[k]) + 1)) as u32
    }

    /// The state after a candidate is taken, if it fits.
    fn with(&self, used: u64, candidate: Option<Candidate>, strides: &[u64]) -> Option<u64> {
        let Some(Candidate { device_type: k, devices, .. }) = candidate else { return Some(used) };
        let fits = self.used(used, k, strides) + devices <= self.devices[k];
        fits.then(|| used + u64::from(devices) * strides[k])
    }

    /// What idle devices lose at least when others can still take this many.
    fn idle(&self, used: u64, strides: &[u64], reach: &[u32]) -> f64 {
        let of_type = |k: usize| {
            let left = self.devices[k] - self.used(used, k, strides);
            self.prices[k] * f64::from(left.saturating_sub(reach[k]))
        };
        (0..self.devices.len()).map(of_type).sum()
    }
}
