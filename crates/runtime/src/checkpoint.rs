//! Checkpoints: one safetensors file each, written atomically, verified on reading.
//!
//! Tensors are named `parameters/NAME`, `optimizer/SLOT/NAME` and `state/NAME`; the metadata names the
//! step, the job's identity, the run, the kernel class and a digest of the content, and seals all of that. The newest
//! `keep` files stay.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::noise::Noise;
use crate::objects::StoreError;
use crate::private;
use crate::state::{TrainingState, hex};
use crate::workload::{Layout, Tensor};

mod header;

pub use crate::whole::write_atomically;

use header::{FORMAT, Header};

/// The folder in which a run keeps its checkpoints.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
    keep: usize,
    /// Hash of the job's identity: a checkpoint of another job is refused.
    identity: String,
    /// Names the run: another's checkpoint is neither used nor removed. Empty for runs of releases that gave no names.
    run: String,
}

/// A checkpoint could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The place of a checkpoint in slices fails.
    #[error("{source}")]
    Store {
        /// The manifest.
        path: PathBuf,
        /// How.
        source: StoreError,
    },
    /// The content is not what was written.
    #[error("{path}: the checkpoint is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it shows.
        what: String,
    },
    /// It belongs to another run of the same job.
    #[error("{path}: the checkpoint belongs to another run of this job, {run}")]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// That run's random name.
        run: String,
    },
    /// It belongs to another job.
    #[error("{path}: the checkpoint belongs to another job: {what}")]
    OtherJob {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
}

/// A checkpoint that was read and verified.
#[derive(Debug)]
pub struct Loaded {
    /// Its content.
    pub state: TrainingState,
    /// The kernel class that it was trained with.
    pub kernel_class: String,
    /// Its file.
    pub path: PathBuf,
    /// Newer files that could not be used, with the reason.
    pub skipped: Vec<CheckpointError>,
}

impl Store {
    /// The store in `folder` for the job with this identity text.
    pub fn new(folder: PathBuf, keep: usize, identity: &str) -> Self {
        let identity = hex(blake3::hash(identity.as_bytes()).as_bytes());
        Store { folder, keep, identity, run: String::new() }
    }

    /// The same for one run alone, by its random name.
    #[must_use]
    pub fn of_run(self, run: &str) -> Self {
        Store { run: run.into(), ..self }
    }

    /// The file of the checkpoint after `step` steps.
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("step-{step:012}.safetensors"))
    }

    /// Steps of the checkpoints present, newest first.
    pub fn steps(&self) -> Vec<u64> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut steps: Vec<u64> = entries
            .filter_map(|e| {
                let name = e.file_name().into_string().ok()?;
                name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
            })
            .collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        steps
    }

    /// Writes a checkpoint. [`prune`](Store::prune) removes those that are not kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written; older checkpoints stay as they are.
    pub fn write(
        &self,
        state: &TrainingState,
        layout: &Layout,
        slots: &[impl AsRef<str>],
        fingerprint: &str,
    ) -> Result<(PathBuf, u64), CheckpointError> {
        let path = self.path(state.step);
        let temporary = path.with_extension("part");
        let mut metadata = HashMap::from([
            ("format".to_string(), FORMAT.to_string()),
            ("step".to_string(), state.step.to_string()),
            ("identity".to_string(), self.identity.clone()),
            ("kernel_class".to_string(), fingerprint.to_string()),
            ("digest".to_string(), digest(state)),
            ("run".to_string(), self.run.clone()),
        ]);
        if state.noise != Noise::default() {
            metadata.insert("noise".to_string(), noise_text(state.noise));
        }
        let views = views(state, layout, slots);
        let shapes = views.iter().map(|(name, view)| (name.as_str(), view.shape()));
        let seal = header::seal(&metadata, shapes.collect());
        metadata.insert("seal".to_string(), seal);
        let bytes =
            safetensors::serialize(views, Some(metadata)).map_err(|e| damaged(&path, e.to_string()))?;
        let size = bytes.len() as u64;
        let written =
            private::folder(&self.folder).and_then(|()| write_atomically(&temporary, &path, &bytes));
        if let Err(source) = written {
            return Err(CheckpointError::Io { path, source });
        }
        Ok((path, size))
    }

    /// Removes the run's checkpoints beyond the newest `keep`: also one that was just written, if it is of an earlier
    /// step than those.
    pub fn prune(&self) {
        for old in self.steps().into_iter().filter(|step| self.is_own(*step)).skip(self.keep) {
            let _ = fs::remove_file(self.path(old));
        }
    }

    /// Whether the file may be removed: it does not say that it is another run's.
    fn is_own(&self, step: u64) -> bool {
        header::run(&self.path(step)).is_none_or(|run| run == self.run)
    }

    /// The run whose checkpoint is the newest that can be read; none where there is none, or it has no name.
    pub fn newest_run(&self) -> Option<String> {
        self.steps().into_iter().find_map(|step| header::run(&self.path(step))).filter(|run| !run.is_empty())
    }

    /// Reads and verifies the checkpoint after `step` steps.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing, damaged, or of another job or layout.
    pub fn read(
        &self,
        step: u64,
        layout: &Layout,
        slots: &[impl AsRef<str>],
    ) -> Result<TrainingState, CheckpointError> {
        self.load(step, layout, slots).map(|(state, _)| state)
    }

    /// Reads a checkpoint; its state and its kernel class.
    fn load(
        &self,
        step: u64,
        layout: &Layout,
        slots: &[impl AsRef<str>],
    ) -> Result<(TrainingState, String), CheckpointError> {
        let path = self.path(step);
        let bytes = fs::read(&path).map_err(|source| CheckpointError::Io { path: path.clone(), source })?;
        let header = Header::read(&bytes).map_err(|what| damaged(&path, what))?;
        // Damage has many faces; only a header whose seal is whole is believed to be of something else.
        let other = |what: String| match header.is_sealed() {
            true => CheckpointError::OtherJob { path: path.clone(), what },
            false => damaged(&path, format!("{what}; an earlier release wrote it, without a seal")),
        };
        if header.entry("identity") != self.identity {
            let what = "its model, batch, optimizer, length or seed differ from the job file's";
            return Err(other(what.into()));
        }
        let run = header.entry("run");
        if header.is_sealed() && run != self.run && !run.is_empty() && !self.run.is_empty() {
            return Err(CheckpointError::OtherRun { path, run: run.into() });
        }
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| damaged(&path, e.to_string()))?;
        let mut state = TrainingState::zeros(layout, slots.len());
        (state.step, state.noise) = (step, read_noise(header.entry("noise")));
        if header.entry("step") != step.to_string() {
            return Err(damaged(&path, format!("it says that it is of step {}", header.entry("step"))));
        }
        fill(&tensors, "parameters", &layout.parameters, &mut state.parameters)
            .and_then(|()| {
                slots.iter().zip(&mut state.slots).try_for_each(|(slot, values)| {
                    fill(&tensors, &format!("optimizer/{}", slot.as_ref()), &layout.parameters, values)
                })
            })
            .and_then(|()| fill(&tensors, "state", &layout.state, &mut state.model_state))
            .map_err(other)?;
        if digest(&state) != header.entry("digest") {
            return Err(damaged(&path, "its content does not have the digest it was written with".into()));
        }
        Ok((state, header.entry("kernel_class").into()))
    }

    /// The newest checkpoint that can be used, or `None` when there is no file at all.
    ///
    /// # Errors
    ///
    /// Returns the newest file's fault if there are files and none can be used.
    pub fn newest(
        &self,
        layout: &Layout,
        slots: &[impl AsRef<str>],
    ) -> Result<Option<Loaded>, CheckpointError> {
        let mut skipped = Vec::new();
        for step in self.steps() {
            match self.load(step, layout, slots) {
                Ok((state, kernel_class)) => {
                    return Ok(Some(Loaded { state, kernel_class, path: self.path(step), skipped }));
                }
                // The previous one is of another job too.
                Err(error @ CheckpointError::OtherJob { .. }) => return Err(error),
                Err(error) => skipped.push(error),
            }
        }
        if skipped.is_empty() { Ok(None) } else { Err(skipped.swap_remove(0)) }
    }
}

/// The parameters that the checkpoint in `path`, of any job, has under the names of this layout, and the state where it
/// has all of it: what the training of a like model, or of a part of it, can begin with.
///
/// # Errors
///
/// Says that the file cannot be read, is not a checkpoint, or lacks a tensor of this name and shape.
pub fn read_weights(path: &Path, layout: &Layout) -> Result<(Vec<f32>, Option<Vec<f32>>), String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    Header::read(&bytes).map_err(|what| format!("is not a checkpoint: {what}"))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| format!("is damaged: {error}"))?;
    let (mut parameters, mut state) = (vec![0.0; layout.parameter_count()], vec![0.0; layout.state_count()]);
    fill(&tensors, "parameters", &layout.parameters, &mut parameters)?;
    let has_state = fill(&tensors, "state", &layout.state, &mut state).is_ok();
    Ok((parameters, has_state.then_some(state)))
}

fn damaged(path: &Path, what: String) -> CheckpointError {
    CheckpointError::Damaged { path: path.into(), what }
}

/// The digest of what a file holds: that of the state, with the noise where there is some.
fn digest(state: &TrainingState) -> String {
    let digest = state.digest();
    if state.noise == Noise::default() {
        return hex(&digest);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&digest).update(noise_text(state.noise).as_bytes());
    hex(hasher.finalize().as_bytes())
}

/// The bits, so that nothing is rounded.
fn noise_text(noise: Noise) -> String {
    format!("{:016x} {:016x}", noise.signal.to_bits(), noise.noise.to_bits())
}

/// What is missing or no number counts for nothing.
fn read_noise(text: &str) -> Noise {
    let mut words = text.split(' ').map(|word| u64::from_str_radix(word, 16).map_or(0.0, f64::from_bits));
    let mut next = || words.next().filter(|value| value.is_finite()).unwrap_or(0.0);
    Noise { signal: next(), noise: next() }
}

fn views<'a>(
    state: &'a TrainingState,
    layout: &'a Layout,
    slots: &[impl AsRef<str>],
) -> Vec<(String, TensorView<'a>)> {
    let mut views = Vec::new();
    let mut add = |prefix: &str, tensors: &'a [Tensor], values: &'a [f32]| {
        let mut rest = values;
        for tensor in tensors {
            let (head, tail) = rest.split_at(tensor.len());
            rest = tail;
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytemuck::cast_slice(head));
            views.push((format!("{prefix}/{}", tensor.name), view.expect("the layout gives the length")));
        }
    };
    add("parameters", &layout.parameters, &state.parameters);
    for (slot, values) in slots.iter().zip(&state.slots) {
        add(&format!("optimizer/{}", slot.as_ref()), &layout.parameters, values);
    }
    add("state", &layout.state, &state.model_state);
    views
}

fn fill(
    tensors: &SafeTensors<'_>,
    prefix: &str,
    layout: &[Tensor],
    values: &mut [f32],
) -> Result<(), String> {
    let mut rest = values;
    for expected in layout {
        let name = format!("{prefix}/{}", expected.name);
        let view = tensors.tensor(&name).map_err(|_| format!("it has no tensor `{name}`"))?;
        if view.dtype() != Dtype::F32 || view.shape() != expected.shape {
            return Err(format!(
                "`{name}` has shape {:?}, the job's model needs {:?}",
                view.shape(),
                expected.shape
            ));
        }
        let (head, tail) = rest.split_at_mut(expected.len());
        rest = tail;
        for (value, bytes) in head.iter_mut().zip(view.data().as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    }
    Ok(())
}
