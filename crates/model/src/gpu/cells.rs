//! From blocks to rectangles: what each kernel holds of each multiprocessor, column by column of a picture.

use std::collections::BTreeMap;

use super::report::Report;
use super::{BlockRun, capacity};

/// Columns of the picture, as many as it is wide at most, and as few as must still show something.
const COLUMNS: usize = 960;
const COLUMNS_LEAST: usize = 60;

/// More rectangles than this open slowly: the columns are made wider.
const CELLS_MAX: usize = 30_000;

/// The least height of what is there at all.
const LEAST: f64 = 0.25;

/// Steps to which heights are rounded, so that equal columns can be joined.
const STEPS: f64 = 64.0;

/// What a kernel holds of a multiprocessor for some time.
#[derive(Debug, PartialEq)]
pub struct Cell {
    /// Which multiprocessor.
    pub row: u32,
    /// Since when.
    pub from_us: f64,
    /// Until when.
    pub to_us: f64,
    /// Where it begins and ends within the row, 0 to 1 from below.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Which kernel.
    pub kernel: usize,
}

/// The rectangles of the first `rows` multiprocessors.
pub fn cells(report: &Report<'_>, rows: u32) -> Vec<Cell> {
    let outcome = &report.outcome;
    let all = capacity(report.device);
    let share = |needs: &[u32; 5]| {
        let parts = needs.iter().zip(all).filter(|(need, _)| **need > 0);
        parts.map(|(need, all)| f64::from(*need) / f64::from(all)).fold(0.0, f64::max)
    };
    let shares: Vec<f64> = report.kernels.iter().map(|kernel| share(&kernel.occupancy.need)).collect();
    let mut by_row: Vec<Vec<Held>> = vec![Vec::new(); rows as usize];
    for block in outcome.blocks.iter().filter(|block| block.multiprocessor < rows) {
        let kernel = outcome.launches[block.launch as usize].kernel;
        let BlockRun { start_us, end_us, .. } = *block;
        by_row[block.multiprocessor as usize].push(Held { kernel, share: shares[kernel], start_us, end_us });
    }
    let mut columns = COLUMNS;
    loop {
        let width_us = outcome.end_us / columns as f64;
        let cells: Vec<Cell> =
            (0..rows).flat_map(|row| row_cells(row, &by_row[row as usize], columns, width_us)).collect();
        if cells.len() <= CELLS_MAX || columns <= COLUMNS_LEAST {
            return cells;
        }
        columns /= 2;
    }
}

/// What a block holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    kernel: usize,
    share: f64,
    start_us: f64,
    end_us: f64,
}

fn row_cells(row: u32, blocks: &[Held], columns: usize, width_us: f64) -> Vec<Cell> {
    let heights = heights(blocks, columns, width_us);
    let mut cells: Vec<Cell> = Vec::new();
    let mut from = 0;
    for column in 1..=columns {
        if column < columns && heights[column] == heights[from] {
            continue;
        }
        let mut low = 0.0;
        for (kernel, height) in &heights[from] {
            let high = low + height;
            let (from_us, to_us) = (from as f64 * width_us, column as f64 * width_us);
            cells.push(Cell { row, from_us, to_us, low, high, kernel: *kernel });
            low = high;
        }
        from = column;
    }
    cells
}

/// The height of each kernel, column by column.
fn heights(blocks: &[Held], columns: usize, width_us: f64) -> Vec<Vec<(usize, f64)>> {
    // What begins and ceases in each column, and what lasts less than one.
    let mut changes: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    for block in blocks {
        let changes = changes.entry(block.kernel).or_insert_with(|| vec![(0.0, 0.0); columns + 1]);
        let (from, to) = (block.start_us / width_us, block.end_us / width_us);
        let (first, last) = (from.round() as usize, to.round() as usize);
        if first == last {
            changes[(from as usize).min(columns)].1 += block.share * (to - from);
        } else {
            changes[first.min(columns)].0 += block.share;
            changes[last.min(columns)].0 -= block.share;
        }
    }
    let mut heights = vec![Vec::new(); columns];
    for (kernel, changes) in changes {
        let mut lasting = 0.0;
        for (column, (change, brief)) in changes.into_iter().take(columns).enumerate() {
            lasting += change;
            let share = ((lasting + brief) * STEPS).round() / STEPS;
            if lasting + brief > 1e-6 {
                heights[column].push((kernel, share.max(LEAST)));
            }
        }
    }
    for column in &mut heights {
        // What is above the least gives way first.
        let least = LEAST.min(1.0 / column.len() as f64);
        let above: f64 = column.iter().map(|(_, height)| height - least).sum();
        let left = 1.0 - least * column.len() as f64;
        if above > left {
            column.iter_mut().for_each(|(_, height)| *height = least + (*height - least) * left / above);
        }
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(kernel: usize, share: f64, start_us: f64, end_us: f64) -> Held {
        Held { kernel, share, start_us, end_us }
    }

    #[test]
    fn equal_columns_are_one_cell() {
        let cells = row_cells(3, &[held(0, 0.5, 0.0, 60.0), held(1, 0.25, 20.0, 100.0)], 100, 1.0);
        let cell = |from_us: f64, to_us: f64, low: f64, high: f64, kernel: usize| Cell {
            row: 3,
            from_us,
            to_us,
            low,
            high,
            kernel,
        };
        let expected = [
            cell(0.0, 20.0, 0.0, 0.5, 0),
            cell(20.0, 60.0, 0.0, 0.5, 0),
            cell(20.0, 60.0, 0.5, 0.75, 1),
            cell(60.0, 100.0, 0.0, 0.25, 1),
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn what_is_brief_or_small_is_seen_and_nothing_is_higher_than_its_row() {
        let brief = row_cells(0, &[held(0, 1.0, 10.2, 10.3)], 100, 1.0);
        assert_eq!((brief.len(), brief[0].from_us, brief[0].high), (1, 10.0, LEAST));
        let full = row_cells(0, &[held(0, 1.0, 0.0, 100.0), held(1, 0.1, 0.0, 100.0)], 100, 1.0);
        assert_eq!((full[0].high, full[1].high), (1.0 - LEAST, 1.0));
        let blocks: Vec<Held> = (0..9).map(|kernel| held(kernel, 0.3, 0.0, 100.0)).collect();
        let full = row_cells(0, &blocks, 100, 1.0);
        assert!(full.len() == 9 && full.iter().all(|cell| cell.high <= 1.0 + 1e-9), "{full:?}");
    }
}
