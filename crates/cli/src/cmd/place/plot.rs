//! The multiprocessors over time: a row each, a colour for each kernel.

use bellwether_model::gpu::{Cell, Report, cells};
use bellwether_render::plot::{LaneCell, Lanes};

use crate::failure::Failure;

/// More multiprocessors than this are not drawn.
const ROWS_MAX: u32 = 256;
/// Kernels that the legend names, and the characters of a name that fit.
const LEGEND_MAX: usize = 16;
const NAME_MAX: usize = 28;

/// An SVG of all blocks.
pub(super) fn svg(report: &Report<'_>) -> Result<String, Failure> {
    let (outcome, device, kernels) = (&report.outcome, report.device, &report.kernels);
    let rows = device.multiprocessors.min(ROWS_MAX);
    let mut title =
        format!("{} blocks on {}, {}", outcome.blocks.len(), device.description, outcome.discipline);
    if device.multiprocessors > ROWS_MAX {
        title.push_str(&format!(" (the first {ROWS_MAX} of {} SMs)", device.multiprocessors));
    }
    let mut names: Vec<String> = Vec::new();
    for kernel in kernels.iter().take(LEGEND_MAX) {
        let name: String = kernel.name.chars().take(NAME_MAX).collect();
        names.push(format!("{name} ({} × {} threads)", kernel.blocks, kernel.threads_per_block));
    }
    if kernels.len() > LEGEND_MAX {
        names.push(format!("and {} more kernels, in the same colours", kernels.len() - LEGEND_MAX));
    }
    let cell = |cell: Cell| LaneCell {
        row: cell.row,
        time_s: (1e-6 * cell.from_us, 1e-6 * cell.to_us),
        height: (cell.low, cell.high),
        colour: cell.kernel,
    };
    let lanes = Lanes {
        title,
        how: "Height of a cell: share of the SM that the kernel's blocks hold of what they need most; drawn no lower than a quarter.".into(),
        row_name: "multiprocessor (SM)".into(),
        rows,
        end_s: 1e-6 * outcome.end_us,
        names,
        marked: LEGEND_MAX,
        cells: cells(report, rows).into_iter().map(cell).collect(),
    };
    Ok(lanes.svg()?)
}
