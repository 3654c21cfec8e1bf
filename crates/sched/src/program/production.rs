//! Which work is done on which resources, and which is left to others at a price; and what work and resources are worth.
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

use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions, Variable};

use super::relaxation::{Capacity, Columns, minimise};

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

/// Parts of an amount or a capacity that are rounding.
const ROUNDING: f64 = 1e-9;

/// By how much prices may miss a condition, in parts of the most that they can be.
const FEASIBILITY: f64 = 1e-10;

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
    // Parts of amounts and parts of capacities have no units that could lie orders of magnitude apart.
    let full: Vec<f64> = work.iter().map(full).collect();
    let scale = full.iter().copied().fold(0.0, f64::max);
    let mut production = Production {
        cost: full.iter().sum(),
        done: work.iter().map(|work| vec![0.0; work.ways.len()]).collect(),
    };
    if capacity.is_empty() || scale == 0.0 {
        return production;
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
    production
}

impl Production {
    /// How much of a work is not done.
    pub fn undone(&self, of: usize, work: &Work) -> f64 {
        (work.amount - self.done[of].iter().sum::<f64>()).max(0.0)
    }

    /// Units of each resource in use.
    pub fn used(&self, work: &[Work], resources: usize) -> Vec<f64> {
        let mut used = vec![0.0; resources];
        for (work, done) in work.iter().zip(&self.done) {
            for (way, amount) in work.ways.iter().zip(done) {
                used[way.resource] += way.units * amount;
            }
        }
        used
    }
}

impl Duals {
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

/// What an optimal production says of its prices: complementary slackness, which holds between any optimum of the
/// program and any of its dual.
struct Conditions<'a> {
    work: &'a [Work],
    capacity: &'a [f64],
    /// Work of which some is not done: it is worth its price.
    undone: Vec<bool>,
    /// Resources with something to spare: their price is zero.
    spare: Vec<bool>,
    /// Ways that are used: what is done pays for itself.
    used: Vec<Vec<bool>>,
}

/// The lowest and the highest prices, given [the cheapest production](cheapest).
///
/// Work without an amount and resources without capacity take no part; they have the least price at which nothing would
/// change: resources what the best work would pay, and work what it would cost to do a little of it. `None` where the numbers lie so many orders of magnitude apart
/// that no solver can tell.
pub fn prices(work: &[Work], capacity: &[f64], production: &Production) -> Option<Prices> {
    let conditions = Conditions::new(work, capacity, production);
    let mut lowest = conditions.extreme(OptimizationDirection::Minimize)?;
    let mut highest = conditions.extreme(OptimizationDirection::Maximize)?;
    conditions.fill(&mut lowest);
    conditions.fill(&mut highest);
    Some(Prices { lowest, highest })
}

impl<'a> Conditions<'a> {
    fn new(work: &'a [Work], capacity: &'a [f64], production: &Production) -> Conditions<'a> {
        let used = production.used(work, capacity.len());
        let spare = |(used, capacity): (&f64, &f64)| *used < capacity * (1.0 - ROUNDING);
        let undone = |(w, work): (usize, &Work)| production.undone(w, work) > ROUNDING * work.amount;
        let ways = |(w, work): (usize, &Work)| {
            let of_work = production.done[w].iter();
            let least =
                |way: &Way| (ROUNDING * work.amount).min(ROUNDING * capacity[way.resource] / way.units);
            of_work.zip(&work.ways).map(|(amount, way)| *amount > 0.0 && *amount >= least(way)).collect()
        };
        Conditions {
            work,
            capacity,
            undone: work.iter().enumerate().map(undone).collect(),
            spare: used.iter().zip(capacity).map(spare).collect(),
            used: work.iter().enumerate().map(ways).collect(),
        }
    }

    /// All lowest or all highest prices at once: the sum of all, in parts of the most that each can be, is least or
    /// largest there.
    fn extreme(&self, direction: OptimizationDirection) -> Option<Duals> {
        let most = self.most();
        let mut problem = Problem::new(direction);
        let mut part = |most: f64, known: Option<f64>| {
            (most > 0.0).then(|| problem.add_var(1.0, known.map_or((0.0, 1.0), |part| (part, part))))
        };
        let works = self.work.iter().zip(&self.undone);
        let works: Vec<Option<Variable>> =
            works.map(|(work, &undone)| part(full(work), undone.then_some(1.0))).collect();
        let resources = most.iter().zip(&self.spare);
        let resources: Vec<Option<Variable>> =
            resources.map(|(&most, &spare)| part(most, spare.then_some(0.0))).collect();
        for ((work, used), variable) in self.work.iter().zip(&self.used).zip(&works) {
            let Some(value) = *variable else { continue };
            for (way, &used) in work.ways.iter().zip(used) {
                let Some(price) = resources[way.resource].filter(|_| way.extra < work.price) else {
                    continue;
                };
                let sense = if used { ComparisonOp::Eq } else { ComparisonOp::Le };
                let units = way.units * most[way.resource] / work.price;
                problem.add_constraint([(value, 1.0), (price, -units)], sense, way.extra / work.price);
            }
        }
        let mut options = SolveOptions::default();
        options.tolerances.feasibility = FEASIBILITY;
        let solution = problem.solve_with(options).ok()?.into_solution().ok()?;
        let value = |variable: &Option<Variable>| {
            variable.map_or(0.0, |variable| solution.var_value(variable).clamp(0.0, 1.0))
        };
        Some(Duals {
            work: works.iter().zip(self.work).map(|(part, work)| value(part) * work.price).collect(),
            resources: resources.iter().zip(&most).map(|(part, most)| value(part) * most).collect(),
        })
    }

    /// The most that a unit of each resource can be worth to work; 0 where there is no unit.
    fn most(&self) -> Vec<f64> {
        let mut most = vec![0.0_f64; self.capacity.len()];
        for work in self.work.iter().filter(|work| full(work) > 0.0) {
            for way in work.ways.iter().filter(|way| self.capacity[way.resource] > 0.0) {
                most[way.resource] = most[way.resource].max((work.price - way.extra) / way.units);
            }
        }
        most
    }

    /// Prices of what takes no part.
    fn fill(&self, duals: &mut Duals) {
        for (work, &value) in self.work.iter().zip(&duals.work).filter(|(work, _)| work.amount > 0.0) {
            for way in work.ways.iter().filter(|way| self.capacity[way.resource] <= 0.0) {
                let price = &mut duals.resources[way.resource];
                *price = price.max((value - way.extra) / way.units);
            }
        }
        for (work, value) in self.work.iter().zip(&mut duals.work).filter(|(work, _)| work.amount <= 0.0) {
            let costs = work.ways.iter().map(|way| way.extra + way.units * duals.resources[way.resource]);
            *value = costs.fold(work.price, f64::min);
        }
    }
}
