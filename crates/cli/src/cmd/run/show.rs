//! What a person sees of a run: a line that moves, a note for every change, a table at the end.

use std::time::{Duration, Instant};

use bellwether_core::record::{
    BatchChange, Comparison, Event, ExpectedRun, PhaseSummary, Revocations, Summary,
};
use bellwether_runtime::control::Status;
use bellwether_runtime::coordinator::Observation;
use bellwether_runtime::ending::EndSignal;
use bellwether_session::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::RunArguments;
use crate::by_hand::batch;
use crate::options::Format;
use crate::printer::Printer;
use crate::render::duration::written;
use crate::render::table;
use crate::render::words::count;
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
    told: Instant,
    /// Whether the run has shown how far it was when it began.
    placed: bool,
    signal: Option<EndSignal>,
}

impl<'p> Show<'p> {
    pub(super) fn new(printer: &'p Printer, arguments: &RunArguments) -> Self {
        let (format, by_hand) = (arguments.state.format, arguments.no_spawn);
        let told = Instant::now();
        Show { printer, bar: None, run: None, format, by_hand, told, placed: false, signal: None }
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
                if let Some(note) = self.invitation(event).or_else(|| event.sentence()) {
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
        if self.format == Format::Table {
            self.printer.note(format_args!("{} in {}", run.name, run.path.display()));
        }
        (self.run, self.told) = (Some(run.clone()), Instant::now());
        self.bar = self.printer.interactive.then(|| {
            let bar = ProgressBar::new(0);
            let style =
                ProgressStyle::with_template("{bar:24} step {pos}/{len}  {msg}  {elapsed} (left: {eta})");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
    }

    fn status(&mut self, status: &Status) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(status.total_steps);
                bar.set_position(status.step);
                if !std::mem::replace(&mut self.placed, true) {
                    // Steps of an earlier coordinator say nothing of how fast this one is.
                    bar.reset_eta();
                }
                bar.set_message(message(status));
            }
            None if !self.printer.quiet && status.lifecycle != "ended" && self.told.elapsed() >= PERIOD => {
                self.told = Instant::now();
                let Status { step, total_steps, .. } = status;
                self.printer.note(format_args!("step {step}/{total_steps}: {}", message(status)));
            }
            None => {}
        }
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

/// How far the run is, in half a line.
fn message(status: &Status) -> String {
    let loss = if status.loss.is_finite() { format!("loss {:.4}  ", status.loss) } else { String::new() };
    let wanted =
        if status.wanted == status.workers { String::new() } else { format!(" of {}", status.wanted) };
    let plural = if status.workers == 1 && wanted.is_empty() { "" } else { "s" };
    format!(
        "{loss}{}{:.0} examples/s  {}{wanted} worker{plural}  {}",
        batch(status),
        status.examples_per_s,
        status.workers,
        status.lifecycle
    )
}

/// What lost servers cost, beside what was to be expected.
fn lost_servers(revocations: &Revocations) -> Vec<(&'static str, String)> {
    let Revocations { law, time_scale, revoked, time_s, expected, server_hours, cost_dollars } = revocations;
    let scale = if *time_scale == 1.0 { String::new() } else { format!(", time × {time_scale}") };
    let expect = |text: &dyn Fn(&ExpectedRun) -> String| {
        expected.as_ref().map_or(String::new(), |expected| format!(", expected {}", text(expected)))
    };
    let lost = expect(&|e| format!("{:.1}", e.revoked));
    let time = expect(&|e| {
        let [mean, low, high] = [e.time_s, e.low_s, e.high_s].map(written);
        format!("{mean} ({low} … {high})")
    });
    let hours = expect(&|e| format!("{:.2}", e.server_hours));
    let mut rows = vec![
        ("servers lost", format!("{revoked}{lost} ({law}{scale})")),
        ("time on servers", format!("{}{time}", written(*time_s))),
        ("server-hours", format!("{server_hours:.2}{hours}")),
    ];
    if let Some(dollars) = cost_dollars {
        let cost =
            expect(&|e| format!("${:.2}", e.server_hours * dollars / server_hours.max(f64::MIN_POSITIVE)));
        rows.push(("cost", format!("${dollars:.2}{cost}")));
    }
    rows
}

/// Who waited for whom, and how stale updates were.
fn protocols(summary: &Summary) -> Vec<(&'static str, String)> {
    let row = |phase: &PhaseSummary| {
        let PhaseSummary { step, steps, protocol, servers, seconds, stall_s } = phase;
        let through = match *servers {
            0 => String::new(),
            n => format!(" through {}", count(n as usize, "server")),
        };
        let change_ms = stall_s * 1e3;
        let text = format!(
            "step {step}: {steps} steps {protocol}{through} in {seconds:.1} s, {change_ms:.1} ms for the change"
        );
        ("protocol", text)
    };
    let staleness = summary.staleness.iter().map(|staleness| ("staleness", staleness.to_string()));
    summary.phases.iter().map(row).chain(staleness).collect()
}

/// The result as a table.
pub(super) fn table(summary: &Summary) -> String {
    let number = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.4}"));
    // Epochs in which only newcomers changed are of no interest here.
    let mut workers: Vec<String> = summary.workers.iter().map(u32::to_string).collect();
    workers.dedup();
    let mut rows = vec![
        ("run", summary.run.clone()),
        ("outcome", [summary.outcome.as_str(), &summary.reason].join(" ").trim().to_string()),
        ("steps", summary.steps.to_string()),
        ("examples", summary.examples.to_string()),
        ("final loss", number(summary.final_loss)),
        ("held-out loss", number(summary.held_out_loss)),
        ("accuracy", summary.accuracy.map_or("–".into(), |a| format!("{:.2} %", a * 100.0))),
        ("examples/s", format!("{:.0}", summary.examples_per_s)),
        ("time", format!("{:.1} s", summary.elapsed_s)),
        ("workers", workers.join(" → ")),
        (
            "peak memory of a worker",
            format!("{:.1} MiB", summary.peak_resident_bytes as f64 / f64::from(1 << 20)),
        ),
    ];
    if let Some(planned) = &summary.planned {
        rows.push(("planned", planned.reason.clone()));
    }
    for comparison in &summary.predictions {
        let Comparison {
            workers, predicted_examples_per_s, low, high, measured_examples_per_s, error, ..
        } = comparison;
        let text = format!(
            "{}: {predicted_examples_per_s:.0}/s ({low:.0} … {high:.0}), measured \
             {measured_examples_per_s:.0}/s, error {:+.1} %",
            count(*workers as usize, "worker"),
            error * 100.0
        );
        rows.push(("predicted at first", text));
    }
    rows.extend(summary.decisions.iter().map(|decision| ("decision", decision.sentence())));
    for resize in &summary.resizes {
        let text = format!(
            "step {}: {} → {}, {:.1} ms ({})",
            resize.step,
            resize.from,
            resize.to,
            resize.stall_s * 1e3,
            resize.reason
        );
        rows.push(("resize", text));
    }
    rows.extend(protocols(summary));
    for change in &summary.batches {
        let BatchChange { step, from, to, learning_rate_factor, .. } = change;
        rows.push((
            "batch",
            format!("step {step}: {from} → {to}, learning rate × {learning_rate_factor:.2}"),
        ));
    }
    rows.extend(summary.mismatches.iter().map(|mismatch| ("mismatch", mismatch.sentence())));
    for crash in &summary.crashes {
        let next =
            crash.seconds.map_or("no step followed".into(), |s| format!("next step after {:.0} ms", s * 1e3));
        rows.push(("crash", format!("step {}: worker {}, {next}", crash.step, crash.worker)));
    }
    if let Some(revocations) = &summary.revocations {
        rows.extend(lost_servers(revocations));
    }
    rows.push(("parameters", summary.params_digest.clone().unwrap_or("–".into())));
    rows.push(("checkpoint", summary.checkpoint.clone().unwrap_or("–".into())));
    table::facts(&rows)
}
