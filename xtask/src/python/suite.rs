//! Files of tests in Python: which environments each wants, and how its tests end.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// How the first line of a file of tests begins; the names of its environments follow.
const HEADER: &str = "# Environments: ";

/// The second line of a file that measures times: nothing may run beside it.
const ALONE: &str = "# Alone";

/// The second line of a file that takes long: it begins before others, and does not run last while a core idles.
const LONG: &str = "# Long";

/// Files that run side by side. A training waits for processes to start, and one file's tests use one core at times.
const SIDE_BY_SIDE: usize = 2;

/// A file of tests.
pub(crate) struct File {
    path: PathBuf,
    environments: Vec<String>,
    is_alone: bool,
    is_long: bool,
}

impl File {
    /// Its name, without the folder.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        self.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Whether its tests run in this environment.
    pub(crate) fn wants(&self, environment: &str) -> bool {
        self.environments.iter().any(|name| name == environment)
    }
}

/// How tests ended.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Counts {
    passed: u64,
    pub(crate) failed: u64,
    skipped: u64,
    /// Processor time of the tests and of all that they started and waited for.
    processor_s: f64,
}

impl Counts {
    /// Counts the tests of one more file.
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.processor_s += other.processor_s;
    }

    /// Counts files that did not run: how many tests they hold only Python can tell.
    pub(crate) fn skip_files(&mut self, files: usize) {
        self.skipped += files as u64;
    }

    /// What `run.py` has written, or one failed test where it ended without.
    fn read(report: &Path) -> Counts {
        let counts = || {
            let text = std::fs::read_to_string(report).ok()?;
            let value: serde_json::Value = serde_json::from_str(&text).ok()?;
            let number = |key: &str| value.get(key)?.as_u64();
            let [passed, failed, skipped] = [number("passed")?, number("failed")?, number("skipped")?];
            Some(Counts { passed, failed, skipped, processor_s: value.get("processor_s")?.as_f64()? })
        };
        counts().unwrap_or(Counts { failed: 1, ..Counts::default() })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { passed, failed, skipped, processor_s } = self;
        write!(formatter, "python: {passed} passed, {failed} failed, {skipped} skipped ")?;
        write!(formatter, "({processor_s:.0} s of processor time)")
    }
}

/// The files of tests in `folder`, sorted by name; `known` are the environments that a file may name.
pub(crate) fn files(folder: &Path, known: &[&str]) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("test_") && name.ends_with(".py") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let environments = environments(&text, known).with_context(|| path.display().to_string())?;
            let second = text.lines().nth(1);
            let (is_alone, is_long) = (second == Some(ALONE), second == Some(LONG));
            files.push(File { path, environments, is_alone, is_long });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// The environments that a file names in its first line.
fn environments(text: &str, known: &[&str]) -> Result<Vec<String>> {
    let first = text.lines().next().unwrap_or_default();
    let names = first.strip_prefix(HEADER).map(|names| names.split(", ").map(str::to_owned));
    let names: Vec<String> = names.into_iter().flatten().collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None if !names.is_empty() => Ok(names),
        None => bail!("the first line must be `{HEADER}` and one or more of {}", known.join(", ")),
        Some(name) => bail!("there is no environment `{name}`; there are {}", known.join(", ")),
    }
}

/// What all tests run with.
pub(crate) struct Place<'a> {
    /// Where the package `bellwether` is found.
    pub(crate) package: &'a Path,
    /// The command `bellwether`.
    pub(crate) command: &'a Path,
    /// A folder for what the tests leave: a folder for each file in each environment, made empty before it runs.
    pub(crate) scratch: &'a Path,
    /// Runs the tests whose names contain this only.
    pub(crate) test: Option<&'a str>,
    /// Whether tests that take long run too.
    pub(crate) all: bool,
    /// Further variables.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

/// A file of tests in one of its environments.
pub(crate) struct Task<'a> {
    /// The environment's name.
    pub(crate) environment: &'a str,
    /// The environment's Python.
    pub(crate) python: &'a Path,
    /// The tests.
    pub(crate) file: &'a File,
}

/// Runs all files, side by side but those that measure times. What a file writes is shown when it has ended, unless
/// it is the only one.
pub(crate) fn run_all(place: &Place<'_>, tasks: Vec<Task<'_>>) -> Result<Counts> {
    let is_only = tasks.len() == 1;
    let (alone, mut others): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|task| task.file.is_alone);
    others.sort_by_key(|task| !task.file.is_long);
    let mut counts = Counts::default();
    for task in &alone {
        counts.add(run(place, task, is_only)?);
    }
    let waiting = Mutex::new(VecDeque::from(others));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut counts = Counts::default();
        while let Some(task) = next() {
            counts.add(run(place, &task, is_only)?);
        }
        Ok(counts)
    };
    std::thread::scope(|scope| {
        let started = [(); SIDE_BY_SIDE].map(|()| scope.spawn(work));
        for thread in started {
            let of_one: Result<Counts> = thread.join().expect("running a file returns its errors");
            counts.add(of_one?);
        }
        Ok(counts)
    })
}

/// Runs the tests of one file; `is_only` lets it write to the terminal as it goes.
fn run(place: &Place<'_>, task: &Task<'_>, is_only: bool) -> Result<Counts> {
    let title = format!("{} in {}", task.file.name(), task.environment);
    let scratch = place.scratch.join(task.environment).join(task.file.path.file_stem().unwrap_or_default());
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    }
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let (report, output) = (scratch.join("counts.json"), scratch.join("output.txt"));
    let start = Instant::now();
    let mut command = Command::new(task.python);
    command.arg(task.file.path.with_file_name("run.py")).arg(&task.file.path).arg(&report).args(place.test);
    if !is_only {
        let file = OpenOptions::new().create(true).append(true).open(&output);
        let file = file.with_context(|| format!("cannot write {}", output.display()))?;
        let both = file.try_clone().with_context(|| format!("cannot write {}", output.display()))?;
        command.stdout(Stdio::from(file)).stderr(Stdio::from(both));
    }
    let status = command
        .env("PYTHONPATH", place.package)
        // Compiled sources are kept, because a framework has thousands of files, and stay out of the tree.
        .env_remove("PYTHONDONTWRITEBYTECODE")
        .env("PYTHONPYCACHEPREFIX", place.scratch.with_file_name("pycache"))
        .env("BELLWETHER_COMMAND", place.command)
        .env("BELLWETHER_STATE_DIR", scratch.join("state"))
        // Keras takes its back end from a variable; those that have no Keras do not read it.
        .env("KERAS_BACKEND", task.environment)
        .env("TF_CPP_MIN_LOG_LEVEL", "2")
        .envs(place.all.then_some(("BELLWETHER_TEST_ALL", "1")))
        .envs(place.variables.iter().cloned())
        .status()
        .with_context(|| format!("cannot start {}", task.python.display()))?;
    let counts = Counts::read(&report);
    let end = if status.success() { "passed" } else { "FAILED" };
    let (took_s, processor_s) = (start.elapsed().as_secs_f64(), counts.processor_s);
    // What it wrote is for people to read, whatever its encoding.
    let said = std::fs::read(&output).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    write!(out, "-- {title}\n{}", String::from_utf8_lossy(&said))
        .and_then(|()| {
            writeln!(out, "-- {title}: {end} after {took_s:.1} s, {processor_s:.1} s of processor time")
        })
        .context("cannot write to the standard output")?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 2] = ["torch", "jax"];

    #[test]
    fn a_file_names_its_environments_in_its_first_line() {
        assert_eq!(environments("# Environments: jax, torch\n", &KNOWN).unwrap(), ["jax", "torch"]);
        let error = |text| environments(text, &KNOWN).unwrap_err().to_string();
        assert_eq!(
            error("import torch\n"),
            "the first line must be `# Environments: ` and one or more of torch, jax"
        );
        assert_eq!(error("# Environments: torhc\n"), "there is no environment `torhc`; there are torch, jax");
    }

    #[test]
    fn a_file_that_ends_without_a_count_has_failed() {
        let counts = Counts::read(Path::new("no such file"));
        assert_eq!(counts.to_string(), "python: 0 passed, 1 failed, 0 skipped (0 s of processor time)");
    }
}
