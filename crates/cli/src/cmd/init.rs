//! `bellwether init`: a job file to begin with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_workloads::{inspect, template};
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    /// The job file to write; `-` for standard output
    #[arg(value_name = "FILE", default_value = "job.toml")]
    pub(crate) file: PathBuf,
    /// A CSV file to train on: its columns, its labels and its separator are looked up
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) data: Option<PathBuf>,
    /// Name of the job [default: as the data, or `first`]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

pub(crate) fn init(arguments: &InitArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let file = &arguments.file;
    let is_stream = file.as_os_str() == "-";
    let place = file.display().to_string();
    if !is_stream {
        files::check_folder(file)?;
        if file.exists() && !arguments.force {
            let error = InputError::new(&place, "is there already");
            return Err(error.hint("name another file, or pass --force to replace it").into());
        }
    }
    let name = |of: &str| arguments.name.clone().unwrap_or_else(|| template::name(of));
    let text = match &arguments.data {
        None => template::digits(&name("first")),
        Some(data) => {
            let at = data.display().to_string();
            let bytes = files::read_data(data).map_err(|error| Failure::at(&at, error))?;
            let table = inspect(&at, bytes)?;
            for obstacle in &table.obstacles {
                printer.note(format_args!("warning: {at}: {obstacle}"));
            }
            let stem = data.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let stem = stem.split('.').next().unwrap_or_default();
            template::table(&name(stem), &reached(data, file)?, &table)
        }
    };
    if is_stream {
        printer.out(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    files::write_whole(file, text.as_bytes())?;
    printer.note(format_args!("{place} is written; `bellwether run {place}` trains it"));
    Ok(ExitCode::SUCCESS)
}

/// The data as the job file names them: relative paths begin at the job file's folder.
fn reached(data: &Path, file: &Path) -> Result<String, Failure> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| Failure::at(path.display().to_string(), error))
    };
    let (data, file) = (absolute(data)?, absolute(file)?);
    let folder = file.parent().unwrap_or(Path::new("/"));
    let path = data.strip_prefix(folder).unwrap_or(&data);
    Ok(path.display().to_string())
}
