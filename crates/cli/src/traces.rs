//! Files of traces and of their generators, and what is to be said of them.

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
/// A file that cannot be read, or is no trace of the format.
pub(crate) fn read(path: &Path, format: Option<Format>, options: &ReadOptions) -> Result<Trace, Failure> {
    let bytes = fs::read(path)
        .map_err(|e| InputError::new(&options.place, format!("the trace cannot be read: {e}")))?;
    Ok(trace::read(&bytes, format, options)?)
}

/// Reads a generator file.
///
/// # Errors
///
/// A file that cannot be read, or is no generator.
pub(crate) fn read_workload(path: &Path) -> Result<Workload, Failure> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|e| InputError::new(&place, format!("the generator file cannot be read: {e}")))?;
    Ok(Workload::parse(&text, &place)?)
}

/// Says what was repaired or refused in a trace.
pub(crate) fn remarks(trace: &Trace, place: &str, printer: &Printer) {
    for (kind, remarks) in [("repaired", &trace.repairs), ("refused", &trace.refused)] {
        for remark in remarks.iter().take(REMARKS_MAX) {
            let name = if remark.job.is_empty() { String::new() } else { format!(", job `{}`", remark.job) };
            printer.note(format_args!("{kind}: {place}, row {}{name}: {}", remark.row, remark.what));
        }
        if remarks.len() > REMARKS_MAX {
            printer.note(format_args!("{kind}: and {} rows more", remarks.len() - REMARKS_MAX));
        }
    }
}
