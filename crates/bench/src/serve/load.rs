//! A thousand submissions in ten seconds, and questions while jobs are queued.

use std::time::{Duration, Instant};

use bellwether_serve::snapshot::JobState;
use serde_json::Value;

use super::stage::{Stage, synthetic};
use crate::failure::Failure;
use crate::report::{Report, Row};
use crate::statistics::{median, quantile};

/// Clients that submit at the same time.
const CLIENTS: u64 = 4;

/// Seconds for all submissions.
const WITHIN_S: f64 = 10.0;

/// Time of an answer that 99 of 100 keep.
const BOUND_S: f64 = 0.05;

/// Jobs that are queued while questions are asked, and questions of each kind.
const QUEUED: u64 = 200;
const QUESTIONS: usize = 500;

pub(super) fn measure(report: &mut Report, submissions: u64) -> Result<(), Failure> {
    asked(report)?;
    let stage = Stage::start("srtf")?;
    let since = Instant::now();
    let answers: Result<Vec<Vec<f64>>, Failure> = std::thread::scope(|scope| {
        let client = |number| {
            scope.spawn({
                let stage = &stage;
                move || submit(stage, number, submissions, since)
            })
        };
        let threads: Vec<_> = (0..CLIENTS).map(client).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    let all_s = since.elapsed().as_secs_f64();
    let answers_s: Vec<f64> = answers?.concat();
    let there = stage.client.jobs()?.len() as f64;
    let row = Row::new("submissions")
        .with("count", submissions)
        .with("there_afterwards", there)
        .with("within_s", all_s)
        .with("median_s", median(&answers_s))
        .with("p99_s", quantile(&answers_s, 0.99));
    report.row(row);
    report.bar(
        "submissions accepted and there",
        there / submissions as f64,
        1.0,
        there == submissions as f64,
    );
    report.at_most("all submissions are answered within", "s", all_s, WITHIN_S + 1.0);
    Ok(())
}

/// One client's share of the submissions, each at its time.
fn submit(stage: &Stage, client: u64, submissions: u64, since: Instant) -> Result<Vec<f64>, Failure> {
    let mut answers_s = Vec::new();
    for number in (client..submissions).step_by(CLIENTS as usize) {
        let due = Duration::from_secs_f64(WITHIN_S * number as f64 / submissions as f64);
        std::thread::sleep(due.saturating_sub(since.elapsed()));
        let job = synthetic(number, 2000, 5.0)?;
        let asked = Instant::now();
        stage.submit(&format!("bench-{number}"), &job, "1")?;
        answers_s.push(asked.elapsed().as_secs_f64());
    }
    Ok(answers_s)
}

/// Questions while jobs are queued.
fn asked(report: &mut Report) -> Result<(), Failure> {
    let stage = Stage::start("srtf")?;
    for number in 0..QUEUED {
        stage.submit(&format!("bench-{number}"), &synthetic(number, 2000, 5.0)?, "1")?;
    }
    let mut worst_s = 0.0_f64;
    for (what, path) in
        [("list of 100", "/v1/jobs"), ("one job", "/v1/jobs/bench-7"), ("cluster", "/v1/cluster")]
    {
        let mut answers_s = Vec::new();
        for _ in 0..QUESTIONS {
            let asked = Instant::now();
            let _: Value = stage.client.get(path)?;
            answers_s.push(asked.elapsed().as_secs_f64());
        }
        worst_s = worst_s.max(quantile(&answers_s, 0.99));
        report.row(
            Row::new(format!("{QUEUED} queued, {what}"))
                .with("median_s", median(&answers_s))
                .with("p99_s", quantile(&answers_s, 0.99)),
        );
    }
    let mut answers_s = Vec::new();
    for number in 0..200 {
        let job = synthetic(number, 2000, 5.0)?;
        let asked = Instant::now();
        let _: JobState = stage.submit(&format!("more-{number}"), &job, "1")?;
        answers_s.push(asked.elapsed().as_secs_f64());
    }
    worst_s = worst_s.max(quantile(&answers_s, 0.99));
    report.row(
        Row::new(format!("{QUEUED} queued, submit"))
            .with("median_s", median(&answers_s))
            .with("p99_s", quantile(&answers_s, 0.99)),
    );
    report.at_most(format!("p99 of answers with {QUEUED} jobs queued"), "s", worst_s, BOUND_S);
    Ok(())
}
