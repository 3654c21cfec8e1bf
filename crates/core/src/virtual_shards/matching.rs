//! Rows matched with columns at least cost: `each` columns for a row, and an even share of the rows for a column.
//!
//! A matching is a flow from the rows to the columns. A column takes `quota` rows; where the rows do not divide evenly,
//! one more while *spares* remain, which columns may pass on to each other. It grows along shortest paths of the
//! residual graph. A flow that has grown so costs the least of all of its size: no cycle would make it cheaper.
//! Distances are kept as in the Hungarian method: [`fill`](Matching::fill) finds all paths of the present length, and
//! [`lengthen`](Matching::lengthen) adds one to the distance of all that was out of reach.

/// The cost of a pair that must not be.
pub(super) const NEVER: u8 = u8::MAX;

/// A matching of rows with columns that grows. Nodes of its graph are the rows, the columns, then the pool of spares.
pub(super) struct Matching {
    rows: usize,
    columns: usize,
    each: usize,
    quota: usize,
    /// Columns that may still take a row above the quota.
    spares: usize,
    /// By row, then column.
    costs: Vec<u8>,
    matched: Vec<bool>,
    row_loads: Vec<usize>,
    column_loads: Vec<usize>,
    /// Rows in the order in which they look for columns.
    order: Vec<usize>,
    /// The order of columns of the last rows, see [`shift`](Matching::shift).
    last_shifts: Vec<usize>,
    /// By node: from the rows that look for a column; what is farther than the nearest free column counts as that far.
    distances: Vec<u8>,
    /// By node: met in this round and, as far as it is known, without a way to a free column.
    seen: Vec<bool>,
    /// By node: the next edge to try in this round.
    cursors: Vec<usize>,
}

impl Matching {
    /// An empty matching that is to give each row `each` of at least this many columns. A column's quota is an even
    /// share, rounded down; the remainder is the number of spares.
    pub(super) fn new(
        rows: usize,
        columns: usize,
        each: usize,
        cost: impl Fn(usize, usize) -> u8,
    ) -> Matching {
        let mut order: Vec<usize> = (0..rows).collect();
        // Multiples of the golden ratio: the rows that come last, and find columns full, lie evenly among all.
        order.sort_by_key(|row| (*row as u32).wrapping_mul(2_654_435_769));
        let nodes = rows + columns + 1;
        Matching {
            rows,
            columns,
            each,
            quota: rows * each / columns,
            spares: rows * each % columns,
            costs: (0..rows * columns).map(|pair| cost(pair / columns, pair % columns)).collect(),
            matched: vec![false; rows * columns],
            row_loads: vec![0; rows],
            column_loads: vec![0; columns],
            order,
            last_shifts: last_shifts(rows, columns),
            distances: vec![0; nodes],
            seen: vec![false; nodes],
            cursors: vec![0; nodes],
        }
    }

    /// Whether a row is matched with a column.
    pub(super) fn has(&self, row: usize, column: usize) -> bool {
        self.matched[row * self.columns + column]
    }

    /// Whether every row has its columns.
    pub(super) fn is_complete(&self) -> bool {
        self.row_loads.iter().all(|load| *load == self.each)
    }

    /// Grows the matching along paths of the present length until there are no more.
    pub(super) fn fill(&mut self) {
        loop {
            self.seen.fill(false);
            self.cursors.fill(0);
            let mut grew = false;
            for place in 0..self.rows {
                let row = self.order[place];
                while self.row_loads[row] < self.each && self.grow(row) {
                    grew = true;
                }
            }
            if !grew {
                return;
            }
        }
    }

    /// After [`fill`](Self::fill): lets the next paths cost one more.
    pub(super) fn lengthen(&mut self) {
        for (distance, seen) in self.distances.iter_mut().zip(&self.seen) {
            *distance += u8::from(!seen);
        }
    }

    /// After [`fill`](Self::fill) without completion: raises the quota to the least that may do, and has no spares. The
    /// rows in reach of one that lacks a column have no other columns than those in reach, which must take them all.
    /// It is for matchings without costs: distances stay.
    pub(super) fn raise_quota(&mut self) {
        let (rows, columns) = self.seen[..self.rows + self.columns].split_at(self.rows);
        let count = |seen: &[bool]| seen.iter().filter(|seen| **seen).count();
        self.quota = count(rows).div_ceil(count(columns));
        self.spares = 0;
    }

    /// Looks, depth first, for a path from a row to a column with room, and matches along it.
    fn grow(&mut self, row: usize) -> bool {
        if self.seen[row] {
            return false;
        }
        let mut path = vec![row];
        while let Some(&node) = path.last() {
            self.seen[node] = true;
            match self.next(node) {
                None => _ = path.pop(),
                Some(next) => {
                    path.push(next);
                    if self.has_room(next) {
                        self.flip(&path);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The next node of a node that was not met yet.
    fn next(&mut self, node: usize) -> Option<usize> {
        let edges = if node < self.rows { 2 * self.columns } else { self.rows.max(self.columns) + 1 };
        while self.cursors[node] < edges {
            let place = self.cursors[node];
            self.cursors[node] += 1;
            if let Some(next) = self.neighbour(node, place).filter(|next| !self.seen[*next]) {
                return Some(next);
            }
        }
        None
    }

    /// Where an edge of a node leads, if a shortest path may use it: rows take columns, columns give rows up, and
    /// a column above its quota gives its spare to one at its quota.
    fn neighbour(&self, node: usize, place: usize) -> Option<usize> {
        let pool = self.rows + self.columns;
        let is_even = |column: usize| self.distances[self.rows + column] == self.distances[pool];
        if node < self.rows {
            let column = (node + self.shift(node, place % self.columns)) % self.columns;
            // First all columns with room: the others would pass the row on.
            let is_next = place >= self.columns || self.has_room(self.rows + column);
            let takes = is_next && self.is_tight(node, column) && !self.has(node, column);
            takes.then_some(self.rows + column)
        } else if node == pool {
            let gives = place < self.columns && self.column_loads[place] > self.quota && is_even(place);
            gives.then_some(self.rows + place)
        } else {
            let column = node - self.rows;
            match self.order.get(place) {
                Some(&row) => (self.has(row, column) && self.is_tight(row, column)).then_some(row),
                None => (self.column_loads[column] == self.quota && is_even(column)).then_some(pool),
            }
        }
    }

    /// The column that a row tries at this place of its order, as a distance from its own number. Without costs all
    /// rows get what they try first. As many rows as columns, one after the other, then get each column once at each
    /// place; which columns are together differs from one such block of rows to the next.
    fn shift(&self, row: usize, place: usize) -> usize {
        let block = row / self.columns;
        match place {
            _ if block == self.rows / self.columns => self.last_shifts[place],
            0 => 0,
            _ => 1 + (place - 1 + block) % (self.columns - 1),
        }
    }

    /// Whether shortest paths use a pair, to match it or to undo it.
    fn is_tight(&self, row: usize, column: usize) -> bool {
        let cost = self.costs[row * self.columns + column];
        cost != NEVER && self.distances[row] + cost == self.distances[self.rows + column]
    }

    /// Whether a path may end at a node.
    fn has_room(&self, node: usize) -> bool {
        let load = node.checked_sub(self.rows).and_then(|column| self.column_loads.get(column));
        load.is_some_and(|load| *load < self.quota || *load == self.quota && self.spares > 0)
    }

    /// Matches what a path takes and undoes what it gives up. Its nodes may be met again in this round.
    fn flip(&mut self, path: &[usize]) {
        let pool = self.rows + self.columns;
        for edge in path.windows(2) {
            let (row, node) = (edge[0].min(edge[1]), edge[0].max(edge[1]));
            if node == pool {
                continue;
            }
            let column = node - self.rows;
            let takes = edge[0] == row;
            self.matched[row * self.columns + column] = takes;
            for load in [&mut self.row_loads[row], &mut self.column_loads[column]] {
                *load = if takes { *load + 1 } else { *load - 1 };
            }
        }
        let last = path[path.len() - 1] - self.rows;
        self.spares -= usize::from(self.column_loads[last] > self.quota);
        for node in path {
            self.seen[*node] = false;
        }
    }
}

/// The order in which the last rows, fewer than the columns, try columns. Their k-th columns are a walk along the
/// columns, and the walks follow each other around all columns, so that together they are even. Where a walk would
/// begin at the place of an earlier one, it begins one place further.
fn last_shifts(rows: usize, columns: usize) -> Vec<usize> {
    let (mut shifts, mut first, mut next) = (Vec::with_capacity(columns), 0, 0);
    while shifts.len() < columns {
        shifts.push(next);
        next = (next + rows) % columns;
        if next == first {
            first += 1;
            next = first;
        }
    }
    shifts
}
