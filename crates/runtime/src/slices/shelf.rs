//! The checkpoints of one run in a place for objects: which are there, and which are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bellwether_core::job::CheckpointUrl;
use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, NAME, folder_of};
use super::reader::{self, ReadError};
use crate::checkpoint::CheckpointError;
use crate::objects::{self, Object, Objects, StoreError};
use crate::state::{TrainingState, hex};
use crate::workload::Layout;

/// What a run says of itself.
const CARD: &str = "run.json";

/// Longer ones are not read.
const CARD_BYTES_MAX: u64 = 1 << 16;

fn step_of(key: &str) -> Option<u64> {
    let (folder, _) = key.split_once('/')?;
    folder.strip_prefix("step-")?.parse().ok()
}

/// The checkpoints of a run.
#[derive(Debug, Clone)]
pub struct Shelf {
    /// The run's folder.
    url: CheckpointUrl,
    objects: Arc<dyn Objects>,
    keep: usize,
    /// Hash of the job's identity.
    identity: String,
}

/// What a run says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Card {
    run: String,
    name: String,
    identity: String,
}

/// A manifest that can be used, or why one cannot.
pub type Found = Result<Manifest, CheckpointError>;

/// As a job's identity is compared.
pub fn identity_hash(identity: &str) -> String {
    hex(blake3::hash(identity.as_bytes()).as_bytes())
}

impl Shelf {
    /// Opens the folder of a run; nothing is asked of the place yet.
    ///
    /// # Errors
    ///
    /// Those of [`objects::open`].
    pub fn open(url: CheckpointUrl, keep: usize, identity: &str) -> Result<Shelf, StoreError> {
        let objects = objects::open(&url)?;
        Ok(Shelf { url, objects, keep, identity: identity_hash(identity) })
    }

    /// The run's folder.
    pub fn url(&self) -> &CheckpointUrl {
        &self.url
    }

    /// Hash of the job's identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Tries the place: writes who the run is, and reads and lists what was written.
    ///
    /// # Errors
    ///
    /// Those of the place, or one if it does not show what was written.
    pub fn try_out(&self, run: &str, name: &str) -> Result<(), StoreError> {
        let card = Card { run: run.into(), name: name.into(), identity: self.identity.clone() };
        let bytes = serde_json::to_vec(&card).expect("plain data");
        self.objects.put(CARD, &bytes)?;
        let read = self.objects.get(CARD, CARD_BYTES_MAX)?;
        let is_listed = self.objects.list("")?.iter().any(|object| object.key == CARD);
        if read == bytes && is_listed {
            return Ok(());
        }
        Err(StoreError::Failed {
            place: self.url.to_string(),
            what: "it does not show what was just written".into(),
        })
    }

    /// What people are told of the checkpoint after `step` steps: its manifest.
    pub fn place(&self, step: u64) -> PathBuf {
        let url = self.url.join(&folder_of(step)).join(NAME);
        url.folder().map_or_else(|| url.to_string().into(), PathBuf::from)
    }

    /// Steps with a manifest, newest first.
    ///
    /// # Errors
    ///
    /// Those of the place.
    pub fn steps(&self) -> Result<Vec<u64>, StoreError> {
        let objects = self.objects.list("")?;
        let is_manifest = |object: &&Object| object.key.ends_with(&format!("/{NAME}"));
        let mut steps: Vec<u64> =
            objects.iter().filter(is_manifest).filter_map(|object| step_of(&object.key)).collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        Ok(steps)
    }

    /// Reads the manifest of a step, which must be of this job.
    ///
    /// # Errors
    ///
    /// The place's error, damage, or another job.
    pub fn manifest(&self, step: u64) -> Found {
        let path = self.place(step);
        let manifest = reader::manifest(&*self.objects, step).map_err(|error| said(path.clone(), error))?;
        if manifest.identity != self.identity {
            let what = "its model, batch, optimizer, length or seed differ from the job file's".into();
            return Err(CheckpointError::OtherJob { path, what });
        }
        Ok(manifest)
    }

    /// Writes a manifest, which makes its step count, if all of its slices are there; then removes what is not kept.
    ///
    /// # Errors
    ///
    /// Those of the place; earlier checkpoints stay as they are.
    pub fn commit(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let folder = folder_of(manifest.step);
        let there: BTreeMap<String, u64> = self
            .objects
            .list(&format!("{folder}/"))?
            .into_iter()
            .map(|object| (object.key, object.bytes))
            .collect();
        for slice in &manifest.slices {
            let key = format!("{folder}/{}", slice.name(manifest.slices.len()));
            if there.get(&key) != Some(&slice.bytes) {
                let place = format!("{}/{key}", self.url);
                let what =
                    "a worker wrote it, and it is not there: the place is not the same for all nodes".into();
                return Err(StoreError::Failed { place, what });
            }
        }
        self.objects.put(&format!("{folder}/{NAME}"), &manifest.encode())
    }

    /// Removes the checkpoints beyond the newest, and slices of steps before the newest that never became one. What
    /// cannot be removed stays until the next time.
    ///
    /// # Errors
    ///
    /// Those of the place.
    pub fn prune(&self, newest: &Manifest) -> Result<(), StoreError> {
        let objects = self.objects.list("")?;
        let manifest = |step: u64| format!("{}/{NAME}", folder_of(step));
        let keys: BTreeSet<&str> = objects.iter().map(|object| object.key.as_str()).collect();
        let of_steps: BTreeSet<u64> = objects.iter().filter_map(|object| step_of(&object.key)).collect();
        let complete = of_steps.iter().rev().filter(|step| keys.contains(manifest(**step).as_str()));
        let kept: BTreeSet<u64> = complete.copied().take(self.keep.max(1)).collect();
        let names: BTreeSet<String> =
            newest.slices.iter().map(|slice| slice.name(newest.slices.len())).collect();
        for object in &objects {
            let Some(step) = step_of(&object.key) else { continue };
            let name = object.key.rsplit('/').next().unwrap_or_default();
            let is_old = step < newest.step && !kept.contains(&step);
            let is_stale = step == newest.step && name != NAME && !names.contains(name);
            // A step whose manifest is gone first never counts with a part of its slices.
            if (is_old && name == NAME) || is_stale {
                self.objects.remove(&object.key)?;
            }
        }
        let old = |step: u64| step < newest.step && !kept.contains(&step);
        for object in objects.iter().filter(|object| step_of(&object.key).is_some_and(old)) {
            self.objects.remove(&object.key)?;
        }
        Ok(())
    }

    /// The newest state that can be used, and why newer ones could not; `None` when there is none at all.
    ///
    /// # Errors
    ///
    /// The newest one's fault, if there are some and none can be used.
    pub fn newest_state(
        &self,
        layout: &Layout,
        slots: &[impl AsRef<str>],
    ) -> Result<Option<(TrainingState, Vec<CheckpointError>)>, CheckpointError> {
        let steps = self.steps().map_err(|error| said(self.place(0), error.into()))?;
        let mut skipped = Vec::new();
        for step in steps {
            match self.state(step, layout, slots) {
                Ok(state) => return Ok(Some((state, skipped))),
                Err(error @ CheckpointError::OtherJob { .. }) => return Err(error),
                Err(error) => skipped.push(error),
            }
        }
        if skipped.is_empty() { Ok(None) } else { Err(skipped.swap_remove(0)) }
    }

    /// The state after `step` steps.
    ///
    /// # Errors
    ///
    /// The place's error, damage, or another job.
    pub fn state(
        &self,
        step: u64,
        layout: &Layout,
        slots: &[impl AsRef<str>],
    ) -> Result<TrainingState, CheckpointError> {
        let manifest = self.manifest(step)?;
        let path = self.place(step);
        if let Some(what) = manifest.difference(layout, slots) {
            return Err(CheckpointError::OtherJob { path, what });
        }
        let mut state = TrainingState::zeros(layout, slots.len());
        reader::fill(&*self.objects, &manifest, &mut state).map_err(|error| said(path, error))?;
        Ok(state)
    }
}

fn said(path: PathBuf, error: ReadError) -> CheckpointError {
    match error {
        ReadError::Damaged(what) => CheckpointError::Damaged { path, what },
        ReadError::Store(error) => CheckpointError::Store { path, source: error },
    }
}

/// The folders of runs at a URL, or the URL itself where it is one.
///
/// # Errors
///
/// Those of the place.
pub fn runs_at(url: &CheckpointUrl) -> Result<Vec<CheckpointUrl>, StoreError> {
    let objects = objects::open(url)?;
    let folders = objects.folders()?;
    if folders.iter().any(|name| step_of(&format!("{name}/")).is_some()) {
        return Ok(vec![url.clone()]);
    }
    Ok(folders.iter().map(|name| url.join(name)).collect())
}

/// The run at a URL with the newest checkpoint of the job with this identity, and its step.
///
/// # Errors
///
/// Those of the place.
pub fn newest_run(url: &CheckpointUrl, identity: &str) -> Result<Option<(CheckpointUrl, u64)>, StoreError> {
    let mut newest: Option<(CheckpointUrl, u64)> = None;
    for run in runs_at(url)? {
        let shelf = Shelf::open(run, 1, identity)?;
        for step in shelf.steps()? {
            if newest.as_ref().is_some_and(|(_, known)| *known >= step) {
                break;
            }
            match shelf.manifest(step) {
                Ok(_) => {
                    newest = Some((shelf.url.clone(), step));
                    break;
                }
                Err(CheckpointError::Store { source, .. }) => return Err(source),
                Err(CheckpointError::Damaged { .. }) => {}
                // All are.
                Err(_) => break,
            }
        }
    }
    Ok(newest)
}
