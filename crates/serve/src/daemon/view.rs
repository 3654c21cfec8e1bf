//! An engine that others steer, as clients of a daemon see one: everything is shown, and nothing can be changed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_runtime::private;
use bellwether_sched::registry::Registry;

use super::{DaemonError, FOLDER, bind, failed, publish, socket_file, token, token_file};
use crate::api::{self, ApiOptions, Doors, Security, Serving};
use crate::loading::Describe;
use crate::local;
use crate::request::EngineHandle;

/// What is shown, and where.
pub struct View<'v> {
    /// The folder of the engine's runs. Clients of this user find the view there, as they find a daemon.
    pub state_dir: &'v Path,
    /// Where browsers come in; see [`check_listen`].
    pub listen: SocketAddr,
    /// The engine.
    pub engine: EngineHandle,
    /// The policies that can be named.
    pub registry: Registry,
    /// How that is changed which cannot be changed here, in a sentence.
    pub changed_by: String,
}

/// Nothing is encrypted there, so only programs of this machine may reach it.
///
/// # Errors
///
/// Returns an error if the address is not one of loopback.
pub fn check_listen(listen: SocketAddr) -> Result<(), InputError> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    let error = InputError::new(listen.to_string(), "is not an address of this machine alone");
    Err(error.hint("listen at 127.0.0.1, and let others forward the port"))
}

/// Shows an engine to clients until what this returns is dropped: the dashboard, and the verbs that only look.
///
/// # Errors
///
/// Returns an error if the address is not one of loopback, or if it or the files cannot be used.
pub fn show(view: View<'_>, describe: Describe) -> Result<Serving, DaemonError> {
    check_listen(view.listen)?;
    let folder = view.state_dir.join(FOLDER);
    private::folder(&folder).and_then(|()| private::restrict(&folder)).map_err(failed(&folder))?;
    let token = token(&token_file(view.state_dir))?;
    let path = socket_file(view.state_dir);
    let socket = Some(local::listen(&path).map_err(failed(&path))?);
    let doors = Doors { socket, web: bind(Some(view.listen), None)?, security: Security::Sessions };
    let options = ApiOptions {
        token,
        sessions: Arc::default(),
        users: Arc::default(),
        describe,
        registry: view.registry,
        changed_by: Some(view.changed_by),
    };
    let serving = api::serve(doors, view.engine, options).map_err(failed(&folder))?;
    publish(&folder, &serving)?;
    Ok(serving)
}
