//! How far a user's script is, and how fast: from what it prints to what the engine learns.
//!
//! The engine counts in steps of the job's batch, and learns from steps. A script tells one of three things now and
//! then: samples per second, samples in all so far, or its own steps. From two of them in a row follows the time of a
//! step. It is not known what of that is computing and what is exchange; the engine takes it for computing until it has
//! seen another number of workers.

use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_core::record::StepRecord;
use bellwether_serve::runner::Report;

use crate::exchange;

/// The shortest time over which samples are counted: what arrives is up to a second old.
const WINDOW_S: f64 = 2.0;

/// Windows of a set of pods that are left out: the script warms up.
const WARM_UP_WINDOWS: u32 = 1;

/// Steps that are told at once, and the most of one window.
const LESSON_STEPS: usize = 5;

/// How a script's job counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counting {
    /// Samples of a step, as the engine counts them.
    pub batch: u64,
    /// Virtual nodes of the batch: the most workers.
    pub virtual_nodes: u32,
    /// Steps of the whole job, as the engine counts them.
    pub total_steps: u64,
    /// Samples of a step of the script's own, where that is known.
    pub step_samples: Option<u64>,
}

/// What a set of pods has told.
#[derive(Debug)]
pub struct Pace {
    counting: Counting,
    workers: u32,
    /// Samples so far, and when that was, in seconds: what was heard last, and where the window began.
    last: Option<(f64, f64)>,
    window: Option<(f64, f64)>,
    windows: u32,
    rate: Option<f64>,
    steps: Vec<StepRecord>,
}

impl Pace {
    /// Of a set of this many workers that begins.
    pub fn new(counting: Counting, workers: u32) -> Pace {
        Pace { counting, workers, last: None, window: None, windows: 0, rate: None, steps: Vec::new() }
    }

    /// Takes in what the script printed at a time, in seconds; answers with what the engine is to know.
    pub fn take(&mut self, job: JobId, said: &exchange::Report, now_s: f64) -> Vec<Report> {
        let Counting { batch, total_steps, step_samples, .. } = self.counting;
        let told_rate = said.samples_per_second.filter(|rate| *rate > 0.0 && rate.is_finite());
        self.rate = told_rate.or(self.rate);
        let counted = said.samples.or_else(|| Some(said.step?.saturating_mul(step_samples?)));
        let samples = match (counted, self.last) {
            (Some(samples), _) => samples as f64,
            // Where only its speed is told, how far it is follows from that.
            (None, Some((before, last_s))) => before + self.rate.unwrap_or(0.0) * (now_s - last_s).max(0.0),
            (None, None) => 0.0,
        };
        self.last = Some((samples, now_s));
        let batch = batch.max(1) as f64;
        let step = ((samples / batch) as u64).min(total_steps.saturating_sub(1));
        let lesson = self.close_window(samples, now_s, told_rate);
        let (since, examples_per_s) = (Duration::ZERO, self.rate);
        let mut news = vec![Report::Progress { job, step, since, loss: said.loss, examples_per_s }];
        if let Some((rate, samples)) = lesson {
            self.learn(step, said.loss, batch / rate, (samples / batch) as usize);
        }
        if self.steps.len() >= LESSON_STEPS {
            let (workers, steps) = (self.workers, std::mem::take(&mut self.steps));
            news.push(Report::Steps { job, workers, speed: 1.0, steps, processor_wait: None });
        }
        news
    }

    /// Where a window ends that tells something: samples per second, and how many samples there were.
    fn close_window(&mut self, samples: f64, now_s: f64, told_rate: Option<f64>) -> Option<(f64, f64)> {
        let (begun, begun_s) = *self.window.get_or_insert((samples, now_s));
        let (grown, took_s) = (samples - begun, now_s - begun_s);
        if took_s < WINDOW_S && grown >= 0.0 {
            return None;
        }
        self.window = Some((samples, now_s));
        // A script that went back tells nothing.
        let rate = told_rate.or((grown > 0.0).then(|| grown / took_s))?;
        self.rate = Some(rate);
        self.windows = self.windows.saturating_add(1);
        (grown > 0.0 && self.windows > WARM_UP_WINDOWS).then_some((rate, grown))
    }

    fn learn(&mut self, step: u64, loss: Option<f64>, duration_s: f64, steps: usize) {
        // The busiest worker has this many virtual nodes, one after another.
        let most = self.counting.virtual_nodes.div_ceil(self.workers.max(1)).max(1);
        let nodes_s = vec![duration_s / f64::from(most); most as usize];
        let (workers, compute_s) = (self.workers, duration_s);
        let record =
            StepRecord { step, loss, duration_s, compute_s, nodes_s, workers, ..StepRecord::default() };
        self.steps.extend(std::iter::repeat_n(record, steps.clamp(1, LESSON_STEPS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTING: Counting =
        Counting { batch: 64, virtual_nodes: 4, total_steps: 100, step_samples: Some(32) };

    fn all(pace: &mut Pace, said: impl Fn(u32) -> exchange::Report) -> (Vec<u64>, Vec<StepRecord>) {
        let (mut progress, mut lessons) = (Vec::new(), Vec::new());
        for second in 0..10 {
            for news in pace.take(JobId(1), &said(second), f64::from(second)) {
                match news {
                    Report::Progress { step, .. } => progress.push(step),
                    Report::Steps { steps, workers: 2, .. } => lessons.extend(steps),
                    other => panic!("{other:?}"),
                }
            }
        }
        (progress, lessons)
    }

    #[test]
    fn steps_samples_and_speeds_tell_the_same() {
        let by_step =
            |second: u32| exchange::Report { step: Some(u64::from(second) * 8), ..Default::default() };
        let by_samples =
            |second: u32| exchange::Report { samples: Some(u64::from(second) * 256), ..Default::default() };
        let by_speed = |_: u32| exchange::Report { samples_per_second: Some(256.0), ..Default::default() };
        for (name, told) in [
            ("steps", all(&mut Pace::new(COUNTING, 2), by_step)),
            ("samples", all(&mut Pace::new(COUNTING, 2), by_samples)),
            ("speed", all(&mut Pace::new(COUNTING, 2), by_speed)),
        ] {
            let (progress, lessons) = told;
            assert_eq!(progress, (0..10).map(|second| second * 4).collect::<Vec<u64>>(), "{name}");
            assert!((5..=15).contains(&lessons.len()), "{name}: {}", lessons.len());
            for step in lessons {
                assert_eq!((step.duration_s, step.nodes_s.as_slice()), (0.25, &[0.125, 0.125][..]), "{name}");
            }
        }
    }

    #[test]
    fn a_script_that_goes_back_or_says_nothing_useful_teaches_nothing() {
        let back =
            |second: u32| exchange::Report { step: Some(u64::from(90 - second)), ..Default::default() };
        let (progress, lessons) = all(&mut Pace::new(COUNTING, 2), back);
        assert_eq!((progress[0], lessons.len()), (45, 0));
        let losses = |_| exchange::Report { loss: Some(0.5), ..Default::default() };
        assert_eq!(all(&mut Pace::new(COUNTING, 2), losses).1, []);
        // What is beyond the end is not the end.
        let beyond = |_| exchange::Report { step: Some(u64::MAX), ..Default::default() };
        assert_eq!(all(&mut Pace::new(COUNTING, 2), beyond).0[0], 99);
    }
}
