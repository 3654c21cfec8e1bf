//! What stands behind `bellwether … --kubernetes`: a daemon's HTTP API in front of the elastic jobs of a namespace.
//!
//! The command does not know Kubernetes. It starts this program, asks it as it asks a daemon, and closes its input at
//! the end. The two speak over a Unix socket in a folder that only this user can enter, so they need no secret. What a
//! user may do with jobs is what Kubernetes lets the user of the kubeconfig do.
//!
//! Nothing is kept here: each answer is read from the objects (`state`), and each wish is written to them (`object`).
//! What an object does not say stays empty.

use std::error::Error as _;
use std::fs::DirBuilder;
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_serve::secret::Secret;
use bellwether_serve::snapshot::ErrorBody;
use clap::Args;
use kube::Config;
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};
use tokio::net::UnixListener;

use cluster::Cluster;

mod cluster;
mod failure;
mod files;
mod logs;
mod object;
mod routes;
mod state;

/// Time for a connection to Kubernetes: people wait for it.
const CONNECT: Duration = Duration::from_secs(5);

/// Whose jobs are asked for.
#[derive(Debug, Args)]
pub struct ClientArguments {
    /// Namespace of the jobs [default: that of the context]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
}

/// Answers until its input ends or `until` does. The first line that it prints is JSON: where it listens, or what keeps
/// it from that, in the form of the daemon's errors.
///
/// # Errors
///
/// Returns an error if that line cannot be printed, or if the socket breaks.
pub async fn run(arguments: &ClientArguments, until: impl Future<Output = ()>) -> io::Result<ExitCode> {
    let (cluster, folder, listener) = match open(arguments).await {
        Ok(opened) => opened,
        Err(InputError { what, place, hint, .. }) => {
            say(&json!(ErrorBody { error: what, place, hint }))?;
            return Ok(ExitCode::from(2));
        }
    };
    let namespace = cluster.namespace().to_owned();
    say(&json!({ "socket": folder.socket(), "namespace": namespace }))?;
    let answers = async { axum::serve(listener, routes::router(Arc::new(cluster))).await };
    tokio::select! {
        ended = answers => ended?,
        () = until => {}
        () = end_of_input() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn open(arguments: &ClientArguments) -> Result<(Cluster, Folder, UnixListener), InputError> {
    let cluster = find(arguments).await?;
    let wrong = |error: io::Error| InputError::new("socket", format!("cannot be listened at: {error}"));
    let folder = Folder::create().map_err(wrong)?;
    let listener = UnixListener::bind(folder.socket()).map_err(wrong)?;
    Ok((cluster, folder, listener))
}

/// The cluster that the user means. It is not asked anything yet.
async fn find(arguments: &ClientArguments) -> Result<Cluster, InputError> {
    let hint = "KUBECONFIG names the file; `kubectl config get-contexts` lists what it knows";
    let wrong = |error: String| {
        InputError::new("kubeconfig", format!("Kubernetes cannot be found: {error}")).hint(hint)
    };
    let config = match &arguments.context {
        Some(context) => {
            let options =
                KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
            Config::from_kubeconfig(&options).await.map_err(|error| wrong(error.to_string()))
        }
        // Of the two ways that failed, this says which: the kubeconfig, not the pod that this would run in.
        None => Config::infer()
            .await
            .map_err(|error| wrong(error.source().map_or_else(|| error.to_string(), ToString::to_string))),
    };
    let mut config = config?;
    config.connect_timeout = Some(CONNECT);
    let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    if !cluster::is_name(&namespace) {
        let error = InputError::new("--namespace", format!("`{namespace}` is not the name of a namespace"));
        return Err(error.hint("`kubectl get namespaces` lists them"));
    }
    let url = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).map_err(|error| wrong(failure::cause(&error)))?;
    Ok(Cluster::new(client, namespace, url))
}

/// A folder that only this user can enter. It is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn create() -> io::Result<Folder> {
        let name = format!("bellwether-{}", &Secret::random()?.to_text()[..16]);
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = runtime.into_iter().chain([std::env::temp_dir(), "/tmp".into()]);
        let mut last = io::ErrorKind::NotFound.into();
        for place in places {
            let path = place.join(&name);
            // The address of a socket has little room.
            if path.as_os_str().len() > 90 {
                continue;
            }
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn say(line: &Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

/// Waits until the command that started this program ends, or closes its end of the pipe.
async fn end_of_input() {
    let (tell, ended) = tokio::sync::oneshot::channel();
    // A thread of its own: the end of the program does not wait for it.
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut bytes = [0; 64];
        loop {
            match input.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        let _ = tell.send(());
    });
    let _ = ended.await;
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_of_the_socket_is_private_and_goes() {
        let folder = Folder::create().unwrap();
        let path = folder.0.clone();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(folder.socket(), "").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
