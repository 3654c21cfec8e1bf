//! Whether a fresh policy decides what the daemon's decided, moment by moment.

use bellwether_core::cluster::JobId;
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput, Rule};
use bellwether_sched::drive::ask;
use bellwether_sched::registry::Registry;

use super::Recorded;
use crate::ledger::{Entry, Line};
use crate::state::State;

/// Recorded decisions beside those of the same policy, asked again.
#[derive(Default)]
pub struct Compared {
    /// Recorded decisions.
    pub all: u64,
    /// How many of them came out the same.
    pub same: u64,
    /// Those of a policy that began before the ledger was compacted: what it remembered then is not known.
    pub skipped: u64,
    /// The first that did not.
    pub first: Option<Difference>,
    /// The policy that decides, and which it is: see [`State::policies`].
    policy: Option<(u64, Box<dyn Policy>)>,
    /// Its answer at the last moment.
    answer: Option<Decision>,
}

/// A decision that came out otherwise.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its number, from 1.
    pub number: u64,
    /// When, on the daemon's clock.
    pub time_s: f64,
    /// The recorded one, in a sentence.
    pub recorded: String,
    /// The other one.
    pub replayed: String,
}

impl std::fmt::Debug for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Compared { all, same, skipped, first, .. } = self;
        f.debug_struct("Compared")
            .field("all", all)
            .field("same", same)
            .field("skipped", skipped)
            .field("first", first)
            .finish_non_exhaustive()
    }
}

impl Compared {
    /// A line is about to be taken in.
    pub(super) fn before(&mut self, line: &Line, recorded: &Recorded) {
        let (Entry::Decided { decision, .. }, state) = (&line.entry, &recorded.state) else { return };
        if began_before(recorded) {
            self.skipped += 1;
            return;
        }
        let answer = self.answer.take();
        if is_found(decision, answer.as_ref()) {
            return;
        }
        self.all += 1;
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
    pub(super) fn after(
        &mut self,
        line: &Line,
        recorded: &Recorded,
        registry: &Registry,
    ) -> Result<(), String> {
        if !matches!(line.entry, Entry::Moment { .. }) || began_before(recorded) {
            return Ok(());
        }
        let state = &recorded.state;
        if self.policy.as_ref().is_none_or(|(number, _)| *number != state.policies) {
            let fresh = state.deciding().fresh(registry).map_err(|error| error.to_string())?;
            self.policy = Some((state.policies, fresh));
        }
        let State { now_s, view, changes, belief, .. } = state;
        let input = PolicyInput { now_s: *now_s, view, changes, model: belief };
        self.answer = self.policy.as_mut().map(|(_, policy)| ask(policy.as_mut(), &input));
        Ok(())
    }
}

/// Whether the policy that decides began before the ledger was compacted.
fn began_before(recorded: &Recorded) -> bool {
    recorded.compacted.as_ref().is_some_and(|compacted| compacted.policies == recorded.state.policies)
}

/// Whether jobs trained already when the ledger began, so that no policy decided this. A built-in policy has a rule
/// that has a name.
fn is_found(recorded: &Decision, answer: Option<&Decision>) -> bool {
    let has_name = |decision: &Decision| decision.reason.rule != Rule::Custom;
    !has_name(recorded) && answer.is_some_and(has_name)
}

/// What was expected of an action is written down beside a decision, not as a part of it.
fn is_same(one: &Decision, other: &Decision) -> bool {
    let plain = |action: &Action| match action.clone() {
        Action::Allocate { job, allocation, batch, beside, way, .. } => {
            Action::Allocate { job, allocation, batch, expected: None, beside, way }
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
