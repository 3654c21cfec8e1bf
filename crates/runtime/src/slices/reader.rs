//! Reads a checkpoint in slices back: into the memory of the state itself, and believes nothing but its digests.

use bytemuck::cast_slice_mut;

use super::cut::length;
use super::manifest::{BYTES_MAX, Manifest, NAME, folder_of};
use crate::objects::{Objects, StoreError};
use crate::state::{TrainingState, hex};

/// A checkpoint could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The place failed: another try may help.
    #[error("{0}")]
    Store(StoreError),
    /// The content is not what was written: the checkpoint before may do.
    #[error("the checkpoint is damaged: {0}")]
    Damaged(String),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> ReadError {
        if error.is_damage() { ReadError::Damaged(error.to_string()) } else { ReadError::Store(error) }
    }
}

/// Reads the manifest of a step.
///
/// # Errors
///
/// See [`ReadError`]; a step without a manifest is damaged.
pub fn manifest(objects: &dyn Objects, step: u64) -> Result<Manifest, ReadError> {
    let key = format!("{}/{NAME}", folder_of(step));
    let bytes = objects.get(&key, BYTES_MAX)?;
    let manifest = Manifest::decode(&bytes).map_err(|what| ReadError::Damaged(format!("{key}: {what}")))?;
    match manifest.step == step {
        true => Ok(manifest),
        false => Err(ReadError::Damaged(format!("{key}: it says that it is of step {}", manifest.step))),
    }
}

/// Fills `state`, which has the layout of the manifest, with what the slices hold.
///
/// # Errors
///
/// See [`ReadError`]; the state is undefined then.
pub fn fill(objects: &dyn Objects, manifest: &Manifest, state: &mut TrainingState) -> Result<(), ReadError> {
    if Some(4 * length(state)) != manifest.bytes() {
        return Err(ReadError::Damaged("it is of another size than the job's state".into()));
    }
    (state.step, state.noise) = (manifest.step, manifest.noise());
    let folder = folder_of(manifest.step);
    let mut places = state.vectors_mut();
    let mut place: &mut [f32] = &mut [];
    let mut cut = Vec::new();
    for slice in &manifest.slices {
        let key = format!("{folder}/{}", slice.name(manifest.slices.len()));
        let mut left = (slice.bytes / 4) as usize;
        while place.is_empty() && left > 0 {
            place = places.next().ok_or_else(|| ReadError::Damaged("it is longer than the state".into()))?;
        }
        let verify = |bytes: &[u8]| match hex(blake3::hash(bytes).as_bytes()) == slice.digest {
            true => Ok(()),
            false => {
                let what = "its content does not have the digest it was written with";
                Err(ReadError::Damaged(format!("{key}: {what}")))
            }
        };
        if left <= place.len() {
            let (head, tail) = place.split_at_mut(left);
            place = tail;
            objects.read(&key, cast_slice_mut(head))?;
            verify(cast_slice_mut(head))?;
            continue;
        }
        // It cuts through the end of a vector.
        cut.resize(left, 0.0f32);
        objects.read(&key, cast_slice_mut(&mut cut))?;
        verify(cast_slice_mut(&mut cut))?;
        let mut rest = &cut[..];
        while left > 0 {
            let here = left.min(place.len());
            let (head, tail) = std::mem::take(&mut place).split_at_mut(here);
            head.copy_from_slice(&rest[..here]);
            (place, rest, left) = (tail, &rest[here..], left - here);
            if place.is_empty() && left > 0 {
                place =
                    places.next().ok_or_else(|| ReadError::Damaged("it is longer than the state".into()))?;
            }
        }
    }
    Ok(())
}
