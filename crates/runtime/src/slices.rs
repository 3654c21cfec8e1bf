//! Checkpoints in slices: each worker writes its own part of the state to a [place](crate::objects) that outlives its
//! host, and reads all parts back.
//!
//! ```text
//! URL/RUN-ID/run.json                                            which run and job this is
//! URL/RUN-ID/step-000000000123/slice-00003-of-00016.DIGEST       values, little-endian f32
//! URL/RUN-ID/step-000000000123/manifest.json                     written last; without it the step does not count
//! ```
//!
//! The state is one vector: parameters, then each optimizer slot, then the model state. Its slices are equal parts of
//! it, whatever tensors they cut through, so that workers have equal work and any number of workers can read what any
//! other number wrote. A slice's name holds a part of its digest: what is written twice is the same, and a later
//! attempt never changes what an earlier manifest names.

mod cut;
mod manifest;
mod reader;
mod shelf;

pub use cut::{SLICE_BYTES_MAX, copy, count, length, range};
pub(crate) use manifest::SLICES_MAX;
pub use manifest::{Manifest, Slice, Subject, folder_of};
pub use reader::{ReadError, fill, manifest as read_manifest};
pub use shelf::{Found, Shelf, identity_hash, newest_run, runs_at};
