//! Verdicts: at some boundaries the members wait until it is said whether the run goes on.
//!
//! Members know where they wait: at each boundary that is due by the job and that no verdict has let pass. A
//! membership says up to where that was when it was made ([`Membership::decided`]), and a verdict to go on is told to
//! all workers ([`ToWorker::GoOn`]). It does not begin another membership: newcomers receive the state for one
//! membership, and would begin again at every verdict. A verdict to end makes this boundary the last one of the run,
//! where the members wait for the membership that stops. A verdict is in the journal before anything follows from it,
//! and is never given twice.
//!
//! [`Membership::decided`]: crate::membership::Membership::decided

use bellwether_core::record::{EarlyEnd, Event as Journal};

use super::last_checkpoint::retry_s;
use super::{Coordinator, Lifecycle, Stage, Worker};
use crate::membership::{ToWorker, WorkerId};

/// Seconds without a verdict after which people are told, and how many times the longest one so far.
const PATIENCE: (f64, f64) = (60.0, 3.0);

/// What is known of the run's verdicts.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdicts {
    /// All boundaries up to this step are decided.
    decided: u64,
    /// The verdict that ends the run.
    ends: Option<EarlyEnd>,
    /// One that came when the state after its step was written, and not all members had told that they are there.
    early: Option<(u64, Option<String>)>,
    waits: Option<Waits>,
    /// The longest time that the members waited for one.
    longest_s: f64,
}

/// The members stand at a boundary that is not decided.
#[derive(Debug, Clone)]
struct Waits {
    step: u64,
    since_s: f64,
    /// When the first member is asked for the state, unless that is written by then.
    ask_s: f64,
    /// How often it could not be written.
    failures: u32,
    /// Whether people were told that no verdict comes.
    told: bool,
}

impl Verdicts {
    /// What the journal of a coordinator that died says.
    pub(super) fn resumed(decided: u64, ends: Option<EarlyEnd>) -> Verdicts {
        Verdicts { decided, ends, ..Verdicts::default() }
    }

    /// The members form again: what they sent before may be lost.
    pub(super) fn restart(&mut self) {
        self.waits = None;
    }

    /// The state after `step` did not come, or could not be written.
    pub(super) fn checkpoint_failed(&mut self, step: u64, now_s: f64) {
        if let Some(waits) = self.waits.as_mut().filter(|waits| waits.step == step) {
            waits.failures = waits.failures.saturating_add(1);
            waits.ask_s = now_s + retry_s(waits.failures);
        }
    }
}

impl Coordinator {
    /// Steps of the whole run: those of the job, or fewer where a verdict ends it before.
    pub(super) fn last_step(&self) -> Option<u64> {
        self.verdicts.ends.as_ref().map(|end| end.step).or(self.total_steps)
    }

    /// The verdict that ends the run before the last step of its job.
    pub fn ended_early(&self) -> Option<&EarlyEnd> {
        self.verdicts.ends.as_ref()
    }

    /// Whether a verdict ends the run where it stands.
    pub(super) fn ends_here(&self) -> bool {
        self.verdicts.ends.as_ref().is_some_and(|end| end.step <= self.progress.committed())
    }

    /// The boundary at which a verdict is due next; none at the last step, and none after a verdict that ends the run.
    fn verdict_at(&self) -> Option<u64> {
        let every = self.config.verdict_every;
        if every == 0 || self.verdicts.ends.is_some() {
            return None;
        }
        let next = self.goes_on_after().saturating_add(every);
        self.total_steps.is_none_or(|total| next < total).then_some(next)
    }

    /// The boundary at which the members wait for a verdict, or for the end that one has decided.
    pub(super) fn verdict_holds_at(&self) -> Option<u64> {
        self.verdicts.ends.as_ref().map(|end| end.step).or_else(|| self.verdict_at())
    }

    /// The step after which the members wait for a verdict now.
    pub fn awaited_verdict(&self) -> Option<u64> {
        let trains = self.lifecycle == Lifecycle::Running && !self.stopping && self.failure.is_none();
        self.verdict_at().filter(|step| trains && *step == self.progress.committed())
    }

    /// The members need not wait at this boundary, nor at an earlier one.
    pub(super) fn goes_on_after(&self) -> u64 {
        if let Some(end) = &self.verdicts.ends {
            return end.step.saturating_sub(1);
        }
        // Members that have passed a boundary do not go back to it, whatever became of the journal.
        let before = self.progress.committed().saturating_sub(1);
        let passed = before - before.checked_rem(self.config.verdict_every).unwrap_or(before);
        self.verdicts.decided.max(passed)
    }

    /// Why a verdict on `step` cannot be followed. The same one may be given again, and changes nothing.
    pub fn verdict_refusal(&self, step: u64, ends: bool) -> Option<String> {
        let (every, committed) = (self.config.verdict_every, self.progress.committed());
        if self.lifecycle == Lifecycle::Ended {
            return Some("the run is over".into());
        }
        if every == 0 {
            return Some(
                "the run waits for no verdict: its job has no verdict.every_steps (a script writes hold=True)".into(),
            );
        }
        if step == 0 || !step.is_multiple_of(every) || self.total_steps.is_some_and(|total| step >= total) {
            return Some(format!(
                "no verdict is due after step {step}: the workers wait after every {every} steps, but for the last"
            ));
        }
        match &self.verdicts.ends {
            Some(end) if step > end.step || ends != (step == end.step) => {
                return Some(format!("it is decided: the run ends early {end}"));
            }
            Some(_) => return None,
            None => {}
        }
        if step <= self.verdicts.decided {
            return ends.then(|| format!("it is decided: the run goes on after step {step}"));
        }
        let is_seen = committed >= step || self.settled.contains(&step);
        (Some(step) != self.verdict_at() || !is_seen)
            .then(|| format!("a verdict on step {step} is not due: {committed} steps are done"))
    }

    /// The run goes on after `step`, or ends there for a reason.
    pub(super) fn decide(&mut self, step: u64, ends: Option<String>) {
        let is_known = step <= self.verdicts.decided;
        if is_known || self.verdict_refusal(step, ends.is_some()).is_some() {
            return;
        }
        if self.progress.committed() < step {
            self.verdicts.early = Some((step, ends));
            return;
        }
        self.journal(Journal::Verdict { step, ends: ends.clone() });
        let verdicts = &mut self.verdicts;
        verdicts.decided = step;
        verdicts.ends = ends.map(|reason| EarlyEnd { step, reason });
        if let Some(waits) = verdicts.waits.take() {
            verdicts.longest_s = verdicts.longest_s.max(self.now_s - waits.since_s);
        }
        if verdicts.ends.is_none() {
            // Also to those outside the membership: a plan that was made before this verdict may admit them.
            let is_up = |w: &Worker| !matches!(w.stage, Stage::Started | Stage::Booting);
            let told = self.workers.iter().filter(|(_, w)| is_up(w)).map(|(id, _)| *id);
            for worker in told.collect::<Vec<WorkerId>>() {
                self.send(worker, ToWorker::GoOn { step });
            }
        }
    }

    /// While the members wait for a verdict, the state that it is about is to be written, and people are to know.
    pub(super) fn await_verdict(&mut self) {
        let Some(step) = self.awaited_verdict() else {
            self.verdicts.restart();
            return;
        };
        if let Some((_, ends)) = self.verdicts.early.take_if(|(early, _)| *early == step) {
            return self.decide(step, ends);
        }
        if !self.config.verdict_needs_state {
            return;
        }
        let (now_s, limit_s) = (self.now_s, self.transfer_limit_s());
        let every = self.config.checkpoint_every;
        // Where it is due by the job's rule, the first member sends it unasked.
        let unasked_s = if every > 0 && step.is_multiple_of(every) { limit_s } else { 0.0 };
        let ask_s = now_s + unasked_s;
        let begun = Waits { step, since_s: now_s, ask_s, failures: 0, told: false };
        let waits = self.verdicts.waits.get_or_insert(begun);
        let patience_s = PATIENCE.0.max(PATIENCE.1 * self.verdicts.longest_s);
        let is_late = now_s - waits.since_s > patience_s && !waits.told;
        let is_missing =
            !self.settled.contains(&step) && !self.writing.contains(&step) && now_s >= waits.ask_s;
        if is_missing {
            waits.ask_s = now_s + limit_s;
        }
        if is_late {
            waits.told = true;
            let message = format!(
                "the workers have waited for {patience_s:.0} s for the lead to say whether the run goes on after step \
                 {step}; `bellwether stop` ends it with a checkpoint"
            );
            self.journal(Journal::Warning { message });
        }
        if let Some(first) = self.current.active.first().filter(|_| is_missing) {
            let (worker, epoch) = (first.worker, self.current.epoch);
            self.send(worker, ToWorker::SendCheckpoint { epoch, step });
        }
    }
}
