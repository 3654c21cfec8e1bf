//! The highest level that every job of a cluster can reach at once.
//!
//! At a level `t` job j needs the speed `need_j(t)`, convex and growing in `t`. With `f(t)` the least load at which
//! all needs can be met - 1 is a full cluster - the highest level is where `f(t) = 1`. `f` is convex, because it is
//! the optimum of a linear program as a function of its right-hand side, so Newton's method goes down to the root
//! without overshooting, in finitely many steps where needs are linear. `f(t)` is a relaxation whose columns are
//! the corners of what a job may do to run at its speed: one type for a part of the time, or a faster and a slower type
//! that fill its time together.

use bellwether_numerics::grouped::{Capacity, Columns, minimise};

/// Jobs and devices, in numbers. Jobs of equal speeds and needs may be one here, of all their devices together.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    /// Speed of each job on each type, by job; 0 where it cannot run.
    pub(super) speeds: Vec<f64>,
    /// Devices that each job takes when it runs.
    pub(super) sizes: Vec<f64>,
    /// Devices of each type; more than 0.
    pub(super) devices: Vec<f64>,
}

/// What a highest level looks like.
#[derive(Debug, Clone)]
pub(super) struct Highest {
    pub(super) level: f64,
    /// What each job does for which part: corners whose parts add up to 1.
    pub(super) mixes: Vec<Vec<(f64, Corner)>>,
    /// What a device of each type is worth, as a part of the load.
    pub(super) prices: Vec<f64>,
    /// The load: at most 1.
    pub(super) load: f64,
}

/// A corner of what a job may do at its speed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Corner {
    fast: usize,
    /// Another type, on which it spends the rest of its time.
    slow: Option<usize>,
    /// Part of its time on the fast one.
    part: f64,
    /// 1, or a little less where the cluster was over capacity by rounding.
    scale: f64,
}

/// How near to 1 the load must come.
const TOLERANCE: f64 = 1e-12;

/// A lower bound of the load beyond which no program is solved, because the level is too high anyway.
const NEAR: f64 = 1.01;

/// How often prices are balanced before a level is judged.
const ROUNDS: u32 = 8;

impl Cluster {
    pub(super) fn jobs(&self) -> usize {
        self.sizes.len()
    }

    pub(super) fn speeds(&self, job: usize) -> &[f64] {
        let types = self.devices.len();
        &self.speeds[job * types..(job + 1) * types]
    }

    /// The speed of a job that runs on its best type all the time.
    pub(super) fn fastest(&self, job: usize) -> f64 {
        self.speeds(job).iter().fold(0.0, |most: f64, &speed| most.max(speed))
    }

    /// The highest level up to `most`, at which each job must be able to run as fast as it needs when it is alone.
    /// `need` says at a level the speed that a job needs and how that grows.
    pub(super) fn highest(&self, most: f64, need: impl Fn(usize, f64) -> (f64, f64)) -> Highest {
        let mut prices = vec![1.0 / self.total(); self.devices.len()];
        let mut columns = Columns::new(self.devices.len());
        let mut corners = Vec::new();
        let mut level = most;
        let mut is_near = false;
        // Prices that showed a level to be too high are as good as any at the root of their line, if that is the
        // highest level; those of the program there may be about what holds at lower levels as well.
        let mut lowering = None;
        loop {
            columns.clear();
            corners.clear();
            for job in 0..self.jobs() {
                self.push_corners(job, need(job, level).0, &mut columns, &mut corners);
            }
            if !is_near {
                let bound = self.balance(&columns, &mut prices);
                // The bound's root is above that of the load, so this does not overshoot either.
                let next = level - (bound - 1.0) / self.slope(&columns, &prices, level, &need);
                if bound > NEAR && next < level {
                    level = next.max(0.0);
                    lowering = Some(prices.clone());
                    continue;
                }
                is_near = true;
            }
            let optimum = minimise(&columns, &self.devices, Capacity::Stretching, &prices);
            prices = optimum.prices;
            let load = optimum.objective;
            let next = level - (load - 1.0) / self.slope(&columns, &prices, level, &need);
            if load <= 1.0 + TOLERANCE || next.is_nan() || next >= level {
                // What rounding left above capacity is taken off.
                let surplus = load.max(1.0);
                corners.iter_mut().for_each(|corner| corner.scale /= surplus);
                let mix = |column: usize| (optimum.parts[column], corners[column]);
                let mixes = (0..self.jobs())
                    .map(|job| columns.group(job).map(mix).filter(|(part, _)| *part > 0.0).collect())
                    .collect();
                let prices = lowering.unwrap_or(prices);
                return Highest { level: level / surplus, mixes, prices, load: load.min(1.0) };
            }
            level = next.max(0.0);
            lowering = Some(prices.clone());
        }
    }

    /// Moves prices towards those at which every type is equally full, and returns a lower bound of the load.
    fn balance(&self, columns: &Columns, prices: &mut [f64]) -> f64 {
        let mut best = (0.0, prices.to_vec());
        for round in 0..ROUNDS {
            let mut used = vec![0.0; prices.len()];
            let mut bound = 0.0;
            for group in 0..columns.groups() {
                let (column, priced) = columns.cheapest(group, prices);
                bound += priced;
                used.iter_mut().zip(columns.usage(column)).for_each(|(sum, usage)| *sum += usage);
            }
            if bound >= best.0 {
                best = (bound, prices.to_vec());
            }
            let weight = 1.0 / (1.0 + f64::from(round));
            for (k, price) in prices.iter_mut().enumerate() {
                let fullness = used[k] / (self.devices[k] * bound.max(f64::MIN_POSITIVE));
                *price *= 1.0 + weight * (fullness.clamp(0.25, 4.0) - 1.0);
            }
            let paid: f64 = prices.iter().zip(&self.devices).map(|(price, count)| price * count).sum();
            prices.iter_mut().for_each(|price| *price /= paid);
        }
        prices.copy_from_slice(&best.1);
        best.0
    }

    fn push_corners(&self, job: usize, need: f64, columns: &mut Columns, corners: &mut Vec<Corner>) {
        let speeds = self.speeds(job);
        let size = self.sizes[job];
        let none = Corner { fast: 0, slow: None, part: 0.0, scale: 1.0 };
        let mut push = |corner: Corner| {
            let used = (0..speeds.len()).map(|k| size * corner.on(k));
            columns.push(0.0, used);
            corners.push(corner);
        };
        if need <= 0.0 || speeds.iter().all(|&speed| speed <= 0.0) {
            push(none);
            columns.end_group();
            return;
        }
        // At the highest level a need is met by all of a job's time on its fastest type, up to rounding.
        let enough = need.min(self.fastest(job)) * (1.0 - 1e-12);
        for (fast, &speed) in speeds.iter().enumerate().filter(|(_, speed)| **speed >= enough) {
            push(Corner { fast, slow: None, part: (need / speed).min(1.0), scale: 1.0 });
            for (slow, &slower) in speeds.iter().enumerate() {
                if slower > 0.0 && slower < enough && speed > need {
                    let gain = speed - slower;
                    push(Corner { fast, slow: Some(slow), part: (need - slower) / gain, scale: 1.0 });
                }
            }
        }
        columns.end_group();
    }

    /// Whether a job that runs at `speed` at a highest level can have no more, whatever others leave: it is as fast as
    /// it can be, or more would take devices that are worth something.
    pub(super) fn is_held(&self, job: usize, speed: f64, highest: &Highest) -> bool {
        let paid = |corner: &Corner| -> f64 {
            highest.prices.iter().enumerate().map(|(k, price)| price * corner.on(k)).sum()
        };
        let cost: f64 =
            highest.mixes[job].iter().map(|(part, corner)| self.sizes[job] * part * paid(corner)).sum();
        let mut faster = self
            .speeds(job)
            .iter()
            .zip(&highest.prices)
            .filter(|(faster, _)| **faster > speed * (1.0 + 1e-9));
        // What a job pays is convex in its speed: it stays the same only if a faster type costs no more.
        let is_full = highest.load >= 1.0 - 1e-9;
        let costs_more = |(faster, price): (&f64, &f64)| {
            (self.sizes[job] * price - cost) * speed
                > 1e-7 * (faster - speed) * self.sizes[job] / self.total()
        };
        faster.all(|point| is_full && costs_more(point))
    }

    fn total(&self) -> f64 {
        self.devices.iter().sum()
    }

    /// How the load grows with the level, just below `level`, when types have these prices.
    ///
    /// What a need costs a job is the lower convex hull of nothing and of its types, as points of speed and price; its
    /// slope to the left of a point on it is the steepest of the lines to the points on the left.
    fn slope(
        &self,
        columns: &Columns,
        prices: &[f64],
        level: f64,
        need: impl Fn(usize, f64) -> (f64, f64),
    ) -> f64 {
        let of_job = |job: usize| {
            let (need, growth) = need(job, level);
            if need <= 0.0 || growth <= 0.0 {
                return 0.0;
            }
            let cost = columns.cheapest(job, prices).1;
            let left = self.speeds(job).iter().zip(prices).filter(|(speed, _)| **speed < need * (1.0 - 1e-9));
            let slope = |(speed, price): (&f64, &f64)| (cost - self.sizes[job] * price) / (need - speed);
            growth * left.map(slope).fold(cost / need, f64::max)
        };
        (0..self.jobs()).map(of_job).sum()
    }
}

impl Corner {
    /// Part of time on a type.
    pub(super) fn on(&self, k: usize) -> f64 {
        let part = if k == self.fast {
            self.part
        } else if self.slow == Some(k) {
            1.0 - self.part
        } else {
            0.0
        };
        part * self.scale
    }
}
