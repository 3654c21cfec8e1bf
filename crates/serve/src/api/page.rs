//! The dashboard's page and what it needs, and the document of the API: all without a token.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::call::Call;
use super::failure::{Failure, echo};
use crate::dashboard::{self, Asset};

fn answer(asset: &Asset) -> Response {
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CONTENT_SECURITY_POLICY, dashboard::CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        // A new version of the program has another page under the same address.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, asset.text).into_response()
}

pub(super) async fn index(_: Call) -> Result<Response, Failure> {
    Ok(answer(&dashboard::ASSETS[0]))
}

pub(super) async fn file(call: Call) -> Result<Response, Failure> {
    let unknown = || {
        let what = format!("the dashboard has no file `{}`", echo(&call.name));
        Failure::new(StatusCode::NOT_FOUND, "path, `{file}`", what).hint("load the page at / again")
    };
    Ok(answer(dashboard::asset(&call.name).ok_or_else(unknown)?))
}

pub(super) async fn document(call: Call) -> Result<Response, Failure> {
    Ok(([(header::CONTENT_TYPE, "application/json")], call.api.document.clone()).into_response())
}
