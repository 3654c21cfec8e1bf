//! The experiment that the command line describes, with its progress.

use std::time::{Duration, Instant};

use bellwether::simulate::{Experiment, ExperimentError, PolicyResult, Scenario};
use bellwether_core::InputError;
use bellwether_core::policy::Fault;
use bellwether_sched::registry::Registry;
use indicatif::{ProgressBar, ProgressStyle};

use super::SimulateArguments;
use super::inputs::Inputs;
use crate::failure::Failure;
use crate::printer::Printer;

/// Time between two lines about the progress where there is no bar.
const NOTE_EVERY: Duration = Duration::from_secs(5);

pub(super) fn run(
    arguments: &SimulateArguments,
    inputs: &Inputs,
    policies: &[String],
    printer: &Printer,
) -> Result<Vec<PolicyResult>, Failure> {
    let mut scenario = Scenario::new(inputs.cluster.view.clone());
    scenario.outages.clone_from(&inputs.cluster.outages);
    scenario.checkpoint_s = inputs.cluster.checkpoint_s;
    scenario.knowledge = arguments.remaining;
    scenario.early_termination = arguments.early;
    let experiment = Experiment {
        scenario: &scenario,
        registry: &Registry::built_in(),
        policies,
        seeds: arguments.seeds,
        truth: inputs.truth.model.as_ref(),
        belief: inputs.belief(),
        jobs: &|seed| inputs.entries(seed),
        keep_spans: arguments.plot.is_some(),
        keep_decisions: arguments.decisions_out.is_some(),
    };
    let mut results = watched(&experiment, printer).map_err(|error| explain(error, arguments))?;
    // Rows that could not be are jobs that were refused, too.
    let rows = inputs.trace.as_ref().map_or(0, |trace| trace.refused.len()) as f64;
    for report in results.iter_mut().flat_map(|result| &mut result.outcomes).map(|one| &mut one.report) {
        (report.jobs, report.refused) = (report.jobs + rows, report.refused + rows);
    }
    Ok(results)
}

/// Runs it, and shows how far all simulations are together.
fn watched(experiment: &Experiment<'_>, printer: &Printer) -> Result<Vec<PolicyResult>, ExperimentError> {
    let bar = if printer.interactive { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} % of the jobs ended, {eta} left") {
        bar.set_style(style);
    }
    let mut noted = Instant::now();
    let results = experiment.run(&mut |done, jobs| {
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

fn explain(error: ExperimentError, arguments: &SimulateArguments) -> Failure {
    match error {
        ExperimentError::Input(error) => error.into(),
        ExperimentError::Fault { policy, seed, fault: Fault::Broken(what) } => {
            Failure::Broken(format!("policy `{policy}`, seed {seed}: {what}"))
        }
        ExperimentError::Fault { policy, seed, fault: Fault::World(what) } => {
            let error = InputError::new(format!("policy `{policy}`, seed {seed}"), what);
            match &arguments.belief {
                Some(belief) => error.hint(format!(
                    "a policy may choose whatever --belief {belief} can speak of; --truth {} must know that too",
                    arguments.truth
                )),
                None => error,
            }
            .into()
        }
    }
}
