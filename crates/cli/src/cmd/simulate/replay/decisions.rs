//! Whether a fresh policy decides what the daemon's decided, moment by moment.

use bellwether_core::cluster::JobId;
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput};
use bellwether_sched::registry::Registry;
use bellwether_serve::ledger::{Entry, Line};
use bellwether_serve::state::State;

/// Recorded decisions beside those of the same policy, asked again.
#[derive(Default)]
pub(super) struct Compared {
    /// Recorded decisions.
    pub(super) all: u64,
    /// How many of them came out the same.
    pub(super) same: u64,
    /// The first that did not.
    pub(super) first: Option<Difference>,
    /// The policy that decides, and which it is: see [`State::policies`].
    policy: Option<(u64, Box<dyn Policy>)>,
    /// Its answer at the last moment.
    answer: Option<Decision>,
}

/// A decision that came out otherwise.
#[derive(Debug, Clone)]
pub(super) struct Difference {
    /// Its number, from 1.
    pub(super) number: u64,
    /// When, on the daemon's clock.
    pub(super) time_s: f64,
    pub(super) recorded: String,
    pub(super) replayed: String,
}

impl Compared {
    /// A line is about to be taken in.
    pub(super) fn before(&mut self, line: &Line, state: &State) {
        let Entry::Decided { decision, .. } = &line.entry else { return };
        self.all += 1;
        let answer = self.answer.take();
        if answer.as_ref().is_some_and(|answer| is_same(answer, decision)) {
            self.same += 1;
        } else if self.first.is_none() {
            let said = |decision: &Decision| sentence(decision, state);
            self.first = Some(Difference {
                number: self.all,
                time_s: line.time_s,
                recorded: said(decision),
                replayed: answer.as_ref().map_or_else(|| "nothing: it was not asked".into(), said),
            });
        }
    }

    /// A line has been taken in; at a moment the policy is asked.
    pub(super) fn after(&mut self, line: &Line, state: &State) -> Result<(), String> {
        if !matches!(line.entry, Entry::Moment { .. }) {
            return Ok(());
        }
        if self.policy.as_ref().is_none_or(|(number, _)| *number != state.policies) {
            let (_, fresh) = Registry::built_in().parse(&state.policy).map_err(|error| error.to_string())?;
            self.policy = Some((state.policies, fresh));
        }
        let policy = self.policy.as_mut().map(|(_, policy)| policy);
        let State { now_s, view, changes, belief, .. } = state;
        let input = PolicyInput { now_s: *now_s, view, changes, model: belief };
        self.answer = policy.map(|policy| policy.decide(&input));
        Ok(())
    }
}

/// What was expected of an action is written down beside a decision, and is no part of it.
fn is_same(one: &Decision, other: &Decision) -> bool {
    let plain = |action: &Action| match action.clone() {
        Action::Allocate { job, allocation, batch, beside, .. } => {
            Action::Allocate { job, allocation, batch, expected: None, beside }
        }
        refuse @ Action::Refuse { .. } => refuse,
    };
    one.reason == other.reason
        && one.next_wakeup_s == other.next_wakeup_s
        && one.actions.len() == other.actions.len()
        && one.actions.iter().zip(&other.actions).all(|(one, other)| plain(one) == plain(other))
}

fn sentence(decision: &Decision, state: &State) -> String {
    let name = |job: &JobId| state.jobs.get(job).map_or("?", |record| record.submitted.name.as_str());
    let action = |action: &Action| match action {
        Action::Allocate { job, allocation, .. } => {
            let shares = allocation.shares().iter();
            let shares: Vec<String> =
                shares.map(|share| format!("{} on node {}", share.devices, share.node.0)).collect();
            let shares = if shares.is_empty() { "none".into() } else { shares.join(" and ") };
            format!("{}: {shares}", name(job))
        }
        Action::Refuse { job, why } => format!("{} refused ({why})", name(job)),
    };
    let mut parts: Vec<String> = decision.actions.iter().map(action).collect();
    if parts.is_empty() {
        parts.push("no change".into());
    }
    let wakeup = decision.next_wakeup_s.map_or(String::new(), |time_s| format!("; again at {time_s} s"));
    format!("{} ({}{wakeup})", parts.join(", "), decision.reason)
}
