//! Job files and scripts, read and made known.

use std::path::{Path, PathBuf};

use bellwether_core::declared::{merge, script_of};
use bellwether_core::job::{CheckedJob, Job, Model};
use bellwether_core::plan::Plan;
use bellwether_core::{InputError, parse};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::run_dir::RunDir;
use bellwether_session::kind;
use bellwether_session::script::{Lead, Output, Script, Trained};
use clap::Args;

use crate::failure::Failure;
use crate::session;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ScriptArguments {
    /// The interpreter that runs a Python script [default: the one beside this command, of the environment, or python3]
    #[arg(long, value_name = "PYTHON")]
    pub(crate) python: Option<PathBuf>,
    /// Arguments of a Python script, after `--`
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub(crate) arguments: Vec<String>,
}

/// What a script is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To say what its job is.
    Declare,
    /// The same, with the weights that it begins from.
    Measure,
    /// To lead a run.
    Lead(Output),
}

/// A job, and what its script said of it where one trains it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) job: CheckedJob,
    pub(crate) trained: Option<Trained>,
    /// It keeps the initial weights.
    pub(crate) lead: Option<Lead>,
}

/// Reads a job file or the job of a run's folder, or lets a script declare its job, with other values for some keys.
pub(crate) fn open(
    path: &Path,
    script: &ScriptArguments,
    overrides: &[(String, String)],
    purpose: Purpose,
) -> Result<Opened, Failure> {
    let place = path.display().to_string();
    let is_script = path.extension().is_some_and(|extension| extension == "py");
    let of_run = RunDir::open(path).map(|run| run.job()).transpose()?;
    let text = match &of_run {
        _ if is_script => String::new(),
        Some(job) => parse::to_text(job),
        None => text(path)?,
    };
    // Workers have other working directories, and a run is taken up from anywhere.
    let folder = std::path::absolute(path).map_err(|e| Failure::at(&place, e))?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    let found = if is_script {
        Some(Script::new(path, script.arguments.clone(), script.python.as_deref())?)
    } else if let Some(job) = &of_run {
        Script::of(job)?
    } else {
        named(&text, folder, script)?
    };
    let resolved = |job: CheckedJob| -> Result<CheckedJob, InputError> {
        job.edit(|job| job.paths_mut().into_iter().for_each(|p| *p = folder.join(&*p)))
    };
    let Some(found) = found else {
        let job = resolved(parse::job(&text, &place, overrides)?)?;
        return Ok(Opened { job, trained: None, lead: None });
    };
    let (lead, declaration) = match purpose {
        Purpose::Declare => Lead::declare(&found, false)?,
        Purpose::Measure => Lead::declare(&found, true)?,
        Purpose::Lead(output) => Lead::start(&found, output)?,
    };
    let text = merge(&text, &place, &declaration.job, &found.name())?;
    let job = resolved(parse::job(&text, &place, overrides)?)?;
    Ok(Opened { job, trained: Some(Trained::new(declaration)), lead: Some(lead) })
}

fn text(path: &Path) -> Result<String, Failure> {
    Ok(std::fs::read_to_string(path).map_err(|e| {
        InputError::new(path.display().to_string(), format!("the job file cannot be read: {e}"))
            .hint("`bellwether run JOB.toml` takes the path of a job file; examples/ has some")
    })?)
}

/// The script that a job file names.
fn named(text: &str, folder: &Path, asked: &ScriptArguments) -> Result<Option<Script>, InputError> {
    let Some(table) = script_of(text) else { return Ok(None) };
    let python = asked.python.clone().or(table.python).map(|python| match python.components().count() {
        1 => python,
        _ => folder.join(python),
    });
    let found = Script::new(&folder.join(table.script), table.arguments, python.as_deref())?;
    Ok(Some(found.variables(table.environment)))
}

/// Reads a job for Kubernetes, with the text of the script that its pods get. The paths of a job file are those of its
/// pods, so they stay as they are, and are refused there where they are relative. A script declares its job here.
pub(crate) fn for_pods(
    path: &Path,
    script: &ScriptArguments,
    overrides: &[(String, String)],
) -> Result<(CheckedJob, Option<String>), Failure> {
    let is_script = path.extension().is_some_and(|extension| extension == "py");
    if !is_script {
        let text = text(path)?;
        if script_of(&text).is_none() {
            return Ok((parse::job(&text, &path.display().to_string(), overrides)?, None));
        }
    }
    let set =
        |key: &str| overrides.iter().find(|(name, _)| name == key).map(|(_, value)| value.trim_matches('"'));
    if let Some(path) = set("model.script").filter(|path| !path.starts_with('/')) {
        let error = InputError::new(
            "--set model.script",
            format!("`{path}` is relative, and pods have no such folder"),
        );
        return Err(error.hint("write the path that the script has in the image, or leave it out").into());
    }
    let Opened { job, trained, .. } = open(path, script, overrides, Purpose::Declare)?;
    // The script that declared the job, wherever its pods find theirs.
    let here = trained.map_or_else(|| path.to_owned(), |trained| trained.declaration().script().path);
    let sent =
        std::fs::read_to_string(&here).map_err(|error| Failure::at(here.display().to_string(), error))?;
    let job = job.edit(|job| {
        let Model::Python { source, python, environment, .. } = &mut job.model else { return };
        *source = kind::source_digest(sent.as_bytes());
        // What is here is not there: pods find an interpreter and its modules in their image.
        if set("model.python").is_none() {
            *python = None;
        }
        environment.remove("PYTHONPATH");
    })?;
    Ok((job, set("model.script").is_none().then_some(sent)))
}

/// The job of a script that has started this program.
pub(crate) fn led_by((from, to): (u32, u32), overrides: &[(String, String)]) -> Result<Opened, Failure> {
    let (lead, declaration) = Lead::of_pipes(from, to)?;
    let script = declaration.script().name();
    let text = merge("", &script, &declaration.job, &script)?;
    let job = parse::job(&text, &script, overrides)?;
    Ok(Opened { job, trained: Some(Trained::new(declaration)), lead: Some(lead) })
}

/// The job of a run that is taken up again; its script, if it has one, must still declare the same.
pub(crate) fn stored(run: &RunDir, output: Output) -> Result<Opened, Failure> {
    let located = |error: InputError| InputError { place: format!("{}: {}", run.name, error.place), ..error };
    let job = run.job()?.check().map_err(located)?;
    let Some(script) = Script::of(&job).map_err(located)? else {
        return Ok(Opened { job, trained: None, lead: None });
    };
    let (lead, declaration) = Lead::start(&script, output)?;
    let text = parse::to_text(&job);
    merge(&text, &run.name, &declaration.job, &script.name())?;
    Ok(Opened { job, trained: Some(Trained::new(declaration)), lead: Some(lead) })
}

impl Opened {
    /// What is trained, as far as it is known here. A built-in one is built, so that bad data are refused before
    /// anything is started.
    pub(crate) fn describe(&self) -> Result<WorkloadDescription, InputError> {
        let workload = session::build_of(self.trained.as_ref())(&self.job)?;
        Ok(WorkloadDescription::of(workload.as_ref()))
    }

    /// The same with another job, which an option has changed.
    pub(crate) fn edit(self, change: impl FnOnce(&mut Job)) -> Result<Opened, InputError> {
        Ok(Opened { job: self.job.edit(change)?, ..self })
    }

    /// The file of the weights that training begins from, where a script gave them.
    pub(crate) fn initial_weights(&self) -> Option<PathBuf> {
        self.trained.as_ref().and_then(Trained::initial_weights)
    }
}

/// Reads a plan.
pub(crate) fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the plan cannot be read: {e}"))
            .hint("`bellwether plan PROFILE.json --catalog PRICES.toml --format json` makes one")
    })?;
    Ok(Plan::read(&text, &place)?)
}
