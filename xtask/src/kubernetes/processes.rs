//! Processes of the bench: each is recorded in a file before its program begins, and only recorded ones are ended.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Records the shell in the file `$0`, then turns it into the program: there is no moment at which the program runs and
/// is not recorded, even if the bench is killed. The line of `/proc` holds the start time, which tells a process from a
/// later one of the same number.
const STARTER: &str = r#"cat "/proc/$$/stat" > "$0" && exec "$@""#;

/// How long a process may take to end by itself once it is told to.
const GRACE: Duration = Duration::from_secs(5);

/// How often a wait looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);

/// A process and when it started, in ticks since the machine did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    started: u64,
}

/// What a line of `/proc/PID/stat` says, as far as it is used here.
struct Stat {
    process: Process,
    parent: u32,
    has_ended: bool,
    /// Processor time of ended children, in ticks.
    of_children: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        Stat::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The program's name, in brackets, may hold blanks and brackets; the numbers follow the last bracket.
    fn read(line: &str) -> Option<Stat> {
        let (before, after) = (line.split_once(" (")?.0, line.rsplit_once(')')?.1);
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Stat {
            process: Process { pid: before.parse().ok()?, started: number(19)? },
            parent: fields.get(1)?.parse().ok()?,
            has_ended: matches!(fields.first(), Some(&("Z" | "X"))),
            of_children: number(13)? + number(14)?,
        })
    }
}

impl Process {
    fn recorded(file: &Path) -> Option<Process> {
        Some(Stat::read(&fs::read_to_string(file).ok()?)?.process)
    }

    fn is_alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.process == self && !stat.has_ended)
    }

    fn signal(self, signal: &str) {
        if self.is_alive() {
            let _ = Command::new("kill").args([signal, &self.pid.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// Where the process `name` of `folder` is recorded, and where it writes.
fn record(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.pid"))
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

/// Starts a process that goes on after the bench; what it writes goes to a file in `folder`.
pub(crate) fn start(folder: &Path, name: &str, program: &Path, arguments: &[String]) -> Result<()> {
    let file = fs::File::create(log(folder, name))
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    let record = record(folder, name);
    let _ = fs::remove_file(&record);
    let mut command = Command::new("sh");
    command.args(["-c", STARTER]).arg(&record).arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    // In a group of its own, a Ctrl-C at the terminal is not for it.
    let mut child = command.process_group(0).spawn().context("cannot start sh")?;
    while Process::recorded(&record).is_none() {
        if child.try_wait()?.is_some() {
            bail!("{name} does not start: {}", last_words(folder, name));
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Whether the process `name` of `folder` runs.
pub(crate) fn is_alive(folder: &Path, name: &str) -> bool {
    Process::recorded(&record(folder, name)).is_some_and(Process::is_alive)
}

/// The number of the process `name` of `folder`.
pub(crate) fn pid(folder: &Path, name: &str) -> Option<u32> {
    Process::recorded(&record(folder, name)).map(|process| process.pid)
}

/// The end of what it wrote.
pub(crate) fn last_words(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(log(folder, name)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Ends these processes of `folder`: asks all at once, and kills those that are still there after a while.
pub(crate) fn end(folder: &Path, names: &[&str]) {
    let known = names.iter().filter_map(|name| Process::recorded(&record(folder, name)));
    let processes: Vec<Process> = known.collect();
    for process in &processes {
        process.signal("-TERM");
    }
    if !wait_until(GRACE, || !processes.iter().any(|process| process.is_alive())) {
        for process in &processes {
            process.signal("-KILL");
        }
        wait_until(GRACE, || !processes.iter().any(|process| process.is_alive()));
    }
}

/// Ends all processes that are recorded in `folder`.
pub(crate) fn end_all(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".pid")?.to_owned()))
        .collect();
    end(folder, &names.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Kills all processes whose command line is so: of those that were not started here, which no file records.
pub(crate) fn kill_where(is_so: impl Fn(&[&str]) -> bool) {
    find(is_so).for_each(|process| process.signal("-KILL"));
}

/// How many processes have a command line that is so.
pub(crate) fn count_where(is_so: impl Fn(&[&str]) -> bool) -> usize {
    find(is_so).count()
}

fn find(is_so: impl Fn(&[&str]) -> bool) -> impl Iterator<Item = Process> {
    let processes = running().into_iter().map(|stat| stat.process);
    processes.filter(move |process| {
        let line = fs::read_to_string(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        is_so(&line.split('\0').collect::<Vec<_>>())
    })
}

/// Looks again and again until `is_so`; `false` when `patience` ends before.
pub(crate) fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    while !is_so() {
        if since.elapsed() > patience {
            return false;
        }
        sleep(PERIOD);
    }
    true
}

/// Runs a program to its end, or until `deadline`: then it is killed with all that it started.
pub(crate) fn within(command: &mut Command, deadline: Instant) -> Result<ExitStatus> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {name}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            for process in family(child.id()) {
                process.signal("-KILL");
            }
            child.wait()?;
            bail!("{name} took too long and was killed");
        }
        sleep(PERIOD);
    }
}

/// A process and its descendants, from the eldest on.
fn family(eldest: u32) -> Vec<Process> {
    let stats = running();
    let mut family: Vec<Process> =
        stats.iter().map(|stat| stat.process).filter(|process| process.pid == eldest).collect();
    let mut index = 0;
    while let Some(parent) = family.get(index).copied() {
        family.extend(stats.iter().filter(|stat| stat.parent == parent.pid).map(|stat| stat.process));
        index += 1;
    }
    family
}

/// All processes of this machine.
fn running() -> Vec<Stat> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers.filter_map(|entry| Stat::of(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// The processor time of all ended children of this process.
pub(crate) fn time_of_children() -> Duration {
    // Linux counts it in hundredths of a second.
    Duration::from_millis(10 * Stat::of(std::process::id()).map_or(0, |stat| stat.of_children))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_is_read_though_its_name_has_brackets() {
        let rest = "S 7 1 1 0 -1 0 0 0 0 0 1 2 30 40 20 0 1 0 12345 0";
        let stat = Stat::read(&format!("42 (a) (b c) {rest}")).unwrap();
        assert_eq!(stat.process, Process { pid: 42, started: 12345 });
        assert_eq!((stat.parent, stat.has_ended, stat.of_children), (7, false, 70));
    }

    #[test]
    fn a_process_is_recorded_and_ended_and_a_later_one_of_its_number_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("bellwether-processes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        start(&folder, "sleeper", Path::new("sleep"), &["60".to_owned()]).unwrap();
        assert!(is_alive(&folder, "sleeper"));
        let line = fs::read_to_string(record(&folder, "sleeper")).unwrap();
        let Process { pid, started } = Process::recorded(&record(&folder, "sleeper")).unwrap();
        let other = line.replace(&format!(" {started} "), &format!(" {} ", started - 1));
        fs::write(record(&folder, "other"), other).unwrap();
        end(&folder, &["other"]);
        assert!(Process { pid, started }.is_alive());
        end_all(&folder);
        assert!(!is_alive(&folder, "sleeper"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 61 & wait"]);
        let error = within(&mut command, Instant::now() + Duration::from_millis(300)).unwrap_err();
        assert!(error.to_string().contains("took too long"), "{error}");
    }
}
