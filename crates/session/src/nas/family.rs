//! A supernet and the sub-supernets that it is split into, level by level, as jobs.

use bellwether_core::InputError;
use bellwether_core::job::{Cell, CheckedJob, Model};

/// One supernet of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// 0 is the supernet of the whole space.
    pub level: usize,
    /// Number within its level, from 0.
    pub number: usize,
    /// Place in the family of the one whose weights it begins with.
    pub parent: Option<usize>,
    /// Its space.
    pub cell: Cell,
    /// What is trained.
    pub job: CheckedJob,
}

impl Member {
    /// What its run is called: `NAME-s0-0` is the first.
    pub fn name(&self, of: &str) -> String {
        format!("{of}-s{}-{}", self.level, self.number)
    }
}

/// All supernets of a search, parents before their children. The last level covers the space, each architecture once.
///
/// - `job`: the supernet's, whose model is a cell.
/// - `split`: the edges that each level splits.
/// - `share`: how long a sub-supernet is trained, as a share of the job's length; at least one step.
///
/// # Errors
///
/// Returns an error if the model has no cells.
pub fn family(job: &CheckedJob, split: &[Vec<usize>], share: f64) -> Result<Vec<Member>, InputError> {
    let Model::Cell(cell) = &job.model else {
        let error =
            InputError::new("job: model.kind", "only a network of cells holds architectures to choose from");
        return Err(error.hint("write kind = \"cell\""));
    };
    // Where checkpoints are is decided by the search.
    let root = job.clone().edit(|job| (job.checkpoint.folder, job.checkpoint.url) = (None, None))?;
    let mut family = vec![Member { level: 0, number: 0, parent: None, cell: cell.clone(), job: root }];
    let mut parents = 0..1;
    for (level, edges) in split.iter().enumerate() {
        let mut number = 0;
        for parent in parents.clone() {
            for cell in family[parent].cell.clone().split(edges) {
                let length = |whole: u64| ((whole as f64 * share).ceil() as u64).max(1);
                let job = family[0].job.clone().edit(|job| {
                    job.model = Model::Cell(cell.clone());
                    job.epochs = job.epochs.map(length);
                    job.steps = job.steps.map(length);
                })?;
                family.push(Member { level: level + 1, number, parent: Some(parent), cell, job });
                number += 1;
            }
        }
        parents = family.len() - number..family.len();
    }
    Ok(family)
}
