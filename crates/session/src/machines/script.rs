//! What a machine runs: a script that starts its workers, each of which finds its coordinator.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_runtime::private;
use bellwether_runtime::run_dir::{RunDir, Ticket};

use crate::program::Program;
use crate::slurm::quoted;

/// The variable in which a machine that does not see the run's folder finds its token.
const TOKEN_VARIABLE: &str = "BELLWETHER_TOKEN";

/// Writes scripts for the machines of one run.
pub(super) struct Scripts {
    pub(super) run: RunDir,
    pub(super) program: Program,
    /// Whether machines see the run's folder.
    pub(super) shares_files: bool,
}

/// A worker with the address of its coordinator.
pub(super) type Worker = (u64, SocketAddr);

impl Scripts {
    /// The script of a machine with these workers, and the variables that hold its secrets. Where machines see the
    /// run's folder, tickets are written there.
    pub(super) fn write(
        &self,
        number: u64,
        setup: &str,
        workers: &[Worker],
    ) -> io::Result<(String, BTreeMap<String, String>)> {
        let mut script = String::from("#!/bin/sh\n");
        if !setup.is_empty() {
            script.push_str(setup.trim_end());
            script.push('\n');
        }
        let mut secrets = BTreeMap::new();
        if !self.shares_files {
            let token = std::fs::read_to_string(self.run.token_file())?;
            secrets.insert(TOKEN_VARIABLE.to_owned(), token.trim().to_owned());
            let _ = writeln!(
                script,
                "token=$(mktemp) && printf %s \"${TOKEN_VARIABLE}\" > \"$token\" && unset {TOKEN_VARIABLE} || exit 1"
            );
        }
        for (name, value) in self.program.environment() {
            let (name, value) = (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
            let _ = writeln!(script, "export {name}={}", quoted(&value));
        }
        if self.shares_files {
            self.tell(number, workers)?;
        }
        let lines: Vec<String> =
            workers.iter().zip(0..).map(|(worker, seat)| self.worker(number, seat, worker)).collect();
        match &lines[..] {
            [line] => {
                let _ = writeln!(script, "exec {line}");
            }
            lines => together(&mut script, lines),
        }
        Ok((script, secrets))
    }

    /// Writes the tickets of a machine: where the coordinator of its workers is, and who they are.
    pub(super) fn tell(&self, number: u64, workers: &[Worker]) -> io::Result<()> {
        private::folder(&self.run.tickets())?;
        for ((worker, join), seat) in workers.iter().zip(0..) {
            Ticket { join: join.to_string(), number: *worker }.write(&self.ticket(number, seat))?;
        }
        Ok(())
    }

    /// The command line of one worker.
    fn worker(&self, number: u64, seat: u32, (worker, join): &Worker) -> String {
        if !self.shares_files {
            let words = self.program.remote_words(join, *worker);
            let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
            return words.join(" ").replace(&quoted("$token"), "\"$token\"");
        }
        let ticket = self.ticket(number, seat);
        let words = self.program.ticket_words("worker", &self.run, &ticket, *worker);
        let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let log = self.run.worker_log_file(*worker);
        let log = std::path::absolute(&log).unwrap_or(log);
        format!("{} 2>>{}", words.join(" "), quoted(&log.display().to_string()))
    }

    fn ticket(&self, number: u64, seat: u32) -> PathBuf {
        self.run.tickets().join(format!("machine-{number}-{seat}.json"))
    }
}

/// Several workers of one machine: each has a device of its own, a signal goes to all, and the machine ends with the
/// last.
fn together(script: &mut String, lines: &[String]) {
    script.push_str("trap 'kill -TERM $all 2>/dev/null' TERM\nall=\n");
    for (device, line) in lines.iter().enumerate() {
        let _ = writeln!(script, "CUDA_VISIBLE_DEVICES={device} {line} &\nall=\"$all $!\"");
    }
    script.push_str("for one in $all; do while kill -0 $one 2>/dev/null; do wait $one; done; done\n");
}
