//! The linear program of excesses: the payment at which what the keenest coalition gains by leaving is least.
//!
//! ```text
//! minimise    e
//! subject to  x(S) + e >= v(S)     for each free coalition S
//!             x(F)     =  b_F      for each fixed coalition F, that of all among them
//!             x_i      >= 0        where nobody may lose
//! ```
//!
//! There are members + 1 unknowns and up to 2^n rows, so the dual is solved by a revised simplex, whose basis has n + 1
//! columns, one for each row that binds; the row to enter is the most violated of all, which is row generation with
//! every row in sight. A solver for general programs was not taken: it tells no duals, and these decide which
//! coalitions are fixed next; nor does it find the most violated of a million rows by adding up in place.
//!
//! Coalitions in the span of the fixed ones have nothing left to decide, and are not free. Whether one is in the span is
//! decided exactly: a determinant of 20 rows of zeros and ones is less than 7.3e7 (Hadamard), so ranks modulo the prime
//! 2^31 - 1 are those over the rational numbers.

use super::game::{Coalition, Game, largest};

/// What is no violation, as part of the largest value.
const VIOLATION: f64 = 1e-11;

/// Parts of a direction that are zero but for rounding. They are quotients of determinants of zeros and ones.
const NOTHING: f64 = 1e-9;

/// Weights above this are not zero; for the same reason that is 4e-7 at least with 15 members.
const WEIGHT: f64 = 1e-7;

/// Pivots without progress after which the rule of least index takes over, so that no basis comes twice.
const PATIENCE: usize = 30;

/// What the program is about: values from which those of single members are taken away, as parts of the largest.
pub(super) struct Program {
    members: usize,
    values: Vec<f64>,
    /// What was taken away.
    alone: Vec<f64>,
    scale: f64,
    /// By coalition: whether it is not in the span of the fixed ones.
    free: Vec<bool>,
    /// The fixed coalitions, independent of each other, and what they are paid.
    fixed: Vec<(Coalition, f64)>,
    span: Span,
    /// Whether nobody may be paid less than what it is worth alone.
    is_rational: bool,
    /// The last optimum: what members in the span are paid at every other one.
    payment: Vec<f64>,
    /// Room for what each coalition is paid.
    sums: Vec<f64>,
}

/// An optimum in the units of the game.
pub(super) struct Optimum {
    /// The excess of the keenest of the free coalitions.
    pub(super) excess: f64,
    /// The payment.
    pub(super) payment: Vec<f64>,
    /// Free coalitions that have this excess at every optimum, with their weights, which sum to 1.
    pub(super) pressing: Vec<(Coalition, f64)>,
    /// Members that are paid at every optimum what they are worth alone, as nobody may lose.
    floored: Vec<usize>,
}

/// A row of the program, which is a column of the basis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Row {
    /// A free coalition.
    Free(u32),
    /// A member alone, demanding little enough never to bind at an optimum: the start of every basis.
    Start(usize),
    /// A member that may not lose.
    Floor(usize),
    /// A fixed coalition, by its place.
    Fixed(usize),
}

impl Program {
    /// The program of a game in which each block of a partition of the members is paid what it is worth.
    pub(super) fn new(game: &Game, blocks: &[Coalition], is_rational: bool) -> Program {
        let members = game.members();
        let alone = game.alone();
        let mut values: Vec<f64> =
            game.values().iter().zip(game.sums(&alone)).map(|(value, sum)| value - sum).collect();
        let most = largest(&values);
        let scale = if most > 0.0 { most } else { 1.0 };
        values.iter_mut().for_each(|value| *value /= scale);
        let mut program = Program {
            members,
            payment: vec![0.0; members],
            sums: vec![0.0; values.len()],
            free: vec![true; values.len()],
            values,
            alone,
            scale,
            fixed: Vec::new(),
            span: Span::new(members),
            is_rational,
        };
        // Where nobody may lose, a block that is worth too little by a rounding is worth enough.
        let least = if is_rational { 0.0 } else { f64::NEG_INFINITY };
        let worth = |block: &Coalition| program.values[block.bits() as usize].max(least);
        let all = (game.everyone(), blocks.iter().map(worth).sum());
        let rest: Vec<(Coalition, f64)> = blocks.iter().skip(1).map(|block| (*block, worth(block))).collect();
        program.fix(std::iter::once(all).chain(rest));
        program
    }

    /// Whether the payment is settled.
    pub(super) fn is_decided(&self) -> bool {
        self.fixed.len() == self.members
    }

    /// What all are paid when the payment is settled.
    pub(super) fn decided(&self) -> Vec<f64> {
        let rows: Vec<Row> = (0..self.fixed.len()).map(Row::Fixed).collect();
        let n = self.members;
        let matrix: Vec<f64> = rows.iter().flat_map(|&row| self.entries(row).take(n)).collect();
        let inverse = inverse(matrix, n);
        let paid = |member: usize| (0..n).map(|row| inverse[member * n + row] * self.fixed[row].1).sum();
        self.in_units((0..n).map(paid))
    }

    /// Fixes what every optimum has in common, so that the next solution is among these optima.
    pub(super) fn settle(&mut self, optimum: &Optimum) {
        let excess = optimum.excess / self.scale;
        let pressed = optimum.pressing.iter().map(|&(coalition, _)| {
            let worth = self.values[coalition.bits() as usize];
            (coalition, worth - excess)
        });
        let floored = optimum.floored.iter().map(|&member| (Coalition::of([member]), 0.0));
        let common: Vec<(Coalition, f64)> = pressed.chain(floored).collect();
        self.fix(common);
    }

    fn fix(&mut self, coalitions: impl IntoIterator<Item = (Coalition, f64)>) {
        for (coalition, paid) in coalitions {
            if self.span.insert(coalition) {
                self.fixed.push((coalition, paid));
            }
        }
        for (bits, free) in self.free.iter_mut().enumerate() {
            *free = *free && !self.span.contains(Coalition::from_bits(bits as u32));
        }
    }

    fn in_units(&self, payment: impl Iterator<Item = f64>) -> Vec<f64> {
        payment.zip(&self.alone).map(|(paid, alone)| paid * self.scale + alone).collect()
    }

    /// Whom a row counts, and whether it counts the excess.
    fn entries(&self, row: Row) -> impl Iterator<Item = f64> + use<> {
        let (coalition, excess) = match row {
            Row::Free(bits) => (Coalition::from_bits(bits), 1.0),
            Row::Start(member) => (Coalition::of([member]), 1.0),
            Row::Floor(member) => (Coalition::of([member]), 0.0),
            Row::Fixed(place) => (self.fixed[place].0, 0.0),
        };
        (0..self.members).map(move |i| f64::from(u8::from(coalition.contains(i)))).chain([excess])
    }

    /// What the right side of a row is.
    fn demand(&self, row: Row) -> f64 {
        match row {
            Row::Free(bits) => self.values[bits as usize],
            Row::Floor(_) => 0.0,
            Row::Fixed(place) => self.fixed[place].1,
            Row::Start(member) => {
                // The members alone that are free have a mean excess that no payment changes: `e` is at least that.
                let (mut count, mut paid) = (0.0, self.fixed[0].1);
                for (member, paid_to_member) in self.payment.iter().enumerate() {
                    if self.free[1 << member] { count += 1.0 } else { paid -= paid_to_member }
                }
                self.payment[member] - paid / count - 1.0
            }
        }
    }

    /// An optimum; the payment must not be decided.
    pub(super) fn solve(&mut self) -> Optimum {
        let alone = |member: usize| {
            if self.free[1 << member] { Row::Free(1 << member) } else { Row::Start(member) }
        };
        let mut basis: Vec<Row> = (0..self.members).map(alone).chain([Row::Fixed(0)]).collect();
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
        let (payment, excess) = corner.unknowns.split_at(self.members);
        let mut filled = 1;
        for paid in payment {
            let (low, high) = self.sums[..2 * filled].split_at_mut(filled);
            high.iter_mut().zip(low).for_each(|(high, low)| *high = *low + paid);
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
        for (member, paid) in payment.iter().enumerate() {
            if self.is_rational && self.free[1 << member] && -paid > best.0 {
                best = (-paid, Some(Row::Floor(member)));
                if !most_violated {
                    return best.1;
                }
            }
        }
        best.1
    }

    /// Takes a row into the basis, and returns how far its weight went. Rows of fixed coalitions stay, as their weights have no
    /// sign; so one that enters may go either way.
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
        let (place, step) = leaving.expect("some payment obeys all rows");
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
            Row::Floor(member) => self.values.len() + member,
            Row::Start(member) => self.values.len() + self.members + member,
            Row::Fixed(_) => usize::MAX,
        }
    }

    fn optimum(&mut self, basis: &[Row], corner: &Corner) -> Optimum {
        let (payment, excess) = corner.unknowns.split_at(self.members);
        self.payment = payment.to_vec();
        let (mut pressing, mut floored) = (Vec::new(), Vec::new());
        for (&row, &weight) in basis.iter().zip(corner.weights()).filter(|(_, weight)| **weight > WEIGHT) {
            match row {
                Row::Free(bits) => pressing.push((Coalition::from_bits(bits), weight)),
                Row::Floor(member) => floored.push(member),
                Row::Start(_) | Row::Fixed(_) => {}
            }
        }
        pressing.sort_unstable_by_key(|(coalition, _)| *coalition);
        let payment = self.in_units(payment.iter().copied());
        Optimum { excess: excess[0] * self.scale, payment, pressing, floored }
    }
}

/// A basis solved.
struct Corner {
    /// The inverse of the matrix whose rows are those of the basis.
    inverse: Vec<f64>,
    /// What each member is paid, and the excess.
    unknowns: Vec<f64>,
}

impl Corner {
    /// The weight of each row of the basis.
    fn weights(&self) -> &[f64] {
        &self.inverse[self.inverse.len() - self.unknowns.len()..]
    }
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

/// What coalitions that are taken as vectors of zeros and ones span, modulo a prime.
struct Span {
    members: usize,
    /// Rows in echelon form: each has a 1 at its own place, where all others have 0.
    rows: Vec<(usize, Vec<u64>)>,
}

const PRIME: u64 = (1 << 31) - 1;

impl Span {
    fn new(members: usize) -> Span {
        Span { members, rows: Vec::new() }
    }

    /// What of a coalition is left at a place when the rows are taken away.
    fn left(&self, coalition: Coalition, place: usize) -> u64 {
        let taken: u64 =
            self.rows.iter().filter(|(own, _)| coalition.contains(*own)).map(|(_, row)| row[place]).sum();
        (u64::from(coalition.contains(place)) + PRIME - taken % PRIME) % PRIME
    }

    fn contains(&self, coalition: Coalition) -> bool {
        (0..self.members).all(|place| self.left(coalition, place) == 0)
    }

    /// Adds a coalition, unless it is in the span.
    fn insert(&mut self, coalition: Coalition) -> bool {
        let mut new: Vec<u64> = (0..self.members).map(|place| self.left(coalition, place)).collect();
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
