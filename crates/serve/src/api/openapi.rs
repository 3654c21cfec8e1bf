//! The OpenAPI 3.1 document, written from the table of routes and the schemas of the types.

use std::sync::Arc;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::access::{Access, Caller};
use super::call::query::Parameter;
use super::route::{Content, Route, schema};
use super::users::{Role, User};
use crate::snapshot::ErrorBody;

/// Where schemas stand in the document.
const SCHEMAS: &str = "/components/schemas";

/// The document of all routes.
pub(super) fn document(table: &[Route]) -> Value {
    let settings =
        || SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = SCHEMAS.into());
    // What may be left out of a request is always in an answer.
    let mut requests = settings().for_deserialize().into_generator();
    let mut answers = settings().for_serialize().into_generator();
    let mut paths = Map::new();
    for route in table {
        let operation = operation(route, &mut requests, &mut answers);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    let mut schemas = requests.take_definitions(true);
    schemas.extend(answers.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "bellwether serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Many training jobs share one machine. Times are seconds since the Unix epoch. \
                            Every error answer has an ErrorBody. Paths that are not listed are \
                            answered with 404, methods that are not listed with 405. Over the Unix socket \
                            `.serve/socket` of the daemon's state directory none of the security schemes \
                            is needed, and the server's name is `localhost`.",
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") }
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token in the file `.serve/token` of the daemon's state directory. It is not \
                                    taken over plain HTTP."
                },
                "user_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of a user, who may do what the user's role says, with the jobs of the \
                                    user's queues; other jobs are not there for the user. It is not taken over plain \
                                    HTTP."
                },
                "session": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A browser's session, which ends with the daemon's process."
                },
                "metrics_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token in the file `.serve/metrics_token`, which opens /metrics alone."
                }
            }
        }
    })
}

fn operation(route: &Route, requests: &mut SchemaGenerator, answers: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for (status, about, content) in &route.gives {
        let mut response = json!({ "description": about, "content": self::content(*content, answers) });
        if status.as_u16() == 201 {
            let location = json!({ "description": "The path of the job.", "schema": { "type": "string" } });
            response["headers"] = json!({ "Location": location });
        }
        responses.insert(status.as_str().to_owned(), response);
    }
    for status in route.refusals() {
        let about = status.canonical_reason().unwrap_or("It was refused");
        let body = json!({ "application/json": { "schema": schema::<ErrorBody>(answers) } });
        responses.insert(status.as_str().to_owned(), json!({ "description": about, "content": body }));
    }
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.about,
        "parameters": parameters(route),
        "responses": responses,
    });
    if let Some(body) = route.body {
        let content = json!({ "application/json": { "schema": body(requests) } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    let operator = User { name: String::new(), role: Role::Operate, queues: None, scripts: false };
    let schemes = [
        ("token", Caller::Owner),
        ("user_token", Caller::User(Arc::new(operator))),
        ("session", Caller::Browser(None)),
        ("metrics_token", Caller::Scraper),
    ];
    let open = schemes.iter().filter(|_| route.access != Access::Everybody);
    let open = open.filter(|(_, who)| who.may(route.access));
    operation["security"] = open.map(|(scheme, _)| json!({ (*scheme): [] })).collect();
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut all = Vec::new();
    if let Some(name) = route.parameter() {
        all.push(json!({
            "name": name,
            "in": "path",
            "required": true,
            "description": if name == "file" { "The file's name." } else { "The job's name." },
            "schema": { "type": "string" }
        }));
    }
    all.extend(route.parameters.iter().map(|Parameter { name, about, kind }| {
        json!({ "name": name, "in": "query", "description": about, "schema": kind.schema() })
    }));
    all.extend(route.header.iter().map(|(name, about)| {
        json!({ "name": name, "in": "header", "description": about, "schema": { "type": "string" } })
    }));
    all
}

fn content(content: Content, answers: &mut SchemaGenerator) -> Value {
    match content {
        Content::Json(schema) => json!({ "application/json": { "schema": schema(answers) } }),
        Content::Text(media) => json!({ (media): { "schema": { "type": "string" } } }),
        // There is no word for the events of a stream in OpenAPI 3.1; what begins with `x-` is free.
        Content::Events(events) => {
            let events: Map<String, Value> =
                events.iter().map(|(name, schema)| ((*name).to_owned(), schema(answers).into())).collect();
            json!({ "text/event-stream": { "schema": { "type": "string" }, "x-events": events } })
        }
    }
}
