//! A trainee that computes as if its device were slower, to try what unequal workers do to a run.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bellwether_core::units::Seconds;
use bellwether_runtime::trainee::{Evaluation, Layout, Loss, MicroBatch, Trainee, TraineeError, Weights};

/// The longest pause after one micro-batch: a mistyped speed must not look like a hang for ever.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// How fast a worker computes, relative to what it could: `0.5`, or `0.5@20s` for one that turns slow after 20 s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Above 0; above 1 is meant relative to other workers.
    pub speed: f64,
    /// Since when, counted from the worker's first gradient; a speed from the start on is known to those who share out
    /// the work, a later one is not.
    pub after: Option<Seconds>,
}

impl FromStr for Pace {
    type Err = String;

    /// ```
    /// use bellwether_workloads::Pace;
    /// assert_eq!("0.5".parse::<Pace>().unwrap().speed, 0.5);
    /// assert_eq!("0.5@20s".parse::<Pace>().unwrap().after.unwrap().get(), 20.0);
    /// assert!("0".parse::<Pace>().is_err() && "fast".parse::<Pace>().is_err() && "1@".parse::<Pace>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let (speed, after) = match text.split_once('@') {
            Some((speed, after)) => (speed, Some(after.parse::<Seconds>()?)),
            None => (text, None),
        };
        match speed.trim().parse::<f64>() {
            Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(Pace { speed, after }),
            _ => {
                Err(format!("`{text}` is no speed: write a number above 0, or one with a time as in 0.5@20s"))
            }
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.speed)?;
        self.after.map_or(Ok(()), |after| write!(f, "@{after}"))
    }
}

/// `trainee`, slowed down: after each gradient it waits as long as a device of this speed would still compute. The
/// results are the same bytes.
pub fn paced(trainee: Box<dyn Trainee>, pace: Pace) -> Box<dyn Trainee> {
    Box::new(Paced { trainee, pace, since: None })
}

struct Paced {
    trainee: Box<dyn Trainee>,
    pace: Pace,
    since: Option<Instant>,
}

impl Trainee for Paced {
    fn layout(&self) -> &Layout {
        self.trainee.layout()
    }

    fn training_samples(&self) -> u64 {
        self.trainee.training_samples()
    }

    fn held_out_samples(&self) -> u64 {
        self.trainee.held_out_samples()
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        self.trainee.initialize(seed, parameters, state);
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, TraineeError> {
        let began = Instant::now();
        let since = *self.since.get_or_insert(began);
        let loss = self.trainee.gradient(weights, batch, seed, gradient_out, state_out)?;
        let after_s = self.pace.after.map_or(0.0, Seconds::get);
        if self.pace.speed < 1.0 && (began - since).as_secs_f64() >= after_s {
            let pause_s = began.elapsed().as_secs_f64() * (1.0 / self.pace.speed - 1.0);
            std::thread::sleep(Duration::from_secs_f64(pause_s.min(PAUSE_MAX.as_secs_f64())));
        }
        Ok(loss)
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, TraineeError> {
        self.trainee.evaluate(weights, batch)
    }

    fn fingerprint(&self) -> String {
        self.trainee.fingerprint()
    }
}
