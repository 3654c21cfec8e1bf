//! A worker of an inference: it builds the model, takes its weights, and computes units until there are none.
//!
//! One thread reads what comes, so that the next unit is here when the last one is computed. A worker whose coordinator
//! is gone ends: it holds nothing that could not be computed again.

use std::io::BufReader;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bellwether_core::job::Job;

use super::wire::{Message, WireError, receive, send};
use super::{Answer, BLOCK, Request};
use crate::channel::{ConnectionKind, Hello, Stream, Token, dial, random_number, resolve};
use crate::worker::{WorkerError, system};
use crate::workload::{Inputs, MicroBatch, Weights, Workload, WorkloadError};

/// How long a worker tries to reach its coordinator.
const DIAL: Duration = Duration::from_secs(20);

/// Messages that wait while a unit is computed.
const AHEAD: usize = 2;

/// How a worker is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The coordinator, `host:port`.
    pub coordinator: String,
    /// The inference's token.
    pub token: Token,
    /// The worker's number; 0 of one that no coordinator started.
    pub worker: u64,
}

/// A connection to the coordinator.
///
/// # Errors
///
/// Returns an error if none answers, or the token is another's.
pub(super) fn connect(coordinator: &str, token: &Token, worker: u64) -> Result<Stream, WorkerError> {
    let orphaned = |error: crate::channel::DialError| WorkerError::Orphaned(error.to_string());
    let address: SocketAddr = resolve(coordinator).map_err(orphaned)?;
    let epoch = random_number().map_err(system("draw a random number"))?;
    let hello = Hello { kind: ConnectionKind::Inference, worker, epoch, to: None };
    dial(address, &hello, token, Instant::now() + DIAL).map_err(orphaned)
}

/// Runs a worker until its inference is over.
///
/// `build` makes the workload from the job and what the coordinator says beside it.
///
/// # Errors
///
/// Returns an error if the coordinator cannot be reached or is gone, or the workload cannot be built or compute.
pub fn run<E: Into<WorkloadError>>(
    options: &Options,
    build: impl FnOnce(&Job, &str) -> Result<Box<dyn Workload>, E>,
) -> Result<(), WorkerError> {
    let stream = connect(&options.coordinator, &options.token, options.worker)?;
    let mut to = stream.clone();
    let mut from = BufReader::with_capacity(1 << 16, stream);
    let task = receive(&mut from, 0).map_err(gone)?;
    let Message::Task { job, description } = task else {
        return Err(WorkerError::Refused(refusal(task)));
    };
    let built = serde_json::from_str::<Job>(&job)
        .map_err(|error| WorkloadError::new(format!("the coordinator's job cannot be read: {error}")))
        .and_then(|job| build(&job, &description).map_err(Into::into));
    let mut workload = match built {
        Ok(workload) => workload,
        Err(error) => return Err(failed(&mut to, error)),
    };
    let layout = workload.layout();
    let (parameters, state) = (layout.parameter_count(), layout.state_count());
    let weights = receive(&mut from, 4 * (parameters + state) as u64).map_err(gone)?;
    let Message::Weights(weights) = weights else { return Err(WorkerError::Refused(refusal(weights))) };
    if weights.len() != parameters + state {
        let what = format!(
            "the weights are {} numbers, and the model has {}; they are of another model",
            weights.len(),
            parameters + state
        );
        return Err(failed(&mut to, WorkloadError::of_user(what)));
    }
    let (parameters, state) = weights.split_at(parameters);
    send(&mut to, &Message::Ready(workload.fingerprint())).map_err(|error| gone(error.into()))?;
    let (put, messages) = sync_channel(AHEAD);
    let read = move || {
        loop {
            let message = receive(&mut from, 0);
            let is_last = !matches!(message, Ok(Message::Unit(..)));
            if put.send(message).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("units".into()).spawn(read).map_err(system("start a thread"))?;
    serve(workload.as_mut(), Weights { parameters, state, version: 1 }, &messages, &mut to)
}

/// Computes units until the coordinator says that it is over.
fn serve(
    workload: &mut dyn Workload,
    weights: Weights<'_>,
    messages: &Receiver<Result<Message, WireError>>,
    to: &mut Stream,
) -> Result<(), WorkerError> {
    loop {
        let message = messages.recv().map_err(|_| WorkerError::Orphaned("the coordinator is gone".into()))?;
        match message.map_err(gone)? {
            Message::Unit(number, request) => match answer(workload, weights, &request) {
                Ok(answer) => {
                    send(to, &Message::Done(number, answer)).map_err(|error| gone(error.into()))?;
                }
                Err(error) => return Err(failed(to, error)),
            },
            Message::End => return Ok(()),
            other => return Err(WorkerError::Refused(refusal(other))),
        }
    }
}

/// What the workload says of a unit.
fn answer(
    workload: &mut dyn Workload,
    weights: Weights<'_>,
    request: &Request,
) -> Result<Answer, WorkloadError> {
    match request {
        Request::Predict { first, width, values } => {
            let mut scores = Vec::new();
            predict(workload, weights, *first, Inputs { values, width: *width }, &mut scores)?;
            Ok(Answer::Scores(scores))
        }
        Request::Examine(samples) => {
            let samples: Vec<u64> = samples.clone().collect();
            let mut examined = Vec::new();
            let sums = workload.examine(weights, MicroBatch { samples: &samples }, &mut examined)?;
            Ok(Answer::Examined(sums, examined))
        }
    }
}

/// Appends the scores of rows, of which the first is row `first` of all: each at its place in a batch of [`BLOCK`].
///
/// # Errors
///
/// Those of [`Workload::predict`], and one if it gives another number of scores than it should.
pub fn predict(
    workload: &mut dyn Workload,
    weights: Weights<'_>,
    first: u64,
    rows: Inputs<'_>,
    scores: &mut Vec<f32>,
) -> Result<(), WorkloadError> {
    let width = rows.width;
    let mut rest = rows.values;
    let mut place = (first % BLOCK as u64) as usize;
    let (mut padded, mut padded_scores) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let count = (BLOCK - place).min(rest.len() / width);
        let (part, after) = rest.split_at(count * width);
        if count == BLOCK {
            workload.predict(weights, Inputs { values: part, width }, scores)?;
        } else {
            padded.clear();
            padded.resize(BLOCK * width, 0.0);
            padded[place * width..(place + count) * width].copy_from_slice(part);
            padded_scores.clear();
            workload.predict(weights, Inputs { values: &padded, width }, &mut padded_scores)?;
            if !padded_scores.len().is_multiple_of(BLOCK) {
                let what = format!("{} scores of {BLOCK} rows: not as many of each", padded_scores.len());
                return Err(WorkloadError::of_user(what));
            }
            let each = padded_scores.len() / BLOCK;
            scores.extend_from_slice(&padded_scores[place * each..(place + count) * each]);
        }
        (rest, place) = (after, 0);
    }
    Ok(())
}

fn gone(error: WireError) -> WorkerError {
    WorkerError::Orphaned(format!("the coordinator of the inference is gone: {error}"))
}

/// What a coordinator says that asks for something else than was due.
fn refusal(message: Message) -> String {
    match message {
        Message::Failed { what, .. } => what,
        Message::End => "the inference is over".into(),
        _ => "the coordinator asks for something out of turn".into(),
    }
}

/// Tells the coordinator why this worker leaves.
fn failed(to: &mut Stream, error: WorkloadError) -> WorkerError {
    let WorkloadError { what, is_user } = error;
    // One that is gone needs to know nothing.
    let _ = send(to, &Message::Failed { what: what.clone(), is_user });
    WorkerError::Task(what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::{Evaluation, Layout, Loss};

    /// Scores say the row's content and its place in the batch.
    struct Places(Layout);

    impl Workload for Places {
        fn layout(&self) -> &Layout {
            &self.0
        }

        fn training_samples(&self) -> u64 {
            0
        }

        fn held_out_samples(&self) -> u64 {
            0
        }

        fn initialize(&mut self, _: u64, _: &mut [f32], _: &mut [f32]) {}

        fn gradient(
            &mut self,
            _: Weights<'_>,
            _: MicroBatch<'_>,
            _: u64,
            _: &mut [f32],
            _: &mut [f32],
        ) -> Result<Loss, WorkloadError> {
            Err(WorkloadError::new("it only predicts"))
        }

        fn evaluate(&mut self, _: Weights<'_>, _: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
            Err(WorkloadError::new("it only predicts"))
        }

        fn predict(
            &mut self,
            _: Weights<'_>,
            inputs: Inputs<'_>,
            scores: &mut Vec<f32>,
        ) -> Result<(), WorkloadError> {
            let rows = inputs.values.chunks_exact(inputs.width);
            if rows.len() != BLOCK {
                return Err(WorkloadError::new(format!("{} rows", rows.len())));
            }
            scores.extend(rows.enumerate().flat_map(|(place, row)| [place as f32, row[0]]));
            Ok(())
        }

        fn fingerprint(&self) -> String {
            String::new()
        }
    }

    proptest! {
        #[test]
        fn a_row_is_always_computed_at_the_same_place(first in 0u64..2000, count in 1usize..800, width in 1usize..4) {
            let values: Vec<f32> = (0..count * width).map(|n| (n / width) as f32 + 1.0).collect();
            let mut scores = Vec::new();
            let weights = Weights { parameters: &[], state: &[], version: 1 };
            let rows = Inputs { values: &values, width };
            predict(&mut Places(Layout::default()), weights, first, rows, &mut scores).expect("it predicts");
            let expected: Vec<f32> =
                (0..count).flat_map(|n| [((first as usize + n) % BLOCK) as f32, n as f32 + 1.0]).collect();
            prop_assert_eq!(scores, expected);
        }
    }
}
