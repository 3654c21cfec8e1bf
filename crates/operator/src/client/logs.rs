//! What a job's pods say, as the daemon's stream of events: lines, and the end.
//!
//! Of a native job it is the coordinator's log, of others that of the worker of rank 0. The next pod's log follows on
//! one that was lost.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::poll_fn;
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::failure::Failure;
use crate::crd::ElasticJob;
use crate::labels;
use crate::reconcile::Role;

/// Time between two looks for the next pod.
const LOOK: Duration = Duration::from_secs(1);

/// Time without an event after which a comment keeps the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes of a line: pods may print anything.
const LINE_BYTES: usize = 64 << 10;

/// What is asked for.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Wish {
    /// Whether to go on until the job ends.
    #[serde(default)]
    follow: bool,
    /// The last lines of what was said so far.
    #[serde(default = "many")]
    lines: u32,
}

fn many() -> u32 {
    1000
}

/// A log that is read.
struct Log {
    /// What it is called.
    file: String,
    reader: Pin<Box<dyn AsyncBufRead + Send>>,
}

/// What is followed of a job.
struct Source {
    cluster: Arc<Cluster>,
    job: ElasticJob,
    wish: Wish,
    /// The pod whose log was read last, by its name.
    last: Option<String>,
}

/// The client is gone, or the log broke: the client asks again.
struct Broken;

pub(super) async fn logs(
    State(cluster): State<Arc<Cluster>>,
    Path(name): Path<String>,
    Query(wish): Query<Wish>,
) -> Result<Response, Failure> {
    let job = cluster.object(&name).await?;
    let mut source = Source { cluster, job, wish, last: None };
    // Before the stream begins, what is wrong can still be said.
    let first = source.open().await?;
    if first.is_none() {
        source.check_silence()?;
    }
    let (sender, mut receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let gone = sender.clone();
        tokio::select! {
            _ = source.tell(first, sender) => {}
            () = gone.closed() => {}
        }
    });
    let events = poll_fn(move |context| receiver.poll_recv(context)).map(Ok::<Event, Infallible>);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

impl Source {
    /// The newest pod of which something is to be heard, if there is one.
    async fn pod(&self) -> Result<Option<Pod>, Failure> {
        let uid = self.job.metadata.uid.as_deref().unwrap_or_default();
        let role = if self.job.spec.is_native() { Role::Coordinator } else { Role::Worker };
        let mut selector = format!("{}={uid},{}={}", labels::JOB_UID, labels::ROLE, role.label());
        if role == Role::Worker {
            selector.push_str(&format!(",{}=0", labels::RANK));
        }
        let (api, parameters) = (self.cluster.pods(), ListParams::default().labels(&selector));
        let asked = self.cluster.asked_of("pods", "list", None);
        let pods = self.cluster.answer(asked, api.list(&parameters)).await?.items;
        let age = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Ok(pods.into_iter().max_by_key(age))
    }

    /// Opens the log of a pod that has begun, and of which not all was read.
    async fn open(&mut self) -> Result<Option<Log>, Failure> {
        let Some(pod) = self.pod().await? else { return Ok(None) };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let is_same = self.last.as_ref() == Some(&name);
        if is_same && !is_running(&pod) {
            return Ok(None);
        }
        let lines = match (is_same, &self.last) {
            // It was cut off while the pod goes on: what was read is not told again.
            (true, _) => Some(0),
            (false, None) => Some(i64::from(self.wish.lines)),
            (false, Some(_)) => None,
        };
        let annotations = pod.metadata.annotations.as_ref();
        let container = annotations.and_then(|annotations| annotations.get(labels::CONTAINER)).cloned();
        let (follow, api) = (self.wish.follow, self.cluster.pods());
        let parameters = LogParams { container, follow, tail_lines: lines, ..LogParams::default() };
        let asked = self.cluster.asked_of("pods/log", "get", Some(&name));
        match self.cluster.answer_or(asked, api.log_stream(&name, &parameters)).await? {
            Ok(reader) => {
                let log = Log { file: format!("{name}.log"), reader: Box::pin(reader) };
                self.last = Some(name);
                Ok(Some(log))
            }
            // A container that has not begun; or a pod that was removed since it was listed.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => Ok(None),
            Err(error) => Err(asked.failed(&error)),
        }
    }

    /// Refuses where nothing will ever be heard.
    fn check_silence(&self) -> Result<(), Failure> {
        let job = super::state::state(&self.job);
        let has_begun = job.step > 0;
        if !job.state.has_ended() || !has_begun {
            return Ok(());
        }
        let failure =
            Failure::new(StatusCode::GONE, &job.name, "the job's pods are gone, and their logs with them");
        Err(failure.hint("what should outlive pods has to be collected from their nodes while they run"))
    }

    /// Sends what is said until all was, or the job has ended if that is asked for.
    async fn tell(mut self, mut log: Option<Log>, sender: mpsc::Sender<Event>) -> Result<(), Broken> {
        let name = self.job.metadata.name.clone().unwrap_or_default();
        loop {
            // In this order: what was said before the end is still read.
            let job = self.cluster.job(&name).await.map_err(|_| Broken)?;
            let mut has_news = false;
            if let Some(Log { file, mut reader }) = log.take() {
                while let Some(line) = line(&mut reader).await.map_err(|_| Broken)? {
                    has_news = true;
                    send(&sender, "log", &json!({ "file": file, "line": line })).await?;
                }
            }
            if !self.wish.follow || job.state.has_ended() && !has_news {
                return send(&sender, "end", &json!({ "state": job.state, "why": job.why })).await;
            }
            sleep(LOOK).await;
            log = self.open().await.map_err(|_| Broken)?;
        }
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

async fn send(sender: &mpsc::Sender<Event>, name: &str, data: &Value) -> Result<(), Broken> {
    sender.send(Event::default().event(name).data(data.to_string())).await.map_err(|_| Broken)
}

/// The next line; of one that is very long its beginning.
async fn line(reader: &mut Pin<Box<dyn AsyncBufRead + Send>>) -> io::Result<Option<String>> {
    let (mut line, mut is_some) = (Vec::new(), false);
    loop {
        let bytes = reader.fill_buf().await?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let (used, is_over) = (end.map_or(bytes.len(), |end| end + 1), bytes.is_empty());
        is_some |= !is_over;
        let room = LINE_BYTES.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        reader.consume_unpin(used);
        if end.is_some() || is_over {
            let text = String::from_utf8_lossy(&line);
            return Ok(is_some.then(|| text.trim_end_matches('\r').to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut reader: Pin<Box<dyn AsyncBufRead + Send>> =
            Box::pin(futures::io::BufReader::with_capacity(7, futures::io::Cursor::new(bytes.to_vec())));
        let mut all = Vec::new();
        runtime.block_on(async {
            while let Some(line) = line(&mut reader).await.unwrap() {
                all.push(line);
            }
        });
        all
    }

    #[test]
    fn whatever_pods_print_becomes_lines() {
        assert_eq!(lines(b"one\r\nanother line\n\nthe last"), ["one", "another line", "", "the last"]);
        assert_eq!(lines(b""), [""; 0]);
        assert_eq!(lines(b"\xff\n"), ["\u{fffd}"]);
        let long = lines(&[vec![b'x'; 3 * LINE_BYTES], b"\nnext".to_vec()].concat());
        assert_eq!((long[0].len(), long[1].as_str()), (LINE_BYTES, "next"));
    }
}
