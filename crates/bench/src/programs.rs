//! The programs that are measured: the command `bellwether`, and this program again as one process of a measurement.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bellwether_core::InputError;

use crate::failure::Failure;

/// The variable that names another `bellwether` than the one beside this program.
const VARIABLE: &str = "BELLWETHER";

/// The command `bellwether`, quiet.
pub(crate) fn bellwether() -> Result<Command, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    let path = match named {
        Some(path) => path,
        None => this()?.with_file_name("bellwether"),
    };
    if !path.is_file() {
        let hint =
            format!("build it with `cargo build --release`, or name another with the variable {VARIABLE}");
        let what = "there is no program to measure";
        return Err(InputError::new(path.display().to_string(), what).hint(hint).into());
    }
    Ok(quiet(&path))
}

/// This program as one process of a measurement, which `verb` names; quiet.
pub(crate) fn member(verb: &str) -> Result<Command, Failure> {
    let mut command = quiet(&this()?);
    command.arg(verb);
    Ok(command)
}

fn this() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::at("this program", e))
}

fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("BELLWETHER_NO_PROGRESS", "1").env("RAYON_NUM_THREADS", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
