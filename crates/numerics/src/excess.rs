//! A number for each element of a small set, so that the sums over subsets fall short of given values by as little
//! as possible.
//!
//! ```text
//! minimise    e
//! subject to  x(S) + e >= v(S)     for each free subset S, where x(S) = sum_{i in S} x_i
//!             x(F)     =  b_F      for each fixed subset F, the whole set among them
//!             x_i      >= v({i})   where elements have a floor
//! ```
//!
//! `v(S) - x(S)` is the *excess* of a subset. In the theory of games the elements are players, the subsets
//! coalitions, and x is what each player is paid.
//!
//! There are elements + 1 unknowns and up to 2^n rows, so the dual is solved by a revised simplex, whose basis has
//! n + 1 columns, one for each row that binds; the row to enter is the most violated of all, which is row
//! generation with every row in sight. A solver for general programs was not taken: it tells no duals, and these
//! decide which subsets are fixed next; nor does it find the most violated of a million rows by adding up in place.
//!
//! Subsets in the span of the fixed ones have nothing left to decide, and are not free. Whether one is in the span is
//! decided exactly: a determinant of 20 rows of zeros and ones is less than 7.3e7 (Hadamard), so ranks modulo the prime
//! 2^31 - 1 are those over the rational numbers.
//!
//! A subset is a number whose bits are its elements.
//!
//! ```
//! use bellwether_numerics::excess::Program;
//! // Any two of three are worth what all are: each gets a third, and every pair still lacks a third.
//! let values = [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0];
//! let found = Program::new(3, &values, &[0b111], false).solve();
//! assert!((found.excess - 1.0 / 3.0).abs() < 1e-12);
//! assert!(found.numbers.iter().all(|x| (x - 1.0 / 3.0).abs() < 1e-12));
//! ```

/// The most elements: there is a value for each of the 2^20 subsets.
pub const MOST_ELEMENTS: usize = 20;

/// What does not count as a violation, as part of the largest value.
const VIOLATION: f64 = 1e-11;

/// Parts of a direction that are zero but for rounding. They are quotients of determinants of zeros and ones.
const NOTHING: f64 = 1e-9;

/// Weights above this are not zero; for the same reason that is 4e-7 at least with 15 elements.
const WEIGHT: f64 = 1e-7;

/// Pivots without progress after which the rule of least index takes over, so that no basis comes twice.
const PATIENCE: usize = 30;

/// The program: values from which those of single elements are taken away, as parts of the largest.
pub struct Program {
    elements: usize,
    values: Vec<f64>,
    /// What was taken away.
    alone: Vec<f64>,
    scale: f64,
    /// By subset: whether it is not in the span of the fixed ones.
    free: Vec<bool>,
    /// The fixed subsets, independent of each other, and their sums.
    fixed: Vec<(u32, f64)>,
    span: Span,
    /// Whether no number may be below the value of its element alone.
    is_floored: bool,
    /// The last optimum: elements in the span have these numbers at every other one.
    numbers: Vec<f64>,
    /// Room for the sum of each subset.
    sums: Vec<f64>,
}

/// An optimum, in the unit of the values.
#[derive(Debug, Clone)]
pub struct Optimum {
    /// The largest excess of the free subsets.
    pub excess: f64,
    /// The number of each element.
    pub numbers: Vec<f64>,
    /// Free subsets, in order, that have this excess at every optimum, with their weights, which sum to 1.
    pub pressing: Vec<(u32, f64)>,
    /// Elements that are at their floor at every optimum.
    floored: Vec<usize>,
}

/// A row of the program, which is a column of the basis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Row {
    /// A free subset.
    Free(u32),
    /// An element alone, demanding little enough never to bind at an optimum: the start of every basis.
    Start(usize),
    /// The floor of an element.
    Floor(usize),
    /// A fixed subset, by its place.
    Fixed(usize),
}

impl Program {
    /// The program in which the numbers of each block of a partition of the elements add up to the block's value.
    /// `values` holds the value of each subset, at the place that is its number; with `is_floored` no number may be
    /// below the value of its element alone.
    ///
    /// # Panics
    ///
    /// When there are no elements or more than 20, no block, or not one value for each subset.
    pub fn new(elements: usize, values: &[f64], blocks: &[u32], is_floored: bool) -> Program {
        assert!((1..=MOST_ELEMENTS).contains(&elements), "{elements} elements, not 1 to {MOST_ELEMENTS}");
        assert_eq!(values.len(), 1 << elements, "one value for each subset");
        let alone: Vec<f64> = (0..elements).map(|element| values[1 << element]).collect();
        let mut values: Vec<f64> =
            values.iter().zip(subset_sums(&alone)).map(|(value, sum)| value - sum).collect();
        let most = values.iter().fold(0.0, |most: f64, value| value.abs().max(most));
        let scale = if most > 0.0 { most } else { 1.0 };
        values.iter_mut().for_each(|value| *value /= scale);
        let mut program = Program {
            elements,
            numbers: vec![0.0; elements],
            sums: vec![0.0; values.len()],
            free: vec![true; values.len()],
            values,
            alone,
            scale,
            fixed: Vec::new(),
            span: Span::new(elements),
            is_floored,
        };
        // Where there are floors, a block that is worth too little by a rounding is worth enough.
        let least = if is_floored { 0.0 } else { f64::NEG_INFINITY };
        let worth = |block: &u32| program.values[*block as usize].max(least);
        let all = (((1_u64 << elements) - 1) as u32, blocks.iter().map(worth).sum());
        let rest: Vec<(u32, f64)> = blocks.iter().skip(1).map(|block| (*block, worth(block))).collect();
        program.fix(std::iter::once(all).chain(rest));
        program
    }

    /// Whether all numbers are settled.
    pub fn is_decided(&self) -> bool {
        self.fixed.len() == self.elements
    }

    /// All numbers.
    ///
    /// # Panics
    ///
    /// When they are not settled.
    pub fn decided(&self) -> Vec<f64> {
        let rows: Vec<Row> = (0..self.fixed.len()).map(Row::Fixed).collect();
        let n = self.elements;
        let matrix: Vec<f64> = rows.iter().flat_map(|&row| self.entries(row).take(n)).collect();
        let inverse = inverse(matrix, n);
        let number = |element: usize| (0..n).map(|row| inverse[element * n + row] * self.fixed[row].1).sum();
        self.in_units((0..n).map(number))
    }

    /// Fixes what every optimum has in common, so that the next solution is among these optima.
    pub fn settle(&mut self, optimum: &Optimum) {
        let excess = optimum.excess / self.scale;
        let pressed =
            optimum.pressing.iter().map(|&(subset, _)| (subset, self.values[subset as usize] - excess));
        let floored = optimum.floored.iter().map(|&element| (1 << element, 0.0));
        let common: Vec<(u32, f64)> = pressed.chain(floored).collect();
        self.fix(common);
    }

    fn fix(&mut self, subsets: impl IntoIterator<Item = (u32, f64)>) {
        for (subset, sum) in subsets {
            if self.span.insert(subset) {
                self.fixed.push((subset, sum));
            }
        }
        for (bits, free) in self.free.iter_mut().enumerate() {
            *free = *free && !self.span.contains(bits as u32);
        }
    }

    fn in_units(&self, numbers: impl Iterator<Item = f64>) -> Vec<f64> {
        numbers.zip(&self.alone).map(|(number, alone)| number * self.scale + alone).collect()
    }

    /// Which elements a row counts, and whether it counts the excess.
    fn entries(&self, row: Row) -> impl Iterator<Item = f64> + use<> {
        let (subset, excess) = match row {
            Row::Free(subset) => (subset, 1.0),
            Row::Start(element) => (1 << element, 1.0),
            Row::Floor(element) => (1 << element, 0.0),
            Row::Fixed(place) => (self.fixed[place].0, 0.0),
        };
        (0..self.elements).map(move |i| f64::from(u8::from(contains(subset, i)))).chain([excess])
    }

    /// What the right side of a row is.
    fn demand(&self, row: Row) -> f64 {
        match row {
            Row::Free(bits) => self.values[bits as usize],
            Row::Floor(_) => 0.0,
            Row::Fixed(place) => self.fixed[place].1,
            Row::Start(element) => {
                // The elements alone that are free have a mean excess that no numbers change: `e` is at least that.
                let (mut count, mut sum) = (0.0, self.fixed[0].1);
                for (other, number) in self.numbers.iter().enumerate() {
                    if self.free[1 << other] { count += 1.0 } else { sum -= number }
                }
                self.numbers[element] - sum / count - 1.0
            }
        }
    }

    /// An optimum.
    ///
    /// # Panics
    ///
    /// When all numbers are settled.
    pub fn solve(&mut self) -> Optimum {
        let alone = |element: usize| {
            if self.free[1 << element] { Row::Free(1 << element) } else { Row::Start(element) }
        };
        let mut basis: Vec<Row> = (0..self.elements).map(alone).chain([Row::Fixed(0)]).collect();
        for place in 1..self.fixed.len() {
            let corner = self.corner(&basis);
            self.pivot(&mut basis, &corner, Row::Fixed(place), false);
        }
        let mut stalled = 0;
        loop {
            let corner = self.corner(&basis);
            let is_patient = stalled <= PATIENCE;
            let Some(entering) = self.entering(&corner, is_patient) else {
                return self.optimum(&basis, &corner);
            };
            let step = self.pivot(&mut basis, &corner, entering, !is_patient);
            stalled = if step > NOTHING { 0 } else { stalled + 1 };
        }
    }

    fn corner(&self, basis: &[Row]) -> Corner {
        let size = basis.len();
        let matrix: Vec<f64> = basis.iter().flat_map(|&row| self.entries(row)).collect();
        let inverse = inverse(matrix, size);
        let demands: Vec<f64> = basis.iter().map(|&row| self.demand(row)).collect();
        let unknowns = inverse.chunks_exact(size).map(|row| dot(row, &demands)).collect();
        Corner { inverse, unknowns }
    }

    /// The most violated row, or the first that is violated. `None` at an optimum.
    fn entering(&mut self, corner: &Corner, most_violated: bool) -> Option<Row> {
        let (numbers, excess) = corner.unknowns.split_at(self.elements);
        let mut filled = 1;
        for number in numbers {
            let (low, high) = self.sums[..2 * filled].split_at_mut(filled);
            high.iter_mut().zip(low).for_each(|(high, low)| *high = *low + number);
            filled *= 2;
        }
        let mut best = (VIOLATION, None);
        for (bits, ((value, sum), free)) in self.values.iter().zip(&self.sums).zip(&self.free).enumerate() {
            let violation = value - sum - excess[0];
            if violation > best.0 && *free {
                best = (violation, Some(Row::Free(bits as u32)));
                if !most_violated {
                    return best.1;
                }
            }
        }
        for (element, number) in numbers.iter().enumerate() {
            if self.is_floored && self.free[1 << element] && -number > best.0 {
                best = (-number, Some(Row::Floor(element)));
                if !most_violated {
                    return best.1;
                }
            }
        }
        best.1
    }

    /// Takes a row into the basis, and returns how far its weight went. Rows of fixed subsets stay, as their
    /// weights have no sign; so one that enters may go either way.
    fn pivot(&self, basis: &mut [Row], corner: &Corner, entering: Row, by_index: bool) -> f64 {
        let size = basis.len();
        let mut fall = vec![0.0; size];
        let mut gain = self.demand(entering);
        for ((entry, row), unknown) in
            self.entries(entering).zip(corner.inverse.chunks_exact(size)).zip(&corner.unknowns)
        {
            fall.iter_mut().zip(row).for_each(|(fall, part)| *fall += entry * part);
            gain -= entry * unknown;
        }
        let is_fixed = matches!(entering, Row::Fixed(_));
        if is_fixed && gain < 0.0 {
            fall.iter_mut().for_each(|fall| *fall = -*fall);
        }
        let leaving = self.leaving(basis, corner, &fall, by_index).or_else(|| {
            let back: Vec<f64> = fall.iter().map(|fall| -fall).collect();
            self.leaving(basis, corner, &back, by_index).filter(|_| is_fixed)
        });
        let (place, step) = leaving.expect("some numbers obey all rows");
        basis[place] = entering;
        step
    }

    /// The place in the basis whose weight is the first to become 0, and after which step.
    fn leaving(&self, basis: &[Row], corner: &Corner, fall: &[f64], by_index: bool) -> Option<(usize, f64)> {
        let weights = corner.weights();
        let may_leave = |place: &usize| fall[*place] > NOTHING && !matches!(basis[*place], Row::Fixed(_));
        let step = |place: usize| weights[place].max(0.0) / fall[place];
        let least = (0..basis.len()).filter(may_leave).map(step).min_by(f64::total_cmp)?;
        let ties = (0..basis.len()).filter(may_leave).filter(|&place| step(place) <= least + NOTHING);
        let place = if by_index {
            ties.min_by_key(|&place| self.index(basis[place]))
        } else {
            // The largest pivot is the one with the least rounding.
            ties.max_by(|&a, &b| fall[a].total_cmp(&fall[b]))
        };
        place.map(|place| (place, step(place)))
    }

    /// The order of rows for the rule of least index.
    fn index(&self, row: Row) -> usize {
        match row {
            Row::Free(bits) => bits as usize,
            Row::Floor(element) => self.values.len() + element,
            Row::Start(element) => self.values.len() + self.elements + element,
            Row::Fixed(_) => usize::MAX,
        }
    }

    fn optimum(&mut self, basis: &[Row], corner: &Corner) -> Optimum {
        let (numbers, excess) = corner.unknowns.split_at(self.elements);
        self.numbers = numbers.to_vec();
        let (mut pressing, mut floored) = (Vec::new(), Vec::new());
        for (&row, &weight) in basis.iter().zip(corner.weights()).filter(|(_, weight)| **weight > WEIGHT) {
            match row {
                Row::Free(subset) => pressing.push((subset, weight)),
                Row::Floor(element) => floored.push(element),
                Row::Start(_) | Row::Fixed(_) => {}
            }
        }
        pressing.sort_unstable_by_key(|(subset, _)| *subset);
        let numbers = self.in_units(numbers.iter().copied());
        Optimum { excess: excess[0] * self.scale, numbers, pressing, floored }
    }
}

/// A basis solved.
struct Corner {
    /// The inverse of the matrix whose rows are those of the basis.
    inverse: Vec<f64>,
    /// The number of each element, and the excess.
    unknowns: Vec<f64>,
}

impl Corner {
    /// The weight of each row of the basis.
    fn weights(&self) -> &[f64] {
        &self.inverse[self.inverse.len() - self.unknowns.len()..]
    }
}

/// Whether an element is in a subset.
const fn contains(subset: u32, element: usize) -> bool {
    subset >> element & 1 == 1
}

/// The sum over each subset, at the place that is its number, of these numbers of the elements.
pub fn subset_sums(numbers: &[f64]) -> Vec<f64> {
    let mut sums = Vec::with_capacity(1 << numbers.len());
    sums.push(0.0);
    for &number in numbers {
        for place in 0..sums.len() {
            sums.push(sums[place] + number);
        }
    }
    sums
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inverse of a matrix, by rows, that has one (Gauss and Jordan, with the largest pivot of each column).
fn inverse(mut matrix: Vec<f64>, size: usize) -> Vec<f64> {
    let mut inverse: Vec<f64> =
        (0..size * size).map(|place| f64::from(u8::from(place % (size + 1) == 0))).collect();
    for column in 0..size {
        let entry = |row: usize| matrix[row * size + column].abs();
        let pivot = (column..size).max_by(|&a, &b| entry(a).total_cmp(&entry(b))).unwrap_or(column);
        for place in 0..size {
            matrix.swap(column * size + place, pivot * size + place);
            inverse.swap(column * size + place, pivot * size + place);
        }
        let scale = 1.0 / matrix[column * size + column];
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row * size + column] * scale;
            if factor != 0.0 {
                for place in 0..size {
                    matrix[row * size + place] -= factor * matrix[column * size + place];
                    inverse[row * size + place] -= factor * inverse[column * size + place];
                }
            }
        }
        for place in 0..size {
            matrix[column * size + place] *= scale;
            inverse[column * size + place] *= scale;
        }
    }
    inverse
}

/// What subsets that are taken as vectors of zeros and ones span, modulo a prime.
struct Span {
    elements: usize,
    /// Rows in echelon form: each has a 1 at its own place, where all others have 0.
    rows: Vec<(usize, Vec<u64>)>,
}

const PRIME: u64 = (1 << 31) - 1;

impl Span {
    fn new(elements: usize) -> Span {
        Span { elements, rows: Vec::new() }
    }

    /// What of a subset is left at a place when the rows are taken away.
    fn left(&self, subset: u32, place: usize) -> u64 {
        let taken: u64 =
            self.rows.iter().filter(|(own, _)| contains(subset, *own)).map(|(_, row)| row[place]).sum();
        (u64::from(contains(subset, place)) + PRIME - taken % PRIME) % PRIME
    }

    fn contains(&self, subset: u32) -> bool {
        (0..self.elements).all(|place| self.left(subset, place) == 0)
    }

    /// Adds a subset, unless it is in the span.
    fn insert(&mut self, subset: u32) -> bool {
        let mut new: Vec<u64> = (0..self.elements).map(|place| self.left(subset, place)).collect();
        let Some(own) = new.iter().position(|&entry| entry != 0) else { return false };
        let scale = reciprocal(new[own]);
        new.iter_mut().for_each(|entry| *entry = *entry * scale % PRIME);
        for (_, row) in &mut self.rows {
            let factor = PRIME - row[own];
            row.iter_mut().zip(&new).for_each(|(entry, new)| *entry = (*entry + factor * new) % PRIME);
        }
        self.rows.push((own, new));
        true
    }
}

/// One over a number modulo the prime: its power of the prime minus 2 (Fermat).
fn reciprocal(number: u64) -> u64 {
    let (mut power, mut exponent, mut result) = (number, PRIME - 2, 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * power % PRIME;
        }
        power = power * power % PRIME;
        exponent >>= 1;
    }
    result
}
