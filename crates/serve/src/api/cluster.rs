//! What concerns the whole cluster: its state, its decisions, its slots, its policy.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::body;
use super::call::{Call, json};
use super::failure::Failure;
use super::scope;
use crate::request::{Reply, Request};
use crate::snapshot::{DecisionState, Span};

/// Whether the daemon can work.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Health {
    /// `ok`.
    status: &'static str,
    /// Version of the program.
    version: String,
}

pub(super) async fn health(call: Call) -> Result<Response, Failure> {
    if call.api.engine.requests.is_closed() {
        return Err(Failure::unavailable("the engine is gone"));
    }
    json(StatusCode::OK, &Health { status: "ok", version: call.api.engine.now().cluster.version.clone() })
}

pub(super) async fn state(call: Call) -> Result<Response, Failure> {
    let now = call.api.engine.now();
    json(StatusCode::OK, &*scope::cluster(&now, &call.caller))
}

/// The last decisions, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Decisions<'s> {
    decisions: &'s [Cow<'s, DecisionState>],
}

pub(super) async fn decisions(call: Call) -> Result<Response, Failure> {
    let now = call.api.engine.now();
    let all = scope::decisions(&now, &call.caller);
    let first = all.len().saturating_sub(call.query.whole("limit"));
    json(StatusCode::OK, &Decisions { decisions: &all[first..] })
}

/// Who held which slot when, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Spans<'s> {
    spans: Vec<&'s Span>,
}

pub(super) async fn slots(call: Call) -> Result<Response, Failure> {
    let since_s = call.query.number("since").unwrap_or(f64::NEG_INFINITY);
    let now = call.api.engine.now();
    let seen = now.spans.iter().filter(|span| scope::sees(&now, &call.caller, &span.job));
    let spans = seen.filter(|span| span.end_s.is_none_or(|end_s| end_s >= since_s)).collect();
    json(StatusCode::OK, &Spans { spans })
}

pub(super) async fn policy(call: Call) -> Result<Response, Failure> {
    json(StatusCode::OK, &body::Policy { policy: call.api.engine.now().cluster.policy.clone() })
}

pub(super) async fn choose(call: Call) -> Result<Response, Failure> {
    let body::Policy { policy } = body::read(&call.body)?;
    match call.ask(Request::Choose { policy, by: call.caller.words() }).await? {
        Reply::Policy(policy) => json(StatusCode::OK, &body::Policy { policy }),
        _ => Err(Failure::unavailable("the engine answered another question")),
    }
}

pub(super) async fn queues(call: Call) -> Result<Response, Failure> {
    json(StatusCode::OK, &body::Queues { queues: call.api.engine.now().queues.as_deref().cloned() })
}

pub(super) async fn divide(call: Call) -> Result<Response, Failure> {
    let body::Queues { queues } = body::read(&call.body)?;
    match call.ask(Request::Divide { queues, by: call.caller.words() }).await? {
        Reply::Queues(queues) => json(StatusCode::OK, &body::Queues { queues }),
        _ => Err(Failure::unavailable("the engine answered another question")),
    }
}

/// All policies, in the order in which they are explained.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Policies {
    policies: Vec<PolicyAbout>,
}

/// What a user should know of a policy.
#[derive(Debug, Serialize, JsonSchema)]
struct PolicyAbout {
    /// Its name.
    name: &'static str,
    /// What it does, in one sentence.
    idea: &'static str,
    /// Its options, in the order in which they may be given without their names.
    options: Vec<PolicyOption>,
    /// When it is a bad choice.
    bad_when: &'static str,
    /// Whether it needs to know the work that remains.
    needs_remaining: bool,
}

/// An option of a policy.
#[derive(Debug, Serialize, JsonSchema)]
struct PolicyOption {
    /// Its name.
    name: &'static str,
    /// What it is where nothing is said.
    default: f64,
    /// What it means.
    about: &'static str,
}

pub(super) async fn policies(call: Call) -> Result<Response, Failure> {
    let option = |(name, default, about): &(&'static str, f64, &'static str)| PolicyOption {
        name,
        default: *default,
        about,
    };
    let policies = call.api.registry.iter().map(|about| PolicyAbout {
        name: about.name,
        idea: about.idea,
        options: about.options.iter().map(option).collect(),
        bad_when: about.bad_when,
        needs_remaining: about.needs_remaining,
    });
    json(StatusCode::OK, &Policies { policies: policies.collect() })
}
