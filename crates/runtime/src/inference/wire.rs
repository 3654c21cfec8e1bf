//! What a coordinator and the workers of an inference say to each other: messages over the run's secure channel.
//!
//! Every message has a header of 24 bytes, little-endian: magic `u32`, kind `u8`, three zero bytes, number `u64`,
//! payload length in bytes `u64`. The receiver says how long a payload of each kind may be, and memory grows with the
//! bytes that come, never by what a header claims.

use std::io::{self, Read, Write};
use std::ops::Range;

use thiserror::Error;

use super::{Answer, Request};
use crate::workload::{Evaluation, Examined};

/// Size of a header in bytes.
const HEADER_BYTES: usize = 24;
/// First four bytes of every message (`BWi1` when read as text).
const MAGIC: u32 = u32::from_le_bytes(*b"BWi1");
/// Longest text: a job, a kernel class, a reason.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Longest rows or scores of one unit.
const UNIT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a prediction that was examined.
const EXAMINED_BYTES: usize = 16;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Task = 1,
    Weights = 2,
    Predict = 3,
    Examine = 4,
    End = 5,
    Ready = 6,
    Scores = 7,
    Examined = 8,
    Failed = 9,
    Scale = 10,
    Told = 11,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Task,
        Kind::Weights,
        Kind::Predict,
        Kind::Examine,
        Kind::End,
        Kind::Ready,
        Kind::Scores,
        Kind::Examined,
        Kind::Failed,
        Kind::Scale,
        Kind::Told,
    ];

    /// Most bytes of its payload; `weights` of weights.
    fn limit(self, weights: u64) -> u64 {
        match self {
            Kind::Task | Kind::Ready | Kind::Failed | Kind::Told => TEXT_BYTES_MAX,
            Kind::Weights => weights,
            Kind::Predict | Kind::Scores | Kind::Examined => UNIT_BYTES_MAX,
            Kind::Examine => 16,
            Kind::End | Kind::Scale => 0,
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// To a worker, first: the job, and what its caller wants to know beside it.
    Task {
        /// The job as JSON.
        job: String,
        /// For the one who builds the workload.
        description: String,
    },
    /// To a worker, next: all parameters, then all state.
    Weights(Vec<f32>),
    /// To a worker: compute unit `.0`.
    Unit(u64, Request),
    /// To a worker: there is nothing more to do.
    End,
    /// From a worker: it can compute; its kernel class.
    Ready(String),
    /// From a worker: it has computed unit `.0`.
    Done(u64, Answer),
    /// From a worker: it cannot compute.
    Failed {
        /// In one line.
        what: String,
        /// Whether the user's own code, or the rows, are to blame: another worker would fail, too.
        is_user: bool,
    },
    /// From who steers the inference: this many workers are wanted from now on.
    Scale(u32),
    /// To who steers it: what became of that.
    Told(String),
}

/// The other side does not speak as agreed, or is gone.
#[derive(Debug, Error)]
pub enum WireError {
    /// The connection failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes are not a message.
    #[error("a message that makes no sense: {0}")]
    Malformed(&'static str),
}

/// Sends a message.
///
/// # Errors
///
/// Returns the connection's error.
pub fn send(to: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut payload = Vec::new();
    let (kind, number) = match message {
        Message::Task { job, description } => {
            payload.extend((job.len() as u64).to_le_bytes());
            payload.extend(job.bytes().chain(description.bytes()));
            (Kind::Task, 0)
        }
        Message::Weights(values) => return send_weights(to, &[values]),
        Message::Unit(number, Request::Predict { first, width, values }) => {
            payload.reserve_exact(16 + 4 * values.len());
            payload.extend(first.to_le_bytes());
            payload.extend((*width as u64).to_le_bytes());
            payload.extend_from_slice(bytemuck::cast_slice(values));
            (Kind::Predict, *number)
        }
        Message::Unit(number, Request::Examine(samples)) => {
            payload.extend([samples.start, samples.end].iter().flat_map(|word| word.to_le_bytes()));
            (Kind::Examine, *number)
        }
        Message::End => (Kind::End, 0),
        Message::Ready(class) => {
            payload.extend(class.bytes());
            (Kind::Ready, 0)
        }
        Message::Done(number, Answer::Scores(scores)) => {
            write(to, Kind::Scores, *number, &[bytemuck::cast_slice(scores)])?;
            return to.flush();
        }
        Message::Done(number, Answer::Examined(sums, examined)) => {
            encode_examined(sums, examined, &mut payload);
            (Kind::Examined, *number)
        }
        Message::Failed { what, is_user } => {
            payload.push(u8::from(*is_user));
            payload.extend(what.bytes());
            (Kind::Failed, 0)
        }
        Message::Scale(workers) => (Kind::Scale, u64::from(*workers)),
        Message::Told(text) => {
            payload.extend(text.bytes());
            (Kind::Told, 0)
        }
    };
    write(to, kind, number, &[&payload])?;
    to.flush()
}

/// Sends weights that lie in several vectors, as [`Message::Weights`].
///
/// # Errors
///
/// Returns the connection's error.
pub fn send_weights(to: &mut impl Write, vectors: &[&[f32]]) -> io::Result<()> {
    let parts: Vec<&[u8]> = vectors.iter().map(|vector| bytemuck::cast_slice(vector)).collect();
    write(to, Kind::Weights, 0, &parts)?;
    to.flush()
}

fn write(to: &mut impl Write, kind: Kind, number: u64, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4] = kind as u8;
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    to.write_all(&header)?;
    parts.iter().try_for_each(|part| to.write_all(part))
}

/// Waits for a message. `weights_bytes` is how long weights may be: a worker that knows its model says it.
///
/// # Errors
///
/// See [`WireError`].
pub fn receive(from: &mut impl Read, weights_bytes: u64) -> Result<Message, WireError> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    if header[0..4] != MAGIC.to_le_bytes() || header[5..8] != [0; 3] {
        return Err(WireError::Malformed("its header is not one"));
    }
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == header[4]);
    let kind = kind.ok_or(WireError::Malformed("its kind is unknown"))?;
    let (number, length) = (word(8), word(16));
    if length > kind.limit(weights_bytes) {
        return Err(WireError::Malformed("it is longer than its kind may be"));
    }
    let mut payload = Vec::new();
    from.take(length).read_to_end(&mut payload)?;
    if payload.len() as u64 != length {
        return Err(WireError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    decode(kind, number, &payload).map_err(WireError::Malformed)
}

fn decode(kind: Kind, number: u64, payload: &[u8]) -> Result<Message, &'static str> {
    Ok(match kind {
        Kind::Task => {
            let (length, rest) = split_word(payload).ok_or("a task without a job")?;
            let length = usize::try_from(length).ok().filter(|length| *length <= rest.len());
            let (job, description) = rest.split_at(length.ok_or("a task whose job is cut short")?);
            Message::Task { job: text(job)?, description: text(description)? }
        }
        Kind::Weights => Message::Weights(floats(payload)?),
        Kind::Predict => {
            let (first, rest) = split_word(payload).ok_or("rows without a number")?;
            let (width, rest) = split_word(rest).ok_or("rows without a width")?;
            let values = floats(rest)?;
            let width = usize::try_from(width).ok().filter(|width| *width > 0 && values.len() % width == 0);
            let width = width.ok_or("rows that are not of one width")?;
            Message::Unit(number, Request::Predict { first, width, values })
        }
        Kind::Examine => {
            let samples = samples(payload).ok_or("samples that are not a range")?;
            Message::Unit(number, Request::Examine(samples))
        }
        Kind::End => Message::End,
        Kind::Ready => Message::Ready(text(payload)?),
        Kind::Scores => Message::Done(number, Answer::Scores(floats(payload)?)),
        Kind::Examined => {
            let (sums, examined) = decode_examined(payload).ok_or("an evaluation of another form")?;
            Message::Done(number, Answer::Examined(sums, examined))
        }
        Kind::Failed => {
            let (first, what) = payload.split_first().ok_or("a failure without a reason")?;
            Message::Failed { what: text(what)?, is_user: *first == 1 }
        }
        Kind::Scale => Message::Scale(u32::try_from(number).map_err(|_| "more workers than there may be")?),
        Kind::Told => Message::Told(text(payload)?),
    })
}

fn split_word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), rest))
}

fn samples(payload: &[u8]) -> Option<Range<u64>> {
    let (start, rest) = split_word(payload)?;
    let (end, rest) = split_word(rest)?;
    (rest.is_empty() && start <= end).then_some(start..end)
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text that is not UTF-8")
}

fn floats(bytes: &[u8]) -> Result<Vec<f32>, &'static str> {
    let (values, rest) = bytes.as_chunks::<4>();
    match rest {
        [] => Ok(values.iter().map(|value| f32::from_le_bytes(*value)).collect()),
        _ => Err("numbers that are cut short"),
    }
}

fn encode_examined(sums: &Evaluation, examined: &[Examined], payload: &mut Vec<u8>) {
    payload.extend(sums.loss_sum.to_le_bytes());
    payload.extend([sums.correct, sums.predictions].iter().flat_map(|word| word.to_le_bytes()));
    for Examined { loss, target, predicted } in examined {
        payload.extend(loss.to_le_bytes());
        payload.extend([target, predicted].iter().flat_map(|word| word.to_le_bytes()));
    }
}

fn decode_examined(payload: &[u8]) -> Option<(Evaluation, Vec<Examined>)> {
    let (loss_sum, rest) = split_word(payload)?;
    let (correct, rest) = split_word(rest)?;
    let (predictions, rest) = split_word(rest)?;
    let (examined, left) = rest.as_chunks::<EXAMINED_BYTES>();
    let examined = examined.iter().map(|bytes| {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (loss, _) = split_word(bytes).expect("it has sixteen bytes");
        Examined { loss: f64::from_bits(loss), target: word(8), predicted: word(12) }
    });
    let sums = Evaluation { loss_sum: f64::from_bits(loss_sum), correct, predictions };
    left.is_empty().then(|| (sums, examined.collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, message).expect("memory takes everything");
        bytes
    }

    fn message() -> impl Strategy<Value = Message> {
        let floats = || prop::collection::vec(-1e9f32..1e9, 0..20);
        let examined = (any::<u32>(), any::<u32>(), -1e9..1e9)
            .prop_map(|(target, predicted, loss)| Examined { loss, target, predicted });
        prop_oneof![
            ("[a-zß{}]{0,20}", ".{0,20}").prop_map(|(job, description)| Message::Task { job, description }),
            floats().prop_map(Message::Weights),
            (any::<u64>(), any::<u64>(), floats()).prop_map(|(number, first, values)| {
                let width = values.len().max(1);
                Message::Unit(number, Request::Predict { first, width, values })
            }),
            (any::<u64>(), 0..9u64, 9..20u64)
                .prop_map(|(number, start, end)| Message::Unit(number, Request::Examine(start..end))),
            Just(Message::End),
            ".{0,20}".prop_map(Message::Ready),
            (any::<u64>(), floats())
                .prop_map(|(number, scores)| Message::Done(number, Answer::Scores(scores))),
            (any::<u64>(), -1e9..1e9, prop::collection::vec(examined, 0..9)).prop_map(
                |(number, loss_sum, all)| {
                    let sums = Evaluation { loss_sum, correct: number / 2, predictions: number };
                    Message::Done(number, Answer::Examined(sums, all))
                }
            ),
            (".{0,20}", any::<bool>()).prop_map(|(what, is_user)| Message::Failed { what, is_user }),
            any::<u32>().prop_map(Message::Scale),
            ".{0,20}".prop_map(Message::Told),
        ]
    }

    proptest! {
        #[test]
        fn a_message_survives_the_wire(message in message()) {
            prop_assert_eq!(receive(&mut &sent(&message)[..], 1 << 20).expect("it is whole"), message);
        }

        #[test]
        fn damaged_messages_are_refused_or_others(
            message in message(), place in any::<prop::sample::Index>(), value in any::<u8>(), cut in 0usize..30,
        ) {
            let mut bytes = sent(&message);
            let place = place.index(bytes.len());
            bytes[place] = value;
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Ok(read) = receive(&mut &bytes[..], 1 << 20) {
                prop_assert_eq!(receive(&mut &sent(&read)[..], 1 << 20).is_ok(), true);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 24..120), kind in 0u8..14) {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[4] = kind;
            bytes[5..8].fill(0);
            let rest = (bytes.len() - HEADER_BYTES) as u64;
            bytes[16..24].copy_from_slice(&rest.to_le_bytes());
            let _ = receive(&mut &bytes[..], 64);
        }
    }

    #[test]
    fn what_a_header_claims_is_not_allocated() {
        let mut bytes = sent(&Message::Done(0, Answer::Scores(vec![1.0])));
        bytes[16..24].copy_from_slice(&UNIT_BYTES_MAX.to_le_bytes());
        assert!(matches!(receive(&mut &bytes[..], 0), Err(WireError::Io(_))));
        bytes[16..24].copy_from_slice(&(UNIT_BYTES_MAX + 1).to_le_bytes());
        assert!(matches!(receive(&mut &bytes[..], 0), Err(WireError::Malformed(_))));
        let weights = sent(&Message::Weights(vec![1.0; 3]));
        assert!(matches!(receive(&mut &weights[..], 8), Err(WireError::Malformed(_))));
    }
}
