//! `chaos`: random faults fall on real runs; each must end with the bits of an undisturbed one.
//!
//! Whatever happens, the digest is that of the quiet run, `audit` proves the ledger, nothing stands still for
//! longer than the patience, and no process is left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bellwether_core::units::Seconds;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::report::{Report, Row};
use super::statistics::largest;
use super::trial::Trial;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;
use cases::Case;
use schedule::Schedule;
use subject::{Subject, Verdict};

mod cases;
mod disk;
mod ending;
mod processes;
mod schedule;
mod subject;

#[derive(Debug, Args)]
pub(super) struct ChaosArguments {
    /// Random schedules of faults, each from a seed of its own
    #[arg(long, value_name = "N", default_value_t = 300)]
    schedules: u64,
    /// Seed of the first of them
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u64,
    /// Replay these seeds instead, as often as --schedules says
    #[arg(long, value_name = "SEED,…", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Jobs: synthetic, verified, servers, replica, digits, digits-servers, goodput [default: all]
    #[arg(long, value_name = "CASE,…", value_delimiter = ',')]
    cases: Vec<Case>,
    /// Schedules at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,
    /// Let the disks of some runs be full for a moment (needs root)
    #[arg(long)]
    full_disks: bool,
    /// A run in which nothing happens for so long hangs
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: Seconds,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// A schedule that is over.
struct Done {
    schedule: Schedule,
    seconds: f64,
    verdict: Result<Verdict, Failure>,
}

pub(super) fn measure(arguments: &ChaosArguments, printer: &Printer) -> Result<Report, Failure> {
    let cases = if arguments.cases.is_empty() { Case::ALL } else { arguments.cases.as_slice() };
    if let Some(why) = disk::missing().filter(|_| arguments.full_disks) {
        return Err(Failure::at("--full-disks", why));
    }
    ending::watch()?;
    let seeds = seeds(arguments);
    let settings = json!({
        "schedules": seeds.len(), "first": seeds.first(), "replayed": arguments.seed, "parallel": arguments.parallel,
        "cases": cases.iter().map(Case::to_string).collect::<Vec<_>>(), "patience_s": arguments.patience.get(), "full_disks": arguments.full_disks,
    });
    let mut report = Report::begin("chaos", settings, &[]);
    let schedules: Vec<Schedule> =
        seeds.iter().map(|seed| Schedule::draw(*seed, cases, arguments.full_disks)).collect();
    let digests = digests(&schedules, printer);
    // A benchmark that is asked to end no longer reports what broke by that.
    drop(ending::gate());
    let done = all(schedules, &digests?, arguments, printer);
    drop(ending::gate());
    for case in cases {
        row(&mut report, case.to_string(), done.iter().filter(|done| done.schedule.case == *case));
    }
    row(&mut report, "all".into(), done.iter());
    let failures = done.iter().filter(|done| done.failed()).count();
    report.bar("schedules that failed", failures as f64, 0.0, failures == 0);
    report.note(bound(done.len(), failures));
    for failed in done.iter().filter(|done| done.failed()) {
        report.note(failed.line());
    }
    Ok(report)
}

fn seeds(arguments: &ChaosArguments) -> Vec<u64> {
    let ChaosArguments { schedules, first, seed, .. } = arguments;
    match seed.is_empty() {
        true => (*first..first.saturating_add(*schedules)).collect(),
        false => seed.iter().copied().cycle().take(seed.len().max(*schedules as usize)).collect(),
    }
}

/// What is known of the rate of failures: three over their number bounds it at 95 % when none failed.
fn bound(schedules: usize, failures: usize) -> String {
    let share = 100.0 / schedules.max(1) as f64;
    match failures {
        0 => format!(
            "none of {schedules} schedules failed: with 95 % confidence less than {:.2} % do (rule of three)",
            3.0 * share
        ),
        _ => format!("{failures} of {schedules} schedules failed, {:.2} %", failures as f64 * share),
    }
}

/// The digest of each job that is needed, from a quiet run with one worker.
fn digests(schedules: &[Schedule], printer: &Printer) -> Result<BTreeMap<String, String>, Failure> {
    let mut digests = BTreeMap::new();
    for schedule in schedules {
        let name = schedule.case.to_string();
        if digests.contains_key(&name) {
            continue;
        }
        printer.note(format_args!("{name}: a quiet run"));
        let gate = ending::gate();
        let mut trial = Trial::launch(Folder::new("chaos-quiet")?, &schedule.case.text(true), 1)?;
        drop(gate);
        let digest = trial.outcome()?.summary.params_digest;
        digests.insert(name, digest.ok_or_else(|| Failure::at("bench", "a quiet run has no digest"))?);
    }
    Ok(digests)
}

/// Carries all schedules out, some at the same time.
fn all(
    schedules: Vec<Schedule>,
    digests: &BTreeMap<String, String>,
    arguments: &ChaosArguments,
    printer: &Printer,
) -> Vec<Done> {
    let (next, (tell, told)) = (AtomicUsize::new(0), mpsc::channel());
    let patience = Duration::from_secs_f64(arguments.patience.get());
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..arguments.parallel {
            let (tell, next, schedules) = (tell.clone(), &next, &schedules);
            scope.spawn(move || {
                while let Some(schedule) = schedules.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let digest = &digests[&schedule.case.to_string()];
                    let verdict = Subject::start(schedule, patience)
                        .and_then(|subject| subject.suffer(schedule, digest));
                    let seconds = began.elapsed().as_secs_f64();
                    // The reader listens until all have told.
                    let _ = tell.send(Done { schedule: schedule.clone(), seconds, verdict });
                }
            });
        }
        drop(tell);
        for one in told {
            printer.note(one.line());
            done.push(one);
        }
    });
    done.sort_by_key(|done| done.schedule.seed);
    done
}

impl Done {
    fn failed(&self) -> bool {
        self.verdict.as_ref().map_or(true, |verdict| !verdict.problems.is_empty())
    }

    fn line(&self) -> String {
        let Done { schedule, seconds, verdict } = self;
        let found = match verdict {
            Ok(verdict) if verdict.problems.is_empty() => {
                format!("good, longest pause {:.1} s", verdict.longest_pause_s)
            }
            Ok(verdict) => format!("FAILED: {}", verdict.problems.join("; ")),
            Err(failure) => format!("FAILED: {failure}"),
        };
        format!("seed {} ({}) in {seconds:.1} s: {found}", schedule.seed, schedule.text())
    }
}

fn row<'a>(report: &mut Report, case: String, done: impl Iterator<Item = &'a Done>) {
    let done: Vec<&Done> = done.collect();
    if done.is_empty() {
        return;
    }
    let faults: usize = done.iter().map(|done| done.schedule.blows.len()).sum();
    let verdicts: Vec<&Verdict> = done.iter().filter_map(|done| done.verdict.as_ref().ok()).collect();
    let pauses_s: Vec<f64> = verdicts.iter().map(|verdict| verdict.longest_pause_s).collect();
    let rolled_back = verdicts.iter().filter(|verdict| verdict.rolled_back > 0).count();
    report.row(
        Row::new(case)
            .with("schedules", done.len())
            .with("faults", faults)
            .with("failed", done.iter().filter(|done| done.failed()).count())
            .with("rolled_back", rolled_back)
            .with("longest_pause_s", largest(&pauses_s))
            .with("longest_s", largest(&done.iter().map(|done| done.seconds).collect::<Vec<_>>())),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_bounds_their_rate() {
        assert!(bound(300, 0).contains("less than 1.00 %"));
        assert!(bound(200, 3).contains("3 of 200") && bound(200, 3).contains("1.50 %"));
    }
}
