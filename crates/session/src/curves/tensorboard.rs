//! Curves as an event file of TensorBoard.
//!
//! The file is a row of records: the length of the message (8 bytes, little endian), a checksum of these bytes, the
//! message, a checksum of it. A message is a `tensorflow.Event` of Protocol Buffers; the first says the version of the
//! format. A checksum is a CRC-32C, rotated and shifted so that a file of checksums has other checksums.

use prost::Message;

use super::Curves;

/// Names of the curves, as TensorBoard groups them.
const TRAINING_LOSS: &str = "loss/training";
const HELD_OUT_LOSS: &str = "loss/held_out";
const ACCURACY: &str = "accuracy/held_out";
const RATE: &str = "throughput/examples_per_s";
const WORKERS: &str = "throughput/workers";

/// Castagnoli's polynomial, mirrored.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Added to a rotated checksum.
const MASK: u32 = 0xA282_EAD8;

/// `tensorflow.Event`, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    /// Seconds since the Unix epoch.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<SummaryMessage>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct SummaryMessage {
    #[prost(message, repeated, tag = "1")]
    value: Vec<ValueMessage>,
}

/// `tensorflow.Summary.Value`, of a scalar.
#[derive(Clone, PartialEq, Message)]
struct ValueMessage {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, tag = "2")]
    simple_value: f32,
}

/// The name of an event file of a run that began at `time_s`; TensorBoard finds files by it.
pub fn file_name(time_s: f64) -> String {
    format!("events.out.tfevents.{}.bellwether", time_s.max(0.0) as u64)
}

/// The bytes of an event file.
pub fn events(curves: &Curves) -> Vec<u8> {
    let mut bytes = Vec::new();
    let begin_s = curves.training.first().map(|point| point.time_s);
    let begin_s = begin_s.or(curves.evaluations.first().map(|point| point.time_s)).unwrap_or(0.0);
    let version = EventMessage {
        wall_time: begin_s,
        file_version: Some("brain.Event:2".into()),
        ..EventMessage::default()
    };
    append(&mut bytes, &version);
    for point in &curves.training {
        let values = [
            (TRAINING_LOSS, point.loss),
            (RATE, point.examples_per_s),
            (WORKERS, Some(point.workers.into())),
        ];
        append(&mut bytes, &scalars(point.time_s, point.step, &values));
    }
    for point in &curves.evaluations {
        let values = [(HELD_OUT_LOSS, Some(point.loss)), (ACCURACY, point.accuracy)];
        append(&mut bytes, &scalars(point.time_s, point.step, &values));
    }
    bytes
}

fn scalars(time_s: f64, step: u64, values: &[(&str, Option<f64>)]) -> EventMessage {
    let value = values.iter().filter_map(|(tag, value)| {
        value.map(|value| ValueMessage { tag: (*tag).into(), simple_value: value as f32 })
    });
    EventMessage {
        wall_time: time_s,
        step: step as i64,
        file_version: None,
        summary: Some(SummaryMessage { value: value.collect() }),
    }
}

/// Appends a record.
fn append(bytes: &mut Vec<u8>, event: &EventMessage) {
    let message = event.encode_to_vec();
    let length = (message.len() as u64).to_le_bytes();
    bytes.extend(length);
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(&message);
    bytes.extend(masked(&message).to_le_bytes());
}

/// A checksum as records hold it.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[cfg(test)]
mod tests {
    use super::super::{EvaluationPoint, TrainingPoint};
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    /// Reads records back as TensorBoard does.
    fn read(mut bytes: &[u8]) -> Vec<EventMessage> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(masked(&bytes[..8]).to_le_bytes(), bytes[8..12]);
            let message = &bytes[12..12 + length];
            assert_eq!(masked(message).to_le_bytes(), bytes[12 + length..16 + length]);
            events.push(EventMessage::decode(message).unwrap());
            bytes = &bytes[16 + length..];
        }
        events
    }

    #[test]
    fn a_file_holds_every_point() {
        let training = |step, loss| TrainingPoint {
            step,
            time_s: 5.0,
            loss,
            examples_per_s: Some(2.0),
            workers: 3,
            data_wait_s: 0.0,
        };
        let curves = Curves {
            training: vec![training(1, Some(0.5)), training(2, None)],
            evaluations: vec![EvaluationPoint { step: 2, time_s: 7.0, loss: 0.25, accuracy: Some(0.75) }],
        };
        let events = read(&super::events(&curves));
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let told: Vec<(i64, String, f32)> = events
            .iter()
            .flat_map(|event| {
                event
                    .summary
                    .iter()
                    .flat_map(|s| &s.value)
                    .map(|v| (event.step, v.tag.clone(), v.simple_value))
            })
            .collect();
        let expected = [
            (1, TRAINING_LOSS, 0.5),
            (1, RATE, 2.0),
            (1, WORKERS, 3.0),
            (2, RATE, 2.0),
            (2, WORKERS, 3.0),
            (2, HELD_OUT_LOSS, 0.25),
            (2, ACCURACY, 0.75),
        ];
        assert_eq!(told, expected.map(|(step, tag, value)| (step, tag.to_owned(), value)));
        assert!(file_name(1.7e9).starts_with("events.out.tfevents.1700000000."));
    }
}
