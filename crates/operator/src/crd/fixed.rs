//! What cannot be changed of a job that was accepted.
//!
//! The engine takes a job with its job file, its queue and its deadline for good, and what lies in a run's folder fits
//! the job that began it. Limits, weight, suspension and templates may change at any time. A job that was not accepted
//! yet may change in every way, so that a mistake can be mended where it is.
//!
//! A server since 1.25 compares an object with the one before. An operator sees only what there is now, so it writes
//! digests of these fields into the status when it accepts a job, and compares with those.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellwether_runtime::state::hex;
use serde_json::Value;

use super::{ElasticJob, ElasticJobSpec, FieldError};

/// Fields below `spec`.
const FIELDS: [&[&str]; 11] = [
    &["job"],
    &["work"],
    &["profileRef"],
    &["queue"],
    &["deadlineSeconds"],
    &["managedBy"],
    &["rendezvous", "backend"],
    &["worker", "slotsPerPod"],
    &["checkpoint", "volumeClaim"],
    &["checkpoint", "path"],
    &["checkpoint", "url"],
];

/// Stands for a field that is not there.
const ABSENT: &str = "-";

/// Letters of a digest.
const DIGEST_LETTERS: usize = 16;

/// The rules in CEL with their messages, for the root of the object.
pub(super) fn fixed_rules() -> impl Iterator<Item = (String, String)> {
    FIELDS.iter().map(|path| {
        let has = |object: &str| {
            let parts = (1..=path.len()).map(|end| format!("has({object}.spec.{})", path[..end].join(".")));
            format!("({})", parts.collect::<Vec<_>>().join(" && "))
        };
        let (now, before, field) = (has("self"), has("oldSelf"), path.join("."));
        let rule = format!(
            "!has(oldSelf.status) || !has(oldSelf.status.fixed) || \
             ({now} == {before} && (!{now} || self.spec.{field} == oldSelf.spec.{field}))"
        );
        (rule, message(&field))
    })
}

fn message(field: &str) -> String {
    format!("{field} cannot be changed once the job was accepted")
}

/// Digests of what cannot be changed, for `status.fixed` of a job that is accepted.
pub fn fixed(spec: &ElasticJobSpec) -> BTreeMap<String, String> {
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let digest = |path: &&[&str]| {
        let value = path.iter().fold(&spec, |value, key| &value[*key]);
        (path.join("."), if value.is_null() { ABSENT.to_owned() } else { digest(value) })
    };
    FIELDS.iter().map(digest).collect()
}

/// What was changed of a job that had been accepted, though it cannot be. Fields that an earlier version of the
/// operator did not fix are free.
pub(super) fn check(job: &ElasticJob) -> Vec<FieldError> {
    let before = job.status.as_ref().map(|status| &status.fixed);
    let now = fixed(&job.spec);
    let changed = before
        .into_iter()
        .flatten()
        .filter(|(field, digest)| now.get(*field).is_some_and(|now| now != *digest));
    let error = |(field, _): (&String, &String)| {
        FieldError::new(format!("spec.{field}"), message(field)).hint("put it back, or create another job")
    };
    changed.map(error).collect()
}

/// Whether a job may become another, as the rules in CEL have it.
///
/// # Errors
///
/// The fields that were changed and cannot be.
pub fn check_update(old: &ElasticJob, new: &ElasticJob) -> Result<(), Vec<FieldError>> {
    if old.status.as_ref().is_none_or(|status| status.fixed.is_empty()) {
        return Ok(());
    }
    let mut before = new.clone();
    before.status.get_or_insert_default().fixed = fixed(&old.spec);
    let errors = check(&before);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// A word that follows from what a value says, whatever the order of its keys.
pub fn digest(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    hex(digest.as_ref())[..DIGEST_LETTERS].to_owned()
}

/// JSON with sorted keys: the order of keys is the server's.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => {
            let sorted: BTreeMap<&String, &Value> = object.iter().collect();
            text.push('{');
            for (key, value) in sorted {
                let _ = write!(text, "{}:", Value::String(key.clone()));
                canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                canonical(value, text);
                text.push(',');
            }
            text.push(']');
        }
        _ => {
            let _ = write!(text, "{value}");
        }
    }
}
