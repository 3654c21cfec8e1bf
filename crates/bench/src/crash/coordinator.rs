//! The coordinator's half of `crash`: SIGKILL it, resume the run, wait for its workers.

use std::time::Duration;

use bellwether_core::record::Event;
use bellwether_core::units::Bytes;

use super::recovered;
use crate::failure::Failure;
use crate::jobs::{ENDLESS, Synthetic};
use crate::report::{Report, Row};
use crate::statistics::{Dice, largest, median, now_s};
use crate::trial::Trial;

/// Time from the start of the new process until all workers are back.
const BOUND_S: f64 = 2.0;

pub(super) fn measure(
    report: &mut Report,
    case: &str,
    workers: u32,
    kills: u32,
    dice: &mut Dice,
) -> Result<(), Failure> {
    if kills == 0 {
        return Ok(());
    }
    let parameters = Bytes(1 << 20);
    let job = Synthetic { step_ms: 20, parameters, virtual_nodes: workers, steps: ENDLESS, adam: false };
    let mut trial = Trial::start(&job.text(), workers)?;
    let (mut attached_s, mut committed_s) = (Vec::new(), Vec::new());
    for _ in 0..kills {
        let (attached, committed) = kill(&mut trial, workers, dice)?;
        attached_s.push(attached);
        committed_s.push(committed);
    }
    report.row(
        Row::new(case)
            .with("kills", kills)
            .spread("workers_back", "s", &attached_s)
            .spread("next_commit", "s", &committed_s)
            .samples("workers_back_samples_s", &attached_s)
            .samples("next_commit_samples_s", &committed_s),
    );
    report.at_most(
        format!("{case}: worst time until all workers are back"),
        "s",
        largest(&attached_s),
        BOUND_S,
    );
    report.note(format!(
        "{case}: seconds count from the start of the resumed process; median to the next commit {:.0} ms.",
        median(&committed_s) * 1e3
    ));
    Ok(())
}

/// Times until the last worker is back, and until the next commit.
fn kill(trial: &mut Trial, workers: u32, dice: &mut Dice) -> Result<(f64, f64), Failure> {
    trial.settle(workers as usize, 5)?;
    std::thread::sleep(dice.time(0.1));
    let mark = trial.mark()?;
    let members = trial.members().active.clone();
    trial.kill_coordinator();
    // Long enough for the workers to notice, and to be anywhere in their search for a coordinator.
    std::thread::sleep(Duration::from_millis(100) + dice.time(0.2));
    let begun_s = now_s();
    trial.resume()?;
    let attached_s = trial.wait("all workers to come back", |trial| {
        let back = |worker: &u64| {
            trial.since(mark).iter().find_map(|line| match &line.event {
                Event::WorkerAttached { worker: who, held_step: Some(_), .. } if who == worker => {
                    Some(line.time_s)
                }
                _ => None,
            })
        };
        members.iter().map(back).collect::<Option<Vec<f64>>>()
    })?;
    let (_, committed_s) = recovered(trial, mark)?;
    Ok((largest(&attached_s) - begun_s, committed_s - begun_s))
}
