//! A ledger that is read again: what follows from its bytes is what the daemon knew.

use std::slice::Iter;

use bellwether_core::policy::{Backend, Decision, Fault, PolicyInput};
use bellwether_core::prediction::StepModel;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_serve::ledger::{Entry, Line};
use bellwether_serve::state::State;

/// The whole lines of a ledger; those that are damaged are left out.
pub(crate) fn lines(ledger: &[u8]) -> Vec<Line> {
    let whole = ledger.split_inclusive(|byte| *byte == b'\n').filter(|text| text.ends_with(b"\n"));
    whole.filter_map(|text| serde_json::from_slice(text).ok()).collect()
}

/// What follows from the bytes on the disk, kept up to date as they become more.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) state: Option<State>,
    bytes: usize,
}

impl Followed {
    /// Takes in what is new. A ledger that cannot be is as none.
    pub(crate) fn follow(&mut self, ledger: &[u8]) -> Option<&State> {
        if ledger.len() < self.bytes {
            *self = Followed::default();
        }
        let new = &ledger[self.bytes..];
        let end = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let new = &new[..end];
        for line in lines(new) {
            if State::fold(&mut self.state, &line).is_err() {
                return None;
            }
        }
        self.bytes += new.len();
        self.state.as_ref()
    }
}

/// The moments of a ledger, at which policies are asked again.
struct Replay<'a> {
    lines: Iter<'a, Line>,
    state: State,
    policies: u64,
    compared: u64,
}

impl Backend for Replay<'_> {
    fn next<'a>(
        &'a mut self,
        _wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault> {
        loop {
            if self.policies != self.state.policies {
                return Ok(None);
            }
            let Some(line) = self.lines.next() else { return Ok(None) };
            self.state.apply(line).map_err(|error| Fault::Broken(error.to_string()))?;
            if matches!(line.entry, Entry::Moment { .. }) {
                break;
            }
        }
        let State { now_s, view, changes, .. } = &self.state;
        Ok(Some(PolicyInput { now_s: *now_s, view, changes, model }))
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        // Without an answer in the ledger the daemon was killed before it had one.
        if let Some(Line { entry: Entry::Decided { decision: told, .. }, time_s }) =
            self.lines.as_slice().first()
        {
            self.compared += 1;
            if *told != decision {
                return Err(Fault::World(format!("at {time_s} s it decided {told:?}, and now {decision:?}")));
            }
        }
        Ok(())
    }
}

/// Fresh policies that are asked at the moments of a ledger decide as those of its daemons did: what they were shown is
/// what the ledger says. How often that was compared is returned.
pub(crate) fn decisions_follow(ledger: &[u8]) -> Result<u64, Fault> {
    let lines = lines(ledger);
    let mut lines = lines.iter();
    let opened = lines.next().expect("a ledger has a first line");
    let state = State::open(opened).map_err(|error| Fault::Broken(error.to_string()))?;
    let mut replay = Replay { lines, policies: state.policies, state, compared: 0 };
    let mut compacted_at = None;
    while !replay.lines.as_slice().is_empty() {
        // What a policy remembers that began before the ledger was compacted is not known.
        let began_before = compacted_at == Some(replay.state.policies);
        if began_before || replay.state.is_restoring || replay.state.policy.is_empty() {
            let line = replay.lines.next().expect("it is not empty");
            replay.state.apply(line).map_err(|error| Fault::Broken(error.to_string()))?;
            if matches!(line.entry, Entry::KeptState(_)) {
                compacted_at = Some(replay.state.policies);
            }
            continue;
        }
        let mut policy = replay.state.deciding().fresh(&Registry::built_in()).expect("a policy that decided");
        replay.policies = replay.state.policies;
        let belief = replay.state.belief.clone();
        drive(policy.as_mut(), &mut replay, &belief)?;
    }
    Ok(replay.compared)
}
