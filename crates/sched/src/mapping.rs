//! Which worker runs how many of a job's equal virtual nodes, when some workers are faster than others.
//!
//! ```text
//! minimise  max_i n_i t_i + t_sync(U)    subject to  sum_i n_i = V,  0 <= n_i <= m_i,  U = |{ i : n_i > 0 }|
//! ```
//!
//! | symbol | meaning                                                   | unit |
//! |--------|-----------------------------------------------------------|------|
//! | V      | virtual nodes of the job                                  | 1    |
//! | n_i    | virtual nodes that worker i runs one after the other      | 1    |
//! | t_i    | time of one virtual node on worker i                      | s    |
//! | m_i    | most virtual nodes of worker i; 0 when none fits its memory | 1  |
//! | t_sync | time of a step that every worker waits for                | s    |
//!
//! Exact: for each number U of used workers the least makespan T is found by bisection, since U workers manage within T
//! if and only if the U largest of `min(floor(T / t_i), m_i)` are positive and sum to V or more. `t_sync` may be any
//! function, so a slow worker is left out where waiting for it, or exchanging with it, costs more than it helps.
//!
//! [`pair`] has the variant in which the batch of a virtual node may differ by type of device.

pub mod pair;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;

use bellwether_core::InputError;
use serde::{Deserialize, Serialize};

const PLACE: &str = "mapping";

/// A worker that may run virtual nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its type of device: workers of one type make a homogeneous part.
    pub device_type: u16,
    /// Seconds of one virtual node.
    pub node_s: f64,
    /// The most virtual nodes that it may run: 0 when none fits its memory, `u32::MAX` for no limit.
    pub most: u32,
}

/// Workers, and what they share.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// The workers.
    pub workers: &'a [Worker],
    /// Virtual nodes of a step.
    pub virtual_nodes: u32,
    /// Seconds of a step beyond its virtual nodes, by the number of workers that have any.
    pub sync_s: &'a dyn Fn(u32) -> f64,
}

/// Virtual nodes by worker, and the step that they give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// Virtual nodes of each worker, in the order of the workers; 0 for one that is left out.
    pub counts: Vec<u32>,
    /// Seconds of a step.
    pub step_s: f64,
}

/// Why a mapping over several types of devices is refused: one type alone is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slower {
    /// Seconds of a step of the mixture.
    pub mixture_s: f64,
    /// The type whose workers alone are fastest.
    pub device_type: u16,
    /// Seconds of a step of those workers alone, mapped as well as can be.
    pub alone_s: f64,
}

impl Mapping {
    /// Workers that run a virtual node.
    pub fn used(&self) -> u32 {
        used(&self.counts)
    }
}

impl fmt::Display for Slower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slower { mixture_s, device_type, alone_s } = self;
        let slower = (mixture_s / alone_s - 1.0) * 100.0;
        write!(f, "a step of the mixture would take {mixture_s:.3} s, ")?;
        write!(
            f,
            "{slower:.0} % more than the {alone_s:.3} s of device type {device_type} alone: leave the others out"
        )
    }
}

/// The fastest mapping; of equally fast ones the one of the fewest workers.
///
/// ```
/// use bellwether_sched::mapping::{Problem, Worker, solve};
/// let worker = |node_s| Worker { device_type: 0, node_s, most: u32::MAX };
/// let workers = [worker(0.1), worker(0.3), worker(9.0)];
/// let mapping = solve(&Problem { workers: &workers, virtual_nodes: 8, sync_s: &|_| 0.5 }).unwrap();
/// // 6 nodes of 0.1 s beside 2 of 0.3 s; one node alone would take the third worker 9 s.
/// assert_eq!(mapping.counts, [6, 2, 0]);
/// assert!((mapping.step_s - 1.1).abs() < 1e-12);
/// ```
///
/// # Errors
///
/// Returns an error on any of these: no virtual nodes, workers without a positive finite time, a time of exchange that
/// is negative or not finite, or workers that cannot hold all virtual nodes.
pub fn solve(problem: &Problem) -> Result<Mapping, InputError> {
    check(problem)?;
    let Problem { workers, virtual_nodes, sync_s } = *problem;
    let candidates = workers.iter().filter(|worker| worker.most > 0).count();
    let limit = (candidates as u32).min(virtual_nodes);
    // Nothing is faster than all together without rounding.
    let pace: f64 = workers.iter().filter(|worker| worker.most > 0).map(|worker| 1.0 / worker.node_s).sum();
    let floor_s = f64::from(virtual_nodes) / pace;
    let mut best: Option<(f64, u32, f64)> = None;
    for used in 1..=limit {
        let sync_s = checked_sync_s(sync_s(used))?;
        // A part in a million less, so that rounding cannot hide the best.
        if best.is_some_and(|(step_s, ..)| floor_s * (1.0 - 1e-6) + sync_s >= step_s) {
            continue;
        }
        let Some(makespan_s) = makespan_s(workers, virtual_nodes, used) else { continue };
        if best.is_none_or(|(step_s, ..)| makespan_s + sync_s < step_s) {
            best = Some((makespan_s + sync_s, used, makespan_s));
        }
    }
    let Some((step_s, used, makespan_s)) = best else {
        let room = workers.iter().fold(0, |sum: u64, worker| sum + u64::from(worker.most));
        let what = format!("{virtual_nodes} virtual nodes do not fit on workers with room for {room}");
        return Err(InputError::new(PLACE, what).hint("add workers or memory, or use fewer virtual nodes"));
    };
    Ok(Mapping { counts: share(workers, virtual_nodes, used, makespan_s), step_s })
}

/// Seconds of a step under given `counts`, one for each worker.
///
/// # Errors
///
/// Same errors as [`solve`]; also for counts that do not sum to the virtual nodes or exceed what a worker may run.
pub fn step_s(problem: &Problem, counts: &[u32]) -> Result<f64, InputError> {
    check(problem)?;
    let sum = counts.iter().fold(0, |sum: u64, count| sum + u64::from(*count));
    if counts.len() != problem.workers.len() || sum != u64::from(problem.virtual_nodes) {
        let (given, workers) = (counts.len(), problem.workers.len());
        let what = format!("{given} counts that sum to {sum}, for {workers} workers");
        return Err(InputError::new(PLACE, what).hint(format!("they must sum to {}", problem.virtual_nodes)));
    }
    let mut makespan_s: f64 = 0.0;
    for (index, (worker, &count)) in problem.workers.iter().zip(counts).enumerate() {
        if count > worker.most {
            let what = format!("worker {index} may run {} virtual nodes, not {count}", worker.most);
            return Err(InputError::new(PLACE, what));
        }
        makespan_s = makespan_s.max(f64::from(count) * worker.node_s);
    }
    Ok(makespan_s + checked_sync_s((problem.sync_s)(used(counts)))?)
}

/// Whether a given mapping is to be refused: it mixes types of devices, and the workers of one of them alone would be
/// faster. What [`solve`] answers never is, as it is free to leave workers out.
///
/// # Errors
///
/// Same errors as [`step_s`].
pub fn refused(problem: &Problem, counts: &[u32]) -> Result<Option<Slower>, InputError> {
    let mixture_s = step_s(problem, counts)?;
    let chosen = problem.workers.iter().zip(counts).filter(|(_, count)| **count > 0);
    let types: BTreeSet<u16> = chosen.map(|(worker, _)| worker.device_type).collect();
    if types.len() < 2 {
        return Ok(None);
    }
    let mut parts: BTreeMap<u16, Vec<Worker>> = BTreeMap::new();
    for worker in problem.workers {
        parts.entry(worker.device_type).or_default().push(*worker);
    }
    // A part that cannot hold the job by itself is not an alternative.
    let alone = parts.iter().filter_map(|(&device_type, workers)| {
        let part = solve(&Problem { workers, ..*problem }).ok()?;
        Some((part.step_s, device_type))
    });
    let fastest = alone.min_by(|a, b| a.0.total_cmp(&b.0));
    Ok(fastest.filter(|(alone_s, _)| *alone_s < mixture_s).map(|(alone_s, device_type)| Slower {
        mixture_s,
        device_type,
        alone_s,
    }))
}

fn used(counts: &[u32]) -> u32 {
    counts.iter().filter(|count| **count > 0).count() as u32
}

fn check(problem: &Problem) -> Result<(), InputError> {
    if problem.virtual_nodes == 0 {
        return Err(InputError::new(PLACE, "a job without virtual nodes has nothing to share"));
    }
    if problem.workers.is_empty() {
        return Err(InputError::new(PLACE, "there are no workers").hint("give at least one"));
    }
    for (index, worker) in problem.workers.iter().enumerate() {
        if !(worker.node_s.is_finite() && worker.node_s > 0.0) {
            let what = format!("a virtual node takes worker {index} {} s", worker.node_s);
            return Err(InputError::new(PLACE, what).hint("measure a positive time"));
        }
    }
    Ok(())
}

fn checked_sync_s(sync_s: f64) -> Result<f64, InputError> {
    if sync_s.is_finite() && sync_s >= 0.0 {
        return Ok(sync_s);
    }
    Err(InputError::new(PLACE, format!("an exchange takes {sync_s} s")).hint("give a time of zero or more"))
}

/// Virtual nodes that a worker manages within a makespan: the largest n with n t <= T as floating point has it.
fn managed(worker: &Worker, makespan_s: f64) -> u32 {
    let mut count = (makespan_s / worker.node_s).floor().min(f64::from(worker.most)) as u32;
    // The quotient may be rounded across an integer, by no more than one.
    if f64::from(count) * worker.node_s > makespan_s {
        count -= 1;
    } else if count < worker.most && f64::from(count + 1) * worker.node_s <= makespan_s {
        count += 1;
    }
    count
}

/// Virtual nodes of the `used` workers that manage most, by worker; whether each has one; and their sum.
fn largest(workers: &[Worker], used: u32, makespan_s: f64) -> (Vec<(Reverse<u32>, usize)>, bool, u64) {
    let count = |(index, worker)| (Reverse(managed(worker, makespan_s)), index);
    let mut counts: Vec<(Reverse<u32>, usize)> = workers.iter().enumerate().map(count).collect();
    if (used as usize) < counts.len() {
        counts.select_nth_unstable(used as usize - 1);
        counts.truncate(used as usize);
    }
    let sum = counts.iter().map(|(Reverse(count), _)| u64::from(*count)).sum();
    let all = counts.iter().all(|(Reverse(count), _)| *count > 0);
    (counts, all, sum)
}

/// The least makespan with exactly `used` workers; `None` when they cannot hold the virtual nodes.
fn makespan_s(workers: &[Worker], virtual_nodes: u32, used: u32) -> Option<f64> {
    let enough = |makespan_s: f64| {
        let (_, all, sum) = largest(workers, used, makespan_s);
        all && sum >= u64::from(virtual_nodes)
    };
    let slowest_s = workers.iter().map(|worker| worker.node_s).fold(0.0, f64::max);
    let most_s = slowest_s * f64::from(virtual_nodes);
    if !most_s.is_finite() || !enough(most_s) {
        return None;
    }
    // Positive numbers are in the order of their bits: the bisection ends at the very number.
    let (mut low, mut high) = (0_u64, most_s.to_bits());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(f64::from_bits(middle)) { high = middle } else { low = middle }
    }
    Some(f64::from_bits(high))
}

/// Shares the virtual nodes among the workers that manage most within a makespan: each has one, and each further goes
/// where it ends first.
fn share(workers: &[Worker], virtual_nodes: u32, used: u32, makespan_s: f64) -> Vec<u32> {
    let mut counts = vec![0; workers.len()];
    let (chosen, ..) = largest(workers, used, makespan_s);
    let mut ends = BinaryHeap::new();
    for (Reverse(room), index) in chosen {
        counts[index] = 1;
        ends.push(Reverse(((2.0 * workers[index].node_s).to_bits(), index, room)));
    }
    for _ in used..virtual_nodes {
        while let Some(Reverse((_, index, room))) = ends.pop() {
            if counts[index] < room {
                counts[index] += 1;
                let end_s = f64::from(counts[index] + 1) * workers[index].node_s;
                ends.push(Reverse((end_s.to_bits(), index, room)));
                break;
            }
        }
    }
    counts
}
