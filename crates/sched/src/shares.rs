//! How the workers of a run share its virtual nodes by what their steps take, and which of them are in the way.
//!
//! ```text
//! t_i      median over the last K steps of (compute time / virtual nodes) of worker i
//! S        median over the last K steps of (time of the step - longest compute time)
//! R        median over the last K steps of the longest update
//! X        = max(S - R, 0)                         the exchange, without waiting for the last to compute
//! v(n)     = 2 (U - 1)/U p(n)                     vectors through a worker's link, each way
//! l(n)     = max_i b / B_i                         over those who have nodes; scaled so that l(now) v(now) <= X
//! F        = X - l(now) v(now)                     0 for one worker alone
//! T(n)     = max_i n_i t_i + F + l(n) v(n) + min(R, S)
//! expected = T(n) (median time of a step / T(now))
//! gain(n)  = T(now) / T(n) - 1
//! ```
//!
//! | symbol | meaning                                                                     | unit |
//! |--------|-----------------------------------------------------------------------------|------|
//! | n_i    | virtual nodes of worker i, which follow each other by rank; they sum to V    | 1    |
//! | U      | workers with any                                                             | 1    |
//! | p(n)   | most partial sums that a worker has: its complete subtrees of the sum        | 1    |
//! | b      | bytes of a gradient                                                          | B    |
//! | B_i    | bandwidth of the worker's link, where it was measured; else 1 GB/s, as shared memory has | B/s |
//! | e      | `1.2533 · 1.4826 MAD / (median · sqrt K)`: relative error of a median, the largest over the workers | 1 |
//!
//! Candidates with all workers are the exact mapping of whole blocks of 1, 2, 4, … nodes: uneven shares cut the tree of
//! the sum into more parts, and aligned ones into fewer. Candidates that leave workers out come from
//! [`mapping::solve`], for all workers whose link is no slower than one of them.
//!
//! *Hysteresis*: shares change for a gain above `gain + deviations · e` in `dwell_steps` steps in a row, of the same
//! kind; no step counts before the present workers have done `K/2 + 1` together. A change back to the shares before
//! the last change needs twice the gain, and twice as much each time. A worker that turns slow moves its median after
//! `K/2 + 1` steps. *Leaving out*: where T without some workers is less than T of the best shares with all, by the
//! same margin; where the job allows no fewer workers, it is said once.
//!
//! Assumes that a worker's nodes take as long one by one whatever their number, that steps do not overlap, and that
//! what a link carries takes its bandwidth as long as the exchange takes. Valid where all wait for all and workers sum
//! gradients among themselves. A link that turns slow later is seen as a longer X, and no worker is named for it. A
//! plain state machine over numbers that it is given; it reads no clock. Checked by property (noise never moves shares
//! to and fro, a change is followed within 20 steps) and beside runs of two builds.

use std::collections::{BTreeMap, VecDeque};

use bellwether_core::InputError;
use bellwether_core::tree::{maximal_nodes, ranges_by_speed};
use serde::{Deserialize, Serialize};

use crate::mapping::{self, Problem, Worker};

/// The standard error of a median, beside that of a mean.
const MEDIAN_ERROR: f64 = 1.2533;
/// Bytes per second to a worker whose link was not measured: it is on the coordinator's machine.
const LOCAL_BYTES_PER_S: f64 = 1e9;
/// The standard deviation of a normal law, in median absolute deviations.
const DEVIATION: f64 = 1.4826;
/// Most doublings of the gain that a change back needs.
const DOUBLINGS_MAX: u32 = 3;

/// When shares change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Steps of which medians are taken (K), at least 1.
    pub window: usize,
    /// Relative gain above which a change pays.
    pub gain: f64,
    /// Relative errors of the medians by which the gain must also be above that.
    pub deviations: f64,
    /// Steps in a row that must agree, at least 1.
    pub dwell_steps: u32,
}

/// One worker in one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The worker.
    pub worker: u64,
    /// Virtual nodes that it has.
    pub virtual_nodes: u32,
    /// Seconds of computing all of them, once.
    pub compute_s: f64,
}

/// One step that all workers did together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The workers, by rank.
    pub workers: Vec<Observation>,
    /// Seconds of the step: the longest of a worker.
    pub step_s: f64,
    /// Seconds of the update: the longest of a worker.
    pub update_s: f64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Share the virtual nodes otherwise among the same workers.
    Share,
    /// Go on without the workers that have no nodes here: they hold up the others more than they help.
    LeaveOut,
    /// Nothing: the step would be shorter without these workers, and the job has no fewer.
    Told,
}

/// Other shares, and what they are worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What to do.
    pub action: Action,
    /// Virtual nodes of each worker, by rank; 0 for one that is left out.
    pub counts: Vec<(u64, u32)>,
    /// Seconds of a step now, as measured.
    pub step_s: f64,
    /// Seconds of a step that are expected with all workers, shared as well as can be.
    pub all_s: f64,
    /// Seconds of a step that are expected of the advice.
    pub expected_s: f64,
}

/// What is known of a run's workers and steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    limits: Limits,
    gradient_bytes: f64,
    /// Seconds of a virtual node in the last steps of each worker.
    nodes_s: BTreeMap<u64, VecDeque<f64>>,
    /// Seconds of a gradient through each worker's link.
    links_s: BTreeMap<u64, f64>,
    /// Who had how many virtual nodes in the last step.
    shares: Vec<(u64, u32)>,
    /// Of the steps since then: all of it, what follows the computing, and the update.
    steps_s: VecDeque<[f64; 3]>,
    /// Steps in a row that asked for this.
    streak: (Option<Action>, u32),
    /// The shares before the last change, and how often it went to and fro.
    before: Vec<(u64, u32)>,
    reversals: u32,
    /// The workers that were told to be in the way.
    told: Vec<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { window: 8, gain: 0.05, deviations: 3.0, dwell_steps: 3 }
    }
}

impl Advice {
    /// Workers that are left out.
    pub fn left_out(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().filter(|(_, count)| *count == 0).map(|(worker, _)| *worker)
    }
}

/// The model of a step at present.
struct Model<'s> {
    workers: Vec<u64>,
    node_s: Vec<f64>,
    links_s: Vec<f64>,
    virtual_nodes: u32,
    /// Seconds of the exchange that no link explains, and what a link takes relative to what was measured of it.
    fixed_s: f64,
    link_share: f64,
    rest_s: f64,
    shares: &'s [(u64, u32)],
}

impl Shares {
    /// Nothing is known yet of a run whose gradient has this many bytes.
    ///
    /// # Errors
    ///
    /// Returns an error for a window of no steps, or a gain or deviations below 0.
    pub fn new(limits: Limits, gradient_bytes: u64) -> Result<Shares, InputError> {
        let Limits { window, gain, deviations, .. } = limits;
        if window == 0 || !(gain >= 0.0 && gain.is_finite() && deviations >= 0.0 && deviations.is_finite()) {
            let what = format!("a window of {window}, gain {gain} and {deviations} deviations");
            return Err(InputError::new("shares", what).hint("give 1 step or more, and 0 or more of both"));
        }
        Ok(Shares {
            limits,
            gradient_bytes: gradient_bytes as f64,
            nodes_s: BTreeMap::new(),
            links_s: BTreeMap::new(),
            shares: Vec::new(),
            steps_s: VecDeque::new(),
            streak: (None, 0),
            before: Vec::new(),
            reversals: 0,
            told: Vec::new(),
        })
    }

    /// The link of a worker was measured: bytes per second, each way at once.
    pub fn link(&mut self, worker: u64, bandwidth_bytes_per_s: f64) {
        let seconds = self.gradient_bytes / bandwidth_bytes_per_s;
        if seconds.is_finite() && seconds >= 0.0 {
            self.links_s.insert(worker, seconds);
        }
    }

    /// Takes in a step; answers what is to be done, if anything, where at least `fewest` workers are to stay.
    ///
    /// A step without workers, or with numbers that are not positive and finite, is passed over.
    pub fn observe(&mut self, step: &Step, fewest: usize) -> Option<Advice> {
        let good = |seen: &Observation| seen.virtual_nodes > 0 && is_time(seen.compute_s);
        if step.workers.is_empty() || !step.workers.iter().all(good) || !is_time(step.step_s) {
            return None;
        }
        self.take(step);
        let least = self.limits.window / 2 + 1;
        let is_known = |(worker, _): &(u64, u32)| self.nodes_s[worker].len() >= least;
        if self.steps_s.len() < least || !self.shares.iter().all(is_known) {
            return None;
        }
        let advice = self.advise(fewest);
        let action = advice.as_ref().map(|advice| advice.action);
        let (asked, steps) = self.streak;
        self.streak = if asked == action { (action, steps + 1) } else { (action, 1) };
        let advice = advice.filter(|_| self.streak.1 >= self.limits.dwell_steps.max(1))?;
        self.streak = (None, 0);
        match advice.action {
            Action::Told => self.told = advice.left_out().collect(),
            Action::LeaveOut => self.steps_s.clear(),
            Action::Share => {
                // The change takes a few steps to begin.
                self.steps_s.clear();
                self.reversals = if advice.counts == self.before { self.reversals + 1 } else { 0 };
                self.before = self.shares.clone();
            }
        }
        Some(advice)
    }

    fn take(&mut self, step: &Step) {
        let shares: Vec<(u64, u32)> =
            step.workers.iter().map(|seen| (seen.worker, seen.virtual_nodes)).collect();
        if shares != self.shares {
            let stays = |worker: &u64| shares.iter().any(|(member, _)| member == worker);
            self.nodes_s.retain(|worker, _| stays(worker));
            self.steps_s.clear();
            (self.shares, self.streak) = (shares, (None, 0));
        }
        let mut longest_s: f64 = 0.0;
        for seen in &step.workers {
            longest_s = longest_s.max(seen.compute_s);
            let node_s = seen.compute_s / f64::from(seen.virtual_nodes);
            push(self.nodes_s.entry(seen.worker).or_default(), node_s, self.limits.window);
        }
        let after_s = (step.step_s - longest_s).max(0.0);
        let update_s = if is_time(step.update_s) { step.update_s } else { 0.0 };
        push(&mut self.steps_s, [step.step_s, after_s, update_s.min(after_s)], self.limits.window);
    }

    /// The relative error of the least certain median.
    fn error(&self) -> f64 {
        let error = |times: &VecDeque<f64>| {
            let middle = median(times.iter().copied());
            let spread = median(times.iter().map(|time| (time - middle).abs()));
            MEDIAN_ERROR * DEVIATION * spread / (middle * (times.len() as f64).sqrt())
        };
        self.nodes_s.values().map(error).fold(0.0, f64::max)
    }

    fn model(&self) -> Model<'_> {
        let [after_s, update_s] = [1, 2].map(|part| median(self.steps_s.iter().map(|step| step[part])));
        let mut model = Model {
            workers: self.shares.iter().map(|(worker, _)| *worker).collect(),
            node_s: self
                .shares
                .iter()
                .map(|(worker, _)| median(self.nodes_s[worker].iter().copied()))
                .collect(),
            links_s: self
                .shares
                .iter()
                .map(|(worker, _)| {
                    self.links_s.get(worker).copied().unwrap_or(self.gradient_bytes / LOCAL_BYTES_PER_S)
                })
                .collect(),
            virtual_nodes: self.shares.iter().map(|(_, count)| count).sum(),
            fixed_s: 0.0,
            link_share: 0.0,
            rest_s: update_s,
            shares: &self.shares,
        };
        let counts = model.present();
        let exchange_s = (after_s - update_s).max(0.0);
        let linked_s = model.link_s(&counts) * model.vectors(&counts);
        if linked_s > 0.0 {
            // A link that was slower when it was measured takes as long as the exchange at most.
            model.link_share = (exchange_s / linked_s).min(1.0);
            model.fixed_s = (exchange_s - linked_s).max(0.0);
        }
        model
    }

    /// What would pay now.
    fn advise(&self, fewest: usize) -> Option<Advice> {
        let Limits { gain, deviations, .. } = self.limits;
        let needed = gain + deviations * self.error();
        let model = self.model();
        let now_s = model.step_s(&model.present());
        let step_s = median(self.steps_s.iter().map(|step| step[0]));
        let (all, all_s) = model.with_all();
        let measured = step_s / now_s;
        let advice = |action, counts: &[u32], expected_s: f64| Advice {
            action,
            counts: model.workers.iter().copied().zip(counts.iter().copied()).collect(),
            step_s,
            all_s: all_s * measured,
            expected_s: expected_s * measured,
        };
        if let Some((fewer, fewer_s)) = model.with_fewer()
            && all_s / fewer_s - 1.0 > needed
        {
            let used = fewer.iter().filter(|count| **count > 0).count();
            if used >= fewest {
                return Some(advice(Action::LeaveOut, &fewer, fewer_s));
            }
            let told = advice(Action::Told, &fewer, fewer_s);
            if !told.left_out().eq(self.told.iter().copied()) {
                return Some(told);
            }
        }
        let shared = advice(Action::Share, &all, all_s);
        let undoes = u32::from(shared.counts == self.before);
        let needed = needed * f64::from(1_u32 << (undoes * (self.reversals + 1).min(DOUBLINGS_MAX)));
        (now_s / all_s - 1.0 > needed).then_some(shared)
    }
}

impl Model<'_> {
    fn present(&self) -> Vec<u32> {
        self.shares.iter().map(|(_, count)| *count).collect()
    }

    /// Seconds of a gradient through the slowest link of those who have nodes.
    fn link_s(&self, counts: &[u32]) -> f64 {
        let used = self.links_s.iter().zip(counts).filter(|(_, count)| **count > 0);
        used.map(|(link_s, _)| *link_s).fold(0.0, f64::max)
    }

    /// Vectors that go through a worker's link, each way.
    fn vectors(&self, counts: &[u32]) -> f64 {
        let used = counts.iter().filter(|count| **count > 0).count() as f64;
        let mut first = 0_u32;
        let mut sums = |count: &u32| {
            first += count;
            maximal_nodes(self.virtual_nodes, first - count..first).len()
        };
        let most = counts.iter().map(&mut sums).max().unwrap_or(0);
        2.0 * (used - 1.0) / used * most as f64
    }

    fn exchange_s(&self, counts: &[u32]) -> f64 {
        let vectors = self.vectors(counts);
        if vectors > 0.0 { self.fixed_s + self.link_s(counts) * self.link_share * vectors } else { 0.0 }
    }

    fn step_s(&self, counts: &[u32]) -> f64 {
        let ends = counts.iter().zip(&self.node_s).map(|(count, node_s)| f64::from(*count) * node_s);
        ends.fold(0.0, f64::max) + self.exchange_s(counts) + self.rest_s
    }

    /// The best shares of all workers.
    fn with_all(&self) -> (Vec<u32>, f64) {
        let speeds: Vec<f64> = self.node_s.iter().map(|node_s| 1.0 / node_s).collect();
        let mut best = (self.present(), self.step_s(&self.present()));
        let mut block = 1;
        while self.virtual_nodes.is_multiple_of(block)
            && self.virtual_nodes / block >= self.workers.len() as u32
        {
            let ranges = ranges_by_speed(self.virtual_nodes / block, &speeds);
            let counts: Vec<u32> = ranges.iter().map(|range| block * (range.end - range.start)).collect();
            let step_s = self.step_s(&counts);
            if step_s < best.1 {
                best = (counts, step_s);
            }
            block *= 2;
        }
        best
    }

    /// The best shares of fewer workers.
    fn with_fewer(&self) -> Option<(Vec<u32>, f64)> {
        let mut limits_s = self.links_s.clone();
        limits_s.sort_by(f64::total_cmp);
        limits_s.dedup();
        let solved = limits_s.iter().filter_map(|limit_s| {
            let most = |link_s: &f64| if link_s <= limit_s { self.virtual_nodes } else { 0 };
            let worker = |(node_s, link_s): (&f64, &f64)| Worker {
                device_type: 0,
                node_s: *node_s,
                most: most(link_s),
            };
            let workers: Vec<Worker> = self.node_s.iter().zip(&self.links_s).map(worker).collect();
            let link_s = limit_s * self.link_share;
            let sync_s = |used: u32| match used {
                1 => self.rest_s,
                _ => self.rest_s + self.fixed_s + 2.0 * f64::from(used - 1) / f64::from(used) * link_s,
            };
            let problem = Problem { workers: &workers, virtual_nodes: self.virtual_nodes, sync_s: &sync_s };
            let counts = mapping::solve(&problem).ok()?.counts;
            let step_s = self.step_s(&counts);
            Some((counts, step_s))
        });
        let fewer = solved.filter(|(counts, _)| counts.contains(&0));
        fewer.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}

fn push<T>(times: &mut VecDeque<T>, time: T, most: usize) {
    if times.len() >= most {
        times.pop_front();
    }
    times.push_back(time);
}

/// The value in the middle, the lower one of two; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}
