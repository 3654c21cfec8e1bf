//! How long a transient server lives: the laws, their inverses, and what they add up to.

use bellwether_core::InputError;
use bellwether_des::Stream;

use crate::common::check;

const PLACE: &str = "law of revocation";

/// Distribution of the time from when a server runs until its provider takes it away.
#[derive(Debug, Clone, PartialEq)]
pub struct Law(Form);

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Never,
    /// Straight lines between knots; a jump is two knots at one time. From (0, 0) up to a share of 1.
    Curve(Vec<Knot>),
    Exponential {
        mean_s: f64,
        limit_s: f64,
    },
    Bathtub(Bathtub),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Knot {
    time_s: f64,
    /// Servers that are gone by then.
    share: f64,
    /// Expected time lived until then: the integral of those that are left.
    lived_s: f64,
}

/// A mixture: servers that go early, servers that go shortly before the limit, and servers that reach it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bathtub {
    /// Share of those that go early, 0 to 1.
    pub early_share: f64,
    /// Their mean lifetime if nothing limited it, in seconds.
    pub early_mean_s: f64,
    /// Share of those that go late, 0 to 1 less the early ones.
    pub late_share: f64,
    /// The time within which their rate grows by a factor of e, in seconds.
    pub late_growth_s: f64,
    /// The time at which the provider ends every server, in seconds.
    pub limit_s: f64,
}

/// One observed server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// How long it was seen, in seconds.
    pub lived_s: f64,
    /// Whether it was taken away then, and not merely seen no longer.
    pub revoked: bool,
}

impl Law {
    /// A server that is never revoked: on demand.
    pub fn never() -> Law {
        Law(Form::Never)
    }

    /// Straight lines from 0 through (seconds, share of the servers that are gone by then), and every server that
    /// is left ends at `limit_s`.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no points; times that do not grow, or lie beyond the limit; shares below 0,
    /// above 1, or that fall.
    pub fn points(points: &[(f64, f64)], limit_s: f64) -> Result<Law, InputError> {
        check::not_positive(PLACE, "the limit of a lifetime in seconds", limit_s)?;
        let wrong = |what: String, hint: &str| Err(InputError::new(PLACE, what).hint(hint));
        if points.is_empty() {
            return wrong(
                "it has no points".into(),
                "give at least one time and the share that is gone by then",
            );
        }
        let (mut before_s, mut gone) = (0.0, 0.0);
        for &(time_s, share) in points {
            if !(0.0..=1.0).contains(&share) {
                return wrong(
                    format!("the probability of being gone by {time_s} s is {share}"),
                    "a probability is a number from 0 to 1",
                );
            }
            if share < gone {
                return wrong(
                    format!("by {time_s} s a share of {share} is gone, and {gone} before"),
                    "shares are of all servers up to that time, so they never fall",
                );
            }
            if !(time_s > before_s && time_s <= limit_s) {
                return wrong(
                    format!(
                        "a point at {time_s} s follows one at {before_s} s, with the limit at {limit_s} s"
                    ),
                    "times grow from above 0 up to the limit",
                );
            }
            (before_s, gone) = (time_s, share);
        }
        let all = points.iter().copied().chain([(limit_s, gone), (limit_s, 1.0)]);
        Ok(Law(Form::Curve(curve(all))))
    }

    /// A constant rate, and a limit that may be infinite.
    ///
    /// # Errors
    ///
    /// Returns an error for a mean that is not finite and above 0, a limit that is not above 0.
    pub fn exponential(mean_s: f64, limit_s: f64) -> Result<Law, InputError> {
        check::not_positive(PLACE, "the mean lifetime in seconds", mean_s)?;
        if !limit_s.is_infinite() || limit_s < 0.0 {
            check::not_positive(PLACE, "the limit of a lifetime in seconds", limit_s)?;
        }
        Ok(Law(Form::Exponential { mean_s, limit_s }))
    }

    /// Many early, many shortly before the limit, few between.
    ///
    /// # Errors
    ///
    /// Returns an error for shares that are not probabilities or exceed 1 together, times that are not finite and above
    /// 0, a growth time beyond the limit.
    pub fn bathtub(bathtub: Bathtub) -> Result<Law, InputError> {
        let Bathtub { early_share, early_mean_s, late_share, late_growth_s, limit_s } = bathtub;
        check::not_positive(PLACE, "the mean lifetime of early ones in seconds", early_mean_s)?;
        check::not_positive(PLACE, "the growth time of late ones in seconds", late_growth_s)?;
        check::not_positive(PLACE, "the limit of a lifetime in seconds", limit_s)?;
        if late_growth_s > limit_s {
            let what =
                format!("late ones grow by e in {late_growth_s} s, which is beyond the limit, {limit_s} s");
            return Err(
                InputError::new(PLACE, what).hint("they go shortly before the limit: take a shorter time")
            );
        }
        let fits = |share: f64| (0.0..=1.0).contains(&share);
        if !(fits(early_share) && fits(late_share) && early_share + late_share <= 1.0) {
            let what = format!("a share of {early_share} goes early and one of {late_share} late");
            return Err(InputError::new(PLACE, what).hint("both are from 0 to 1, and so is their sum"));
        }
        Ok(Law(Form::Bathtub(bathtub)))
    }

    /// What was observed of servers, those included that outlived the observation (Kaplan and Meier's estimate).
    /// When the longest observation is of a server that lived on, the law ends there all the same, as if the provider
    /// limited it: nothing is known beyond.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no observations, or a time that is not finite and above 0.
    pub fn samples(observed: &[Observed]) -> Result<Law, InputError> {
        if observed.is_empty() {
            return Err(InputError::new(PLACE, "it has no samples").hint("give one lifetime per server"));
        }
        for one in observed {
            check::not_positive(PLACE, "an observed lifetime in seconds", one.lived_s)?;
        }
        let mut sorted = observed.to_vec();
        // Of equal times the revocations come first: those that lived on were still at risk.
        sorted.sort_by(|a, b| a.lived_s.total_cmp(&b.lived_s).then(b.revoked.cmp(&a.revoked)));
        let (mut left, mut steps) = (1.0, Vec::new());
        let mut gone = 0.0;
        for (index, one) in sorted.iter().enumerate().filter(|(_, one)| one.revoked) {
            left *= 1.0 - 1.0 / (sorted.len() - index) as f64;
            steps.push((one.lived_s, gone));
            gone = 1.0 - left;
            steps.push((one.lived_s, gone));
        }
        let last_s = sorted[sorted.len() - 1].lived_s;
        steps.extend([(last_s, gone), (last_s, 1.0)]);
        Ok(Law(Form::Curve(curve(steps.into_iter()))))
    }

    /// Probability that a server lives no longer than `time_s`.
    pub fn cdf(&self, time_s: f64) -> f64 {
        if time_s <= 0.0 || time_s.is_nan() {
            return 0.0;
        }
        match &self.0 {
            Form::Never => 0.0,
            Form::Curve(knots) => match segment(knots, time_s) {
                Ok((from, to)) => {
                    let part = (time_s - from.time_s) / (to.time_s - from.time_s);
                    from.share + part * (to.share - from.share)
                }
                Err(_) => 1.0,
            },
            Form::Exponential { limit_s, .. } if time_s >= *limit_s => 1.0,
            Form::Exponential { mean_s, .. } => -libm::expm1(-time_s / mean_s),
            Form::Bathtub(bathtub) if time_s >= bathtub.limit_s => 1.0,
            Form::Bathtub(bathtub) => bathtub.cdf(time_s),
        }
    }

    /// The lifetime in seconds that a number uniform between 0 and 1 stands for; infinite where none ends.
    pub fn lifetime_s(&self, uniform: f64) -> f64 {
        match &self.0 {
            Form::Never => f64::INFINITY,
            Form::Curve(knots) => {
                let at = knots.partition_point(|knot| knot.share < uniform).clamp(1, knots.len() - 1);
                let (from, to) = (knots[at - 1], knots[at]);
                let rise = to.share - from.share;
                let part = if rise > 0.0 { ((uniform - from.share) / rise).clamp(0.0, 1.0) } else { 0.0 };
                from.time_s + part * (to.time_s - from.time_s)
            }
            Form::Exponential { mean_s, limit_s } => (-mean_s * libm::log1p(-uniform)).min(*limit_s),
            Form::Bathtub(bathtub) => bathtub.lifetime_s(uniform),
        }
    }

    /// A lifetime in seconds, by one number of the stream; infinite where none ends.
    pub fn sample(&self, stream: &mut Stream) -> f64 {
        self.lifetime_s(stream.uniform())
    }

    /// Expected seconds that a server lives within its first `time_s`: the integral of the share that is left.
    pub fn lived_s(&self, time_s: f64) -> f64 {
        if time_s <= 0.0 || time_s.is_nan() {
            return 0.0;
        }
        match &self.0 {
            Form::Never => time_s,
            Form::Curve(knots) => match segment(knots, time_s) {
                Ok((from, _)) => {
                    let left = 1.0 - 0.5 * (from.share + self.cdf(time_s));
                    from.lived_s + left * (time_s - from.time_s)
                }
                Err(last) => last.lived_s,
            },
            Form::Exponential { mean_s, limit_s } => -mean_s * libm::expm1(-time_s.min(*limit_s) / mean_s),
            Form::Bathtub(bathtub) => bathtub.lived_s(time_s.min(bathtub.limit_s)),
        }
    }

    /// The time in seconds that no server outlives; infinite where there is none.
    pub fn limit_s(&self) -> f64 {
        match &self.0 {
            Form::Never => f64::INFINITY,
            Form::Curve(knots) => knots[knots.len() - 1].time_s,
            Form::Exponential { limit_s, .. } => *limit_s,
            Form::Bathtub(bathtub) => bathtub.limit_s,
        }
    }

    /// Mean lifetime in seconds; infinite where none ends.
    pub fn mean_s(&self) -> f64 {
        self.lived_s(f64::INFINITY)
    }
}

/// The knots from (0, 0) through the given ones, whose times and shares do not fall.
fn curve(points: impl Iterator<Item = (f64, f64)>) -> Vec<Knot> {
    let mut knots = vec![Knot { time_s: 0.0, share: 0.0, lived_s: 0.0 }];
    let mut last = knots[0];
    for (time_s, share) in points {
        let left = 1.0 - 0.5 * (last.share + share);
        last = Knot { time_s, share, lived_s: last.lived_s + left * (time_s - last.time_s) };
        knots.push(last);
    }
    knots
}

/// The knots between which a time above 0 lies, or the last one when it lies beyond.
fn segment(knots: &[Knot], time_s: f64) -> Result<(Knot, Knot), Knot> {
    let after = knots.partition_point(|knot| knot.time_s <= time_s);
    match knots.get(after) {
        Some(to) => Ok((knots[after - 1], *to)),
        None => Err(knots[after - 1]),
    }
}

impl Bathtub {
    /// What the late ones' growth has left at time 0 of what it is at the limit.
    fn first(&self) -> f64 {
        libm::exp(-self.limit_s / self.late_growth_s)
    }

    fn cdf(&self, time_s: f64) -> f64 {
        let early = -libm::expm1(-time_s / self.early_mean_s);
        let first = self.first();
        let late = (libm::exp((time_s - self.limit_s) / self.late_growth_s) - first) / (1.0 - first);
        self.early_share * early + self.late_share * late
    }

    /// The number chooses the kind of server by the part of the unit interval in which it lies, and the lifetime by
    /// where it lies in that part.
    fn lifetime_s(&self, uniform: f64) -> f64 {
        let beyond_early = uniform - self.early_share;
        let time_s = if beyond_early < 0.0 {
            -self.early_mean_s * libm::log1p(-uniform / self.early_share)
        } else if beyond_early < self.late_share {
            let part = beyond_early / self.late_share;
            self.limit_s + self.late_growth_s * libm::log(part + (1.0 - part) * self.first())
        } else {
            self.limit_s
        };
        time_s.clamp(0.0, self.limit_s)
    }

    fn lived_s(&self, time_s: f64) -> f64 {
        let early_lost_s = time_s + self.early_mean_s * libm::expm1(-time_s / self.early_mean_s);
        let first = self.first();
        let grown = libm::exp((time_s - self.limit_s) / self.late_growth_s);
        let late_lost_s = (self.late_growth_s * (grown - first) - time_s * first) / (1.0 - first);
        time_s - self.early_share * early_lost_s - self.late_share * late_lost_s
    }
}
