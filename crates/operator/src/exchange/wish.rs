//! What the operator wants of a job's pods, and what scripts report of themselves.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Numbers that a script reports lie below this: more is a mistake of it.
const NUMBER_MAX: f64 = 1e15;

/// What the operator wants of a job's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Which wish it is. [`Desk::set_wish`](super::Desk::set_wish) numbers them: no two are the same.
    #[serde(default)]
    pub version: u64,
    /// Whether the job is to stop, with a checkpoint.
    #[serde(default)]
    pub stop: bool,
    /// Where its coordinator listens, once that is known.
    #[serde(default)]
    pub coordinator: Option<SocketAddr>,
    /// Which set of pods is meant: a job whose script cannot change its size is started again with another number of
    /// pods, and those of the set before are of no use to it.
    #[serde(default)]
    pub generation: u64,
    /// How many pods that set has.
    #[serde(default)]
    pub size: u32,
    /// Those of them that have addresses. Pods of a set wait for all.
    #[serde(default)]
    pub members: Vec<Member>,
    /// Whether the operator has heard how the job ended: nothing more has to be said.
    #[serde(default)]
    pub report_ended: bool,
}

/// A pod of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its place among them, from 0 on.
    pub rank: u32,
    /// Its address.
    pub address: IpAddr,
}

/// How fast a script trains, as its own output says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Steps that are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Samples that were trained on so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Samples in a second, of all processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_second: Option<f64>,
    /// The loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

impl Report {
    /// Whether it says something, and nothing that cannot be.
    pub fn makes_sense(&self) -> bool {
        let Report { step, samples, samples_per_second, loss } = *self;
        let is_count = |count: Option<u64>| count.is_none_or(|count| (count as f64) < NUMBER_MAX);
        *self != Report::default()
            && is_count(step)
            && is_count(samples)
            && samples_per_second.is_none_or(|speed| (0.0..NUMBER_MAX).contains(&speed))
            // JSON has no infinite numbers, and a loss that is not one of its numbers tells nothing.
            && loss.is_none_or(|loss| loss.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_say_something_that_can_be() {
        let sense =
            |text: &str| serde_json::from_str::<Report>(text).is_ok_and(|report| report.makes_sense());
        assert!(sense("{\"step\":3}") && sense("{\"samples_per_second\":0.5,\"loss\":-2.5,\"samples\":9}"));
        for text in [
            "{}",
            "{\"step\":null}",
            "{\"step\":-1}",
            "{\"step\":1.5}",
            "{\"step\":99999999999999999}",
            "{\"samples_per_second\":-1}",
            "{\"samples_per_second\":1e16}",
            "{\"loss\":1e999}",
            "{\"loss\":\"1\"}",
            "{\"step\":1,\"other\":2}",
        ] {
            assert!(!sense(text), "{text}");
        }
    }

    #[test]
    fn wishes_of_other_releases_are_read() {
        let wish: Wish = serde_json::from_str("{\"stop\":true,\"new\":[1]}").unwrap();
        assert!(wish.stop && wish.members.is_empty());
    }
}
