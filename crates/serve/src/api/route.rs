//! A route as data: from the same values the router is built and the OpenAPI document is written.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Api;
use super::access::Access;
use super::body;
use super::call::Call;
use super::call::query::{Parameter, Query};
use super::failure::{Failure, echo};

/// An answer on its way.
pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>>;

/// Writes the schema of a type.
pub(super) type WriteSchema = fn(&mut SchemaGenerator) -> Schema;

/// Tells the counter of answers which route made one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template(pub(super) &'static str);

/// A method on a path.
pub(super) struct Route {
    pub(super) method: Method,
    /// With `{name}` where a job's name stands, `{file}` for a file's.
    pub(super) path: &'static str,
    /// Its name in the document.
    pub(super) operation: &'static str,
    /// What it does, in a sentence.
    pub(super) about: &'static str,
    /// Who may ask for it.
    pub(super) access: Access,
    pub(super) parameters: &'static [Parameter],
    /// Header that it reads, and what for.
    pub(super) header: Option<(&'static str, &'static str)>,
    pub(super) body: Option<WriteSchema>,
    /// Answers that are a success, each with what it says.
    pub(super) gives: Vec<(StatusCode, &'static str, Content)>,
    /// Whether the engine is asked, which may refuse.
    pub(super) asks: bool,
    pub(super) handler: fn(Call) -> Answering,
}

/// The content of an answer.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// JSON of this schema.
    Json(WriteSchema),
    /// Text of this media type.
    Text(&'static str),
    /// Server-sent events, each a name and the schema of its data.
    Events(&'static [(&'static str, WriteSchema)]),
}

/// The schema of a type.
pub(super) fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Content that is JSON of a type.
pub(super) fn json<T: JsonSchema>() -> Content {
    Content::Json(schema::<T>)
}

impl Route {
    /// A route for all who see jobs, without parameters and body.
    pub(super) fn new(
        method: Method,
        path: &'static str,
        operation: &'static str,
        about: &'static str,
        handler: fn(Call) -> Answering,
    ) -> Route {
        Route {
            method,
            path,
            operation,
            about,
            access: Access::Observe,
            parameters: &[],
            header: None,
            body: None,
            gives: Vec::new(),
            asks: false,
            handler,
        }
    }

    /// It needs this instead.
    pub(super) fn needs(mut self, access: Access) -> Route {
        self.access = access;
        self
    }

    /// It takes parameters after a question mark.
    pub(super) fn takes(mut self, parameters: &'static [Parameter]) -> Route {
        self.parameters = parameters;
        self
    }

    /// It reads a header.
    pub(super) fn heeds(mut self, name: &'static str, about: &'static str) -> Route {
        self.header = Some((name, about));
        self
    }

    /// It reads a body.
    pub(super) fn reads<T: JsonSchema>(mut self) -> Route {
        self.body = Some(schema::<T>);
        self
    }

    /// It answers so when all is well.
    pub(super) fn gives(mut self, status: StatusCode, about: &'static str, content: Content) -> Route {
        self.gives.push((status, about, content));
        self
    }

    /// It asks the engine.
    pub(super) fn asks(mut self) -> Route {
        self.asks = true;
        self
    }

    /// The part of the path that is a name, if there is one.
    pub(super) fn parameter(&self) -> Option<&'static str> {
        Some(self.path.split_once('{')?.1.split_once('}')?.0)
    }

    /// The statuses with which it may refuse, in ascending order.
    pub(super) fn refusals(&self) -> Vec<StatusCode> {
        let (body, public) = (self.body.is_some(), self.access == Access::Everybody);
        let table = [
            (StatusCode::BAD_REQUEST, body),
            (StatusCode::UNAUTHORIZED, !public || body),
            (StatusCode::FORBIDDEN, true),
            (StatusCode::NOT_FOUND, self.parameter().is_some()),
            (StatusCode::REQUEST_TIMEOUT, body),
            (StatusCode::CONFLICT, self.asks),
            (StatusCode::PAYLOAD_TOO_LARGE, body),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, body),
            (StatusCode::UNPROCESSABLE_ENTITY, !public || body),
            (StatusCode::SERVICE_UNAVAILABLE, !public || body || self.operation == "health"),
        ];
        table.into_iter().filter(|(_, applies)| *applies).map(|(status, _)| status).collect()
    }
}

/// The router of all routes.
pub(super) fn router(api: &Arc<Api>, table: Vec<Route>) -> Router {
    let paths: Arc<Vec<String>> = Arc::new(table.iter().map(|route| route.path.to_owned()).collect());
    let mut router = Router::new();
    for route in table {
        let filter =
            MethodFilter::try_from(route.method.clone()).expect("the table has methods that axum knows");
        let (api, path, route) = (api.clone(), route.path, Arc::new(route));
        let handler = move |request: Request| {
            let (api, route) = (api.clone(), route.clone());
            async move {
                let answer = handle(api, &route, request).await;
                let mut response = answer.unwrap_or_else(IntoResponse::into_response);
                response.extensions_mut().insert(Template(route.path));
                response
            }
        };
        router = router.route(path, on(filter, handler));
    }
    let (not_there, not_so) = (api.clone(), api.clone());
    router
        .fallback(move |request: Request| {
            let (api, paths) = (not_there.clone(), paths.clone());
            async move {
                let refused = api.gate.check(Access::Observe, request.extensions(), request.headers()).err();
                refused.unwrap_or_else(|| unknown(request.uri().path(), &paths))
            }
        })
        .method_not_allowed_fallback(move |request: Request| {
            let api = not_so.clone();
            async move {
                let what = format!("{} is not possible here", echo(request.method().as_str()));
                let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", what);
                let refused = api.gate.check(Access::Observe, request.extensions(), request.headers()).err();
                refused.unwrap_or_else(|| failure.hint("the header `Allow` lists what is"))
            }
        })
}

async fn handle(api: Arc<Api>, route: &Route, request: Request<Body>) -> Result<Response, Failure> {
    let caller = api.gate.check(route.access, request.extensions(), request.headers())?;
    let (mut parts, incoming) = request.into_parts();
    let path = RawPathParams::from_request_parts(&mut parts, &()).await;
    let name = path.ok().and_then(|path| path.iter().next().map(|(_, value)| value.to_owned()));
    // A client that only looks at a page may add what keeps it from being cached.
    let query = if route.access == Access::Everybody {
        Query::default()
    } else {
        Query::read(route.parameters, &parts.uri)?
    };
    let body = match route.body {
        Some(_) => body::receive(&parts.headers, incoming).await?,
        None => axum::body::Bytes::new(),
    };
    let call = Call { api, caller, name: name.unwrap_or_default(), query, headers: parts.headers, body };
    (route.handler)(call).await
}

/// There is no such path.
fn unknown(path: &str, paths: &[String]) -> Failure {
    let failure =
        Failure::new(StatusCode::NOT_FOUND, "path", format!("there is nothing at `{}`", echo(path)));
    match bellwether_core::parse::nearest(path, paths) {
        Some(near) => failure.hint(format!("did you mean `{near}`? /openapi.json lists all paths")),
        None => failure.hint("/openapi.json lists all paths"),
    }
}
