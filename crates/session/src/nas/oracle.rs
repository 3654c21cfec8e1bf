//! How good an architecture is with the weights that it inherits from the supernet that contains it.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::{Cell, CellOperation, Job};
use bellwether_runtime::workload::{Evaluation, Weights, WorkloadError};

use super::{Architecture, NasError, Trained};

/// How good an architecture is on the held-out samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Share of right predictions.
    pub accuracy: f64,
    /// Mean loss.
    pub loss: f64,
}

impl Score {
    /// By which architectures are compared: the accuracy, and among equals the loss. Not a number where the loss is
    /// none.
    pub fn merit(&self) -> f64 {
        // Accuracies of n samples differ by 1/n; no set is so large that this would turn two of them around.
        self.accuracy - 1e-9 * self.loss.min(100.0) + 0.0 * self.loss
    }
}

impl From<Evaluation> for Score {
    fn from(evaluation: Evaluation) -> Score {
        let samples = evaluation.predictions.max(1) as f64;
        Score { accuracy: evaluation.correct as f64 / samples, loss: evaluation.loss_sum / samples }
    }
}

/// Evaluates a path of one supernet on all held-out samples.
pub type Scorer = Box<dyn FnMut(Weights<'_>, &[CellOperation]) -> Result<Evaluation, WorkloadError>>;

/// Makes the scorer of a supernet's job.
pub type OpenScorer<'a> = dyn Fn(&Job) -> Result<Scorer, InputError> + 'a;

/// The supernets of the last level, which together know every architecture of the space.
pub struct Oracle<'a> {
    supernets: Vec<Known>,
    open: &'a OpenScorer<'a>,
    scores: BTreeMap<Architecture, Score>,
    asked: usize,
}

struct Known {
    cell: Cell,
    job: Job,
    trained: Trained,
    /// Once it was asked.
    scorer: Option<Scorer>,
}

impl<'a> Oracle<'a> {
    /// An oracle of these supernets, whose spaces are disjoint.
    pub fn new(supernets: Vec<(Cell, Job, Trained)>, open: &'a OpenScorer<'a>) -> Oracle<'a> {
        let known = |(cell, job, trained)| Known { cell, job, trained, scorer: None };
        let supernets = supernets.into_iter().map(known).collect();
        Oracle { supernets, open, scores: BTreeMap::new(), asked: 0 }
    }

    /// The score of this architecture. The same question is computed once.
    ///
    /// # Errors
    ///
    /// Returns an error if no supernet contains it, or it cannot be computed.
    pub fn score(&mut self, architecture: &[CellOperation]) -> Result<Score, NasError> {
        self.asked += 1;
        if let Some(known) = self.scores.get(architecture) {
            return Ok(*known);
        }
        let place = self.supernets.iter().position(|known| known.cell.contains(architecture));
        let (place, open) = (place.ok_or_else(|| outside(architecture))?, self.open);
        let known = &mut self.supernets[place];
        let scorer = match &mut known.scorer {
            Some(scorer) => scorer,
            none => none.insert(open(&known.job)?),
        };
        let Trained { parameters, state, .. } = &known.trained;
        let score = Score::from(scorer(Weights { parameters, state, version: 0 }, architecture)?);
        self.scores.insert(architecture.to_vec(), score);
        Ok(score)
    }

    /// Questions so far, those that were asked again among them.
    pub fn asked(&self) -> usize {
        self.asked
    }
}

fn outside(architecture: &[CellOperation]) -> InputError {
    let text = bellwether_core::job::architecture_text(architecture);
    InputError::new("search", format!("{text} is in no supernet's space"))
}
