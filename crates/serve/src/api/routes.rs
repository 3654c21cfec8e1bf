//! The table of all routes.

use axum::http::{Method, StatusCode};
use bellwether_core::record::StepRecord;

use super::access::Access;
use super::body;
use super::call::query::{Kind, Parameter};
use super::route::{Content, Route, json, schema};
use super::streams::{EndEvent, JournalEvent, LogEvent, StateEvent};
use super::users::User;
use super::{admission, cluster, curve, entry, jobs, page, prometheus, streams};
use crate::snapshot::{ClusterState, JobState, Phase};

const OK: StatusCode = StatusCode::OK;

const LIST: &[Parameter] = &[
    Parameter { name: "state", about: "Only jobs in this state.", kind: Kind::Choice(&Phase::NAMES) },
    Parameter {
        name: "limit",
        about: "Most jobs in the answer.",
        kind: Kind::Whole { min: 1, max: 1000, default: 100 },
    },
    Parameter { name: "after", about: "Only jobs after the one of this name.", kind: Kind::Text },
    Parameter {
        name: "order",
        about: "By time of submission, the oldest first where nothing is said.",
        kind: Kind::Choice(&["oldest", "newest"]),
    },
];

const POINTS: &[Parameter] = &[Parameter {
    name: "points",
    about: "Most points in the answer.",
    kind: Kind::Whole { min: 1, max: 2000, default: 200 },
}];

const FOLLOW: &[Parameter] = &[
    Parameter {
        name: "follow",
        about: "Whether to go on until the job ends, and not just until what is there was sent.",
        kind: Kind::Flag,
    },
    Parameter {
        name: "lines",
        about: "Lines of each file to begin with, the last ones of its last 4 MiB; none of the journal about steps.",
        kind: Kind::Whole { min: 0, max: 100_000, default: 200 },
    },
];

const LIMIT: &[Parameter] = &[Parameter {
    name: "limit",
    about: "Most decisions in the answer, the last ones.",
    kind: Kind::Whole { min: 1, max: 1000, default: 100 },
}];

const SINCE: &[Parameter] = &[Parameter {
    name: "since",
    about: "Only spans that had not ended then, in seconds since the Unix epoch.",
    kind: Kind::Number,
}];

/// All routes.
pub(super) fn table() -> Vec<Route> {
    let mut table = public();
    table.extend(entries());
    table.extend(of_jobs());
    table.extend(of_one_job());
    table.extend(about_one_job());
    table.extend(of_the_cluster());
    table.extend(of_users());
    table
}

/// What is for every client.
fn public() -> Vec<Route> {
    let get = Method::GET;
    vec![
        Route::new(get.clone(), "/", "dashboard", "The dashboard.", |call| Box::pin(page::index(call)))
            .needs(Access::Everybody)
            .gives(OK, "A page that shows all of this.", Content::Text("text/html; charset=utf-8")),
        Route::new(get.clone(), "/dashboard/{file}", "dashboard_file", "What the dashboard needs.", |call| {
            Box::pin(page::file(call))
        })
        .needs(Access::Everybody)
        .gives(OK, "A file.", Content::Text("*/*")),
        Route::new(get.clone(), "/openapi.json", "openapi", "This document.", |call| {
            Box::pin(page::document(call))
        })
        .needs(Access::Everybody)
        .gives(OK, "An OpenAPI document.", json::<serde_json::Map<String, serde_json::Value>>()),
        Route::new(get, "/health", "health", "Whether the daemon can work.", |call| {
            Box::pin(cluster::health(call))
        })
        .needs(Access::Everybody)
        .gives(OK, "It can.", json::<cluster::Health>()),
    ]
}

/// How a browser gets in.
fn entries() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/codes", "make_code", "A one-time code for the dashboard.", |call| {
            Box::pin(entry::code(call))
        })
        .needs(Access::Enter)
        .gives(StatusCode::CREATED, "It is good for one session.", json::<entry::Code>()),
        Route::new(Method::POST, "/v1/sessions", "open_session", "Exchanges a code for a session.", |call| {
            Box::pin(entry::session(call))
        })
        .needs(Access::Everybody)
        .reads::<entry::Exchange>()
        .gives(StatusCode::CREATED, "It ends with the daemon's process.", json::<entry::Session>()),
    ]
}

fn of_jobs() -> Vec<Route> {
    let path = "/v1/jobs";
    vec![
        Route::new(Method::GET, path, "list_jobs", "Jobs in order of submission.", |call| {
            Box::pin(jobs::list(call))
        })
        .takes(LIST)
        .gives(OK, "Some of them.", json::<jobs::Jobs<'_>>()),
        Route::new(Method::POST, path, "submit_job", "Accepts a job.", |call| Box::pin(jobs::submit(call)))
            .heeds(
                "Idempotency-Key",
                "The client's own word for this submission: sent twice, it is accepted once.",
            )
            .needs(Access::Submit)
            .reads::<body::Submit>()
            .asks()
            .gives(StatusCode::CREATED, "It was accepted, and is on disk.", json::<JobState>())
            .gives(OK, "The same submission was accepted before.", json::<JobState>()),
    ]
}

fn of_one_job() -> Vec<Route> {
    let one = "/v1/jobs/{name}";
    let change = |route: Route| {
        route.needs(Access::Steer).asks().gives(OK, "The job as it is now.", json::<JobState>())
    };
    let post = Method::POST;
    vec![
        Route::new(Method::GET, one, "get_job", "One job.", |call| Box::pin(jobs::get(call))).gives(
            OK,
            "The job.",
            json::<JobState>(),
        ),
        change(
            Route::new(Method::PATCH, one, "limit_job", "Changes a job's limits.", |call| {
                Box::pin(jobs::limit(call))
            })
            .reads::<body::Limits>(),
        ),
        change(Route::new(Method::DELETE, one, "delete_job", "Ends a job.", |call| {
            Box::pin(jobs::cancel(call))
        })),
        change(
            Route::new(post.clone(), "/v1/jobs/{name}/scale", "scale_job", "Changes its workers.", |call| {
                Box::pin(jobs::scale(call))
            })
            .reads::<body::Scale>(),
        ),
        change(Route::new(post.clone(), "/v1/jobs/{name}/suspend", "suspend_job", "Lets it wait.", |call| {
            Box::pin(jobs::suspend(call))
        })),
        change(Route::new(
            post.clone(),
            "/v1/jobs/{name}/resume",
            "resume_job",
            "Lets it run again.",
            |call| Box::pin(jobs::resume(call)),
        )),
        change(Route::new(post, "/v1/jobs/{name}/cancel", "cancel_job", "Ends it.", |call| {
            Box::pin(jobs::cancel(call))
        })),
    ]
}

/// What is to be read of one job beside its state.
fn about_one_job() -> Vec<Route> {
    let get = Method::GET;
    vec![
        Route::new(
            get.clone(),
            "/v1/jobs/{name}/configuration",
            "job_configuration",
            "Its job file, as it was accepted.",
            |call| Box::pin(jobs::configuration(call)),
        )
        .asks()
        .gives(OK, "The job file, as JSON.", json::<serde_json::Map<String, serde_json::Value>>()),
        Route::new(
            get.clone(),
            "/v1/jobs/{name}/curve",
            "job_curve",
            "Its loss on training and held-out samples and its speed, by step.",
            |call| Box::pin(jobs::curve(call)),
        )
        .takes(POINTS)
        .gives(
            OK,
            "Points, each over as many steps as were put together for it.",
            json::<curve::Curve>(),
        ),
        Route::new(get.clone(), "/v1/jobs/{name}/logs", "job_logs", "What its processes say.", |call| {
            Box::pin(streams::logs(call))
        })
        .takes(FOLLOW)
        .gives(OK, "Events; the last one is `end`.", Content::Events(LOGS)),
        Route::new(get, "/v1/jobs/{name}/metrics", "job_metrics", "What its steps took.", |call| {
            Box::pin(streams::steps(call))
        })
        .takes(FOLLOW)
        .gives(OK, "Events; the last one is `end`.", Content::Events(STEPS)),
    ]
}

const LOGS: &[(&str, super::route::WriteSchema)] =
    &[("journal", schema::<JournalEvent>), ("log", schema::<LogEvent>), ("end", schema::<EndEvent>)];

const STEPS: &[(&str, super::route::WriteSchema)] =
    &[("step", schema::<StepRecord>), ("end", schema::<EndEvent>)];

const STATE: &[(&str, super::route::WriteSchema)] = &[("state", schema::<StateEvent<'_>>)];

fn of_the_cluster() -> Vec<Route> {
    let get = Method::GET;
    vec![
        Route::new(get.clone(), "/v1/cluster", "cluster", "The slots and who decides.", |call| {
            Box::pin(cluster::state(call))
        })
        .gives(OK, "The cluster.", json::<ClusterState>()),
        Route::new(get.clone(), "/v1/events", "events", "The state as it changes.", |call| {
            Box::pin(streams::events(call))
        })
        .gives(OK, "Events, at most 5 per second.", Content::Events(STATE)),
        Route::new(get.clone(), "/v1/decisions", "decisions", "The last decisions.", |call| {
            Box::pin(cluster::decisions(call))
        })
        .takes(LIMIT)
        .gives(OK, "They, oldest first.", json::<cluster::Decisions<'_>>()),
        Route::new(get.clone(), "/v1/slots", "slots", "Who held which slot when.", |call| {
            Box::pin(cluster::slots(call))
        })
        .takes(SINCE)
        .gives(OK, "Spans, oldest first.", json::<cluster::Spans<'_>>()),
        Route::new(get.clone(), "/v1/policy", "policy", "The policy that decides.", |call| {
            Box::pin(cluster::policy(call))
        })
        .gives(OK, "Its name with its options.", json::<body::Policy>()),
        Route::new(Method::PUT, "/v1/policy", "choose_policy", "Lets another policy decide.", |call| {
            Box::pin(cluster::choose(call))
        })
        .needs(Access::Operate)
        .reads::<body::Policy>()
        .asks()
        .gives(OK, "It decides from now on.", json::<body::Policy>()),
        Route::new(get.clone(), "/v1/queues", "queues", "The queues that divide the slots.", |call| {
            Box::pin(cluster::queues(call))
        })
        .gives(OK, "As they were described.", json::<body::Queues>()),
        Route::new(Method::PUT, "/v1/queues", "divide", "Lets other queues divide the slots.", |call| {
            Box::pin(cluster::divide(call))
        })
        .needs(Access::Operate)
        .reads::<body::Queues>()
        .asks()
        .gives(OK, "They do from now on.", json::<body::Queues>()),
        Route::new(get.clone(), "/v1/policies", "policies", "All policies.", |call| {
            Box::pin(cluster::policies(call))
        })
        .gives(OK, "They, with their options.", json::<cluster::Policies>()),
        Route::new(get, "/metrics", "metrics", "Numbers for Prometheus.", |call| {
            Box::pin(prometheus::metrics(call))
        })
        .needs(Access::Scrape)
        .gives(OK, "Its text format.", Content::Text(prometheus::MEDIA)),
    ]
}

/// Who the users are.
fn of_users() -> Vec<Route> {
    let path = "/v1/users";
    vec![
        Route::new(Method::GET, path, "users", "Those who have a token of their own.", |call| {
            Box::pin(admission::users(call))
        })
        .needs(Access::Own)
        .gives(OK, "They.", json::<admission::UserList>()),
        Route::new(Method::POST, path, "add_user", "Makes a user.", |call| {
            Box::pin(admission::add_user(call))
        })
        .needs(Access::Own)
        .reads::<User>()
        .asks()
        .gives(
            StatusCode::CREATED,
            "The user's token, which is shown once.",
            json::<admission::Admitted>(),
        ),
        Route::new(Method::DELETE, "/v1/users/{name}", "remove_user", "Takes a user's token back.", |call| {
            Box::pin(admission::remove_user(call))
        })
        .needs(Access::Own)
        .gives(OK, "Those who are left.", json::<admission::UserList>()),
    ]
}
