//! Trained models as the verbs take them that apply one: a run, a job or a checkpoint, with its weights.

use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job};
use bellwether_runtime::inference::coordinator::InferenceError;
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::workload::{Layout, Workload};
use bellwether_session::export::{Weights, weights, weights_in};
use bellwether_session::script::Trained;
use bellwether_workloads::Other;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::files;
use crate::job::{self, Opened, Purpose as ScriptPurpose, ScriptArguments};
use crate::printer::Printer;
use crate::runs::StateDir;
use crate::session;

/// Which model is applied.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// Name of a run, or of a job (its newest run), its folder, or the file of a checkpoint
    #[arg(value_name = "RUN|CHECKPOINT")]
    pub(crate) model: String,
    /// Job file of a checkpoint that lies in no run's folder
    #[arg(long, value_name = "JOB.toml")]
    pub(crate) job: Option<PathBuf>,
    /// Whether the first line of the data names its columns [default: as in the training data]
    #[arg(long, value_name = "true|false")]
    pub(crate) header: Option<bool>,
    /// Workers, which may come and go: the result is the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) workers: u32,
    /// The interpreter that runs a Python script [default: that of the run]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<PathBuf>,
    /// What part of its speed each worker has, to try what a slow one does
    #[arg(long, hide = true)]
    pub(crate) speed: Option<String>,
}

/// What a worker of an inference builds, as its coordinator says it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// A network that is applied to samples of this shape.
    Predict { image: [usize; 3], classes: usize },
    /// A workload whose held-out samples are examined: the job's own, or those in a file.
    Examine { data: Option<PathBuf>, labels: Option<PathBuf>, header: Option<bool> },
}

impl Purpose {
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("a purpose is text")
    }

    pub(crate) fn read(text: &str) -> Result<Purpose, InputError> {
        serde_json::from_str(text).map_err(|error| {
            InputError::new("the coordinator", format!("asks for something unknown: {error}"))
                .hint("use the same release on all machines")
        })
    }

    pub(crate) fn workload(&self, job: &Job) -> Result<Box<dyn Workload>, InputError> {
        match self {
            Purpose::Predict { image, classes } => bellwether_workloads::applied(job, *image, *classes),
            Purpose::Examine { data: None, .. } => session::build(job),
            Purpose::Examine { data: Some(data), labels, header } => {
                let other = Other { data, labels: labels.as_deref(), header: *header };
                bellwether_workloads::examined_on(job, &files::data(u64::MAX), other)
            }
        }
    }
}

/// Where the weights are.
enum Place {
    Run(RunDir),
    Checkpoint(PathBuf),
}

/// A model whose job is known.
pub(crate) struct Model {
    /// As the user calls it.
    pub(crate) name: String,
    pub(crate) job: CheckedJob,
    pub(crate) trained: Option<Trained>,
    place: Place,
}

impl Model {
    /// Finds the model that the arguments name, and asks its script, if it has one, what it trains.
    pub(crate) fn open(arguments: &ModelArguments, state_dir: Option<PathBuf>) -> Result<Model, Failure> {
        let script = ScriptArguments { python: arguments.python.clone(), arguments: Vec::new() };
        let path = Path::new(&arguments.model);
        let is_file = path.extension().is_some_and(|ending| ending == "safetensors") && path.is_file();
        let (place, job_path) = if is_file {
            // A checkpoint lies in the folder `checkpoints` of its run.
            let folder =
                std::path::absolute(path).ok().and_then(|path| Some(path.parent()?.parent()?.to_path_buf()));
            let run = folder.and_then(RunDir::open).map(|run| run.path);
            let job = arguments.job.clone().or(run).ok_or_else(|| {
                InputError::new(&arguments.model, "this checkpoint lies in no run's folder")
                    .hint("name the job file that it was trained by: --job JOB.toml")
            })?;
            (Place::Checkpoint(path.to_path_buf()), job)
        } else {
            if arguments.job.is_some() {
                let error = InputError::new("--job", "a run has its own job");
                return Err(error.hint("leave it out, or name the file of a checkpoint").into());
            }
            let run = StateDir::find(state_dir)?.run(&arguments.model)?;
            let path = run.path.clone();
            (Place::Run(run), path)
        };
        let Opened { job, trained, .. } = job::open(&job_path, &script, &[], ScriptPurpose::Declare)?;
        let name = match &place {
            Place::Run(run) => run.name.clone(),
            Place::Checkpoint(file) => file.display().to_string(),
        };
        Ok(Model { name, job, trained, place })
    }

    /// Its newest weights, or those of the checkpoint.
    pub(crate) fn weights(&self, layout: &Layout, printer: &Printer) -> Result<Weights, Failure> {
        let weights = match &self.place {
            Place::Run(run) => weights(run, &self.job, layout)?,
            Place::Checkpoint(file) => weights_in(file, &self.job, layout)?,
        };
        for why in &weights.skipped {
            printer.note(format_args!("warning: {why}"));
        }
        Ok(weights)
    }

    /// The program whose processes are its workers.
    pub(crate) fn program(&self, arguments: &ModelArguments) -> Result<bellwether_session::Program, Failure> {
        let program = session::program_of(self.trained.as_ref())?;
        Ok(match arguments.speed.clone() {
            Some(speed) => program.arguments(move |_| vec!["--speed".into(), speed.clone()]),
            None => program,
        })
    }
}

impl From<InferenceError> for Failure {
    fn from(error: InferenceError) -> Self {
        match error {
            InferenceError::Input(error) => error.into(),
            InferenceError::RunDir(error) => error.into(),
            error @ InferenceError::System { .. } => Failure::at("inference", error),
            InferenceError::Workers(why) => Failure::at("workers", why),
        }
    }
}
