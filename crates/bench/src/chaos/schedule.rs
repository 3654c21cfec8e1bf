//! What a seed stands for: a job, a number of workers, and which faults fall on the run after which time.
//!
//! The whole schedule is drawn before anything is started, so that a seed is one schedule. When its faults
//! fall within the run is the machine's doing: replay a seed several times to see the same again.

use std::fmt;
use std::time::Duration;

use super::cases::Case;
use crate::statistics::Dice;

/// Most faults of a schedule.
const FAULTS_MAX: u64 = 6;

/// Longest time for which anything stands still, in all faults of a schedule together, in seconds.
const STANDSTILL_MAX_S: f64 = 10.0;

/// Something that falls on a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// SIGKILL to this many workers at once.
    Kill(u64),
    /// SIGKILL to a parameter server, where there is one.
    KillServer,
    /// SIGSTOP to this many workers, and SIGCONT after this time.
    Halt(u64, Duration),
    /// SIGSTOP to the coordinator, and SIGCONT after this time.
    HaltCoordinator(Duration),
    /// SIGKILL to the coordinator and this many workers; another coordinator resumes the run after this time.
    KillCoordinator(u64, Duration),
    /// SIGKILL to every process; the run is taken up after this time.
    KillAll(Duration),
    /// SIGTERM to a worker.
    Leave,
    /// These numbers of workers, one soon after the other.
    Scale(Vec<u64>),
    /// A worker joins by hand.
    Join,
    /// A worker joins by hand, and is killed after this time.
    JoinAndDie(Duration),
    /// The control sessions of this many workers break.
    BreakSessions(u64),
    /// The run is stopped in good order, and taken up again.
    Stop,
    /// The disk of the run is full for this time.
    FillDisk(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = Duration::as_secs_f64;
        match self {
            Fault::Kill(count) => write!(f, "kill {count}"),
            Fault::KillServer => write!(f, "kill a server"),
            Fault::Halt(count, time) => write!(f, "halt {count} for {:.1} s", s(time)),
            Fault::HaltCoordinator(time) => write!(f, "halt the coordinator for {:.1} s", s(time)),
            Fault::KillCoordinator(0, time) => write!(f, "kill the coordinator, back after {:.1} s", s(time)),
            Fault::KillCoordinator(count, time) => {
                write!(f, "kill the coordinator and {count}, back after {:.1} s", s(time))
            }
            Fault::KillAll(time) => write!(f, "kill all, back after {:.1} s", s(time)),
            Fault::Leave => write!(f, "ask one to leave"),
            Fault::Scale(counts) => write!(f, "scale to {counts:?}"),
            Fault::Join => write!(f, "join"),
            Fault::JoinAndDie(time) => write!(f, "join and die after {:.1} s", s(time)),
            Fault::BreakSessions(count) => write!(f, "break {count} sessions"),
            Fault::Stop => write!(f, "stop and resume"),
            Fault::FillDisk(time) => write!(f, "fill the disk for {:.1} s", s(time)),
        }
    }
}

/// A fault, and when it falls.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Blow {
    /// Time since the one before.
    pub(super) after: Duration,
    pub(super) fault: Fault,
    /// Chooses among the workers that live by then.
    pub(super) lot: u64,
}

/// One history, but for the machine's timing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) case: Case,
    pub(super) workers: u64,
    pub(super) checkpoint_every: u64,
    pub(super) blows: Vec<Blow>,
}

impl Schedule {
    /// The schedule of a seed; `disks` are full now and then in some.
    pub(super) fn draw(seed: u64, cases: &[Case], disks: bool) -> Schedule {
        let mut dice = Dice::seeded(seed);
        let case = dice.pick(cases).unwrap_or(Case::Synthetic);
        let workers = 1 + dice.below(4);
        let checkpoint_every = dice.pick(&[0, 10, 25, 100]).unwrap_or(0);
        let mut left_s = STANDSTILL_MAX_S;
        let count = 2 + dice.below(FAULTS_MAX - 1);
        let mut blows: Vec<Blow> = (0..count).map(|_| blow(&mut dice, case, &mut left_s)).collect();
        if disks && dice.below(2) == 0 {
            let fault = Fault::FillDisk(Duration::from_millis(50) + dice.time(1.5));
            let place = dice.below(count + 1) as usize;
            blows.insert(place, Blow { after: dice.time(1.0), fault, lot: 0 });
        }
        Schedule { seed, case, workers, checkpoint_every, blows }
    }

    /// Whether the run needs a disk of its own.
    pub(super) fn needs_disk(&self) -> bool {
        self.blows.iter().any(|blow| matches!(blow.fault, Fault::FillDisk(_)))
    }

    /// It in a line.
    pub(super) fn text(&self) -> String {
        let faults: Vec<String> = self
            .blows
            .iter()
            .map(|blow| format!("{:.1} s {}", blow.after.as_secs_f64(), blow.fault))
            .collect();
        let (case, workers) = (self.case, self.workers);
        format!("{case}, {workers} workers, checkpoints {}: {}", self.checkpoint_every, faults.join("; "))
    }
}

fn blow(dice: &mut Dice, case: Case, left_s: &mut f64) -> Blow {
    let mut standstill = |dice: &mut Dice, least_s: f64, most_s: f64| {
        let time = Duration::from_secs_f64(least_s) + dice.time(most_s - least_s);
        let time = time.min(Duration::from_secs_f64(left_s.max(0.2)));
        *left_s -= time.as_secs_f64();
        time
    };
    let soon = dice.below(2) == 0;
    let after = dice.time(if soon { 0.3 } else { 1.5 });
    let fault = match dice.below(20) {
        0..3 => Fault::Kill(1),
        3 => Fault::Kill(2 + dice.below(3)),
        4 | 5 if case.has_servers() => Fault::KillServer,
        4..6 => Fault::BreakSessions(1 + dice.below(3)),
        6 | 7 => Fault::Halt(1 + dice.below(2), standstill(dice, 0.1, 3.5)),
        8 | 9 => Fault::HaltCoordinator(standstill(dice, 1.0, 8.0)),
        10 | 11 => Fault::KillCoordinator(0, standstill(dice, 0.0, 2.0)),
        12 => Fault::KillCoordinator(1 + dice.below(2), standstill(dice, 0.0, 1.0)),
        13 => Fault::KillAll(standstill(dice, 0.0, 0.5)),
        14 => Fault::Leave,
        15 => Fault::Scale(vec![1 + dice.below(4)]),
        16 => Fault::Scale((0..2 + dice.below(3)).map(|_| 1 + dice.below(4)).collect()),
        17 => Fault::Join,
        18 => Fault::JoinAndDie(dice.time(1.0)),
        _ => Fault::Stop,
    };
    Blow { after, fault, lot: dice.below(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_one_schedule_and_seeds_reach_every_fault() {
        let mut kinds = BTreeSet::new();
        for seed in 0..400 {
            let schedule = Schedule::draw(seed, Case::ALL, true);
            assert_eq!(schedule, Schedule::draw(seed, Case::ALL, true));
            assert!((2..=FAULTS_MAX as usize + 1).contains(&schedule.blows.len()), "{}", schedule.text());
            kinds.extend(
                schedule.blows.iter().map(|blow| format!("{:?}", std::mem::discriminant(&blow.fault))),
            );
            let standstill: Duration = schedule
                .blows
                .iter()
                .map(|blow| match &blow.fault {
                    Fault::Halt(_, time) | Fault::HaltCoordinator(time) => *time,
                    _ => Duration::ZERO,
                })
                .sum();
            assert!(standstill.as_secs_f64() < STANDSTILL_MAX_S + 1.0);
        }
        assert_eq!(kinds.len(), 13);
    }
}
