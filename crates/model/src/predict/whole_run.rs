//! A whole run whose protocol may change: its time by number of workers, phase by phase.

use bellwether_core::job::{SyncPolicy, WorkerRange};
use bellwether_core::prediction::{Protocol, Validity};
use serde::Serialize;

use super::question::{Answer, Question, QuestionError, wrong};
use crate::hybrid::{self, Phase};

/// What is asked of a whole run.
#[derive(Debug, Clone)]
pub struct RunQuestion<'a> {
    /// The job and its configuration; its protocol is used where there is no `policy`.
    pub question: Question<'a>,
    /// Steps of the whole batch, or what makes as many samples.
    pub steps: u64,
    /// Protocols in turn.
    pub policy: Option<SyncPolicy>,
    /// Seconds for which each switch stalls the run.
    pub switch_s: f64,
}

/// A run with a number of workers.
#[derive(Debug, Serialize)]
pub struct RunAnswer {
    /// How many.
    pub workers: u32,
    /// Seconds of the whole run, switches included.
    pub time_s: f64,
    /// Samples per second, over the whole run.
    pub examples_per_s: f64,
    /// The time of the same steps in synchronous training, over this time.
    pub speedup: f64,
    /// Its phases, in order.
    #[serde(rename = "stretches")]
    pub phases: Vec<PhaseAnswer>,
    /// Whether the profile covers it.
    pub validity: Validity,
}

/// A phase of it.
#[derive(Debug, Serialize)]
pub struct PhaseAnswer {
    /// Its protocol.
    pub protocol: String,
    /// Its first step.
    pub from_step: u64,
    /// Steps of the whole batch, or what makes as many samples.
    pub steps: u64,
    /// Seconds.
    pub time_s: f64,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Which model answered: `fine` or `coarse`.
    pub model: &'static str,
    /// Expected mean staleness of an update; absent where there is no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness: Option<f64>,
}

impl RunQuestion<'_> {
    /// The answer for each number of workers that `asked` names and all phases can have.
    ///
    /// # Errors
    ///
    /// Those of [`Question`]; a policy that switches by what it measures.
    pub fn answers(&self, asked: Option<WorkerRange>) -> Result<Vec<RunAnswer>, QuestionError> {
        let policy = self.policy.clone().unwrap_or(SyncPolicy::Phases(vec![(0.0, self.question.protocol)]));
        if policy == SyncPolicy::Auto {
            let what = "when `auto` switches is known only while it trains";
            return wrong("sync", what, "say --switch-at SHARE");
        }
        let phases = policy.phases(self.steps);
        let questions: Vec<Question<'_>> = phases.iter().map(|(_, protocol)| self.of(*protocol)).collect();
        let together = self.of(Protocol::Bsp);
        questions.iter().try_for_each(|question| question.check(false))?;
        let mut answers = Vec::new();
        // Without a synchronous phase, too: for comparison with synchronous training no more than that can have.
        for workers in together.counts(asked)? {
            let parts = questions.iter().map(|question| question.answer(workers));
            let parts = parts.collect::<Result<Vec<Answer>, _>>()?;
            answers.push(self.answer(workers, &phases, parts, &together.answer(workers)?)?);
        }
        Ok(answers)
    }

    /// [`Question::left_out`] of a whole run.
    pub fn left_out(&self, asked: Option<WorkerRange>) -> Option<String> {
        self.of(Protocol::Bsp).left_out(asked)
    }

    /// The question of a phase.
    fn of(&self, protocol: Protocol) -> Question<'_> {
        Question { protocol, servers: self.servers(protocol), ..self.question }.reduced()
    }

    /// The servers of a phase: those of others are none of synchronous ones, unless these are asked to sum there.
    fn servers(&self, protocol: Protocol) -> Option<u32> {
        match protocol {
            Protocol::Bsp if self.policy.is_some() && self.question.reduce.is_none() => Some(0),
            Protocol::Gossip | Protocol::Local(_) => None,
            _ => self.question.servers,
        }
    }

    fn answer(
        &self,
        workers: u32,
        phases: &[(u64, Protocol)],
        parts: Vec<Answer>,
        together: &Answer,
    ) -> Result<RunAnswer, QuestionError> {
        let model = self.question.model;
        let own = if model.shares_batch() { 1 } else { u64::from(workers) };
        // A step is of the batch of synchronous training, whatever the protocol.
        let batch = self.question.batch.unwrap_or(model.profile().batch * own) as f64;
        let ends = phases.iter().skip(1).map(|(from, _)| *from).chain([self.steps]);
        let validity = parts
            .iter()
            .map(|part| part.validity.clone())
            .max_by_key(|validity| validity.beyond().map_or(0, str::len));
        let (mut told, mut worked) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for (((from_step, protocol), end), part) in phases.iter().zip(ends).zip(parts) {
            let steps = end - from_step;
            worked.push(Phase { share: steps as f64 / self.steps as f64, units_per_s: part.examples_per_s });
            told.push(PhaseAnswer {
                protocol: protocol.to_string(),
                from_step: *from_step,
                steps,
                time_s: steps as f64 * batch / part.examples_per_s,
                examples_per_s: part.examples_per_s,
                low: part.low,
                high: part.high,
                model: part.model,
                staleness: part.staleness,
            });
        }
        let samples = self.steps as f64 * batch;
        let time_s = hybrid::time_s(samples, &worked, self.switch_s)?;
        Ok(RunAnswer {
            workers,
            time_s,
            examples_per_s: samples / time_s,
            speedup: samples / together.examples_per_s / time_s,
            phases: told,
            validity: validity.unwrap_or(Validity::Interpolated),
        })
    }
}
