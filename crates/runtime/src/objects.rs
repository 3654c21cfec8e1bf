//! Where slices of checkpoints lie: a folder that all nodes share, or an object store that speaks S3.
//!
//! An opened place is rooted at its URL; keys are relative to it, with `/` between their parts. An object appears whole
//! or not at all, and what is written stays after a power cut.

use std::sync::Arc;

use bellwether_core::job::CheckpointUrl;

mod folder;
mod place;
mod s3;

pub use place::{Object, Objects, StoreError};

/// Variables of the environment that hold a credential: not for the eyes of a scheduler that keeps what it is given.
pub const SECRET_VARIABLES: [&str; 3] = s3::SECRETS;

/// Whether processes that do not inherit [`SECRET_VARIABLES`] can open a place: the user's file has credentials.
///
/// # Errors
///
/// [`StoreError::Environment`] where it has none, and the place needs some.
pub fn opens_by_file(url: &CheckpointUrl) -> Result<(), StoreError> {
    match url {
        CheckpointUrl::Folder(_) => Ok(()),
        CheckpointUrl::S3 { .. } => s3::is_in_file(),
    }
}

/// Opens a place. Nothing is asked of it yet; credentials are read from the environment of this process.
///
/// # Errors
///
/// [`StoreError::Environment`] where credentials or the endpoint are missing or make no sense.
pub fn open(url: &CheckpointUrl) -> Result<Arc<dyn Objects>, StoreError> {
    Ok(match url {
        CheckpointUrl::Folder(folder) => Arc::new(folder::Folder::new(folder)),
        CheckpointUrl::S3 { bucket, prefix } => Arc::new(s3::S3::from_environment(bucket, prefix)?),
    })
}
