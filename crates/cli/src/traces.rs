//! Files of traces and of their generators, and what is to be said of them.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_sim::trace::{self, Format, ReadOptions, Trace};
use bellwether_sim::workload::Workload;

use crate::failure::Failure;
use crate::printer::Printer;

/// Remarks about a trace that are printed one by one.
const REMARKS_MAX: usize = 10;

/// Reads a trace.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if it is not a trace of the format.
pub(crate) fn read(path: &Path, format: Option<Format>, options: &ReadOptions) -> Result<Trace, Failure> {
    let bytes = fs::read(path)
        .map_err(|e| InputError::new(&options.place, format!("the trace cannot be read: {e}")))?;
    Ok(trace::read(&bytes, format, options)?)
}

/// Reads a generator file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if it is not a generator.
pub(crate) fn read_workload(path: &Path) -> Result<Workload, Failure> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|e| InputError::new(&place, format!("the generator file cannot be read: {e}")))?;
    Ok(Workload::parse(&text, &place)?)
}

/// Says what was repaired or refused in a trace.
pub(crate) fn remarks(trace: &Trace, place: &str, printer: &Printer) {
    let repairs = trace.repairs.iter().map(|repair| (repair.row, &*repair.job, &repair.what));
    say("repaired", repairs, place, printer);
    let refused = trace.refused.iter().map(|refused| (refused.row, &*refused.job, &refused.why));
    say("refused", refused, place, printer);
}

/// Prints the first of such rows, each with its job and what is to be said of it.
fn say<'a>(
    kind: &str,
    rows: impl ExactSizeIterator<Item = (usize, &'a str, impl Display)>,
    place: &str,
    printer: &Printer,
) {
    let count = rows.len();
    for (row, job, what) in rows.take(REMARKS_MAX) {
        let name = if job.is_empty() { String::new() } else { format!(", job `{job}`") };
        printer.note(format_args!("{kind}: {place}, row {row}{name}: {what}"));
    }
    if count > REMARKS_MAX {
        printer.note(format_args!("{kind}: and {} rows more", count - REMARKS_MAX));
    }
}
