//! The tests in Python: environments with a framework each, and the files of tests that run in them.

pub(crate) mod environment;
mod package;
mod suite;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::tree;
use environment::{Interpreter, Outcome};
pub(crate) use package::Before;
use suite::{Counts, File, Place, Task};

/// The environments by name; each has a list in `python/requirements`.
const ENVIRONMENTS: [&str; 3] = ["torch", "jax", "tensorflow"];

/// The environment of tests that need a GPU: a Python of the machine's own, whose PyTorch computes on one.
const GPU: &str = "gpu";

/// Which tests to run: all, or those of files and with names that contain a word.
#[derive(Default)]
pub(crate) struct Choice<'a> {
    /// A part of a file's name.
    pub(crate) file: Option<&'a str>,
    /// A part of a test's name.
    pub(crate) test: Option<&'a str>,
    /// Also those that take long, and those that need a GPU.
    pub(crate) all: bool,
    /// Only those that need a GPU.
    pub(crate) gpu: bool,
    /// What was compiled before: its artefacts are used again.
    pub(crate) before: Before,
    /// Further variables, as of a Slurm on which scripts may train.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

/// Runs the chosen tests, each file in the environments that it names, and prints how many passed. Where an
/// environment cannot be made, its tests are skipped.
pub(crate) fn run(choice: &Choice<'_>) -> Result<bool> {
    let root = tree::root()?;
    let target = tree::target()?;
    let known = [&ENVIRONMENTS[..], &[GPU]].concat();
    let mut files = suite::files(&root.join("python/tests"), &known)?;
    let is_asked_for = |file: &File| if file.wants(GPU) { choice.all || choice.gpu } else { !choice.gpu };
    files.retain(|file| choice.file.is_none_or(|part| file.name().contains(part)) && is_asked_for(file));
    if let (Some(part), true) = (choice.file, files.is_empty()) {
        bail!("no file in python/tests has `{part}` in its name");
    }
    if !package::build(&root, choice.before)? {
        return Ok(false);
    }
    let package = package::lay_out(&root, &target)?;
    let mut counts = Counts::default();
    let environments = environments(&root, &target, &files)?;
    let mut tasks = Vec::new();
    for (environment, outcome) in &environments {
        let files = files.iter().filter(|file| file.wants(environment));
        match outcome {
            Outcome::Ready(python) => tasks.extend(files.map(|file| Task { environment, python, file })),
            Outcome::Skipped(why) => {
                println!("SKIPPED: the tests in Python that need {environment}: {why}");
                counts.skip_files(files.count());
            }
        }
    }
    let place = Place {
        package: &package,
        command: &target.join("release/bellwether"),
        scratch: &target.join("python/scratch"),
        test: choice.test,
        all: choice.all || choice.gpu,
        variables: choice.variables.clone(),
    };
    counts.add(suite::run_all(&place, tasks)?);
    println!("{counts}");
    Ok(counts.failed == 0)
}

/// Variables with which a test in Rust trains a script of PyTorch's; none, after saying why, where it cannot.
pub(crate) fn torch_variables() -> Result<Vec<(&'static str, PathBuf)>> {
    let (root, target) = (tree::root()?, tree::target()?);
    match ready(&root, &target, environment::interpreter().as_ref(), "torch")? {
        Outcome::Ready(python) => {
            Ok(vec![("BELLWETHER_TEST_PYTHON", python), package_variable(&root, &target)?])
        }
        Outcome::Skipped(why) => {
            println!("SKIPPED: what trains a script of PyTorch's: {why}");
            Ok(Vec::new())
        }
    }
}

/// The variable by which Python finds the package, once that is built.
fn package_variable(root: &Path, target: &Path) -> Result<(&'static str, PathBuf)> {
    ensure!(package::build(root, Before::Nothing)?, "the package cannot be built");
    Ok(("PYTHONPATH", package::lay_out(root, target)?))
}

/// Variables with the Pythons by which tests in Rust run scripts as their users have them, and with the package for
/// those that use it; one that cannot be made is left out, after saying why.
pub(crate) fn script_variables() -> Result<Vec<(&'static str, PathBuf)>> {
    let (root, target) = (tree::root()?, tree::target()?);
    let interpreter = environment::interpreter();
    let mut variables = Vec::new();
    for (environment, variable) in
        [("torch", "BELLWETHER_TEST_TORCH_PYTHON"), ("tensorflow", "BELLWETHER_TEST_TENSORFLOW_PYTHON")]
    {
        match ready(&root, &target, interpreter.as_ref(), environment)? {
            Outcome::Ready(python) => variables.push((variable, python)),
            Outcome::Skipped(why) => println!("SKIPPED: scripts in Python that need {environment}: {why}"),
        }
    }
    if !variables.is_empty() {
        variables.push(package_variable(&root, &target)?);
    }
    Ok(variables)
}

/// The environments that these files want, made side by side where they are missing.
fn environments(root: &Path, target: &Path, files: &[File]) -> Result<Vec<(&'static str, Outcome)>> {
    let interpreter = environment::interpreter();
    let wanted =
        ENVIRONMENTS.into_iter().chain([GPU]).filter(|name| files.iter().any(|file| file.wants(name)));
    let interpreter = interpreter.as_ref();
    std::thread::scope(|scope| {
        let start = |name| (name, scope.spawn(move || ready(root, target, interpreter, name)));
        let started: Vec<_> = wanted.map(start).collect();
        let ended = started.into_iter().map(|(name, thread)| {
            let outcome = thread.join().expect("making an environment returns its errors");
            Ok((name, outcome?))
        });
        ended.collect()
    })
}

fn ready(
    root: &Path,
    target: &Path,
    interpreter: Result<&Interpreter, &String>,
    environment: &str,
) -> Result<Outcome> {
    if environment == GPU {
        return Ok(environment::with_gpu());
    }
    let list = root.join(format!("python/requirements/{environment}.txt"));
    match interpreter {
        Ok(interpreter) => environment::ready(interpreter, &list, &target.join("python").join(environment)),
        Err(why) => Ok(Outcome::Skipped(why.clone())),
    }
}
