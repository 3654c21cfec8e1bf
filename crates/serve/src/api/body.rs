//! The bodies of requests.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use bellwether_core::job::{Job, SyncPolicy, WorkerRange};
use bellwether_core::prediction::ProfiledRate;
use bellwether_core::profile::Profile;
use bellwether_core::queue::QueuesFile;
use bellwether_core::units::Seconds;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use tokio_stream::StreamExt;

use super::failure::Failure;
use crate::provision::Provision;

/// Most bytes of a body.
pub(super) const BODY_BYTES: usize = 1 << 20;

/// How long a client may take to send a body.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// A job to be accepted: `job` or `job_toml`, and what shall hold instead of what it says itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// The job file, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// The text of the job file. Exactly one of the two is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_toml: Option<String>,
    /// The name that it shall have: letters, digits, `-`, `_` and `.`; without one it gets its job's, and a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Numbers of workers that it may have, where they are not those of the job file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    /// Its share against those of others, above 0; 1 where none is given. The policy `priority` puts the highest
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub priority: Option<f64>,
    /// Within which time it should be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// The profile of the job, as `bellwether profile` writes it: the first decisions about the job rest on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")]
    pub profile: Option<Box<Profile>>,
    /// What is known of its speed otherwise, in place of a profile: objects with `workers`, `speed` of their slots (1
    /// for the fastest), `examples_per_s` with its 95 % interval `low`…`high`, and `bottleneck`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<std::collections::BTreeMap<String, serde_json::Value>>")]
    pub rates: Vec<ProfiledRate>,
    /// Who may wait for whom, where that is not what the job file says, as in its `sync.policy`. Of several, its first
    /// start decides, by its profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<SyncPolicy>,
    /// Numbers of parameter servers, where they are not the job file's. Of several, its first start decides, by its
    /// profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Workers>,
    /// Whether the daemon profiles the job before it trains, on one slot, for about a minute; not together with
    /// `profile` or `rates`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile_first: bool,
    /// Its queue, where the daemon has any: one that has no others below it; the default one if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Where machines of its own come from: the job takes none of the slots, and begins at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// What pods of it need. A daemon has none, and refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Pods>,
    /// The client's own word for this submission: sent twice, it is accepted once. The header `Idempotency-Key` is the
    /// same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What pods of a job need on Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pods {
    /// The image that they are made of, where it is not the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The text of the script that trains the job, where the image does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

/// Limits of a job that are to change; what is absent stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Numbers of workers that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    /// Its share against those of others, above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub weight: Option<f64>,
}

/// Numbers of workers that a job may have from now on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The numbers.
    pub workers: Workers,
}

/// The policy that decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name, with options after a colon.
    pub policy: String,
}

/// The queues that divide the slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    /// They, as a file of queues describes them; null where nothing divides the slots.
    pub queues: Option<QueuesFile>,
}

/// Numbers of workers in any of three forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Workers(pub WorkerRange);

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Workers, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Workers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of workers, a range like \"1..4\", or {\"min\": 1, \"max\": 4}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
                text.parse().map(Workers).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Workers, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Workers, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Workers, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Ends {
                    min: u32,
                    max: u32,
                }
                let Ends { min, max } = Ends::deserialize(de::value::MapAccessDeserializer::new(map))?;
                self.visit_str(&format!("{min}..{max}"))
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

impl JsonSchema for Workers {
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let range = generator.subschema_for::<WorkerRange>();
        let end = json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX });
        json_schema!({
            "description": "A number of workers, a range like \"1..4\", or its two ends.",
            "anyOf": [range, {
                "type": "object",
                "properties": { "min": end, "max": end },
                "required": ["min", "max"],
                "additionalProperties": false
            }]
        })
    }
}

/// A time from now on, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Deadline(pub f64);

impl<'de> Deserialize<'de> for Deadline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Deadline, D::Error> {
        struct Forms;
        impl Visitor<'_> for Forms {
            type Value = Deadline;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"2h\", or a number of seconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Deadline, E> {
                self.visit_f64(text.parse::<Seconds>().map_err(E::custom)?.get())
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Deadline, E> {
                self.visit_f64(seconds as f64)
            }
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Deadline, E> {
                self.visit_f64(seconds as f64)
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Deadline, E> {
                let holds = seconds.is_finite() && seconds > 0.0;
                let wrong = || E::custom(format!("{seconds} seconds from now are not in the future"));
                holds.then_some(Deadline(seconds)).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

impl JsonSchema for Deadline {
    fn schema_name() -> Cow<'static, str> {
        "Deadline".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time from now on: seconds, or a text such as \"2h\".",
            "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, { "type": "string" }]
        })
    }
}

/// Receives a body whole, if it is JSON and not too long.
pub(super) async fn receive(headers: &HeaderMap, body: Body) -> Result<Bytes, Failure> {
    let too_long = || {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "body", "the body is longer than 1 MiB")
            .hint("a job file has a few kilobytes; data stay where they are, the job names their files")
    };
    let claim =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if claim.is_some_and(|bytes| bytes > BODY_BYTES as u64) {
        return Err(too_long());
    }
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("");
    let media = media.split(';').next().unwrap_or("").trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let what = format!("`{}` is not what is read here", super::failure::echo(media));
        let failure = Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "header `Content-Type`", what);
        return Err(failure.hint("send JSON, with `Content-Type: application/json`"));
    }
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    let whole = async {
        while let Some(chunk) = chunks.next().await {
            let torn = |error| {
                Failure::new(StatusCode::BAD_REQUEST, "body", format!("it cannot be received: {error}"))
            };
            let chunk = chunk.map_err(torn)?;
            if bytes.len() + chunk.len() > BODY_BYTES {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(())
    };
    let late = |_| {
        let what = format!("the body did not arrive within {} s", BODY_PATIENCE.as_secs());
        Failure::new(StatusCode::REQUEST_TIMEOUT, "body", what)
    };
    tokio::time::timeout(BODY_PATIENCE, whole).await.map_err(late)??;
    Ok(bytes.into())
}

/// Whether this is a body of that form: for the benchmark that throws bytes at decoders.
#[doc(hidden)]
pub fn is_understood<T: DeserializeOwned>(bytes: &[u8]) -> bool {
    read::<T>(bytes).is_ok()
}

/// Reads JSON; an error names the key, and the nearest that is known.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    // Readers would take the values of a list for those of the keys, in order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Failure::invalid("body", "it is a list").hint("send an object: {\"key\": value, …}"));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let wrong = |path: String, error: &serde_json::Error| {
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        if !error.is_data() {
            let place = format!("body, line {} column {}", error.line(), error.column());
            return Failure::new(StatusCode::BAD_REQUEST, place, format!("it is not JSON: {message}"));
        }
        let place =
            if path == "." { "body".to_owned() } else { format!("body, `{}`", super::failure::echo(&path)) };
        match bellwether_core::parse::advice(message) {
            Some((what, hint)) => Failure::invalid(place, what).hint(hint),
            None => Failure::invalid(place, message),
        }
    };
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| wrong(error.path().to_string(), error.inner()))?;
    reader.end().map_err(|error| wrong(".".into(), &error))?;
    Ok(value)
}
