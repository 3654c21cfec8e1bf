//! `bellwether run --detach`: the same command in the background.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};
use crate::session::program;

/// Time between two looks whether it has begun.
const LOOK: Duration = Duration::from_millis(20);

/// Starts this command again without `--detach`, in a process group of its own, and waits until its run has begun.
pub(super) fn detach(
    state_dir: &StateDir,
    resumed: Option<&RunDir>,
    format: Format,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let log = match resumed {
        Some(run) => run.coordinator_log(),
        None => state_dir.make()?.join(format!(".detached-{}.log", std::process::id())),
    };
    let failed = |error: std::io::Error| Failure::at(log.display().to_string(), error);
    let begin = fs::metadata(&log).map_or(0, |file| file.len());
    let file = File::options().create(true).append(true).mode(0o600).open(&log).map_err(failed)?;
    let words = std::env::args_os().skip(1).filter(|word| word != "--detach");
    let mut command = Command::new(program()?);
    command.args(words).stdin(Stdio::null()).process_group(0);
    let mut child = command.stdout(file.try_clone().map_err(failed)?).stderr(file).spawn().map_err(failed)?;
    loop {
        let is_its = |run: &RunDir| run.endpoint().is_some_and(|endpoint| endpoint.process == child.id());
        if let Some(run) = resumed.cloned().into_iter().chain(state_dir.runs()).find(is_its) {
            if resumed.is_none() {
                fs::rename(&log, run.coordinator_log()).map_err(failed)?;
            }
            tell(&run, child.id(), format, printer);
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            // It did not begin, or is over already: it has said all itself.
            say(&log, begin, printer);
            if resumed.is_none() {
                let _ = fs::remove_file(&log);
            }
            return Ok(status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .map_or(ExitCode::from(1), ExitCode::from));
        }
        std::thread::sleep(LOOK);
    }
}

fn tell(run: &RunDir, process: u32, format: Format, printer: &Printer) {
    let name = &run.name;
    match format {
        Format::Json => {
            printer.out(serde_json::json!({ "run": name, "run_dir": run.path, "process": process }))
        }
        Format::Table => {
            printer.out(format_args!("{name} goes on in the background"));
            printer.note(format_args!(
                "`bellwether watch {name}` follows it, `bellwether logs -f {name}` too; `bellwether stop {name}` stops it"
            ));
        }
    }
}

fn say(log: &Path, begin: u64, printer: &Printer) {
    let text = fs::read(log).unwrap_or_default();
    let text = text.get(usize::try_from(begin).unwrap_or(0)..).unwrap_or_default();
    printer.note(String::from_utf8_lossy(text).trim_end());
}
