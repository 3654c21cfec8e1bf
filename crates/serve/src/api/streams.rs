//! Server-sent events: the state as it changes, and a job's logs and steps as they come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bellwether_core::record::{Line, StepRecord};
use bellwether_runtime::journal;
use bellwether_runtime::run_dir::RunDir;
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
use super::tail::{Logs, last, lines};
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

/// Journal and logs.
struct Words {
    /// Lines that are there already, the last ones.
    begin: VecDeque<Line>,
    journal: journal::Tail,
    logs: Logs,
}

impl Words {
    /// From this many lines before the end on, in the journal those that are worth reading.
    fn new(folder: PathBuf, lines: usize) -> Words {
        let mut journal = RunDir::at(&folder).follow_journal();
        // Most lines are of no interest, so those that are may be far back.
        let _ = journal.skip_to_last(usize::MAX);
        let mut begin = VecDeque::new();
        loop {
            let read = journal.read().unwrap_or_default();
            if read.is_empty() {
                return Words { begin, journal, logs: Logs::new(folder, lines) };
            }
            begin.extend(read.into_iter().filter(is_of_interest));
            begin.drain(..begin.len().saturating_sub(lines));
        }
    }
}

/// Whether a line of the journal belongs into a log: steps have a stream of their own, and there are many.
fn is_of_interest(line: &Line) -> bool {
    !matches!(line.event, bellwether_core::record::Event::Committed { .. })
}

impl Source for Words {
    fn look(&mut self) -> Option<News> {
        let mut news = News::new();
        let begin = std::mem::take(&mut self.begin);
        // A journal that cannot be read now is read at the next look.
        let read = self.journal.read().unwrap_or_default();
        let logs = self.logs.look();
        if begin.is_empty() && read.is_empty() && logs.is_none() {
            return None;
        }
        for line in begin.into_iter().chain(read.into_iter().filter(is_of_interest)) {
            let sentence = line.event.sentence();
            let Ok(line) = serde_json::to_value(line) else { continue };
            news.extend(serde_json::to_value(JournalEvent { sentence, line }).map(|data| ("journal", data)));
        }
        for (file, line) in logs.unwrap_or_default() {
            news.extend(serde_json::to_value(LogEvent { file, line }).map(|data| ("log", data)));
        }
        Some(news)
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
        Some(lines(&mut self.0)?.into_iter().filter_map(step).collect())
    }
}

pub(super) async fn logs(call: Call) -> Result<Response, Failure> {
    follow(call, Words::new)
}

pub(super) async fn steps(call: Call) -> Result<Response, Failure> {
    follow(call, |folder, lines| Steps(last(RunDir::at(folder).metrics_file(), lines)))
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
