//! Files of tests in Python: which environments each wants, and how its tests end.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// How the first line of a file of tests begins; the names of its environments follow.
const HEADER: &str = "# Environments: ";

/// A file of tests.
pub(crate) struct File {
    path: PathBuf,
    environments: Vec<String>,
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
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    pub(crate) failed: u64,
    skipped: u64,
}

impl Counts {
    /// Counts the tests of one more file.
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
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
            Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped: number("skipped")? })
        };
        counts().unwrap_or(Counts { passed: 0, failed: 1, skipped: 0 })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "python: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
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
            files.push(File { path, environments });
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

/// What tests run in.
pub(crate) struct Place<'a> {
    /// The environment's name.
    pub(crate) environment: &'a str,
    /// Its Python.
    pub(crate) python: &'a Path,
    /// Where the package `bellwether` is found.
    pub(crate) package: &'a Path,
    /// The command `bellwether`.
    pub(crate) command: &'a Path,
    /// A folder for what the tests leave, made empty for each file.
    pub(crate) scratch: &'a Path,
    /// Whether tests that take long run too.
    pub(crate) all: bool,
}

/// Runs the tests of one file whose names contain `name`.
pub(crate) fn run(place: &Place<'_>, file: &File, name: Option<&str>) -> Result<Counts> {
    let shown = file.name();
    println!("-- {shown} in {}", place.environment);
    let report = place.scratch.join("counts.json");
    if place.scratch.exists() {
        std::fs::remove_dir_all(place.scratch)
            .with_context(|| format!("cannot remove {}", place.scratch.display()))?;
    }
    std::fs::create_dir_all(place.scratch)
        .with_context(|| format!("cannot make {}", place.scratch.display()))?;
    let start = Instant::now();
    let mut command = Command::new(place.python);
    command.arg(file.path.with_file_name("run.py")).arg(&file.path).arg(&report).args(name);
    let status = command
        .env("PYTHONPATH", place.package)
        // Compiled sources are kept, because a framework has thousands of files, and stay out of the tree.
        .env_remove("PYTHONDONTWRITEBYTECODE")
        .env("PYTHONPYCACHEPREFIX", place.scratch.with_file_name("pycache"))
        .env("BELLWETHER_COMMAND", place.command)
        .env("BELLWETHER_STATE_DIR", place.scratch.join("state"))
        // Keras takes its back end from a variable; those that have no Keras do not read it.
        .env("KERAS_BACKEND", place.environment)
        .env("TF_CPP_MIN_LOG_LEVEL", "2")
        .envs(place.all.then_some(("BELLWETHER_TEST_ALL", "1")))
        .status()
        .with_context(|| format!("cannot start {}", place.python.display()))?;
    let counts = Counts::read(&report);
    let end = if status.success() { "passed" } else { "FAILED" };
    println!("-- {shown} in {}: {end} after {:.1} s", place.environment, start.elapsed().as_secs_f64());
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
        assert_eq!(counts.to_string(), "python: 0 passed, 1 failed, 0 skipped");
    }
}
