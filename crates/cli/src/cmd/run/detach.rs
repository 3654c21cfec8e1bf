//! `bellwether run --detach`: the same command in the background.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use bellwether_session::process::Started;

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
    // The user's own words: what they asked for is for the other process to read.
    let words = std::env::args_os().skip(1).filter(|word| word != "--detach");
    let mut command = Command::new(program()?);
    let mut started = Started::logged(command.args(words).process_group(0), &log).map_err(failed)?;
    loop {
        let is_its = |run: &RunDir| started.leads(run);
        if let Some(run) = resumed.cloned().into_iter().chain(state_dir.runs()).find(is_its) {
            if resumed.is_none() {
                fs::rename(&log, run.coordinator_log()).map_err(failed)?;
            }
            tell(&run, started.id(), format, printer);
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(status) = started.exit().map_err(failed)? {
            // It did not begin, or is over already: it has said all itself.
            printer.note(started.said(u64::MAX).trim_end());
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
