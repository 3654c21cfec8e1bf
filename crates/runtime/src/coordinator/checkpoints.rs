//! The coordinator's end of the state streams: receives checkpoints and writes them, reads them back and sends them to
//! workers that start from them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::virtual_shards::VirtualShards;

use super::collection::Collection;
use super::shared_state::{Part, SharedState};
use crate::channel::{ConnectionKind, Inbox, InboxError, Stream};
use crate::checkpoint::{CheckpointError, Loaded, Store};
use crate::membership::{WorkerId, WorkloadDescription};
use crate::sharding::SlotShards;
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
    /// The longest time that a worker copied its slices; none where one worker sent the whole.
    pub(super) stall_s: Option<f64>,
}

/// What became of a state on its way.
#[derive(Debug)]
pub(super) enum Told {
    /// It is here, not yet written. Whether it is to be, the receiver of this answers.
    Received {
        /// Who handed it over.
        from: WorkerId,
        /// Its step.
        step: u64,
        /// Whether the run may go on from it.
        counts: Sender<bool>,
    },
    /// All parts have arrived and are not yet written; or they cannot be put together.
    Collected(u64, Result<(), String>),
    /// It was written, or could not be.
    Stored(Stored),
}

/// Checkpoints that another process opens: further names of the same files, so that no pruning takes them away before.
#[derive(Debug)]
pub(super) struct Offer {
    /// Where they are.
    pub(super) folder: PathBuf,
}

/// Most checkpoints that wait to be opened; then the oldest goes.
const OFFERED_MAX: usize = 64;

impl Offer {
    /// Offers the checkpoint in this file. One that cannot be offered is not: the run goes on.
    fn make(&self, path: &Path, step: u64) {
        let Some(name) = path.file_name().filter(|_| step > 0) else { return };
        let offered = self.folder.join(name);
        let _ = crate::private::folder(&self.folder);
        if std::fs::hard_link(path, &offered).is_err() && !offered.exists() {
            // Another file system.
            let part = offered.with_extension("part");
            let _ = std::fs::copy(path, &part).and_then(|_| std::fs::rename(&part, &offered));
        }
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        names.sort_unstable();
        for old in names.iter().take(names.len().saturating_sub(OFFERED_MAX)) {
            let _ = std::fs::remove_file(old);
        }
    }
}

#[derive(Debug, Clone)]
struct Task {
    workload: WorkloadDescription,
    slots: Arc<[String]>,
    /// Whether workers share the slots, and each sends what it owns.
    sharded: bool,
}

/// Serves state streams on threads of its own.
#[derive(Debug)]
pub(super) struct Checkpoints {
    store: Store,
    task: Mutex<Option<Task>>,
    /// Where the script that trains finds them.
    offer: Option<Offer>,
    /// One checkpoint is written at a time.
    writing: Mutex<()>,
    /// Whether a worker may fetch a state as soon as it came.
    holds: bool,
    /// The newest state that came.
    held: Mutex<Option<Arc<TrainingState>>>,
    /// The state that is being put together from parts.
    collecting: Mutex<Option<Collection>>,
    /// The state that is being put together from what workers share.
    shared: Mutex<SharedState>,
    /// Where streams wait until they are taken.
    inbox: Arc<Inbox>,
    /// The order in which states came.
    queue: Arc<Queue>,
    /// Streams under way.
    busy: AtomicU32,
}

impl Checkpoints {
    /// Takes streams from the inbox until it closes; `tell` hears of every checkpoint.
    pub(super) fn start(
        store: Store,
        offer: Option<Offer>,
        holds: bool,
        inbox: Arc<Inbox>,
        tell: impl Fn(Told) + Send + Sync + 'static,
    ) -> io::Result<Arc<Checkpoints>> {
        let checkpoints = Arc::new(Checkpoints {
            store,
            offer,
            holds,
            task: Mutex::default(),
            writing: Mutex::default(),
            held: Mutex::default(),
            collecting: Mutex::default(),
            shared: Mutex::default(),
            inbox: Arc::clone(&inbox),
            queue: Arc::default(),
            busy: AtomicU32::new(0),
        });
        let (served, tell) = (Arc::clone(&checkpoints), Arc::new(tell));
        std::thread::Builder::new().name("checkpoints".into()).spawn(move || {
            loop {
                match inbox.take_any(ConnectionKind::State, Instant::now() + Duration::from_secs(3600)) {
                    Ok((arrival, stream)) => {
                        let (served, tell) = (Arc::clone(&served), Arc::clone(&tell));
                        served.busy.fetch_add(1, Ordering::AcqRel);
                        let ticket = served.queue.ticket();
                        std::thread::spawn(move || {
                            served.serve(arrival.worker, stream, ticket, &*tell);
                            served.busy.fetch_sub(1, Ordering::AcqRel);
                        });
                    }
                    Err(InboxError::TimedOut) => {}
                    Err(InboxError::Closed) => return,
                }
            }
        })?;
        Ok(checkpoints)
    }

    /// Whether a checkpoint may be on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.inbox.has(ConnectionKind::State) || self.busy.load(Ordering::Acquire) > 0
    }

    /// The layout is known.
    pub(super) fn learn(&self, workload: WorkloadDescription, slots: Vec<String>, sharded: bool) {
        *self.task.lock().expect("no holder of this lock panics") =
            Some(Task { workload, slots: slots.into(), sharded });
    }

    /// Keeps the state that training begins from as the checkpoint of step 0.
    pub(super) fn keep_initial(&self, file: &Path) -> io::Result<()> {
        let task = self.task()?;
        let bytes = std::fs::read(file)?;
        let mut state = TrainingState::zeros(&task.workload.layout, task.slots.len());
        let expected = 4 * (state.parameters.len() + state.model_state.len());
        if bytes.len() != expected {
            return Err(io::Error::other(format!(
                "it has {} bytes, the layout needs {expected}",
                bytes.len()
            )));
        }
        let values = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let places = state.parameters.iter_mut().chain(&mut state.model_state);
        places.zip(values).for_each(|(place, value)| *place = value);
        self.store(&state).map(drop).map_err(io::Error::other)
    }

    fn task(&self) -> io::Result<Task> {
        let task = self.task.lock().expect("no holder of this lock panics");
        task.clone().ok_or_else(|| io::Error::other("the layout is not known yet"))
    }

    /// The newest usable checkpoint.
    pub(super) fn newest(&self) -> Result<Option<Loaded>, CheckpointError> {
        let task = self.task.lock().expect("no holder of this lock panics").clone();
        task.map_or(Ok(None), |task| self.store.newest(&task.workload.layout, &task.slots))
    }

    /// The state after `step` is to be put together from what these hold.
    pub(super) fn collect(&self, step: u64, holders: Vec<WorkerId>, sharded: bool) {
        let Ok(task) = self.task() else { return };
        let mut collecting = self.collecting.lock().expect("no holder of this lock panics");
        match collecting.as_mut().filter(|present| present.step == step) {
            Some(present) => present.replace(&holders),
            None => *collecting = Some(Collection::new(step, holders, &task.workload, sharded)),
        }
    }

    fn serve(&self, from: WorkerId, mut stream: Stream, ticket: Ticket, tell: &dyn Fn(Told)) {
        let limits =
            stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        let Ok(first) = limits.and_then(|()| transfer::receive_header(&mut stream)) else { return };
        if self.offer.is_some() && first.kind == Kind::Begin {
            // A later state would have the earlier ones pruned before they were offered. And a worker that is faster
            // than the disk waits, instead of filling the memory with states.
            ticket.wait();
        }
        let began = Instant::now();
        match first.kind {
            // A worker that asks and hears nothing says so itself.
            Kind::Fetch => drop(self.send(&mut stream, first.step)),
            Kind::Begin | Kind::Shards => {
                let result = match self.receive(&mut stream, first) {
                    Ok(Some(state)) if asked(from, first.step, tell) => self.store(&self.hold(state)),
                    // Others have the rest of it, or it does not count: no worker is kept waiting.
                    Ok(_) => return,
                    Err(why) => Err(why),
                };
                tell(Told::Stored(Stored {
                    step: first.step,
                    result,
                    seconds: began.elapsed().as_secs_f64(),
                    stall_s: None,
                }));
            }
            Kind::Part => {
                // A stream that breaks off is sent again by the worker that takes the sender's place.
                let Ok(Some(state)) = self.receive_part(from, &mut stream, first.step) else { return };
                tell(Told::Collected(first.step, Ok(())));
                let result = self.store(&state);
                tell(Told::Stored(Stored {
                    step: first.step,
                    result,
                    seconds: began.elapsed().as_secs_f64(),
                    stall_s: None,
                }));
            }
            Kind::Chunk | Kind::End => {}
        }
    }

    /// Receives a state, or what one worker has of a state that several share; the whole once all of it is here.
    fn receive(&self, stream: &mut Stream, first: Header) -> Result<Option<TrainingState>, String> {
        let task = self.task().map_err(|e| e.to_string())?;
        let late = |e: io::Error| format!("the state did not arrive whole: {e}");
        let layout = &task.workload.layout;
        if !task.sharded {
            let mut state = TrainingState::zeros(layout, task.slots.len());
            transfer::receive_whole(stream, first, &mut state).map_err(late)?;
            return Ok(Some(state));
        }
        let part = if first.kind == Kind::Begin {
            let mut state = TrainingState::zeros(layout, 0);
            transfer::receive_whole(stream, first, &mut state).map_err(late)?;
            Part::Rest(state)
        } else {
            let cut = VirtualShards::of(layout.parameter_count());
            let mut slots = SlotShards::none(cut, task.slots.len());
            transfer::receive_shards(stream, first.step, &mut slots).map_err(late)?;
            Part::Slots(slots)
        };
        let mut shared = self.shared.lock().expect("no holder of this lock panics");
        Ok(shared.take(first.step, part, (layout, task.slots.len())))
    }

    /// Receives a part; the whole state when it was the last.
    fn receive_part(
        &self,
        from: WorkerId,
        stream: &mut Stream,
        step: u64,
    ) -> io::Result<Option<Arc<TrainingState>>> {
        let Task { workload, slots, .. } = self.task()?;
        let blank = {
            let collecting = self.collecting.lock().expect("no holder of this lock panics");
            let present = collecting.as_ref().filter(|present| present.step == step);
            present.and_then(|present| present.blank(from, &workload, slots.len()))
        };
        let Some(mut part) = blank else { return Ok(None) };
        let begin = transfer::receive_header(stream)?;
        transfer::receive_whole(stream, begin, &mut part)?;
        let whole = {
            let mut collecting = self.collecting.lock().expect("no holder of this lock panics");
            let present = collecting.as_mut().filter(|present| present.step == step);
            present.and_then(|present| present.take(from, part, &workload))
        };
        Ok(whole.map(|state| self.hold(state)))
    }

    fn hold(&self, state: TrainingState) -> Arc<TrainingState> {
        let state = Arc::new(state);
        if !self.holds {
            return state;
        }
        *self.held.lock().expect("no holder of this lock panics") = Some(Arc::clone(&state));
        state
    }

    fn store(&self, state: &TrainingState) -> Result<(PathBuf, u64), String> {
        let task = self.task().map_err(|e| e.to_string())?;
        let _one_at_a_time = self.writing.lock().expect("no holder of this lock panics");
        let written = self.store.write(state, &task.workload.layout, &task.slots, &task.workload.fingerprint);
        if let (Ok((path, _)), Some(offer)) = (&written, &self.offer) {
            offer.make(path, state.step);
        }
        // States of two steps that end at once may come in any order: one that is late is offered before it goes.
        self.store.prune();
        written.map_err(|e| e.to_string())
    }

    fn send(&self, stream: &mut Stream, step: u64) -> Result<(), String> {
        let held = self.held.lock().expect("no holder of this lock panics").clone();
        if let Some(state) = held.filter(|held| held.step == step) {
            return transfer::send_whole(stream, &state).map_err(|e| e.to_string());
        }
        let task = self.task().map_err(|e| e.to_string())?;
        let state = self.store.read(step, &task.workload.layout, &task.slots).map_err(|e| e.to_string())?;
        transfer::send_whole(stream, &state).map_err(|e| e.to_string())
    }
}

/// Who came first.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<(u64, BTreeSet<u64>)>,
    left: Condvar,
}

/// A place in a queue, until it is dropped.
#[derive(Debug)]
struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

impl Queue {
    fn ticket(self: &Arc<Self>) -> Ticket {
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        waiting.0 += 1;
        let number = waiting.0;
        waiting.1.insert(number);
        Ticket { queue: Arc::clone(self), number }
    }
}

impl Ticket {
    /// Waits until all who came before have left.
    fn wait(&self) {
        let waiting = self.queue.waiting.lock().expect("no holder of this lock panics");
        let is_later = |(_, present): &mut (u64, BTreeSet<u64>)| present.first() != Some(&self.number);
        drop(self.queue.left.wait_while(waiting, is_later).expect("no holder of this lock panics"));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Ok(mut waiting) = self.queue.waiting.lock() {
            waiting.1.remove(&self.number);
        }
        self.queue.left.notify_all();
    }
}

/// Whether the state that this worker handed over counts; it does not if the run's main loop has ended and cannot
/// answer.
fn asked(from: WorkerId, step: u64, tell: &dyn Fn(Told)) -> bool {
    let (counts, answer) = mpsc::channel();
    tell(Told::Received { from, step, counts });
    answer.recv().unwrap_or(false)
}
