//! Checkpoints in slices: this worker's half. It copies its part of the state at a boundary, which is all that training
//! waits for, and writes it on a thread of its own.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_core::job::CheckpointUrl;

use super::Worker;
use super::links::LinkError;
use crate::control::generated::Welcome;
use crate::membership::{FromWorker, SlicesWritten};
use crate::objects::{self, Objects, StoreError};
use crate::slices::{self, ReadError, Slice};
use crate::state::hex;
use crate::transfer::{read, write};

/// How long a worker that leaves finishes what it writes.
const LEAVING: Duration = Duration::from_secs(30);

/// Time between two looks whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// Where slices are written and read.
pub(super) struct Slices {
    objects: Arc<dyn Objects>,
    /// Where the checkpoints are of the run that this one goes on from.
    origin: Option<Arc<dyn Objects>>,
    shared: Arc<Shared>,
    running: Option<Running>,
}

/// What the thread that writes leaves behind.
#[derive(Default)]
struct Shared {
    /// Memory for the copy, in use already: the system need not find it while training waits.
    memory: Mutex<Vec<f32>>,
    /// The last slices that were written.
    written: Mutex<Option<SlicesWritten>>,
}

struct Running {
    epoch: u64,
    step: u64,
    thread: JoinHandle<()>,
}

/// What is written at one boundary.
struct Work {
    epoch: u64,
    step: u64,
    /// Slices of all workers, and those of this one.
    count: u64,
    mine: Range<u64>,
    /// Elements of the whole state.
    length: u64,
}

impl Work {
    fn range(&self, index: u64) -> Range<u64> {
        slices::range(self.length, index, self.count)
    }

    /// Elements of all slices of this worker.
    fn part(&self) -> Range<u64> {
        self.range(self.mine.start).start..self.range(self.mine.end - 1).end
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Slices {
    /// Opens what the coordinator names; nothing where it writes the checkpoints itself.
    pub(super) fn open(welcome: &Welcome) -> Result<Option<Slices>, StoreError> {
        let place = |text: &str| -> Result<Option<Arc<dyn Objects>>, StoreError> {
            if text.is_empty() {
                return Ok(None);
            }
            let url: CheckpointUrl = text.parse().map_err(|error: bellwether_core::ParseError| {
                StoreError::Environment { variable: "checkpoint.url".into(), what: error.to_string() }
            })?;
            objects::open(&url).map(Some)
        };
        let origin = place(&welcome.origin_url)?;
        let open = |objects| Slices { objects, origin, shared: Arc::default(), running: None };
        Ok(place(&welcome.checkpoint_url)?.map(open))
    }

    fn is_busy(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.thread.is_finished())
    }

    fn join(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.thread.join();
        }
    }

    /// Makes the memory for a copy of this many elements, on a thread of its own.
    fn prepare(&self, elements: usize) {
        if self.is_busy() || lock(&self.shared.memory).capacity() >= elements {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let make = move || {
            // Written to, so that the system has to give it.
            let memory = vec![1.0; elements];
            let mut place = lock(&shared.memory);
            if place.capacity() < elements {
                *place = memory;
            }
        };
        // Without a thread the first copy makes it.
        let _ = std::thread::Builder::new().name("slices-memory".into()).spawn(make);
    }
}

/// Writes the slices of a copy one after another.
fn store(objects: &dyn Objects, work: &Work, copy: &[f32]) -> Result<Vec<Slice>, StoreError> {
    let first = work.part().start;
    let folder = slices::folder_of(work.step);
    work.mine
        .clone()
        .map(|index| {
            let range = work.range(index);
            let values = &copy[(range.start - first) as usize..(range.end - first) as usize];
            let bytes: &[u8] = bytemuck::cast_slice(values);
            let digest = hex(blake3::hash(bytes).as_bytes());
            let slice = Slice { index, offset: 4 * range.start, bytes: bytes.len() as u64, digest };
            objects.put(&format!("{folder}/{}", slice.name(work.count as usize)), bytes)?;
            Ok(slice)
        })
        .collect()
}

impl Worker {
    /// Whether this worker writes slices; then the member hears whether some are on their way.
    pub(super) fn look_at_slices(&mut self) {
        if let Some(slices) = &self.slices {
            self.member.uploads(slices.is_busy());
        }
    }

    /// Makes the memory that the copy at a later boundary needs.
    pub(super) fn prepare_slices(&self) {
        let Some(slices) = &self.slices else { return };
        let members = self.member.membership().active.len().max(1);
        if self.member.membership().rank(self.connector.me).is_some() {
            let length = slices::length(&read(&self.engine.state));
            slices.prepare(length.div_ceil(members as u64) as usize + 1);
        }
    }

    /// Copies this worker's part of the state and writes it meanwhile. What is on its way already is not written twice.
    pub(super) fn write_slices(&mut self) {
        let began = Instant::now();
        let (epoch, step) = (self.member.membership().epoch, self.member.step());
        let members = self.member.membership().active.len() as u64;
        let Some(rank) = self.member.membership().rank(self.connector.me) else { return };
        let say = self.connection.voice();
        let Some(slices) = &mut self.slices else { return };
        if slices.running.as_ref().is_some_and(|r| (r.epoch, r.step) == (epoch, step)) && slices.is_busy() {
            return;
        }
        slices.join();
        if let Some(written) =
            lock(&slices.shared.written).clone().filter(|w| (w.epoch, w.step) == (epoch, step))
        {
            return say(FromWorker::SlicesWritten(written));
        }
        let state = read(&self.engine.state);
        let length = slices::length(&state);
        let count = slices::count(length, members);
        let each = count / members;
        let mine = rank as u64 * each..(rank as u64 + 1) * each;
        let work = Work { epoch, step, count, mine, length };
        let mut copy = std::mem::take(&mut *lock(&slices.shared.memory));
        slices::copy(&state, work.part(), &mut copy);
        let noise = state.noise;
        drop(state);
        let (objects, shared) = (Arc::clone(&slices.objects), Arc::clone(&slices.shared));
        let stall_s = began.elapsed().as_secs_f64();
        let say_no = self.connection.voice();
        let run = move || {
            match store(&*objects, &work, &copy) {
                Ok(slices) => {
                    let Work { epoch, step, count, .. } = work;
                    let written = SlicesWritten { epoch, step, count, slices, noise, stall_s };
                    *lock(&shared.written) = Some(written.clone());
                    say(FromWorker::SlicesWritten(written));
                }
                Err(error) => say(FromWorker::CheckpointFailed { step, why: error.to_string() }),
            }
            *lock(&shared.memory) = copy;
        };
        match std::thread::Builder::new().name("slices".into()).spawn(run) {
            Ok(thread) => slices.running = Some(Running { epoch, step, thread }),
            Err(_) => {
                let why = "no thread could be started to write it".to_string();
                say_no(FromWorker::CheckpointFailed { step, why });
            }
        }
    }

    /// Finishes what is being written before this worker leaves, unless that takes too long.
    pub(super) fn finish_slices(&mut self) {
        let until = Instant::now() + LEAVING;
        while self.slices.as_ref().is_some_and(Slices::is_busy) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }

    /// Reads the checkpoint of `step` from where the workers of some earlier membership wrote it.
    pub(super) fn load_slices(&mut self, step: u64) -> Result<u64, LinkError> {
        let Some(slices) = &self.slices else { return Err(LinkError::NoCheckpoint) };
        let places = [Some(&slices.objects), slices.origin.as_ref()];
        let mut result = Err(ReadError::Damaged("it is not there".into()));
        for objects in places.into_iter().flatten() {
            result = self.load_from(&**objects, step);
            match &result {
                Ok(()) => break,
                // Perhaps the other place has it.
                Err(ReadError::Damaged(_)) => {}
                Err(ReadError::Store(_)) => break,
            }
        }
        match result {
            Ok(()) => {
                self.engine.touched();
                Ok(step)
            }
            Err(error) => {
                if let ReadError::Damaged(_) = error {
                    self.connection.say(FromWorker::CheckpointDamaged { step, why: error.to_string() });
                }
                Err(LinkError::broken(format!("the checkpoint of step {step} cannot be loaded"))(
                    std::io::Error::other(error.to_string()),
                ))
            }
        }
    }

    fn load_from(&self, objects: &dyn Objects, step: u64) -> Result<(), ReadError> {
        let manifest = slices::read_manifest(objects, step)?;
        slices::fill(objects, &manifest, &mut write(&self.engine.state))
    }
}
