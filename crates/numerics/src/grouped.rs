//! A primal simplex for programs in which each group mixes its own columns and all groups share few capacities.
//!
//! ```text
//! minimise    sum_c cost_c x_c  (+ load, where capacities stretch)
//! subject to  sum_{c of group} x_c = 1                        for each group
//!             sum_c use_ck x_c <= capacity_k (* load)         for each type k
//!             x >= 0
//! ```
//!
//! A basis holds one *key* column of each group, and beyond those as many columns as there are types
//! (generalised upper bounds, Dantzig and Van Slyke 1967). So all linear algebra is done in a matrix of types x
//! types; what costs is looking through the columns for the best one to enter.

/// Columns by group; each with a cost and what it uses of each type.
#[derive(Debug, Clone)]
pub struct Columns {
    types: usize,
    /// Where each group's columns start, and the number of all at the end.
    starts: Vec<usize>,
    cost: Vec<f64>,
    usage: Vec<f64>,
}

impl Columns {
    /// No columns yet, for programs with this many capacities.
    pub fn new(types: usize) -> Columns {
        Columns { types, starts: vec![0], cost: Vec::new(), usage: Vec::new() }
    }

    /// Forgets the columns and keeps the memory.
    pub fn clear(&mut self) {
        self.starts.truncate(1);
        self.cost.clear();
        self.usage.clear();
    }

    /// One more column of the group that is being written.
    pub fn push(&mut self, cost: f64, usage: impl IntoIterator<Item = f64>) {
        self.cost.push(cost);
        self.usage.extend(usage);
        debug_assert_eq!(self.usage.len(), self.cost.len() * self.types, "one use of each type");
    }

    /// Ends the group that is being written; it must have a column.
    pub fn end_group(&mut self) {
        debug_assert!(self.cost.len() > self.starts[self.starts.len() - 1], "a group has a column");
        self.starts.push(self.cost.len());
    }

    /// How many groups have ended.
    pub fn groups(&self) -> usize {
        self.starts.len() - 1
    }

    /// The columns of a group.
    ///
    /// # Panics
    ///
    /// When there is no such group.
    pub fn group(&self, group: usize) -> std::ops::Range<usize> {
        self.starts[group]..self.starts[group + 1]
    }

    /// What a column uses of each type.
    ///
    /// # Panics
    ///
    /// When there is no such column.
    pub fn usage(&self, column: usize) -> &[f64] {
        &self.usage[column * self.types..(column + 1) * self.types]
    }

    /// Cost of a column when types have these prices.
    pub fn priced(&self, column: usize, prices: &[f64]) -> f64 {
        self.cost[column] + dot(self.usage(column), prices)
    }

    /// The cheapest column of a group at these prices, the first of equals, and what it costs.
    pub fn cheapest(&self, group: usize, prices: &[f64]) -> (usize, f64) {
        let range = self.group(group);
        let mut best = (range.start, f64::INFINITY);
        let usage = self.usage[range.start * self.types..range.end * self.types].chunks_exact(self.types);
        for ((column, cost), usage) in range.clone().zip(&self.cost[range]).zip(usage) {
            let priced = cost + dot(usage, prices);
            if priced < best.1 {
                best = (column, priced);
            }
        }
        best
    }

    /// The cheapest column of each group at these prices.
    fn all_cheapest(&self, prices: &[f64]) -> Vec<usize> {
        (0..self.groups()).map(|group| self.cheapest(group, prices).0).collect()
    }
}

/// A column of each group so that all fit into the capacity: the cheapest ones at prices that are about as low as
/// they can be for that. A start from there needs few pivots, and one from columns that use nothing as many as
/// there are groups.
fn fitting(columns: &Columns, capacity: &[f64]) -> Vec<usize> {
    const HALVINGS: u32 = 12;
    let taken = |prices: &[f64]| {
        let keys = columns.all_cheapest(prices);
        let mut used = vec![0.0; capacity.len()];
        keys.iter().for_each(|&key| add(&mut used, columns.usage(key), 1.0));
        used.iter().zip(capacity).all(|(used, capacity)| used <= capacity).then_some(keys)
    };
    let uses_nothing = |column: &usize| columns.usage(*column).iter().all(|&used| used == 0.0);
    let nothing = |group: usize| columns.group(group).find(uses_nothing).unwrap_or(columns.starts[group]);
    let mut found: Vec<usize> = (0..columns.groups()).map(nothing).collect();
    let mut lower = |prices: &mut [f64], range: std::ops::Range<usize>, mut high: f64| {
        let mut low = 0.0;
        for halving in 0..=HALVINGS {
            let middle = if halving == 0 { 0.0 } else { f64::midpoint(low, high) };
            prices[range.clone()].fill(middle);
            match taken(prices) {
                Some(keys) => (high, found) = (middle, keys),
                None => low = middle,
            }
            if high == 0.0 {
                break;
            }
        }
        prices[range].fill(high);
        high
    };
    let saves = |(column, cost): (usize, &f64)| -cost / columns.usage(column).iter().sum::<f64>();
    let most = columns.cost.iter().enumerate().map(saves).filter(|saved| saved.is_finite());
    let most = most.fold(0.0, f64::max);
    let mut prices = vec![most; capacity.len()];
    let high = lower(&mut prices, 0..capacity.len(), most);
    // A lower price of one type draws groups from the others, so those still fit.
    for k in 0..capacity.len() {
        lower(&mut prices, k..k + 1, high);
    }
    found
}

/// An optimal basic solution.
#[derive(Debug, Clone)]
pub struct Optimum {
    /// The objective.
    pub objective: f64,
    /// The part of each column; of all groups together at most as many as there are types are in addition to one each.
    pub parts: Vec<f64>,
    /// What another unit of each type would save.
    pub prices: Vec<f64>,
}

/// What the capacities do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// They hold. Each group must have a column that uses nothing.
    Hard,
    /// They stretch to a multiple, the load, whose cost is 1.
    Stretching,
}

/// A basic column that is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basic {
    Slack(usize),
    Load,
    Column { group: usize, column: usize },
}

/// What limits an entering column.
#[derive(Debug, Clone, Copy)]
enum Leaving {
    /// The basic column in this place.
    Place(usize),
    /// The key of this group.
    Key(usize),
}

struct Simplex<'a> {
    columns: &'a Columns,
    capacity: &'a [f64],
    kind: Capacity,
    keys: Vec<usize>,
    /// What the keys use.
    load: Vec<f64>,
    basics: Vec<Basic>,
    inverse: Vec<f64>,
    values: Vec<f64>,
    prices: Vec<f64>,
    /// Groups that may have a column to enter.
    promising: Vec<usize>,
    tolerance: f64,
}

/// Pivots without progress after which the rule of least index takes over, so that no basis comes twice.
const PATIENCE: usize = 40;

/// Solves the program; `prices` are a guess of what the optimum's will be, from which it starts where capacities
/// stretch, and are not read where they hold.
///
/// ```
/// use bellwether_numerics::grouped::{Capacity, Columns, minimise};
/// // Two groups that save 3 and 2 by using one unit each, of which there is 1: the first saves all of its 3.
/// let mut columns = Columns::new(1);
/// for saved in [3.0, 2.0] {
///     columns.push(0.0, [0.0]);
///     columns.push(-saved, [1.0]);
///     columns.end_group();
/// }
/// let found = minimise(&columns, &[1.0], Capacity::Hard, &[]);
/// assert_eq!((found.objective, found.parts), (-3.0, vec![0.0, 1.0, 1.0, 0.0]));
/// ```
pub fn minimise(columns: &Columns, capacity: &[f64], kind: Capacity, prices: &[f64]) -> Optimum {
    let mut simplex = Simplex::start(columns, capacity, kind, prices);
    let mut pivots = 0;
    let mut stalled = 0;
    // Rounding may undo what the rule of least index promises; a feasible solution is there at any time.
    let most_pivots = 1_000 + 50 * (columns.groups() + capacity.len());
    while let Some(entering) = simplex.entering(stalled > PATIENCE).filter(|_| pivots < most_pivots) {
        let step = simplex.enter(entering, stalled > PATIENCE);
        stalled = if step > 1e-13 { 0 } else { stalled + 1 };
        pivots += 1;
    }
    simplex.optimum()
}

impl<'a> Simplex<'a> {
    fn start(columns: &'a Columns, capacity: &'a [f64], kind: Capacity, prices: &[f64]) -> Simplex<'a> {
        let types = capacity.len();
        let keys = match kind {
            Capacity::Stretching => columns.all_cheapest(prices),
            Capacity::Hard => fitting(columns, capacity),
        };
        let mut basics: Vec<Basic> = (0..types).map(Basic::Slack).collect();
        let scale = columns.cost.iter().fold(1.0_f64, |most, cost| most.max(cost.abs()));
        let mut simplex = Simplex {
            columns,
            capacity,
            kind,
            load: vec![0.0; types],
            inverse: vec![0.0; types * types],
            values: vec![0.0; types],
            prices: vec![0.0; types],
            promising: Vec::new(),
            tolerance: 1e-12 * scale,
            keys,
            basics: Vec::new(),
        };
        simplex.add_up();
        if kind == Capacity::Stretching {
            // The load is what the fullest type needs; all others have slack then.
            let ratio = |k: &usize| simplex.load[*k] / capacity[*k];
            let fullest = (0..types).reduce(|best, k| if ratio(&k) > ratio(&best) { k } else { best });
            basics[fullest.unwrap_or(0)] = Basic::Load;
        }
        simplex.basics = basics;
        simplex.factorise();
        simplex
    }

    /// What the keys use, added up again: rounding must not add up with the pivots.
    fn add_up(&mut self) {
        self.load.fill(0.0);
        for &key in &self.keys {
            add(&mut self.load, self.columns.usage(key), 1.0);
        }
    }

    /// A column of the working matrix: what it uses beyond the key that it takes the place of.
    fn column(&self, basic: Basic, out: &mut [f64]) {
        out.fill(0.0);
        match basic {
            Basic::Slack(k) => out[k] = 1.0,
            Basic::Load => add(out, self.capacity, -1.0),
            Basic::Column { group, column } => {
                add(out, self.columns.usage(column), 1.0);
                add(out, self.columns.usage(self.keys[group]), -1.0);
            }
        }
    }

    fn cost(&self, basic: Basic) -> f64 {
        match basic {
            Basic::Slack(_) => 0.0,
            Basic::Load => 1.0,
            Basic::Column { group, column } => {
                self.columns.cost[column] - self.columns.cost[self.keys[group]]
            }
        }
    }

    /// Inverse, values and prices of the present basis.
    fn factorise(&mut self) {
        let types = self.capacity.len();
        let mut matrix = vec![0.0; types * types];
        let mut column = vec![0.0; types];
        for (place, &basic) in self.basics.iter().enumerate() {
            self.column(basic, &mut column);
            for (k, entry) in column.iter().enumerate() {
                matrix[k * types + place] = *entry;
            }
        }
        invert(&mut matrix, &mut self.inverse, types);
        for (place, value) in self.values.iter_mut().enumerate() {
            let row = &self.inverse[place * types..(place + 1) * types];
            let supply = |k: usize| if self.kind == Capacity::Hard { self.capacity[k] } else { 0.0 };
            *value = row.iter().enumerate().map(|(k, entry)| entry * (supply(k) - self.load[k])).sum();
        }
        for k in 0..types {
            let dual: f64 =
                (0..types).map(|place| self.cost(self.basics[place]) * self.inverse[place * types + k]).sum();
            self.prices[k] = -dual;
        }
    }

    /// The column with the most negative reduced cost among the groups that had one when all were last looked through,
    /// or else among all; with `first` the first with any. `None` at an optimum.
    fn entering(&mut self, first: bool) -> Option<Basic> {
        let mut best = (-self.tolerance, None);
        if !first {
            let mut promising = std::mem::take(&mut self.promising);
            promising.retain(|&group| self.consider(group, &mut best));
            self.promising = promising;
        }
        if best.1.is_none() {
            for group in 0..self.keys.len() {
                if self.consider(group, &mut best) {
                    self.promising.push(group);
                    if first {
                        return best.1;
                    }
                }
            }
        }
        let slacks =
            self.prices.iter().enumerate().map(|(k, &price)| (Basic::Slack(k), price * self.capacity[k]));
        let load = (Basic::Load, 1.0 - dot(&self.prices, self.capacity));
        for (basic, reduced) in slacks.chain((self.kind == Capacity::Stretching).then_some(load)) {
            if reduced < best.0 && !self.basics.contains(&basic) {
                best = (reduced, Some(basic));
            }
        }
        best.1
    }

    /// Whether a group has a column to enter; the best so far is kept in `best`.
    fn consider(&self, group: usize, best: &mut (f64, Option<Basic>)) -> bool {
        let (column, priced) = self.columns.cheapest(group, &self.prices);
        let reduced = priced - self.columns.priced(self.keys[group], &self.prices);
        if reduced < best.0 {
            *best = (reduced, Some(Basic::Column { group, column }));
        }
        reduced < -self.tolerance
    }

    /// Brings a column into the basis, and returns how far it went.
    fn enter(&mut self, entering: Basic, first: bool) -> f64 {
        let types = self.capacity.len();
        let mut column = vec![0.0; types];
        self.column(entering, &mut column);
        // How each basic column falls per unit of the entering one.
        let fall: Vec<f64> =
            (0..types).map(|place| dot(&self.inverse[place * types..(place + 1) * types], &column)).collect();
        let (leaving, step) = self.leaving(entering, &fall, first);
        match leaving {
            Leaving::Place(place) => self.basics[place] = entering,
            Leaving::Key(group) => {
                let place = self.basics.iter().position(|basic| basic.group() == Some(group));
                let new_key = match (entering, place) {
                    (Basic::Column { group: own, column }, _) if own == group => column,
                    (_, Some(place)) => {
                        let Basic::Column { column, .. } = self.basics[place] else {
                            unreachable!("only columns belong to groups")
                        };
                        self.basics[place] = entering;
                        column
                    }
                    _ => unreachable!("a key moves only with a column of its own group"),
                };
                self.keys[group] = new_key;
                self.add_up();
            }
        }
        self.factorise();
        step
    }

    /// Which basic column first falls to zero, and after how much of the entering one. Of equals the one with
    /// the steepest fall, which keeps the matrix well conditioned, or the first.
    fn leaving(&self, entering: Basic, fall: &[f64], first: bool) -> (Leaving, f64) {
        const LEAST: f64 = 1e-11;
        let places =
            fall.iter().enumerate().map(|(place, &fall)| (Leaving::Place(place), self.values[place], fall));
        let own = entering.group();
        let touched = self.basics.iter().filter_map(|basic| basic.group());
        let keys = touched.filter(|group| Some(*group) != own).chain(own).map(|group| {
            let of_group = |place: &usize| self.basics[*place].group() == Some(group);
            let value = 1.0 - (0..fall.len()).filter(of_group).map(|place| self.values[place]).sum::<f64>();
            let rise: f64 = (0..fall.len()).filter(of_group).map(|place| fall[place]).sum();
            (Leaving::Key(group), value, f64::from(u8::from(own == Some(group))) - rise)
        });
        let mut best = (Leaving::Place(0), f64::INFINITY, 0.0);
        for (leaving, value, fall) in places.chain(keys).filter(|(_, _, fall)| *fall > LEAST) {
            let step = value.max(0.0) / fall;
            let tie = (step - best.1).abs() <= 1e-14;
            if (tie && !first && fall > best.2) || (!tie && step < best.1) {
                best = (leaving, step, fall);
            }
        }
        debug_assert!(best.1.is_finite(), "parts of groups are bounded, and so is the load");
        (best.0, best.1)
    }

    fn optimum(mut self) -> Optimum {
        self.add_up();
        self.factorise();
        let mut parts = vec![0.0; self.columns.cost.len()];
        for &key in &self.keys {
            parts[key] = 1.0;
        }
        let mut objective = 0.0;
        for (place, &basic) in self.basics.iter().enumerate() {
            let value = self.values[place].max(0.0);
            match basic {
                Basic::Slack(_) => {}
                Basic::Load => objective += value,
                Basic::Column { group, column } => {
                    parts[column] = value;
                    parts[self.keys[group]] = (parts[self.keys[group]] - value).max(0.0);
                }
            }
        }
        objective += dot(&parts, &self.columns.cost);
        for price in &mut self.prices {
            *price = price.max(0.0);
        }
        Optimum { objective, parts, prices: self.prices }
    }
}

impl Basic {
    fn group(self) -> Option<usize> {
        match self {
            Basic::Column { group, .. } => Some(group),
            Basic::Slack(_) | Basic::Load => None,
        }
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

fn add(sum: &mut [f64], terms: &[f64], factor: f64) {
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += factor * term;
    }
}

/// Inverts by Gauss and Jordan with partial pivoting; `matrix` is used up. Rows of both are of `size`.
fn invert(matrix: &mut [f64], inverse: &mut [f64], size: usize) {
    inverse.fill(0.0);
    for k in 0..size {
        inverse[k * size + k] = 1.0;
    }
    for column in 0..size {
        let steepest = (column..size).fold(column, |best, row| {
            if matrix[row * size + column].abs() > matrix[best * size + column].abs() { row } else { best }
        });
        for k in 0..size {
            matrix.swap(column * size + k, steepest * size + k);
            inverse.swap(column * size + k, steepest * size + k);
        }
        let pivot = matrix[column * size + column];
        for k in 0..size {
            matrix[column * size + k] /= pivot;
            inverse[column * size + k] /= pivot;
        }
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row * size + column];
            if factor != 0.0 {
                for k in 0..size {
                    matrix[row * size + k] -= factor * matrix[column * size + k];
                    inverse[row * size + k] -= factor * inverse[column * size + k];
                }
            }
        }
    }
}
