//! A job's curves from what its run left behind, in bounded memory however many steps it has.

use std::collections::VecDeque;
use std::path::Path;

use bellwether_core::record::{Event, StepRecord};
use bellwether_runtime::journal;
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::RunDir;
use schemars::JsonSchema;
use serde::Serialize;

use crate::snapshot::{CurvePoint, EvaluationPoint};

/// A job's loss and speed over its steps.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Curve {
    /// Points of training, by step.
    pub(super) points: Vec<CurvePoint>,
    /// Points on held-out samples, by step.
    pub(super) evaluations: Vec<EvaluationPoint>,
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
    /// One update of batches of this many samples.
    fn of(line: &StepRecord, batch: u64, time_s: Option<f64>) -> Bucket {
        let loss = line.loss.filter(|loss| loss.is_finite());
        Bucket {
            step: line.step,
            time_s,
            records: 1,
            losses: u64::from(loss.is_some()),
            loss_sum: loss.unwrap_or(0.0),
            samples: batch as f64 * line.steps() as f64,
            duration_s: line.duration_s,
            workers: line.workers,
        }
    }

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

    /// At most `points` points.
    fn points(mut self, points: usize) -> Vec<CurvePoint> {
        if self.buckets.len() > points {
            self.halve();
        }
        self.buckets.iter().map(Bucket::point).collect()
    }
}

/// What the journal says of steps: when they were committed, and how the model did on held-out samples.
struct Journal {
    journal: journal::Tail,
    /// First and last step of each commit that is not used up, and when it was.
    ahead: VecDeque<(u64, u64, f64)>,
    /// The step that was asked for before.
    before: Option<u64>,
    evaluations: Evaluations,
}

impl Journal {
    /// When the step was committed. The journal is read no further than that.
    fn committed_s(&mut self, step: u64) -> Option<f64> {
        // Training went back: it was committed again later.
        if self.before.replace(step).is_some_and(|before| step <= before) {
            self.ahead.pop_front();
        }
        loop {
            while let Some((first, last, time_s)) = self.ahead.front() {
                if (*first..=*last).contains(&step) {
                    return Some(*time_s);
                }
                self.ahead.pop_front();
            }
            if !self.advance() {
                return None;
            }
        }
    }

    /// Reads a few lines more; whether there were any.
    fn advance(&mut self) -> bool {
        let lines = self.journal.read().unwrap_or_default();
        for line in &lines {
            match line.event {
                Event::Committed { first, last, .. } => self.ahead.push_back((first, last, line.time_s)),
                Event::Evaluated { step, loss, accuracy } => {
                    // Step 0 is evaluated before any training: the axis begins there too.
                    let (step, loss) = (step.saturating_sub(1), Some(loss).filter(|loss| loss.is_finite()));
                    let accuracy = accuracy.filter(|accuracy| accuracy.is_finite());
                    self.evaluations.push(EvaluationPoint { step, time_s: line.time_s, loss, accuracy });
                }
                _ => {}
            }
        }
        !lines.is_empty()
    }
}

/// Evaluations at about equal distances, at most twice as many as are wanted; the last one is always there.
struct Evaluations {
    kept: Vec<EvaluationPoint>,
    last: Option<EvaluationPoint>,
    most: usize,
    /// Every how many of them one is kept.
    each: u64,
    seen: u64,
}

impl Evaluations {
    fn new(points: usize) -> Evaluations {
        Evaluations { kept: Vec::new(), last: None, most: 2 * points.max(1), each: 1, seen: 0 }
    }

    fn push(&mut self, one: EvaluationPoint) {
        // Training went back: what came after does not count any more.
        while self.kept.last().is_some_and(|kept| kept.step >= one.step) {
            self.kept.pop();
        }
        if self.seen.is_multiple_of(self.each) {
            self.kept.push(one.clone());
        }
        self.seen += 1;
        self.last = Some(one);
        if self.kept.len() > self.most {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.kept = std::mem::take(&mut self.kept).into_iter().step_by(2).collect();
        self.each *= 2;
    }

    /// At most `points` points.
    fn points(mut self, points: usize) -> Vec<EvaluationPoint> {
        while self.kept.len() > points.max(1) {
            self.halve();
        }
        if let Some(last) = self.last.filter(|last| self.kept.last() != Some(last)) {
            if self.kept.len() >= points.max(1) {
                self.kept.pop();
            }
            self.kept.push(last);
        }
        self.kept
    }
}

/// The job's curves in at most `points` points each; none where it has not trained yet.
pub(super) fn read(folder: &Path, points: usize) -> Curve {
    let batch = RunDir::at(folder).job().map_or(0, |job| job.batch.size);
    let mut journal = Journal {
        journal: RunDir::at(folder).follow_journal(),
        ahead: VecDeque::new(),
        before: None,
        evaluations: Evaluations::new(points),
    };
    let mut thinned = Thinned::new(points);
    for line in metrics::read(folder) {
        let time_s = journal.committed_s(line.step);
        thinned.push(&Bucket::of(&line, batch, time_s));
    }
    // The last evaluation comes after the last step.
    while journal.advance() {
        journal.ahead.clear();
    }
    Curve { points: thinned.points(points), evaluations: journal.evaluations.points(points) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: f64) -> String {
        format!(
            "{{\"step\":{step},\"loss\":{loss},\"duration_s\":0.5,\"compute_s\":0.4,\"workers\":2,\"other\":[1,2]}}\n"
        )
    }

    fn both(metrics: &str, journal: &str, points: usize) -> Curve {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("metrics.jsonl"), metrics).unwrap();
        std::fs::write(folder.path().join("journal.jsonl"), journal).unwrap();
        read(folder.path(), points)
    }

    fn curve(metrics: &str, journal: &str, points: usize) -> Vec<CurvePoint> {
        both(metrics, journal, points).points
    }

    fn evaluated(time_s: u64, step: u64, loss: f64) -> String {
        format!(
            "{{\"time_s\":{time_s},\"event\":\"evaluated\",\"step\":{step},\"loss\":{loss},\"accuracy\":0.5}}\n"
        )
    }

    #[test]
    fn held_out_samples_have_a_curve_of_their_own() {
        let text = line(0, 3.0) + &line(1, 2.0);
        let journal = evaluated(5, 0, 4.0) + &commit(7, 0, 0) + &commit(9, 1, 1) + &evaluated(10, 2, 2.5);
        let seen = both(&text, &journal, 10).evaluations;
        let seen: Vec<_> = seen.iter().map(|point| (point.step, point.time_s, point.loss)).collect();
        assert_eq!(seen, [(0, 5.0, Some(4.0)), (1, 10.0, Some(2.5))]);
    }

    #[test]
    fn evaluations_are_few_and_the_last_one_is_among_them() {
        let journal: String = (1..=1000).map(|step| evaluated(step, step, 1.0)).collect();
        for points in [1, 7, 100] {
            let seen = both("", &journal, points).evaluations;
            assert!(seen.len() <= points && 2 * seen.len() >= points, "{points}: {}", seen.len());
            assert_eq!(seen.last().map(|point| point.step), Some(999));
            assert!(seen.windows(2).all(|pair| pair[0].step < pair[1].step));
        }
    }

    #[test]
    fn an_evaluation_that_was_rolled_back_is_gone() {
        let journal = evaluated(1, 4, 1.0)
            + "{\"time_s\":2,\"event\":\"rolled_back\",\"to\":2}\n"
            + &evaluated(3, 3, 2.0)
            + &evaluated(4, 4, 1.5);
        let seen = both("", &journal, 10).evaluations;
        assert_eq!(seen.iter().map(|point| point.loss).collect::<Vec<_>>(), [Some(2.0), Some(1.5)]);
    }

    fn commit(time_s: u32, first: u64, last: u64) -> String {
        format!("{{\"time_s\":{time_s},\"event\":\"committed\",\"first\":{first},\"last\":{last}}}\n")
    }

    #[test]
    fn every_step_of_a_short_run_is_a_point() {
        let text = line(0, 3.0) + &line(1, 2.0) + &line(2, 1.5) + "{\"step\":3,\"lo";
        let points = curve(&text, &(commit(7, 0, 0) + &commit(9, 1, 1)), 10);
        let seen: Vec<_> = points.iter().map(|point| (point.step, point.loss, point.time_s)).collect();
        assert_eq!(seen, [(0, Some(3.0), Some(7.0)), (1, Some(2.0), Some(9.0)), (2, Some(1.5), None)]);
    }

    #[test]
    fn a_long_run_is_put_together_and_keeps_its_mean() {
        let text: String = (0..1000).map(|step| line(step, step as f64)).collect();
        for points in [1, 7, 100] {
            let curve = curve(&text, "", points);
            assert!(curve.len() <= points && 2 * curve.len() >= points, "{points}: {}", curve.len());
            assert_eq!(curve.last().map(|point| point.step), Some(999));
            assert!(curve.windows(2).all(|pair| pair[0].step < pair[1].step && pair[0].loss < pair[1].loss));
        }
        assert_eq!(curve(&text, "", 1)[0].loss, Some(499.5));
    }

    #[test]
    fn what_was_rolled_back_is_gone() {
        let text: String =
            [0, 1, 2, 3, 2, 3].iter().zip(0..).map(|(step, at)| line(*step, f64::from(at))).collect();
        let journal =
            commit(1, 0, 3) + "{\"time_s\":2,\"event\":\"rolled_back\",\"to\":2}\n" + &commit(3, 2, 3);
        let points = curve(&text, &journal, 10);
        assert_eq!(points.iter().map(|point| point.loss).collect::<Vec<_>>(), [0.0, 1.0, 4.0, 5.0].map(Some));
        assert_eq!(
            points.iter().map(|point| point.time_s).collect::<Vec<_>>(),
            [1.0, 1.0, 3.0, 3.0].map(Some)
        );
    }
}
