//! A queue that only grows or shrinks by one, under several streams that give up at different lengths: its
//! stationary law in closed form.
//!
//! States k = 0..=c count the requests present. Births b(k) sum the streams whose capacity is above k, deaths
//! are min(k, s) mu, so the weight of k + 1 is that of k times b(k) / (min(k + 1, s) mu). That ratio never
//! grows with k: the law has one peak. Weights are taken relative to it and walked outwards until they
//! vanish, so that no power overflows; beyond s servers the ratio is constant between capacities, and those
//! runs, up to millions of states, are geometric sums.

/// Poisson arrivals that join while fewer than `capacity` requests are present.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stream {
    pub(super) arrivals_per_s: f64,
    pub(super) capacity: u64,
}

/// What the stationary law says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Law {
    /// Probability that at least its capacity is present, of each stream: its arrivals are then refused.
    pub(super) refused: Vec<f64>,
    /// Mean number of requests that wait for a server.
    pub(super) waiting: f64,
}

/// Weights below this, relative to the peak, count as nothing: 1e9 of them are still nothing.
const VANISHED_BELOW_PEAK: f64 = 1e-30;
/// Above the peak the tail is what is asked for, so it is walked as far as numbers reach.
const VANISHED_ABOVE_PEAK: f64 = 1e-300;

/// The law of `servers` servers under `streams`, each of whose capacities is at least `servers`.
pub(super) fn solve(service_per_s: f64, servers: u64, streams: &[Stream]) -> Law {
    let runs = runs(servers, streams);
    let mut walk = Walk { service_per_s, servers, mass: vec![0.0; runs.len()], waiting: 0.0, runs };
    let (run, peak) = walk.peak();
    walk.up(run, peak);
    walk.down(run, peak);
    let total: f64 = walk.mass.iter().sum();
    let refused = |stream: &Stream| {
        let at_least = walk.runs.iter().zip(&walk.mass).filter(|(run, _)| run.first >= stream.capacity);
        at_least.map(|(_, mass)| mass).sum::<f64>() / total
    };
    Law { refused: streams.iter().map(refused).collect(), waiting: walk.waiting / total }
}

/// States `first..=last` in which the same streams are admitted, all below `servers` or none.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u64,
    last: u64,
    births_per_s: f64,
}

fn runs(servers: u64, streams: &[Stream]) -> Vec<Run> {
    let mut bounds: Vec<u64> = streams.iter().map(|stream| stream.capacity).chain([0, servers]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let births = |state: u64| {
        streams.iter().filter(|stream| stream.capacity > state).map(|stream| stream.arrivals_per_s).sum()
    };
    let ends = bounds[1..].iter().map(|next| next - 1).chain(bounds.last().copied());
    bounds.iter().zip(ends).map(|(&first, last)| Run { first, last, births_per_s: births(first) }).collect()
}

struct Walk {
    service_per_s: f64,
    servers: u64,
    runs: Vec<Run>,
    /// Weight of each run, the peak's being 1.
    mass: Vec<f64>,
    /// Weighted requests that wait.
    waiting: f64,
}

impl Walk {
    /// Run and state from which the weights no longer grow.
    fn peak(&self) -> (usize, u64) {
        for (index, run) in self.runs.iter().enumerate() {
            if run.first >= self.servers {
                if run.births_per_s <= self.servers as f64 * self.service_per_s {
                    return (index, run.first);
                }
            } else {
                // The first k with births below (k + 1) mu.
                let state = ((run.births_per_s / self.service_per_s) as u64).max(run.first);
                if state <= run.last {
                    return (index, state);
                }
            }
        }
        unreachable!("no stream is admitted at the last state, so its weight is the last that grew")
    }

    fn up(&mut self, from: usize, peak: u64) {
        let (mut state, mut weight) = (peak, 1.0);
        for index in from..self.runs.len() {
            let run = self.runs[index];
            if run.first >= self.servers {
                let ratio = run.births_per_s / (self.servers as f64 * self.service_per_s);
                let sums = Geometric::of(ratio, run.last - state + 1);
                self.mass[index] += weight * sums.terms;
                self.waiting += weight * ((state - self.servers) as f64 * sums.terms + sums.moments);
                weight *= sums.next;
            } else {
                let load = run.births_per_s / self.service_per_s;
                for next in state + 1..=run.last + 1 {
                    self.mass[index] += weight;
                    weight *= load / next as f64;
                    if weight < VANISHED_ABOVE_PEAK {
                        return;
                    }
                }
            }
            state = run.last + 1;
        }
    }

    fn down(&mut self, from: usize, peak: u64) {
        let (mut above, mut weight) = (peak, 1.0);
        for index in (0..=from).rev() {
            let run = self.runs[index];
            if above == run.first {
                continue;
            }
            if run.first >= self.servers {
                let ratio = self.servers as f64 * self.service_per_s / run.births_per_s;
                let count = above - run.first;
                let sums = Geometric::of(ratio, count);
                let first = weight * ratio;
                self.mass[index] += first * sums.terms;
                let waiting = (above - 1 - self.servers) as f64 * sums.terms - sums.moments;
                self.waiting += first * waiting.max(0.0);
                weight *= sums.next;
            } else {
                let load = run.births_per_s / self.service_per_s;
                for state in (run.first..above).rev() {
                    weight *= (state + 1) as f64 / load;
                    self.mass[index] += weight;
                    if weight < VANISHED_BELOW_PEAK {
                        return;
                    }
                }
            }
            above = run.first;
        }
    }
}

/// Sums over j < n of `ratio^j` and of `j ratio^j`, and `ratio^n`.
struct Geometric {
    terms: f64,
    moments: f64,
    next: f64,
}

impl Geometric {
    /// By doubling n: all terms are positive, so nothing cancels, also where the ratio is nearly 1.
    fn of(ratio: f64, count: u64) -> Geometric {
        let mut sums = Geometric { terms: 0.0, moments: 0.0, next: 1.0 };
        let mut taken = 0_u64;
        for bit in (0..u64::BITS - count.leading_zeros()).rev() {
            sums.moments += sums.next * (sums.moments + taken as f64 * sums.terms);
            sums.terms += sums.next * sums.terms;
            sums.next *= sums.next;
            taken *= 2;
            if count >> bit & 1 == 1 {
                sums.moments += taken as f64 * sums.next;
                sums.terms += sums.next;
                sums.next *= ratio;
                taken += 1;
            }
        }
        sums
    }
}
