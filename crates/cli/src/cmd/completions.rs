//! `bellwether completions` and `bellwether man`: what shells and manuals know of the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// The folder to write the pages to
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Prints a script that lets a shell complete the arguments of `command`.
pub(crate) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
    printer: &Printer,
) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "bellwether", &mut script);
    printer.out(String::from_utf8_lossy(&script).trim_end());
    ExitCode::SUCCESS
}

/// Writes a page of the manual for the command and for each of its verbs.
pub(crate) fn man(arguments: &ManArguments, command: Command) -> Result<ExitCode, Failure> {
    let folder: &Path = &arguments.folder;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .map_err(|error| Failure::at(folder.display().to_string(), error))?;
    Ok(ExitCode::SUCCESS)
}
