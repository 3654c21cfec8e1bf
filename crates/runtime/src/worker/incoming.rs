//! What a shadow has received of the state, and how it keeps that current.

use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::Duration;

use crate::channel::Stream;
use crate::optimizer::UpdateRule;
use crate::state::{Reduced, TrainingState};
use crate::transfer::{self, Header, Kind, read, write};
use crate::workload::WorkloadError;

/// Why the result of an update was not applied to the state that arrives.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotApplied {
    /// The worker has something more urgent to do.
    #[error("interrupted")]
    Interrupted,
    /// The rule failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The rest of the state will never arrive.
    #[error("{0}")]
    Broken(String),
}

#[derive(Debug, Default)]
struct Received {
    /// Step at which each source began.
    begun: Vec<Option<Header>>,
    /// Every chunk that a source still sends was copied at this step or later.
    floors: Vec<u64>,
    /// Steps applied to each chunk that is here.
    chunks: Vec<Option<u64>>,
    failure: Option<String>,
    closed: bool,
}

/// The incoming state streams of one shadow, one per source.
#[derive(Debug)]
pub(super) struct Incoming {
    received: Mutex<Received>,
    changed: Condvar,
    state: Arc<RwLock<TrainingState>>,
    streams: Vec<Stream>,
}

impl Incoming {
    /// Begins to receive into `state` on a thread per stream; `notify` is called when something that
    /// the worker's main thread may wait for has changed.
    pub(super) fn start(
        streams: Vec<Stream>,
        state: Arc<RwLock<TrainingState>>,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Arc<Incoming>> {
        let chunks = read(&state).chunks();
        let received = Received {
            begun: vec![None; streams.len()],
            floors: vec![0; streams.len()],
            chunks: vec![None; chunks],
            failure: None,
            closed: false,
        };
        let kept = streams.clone();
        let incoming = Arc::new(Incoming {
            received: Mutex::new(received),
            changed: Condvar::new(),
            state,
            streams: kept,
        });
        for (source, stream) in streams.into_iter().enumerate() {
            let (incoming, notify) = (Arc::clone(&incoming), Arc::clone(&notify));
            std::thread::Builder::new().name(format!("state-in-{source}")).spawn(move || {
                if let Err(error) = incoming.receive(source, stream, &*notify) {
                    incoming.lock().failure.get_or_insert(error.to_string());
                }
                incoming.changed.notify_all();
                notify();
            })?;
        }
        Ok(incoming)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Received> {
        self.received.lock().expect("no holder of this lock panics")
    }

    fn receive(&self, source: usize, mut stream: Stream, notify: &dyn Fn()) -> std::io::Result<()> {
        let begin = transfer::receive_header(&mut stream)?;
        if begin.kind != Kind::Begin {
            return Err(std::io::Error::other("a state stream that does not begin"));
        }
        self.lock().begun[source] = Some(begin);
        self.changed.notify_all();
        notify();
        let mut values = Vec::new();
        loop {
            let header = transfer::receive_header(&mut stream)?;
            match header.kind {
                Kind::Chunk => {
                    let chunk =
                        transfer::receive_chunk(&mut stream, &header, &read(&self.state), &mut values)?;
                    let mut received = self.lock();
                    if received.closed {
                        return Ok(());
                    }
                    write(&self.state).write_chunk(chunk, &values);
                    received.chunks[chunk] = Some(header.step);
                    received.floors[source] = header.step;
                }
                Kind::End => {
                    self.lock().floors[source] = u64::MAX;
                    return Ok(());
                }
                Kind::Begin | Kind::Fetch | Kind::Part | Kind::Shards => {
                    return Err(std::io::Error::other("a message out of place"));
                }
            }
            self.changed.notify_all();
        }
    }

    /// What the sources began with: all do at the same boundary.
    pub(super) fn begun(&self) -> Option<Header> {
        self.lock().begun.iter().copied().collect::<Option<Vec<_>>>()?.first().copied()
    }

    /// Why the state will not come.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Whether all chunks are here.
    pub(super) fn complete(&self) -> bool {
        let received = self.lock();
        received.floors.iter().all(|f| *f == u64::MAX) && received.chunks.iter().all(Option::is_some)
    }

    /// Applies the result of the update that begins with `step` to the chunks that are here and lack it. Waits until no
    /// chunk that lacks it can still arrive.
    pub(super) fn apply(
        &self,
        step: u64,
        rule: &mut dyn UpdateRule,
        reduced: Reduced<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), NotApplied> {
        let mut received = self.lock();
        while received.floors.iter().any(|floor| *floor <= step) {
            if let Some(failure) = &received.failure {
                return Err(NotApplied::Broken(failure.clone()));
            }
            if interrupted() {
                return Err(NotApplied::Interrupted);
            }
            let wait = self.changed.wait_timeout(received, Duration::from_millis(20));
            received = wait.expect("no holder of this lock panics").0;
        }
        let mut state = write(&self.state);
        for (chunk, at) in received.chunks.iter_mut().enumerate() {
            if *at == Some(step) {
                state.apply_chunk(rule, reduced, chunk)?;
                *at = Some(step + reduced.update.steps);
            }
        }
        state.counted(&reduced);
        Ok(())
    }
}

impl Incoming {
    /// Ends all streams: nothing is written to the state after this returns.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        for stream in &self.streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
