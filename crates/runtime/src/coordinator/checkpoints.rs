//! The coordinator's end of the state streams: receives checkpoints and writes them, reads them back and
//! sends them to workers that start anew.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::checkpoint::{CheckpointError, Loaded, Store};
use crate::membership::TraineeDescription;
use crate::mesh::{ConnectionKind, Inbox, InboxError};
use crate::state::TrainingState;
use crate::transfer::{self, Header, Kind};

/// A peer that sends nothing for this long in the middle of a stream is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// A checkpoint came, whole or not.
#[derive(Debug)]
pub(super) struct Stored {
    /// Its step.
    pub(super) step: u64,
    /// Its file and size, or why there is none.
    pub(super) result: Result<(PathBuf, u64), String>,
    /// Seconds from the first byte to the end.
    pub(super) seconds: f64,
}

#[derive(Debug, Clone)]
struct Task {
    trainee: TraineeDescription,
    slots: &'static [&'static str],
}

/// Serves state streams on threads of its own.
#[derive(Debug)]
pub(super) struct Checkpoints {
    store: Store,
    task: Mutex<Option<Task>>,
    /// One checkpoint is written at a time: they are of rising steps, and the newest is what counts.
    writing: Mutex<()>,
}

impl Checkpoints {
    /// Takes streams from the inbox until it closes; `tell` hears of every checkpoint.
    pub(super) fn start(
        store: Store,
        inbox: Arc<Inbox>,
        tell: impl Fn(Stored) + Send + Sync + 'static,
    ) -> io::Result<Arc<Checkpoints>> {
        let checkpoints = Arc::new(Checkpoints { store, task: Mutex::new(None), writing: Mutex::new(()) });
        let (served, tell) = (Arc::clone(&checkpoints), Arc::new(tell));
        std::thread::Builder::new().name("checkpoints".into()).spawn(move || {
            loop {
                match inbox.take_any(ConnectionKind::State, Instant::now() + Duration::from_secs(3600)) {
                    Ok((_, stream)) => {
                        let (served, tell) = (Arc::clone(&served), Arc::clone(&tell));
                        std::thread::spawn(move || served.serve(stream, &*tell));
                    }
                    Err(InboxError::TimedOut) => {}
                    Err(InboxError::Closed) => return,
                }
            }
        })?;
        Ok(checkpoints)
    }

    /// The layout is known.
    pub(super) fn learn(&self, trainee: TraineeDescription, slots: &'static [&'static str]) {
        *self.task.lock().expect("no holder of this lock panics") = Some(Task { trainee, slots });
    }

    fn task(&self) -> io::Result<Task> {
        let task = self.task.lock().expect("no holder of this lock panics");
        task.clone().ok_or_else(|| io::Error::other("the layout is not known yet"))
    }

    /// The newest usable checkpoint.
    pub(super) fn newest(&self) -> Result<Option<Loaded>, CheckpointError> {
        let task = self.task.lock().expect("no holder of this lock panics").clone();
        task.map_or(Ok(None), |task| self.store.newest(&task.trainee.layout, task.slots))
    }

    fn serve(&self, mut stream: TcpStream, tell: &dyn Fn(Stored)) {
        let limits =
            stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        let Ok(first) = limits.and_then(|()| transfer::receive_header(&mut stream)) else { return };
        match first.kind {
            // A worker that asks and hears nothing says so itself.
            Kind::Fetch => drop(self.send(&mut stream, first.step)),
            Kind::Begin => {
                let began = Instant::now();
                let result = self.receive(&mut stream, first);
                tell(Stored { step: first.step, result, seconds: began.elapsed().as_secs_f64() });
            }
            Kind::Chunk | Kind::End => {}
        }
    }

    fn receive(&self, stream: &mut TcpStream, begin: Header) -> Result<(PathBuf, u64), String> {
        let task = self.task().map_err(|e| e.to_string())?;
        let mut state = TrainingState::zeros(&task.trainee.layout, task.slots.len());
        transfer::receive_whole(stream, begin, &mut state)
            .map_err(|e| format!("the state did not arrive whole: {e}"))?;
        let _one_at_a_time = self.writing.lock().expect("no holder of this lock panics");
        self.store
            .write(&state, &task.trainee.layout, task.slots, &task.trainee.fingerprint)
            .map_err(|e| e.to_string())
    }

    fn send(&self, stream: &mut TcpStream, step: u64) -> Result<(), String> {
        let task = self.task().map_err(|e| e.to_string())?;
        let state = self.store.read(step, &task.trainee.layout, task.slots).map_err(|e| e.to_string())?;
        transfer::send_whole(stream, &state).map_err(|e| e.to_string())
    }
}
