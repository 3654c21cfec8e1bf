//! A job's curves from its `metrics.jsonl`, in bounded memory however many steps it has.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use bellwether_core::job::Job;
use serde::Deserialize;

use crate::snapshot::CurvePoint;

/// Most bytes of a line; what is longer is no line of ours.
const LINE_BYTES: u64 = 1 << 20;

/// What is read of a line.
#[derive(Debug, Deserialize)]
struct Step {
    step: u64,
    loss: Option<f64>,
    duration_s: f64,
    #[serde(default)]
    workers: u32,
    #[serde(default = "one")]
    accumulation: u32,
    #[serde(default)]
    time_s: Option<f64>,
}

fn one() -> u32 {
    1
}

/// Steps that one point stands for.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// The last of them.
    step: u64,
    time_s: Option<f64>,
    /// Records in it.
    records: u64,
    losses: u64,
    loss_sum: f64,
    samples: f64,
    duration_s: f64,
    workers: u32,
}

impl Bucket {
    fn add(&mut self, other: &Bucket) {
        self.step = other.step;
        self.time_s = other.time_s.or(self.time_s);
        self.records += other.records;
        self.losses += other.losses;
        self.loss_sum += other.loss_sum;
        self.samples += other.samples;
        self.duration_s += other.duration_s;
        self.workers = other.workers;
    }

    fn point(&self) -> CurvePoint {
        let speed = self.samples / self.duration_s;
        CurvePoint {
            step: self.step,
            time_s: self.time_s,
            loss: (self.losses > 0).then(|| self.loss_sum / self.losses as f64),
            examples_per_s: if speed.is_finite() { speed } else { 0.0 },
            workers: self.workers,
        }
    }
}

/// Buckets of equally many records each, at most twice as many as are wanted.
#[derive(Debug)]
struct Thinned {
    buckets: Vec<Bucket>,
    most: usize,
    /// Records of a full bucket.
    each: u64,
}

impl Thinned {
    fn new(points: usize) -> Thinned {
        Thinned { buckets: Vec::new(), most: 2 * points.max(1), each: 1 }
    }

    fn push(&mut self, one: &Bucket) {
        // Training went back: what came after does not count any more.
        while self.buckets.last().is_some_and(|last| last.step >= one.step) {
            self.buckets.pop();
        }
        match self.buckets.last_mut().filter(|last| last.records < self.each) {
            Some(last) => last.add(one),
            None => self.buckets.push(*one),
        }
        if self.buckets.len() > self.most {
            self.halve();
            self.each *= 2;
        }
    }

    /// Puts pairs of neighbours together.
    fn halve(&mut self) {
        let pairs = self.buckets.chunks(2).map(|pair| {
            let mut both = pair[0];
            pair[1..].iter().for_each(|second| both.add(second));
            both
        });
        self.buckets = pairs.collect();
    }
}

/// The job's curves in at most `points` points; none where it has not trained yet.
pub(super) fn read(folder: &Path, points: usize) -> Vec<CurvePoint> {
    let Ok(file) = File::open(folder.join("metrics.jsonl")) else { return Vec::new() };
    let job = std::fs::read(folder.join("job.json")).ok();
    let job: Option<Job> = job.and_then(|text| serde_json::from_slice(&text).ok());
    let batch = job.map_or(0, |job| job.batch.size);
    thin(BufReader::new(file), batch, points)
}

/// The curves in lines of steps of `batch` samples each.
fn thin(mut lines: impl BufRead, batch: u64, points: usize) -> Vec<CurvePoint> {
    let mut thinned = Thinned::new(points);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(bytes) if bytes > 0 => {}
            _ => break,
        }
        let Ok(step) = serde_json::from_slice::<Step>(&line) else { continue };
        let loss = step.loss.filter(|loss| loss.is_finite());
        thinned.push(&Bucket {
            step: step.step,
            time_s: step.time_s,
            records: 1,
            losses: loss.map_or(0, |_| 1),
            loss_sum: loss.unwrap_or(0.0),
            samples: batch as f64 * f64::from(step.accumulation),
            duration_s: step.duration_s,
            workers: step.workers,
        });
    }
    if thinned.buckets.len() > points {
        thinned.halve();
    }
    thinned.buckets.iter().map(Bucket::point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: f64) -> String {
        format!("{{\"step\":{step},\"loss\":{loss},\"duration_s\":0.5,\"workers\":2,\"other\":[1,2]}}\n")
    }

    #[test]
    fn every_step_of_a_short_run_is_a_point() {
        let text = line(0, 3.0) + &line(1, 2.0) + "{\"step\":2,\"lo";
        let points = thin(text.as_bytes(), 64, 10);
        let expected = |step, loss| CurvePoint {
            step,
            time_s: None,
            loss: Some(loss),
            examples_per_s: 128.0,
            workers: 2,
        };
        assert_eq!(points, [expected(0, 3.0), expected(1, 2.0)]);
    }

    #[test]
    fn a_long_run_is_put_together_and_keeps_its_mean() {
        let text: String = (0..1000).map(|step| line(step, step as f64)).collect();
        for points in [1, 7, 100] {
            let curve = thin(text.as_bytes(), 64, points);
            assert!(curve.len() <= points && 2 * curve.len() >= points, "{points}: {}", curve.len());
            assert_eq!(curve.last().map(|point| point.step), Some(999));
            assert!(curve.windows(2).all(|pair| pair[0].step < pair[1].step && pair[0].loss < pair[1].loss));
        }
        assert_eq!(thin(text.as_bytes(), 64, 1)[0].loss, Some(499.5));
    }

    #[test]
    fn what_was_rolled_back_is_gone() {
        let text: String =
            [0, 1, 2, 3, 2, 3].iter().zip(0..).map(|(step, at)| line(*step, f64::from(at))).collect();
        let losses: Vec<_> = thin(text.as_bytes(), 64, 10).iter().map(|point| point.loss).collect();
        assert_eq!(losses, [Some(0.0), Some(1.0), Some(4.0), Some(5.0)]);
    }
}
