//! `--compare`: how well the model foresees a measured trace, block by block.

use std::fmt::Write;

use bellwether_core::{InputError, ParseError};
use bellwether_model::gpu::{self, Device, RunScore, TRACE_HEADER, TracedRun};
use serde::Serialize;

use crate::options::TableFormat;
use crate::render::csv::{Csv, cell};
use crate::render::figure::percent;
use crate::render::{self, table::aligned};

/// What follows the last column of a trace in which times were measured too: of each block, in nanoseconds.
const TIMES: &str = ",start_ns,end_ns";

/// A run of a trace.
#[derive(Debug)]
pub(super) struct Run {
    traced: TracedRun,
    /// Blocks that ended before the last one began, where times were measured.
    ended_early: Option<usize>,
}

/// How the model did on a run.
#[derive(Debug, Serialize)]
pub(super) struct Score {
    /// As the trace calls the device.
    device: String,
    /// As we do.
    gpu: String,
    #[serde(flatten)]
    run: RunScore,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_early: Option<usize>,
}

/// Reads a trace with or without times; `place` names the file in errors.
pub(super) fn read(text: &str, place: &str) -> Result<Vec<Run>, InputError> {
    let header = text.lines().next().unwrap_or_default().trim();
    let (plain, mut times) = match header.strip_suffix(TIMES) {
        Some(TRACE_HEADER) => without_times(text, place)?,
        _ => (text.to_string(), Vec::new()),
    };
    let traced = gpu::read_trace(&plain, place)?;
    if traced.is_empty() {
        return Err(InputError::new(place, "the trace has no launch").hint("each row is one"));
    }
    let timed = !times.is_empty();
    let mut runs = Vec::new();
    for traced in traced {
        let rest = if timed { times.split_off(traced.launches.len()) } else { Vec::new() };
        let of_run: Vec<(u64, u64)> = std::mem::replace(&mut times, rest).into_iter().flatten().collect();
        let last_ns = of_run.iter().map(|(start_ns, _)| *start_ns).max().unwrap_or(0);
        let ended_early = timed.then(|| of_run.iter().filter(|(_, end_ns)| *end_ns < last_ns).count());
        runs.push(Run { traced, ended_early });
    }
    Ok(runs)
}

/// Start and end of each block of a row, in nanoseconds.
type Times = Vec<(u64, u64)>;

/// A trace without its two last columns, and what is in them, row by row.
fn without_times(text: &str, place: &str) -> Result<(String, Vec<Times>), InputError> {
    let mut plain = String::from(TRACE_HEADER);
    let mut times = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        plain.push('\n');
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("{place}, line {}", number + 1);
        let mut fields = line.rsplitn(3, ',');
        let (Some(ends), Some(starts), Some(rest)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(InputError::new(place, "it has no times").hint("end it with start_ns,end_ns"));
        };
        let (starts, ends) = (nanoseconds(starts, &place)?, nanoseconds(ends, &place)?);
        let blocks = rest.rsplit(',').next().unwrap_or_default().split_whitespace().count();
        let backwards = starts.iter().zip(&ends).any(|(start, end)| end < start);
        if starts.len() != blocks || ends.len() != blocks || backwards {
            let what = format!("{} starts and {} ends of {blocks} blocks", starts.len(), ends.len());
            return Err(
                InputError::new(place, what).hint("give each block a start, and an end not before it")
            );
        }
        times.push(starts.into_iter().zip(ends).collect());
        plain.push_str(rest);
    }
    Ok((plain, times))
}

fn nanoseconds(text: &str, place: &str) -> Result<Vec<u64>, InputError> {
    let number =
        |word: &str| word.parse().map_err(|_| ParseError::new("time", word, "whole nanoseconds").at(place));
    text.split_whitespace().map(number).collect()
}

/// Scores the model of `name`, or of the device that each run names.
pub(super) fn score(runs: &[Run], devices: &[Device], name: Option<&str>) -> Result<Vec<Score>, InputError> {
    let mut scores = Vec::new();
    for Run { traced, ended_early } in runs {
        let device = gpu::find(devices, name.unwrap_or(&traced.device)).map_err(|e| match name {
            Some(_) => InputError { place: "--gpu".into(), ..e },
            None => InputError { place: format!("the trace's device, run {}", traced.run), ..e },
        })?;
        scores.extend(gpu::compare(std::slice::from_ref(traced), device)?.into_iter().map(|run| Score {
            device: traced.device.clone(),
            gpu: device.name.clone(),
            run,
            ended_early: *ended_early,
        }));
    }
    Ok(scores)
}

pub(super) fn render(scores: &[Score], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(scores),
        TableFormat::Json => render::json(&scores),
        TableFormat::Csv => csv(scores),
    }
}

fn table(scores: &[Score]) -> String {
    let head = ["run", "test", "kernel", "blocks", "exact", "counts per SM", "first difference"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for Score { run, .. } in scores {
        for launch in &run.launches {
            let first = launch.first_wrong.map(|wrong| {
                format!("block {} was on SM {}, not {}", wrong.block, wrong.measured, wrong.modelled)
            });
            rows.push(vec![
                run.run.clone(),
                run.test.clone(),
                launch.kernel.clone(),
                launch.blocks.to_string(),
                percent(launch.exact as f64 / launch.blocks as f64),
                if launch.counts_equal { "as measured" } else { "differ" }.to_string(),
                first.unwrap_or_default(),
            ]);
        }
    }
    let mut text = aligned(&rows);
    text.push('\n');
    for of_device in scores.chunk_by(|a, b| a.device == b.device) {
        text.push_str(&summary(of_device));
    }
    text.trim_end().to_string()
}

/// One device in a sentence or two.
fn summary(scores: &[Score]) -> String {
    let count = |is: fn(&RunScore) -> bool| scores.iter().filter(|score| is(&score.run)).count();
    let launches = || scores.iter().flat_map(|score| &score.run.launches);
    let exact: usize = launches().map(|launch| launch.exact).sum();
    let blocks: usize = launches().map(|launch| launch.blocks).sum();
    let (runs, first) = (scores.len(), &scores[0]);
    let mut text = format!(
        "{} as {}: {} of {runs} runs exact in every block, {exact} of {blocks} blocks ({}); the number of blocks on \
         every SM as measured in {} of {runs} runs\n",
        first.device,
        first.gpu,
        count(RunScore::is_exact),
        percent(exact as f64 / blocks as f64),
        count(RunScore::counts_equal),
    );
    let early: Vec<&str> = scores
        .iter()
        .filter(|score| score.ended_early.is_some_and(|blocks| blocks > 0))
        .map(|score| score.run.run.as_str())
        .collect();
    if !early.is_empty() {
        let _ = writeln!(
            text,
            "no fair comparison, because blocks ended before the last one began: run {}; measure again with longer blocks \
             or fewer",
            early.join(", ")
        );
    }
    text
}

fn csv(scores: &[Score]) -> String {
    let mut csv = Csv::new([
        "device",
        "gpu",
        "run",
        "test",
        "kernel",
        "blocks",
        "exact",
        "counts_equal",
        "first_wrong_block",
        "measured",
        "modelled",
        "ended_early",
    ]);
    for Score { device, gpu, run, ended_early } in scores {
        for launch in &run.launches {
            let wrong = launch.first_wrong;
            csv.row(&[
                device,
                gpu,
                &run.run,
                &run.test,
                &launch.kernel,
                &launch.blocks,
                &launch.exact,
                &launch.counts_equal,
                &cell(wrong.map(|wrong| wrong.block)),
                &cell(wrong.map(|wrong| wrong.measured)),
                &cell(wrong.map(|wrong| wrong.modelled)),
                &cell(*ended_early),
            ]);
        }
    }
    csv.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(rows: &str) -> Result<Vec<Run>, InputError> {
        read(&format!("{TRACE_HEADER}{TIMES}\n{rows}"), "t.csv")
    }

    #[test]
    fn times_tell_which_runs_are_fair() {
        let runs =
            timed("V100,1,t,a,2,32,32,0,0 2,5 6,90 91\nV100,1,t,b,1,32,32,0,4,95,99\n\nV100,2,t,a,1,32,32,0,0,1,2\n")
                .unwrap();
        let early: Vec<Option<usize>> = runs.iter().map(|run| run.ended_early).collect();
        assert_eq!(early, [Some(2), Some(0)]);
        assert_eq!(runs[0].traced.launches[1].multiprocessors, [4]);
    }

    #[test]
    fn bad_times_are_refused_with_their_line() {
        for row in [
            "V100,1,t,a,2,32,32,0,0 2,5 6,90",
            "V100,1,t,a,2,32,32,0,0 2,5 6,90 1",
            "V100,1,t,a,2,32,32,0,0 2,5 6,90 x",
            "V100",
        ] {
            let error = timed(row).unwrap_err();
            assert_eq!(error.place, "t.csv, line 2", "{error}");
        }
    }
}
