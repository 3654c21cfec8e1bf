//! Which work is done on which resources, and which is left to others at a price; and what work and resources are
//! worth.
//!
//! ```text
//! minimise    sum_w (price_w (amount_w - sum_r x_wr) + sum_r extra_wr x_wr)
//! subject to  sum_r x_wr <= amount_w                for each work w
//!             sum_w units_wr x_wr <= capacity_r     for each resource r
//!             x >= 0
//! ```
//!
//! The dual gives a value z of each unit of work and a price y of each unit of each resource:
//! `0 <= z_w <= price_w`, `y_r >= 0`, `z_w <= extra_wr + units_wr y_r`, and the largest `sum amount z - sum capacity y`
//! is the least cost. Often many are optimal. Each inequality has one z and one y, or one alone, and both
//! on sides on which they pull each other up, so of any two solutions the higher values together are a solution and so
//! are the lower: there is one highest solution and one lowest (a lattice, as in the assignment game
//! of Shapley and Shubik 1971). [`Prices`] has both. The middle between them is a solution too, and treats alike
//! whatever is alike.

use crate::grouped::{Capacity, Columns, minimise};

/// Work to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// How much, in units of its own.
    pub amount: f64,
    /// What each unit costs that is not done.
    pub price: f64,
    /// The resources that can do it; at most one way for each resource.
    pub ways: Vec<Way>,
}

/// How a resource does work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// Which resource.
    pub resource: usize,
    /// Units of the resource that a unit of work takes; more than 0.
    pub units: f64,
    /// What a unit of work costs that is done this way, beyond the resource; not negative.
    pub extra: f64,
}

/// The cheapest production.
#[derive(Debug, Clone, PartialEq)]
pub struct Production {
    /// What it costs, undone work and extras.
    pub cost: f64,
    /// Work by way, in the order of [`Work::ways`].
    pub done: Vec<Vec<f64>>,
}

/// Values of work and prices of resources, an optimum of the dual.
#[derive(Debug, Clone, PartialEq)]
pub struct Duals {
    /// What a unit of each work adds to the cost.
    pub work: Vec<f64>,
    /// What another unit of each resource would save.
    pub resources: Vec<f64>,
}

/// All optimal prices lie between these two, which are optimal.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    /// The least of each at once: best for who has resources to buy.
    pub lowest: Duals,
    /// The most of each at once: best for who has resources to sell.
    pub highest: Duals,
}

/// The part by which there is more work and less of each resource for [the highest prices](Prices::highest), and the
/// other way round for the lowest.
const LITTLE: f64 = 1e-7;

/// What it would cost to do none of a work; 0 for work that takes no part.
fn full(work: &Work) -> f64 {
    work.amount * work.price
}

/// The cheapest production. Of equally cheap ones it is any, but always the same.
///
/// # Panics
///
/// When a way names a resource that is not there.
pub fn cheapest(work: &[Work], capacity: &[f64]) -> Production {
    solve(work, capacity).0
}

/// The lowest and the highest prices.
///
/// With a little more of each work and a little less of each resource, only the highest prices of all that
/// were optimal still are; with a little less work and more resources, only the lowest. Any prices found in this way
/// satisfy the inequalities, and where numbers lie within 1e-7 of a place at which prices jump,
/// they [are worth](Duals::worth) up to that part less than the least cost.
///
/// Work without an amount and resources without capacity take no part; they have the least price at which nothing would
/// change: resources what the best work would pay, and work what it would cost to do a little of it.
///
/// # Panics
///
/// As [`cheapest`].
pub fn prices(work: &[Work], capacity: &[f64]) -> Prices {
    let scarce = |by: f64| {
        let more = |work: &Work| Work { amount: work.amount * (1.0 + by), ..work.clone() };
        let less: Vec<f64> = capacity.iter().map(|units| units * (1.0 - by)).collect();
        solve(&work.iter().map(more).collect::<Vec<_>>(), &less).1
    };
    Prices { lowest: scarce(-LITTLE), highest: scarce(LITTLE) }
}

fn solve(work: &[Work], capacity: &[f64]) -> (Production, Duals) {
    // Parts of amounts and parts of capacities have no units that could lie orders of magnitude apart.
    let full: Vec<f64> = work.iter().map(full).collect();
    let scale = full.iter().copied().fold(0.0, f64::max);
    let mut production = Production {
        cost: full.iter().sum(),
        done: work.iter().map(|work| vec![0.0; work.ways.len()]).collect(),
    };
    if capacity.is_empty() || scale == 0.0 {
        return (production, Duals::with(work, capacity, vec![0.0; capacity.len()]));
    }
    let mut columns = Columns::new(capacity.len());
    let mut taken = Vec::new();
    for (w, work) in work.iter().enumerate().filter(|(w, _)| full[*w] > 0.0) {
        columns.push(0.0, vec![0.0; capacity.len()]);
        for (at, way) in work.ways.iter().enumerate() {
            if capacity[way.resource] > 0.0 && way.extra < work.price {
                let part = work.amount * way.units / capacity[way.resource];
                let usage = (0..capacity.len()).map(|r| if r == way.resource { part } else { 0.0 });
                columns.push(-work.amount * (work.price - way.extra) / scale, usage);
                taken.push((w, at));
            }
        }
        columns.end_group();
    }
    let optimum = minimise(&columns, &vec![1.0; capacity.len()], Capacity::Hard, &[]);
    let mut parts = (0..columns.groups()).flat_map(|group| columns.group(group).skip(1));
    for (w, at) in taken {
        let column = parts.next().expect("as many columns were written");
        let amount = optimum.parts[column] * work[w].amount;
        production.done[w][at] = amount;
        production.cost -= amount * (work[w].price - work[w].ways[at].extra);
    }
    production.cost = production.cost.max(0.0);
    let price = |(part, units): (&f64, &f64)| if *units > 0.0 { part * scale / units } else { 0.0 };
    let resources = optimum.prices.iter().zip(capacity).map(price).collect();
    (production, Duals::with(work, capacity, resources))
}

impl Production {
    /// How much of a work is not done.
    pub fn undone(&self, of: usize, work: &Work) -> f64 {
        (work.amount - self.done[of].iter().sum::<f64>()).max(0.0)
    }
}

impl Duals {
    /// Duals with these prices of the resources of which there are any: work is worth the cheapest way to do it.
    fn with(work: &[Work], capacity: &[f64], mut resources: Vec<f64>) -> Duals {
        let cheapest = |work: &Work, resources: &[f64], of: &dyn Fn(&Way) -> bool| {
            let costs = work
                .ways
                .iter()
                .filter(|way| of(way))
                .map(|way| way.extra + way.units * resources[way.resource]);
            costs.fold(work.price, f64::min)
        };
        let there = |way: &Way| capacity[way.resource] > 0.0;
        let value = |work: &Work| cheapest(work, &resources, &there);
        let mut values: Vec<f64> = work.iter().map(value).collect();
        for (work, value) in work.iter().zip(&values).filter(|(work, _)| work.amount > 0.0) {
            for way in work.ways.iter().filter(|way| !there(way)) {
                let price = &mut resources[way.resource];
                *price = price.max((value - way.extra) / way.units);
            }
        }
        for (work, value) in work.iter().zip(&mut values).filter(|(work, _)| work.amount <= 0.0) {
            *value = cheapest(work, &resources, &|_| true);
        }
        Duals { work: values, resources }
    }

    /// What the dual program maximises; the least cost when these are optimal.
    pub fn worth(&self, work: &[Work], capacity: &[f64]) -> f64 {
        let values: f64 = work.iter().zip(&self.work).map(|(work, value)| work.amount * value).sum();
        let prices: f64 = capacity.iter().zip(&self.resources).map(|(units, price)| units * price).sum();
        values - prices
    }
}

impl Prices {
    /// The middle between the lowest and the highest.
    pub fn middle(&self) -> Duals {
        let middle = |low: &[f64], high: &[f64]| {
            low.iter().zip(high).map(|(&low, &high)| f64::midpoint(low, high)).collect()
        };
        Duals {
            work: middle(&self.lowest.work, &self.highest.work),
            resources: middle(&self.lowest.resources, &self.highest.resources),
        }
    }
}
