//! `bellwether logs`: what happened in a job's run, and what its processes said.

use std::process::ExitCode;
use std::slice::from_ref;
use std::time::Duration;

use bellwether_client::{Event, Events};
use bellwether_runtime::run_dir::{COORDINATOR_LOG, RunLog, RunWord};
use bellwether_serve::snapshot::Phase;
use clap::Args;
use serde_json::{Value, json};

use super::args::JobArguments;
use super::connect::find_patiently;
use super::target::{Places, Target};
use super::words;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::RunDir;

/// Time before a stream that broke is opened again.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    #[command(flatten)]
    pub(crate) job: JobArguments,
    /// Go on until the job ends; exit code 1 when it failed or was cancelled
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Lines of the journal and of each log to begin with, the last ones
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) lines: u32,
}

/// How a stream was left.
enum Left {
    /// By its end: the job is in this state.
    Ended(Option<Phase>),
    /// The reader of our output hung up.
    Unread,
    /// It broke.
    Broken(String),
}

pub(crate) fn logs(arguments: &LogsArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.job.daemon.state.format;
    let places = Places::of(&arguments.job.daemon, from_ref(&arguments.job.job), printer)?;
    let asked = &arguments.job.job;
    let Some(daemon) = &places.daemon else {
        return by_hand(&places.run(asked)?, arguments, format, printer);
    };
    let (follow, lines) = (arguments.follow, arguments.lines);
    let error = match daemon.logs(asked, follow, lines) {
        Ok(events) => return served(asked, events, arguments, printer),
        Err(error) => error,
    };
    match places.without(error, asked, printer, |name| daemon.job(name))? {
        Target::ByHand(run) => by_hand(&run, arguments, format, printer),
        Target::Served(job) => {
            let events = daemon.logs(&job.name, follow, lines)?;
            served(&job.name, events, arguments, printer)
        }
    }
}

/// The same of a run whose files are read here.
fn by_hand(
    run: &RunDir,
    arguments: &LogsArguments,
    format: Format,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let mut log = RunLog::new(run.path.clone(), arguments.lines as usize);
    loop {
        // In this order: what was written before the end is still read.
        let goes_on = arguments.follow && run.is_alive().unwrap_or(false);
        while let Some(words) = log.look() {
            for event in words.into_iter().map(event) {
                let text = match format {
                    Format::Json => Some(value(&event)),
                    Format::Table => line(&event),
                };
                if text.is_some_and(|text| !printer.line(text)) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        if !goes_on {
            let failed = arguments.follow && crate::by_hand::has_failed(run);
            return Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS });
        }
        std::thread::sleep(PAUSE);
    }
}

/// As a daemon would tell it.
fn event(word: RunWord) -> Event {
    match word {
        RunWord::Journal(line) => {
            let data = json!({ "sentence": line.event.sentence(), "line": line });
            Event { name: "journal".into(), data }
        }
        RunWord::Log { file, line } => {
            Event { name: "log".into(), data: json!({ "file": file, "line": line }) }
        }
    }
}

/// The same of a daemon's job, also over a restart of the daemon.
fn served(
    job: &str,
    mut events: Events,
    arguments: &LogsArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let format = arguments.job.daemon.state.format;
    loop {
        match show(&mut events, format, printer) {
            Left::Ended(phase) if arguments.follow => {
                let finished = phase == Some(Phase::Finished);
                return Ok(if finished { ExitCode::SUCCESS } else { ExitCode::from(1) });
            }
            Left::Ended(_) | Left::Unread => return Ok(ExitCode::SUCCESS),
            Left::Broken(why) if !arguments.follow => {
                return Err(Failure::at(job, format!("the logs break off: {why}")));
            }
            Left::Broken(why) => {
                printer.note(format_args!(
                    "the connection broke ({why}); lines that come meanwhile are not shown"
                ));
                std::thread::sleep(PAUSE);
                events = find_patiently(&arguments.job.daemon, printer)?.logs(job, true, 0)?;
            }
        }
    }
}

fn show(events: &mut Events, format: Format, printer: &Printer) -> Left {
    loop {
        let event = match events.next() {
            Some(Ok(event)) => event,
            None => return Left::Broken("the daemon ended it".into()),
            Some(Err(error)) => return Left::Broken(error.to_string()),
        };
        let is_end = event.name == "end";
        let text = match format {
            Format::Json => Some(value(&event)),
            Format::Table => line(&event),
        };
        if text.is_some_and(|text| !printer.line(text)) {
            return Left::Unread;
        }
        if is_end {
            return Left::Ended(serde_json::from_value(event.data["state"].clone()).ok());
        }
    }
}

/// An event for programs.
fn value(event: &Event) -> String {
    json!({ "event": event.name, "data": event.data }).to_string()
}

/// An event in a line, if a person wants to see it.
fn line(event: &Event) -> Option<String> {
    let text = |value: &Value| value.as_str().map(String::from);
    match event.name.as_str() {
        "log" => {
            let (file, line) = (text(&event.data["file"])?, text(&event.data["line"])?);
            // How far it is and what happens at a step the journal tells, too, and when.
            let is_told = file == COORDINATOR_LOG && line.starts_with("step ");
            (!is_told).then(|| format!("{file}: {line}"))
        }
        "journal" => {
            let line = &event.data["line"];
            let when = words::clock(line["time_s"].as_f64()?);
            Some(format!("{when} {}", text(&event.data["sentence"]).or_else(|| plain(line))?))
        }
        "end" => match text(&event.data["why"]).filter(|why| !why.is_empty()) {
            Some(why) => Some(format!("{}: {why}", text(&event.data["state"])?)),
            None => None,
        },
        _ => None,
    }
}

/// An event without a sentence of its own: its name and its plain facts. Commits are too many.
fn plain(line: &Value) -> Option<String> {
    let event = line["event"].as_str().filter(|event| *event != "committed")?;
    let fact = |(key, value): (&String, &Value)| match value {
        Value::String(value) if key != "event" => Some(format!("{key} {value}")),
        Value::Number(value) if key != "time_s" => Some(format!("{key} {value}")),
        Value::Bool(value) => Some(format!("{key} {value}")),
        _ => None,
    };
    let facts: Vec<String> = line.as_object()?.iter().filter_map(fact).collect();
    Some(format!("{}: {}", event.replace('_', " "), facts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_lines() {
        let event = |name: &str, data: Value| Event { name: name.into(), data };
        let log = event("log", json!({ "file": "worker-1.log", "line": "hello" }));
        assert_eq!(line(&log).unwrap(), "worker-1.log: hello");
        let journal =
            json!({ "sentence": "step 3: all is well", "line": { "time_s": 3661.0, "event": "warning" } });
        assert_eq!(line(&event("journal", journal)).unwrap(), "01:01:01Z step 3: all is well");
        let plain = json!({ "sentence": null, "line": { "time_s": 0.0, "event": "membership", "epoch": 2, "workers": [1] } });
        assert_eq!(line(&event("journal", plain)).unwrap(), "00:00:00Z membership: epoch 2");
        let commit = json!({ "line": { "time_s": 0.0, "event": "committed", "first": 1, "last": 2 } });
        assert_eq!(line(&event("journal", commit)), None);
        assert_eq!(line(&event("end", json!({ "state": "finished", "why": "" }))), None);
        assert_eq!(line(&event("surprise", json!(1))), None);
    }
}
