//! The experiment that the command line describes, with its progress.

use std::time::{Duration, Instant};

use bellwether_answers::Refusal;
use bellwether_answers::simulate::{Inputs, PolicyResult, Request};
use indicatif::{ProgressBar, ProgressStyle};

use crate::printer::Printer;

/// Time between two lines about the progress where there is no bar.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// Runs it, and shows how far all simulations are together.
pub(super) fn run(
    request: &Request,
    inputs: &Inputs,
    printer: &Printer,
) -> Result<Vec<PolicyResult>, Refusal> {
    let bar = if printer.interactive { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} % of the jobs ended, {eta} left") {
        bar.set_style(style);
    }
    let mut noted = Instant::now();
    let results = request.answer(inputs, &mut |done, jobs| {
        bar.set_length(jobs as u64);
        bar.set_position(done as u64);
        if !printer.interactive && !printer.quiet && noted.elapsed() >= NOTE_EVERY {
            noted = Instant::now();
            let percent = 100.0 * done as f64 / jobs.max(1) as f64;
            printer.note(format_args!("{percent:.0} % of the jobs of all simulations ended"));
        }
    });
    bar.finish_and_clear();
    results
}
