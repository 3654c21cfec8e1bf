//! Server-sent events: the state as it changes, and a job's logs and steps as they come.

use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bellwether_core::record::StepRecord;
use bellwether_runtime::run_dir::{RunDir, RunLog, RunWord};
use bellwether_runtime::tail::Tail;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::Api;
use super::call::Call;
use super::failure::Failure;
use crate::snapshot::{JobState, Phase};

mod state;

pub(super) use state::{StateEvent, events};

/// Time between two looks at files that grow.
const LOOK: Duration = Duration::from_millis(200);

/// Time without an event after which a comment keeps the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where events go. The sender waits until the client has taken those before, so a slow one costs no memory.
type Sender = mpsc::Sender<Event>;

/// The client is gone.
struct Gone;

/// Sends one event.
async fn send(sender: &Sender, name: &str, data: &impl Serialize) -> Result<(), Gone> {
    // What cannot be written as JSON is left out: it is never of ours.
    let Ok(text) = serde_json::to_string(data) else { return Ok(()) };
    let event = Event::default().event(name).data(text);
    sender.send(event).await.map_err(|_| Gone)
}

/// Answers with the events that `produce` sends until it ends, the client is gone, or the server stops.
fn stream<F>(call: &Call, produce: impl FnOnce(Sender) -> F) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    let (client, mut stopping) = (sender.clone(), call.api.stopping.clone());
    let work = produce(sender);
    tokio::spawn(async move {
        tokio::select! {
            _ = work => {}
            () = client.closed() => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    });
    let events = ReceiverStream::new(receiver).map(Ok::<Event, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Data of the event `journal`: something that happened in a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct JournalEvent {
    /// It in a sentence; absent where it is of no interest to most.
    sentence: Option<String>,
    /// The line of the journal.
    line: serde_json::Value,
}

/// Data of the event `log`: a line that a process wrote.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LogEvent {
    /// The file, `coordinator.log` or `worker-N.log`.
    file: String,
    /// The line.
    line: String,
}

/// Data of the event `end`: nothing follows.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EndEvent {
    /// What the job is doing.
    state: Phase,
    /// Why, where that needs to be said.
    why: String,
}

/// New events, each a name and its data.
type News = Vec<(&'static str, serde_json::Value)>;

/// What is followed of a run, and what it makes of it.
trait Source: Send + 'static {
    /// What is new, which may be nothing of interest; `None` when all was read.
    fn look(&mut self) -> Option<News>;
}

impl Source for RunLog {
    fn look(&mut self) -> Option<News> {
        let news = |word| match word {
            RunWord::Journal(line) => {
                let sentence = line.event.sentence();
                let line = serde_json::to_value(line).ok()?;
                Some(("journal", serde_json::to_value(JournalEvent { sentence, line }).ok()?))
            }
            RunWord::Log { file, line } => Some(("log", serde_json::to_value(LogEvent { file, line }).ok()?)),
        };
        Some(RunLog::look(self)?.into_iter().filter_map(news).collect())
    }
}

/// Steps.
struct Steps(Tail);

impl Source for Steps {
    fn look(&mut self) -> Option<News> {
        let step = |text: String| {
            let step: StepRecord = serde_json::from_str(&text).ok()?;
            Some(("step", serde_json::to_value(step).ok()?))
        };
        Some(self.0.lines()?.into_iter().filter_map(step).collect())
    }
}

pub(super) async fn logs(call: Call) -> Result<Response, Failure> {
    follow(call, RunLog::new)
}

pub(super) async fn steps(call: Call) -> Result<Response, Failure> {
    follow(call, |folder, lines| Steps(Tail::last(RunDir::at(folder).metrics_file(), lines)))
}

/// Streams what a source has, and what it gets until its job ends if that is asked for.
fn follow<S: Source>(
    call: Call,
    source: impl FnOnce(PathBuf, usize) -> S + Send + 'static,
) -> Result<Response, Failure> {
    let job = call.job(&call.api.engine.now())?.clone();
    let (follows, count) = (call.query.flag("follow"), call.query.whole("lines"));
    let api = call.api.clone();
    Ok(stream(&call, move |sender| async move {
        let folder = job.run_dir.clone();
        let mut source = read(&api, move || source(folder, count)).await?;
        loop {
            // In this order: what was written before the end is still read.
            let job: Arc<JobState> = api.engine.now().jobs.get(&job.name).unwrap_or(&job).clone();
            let news;
            (source, news) = read(&api, move || {
                let news = source.look();
                (source, news)
            })
            .await?;
            if let Some(news) = news {
                for (name, data) in news {
                    send(&sender, name, &data).await?;
                }
                continue;
            }
            if !follows || job.state.has_ended() {
                let end = EndEvent { state: job.state, why: job.why.clone() };
                return send(&sender, "end", &end).await;
            }
            sleep(LOOK).await;
        }
    }))
}

/// Reads files on another thread, with few others beside it.
async fn read<T: Send + 'static>(api: &Api, read: impl FnOnce() -> T + Send + 'static) -> Result<T, Gone> {
    // A client that leaves takes no permit from a thread that reads on.
    let permit = api.readers.clone().acquire_owned().await.map_err(|_| Gone)?;
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read()
    });
    reading.await.map_err(|_| Gone)
}
