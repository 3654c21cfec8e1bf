//! Searches for an architecture: trains a supernet and the sub-supernets that it is split into, scores architectures
//! by the weights that they inherit, and predicts what each would take.
//!
//! The stages are apart, so that a program can take any of them: [`family`] names the supernets as jobs, a [`Trainer`]
//! trains them, an [`Oracle`] scores, [`devices`] predicts, and [`search`] asks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bellwether_core::InputError;
use bellwether_core::job::{CellOperation, architecture_text};
use bellwether_core::nas::{Limits, SearchMethod, SearchOptions};
use bellwether_runtime::run_dir::{RunDir, RunDirError};
use bellwether_runtime::workload::WorkloadError;
use bellwether_sched::evolution::{Method, Search};

use crate::RunError;

pub mod devices;
mod family;
mod measured;
mod oracle;
mod train;

pub use devices::{Costs, Predictor};
pub use family::{Member, family};
pub use measured::measure_all;
pub use oracle::{OpenScorer, Oracle, Score, Scorer};
pub use train::{Progress, Sessions, Tell, Trained, Trainer, train_all};

/// Architectures that are looked at to find the nearest to the limits; all of a space that has no more.
const LOOKED_AT: u64 = 100_000;

/// One operation for each edge.
pub type Architecture = Vec<CellOperation>;

/// A search for an architecture cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NasError {
    /// The search, the job, a file or this machine cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A run cannot begin.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run's folder cannot be read or written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A supernet cannot be computed.
    #[error("{0}")]
    Workload(#[from] WorkloadError),
    /// A supernet was stopped.
    #[error("{run} was stopped")]
    Stopped {
        /// Its run.
        run: String,
    },
    /// A supernet could not be trained to its end.
    #[error("{run}: {why}")]
    Failed {
        /// Its run.
        run: String,
        /// The run's folder.
        folder: PathBuf,
        /// How it ended.
        why: String,
    },
}

impl NasError {
    /// A run that did not come to its end.
    pub fn failed(run: &RunDir, why: String) -> NasError {
        NasError::Failed { run: run.name.clone(), folder: run.path.clone(), why }
    }
}

/// An architecture that was scored.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// One operation for each edge.
    pub architecture: Architecture,
    /// How good it is with inherited weights.
    pub score: Score,
    /// What it is predicted to take; `None` where nothing was measured.
    pub costs: Option<Costs>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Different architectures that were scored, the best first.
    pub found: Vec<Found>,
    /// Scores that were asked for.
    pub evaluations: usize,
}

/// Asks for scores, of architectures within the limits only.
///
/// # Errors
///
/// Returns an error if a score cannot be computed.
pub fn search(
    options: &SearchOptions,
    limits: &Limits,
    edges: &[Vec<CellOperation>],
    oracle: &mut Oracle<'_>,
    predictor: Option<&Predictor>,
) -> Result<Findings, NasError> {
    let SearchOptions { method, evaluations, population, tournament, seed, .. } = *options;
    let method = match method {
        SearchMethod::Random => Method::Random,
        SearchMethod::Evolution => Method::Evolution { population, tournament },
    };
    let alternatives: Vec<usize> = edges.iter().map(Vec::len).collect();
    let of = |genome: &[usize]| -> Architecture {
        genome.iter().zip(edges).map(|(choice, edge)| edge[*choice]).collect()
    };
    let is_allowed = |genome: &[usize]| {
        limits.is_empty()
            || predictor.is_none_or(|predictor| predictor.costs(&of(genome)).excess(limits) <= 1.0)
    };
    let mut search = Search::new(method, alternatives, seed);
    let mut found: BTreeMap<Architecture, Found> = BTreeMap::new();
    for _ in 0..evaluations {
        // Where few are allowed, evolution may find none beside those that it has.
        let Some(genome) = search.next(&is_allowed) else { break };
        let architecture = of(&genome);
        let score = oracle.score(&architecture)?;
        search.tell(genome, score.merit());
        let costs = predictor.map(|predictor| predictor.costs(&architecture));
        found.insert(architecture.clone(), Found { architecture, score, costs });
    }
    let mut found: Vec<Found> = found.into_values().collect();
    found.sort_by(|a, b| b.score.merit().total_cmp(&a.score.merit()));
    Ok(Findings { found, evaluations: oracle.asked() })
}

/// Finds out whether an architecture is within the limits, before anything is trained.
///
/// # Errors
///
/// That none is, and which one comes nearest.
pub fn check_limits(
    limits: &Limits,
    edges: &[Vec<CellOperation>],
    predictor: &Predictor,
) -> Result<(), InputError> {
    let alternatives: Vec<usize> = edges.iter().map(Vec::len).collect();
    let of = |genome: &[usize]| -> Architecture {
        genome.iter().zip(edges).map(|(choice, edge)| edge[*choice]).collect()
    };
    let all = alternatives.iter().map(|count| *count as f64).product::<f64>();
    let is_small = all <= LOOKED_AT as f64;
    let mut random = Search::new(Method::Random, alternatives.clone(), 0);
    let looked_at = if is_small { all as u64 } else { LOOKED_AT };
    let nearest = (0..looked_at)
        .map(|number| of(&if is_small { numbered(&alternatives, number) } else { random.draw() }))
        .map(|architecture| (predictor.costs(&architecture), architecture))
        .min_by(|(a, _), (b, _)| a.excess(limits).total_cmp(&b.excess(limits)));
    match nearest {
        Some((costs, architecture)) if costs.excess(limits) > 1.0 => {
            let text = architecture_text(&architecture);
            let hint = format!(
                "the nearest is {text}, which takes {costs}; raise the limits, or make the cell smaller"
            );
            Err(InputError::new("limits", "no architecture is predicted to be within the limits").hint(hint))
        }
        _ => Ok(()),
    }
}

/// The candidate with this number, the first place fastest.
fn numbered(alternatives: &[usize], mut number: u64) -> Vec<usize> {
    let digit = |count: &usize| {
        let digit = number % *count as u64;
        number /= *count as u64;
        digit as usize
    };
    alternatives.iter().map(digit).collect()
}

#[cfg(test)]
mod tests;
