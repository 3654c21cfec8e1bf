//! Brings the programs into a folder that containers of other images share: a user's image need not hold them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

/// The command that these programs start.
const COMMAND: &str = "bellwether";

/// The program that brings these programs into a folder.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The folder
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Copies this program, and the command beside it if there is one.
///
/// # Errors
///
/// What the file system says.
pub(super) fn run(arguments: &InstallArgs) -> Result<ExitCode> {
    let own = std::env::current_exe().context("this program cannot be found")?;
    fs::create_dir_all(&arguments.folder).with_context(|| arguments.folder.display().to_string())?;
    for program in [Some(own), beside()].into_iter().flatten() {
        copy(&program, &arguments.folder).with_context(|| program.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the command is: beside this program, or else on the path.
pub(super) fn command() -> OsString {
    beside().map_or_else(|| COMMAND.into(), PathBuf::into_os_string)
}

fn beside() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name(COMMAND);
    beside.is_file().then_some(beside)
}

/// Whole or not at all: a container that is begun again copies once more.
fn copy(program: &Path, folder: &Path) -> Result<()> {
    let name = program.file_name().context("it has no name")?;
    let (part, whole) = (folder.join("part"), folder.join(name));
    fs::copy(program, &part)?;
    fs::rename(part, whole)?;
    Ok(())
}
