//! Times of arrival and work of one demand, job after job, as functions of its random streams.

use bellwether_des::{Stream, Streams};

use super::{Arrivals, Law, State, Work};

/// The next jobs of a demand.
#[derive(Debug)]
pub(super) struct Source<'a> {
    arrivals: &'a Arrivals,
    work: Work,
    works: Stream,
    times: Times<'a>,
}

#[derive(Debug)]
enum Times<'a> {
    Poisson { mean_s: f64, now_s: f64, gaps: Stream },
    Modulated(Modulated<'a>),
    Trace { jobs: &'a [(f64, f64)], next: usize, lap_s: f64, period_s: Option<f64> },
    Never,
}

#[derive(Debug)]
struct Modulated<'a> {
    states: &'a [State],
    state: usize,
    now_s: f64,
    until_s: f64,
    gaps: Stream,
    changes: Stream,
}

impl<'a> Source<'a> {
    /// The jobs of demand `demand` of site `site` of the whole system; `phase`, between 0 and 1, is where repeating
    /// traces begin.
    pub(super) fn new(
        arrivals: &'a Arrivals,
        work: Work,
        (site, demand): (usize, usize),
        phase: f64,
        (streams, replication): (&Streams, u64),
    ) -> Source<'a> {
        let stream = |what: &str| streams.stream(&format!("{what} {site} {demand}"), replication);
        let times = match arrivals {
            Arrivals::Poisson { rate_per_s } if *rate_per_s > 0.0 => {
                Times::Poisson { mean_s: 1.0 / rate_per_s, now_s: 0.0, gaps: stream("gaps") }
            }
            Arrivals::Poisson { .. } => Times::Never,
            Arrivals::Modulated { states } if arrivals.mean_per_s() > 0.0 => {
                Times::Modulated(Modulated::new(states, stream("gaps"), stream("changes")))
            }
            Arrivals::Modulated { .. } => Times::Never,
            Arrivals::Trace { jobs, .. } if jobs.is_empty() => Times::Never,
            Arrivals::Trace { jobs, period_s } => {
                let begin_s = period_s.map_or(0.0, |period_s| period_s * phase);
                let next = jobs.partition_point(|(time_s, _)| *time_s < begin_s);
                Times::Trace { jobs, next, lap_s: -begin_s, period_s: *period_s }
            }
        };
        Source { arrivals, work, works: stream("work"), times }
    }

    /// Jobs and work per second in the mean over replications, where they are known at any time.
    pub(super) fn means_per_s(&self) -> Option<(f64, f64)> {
        match self.arrivals {
            Arrivals::Trace { period_s: None, .. } => None,
            Arrivals::Trace { jobs, period_s: Some(period_s) } => {
                let work: f64 = jobs.iter().map(|(_, work)| work).sum();
                Some((jobs.len() as f64 / period_s, work / period_s))
            }
            law => Some((law.mean_per_s(), law.mean_per_s() * self.work.mean)),
        }
    }

    /// When the next job arrives, and its work; `None` when no other will.
    pub(super) fn next(&mut self) -> Option<(f64, f64)> {
        let time_s = match &mut self.times {
            Times::Poisson { mean_s, now_s, gaps } => {
                *now_s += gaps.exponential(*mean_s);
                *now_s
            }
            Times::Modulated(modulated) => modulated.next(),
            Times::Trace { jobs, next, lap_s, period_s } => {
                if *next == jobs.len() {
                    *lap_s += (*period_s)?;
                    *next = 0;
                }
                let (time_s, work) = jobs[*next];
                *next += 1;
                return Some((time_s + *lap_s, work));
            }
            Times::Never => return None,
        };
        Some((time_s, self.work.draw(&mut self.works)))
    }
}

impl<'a> Modulated<'a> {
    fn new(states: &'a [State], gaps: Stream, mut changes: Stream) -> Modulated<'a> {
        // In equilibrium the time in each state goes as its stay.
        let mut left = changes.uniform() * states.iter().map(|state| state.mean_stay_s).sum::<f64>();
        let begins = states.iter().position(|state| {
            left -= state.mean_stay_s;
            left < 0.0
        });
        let state = begins.unwrap_or(states.len() - 1);
        let until_s = changes.exponential(states[state].mean_stay_s);
        Modulated { states, state, now_s: 0.0, until_s, gaps, changes }
    }

    fn next(&mut self) -> f64 {
        loop {
            let rate_per_s = self.states[self.state].rate_per_s;
            let next_s = self.now_s + self.gaps.exponential(1.0) / rate_per_s;
            if next_s < self.until_s {
                self.now_s = next_s;
                return next_s;
            }
            // The gap has no memory: it begins again with the state.
            self.now_s = self.until_s;
            let step = 1 + self.changes.below(self.states.len() - 1);
            self.state = (self.state + step) % self.states.len();
            self.until_s = self.now_s + self.changes.exponential(self.states[self.state].mean_stay_s);
        }
    }
}

impl Work {
    /// Draws the work of a job: one number of the stream, whatever the law.
    fn draw(&self, stream: &mut Stream) -> f64 {
        match self.law {
            Law::Deterministic => self.mean,
            Law::Exponential => stream.exponential(self.mean),
            Law::Lognormal { variation } => stream.lognormal(self.mean, variation),
            Law::Hyperexponential { squared_variation } => {
                let excess = (squared_variation - 1.0) / (squared_variation + 1.0);
                let often = f64::midpoint(1.0, excess.sqrt());
                let at = stream.uniform();
                // What is left of the number, once it has chosen the branch, is uniform again.
                let (share, left) =
                    if at < often { (often, at / often) } else { (1.0 - often, (1.0 - at) / (1.0 - often)) };
                -self.mean / (2.0 * share) * libm::log(left)
            }
            Law::Pareto { shape } => {
                let least = self.mean * (shape - 1.0) / shape;
                least * libm::exp(-libm::log(stream.uniform()) / shape)
            }
        }
    }
}
