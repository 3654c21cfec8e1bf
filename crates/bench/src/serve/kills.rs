//! The daemon is killed at random moments while jobs come and go.

use bellwether_core::record::Event;
use bellwether_runtime::run_dir::RunDir;
use bellwether_serve::snapshot::Phase;

use super::stage::{Stage, same_digests, synthetic};
use crate::failure::Failure;
use crate::report::{Report, Row};
use crate::statistics::{Dice, largest};

/// Time in which a daemon that comes back has taken all jobs over.
const BOUND_S: f64 = 2.0;

pub(super) fn measure(report: &mut Report, kills: u64, dice: &mut Dice) -> Result<(), Failure> {
    let mut stage = Stage::start("wfs")?;
    let (mut back_s, mut described) = (Vec::new(), Vec::new());
    for number in 0..kills {
        let job = synthetic(number, 30 + number % 50, 5.0)?;
        let name = format!("bench-{number}");
        stage.submit(&name, &job, "1..4")?;
        described.push((name, job));
        std::thread::sleep(dice.time(0.6));
        stage.kill()?;
        std::thread::sleep(dice.time(0.2));
        back_s.push(stage.come_back()?);
    }
    let jobs = stage.wait_for_the_end()?;
    let finished = jobs.iter().filter(|job| job.state == Phase::Finished).count() as u64;
    let failures: u32 = jobs.iter().map(|job| job.failures).sum();
    let same = same_digests(&jobs, &described)?;
    let mut pauses_s = Vec::new();
    for (name, _) in &described {
        pauses_s.extend(longest_pause_s(&stage.path().join(name)));
    }
    let row = Row::new("daemon killed")
        .with("kills", kills)
        .with("jobs", described.len())
        .with("finished", finished)
        .with("failures", failures)
        .with("digests_equal", same)
        .spread("back", "s", &back_s)
        .with("longest_pause_s", largest(&pauses_s));
    report.row(row.samples("back_s", &back_s));
    let count = described.len() as u64;
    report.bar(
        "jobs finished with the digest of an undisturbed run",
        same as f64 / count as f64,
        1.0,
        same == count,
    );
    report.at_most("killed daemon: back with all jobs, worst", "s", largest(&back_s), BOUND_S);
    report.note(
        "`longest_pause_s` is the longest time between two committed steps of a job while its workers stayed the same; \
         a step of one worker takes 0.04 s.",
    );
    Ok(())
}

/// The longest time without a committed step while nothing was asked of the run.
fn longest_pause_s(run: &std::path::Path) -> Option<f64> {
    let (mut last_s, mut longest_s) = (None::<f64>, None::<f64>);
    for line in RunDir::at(run).journal().ok()?.lines().map_while(Result::ok) {
        match line.event {
            Event::Committed { .. } => {
                let pause_s = last_s.map(|last_s| line.time_s - last_s);
                longest_s = [longest_s, pause_s].into_iter().flatten().reduce(f64::max);
                last_s = Some(line.time_s);
            }
            Event::Membership { .. } | Event::ScaleRequested { .. } | Event::StopRequested { .. } => {
                last_s = None
            }
            _ => {}
        }
    }
    longest_s
}
