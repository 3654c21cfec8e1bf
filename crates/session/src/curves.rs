//! What a run learned, step by step: its curves, and TensorBoard's files of them.

use std::io;

use bellwether_core::record::{Event, StepRecord};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::RunDir;

pub mod tensorboard;

/// A training step, or several that one update covered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingPoint {
    /// Steps done with it.
    pub step: u64,
    /// Seconds since the Unix epoch: when the run began, and all that was trained before. Waiting is left out.
    pub time_s: f64,
    /// Mean loss of its samples; absent where it is not a number.
    pub loss: Option<f64>,
    /// Samples per second; absent before the size of a step is known.
    pub examples_per_s: Option<f64>,
    /// Workers that computed it.
    pub workers: u32,
    /// Seconds in which its gradients waited for their samples.
    pub data_wait_s: f64,
}

/// A look at the held-out samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvaluationPoint {
    /// Steps done before it.
    pub step: u64,
    /// Seconds since the Unix epoch.
    pub time_s: f64,
    /// Mean loss.
    pub loss: f64,
    /// Right predictions as a share, 0…1; absent where it does not apply.
    pub accuracy: Option<f64>,
}

/// The curves of one run, each by rising steps: what was taken back and done again is there once, as it was last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves {
    /// Of training.
    pub training: Vec<TrainingPoint>,
    /// Of held-out samples.
    pub evaluations: Vec<EvaluationPoint>,
}

impl Curves {
    /// Reads them from the folder of a run, which may go on meanwhile.
    ///
    /// # Errors
    ///
    /// A journal that cannot be read; a run that never began has none.
    pub fn read(run: &RunDir) -> io::Result<Curves> {
        let mut curves = Curves::default();
        let (mut begin_s, mut batch) = (None, None);
        for line in run.journal()?.lines() {
            let line = line?;
            let time_s = line.time_s;
            begin_s = begin_s.or(Some(time_s));
            match line.event {
                Event::TaskKnown { batch: samples, .. } => batch = Some(samples as f64),
                Event::Evaluated { step, loss, accuracy } => {
                    back_to(&mut curves.evaluations, step, |point| point.step);
                    curves.evaluations.push(EvaluationPoint { step, time_s, loss, accuracy });
                }
                _ => {}
            }
        }
        let mut time_s = begin_s.unwrap_or(0.0);
        for record in metrics::read(&run.path) {
            let (step, duration_s) = (record.step + record.steps(), record.duration_s);
            time_s += duration_s;
            let samples = batch.map(|batch| batch * record.steps() as f64);
            let examples_per_s = samples.map(|samples| samples / duration_s).filter(|rate| rate.is_finite());
            back_to(&mut curves.training, step, |point| point.step);
            let StepRecord { loss, workers, data_wait_s, .. } = record;
            let point = TrainingPoint { step, time_s, loss, examples_per_s, workers, data_wait_s };
            curves.training.push(point);
        }
        Ok(curves)
    }
}

/// Takes out the points at `step` and after it.
fn back_to<Point>(points: &mut Vec<Point>, step: u64, of: impl Fn(&Point) -> u64) {
    let keep = points.partition_point(|point| of(point) < step);
    points.truncate(keep);
}
