//! What a person sees of a run: a line that moves, a note for every change, a table at the end.

use std::time::{Duration, Instant};

use bellwether_core::record::Event;
use bellwether_render::figure::{loss, rate};
use bellwether_runtime::control::Status;
use bellwether_runtime::coordinator::Observation;
use bellwether_runtime::ending::EndSignal;
use bellwether_session::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::RunArguments;
use crate::by_hand::batch;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::RunDir;

/// Time between two lines on how far the run is, where no line can be rewritten.
const PERIOD: Duration = Duration::from_secs(5);

/// Shows a run while it goes on.
pub(super) struct Show<'p> {
    printer: &'p Printer,
    bar: Option<ProgressBar>,
    run: Option<RunDir>,
    format: Format,
    by_hand: bool,
    /// Whether only the end is shown.
    hushed: bool,
    /// Whether progress is not shown.
    quiet: bool,
    /// Whether every event is shown.
    verbose: bool,
    told: Instant,
    /// Whether the run has shown how far it was when it began.
    placed: bool,
    signal: Option<EndSignal>,
}

impl<'p> Show<'p> {
    pub(super) fn new(printer: &'p Printer, arguments: &RunArguments) -> Self {
        let (format, by_hand) = (arguments.state.format, arguments.no_spawn || arguments.listen.is_some());
        let (hushed, verbose) = (arguments.quiet, arguments.verbose);
        let quiet = hushed || printer.quiet;
        let (told, placed, signal) = (Instant::now(), false, None);
        Show { printer, bar: None, run: None, format, by_hand, hushed, quiet, verbose, told, placed, signal }
    }

    /// The signal that stopped the run, if one did.
    pub(super) fn signal(&self) -> Option<EndSignal> {
        self.signal
    }

    pub(super) fn see(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Note(note) => crate::session::show(&note, self.printer),
            Progress::Begins(run) => self.begin(run),
            Progress::Observed(Observation::Status(status)) => self.status(status),
            Progress::Observed(Observation::Journal(event)) => {
                if let Event::StopRequested { by } = event {
                    self.signal = EndSignal::named(by);
                }
                if let Some(note) = self.invitation(event).or_else(|| self.told(event)) {
                    match &self.bar {
                        Some(bar) => bar.suspend(|| self.printer.note(&note)),
                        None => self.printer.note(&note),
                    }
                }
            }
            Progress::Ends => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
        }
    }

    fn begin(&mut self, run: &RunDir) {
        if self.format == Format::Table && !self.hushed {
            self.printer.note(format_args!("{} in {}", run.name, run.path.display()));
        }
        (self.run, self.told) = (Some(run.clone()), Instant::now());
        self.bar = (self.printer.interactive && !self.hushed).then(|| {
            let bar = ProgressBar::new(0);
            let style =
                ProgressStyle::with_template("{bar:24} step {pos}/{len}  {msg}  {elapsed} (left: {eta})");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
    }

    fn status(&mut self, status: &Status) {
        match &self.bar {
            Some(bar) => {
                advance(bar, status, !std::mem::replace(&mut self.placed, true));
                bar.set_message(message(status));
            }
            None if !self.quiet && status.lifecycle != "ended" && self.told.elapsed() >= PERIOD => {
                self.told = Instant::now();
                let Status { step, total_steps, .. } = status;
                self.printer.note(format_args!("step {step}/{total_steps}: {}", message(status)));
            }
            None => {}
        }
    }

    /// What is shown of an event: where every one is, those without a sentence as the journal has them.
    fn told(&self, event: &Event) -> Option<String> {
        if self.hushed {
            return None;
        }
        event.sentence().or_else(|| self.verbose.then(|| serde_json::to_string(event).unwrap_or_default()))
    }

    /// How to join, once the coordinator listens and starts no workers itself.
    fn invitation(&self, event: &Event) -> Option<String> {
        let listens = matches!(event, Event::CoordinatorStarted { .. });
        let run = self.run.as_ref()?;
        let endpoint = run.endpoint().filter(|_| listens && self.by_hand)?;
        let token = run.token_file();
        Some(format!(
            "workers join with: bellwether worker --join {} --token-file {}",
            endpoint.control,
            token.display()
        ))
    }
}

/// Moves a bar to where the run is.
fn advance(bar: &ProgressBar, status: &Status, is_first: bool) {
    bar.set_length(status.total_steps);
    bar.set_position(status.step);
    if is_first {
        // Steps of an earlier coordinator say nothing of how fast this one is. The bar must not tick before.
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(200));
    }
}

/// How far the run is, in half a line.
fn message(status: &Status) -> String {
    let loss =
        if status.loss.is_finite() { format!("loss {}  ", loss(Some(status.loss))) } else { String::new() };
    let wanted =
        if status.wanted == status.workers { String::new() } else { format!(" of {}", status.wanted) };
    let plural = if status.workers == 1 && wanted.is_empty() { "" } else { "s" };
    format!(
        "{loss}{}{} examples/s  {}{wanted} worker{plural}  {}",
        batch(status),
        rate(status.examples_per_s),
        status.workers,
        status.lifecycle
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_counts_no_steps_of_an_earlier_coordinator() {
        let bar = ProgressBar::hidden();
        let status = |step| Status { step, total_steps: 3000, ..Status::default() };
        advance(&bar, &status(300), true);
        std::thread::sleep(Duration::from_millis(300));
        advance(&bar, &status(310), false);
        // The bar looks at its position from time to time.
        std::thread::sleep(Duration::from_millis(500));
        // Ten steps took longer than 0.3 s: 2690 take longer than 80 s.
        assert!(bar.eta() > Duration::from_secs(20), "{:?}", bar.eta());
    }
}
