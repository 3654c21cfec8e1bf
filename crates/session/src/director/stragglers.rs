//! Watches for workers that turn slow, and has them replaced.

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::stragglers::{Action, Limits, Slow, Stragglers};

use super::windows::{Expected, Windows};

/// Of two workers it cannot be said which is slow and which is quick.
const LEAST_WORKERS: usize = 3;

/// Windows in a row for which a worker is late before it is replaced where shares follow what workers take: it is given
/// less first, which takes fewer.
const DWELL_AFTER_SHARES: u64 = 20;

/// Replaces stragglers.
#[derive(Debug)]
pub(crate) struct Replacer {
    stragglers: Stragglers,
    windows: Windows,
}

impl Replacer {
    /// Replaces at most this many workers within an hour.
    pub(crate) fn new(per_hour: u32, expected: Expected) -> Replacer {
        let limits = match expected {
            Expected::Speeds(_) => Limits { per_hour, ..Limits::default() },
            Expected::SameTime => Limits { per_hour, dwell_steps: DWELL_AFTER_SHARES, ..Limits::default() },
        };
        Replacer {
            stragglers: Stragglers::new(limits).expect("the default limits are valid"),
            windows: Windows::new(expected, LEAST_WORKERS),
        }
    }
}

fn commands(action: &Action, step: u64) -> Vec<DirectorCommand> {
    let (Action::Start(Slow { worker, pace, .. }) | Action::Withhold(Slow { worker, pace, .. })) = *action;
    let worker = WorkerId::from(worker);
    let note = DirectorCommand::Note(Event::Straggler { worker, step, pace, reason: action.to_string() });
    match action {
        Action::Start(_) => vec![note, DirectorCommand::Replace(worker)],
        Action::Withhold(_) => vec![note],
    }
}

impl Director for Replacer {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        for worker in self.windows.gone(seen) {
            self.stragglers.left(worker);
        }
        let mut commands_now = Vec::new();
        for window in self.windows.see(seen) {
            let actions = self.stragglers.observe(now.elapsed_s, &window);
            commands_now.extend(actions.iter().flat_map(|action| commands(action, now.step)));
        }
        commands_now
    }
}
