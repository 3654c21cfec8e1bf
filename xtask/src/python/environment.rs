//! Virtual environments with one framework each, made from the lists in `python/requirements` where they are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Names under which a Python may be found, after the one that [`VARIABLE`] names.
const NAMES: [&str; 5] = ["python3", "python3.13", "python3.12", "python3.11", "python"];

/// The variable that names a Python.
const VARIABLE: &str = "BELLWETHER_PYTHON";

/// Fails where Python is too old for the package or cannot make an environment; prints its version.
const PROBE: &str =
    "import ensurepip, sys, venv; assert sys.version_info >= (3, 11); print(sys.version.split()[0])";

/// Fails where PyTorch computes on no GPU; prints the GPU's name.
const GPU_PROBE: &str = "import torch; print(torch.cuda.get_device_name(), 'with torch', torch.__version__)";

/// The file in an environment that says what it was made from.
const STAMP: &str = "made-from.txt";

/// An environment, or why there is none.
pub(crate) enum Outcome {
    /// Its Python.
    Ready(PathBuf),
    /// What this machine lacks.
    Skipped(String),
}

/// A Python to make environments with.
pub(crate) struct Interpreter {
    /// Its name or path.
    pub(crate) program: String,
    version: String,
}

/// The first Python that will do, or what to do where there is none.
pub(crate) fn interpreter() -> std::result::Result<Interpreter, String> {
    let named = std::env::var(VARIABLE).ok();
    let names = NAMES.into_iter().map(str::to_owned);
    named.into_iter().chain(names).find_map(probed).ok_or_else(|| {
        format!(
            "no Python of version 3.11 or later with `venv` is on PATH; install one \
             (Debian and Ubuntu: `apt-get install python3-venv`), or name yours in the variable {VARIABLE}"
        )
    })
}

fn probed(program: String) -> Option<Interpreter> {
    let output = Command::new(&program).args(["-c", PROBE]).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| Interpreter { program, version: version.trim().to_owned() })
}

/// The Python of this machine, if its PyTorch computes on a GPU.
pub(crate) fn with_gpu() -> Outcome {
    let interpreter = match interpreter() {
        Ok(interpreter) => interpreter,
        Err(why) => return Outcome::Skipped(why),
    };
    let program = interpreter.program;
    let output = Command::new(&program).args(["-c", GPU_PROBE]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            println!("GPU: {}", String::from_utf8_lossy(&output.stdout).trim());
            Outcome::Ready(program.into())
        }
        output => {
            let said =
                output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).into_owned());
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
            let advice = format!("name a Python whose PyTorch computes on a GPU in the variable {VARIABLE}");
            Outcome::Skipped(format!("`{program}` finds no GPU ({last}); {advice}"))
        }
    }
}

/// The environment `folder` with the packages that the file `list` pins, made again unless it was made from just that.
/// A machine may lack a package for its Python, a network or room: then there is none, with the reason.
pub(crate) fn ready(interpreter: &Interpreter, list: &Path, folder: &Path) -> Result<Outcome> {
    let python = folder.join("bin/python");
    let pins = std::fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let source = format!("# Python {}\n{pins}", interpreter.version);
    if std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == source) && python.exists() {
        return Ok(Outcome::Ready(python));
    }
    println!("making {} from {}", folder.display(), list.display());
    if let Err(why) = made(interpreter, list, folder) {
        return Ok(Outcome::Skipped(why));
    }
    stand_in_for_cuda(list, folder)?;
    std::fs::write(folder.join(STAMP), source)
        .with_context(|| format!("cannot write {STAMP} in {}", folder.display()))?;
    Ok(Outcome::Ready(python))
}

/// Makes an environment from the start, and installs the packages of `list`.
pub(crate) fn made(interpreter: &Interpreter, list: &Path, folder: &Path) -> std::result::Result<(), String> {
    said(Command::new(&interpreter.program).args(["-m", "venv", "--clear"]).arg(folder))?;
    // The first import compiles what it needs; compiling all of it would take longer than unpacking.
    let options = [
        "--quiet",
        "--no-input",
        "--no-deps",
        "--no-compile",
        "--no-cache-dir",
        "--disable-pip-version-check",
    ];
    let mut install = Command::new(folder.join("bin/python"));
    said(install.args(["-m", "pip", "install"]).args(options).arg("--requirement").arg(list))
}

/// Runs a program; where it fails, the last line that it wrote of an error.
pub(crate) fn said(command: &mut Command) -> std::result::Result<(), String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start {shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().find(|line| line.to_lowercase().contains("error")).or_else(|| lines.next());
    Err(last.unwrap_or("it failed without a word").to_owned())
}

/// Gives PyTorch empty libraries in place of CUDA's, if this is its environment.
fn stand_in_for_cuda(list: &Path, folder: &Path) -> Result<()> {
    let libraries = std::fs::read_dir(folder.join("lib"))
        .with_context(|| format!("cannot list lib in {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/torch/lib")))
        .find(|path| path.is_dir());
    let Some(libraries) = libraries else { return Ok(()) };
    let generator = list.with_file_name("../tests/stub_cuda.py");
    let mut command = Command::new(folder.join("bin/python"));
    match said(command.arg(&generator).arg(&libraries)) {
        Ok(()) => Ok(()),
        Err(why) => bail!("{} failed: {why}", generator.display()),
    }
}
