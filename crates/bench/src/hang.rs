//! `hang`: what hangs while everything says that it lives: a gradient, a link, a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether_core::record::Event;
use bellwether_core::units::Seconds;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::namespaces;
use super::report::{Report, Row};
use super::statistics::{largest, load_average, median};
use super::trial::Trial;
use crate::failure::Failure;
use crate::printer::Printer;
use faults::{Fault, Noticed, job};

mod faults;

/// Workers of each run: one hangs, and two go on.
const WORKERS: u32 = 3;

#[derive(Debug, Args)]
pub(super) struct HangArguments {
    /// Milliseconds that steps take
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_value = "20,2000")]
    step_ms: Vec<u64>,
    /// Faults of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    trials: u32,
    /// Leave out the faults of links, which need root
    #[arg(long)]
    no_links: bool,
    /// First train for so long without any fault, a run for each length of steps at the same time, and count
    /// false alarms
    #[arg(long, value_name = "TIME")]
    soak: Option<Seconds>,
    /// Threads of this program that compute for nothing meanwhile
    #[arg(long, value_name = "N", default_value_t = 0)]
    load: u32,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &HangArguments, printer: &Printer) -> Result<Report, Failure> {
    let settings = json!({
        "workers": WORKERS, "step_ms": arguments.step_ms, "trials": arguments.trials, "load": arguments.load,
        "soak_s": arguments.soak.map(Seconds::get), "load_average": load_average(),
    });
    let mut report = Report::begin("hang", settings, &[]);
    let _load = Load::start(arguments.load);
    if let Some(time) = arguments.soak {
        soak(&mut report, arguments, Duration::from_secs_f64(time.get()), printer)?;
    }
    let missing = namespaces::missing().filter(|_| !arguments.no_links);
    if let Some(why) = &missing {
        report.note(format!("Links are left out: {why}."));
    }
    let links = missing.is_none() && !arguments.no_links;
    for step_ms in &arguments.step_ms {
        for fault in Fault::ALL {
            if fault.is_of_a_link() && !links || arguments.trials == 0 {
                continue;
            }
            let case = format!("{}, steps of {step_ms} ms", fault.name());
            printer.note(format_args!("{case}: {} trials", arguments.trials));
            let trials = (0..arguments.trials).map(|_| fault.happen(*step_ms));
            row(&mut report, &case, *step_ms, arguments.load, &trials.collect::<Result<Vec<_>, _>>()?);
        }
    }
    report.note(
        "All times are counted from the fault. It is noticed with the first line that names it; the others train with the \
         first membership after that. The clock is the journal's; a gradient hangs between the last step that is committed and \
         the one after it, so that up to a step is counted too much. A session of which nothing arrives keeps no worker from \
         training: there the next step that is committed counts.",
    );
    Ok(report)
}

fn row(report: &mut Report, case: &str, step_ms: u64, load: u32, trials: &[Noticed]) {
    let column = |value: fn(&Noticed) -> f64| trials.iter().map(value).collect::<Vec<f64>>();
    let (noticed_s, training_s) = (column(|t| t.noticed_s), column(|t| t.training_s));
    report.row(
        Row::new(case)
            .with("trials", trials.len())
            .with("noticed_median_s", median(&noticed_s))
            .with("noticed_worst_s", largest(&noticed_s))
            .with("training_median_s", median(&training_s))
            .with("training_worst_s", largest(&training_s))
            .with("committed_median_s", median(&column(|t| t.committed_s)))
            .samples("noticed_samples_s", &noticed_s)
            .samples("training_samples_s", &training_s),
    );
    if load == 0 {
        let bound_s = 3e-3 * step_ms as f64 + 1.0;
        report.at_most(format!("{case}: noticed"), "s", largest(&noticed_s), bound_s);
        report.at_most(format!("{case}: training again"), "s", largest(&training_s), bound_s + 1.0);
    }
}

/// Trains without a fault: every worker that is named is a false alarm.
fn soak(
    report: &mut Report,
    arguments: &HangArguments,
    time: Duration,
    printer: &Printer,
) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for step_ms in &arguments.step_ms {
        let case = format!("no fault, load {}, steps of {step_ms} ms", arguments.load);
        printer.note(format_args!("{case}: {} s", time.as_secs()));
        let trial = Trial::start(&job(*step_ms).text(), WORKERS)?;
        runs.push((case, trial));
    }
    std::thread::sleep(time);
    for (case, mut trial) in runs {
        trial.mark()?;
        // The start counts, too.
        let lines = trial.since(0);
        let count = |names: fn(&Event) -> bool| lines.iter().filter(|line| names(&line.event)).count();
        let named = count(|event| matches!(event, Event::Late { .. }));
        let lost = count(|event| matches!(event, Event::Crashed { .. }));
        for line in lines {
            if let Some(sentence) = line.event.sentence().filter(|_| is_alarm(&line.event)) {
                printer.note(format_args!("{case}: {sentence}"));
            }
        }
        let steps = trial.committed();
        let row = Row::new(&case).with("seconds", time.as_secs_f64()).with("steps", steps);
        let row = row.with("named", named).with("lost", lost);
        report.row(row.with("load_average", json!(load_average())));
        report.at_most(format!("{case}: members named or lost in vain"), "", (named + lost) as f64, 0.0);
        report.bar(format!("{case}: steps were done"), steps as f64, 1.0, steps > 0);
    }
    Ok(())
}

fn is_alarm(event: &Event) -> bool {
    matches!(event, Event::Late { .. } | Event::InTime { .. } | Event::Crashed { .. })
}

/// Threads that compute for nothing.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start(threads: u32) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Load(over)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
