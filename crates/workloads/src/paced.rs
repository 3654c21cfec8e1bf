//! A workload that computes as if its device were slower, to try what unequal workers do to a run.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bellwether_core::ParseError;
use bellwether_core::units::Seconds;
use bellwether_runtime::workload::{
    Evaluation, Examined, Inputs, Layout, Loss, MicroBatch, Parameters, TensorExchange, Weights, Workload,
    WorkloadError,
};

/// The longest pause after one micro-batch: a mistyped speed must not look like a hang for ever.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// How a gradient never comes to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// It computes for ever: `hang@20s`.
    Computes,
    /// It waits for ever for a pipe into which no process writes: `block@20s`.
    Waits,
}

/// How fast a worker computes, relative to what it could: `0.5`, or `0.5@20s` for one that turns slow after 20 s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Above 0; above 1 is meant relative to other workers.
    pub speed: f64,
    /// Since when, counted from the worker's first gradient; a speed from the start on is known to those who share out
    /// the work, a later one is not.
    pub after: Option<Seconds>,
    /// It computes nothing any more from then on.
    pub hang: Option<Hang>,
}

impl FromStr for Pace {
    type Err = ParseError;

    /// ```
    /// use bellwether_workloads::Pace;
    /// assert_eq!("0.5".parse::<Pace>().unwrap().speed, 0.5);
    /// assert_eq!("0.5@20s".parse::<Pace>().unwrap().after.unwrap().get(), 20.0);
    /// assert!("hang@20s".parse::<Pace>().unwrap().hang.is_some() && "hang".parse::<Pace>().is_err());
    /// assert!("0".parse::<Pace>().is_err() && "fast".parse::<Pace>().is_err() && "1@".parse::<Pace>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (speed, after) = match text.split_once('@') {
            Some((speed, after)) => (speed, Some(after.parse::<Seconds>()?)),
            None => (text, None),
        };
        let hang = match speed.trim() {
            "hang" => Some(Hang::Computes),
            "block" => Some(Hang::Waits),
            _ => None,
        };
        if hang.is_some() && after.is_some() {
            return Ok(Pace { speed: 1.0, after, hang });
        }
        match speed.trim().parse::<f64>() {
            Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(Pace { speed, after, hang: None }),
            Ok(_) => Err(ParseError::out_of_range("speed", text, "a number above 0")),
            Err(_) => {
                Err(ParseError::new("speed", text, "a number above 0, or one with a time as in 0.5@20s"))
            }
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hang {
            Some(Hang::Computes) => write!(f, "hang")?,
            Some(Hang::Waits) => write!(f, "block")?,
            None => write!(f, "{}", self.speed)?,
        }
        self.after.map_or(Ok(()), |after| write!(f, "@{after}"))
    }
}

/// `workload`, slowed down: after each gradient it waits as long as a device of this speed would still compute. By
/// parts, it waits so before each tensor that it takes or gives. The results are the same bytes.
pub fn paced(workload: Box<dyn Workload>, pace: Pace) -> Box<dyn Workload> {
    Box::new(Paced { workload, pace, since: None })
}

struct Paced {
    workload: Box<dyn Workload>,
    pace: Pace,
    since: Option<Instant>,
}

impl Hang {
    /// Never returns.
    fn begin(self) {
        let pipe = if self == Hang::Waits { std::io::pipe().ok() } else { None };
        if let Some((mut reader, _writer)) = pipe {
            let _ = reader.read(&mut [0]);
        }
        loop {
            std::hint::spin_loop();
        }
    }
}

impl Paced {
    /// What to wait for in the gradient that begins now.
    fn pause(&mut self) -> Pause {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let slow = (now - since).as_secs_f64() >= self.pace.after.map_or(0.0, Seconds::get);
        if slow && let Some(hang) = self.pace.hang {
            hang.begin();
        }
        let factor = if slow { (1.0 / self.pace.speed - 1.0).max(0.0) } else { 0.0 };
        Pause { factor, computes_since: now, owed_s: 0.0 }
    }
}

/// Waits for as long as computing took, times a factor.
struct Pause {
    factor: f64,
    computes_since: Instant,
    /// What is to be waited for, less what sleeps took too long.
    owed_s: f64,
}

impl Pause {
    /// Waits for what was computed since the last call or [`Pause::resume`].
    fn make_up(&mut self) {
        let began = Instant::now();
        self.owed_s += (began - self.computes_since).as_secs_f64() * self.factor;
        if self.owed_s > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(self.owed_s.min(PAUSE_MAX.as_secs_f64())));
            self.owed_s -= began.elapsed().as_secs_f64();
        }
        self.resume();
    }

    /// The workload computes again.
    fn resume(&mut self) {
        self.computes_since = Instant::now();
    }
}

/// Parts of a workload that seems slower.
struct PacedExchange<'a> {
    pause: Pause,
    parts: &'a mut dyn TensorExchange,
}

impl TensorExchange for PacedExchange<'_> {
    fn pull(&mut self, tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
        self.pause.make_up();
        let taken = self.parts.pull(tensor, out);
        self.pause.resume();
        taken
    }

    fn push(&mut self, tensor: usize, gradient: &[f32]) -> Result<(), WorkloadError> {
        self.pause.make_up();
        let given = self.parts.push(tensor, gradient);
        self.pause.resume();
        given
    }
}

impl Workload for Paced {
    fn layout(&self) -> &Layout {
        self.workload.layout()
    }

    fn training_samples(&self) -> u64 {
        self.workload.training_samples()
    }

    fn held_out_samples(&self) -> u64 {
        self.workload.held_out_samples()
    }

    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        self.workload.initialize(seed, parameters, state);
    }

    fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        self.workload.assigned(step, nodes);
    }

    fn take_data_wait_s(&mut self) -> f64 {
        self.workload.take_data_wait_s()
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        let mut pause = self.pause();
        let loss = self.workload.gradient(weights, batch, seed, gradient_out, state_out)?;
        pause.make_up();
        Ok(loss)
    }

    fn gradient_by_parts(
        &mut self,
        parts: &mut dyn TensorExchange,
        parameters: Parameters<'_>,
        state: &[f32],
        version: u64,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        let mut parts = PacedExchange { pause: self.pause(), parts };
        let loss = self.workload.gradient_by_parts(
            &mut parts,
            parameters,
            state,
            version,
            batch,
            seed,
            gradient_out,
            state_out,
        )?;
        parts.pause.make_up();
        Ok(loss)
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        self.workload.evaluate(weights, batch)
    }

    fn examine(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        examined: &mut Vec<Examined>,
    ) -> Result<Evaluation, WorkloadError> {
        self.workload.examine(weights, batch, examined)
    }

    fn predict(
        &mut self,
        weights: Weights<'_>,
        inputs: Inputs<'_>,
        scores: &mut Vec<f32>,
    ) -> Result<(), WorkloadError> {
        let mut pause = self.pause();
        self.workload.predict(weights, inputs, scores)?;
        pause.make_up();
        Ok(())
    }

    fn fingerprint(&self) -> String {
        self.workload.fingerprint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    struct Counted(Vec<f64>, Instant);

    impl TensorExchange for Counted {
        fn pull(&mut self, _tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
            out.fill(0.5);
            self.0.push(self.1.elapsed().as_secs_f64());
            Ok(())
        }

        fn push(&mut self, _tensor: usize, _gradient: &[f32]) -> Result<(), WorkloadError> {
            self.0.push(self.1.elapsed().as_secs_f64());
            Ok(())
        }
    }

    #[test]
    fn a_pace_of_a_quarter_makes_every_part_four_times_longer() {
        let device = Box::new(Synthetic::new(0.03, 0.0, 4 * 100, 3, 0, 1000));
        let mut slow = paced(device, Pace { speed: 0.25, after: None, hang: None });
        let (mut counted, mut out) = (Counted(vec![], Instant::now()), vec![0.0; 100]);
        let (batch, mut parameters) = (MicroBatch { samples: &[1] }, vec![0.0; 100]);
        let parameters = Parameters::Coming(&mut parameters);
        slow.gradient_by_parts(&mut counted, parameters, &[], 0, batch, 0, &mut out, &mut []).unwrap();
        let took = counted.1.elapsed().as_secs_f64();
        // The upper bounds are loose: the machine may be busy.
        assert!((0.12..0.6).contains(&took), "{took}");
        let whole = 0.12;
        let least = [0.0, 1.0 / 9.0, 2.0 / 9.0, 5.0 / 9.0, 7.0 / 9.0, 1.0].map(|share| share * whole);
        for (at, least) in counted.0.iter().zip(least) {
            assert!(*at > least - 0.005, "{:?}", counted.0);
        }
    }
}
