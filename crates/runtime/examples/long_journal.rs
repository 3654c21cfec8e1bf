//! What `jobs`, `audit` and `run --resume` take where a run's journal is long: seconds, and the most memory at a time.
//!
//! `cargo run --release -p bellwether-runtime --example long_journal -- target/release/bellwether [LINES]`; ten million
//! lines unless another number is given, about 1 GiB in a temporary folder.
//!
//! `docs/design.md` has the figures. Two journals are written. In the first every line commits a step, which is the
//! longest proof for `audit`. In the second a step is committed and taken back again and again, so that the run can be
//! taken up with all its steps to do, twice: without a resume point and with the one that the first coordinator left.

#![allow(clippy::print_stdout, reason = "a measurement is printed")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, Line};
use bellwether_runtime::journal::RunHistory;
use bellwether_runtime::run_dir::{RunDir, StateDir};

const JOB: &str = "name = \"long\"\nseed = 1\nsteps = 20\nworkers = 1\n\
    [model]\nkind = \"synthetic\"\nstep_time = \"1ms\"\nparameters = \"4KiB\"\n\
    [data]\nkind = \"indices\"\nsamples = 1000000\n\
    [batch]\nsize = 4\nvirtual_nodes = 4\n\
    [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.001\n";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().expect("the path of bellwether is the first argument");
    let lines = arguments.next().map_or(10_000_000, |text| text.parse().expect("a number of lines"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state_dir = StateDir::find(Some(folder.path().into())).expect("a folder was named");
    let call = |what: &str, words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).arg("--state-dir").arg(folder.path());
        let (seconds, peak_bytes) = measure(&mut command);
        println!("{what:<44} {seconds:>8.2} s {:>8.1} MiB", peak_bytes as f64 / f64::from(1 << 20));
    };
    let job = bellwether_core::parse::job(JOB, "the job", &[]).expect("a job");

    let run = state_dir.create(&job, false).expect("a folder");
    write(&run, lines, |step| Event::Committed { first: step, last: step, accumulation: 1 });
    println!("{lines} lines of {} bytes", file_bytes(&run.journal_file()) / lines);
    let began = Instant::now();
    let history: RunHistory = run.history().expect("a journal");
    println!("{:<44} {:>8.2} s", "reading it, in this process", began.elapsed().as_secs_f64());
    assert_eq!(history.committed(), lines);
    call("jobs", &["jobs"]);
    call("audit", &["audit", &run.name]);
    std::fs::remove_dir_all(&run.path).expect("it can be removed");

    let run = state_dir.create(&job, false).expect("a folder");
    write(&run, lines, |line| match line % 2 {
        0 => Event::Committed { first: 0, last: 0, accumulation: 1 },
        _ => Event::RolledBack { to: 0 },
    });
    for what in ["run --resume, the whole journal", "run --resume, from a resume point"] {
        call(what, &["run", "--resume", &run.name, "--format", "json"]);
        // Its result is nowhere then, and it has all steps to do again.
        std::fs::remove_dir_all(run.checkpoints()).expect("checkpoints");
    }
    call("jobs, from a resume point", &["jobs"]);
    call("audit", &["audit", &run.name]);
}

fn write(run: &RunDir, lines: u64, event: impl Fn(u64) -> Event) {
    let mut file = BufWriter::new(File::create(run.journal_file()).expect("a file"));
    let mut put = |line: &Line| {
        serde_json::to_writer(&mut file, line).expect("a line");
        file.write_all(b"\n").expect("room on the disk");
    };
    let known = Event::TaskKnown {
        // As the workers of this job say it; with another one the run is not resumed.
        fingerprint: "synthetic; 1024 parameters; 1000000 samples".into(),
        training_samples: 1_000_000,
        held_out_samples: 0,
        parameters: 1024,
        total_steps: 20,
        batch: 4,
        virtual_nodes: 4,
    };
    put(&Line { time_s: 1.7e9, event: known });
    for line in 0..lines {
        put(&Line { time_s: 1.7e9 + line as f64 / 1000.0, event: event(line) });
    }
    file.flush().expect("room on the disk");
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |data| data.len())
}

/// Seconds until the process ends, and the most bytes that it held in memory, as it was seen every few milliseconds.
fn measure(command: &mut Command) -> (f64, u64) {
    let began = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_bytes = 0;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak_bytes = peak_bytes.max(peak.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| 1024 * kib));
        if let Some(ended) = child.try_wait().expect("a child") {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let seconds = began.elapsed().as_secs_f64();
    let said = std::io::read_to_string(child.stderr.take().expect("it is piped")).unwrap_or_default();
    assert!(ended.success(), "{ended}: {said}");
    (seconds, peak_bytes)
}
