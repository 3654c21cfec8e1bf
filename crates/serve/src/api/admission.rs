//! What the daemon's owner does with users.

use axum::http::StatusCode;
use axum::response::Response;
use bellwether_core::InputError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body;
use super::call::{Call, blocking, json};
use super::failure::{Failure, echo};
use super::users::{AddError, User};

/// The users, in the order in which they were added.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UserList {
    /// They.
    pub users: Vec<User>,
}

/// A user's token, which is shown once.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Admitted {
    /// The user.
    pub user: User,
    /// 64 hexadecimal digits.
    pub token: String,
    /// Where the daemon is, as this server knows it.
    pub url: String,
    /// Of its certificate, by which clients know it.
    pub fingerprint: Option<String>,
    /// Whether it takes tokens there: not where they could be overheard.
    pub takes_tokens: bool,
}

pub(super) async fn users(call: Call) -> Result<Response, Failure> {
    users_left(&call)
}

pub(super) async fn add_user(call: Call) -> Result<Response, Failure> {
    let user: User = body::read(&call.body)?;
    let (users, added) = (call.api.gate.users.clone(), user.clone());
    let token = blocking(move || users.add(added)).await?.map_err(|error| match error {
        AddError::Invalid(error) => {
            let place = format!("body, `{}`", error.place);
            Failure::from(InputError { place, ..error })
        }
        AddError::Taken(error) => Failure { status: StatusCode::CONFLICT, error },
        AddError::Io(error) => Failure::unavailable(format!("the users cannot be written: {error}")),
    })?;
    json(
        StatusCode::CREATED,
        &Admitted {
            user,
            token: token.to_text(),
            url: call.api.url.clone(),
            fingerprint: call.api.fingerprint.clone(),
            takes_tokens: call.api.takes_tokens,
        },
    )
}

pub(super) async fn remove_user(call: Call) -> Result<Response, Failure> {
    let (users, name) = (call.api.gate.users.clone(), call.name.clone());
    let removed = blocking(move || users.remove(&name)).await?;
    match removed {
        Ok(true) => users_left(&call),
        Ok(false) => {
            let what = format!("there is no user `{}`", echo(&call.name));
            let failure = Failure::new(StatusCode::NOT_FOUND, "path, `{name}`", what);
            Err(failure.hint("GET /v1/users lists all"))
        }
        Err(error) => Err(Failure::unavailable(format!("the users cannot be written: {error}"))),
    }
}

fn users_left(call: &Call) -> Result<Response, Failure> {
    let users = call.api.gate.users.all().iter().map(|user| (**user).clone()).collect();
    json(StatusCode::OK, &UserList { users })
}
