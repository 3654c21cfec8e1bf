//! Watches for workers that turn slow, and has them replaced.

use std::collections::BTreeMap;

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, Now, Seen};
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::stragglers::{Action, Limits, Slow, Stragglers};
use clap::Args;

use super::windows::Windows;

/// Of two workers nobody can say which is slow and which is quick.
const LEAST_WORKERS: usize = 3;

/// What a user may say about it.
#[derive(Debug, Clone, Args)]
pub(crate) struct StragglerArguments {
    /// Replace workers that compute slower than the others for no known reason, where there are 3 or more: so many within
    /// an hour at most, 4 if no number is given. With 0 the journal tells of them, and they stay. --autoscale implies it
    #[arg(long, value_name = "PER_HOUR", num_args = 0..=1, require_equals = true, default_missing_value = "4",
          conflicts_with = "no_spawn")]
    replace_stragglers: Option<u32>,
}

impl StragglerArguments {
    /// How many workers may be replaced within an hour; `None` where nobody watches.
    pub(super) fn per_hour(&self, autoscaled: bool) -> Option<u32> {
        self.replace_stragglers.or(autoscaled.then_some(Limits::default().per_hour))
    }
}

/// Replaces stragglers.
#[derive(Debug)]
pub(super) struct Replacer {
    stragglers: Stragglers,
    windows: Windows,
}

impl Replacer {
    /// Replaces so many workers within an hour at most. Of workers without a known speed it is taken for 1.
    pub(super) fn new(per_hour: u32, speeds: BTreeMap<WorkerId, f64>) -> Replacer {
        let limits = Limits { per_hour, ..Limits::default() };
        Replacer {
            stragglers: Stragglers::new(limits).expect("the default limits are valid"),
            windows: Windows::new(speeds, LEAST_WORKERS),
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
    fn direct(&mut self, seen: Seen<'_>, now: &Now<'_>) -> Vec<DirectorCommand> {
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
