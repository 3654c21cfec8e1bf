//! Follows what a script prints: it is passed on unchanged, and what it says of the script's speed is reported.

use std::io::{self, Read, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};

use crate::exchange::{Client, Report};
use crate::pod::say;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// Bytes of a line that are looked at.
const LINE_BYTES: usize = 16 << 10;

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Finds in a line how fast a script is.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// With at least one of the groups `samples_per_second`, `step`, `samples` and `loss`.
    ///
    /// # Errors
    ///
    /// A text that is not a pattern, or has none of them.
    pub(super) fn new(text: &str) -> Result<Pattern> {
        let built = crate::crd::pattern(text);
        let regex = built.with_context(|| format!("--pattern: `{text}` is not a regular expression"))?;
        let known = ["samples_per_second", "step", "samples", "loss"];
        if !regex.capture_names().flatten().any(|name| known.contains(&name)) {
            bail!(
                "--pattern: `{text}` has no group with a name that is known: (?<samples_per_second>…) or (?<step>…)"
            );
        }
        Ok(Pattern(regex))
    }

    /// What a line says.
    fn find(&self, line: &str) -> Option<Report> {
        let found = self.0.captures(line)?;
        let report = Report {
            step: count(&found, "step"),
            samples: count(&found, "samples"),
            samples_per_second: number(&found, "samples_per_second"),
            loss: number(&found, "loss"),
        };
        report.makes_sense().then_some(report)
    }
}

/// A number as people write it, perhaps with marks between thousands.
fn number(found: &Captures<'_>, name: &str) -> Option<f64> {
    found.name(name)?.as_str().trim().replace(['_', ','], "").parse().ok()
}

fn count(found: &Captures<'_>, name: &str) -> Option<u64> {
    let count = number(found, name)?;
    (0.0..1e15).contains(&count).then_some(count as u64)
}

/// Passes on what a process prints, and reports what it says of its speed. What is returned ends when all of it was
/// passed on.
///
/// # Errors
///
/// If the system gives no threads.
pub(super) fn follow(child: &mut Child, pattern: Pattern, client: Arc<Client>) -> io::Result<Receiver<()>> {
    let (found, reports) = channel();
    let (passing, passed) = channel();
    for (stream, output) in [
        (child.stdout.take().map(boxed), to_output as fn(&[u8]) -> io::Result<()>),
        (child.stderr.take().map(boxed), to_errors),
    ] {
        let Some(stream) = stream else { continue };
        let lines = Lines { pattern: pattern.clone(), found: found.clone(), line: Vec::new() };
        let passing = passing.clone();
        std::thread::Builder::new().name("output".into()).spawn(move || {
            pass(stream, output, lines);
            drop(passing);
        })?;
    }
    std::thread::Builder::new().name("reports".into()).spawn(move || report(&client, &reports))?;
    Ok(passed)
}

fn boxed(stream: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(stream)
}

fn to_output(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

fn to_errors(bytes: &[u8]) -> io::Result<()> {
    io::stderr().lock().write_all(bytes)
}

fn pass(mut stream: impl Read, output: fn(&[u8]) -> io::Result<()>, mut lines: Lines) {
    let mut bytes = [0; READ_BYTES];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return lines.end(),
            Ok(read) => {
                // Where it cannot be passed on it has no reader; the script goes on.
                let _ = output(&bytes[..read]);
                lines.take(&bytes[..read]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Cuts what is printed into lines, and looks at each.
struct Lines {
    pattern: Pattern,
    found: Sender<Report>,
    line: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        // A bar that shows progress goes back to the beginning of its line.
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if matches!(part.last(), Some(b'\n' | b'\r')) {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        let line = self.line.trim_ascii_end();
        let found = self.pattern.find(&String::from_utf8_lossy(line));
        self.line.clear();
        if let Some(report) = found {
            // The thread that reports lives as long as this one.
            let _ = self.found.send(report);
        }
    }
}

/// Reports the last that was found, not too often.
fn report(client: &Client, reports: &Receiver<Report>) {
    let mut has_complained = false;
    while let Ok(mut last) = reports.recv() {
        if let Err(error) = client.report(&last)
            && !std::mem::replace(&mut has_complained, true)
        {
            say(format_args!("the script's speed cannot be reported: {error}"));
        }
        let until = Instant::now() + PERIOD;
        let mut is_old = true;
        while let Ok(report) = reports.recv_timeout(until.saturating_duration_since(Instant::now())) {
            (last, is_old) = (report, false);
        }
        // Failures are passing: the next report says more than this one.
        if !is_old {
            let _ = client.report(&last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_what_it_finds() {
        let pattern = Pattern::new(r"step (?<step>\d+).* (?<samples_per_second>[\d.,]+) samples/s").unwrap();
        let report = pattern.find("epoch 1 step 12 loss 0.3, 1,234.5 samples/s").unwrap();
        assert_eq!((report.step, report.samples_per_second), (Some(12), Some(1234.5)));
        assert_eq!(pattern.find("step x"), None);
        let loss = Pattern::new(r"loss=(?<loss>\S+)").unwrap();
        assert_eq!(loss.find("loss=nan"), None);
        assert_eq!(loss.find("loss=-1e-3").unwrap().loss, Some(-1e-3));
        for wrong in ["(", r"(\d+)", r"(?<speed>\d+)", r"(?<step>\d{1000}{1000})"] {
            assert!(Pattern::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_are_found_however_they_arrive() {
        let (found, reports) = channel();
        let pattern = Pattern::new(r"^at (?<step>\d+)$").unwrap();
        let mut lines = Lines { pattern, found, line: Vec::new() };
        for part in ["at 1\nat", " 2\rat 3", "\n\n", "x at 4\n", "\u{fffd}\n", "at 5"] {
            lines.take(part.as_bytes());
        }
        lines.take(&vec![b'x'; 10 * LINE_BYTES]);
        lines.take(b"\nat 6");
        lines.end();
        drop(lines);
        let steps: Vec<u64> = reports.iter().filter_map(|report| report.step).collect();
        assert_eq!(steps, [1, 2, 3, 6]);
    }
}
