//! How long a replication is: as asked, or as long as the queues of a coalition need to forget how they began.

use std::f64::consts::PI;

use bellwether_core::InputError;

use super::{Arrivals, Demand, Law, Simulator};
use bellwether_core::check;

/// A replication of more arrivals than this would take minutes; a wrong number must not hang.
const ARRIVALS_MAX: f64 = 1e9;

/// Longest simulated time: beyond, seconds and their fractions no longer fit one number.
const SECONDS_MAX: f64 = 1e12;

/// Relaxation times that warm up, and that are measured, where the length is suggested.
const RELAXATIONS: (f64, f64) = (10.0, 40.0);

/// Arrivals that are measured at least, and that there are at most, where the length is suggested.
const ARRIVALS: (f64, f64) = (2e5, 2e6);

/// How long a replication is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// Ten [relaxation times](Simulator::relaxation_s) of the members' queues to warm up and forty to measure; at least
    /// so long that 200,000 jobs are measured, and at most two million arrive. Where that cuts it, what is measured
    /// depends on empty queues at the beginning.
    ///
    /// Where a trace does not repeat, nothing warms up, and the longest such trace is measured to its end.
    Suggested,
    /// Simulated seconds.
    Seconds {
        /// Seconds that are not measured, while queues fill.
        warm_up: f64,
        /// Seconds that are measured after those.
        measured: f64,
    },
    /// As many seconds as the whole system takes for this many arrivals in the mean, no matter which members take part.
    Arrivals {
        /// Arrivals that are not measured, while queues fill.
        warm_up: f64,
        /// Arrivals that are measured after those.
        measured: f64,
    },
}

/// The seconds of warm-up and the seconds that are measured.
pub(super) fn seconds(simulator: &Simulator, length: &Length) -> Result<(f64, f64), InputError> {
    const PLACE: &str = "length";
    let per_s = simulator.system.arrivals_per_s();
    let (warm_up, measured, unit_s) = match *length {
        Length::Suggested => return Ok(suggested(simulator)),
        Length::Seconds { warm_up, measured } => (warm_up, measured, 1.0),
        Length::Arrivals { warm_up, measured } => {
            if per_s <= 0.0 {
                let what = "nothing arrives, so that no number of arrivals is ever reached";
                return Err(InputError::new(PLACE, what).hint("give the length in seconds"));
            }
            (warm_up, measured, 1.0 / per_s)
        }
    };
    check::negative(PLACE, "the warm-up", warm_up)?;
    check::not_positive(PLACE, "the measured part", measured)?;
    let (warm_up_s, measured_s) = (warm_up * unit_s, measured * unit_s);
    let all_s = warm_up_s + measured_s;
    if all_s * per_s > ARRIVALS_MAX || all_s > SECONDS_MAX {
        let what = format!("a replication of {all_s:.3e} s would have {:.3e} arrivals", all_s * per_s);
        return Err(InputError::new(PLACE, what).hint(format!(
            "at most {ARRIVALS_MAX:e} arrivals and {SECONDS_MAX:e} s make a replication: take more of shorter ones"
        )));
    }
    Ok((warm_up_s, measured_s))
}

fn suggested(simulator: &Simulator) -> (f64, f64) {
    let ends_s = simulator.demands().filter_map(|demand| match &demand.arrivals {
        Arrivals::Trace { jobs, period_s: None } => jobs.last().map(|(time_s, _)| *time_s),
        _ => None,
    });
    if let Some(end_s) = ends_s.reduce(f64::max).filter(|end_s| *end_s > 0.0) {
        return (0.0, end_s);
    }
    let per_s: f64 = simulator.demands().map(|demand| demand.arrivals.mean_per_s()).sum();
    if per_s <= 0.0 {
        return (0.0, 1.0);
    }
    let (warm_up, measured) = RELAXATIONS;
    let (least_s, most_s) = (ARRIVALS.0 / per_s, ARRIVALS.1 / per_s);
    let relaxation_s = simulator.relaxation_s().min(most_s / (warm_up + measured));
    (warm_up * relaxation_s, (measured * relaxation_s).max(least_s))
}

impl Simulator {
    /// Seconds in which the members' queues forget how they began: an estimate of ours, from the longest job or phase
    /// of the arrivals, the slowest home, and the pool, which is used by the more patient alone once it is too full
    /// for the others.
    pub fn relaxation_s(&self) -> f64 {
        let longest_wait_s = |member: usize| self.system.sites[self.members[member]].longest_wait_s;
        let members = 0..self.members.len();
        let homes = members.clone().map(|member| {
            let (arrive_per_s, finish_per_s) = self.load(member, &[member]);
            walk_s(arrive_per_s, finish_per_s, longest_wait_s(member))
        });
        let homes_s = homes.fold(0.0, f64::max);
        let mut by_patience: Vec<usize> = members.collect();
        by_patience.sort_by(|a, b| longest_wait_s(*a).total_cmp(&longest_wait_s(*b)));
        let mut pool_s = 0.0;
        let mut from_s = 0.0;
        for (index, member) in by_patience.iter().enumerate() {
            let (arrive_per_s, finish_per_s) = self.load(self.members.len(), &by_patience[index..]);
            pool_s += walk_s(arrive_per_s, finish_per_s, longest_wait_s(*member) - from_s);
            from_s = longest_wait_s(*member);
        }
        self.longest_phase_s() + homes_s + pool_s
    }

    /// Jobs per second of some members that a place could get at most, and that it finishes of this mixture.
    fn load(&self, place: usize, members: &[usize]) -> (f64, f64) {
        let rates_per_s = &self.rates_per_s[place * self.system.classes.len()..];
        let (mut arrive_per_s, mut busy) = (0.0, 0.0);
        for demand in members.iter().flat_map(|member| &self.system.sites[self.members[*member]].demands) {
            let rate_per_s = rates_per_s[demand.class];
            if rate_per_s > 0.0 {
                arrive_per_s += demand.arrivals.mean_per_s();
                busy += demand.arrivals.mean_per_s() / rate_per_s;
            }
        }
        (arrive_per_s, if busy > 0.0 { arrive_per_s / busy } else { 0.0 })
    }

    fn longest_phase_s(&self) -> f64 {
        let phase_s = |demand: &Demand| {
            let class = &self.system.classes[demand.class];
            let slowest =
                class.speeds.iter().copied().filter(|speed| *speed > 0.0).fold(f64::INFINITY, f64::min);
            // The few long ones are what is remembered.
            let varied = match class.work.law {
                Law::Lognormal { variation } => variation * variation,
                Law::Hyperexponential { squared_variation } => squared_variation,
                Law::Pareto { .. } => 10.0,
                Law::Exponential | Law::Deterministic => 1.0,
            };
            let job_s = class.transfer_s + class.work.mean / slowest * varied.max(1.0);
            job_s.max(match &demand.arrivals {
                Arrivals::Poisson { .. } => 0.0,
                Arrivals::Modulated { states } => {
                    states.iter().map(|state| state.mean_stay_s).fold(0.0, f64::max)
                }
                Arrivals::Trace { period_s, .. } => period_s.unwrap_or(0.0),
            })
        };
        self.demands().map(phase_s).fold(0.0, f64::max)
    }
}

/// Seconds in which a queue forgets its start, if it finishes this many jobs per second and has room for this wait: the
/// slowest mode of a random walk between two walls, or that of one with this drift, whichever is faster.
fn walk_s(arrive_per_s: f64, finish_per_s: f64, room_s: f64) -> f64 {
    if finish_per_s <= 0.0 {
        return 0.0;
    }
    let drift = arrive_per_s.sqrt() - finish_per_s.sqrt();
    (room_s * room_s * finish_per_s / (PI * PI)).min(1.0 / (drift * drift))
}
