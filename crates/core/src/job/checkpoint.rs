//! When and where checkpoints are written: the table `[checkpoint]` of the job file.

use std::borrow::Cow;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Job, Model};
use crate::error::{InputError, InputErrorKind, ParseError};
use crate::units::Seconds;

/// When and where checkpoints are written. Stopping and ending always write one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Time between checkpoints, so that a run never loses more; longer where writing one takes more than a tenth of
    /// it, and `"0s"` for none by time.
    #[serde(default = "period")]
    pub every: Seconds,
    /// Steps between further checkpoints; 0 for none by steps.
    #[serde(default)]
    pub every_steps: u64,
    /// How many of the newest are kept.
    #[serde(default = "keep")]
    pub keep: usize,
    /// Folder in which each run has a subfolder; the run's own `checkpoints` folder when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// A folder that all nodes share, or an object store (`s3://BUCKET/PREFIX`), to which each worker writes its own
    /// slice of the state; then the coordinator writes no tensors. Each run has a subfolder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<CheckpointUrl>,
}

fn period() -> Seconds {
    Seconds::new(60.0)
}

fn keep() -> usize {
    3
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint { every: period(), every_steps: 0, keep: keep(), folder: None, url: None }
    }
}

pub(super) fn check(job: &Job) -> Result<(), InputError> {
    let Checkpoint { keep, folder, url, .. } = &job.checkpoint;
    if *keep == 0 {
        let hint = "keep 2 or more to survive a damaged file";
        return Err(InputError::new("checkpoint.keep", "must be at least 1").hint(hint));
    }
    if url.is_none() {
        return Ok(());
    }
    if folder.is_some() {
        let hint = "give one of them: to the folder the coordinator writes whole checkpoints, to the URL each worker a slice";
        return Err(InputError::new("checkpoint.url", "`checkpoint.folder` is given as well").hint(hint));
    }
    if matches!(job.model, Model::Python { .. }) {
        let what = "the script that trains reads whole checkpoints, which slices are not";
        let hint = "use checkpoint.folder, on a file system that outlives the host";
        return Err(InputError::new("checkpoint.url", what).hint(hint).of_kind(InputErrorKind::Unsupported));
    }
    Ok(())
}

/// Where workers write their slices of checkpoints: a folder that all nodes share, or a prefix in an object store that
/// speaks S3.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CheckpointUrl {
    /// A folder.
    Folder(PathBuf),
    /// Objects whose keys begin with the prefix.
    S3 {
        /// The bucket.
        bucket: String,
        /// Without a slash at its ends; may be empty.
        prefix: String,
    },
}

/// What would be right.
const EXPECTED: &str =
    "a folder, file:///FOLDER or s3://BUCKET/PREFIX; credentials and endpoint come from the environment";

/// Longer keys S3 does not take; names of runs and slices come behind the prefix.
const PREFIX_BYTES_MAX: usize = 700;

impl CheckpointUrl {
    /// The same with `name` as a folder below it.
    #[must_use]
    pub fn join(&self, name: &str) -> CheckpointUrl {
        match self {
            CheckpointUrl::Folder(folder) => CheckpointUrl::Folder(folder.join(name)),
            CheckpointUrl::S3 { bucket, prefix } => {
                let prefix = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
                CheckpointUrl::S3 { bucket: bucket.clone(), prefix }
            }
        }
    }

    /// The folder, where it is one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            CheckpointUrl::Folder(folder) => Some(folder),
            CheckpointUrl::S3 { .. } => None,
        }
    }

    /// As [`folder`](Self::folder), to be resolved.
    pub fn folder_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            CheckpointUrl::Folder(folder) => Some(folder),
            CheckpointUrl::S3 { .. } => None,
        }
    }
}

impl fmt::Display for CheckpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointUrl::Folder(folder) => write!(f, "{}", folder.display()),
            CheckpointUrl::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

impl FromStr for CheckpointUrl {
    type Err = ParseError;

    /// Reads a URL. One that holds a password is not repeated in the error.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let secret = text.contains("://") && text.contains('@');
        let shown = if secret { "(it holds an `@`, and may hold a password)" } else { text };
        let wrong = || ParseError::new("place for checkpoints", shown, EXPECTED);
        if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 127) || secret {
            return Err(wrong());
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(CheckpointUrl::Folder(text.into()));
        };
        if rest.contains(['?', '#', '%']) {
            return Err(wrong());
        }
        match scheme {
            "file" => {
                let path = PathBuf::from(rest);
                let plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
                if plain { Ok(CheckpointUrl::Folder(path)) } else { Err(wrong()) }
            }
            "s3" => s3(rest).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

/// A bucket and a prefix, by the rules of S3 for names of buckets.
fn s3(rest: &str) -> Option<CheckpointUrl> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_bucket = (3..=63).contains(&bucket.len())
        && bucket.bytes().all(|byte| is_letter(byte) || matches!(byte, b'-' | b'.' | b'_'))
        && bucket.bytes().next().is_some_and(is_letter)
        && bucket.bytes().last().is_some_and(is_letter)
        && !bucket.contains("..");
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_prefix = prefix.is_empty() || prefix.split('/').all(is_part);
    (is_bucket && is_prefix && prefix.len() <= PREFIX_BYTES_MAX)
        .then(|| CheckpointUrl::S3 { bucket: bucket.into(), prefix: prefix.into() })
}

impl TryFrom<String> for CheckpointUrl {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<CheckpointUrl> for String {
    fn from(url: CheckpointUrl) -> String {
        url.to_string()
    }
}

impl JsonSchema for CheckpointUrl {
    fn schema_name() -> Cow<'static, str> {
        "CheckpointUrl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "examples": ["s3://bucket/prefix", "file:///shared/checkpoints"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_stores_are_read() {
        let folder = |path: &str| CheckpointUrl::Folder(path.into());
        let s3 =
            |bucket: &str, prefix: &str| CheckpointUrl::S3 { bucket: bucket.into(), prefix: prefix.into() };
        for (text, url) in [
            ("file:///shared/a", folder("/shared/a")),
            ("/shared/a", folder("/shared/a")),
            ("beside", folder("beside")),
            ("s3://my-bucket", s3("my-bucket", "")),
            ("s3://my-bucket/", s3("my-bucket", "")),
            ("s3://my-bucket/a/b/", s3("my-bucket", "a/b")),
        ] {
            let read: CheckpointUrl = text.parse().expect(text);
            assert_eq!(read, url);
            assert_eq!(read.to_string().parse(), Ok(url), "{text}");
        }
        assert_eq!(s3("b-b", "a").join("run").to_string(), "s3://b-b/a/run");
        assert_eq!(s3("b-b", "").join("run").to_string(), "s3://b-b/run");
        assert_eq!(folder("/a").join("run").to_string(), "/a/run");
    }

    #[test]
    fn what_is_neither_is_refused_and_passwords_are_not_repeated() {
        for text in [
            "",
            "s3://",
            "s3://B/x",
            "s3://ab/x",
            "s3://a..b/x",
            "s3://bucket//x",
            "s3://bucket/../x",
            "gs://bucket/x",
            "http://host/x",
            "file://host/x",
            "file:///a/../b",
            "s3://bucket/x?y",
            "s3://bucket/a\nb",
        ] {
            assert!(text.parse::<CheckpointUrl>().is_err(), "{text}");
        }
        let error = "s3://AKIA:hush@bucket/x".parse::<CheckpointUrl>().expect_err("it has a password");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}
