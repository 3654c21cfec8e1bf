//! What is true of each job, by its number: numbers have no gaps, and every event looks one up.

use bellwether_core::cluster::JobId;

use super::Truth;

/// By number, of jobs that are there.
#[derive(Debug, Default)]
pub(super) struct Truths(Vec<Option<Truth>>);

impl Truths {
    pub(super) fn get(&self, id: JobId) -> Option<&Truth> {
        self.0.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Truth> {
        self.0.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn insert(&mut self, id: JobId, truth: Truth) {
        let place = id.0 as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = Some(truth);
    }

    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(truth) = self.0.get_mut(id.0 as usize) {
            *truth = None;
        }
    }
}
