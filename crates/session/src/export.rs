//! The trained weights of a run as one file under plain names, which frameworks load strictly.
//!
//! A checkpoint has `parameters/NAME` and `state/NAME`, and no tensor twice. A plain model of a framework has more:
//! other names of shared tensors, counters, and what was never trained. A script's lead writes that into the run's
//! folder when the run begins ([`FILE`]); here both are put together.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::{CheckpointUrl, Job, Model};
use bellwether_runtime::checkpoint::{CheckpointError, Store};
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::slices::Shelf;
use bellwether_runtime::state::TrainingState;
use bellwether_runtime::workload::{Layout, Tensor};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors, serialize};
use serde::de::DeserializeOwned;

use crate::error::RunError;

/// What the lead of a script writes into the run's folder: tensors that the checkpoints do not have, and in its
/// metadata the layout, other names of tensors (`tied`) and counters of steps.
pub const FILE: &str = "plain.safetensors";

/// The weights of a run.
#[derive(Debug)]
pub struct Exported {
    /// The content of a file in the format safetensors.
    pub bytes: Vec<u8>,
    /// Steps behind them.
    pub step: u64,
    /// Why newer checkpoints could not be used.
    pub skipped: Vec<String>,
}

/// What a plain model has beside the tensors of a checkpoint.
#[derive(Debug, Default)]
struct Plain {
    layout: Layout,
    format: Option<String>,
    /// Another name, and the name in the layout.
    tied: BTreeMap<String, String>,
    counters: Vec<String>,
    fixed: Option<Vec<u8>>,
    /// Further entries of the metadata.
    manifest: BTreeMap<String, String>,
}

/// The newest weights of a run. `layout` says the tensors of a job that no script trains.
///
/// # Errors
///
/// A run without a checkpoint that can be used; files of it that cannot be read.
pub fn export(
    run: &RunDir,
    layout: impl FnOnce(&Job) -> Result<Layout, InputError>,
) -> Result<Exported, RunError> {
    let job = run.job()?;
    let plain = match fs::read(run.path.join(FILE)) {
        Ok(bytes) => read(bytes).map_err(|what| InputError::new(place(&run.path.join(FILE)), what))?,
        Err(_) => Plain { layout: layout(&job)?, ..Plain::default() },
    };
    let Weights { values: (parameters, state), step, skipped } = weights(run, &job, &plain.layout)?;
    let built_in = matches!(
        job.model,
        Model::Mlp { .. } | Model::Convnet { .. } | Model::Resnet { .. } | Model::Transformer { .. }
    );
    let (plain, parameters) = match built_in {
        true => for_pytorch(&job, plain, &parameters),
        false => (plain, parameters),
    };
    let bytes = file(&plain, (&parameters, &state), step).map_err(|what| InputError::new(&run.name, what))?;
    Ok(Exported { bytes, step, skipped })
}

/// The trained weights of a run, or of a checkpoint.
#[derive(Debug, Clone)]
pub struct Weights {
    /// Parameters and state in layout order.
    pub values: (Vec<f32>, Vec<f32>),
    /// Steps behind them.
    pub step: u64,
    /// Why newer checkpoints could not be used.
    pub skipped: Vec<String>,
}

/// The newest weights of a run, whose job has this layout.
///
/// # Errors
///
/// A run without a checkpoint that can be used.
pub fn weights(run: &RunDir, job: &Job, layout: &Layout) -> Result<Weights, InputError> {
    let optimizer = Optimizer::new(job, 0);
    let found = newest(run, job, layout, &optimizer.slots());
    let (state, skipped) = found.map_err(|error| InputError::new(&run.name, error))?.ok_or_else(|| {
        let error = InputError::new(&run.name, "there is no checkpoint yet");
        error.hint("a run writes one when it ends, when it is stopped, and as [checkpoint] says")
    })?;
    let skipped = skipped.iter().map(ToString::to_string).collect();
    Ok(Weights { values: (state.parameters, state.model_state), step: state.step, skipped })
}

/// The weights in the file of a checkpoint, of a job with this layout.
///
/// # Errors
///
/// A file that cannot be read, is damaged, or is of another job.
pub fn weights_in(file: &Path, job: &Job, layout: &Layout) -> Result<Weights, InputError> {
    let wrong = |what: String| InputError::new(place(file), what);
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let step = name.strip_prefix("step-").and_then(|name| name.strip_suffix(".safetensors")?.parse().ok());
    let step = step.filter(|step: &u64| name == format!("step-{step:012}.safetensors")).ok_or_else(|| {
        wrong("is not called as checkpoints are, step-000000000123.safetensors".into())
            .hint("a run's folder has them in checkpoints/")
    })?;
    let folder = file.parent().unwrap_or(Path::new(".")).to_path_buf();
    let (store, optimizer) = (Store::new(folder, 1, &job.identity()), Optimizer::new(job, 0));
    let state = store.read(step, layout, &optimizer.slots()).map_err(|error| match error {
        CheckpointError::OtherJob { .. } => {
            wrong(error.to_string()).hint("name the job file of the run that wrote it with --job JOB.toml")
        }
        other => wrong(other.to_string()),
    })?;
    Ok(Weights { values: (state.parameters, state.model_state), step, skipped: Vec::new() })
}

pub(crate) type Newest = Option<(TrainingState, Vec<CheckpointError>)>;

/// The newest state, from where the coordinator or the workers wrote it.
pub(crate) fn newest(
    run: &RunDir,
    job: &Job,
    layout: &Layout,
    slots: &[&str],
) -> Result<Newest, CheckpointError> {
    let Some(url) = &job.checkpoint.url else {
        let store = Store::new(checkpoints(run, job), job.checkpoint.keep, &job.identity());
        let found = store.newest(layout, slots)?;
        return Ok(found.map(|found| (found.state, found.skipped)));
    };
    let place = |url: CheckpointUrl| {
        let path = url.to_string().into();
        let shelf = Shelf::open(url, job.checkpoint.keep, &job.identity());
        shelf.map_err(|source| CheckpointError::Store { path, source })
    };
    // A run that went on from another's checkpoints may have none of its own yet.
    let own = run.id().map(|id| url.join(&format!("{}-{id}", run.name)));
    for url in [own, run.origin().ok().flatten()].into_iter().flatten() {
        let found = place(url)?.newest_state(layout, slots)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The folder of the run's checkpoints: that in a folder which the job names ends with the run's random name.
fn checkpoints(run: &RunDir, job: &Job) -> PathBuf {
    let Some(folder) = &job.checkpoint.folder else { return run.checkpoints() };
    let prefix = format!("{}-", run.name);
    let is_of_run = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let random = name.strip_prefix(&prefix);
        random.is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.into_iter().find(is_of_run).unwrap_or_else(|| folder.join(&run.name))
}

fn read(bytes: Vec<u8>) -> Result<Plain, String> {
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| error.to_string())?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let (parameters, state): (Rows, Rows) = json(&metadata, "layout")?;
    Ok(Plain {
        layout: Layout { parameters: tensors(parameters), state: tensors(state) },
        format: metadata.get("format").cloned(),
        tied: json(&metadata, "tied")?,
        counters: json(&metadata, "counters")?,
        fixed: Some(bytes),
        manifest: BTreeMap::new(),
    })
}

/// Tensors of a built-in network as PyTorch has them: the weight of a fully connected layer has its outputs first, and
/// names are those of `nn.Linear`, `nn.Conv2d`, `nn.BatchNorm2d`, `nn.LayerNorm` and `nn.Embedding`. The metadata say
/// what the network is.
fn for_pytorch(job: &Job, plain: Plain, parameters: &[f32]) -> (Plain, Vec<f32>) {
    let mut values = Vec::with_capacity(parameters.len());
    let mut rest = parameters;
    let mut renamed = Vec::new();
    for tensor in &plain.layout.parameters {
        let (head, tail) = rest.split_at(tensor.len());
        rest = tail;
        match tensor.shape[..] {
            [inputs, outputs] if tensor.name.ends_with(".weight") => {
                values.extend((0..outputs).flat_map(|o| (0..inputs).map(move |i| head[i * outputs + o])));
                renamed.push(Tensor { name: tensor.name.clone(), shape: vec![outputs, inputs] });
            }
            _ => {
                values.extend_from_slice(head);
                renamed.push(Tensor { name: name_in_pytorch(&tensor.name), shape: tensor.shape.clone() });
            }
        }
    }
    let state = plain.layout.state.iter();
    let state =
        state.map(|tensor| Tensor { name: name_in_pytorch(&tensor.name), shape: tensor.shape.clone() });
    let state: Vec<Tensor> = state.collect();
    let counters = state.iter().filter_map(|tensor| tensor.name.strip_suffix("running_mean"));
    let counters = counters.map(|norm| format!("{norm}num_batches_tracked")).collect();
    let model = serde_json::to_string(&job.model).unwrap_or_default();
    let manifest = BTreeMap::from([("model".to_owned(), model), ("job".to_owned(), job.name.clone())]);
    let layout = Layout { parameters: renamed, state };
    (Plain { layout, counters, manifest, format: Some("pt".into()), ..plain }, values)
}

fn name_in_pytorch(name: &str) -> String {
    let other = [(".scale", ".weight"), (".shift", ".bias"), (".running_variance", ".running_var")];
    let renamed =
        other.iter().find_map(|(ours, theirs)| Some(format!("{}{theirs}", name.strip_suffix(ours)?)));
    let embedding = name.starts_with("embedding.").then(|| format!("{name}.weight"));
    renamed.or(embedding).unwrap_or_else(|| name.to_owned())
}

type Rows = Vec<(String, Vec<usize>)>;

fn tensors(rows: Rows) -> Vec<Tensor> {
    rows.into_iter().map(|(name, shape)| Tensor { name, shape }).collect()
}

fn json<T: DeserializeOwned>(metadata: &HashMap<String, String>, key: &str) -> Result<T, String> {
    let text = metadata.get(key).ok_or_else(|| format!("its metadata have no `{key}`"))?;
    serde_json::from_str(text).map_err(|error| format!("`{key}` of its metadata: {error}"))
}

/// A file with everything under plain names.
fn file(plain: &Plain, (parameters, state): (&[f32], &[f32]), step: u64) -> Result<Vec<u8>, String> {
    let fault = |error: SafeTensorError| error.to_string();
    let (parameters, state) = (little_endian(parameters), little_endian(state));
    let count = step.to_le_bytes();
    let fixed = plain.fixed.as_deref().map(SafeTensors::deserialize).transpose().map_err(fault)?;
    let mut views: BTreeMap<&str, TensorView<'_>> = BTreeMap::new();
    for (tensors, bytes) in [(&plain.layout.parameters, &parameters), (&plain.layout.state, &state)] {
        let mut rest = &bytes[..];
        for tensor in tensors {
            let (head, tail) = rest.split_at(4 * tensor.len());
            rest = tail;
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), head).map_err(fault)?;
            views.insert(&tensor.name, view);
        }
    }
    for (name, of) in &plain.tied {
        // The same bytes again: a file has no shared tensors.
        let shared = views.get(of.as_str()).cloned();
        views.insert(name, shared.ok_or_else(|| format!("`{name}` is `{of}`, which was not trained"))?);
    }
    for name in &plain.counters {
        views.insert(name, TensorView::new(Dtype::I64, Vec::new(), &count).map_err(fault)?);
    }
    views.extend(fixed.iter().flat_map(SafeTensors::iter));
    let format = plain.format.iter().map(|format| ("format".to_owned(), format.clone()));
    let metadata = format.chain(plain.manifest.clone()).collect();
    serialize(views, Some(metadata)).map_err(fault)
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn place(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_networks_are_laid_out_as_pytorch_has_them() {
        let tensor = |name: &str, shape: &[usize]| Tensor { name: name.into(), shape: shape.into() };
        let parameters = vec![
            tensor("embedding.token", &[2, 1]),
            tensor("norm.scale", &[1]),
            tensor("norm.shift", &[1]),
            tensor("output.weight", &[2, 3]),
            tensor("output.bias", &[3]),
        ];
        let state = vec![tensor("norm.running_mean", &[1]), tensor("norm.running_variance", &[1])];
        let text = "name = \"job\"\nsteps = 1\n[batch]\nsize = 4\nvirtual_nodes = 2\n[model]\nkind = \"mlp\"\n\
                    hidden = [4]\n[data]\nkind = \"digits\"\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
        let job = bellwether_core::parse::job(text, "job.toml", &[]).expect("a job");
        let plain = Plain { layout: Layout { parameters, state }, ..Plain::default() };
        let values: Vec<f32> = (0..13_u8).map(f32::from).collect();
        let (plain, values) = for_pytorch(&job, plain, &values);
        assert_eq!(values[4..10], [4.0, 7.0, 5.0, 8.0, 6.0, 9.0]);
        assert_eq!((&values[..4], &values[10..]), (&[0.0, 1.0, 2.0, 3.0][..], &[10.0, 11.0, 12.0][..]));
        let names: Vec<&str> = plain.layout.parameters.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(
            names,
            ["embedding.token.weight", "norm.weight", "norm.bias", "output.weight", "output.bias"]
        );
        assert_eq!(plain.layout.parameters[3].shape, [3, 2]);
        assert_eq!(
            (plain.layout.state[1].name.as_str(), &plain.counters[..]),
            ("norm.running_var", &["norm.num_batches_tracked".to_owned()][..])
        );
        assert!(plain.manifest["model"].contains("mlp"), "{:?}", plain.manifest);
    }

    #[test]
    fn names_are_plain_and_shared_tensors_stand_under_both() {
        let tensor = |name: &str, shape: &[usize]| Tensor { name: name.into(), shape: shape.into() };
        let layout = Layout {
            parameters: vec![tensor("b", &[2]), tensor("a", &[1])],
            state: vec![tensor("mean", &[1])],
        };
        let tied = BTreeMap::from([("head".to_owned(), "b".to_owned())]);
        let plain = Plain {
            layout,
            tied,
            counters: vec!["seen".into()],
            format: Some("pt".into()),
            ..Plain::default()
        };
        let bytes = file(&plain, (&[1.0, 2.0, 3.0], &[4.0]), 7).expect("a file");
        let tensors = SafeTensors::deserialize(&bytes).expect("whole");
        let mut names = tensors.names();
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "head", "mean", "seen"]);
        let data = |name: &str| tensors.tensor(name).expect("it is there").data().to_vec();
        assert_eq!((data("head"), data("a")), (little_endian(&[1.0, 2.0]), little_endian(&[3.0])));
        assert_eq!(data("seen"), 7_i64.to_le_bytes());
        let wrong = Plain { tied: BTreeMap::from([("x".to_owned(), "y".to_owned())]), ..plain };
        assert!(
            file(&wrong, (&[1.0, 2.0, 3.0], &[4.0]), 7).expect_err("refused").contains("was not trained")
        );
    }
}
