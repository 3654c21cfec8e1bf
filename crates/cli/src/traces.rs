//! Files of traces and of their generators, and what is to be said of them.

use std::fmt::Display;

pub(crate) use bellwether_answers::simulate::{read_trace, read_workload};
use bellwether_sim::trace::Trace;

use crate::printer::Printer;

/// Remarks about a trace that are printed one by one.
const REMARKS_MAX: usize = 10;

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
