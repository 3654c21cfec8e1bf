//! Checkpoints in slices: the coordinator's half. It hears what each worker wrote, and makes a checkpoint of it by
//! writing the manifest. It holds no tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bellwether_core::record::Event as Journaled;

use super::Run;
use super::checkpoints::{Stored, Told};
use super::turns::Incoming;
use crate::checkpoint::CheckpointError;
use crate::membership::coordinator::Event;
use crate::membership::{SlicesWritten, WorkerId, WorkloadDescription};
use crate::noise::Noise;
use crate::slices::{Manifest, SLICES_MAX, Shelf, Slice, Subject};

/// The checkpoints of a run whose workers write them.
pub(super) struct Slices {
    shelf: Shelf,
    /// Where those are of the run that this one goes on from.
    origin: Option<Shelf>,
    /// The run's random name.
    run: String,
    task: Option<(WorkloadDescription, Vec<String>)>,
    /// By step and membership.
    gathering: BTreeMap<(u64, u64), Gathering>,
    /// One manifest is written at a time.
    writing: Arc<Mutex<()>>,
    busy: Arc<AtomicU32>,
    told: Sender<(Instant, Incoming)>,
}

/// Slices of one checkpoint.
struct Gathering {
    began: Instant,
    count: u64,
    /// Who is to write some; empty where that is not known.
    members: BTreeSet<WorkerId>,
    slices: BTreeMap<u64, Slice>,
    noise: Noise,
    stall_s: f64,
}

/// A checkpoint that a run may go on from.
pub(super) struct Candidate {
    pub(super) manifest: Manifest,
    pub(super) path: std::path::PathBuf,
}

impl Slices {
    pub(super) fn new(
        shelf: Shelf,
        origin: Option<Shelf>,
        run: String,
        told: Sender<(Instant, Incoming)>,
    ) -> Slices {
        let (writing, busy) = (Arc::default(), Arc::default());
        Slices { shelf, origin, run, task: None, gathering: BTreeMap::new(), writing, busy, told }
    }

    /// The URLs that workers are told: where to write, and where else to read.
    pub(super) fn urls(&self) -> (String, String) {
        let origin = self.origin.as_ref().map_or_else(String::new, |origin| origin.url().to_string());
        (self.shelf.url().to_string(), origin)
    }

    pub(super) fn learn(&mut self, workload: WorkloadDescription, slots: Vec<String>) {
        self.task = Some((workload, slots));
    }

    /// Whether a manifest is being written.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// The checkpoints that a run may go on from, the newest first, and why newer ones cannot be used. Those of the run
    /// itself only if it is taken up again.
    pub(super) fn candidates(
        &self,
        resumed: bool,
    ) -> Result<(Vec<Candidate>, Vec<CheckpointError>), CheckpointError> {
        let Some((workload, slots)) = &self.task else { return Ok((Vec::new(), Vec::new())) };
        let (mut found, mut skipped): (Vec<Candidate>, Vec<CheckpointError>) = (Vec::new(), Vec::new());
        let shelves = [Some(&self.shelf).filter(|_| resumed), self.origin.as_ref()];
        for shelf in shelves.into_iter().flatten() {
            let steps = shelf
                .steps()
                .map_err(|source| CheckpointError::Store { path: shelf.url().to_string().into(), source })?;
            for step in steps {
                if found.iter().any(|candidate| candidate.manifest.step == step) {
                    continue;
                }
                match shelf.manifest(step) {
                    Ok(manifest) => {
                        let path = shelf.place(step);
                        if let Some(what) = manifest.difference(&workload.layout, slots) {
                            return Err(CheckpointError::OtherJob { path, what });
                        }
                        found.push(Candidate { manifest, path });
                    }
                    Err(error @ CheckpointError::Damaged { .. }) => skipped.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        found.sort_by_key(|candidate| std::cmp::Reverse(candidate.manifest.step));
        match skipped.is_empty() || !found.is_empty() {
            true => Ok((found, skipped)),
            false => Err(skipped.swap_remove(0)),
        }
    }

    /// Takes in what a worker wrote; `members` are those of the membership by which it did, where that is known. True
    /// once all slices of the checkpoint are there.
    fn take(&mut self, worker: WorkerId, members: BTreeSet<WorkerId>, written: SlicesWritten) -> bool {
        let SlicesWritten { epoch, step, count, slices, noise, stall_s } = written;
        if !(1..=SLICES_MAX as u64).contains(&count) || slices.iter().any(|slice| slice.index >= count) {
            return false;
        }
        let begin = || Gathering {
            began: Instant::now(),
            count,
            members,
            slices: BTreeMap::new(),
            noise,
            stall_s: 0.0,
        };
        let gathering = self.gathering.entry((step, epoch)).or_insert_with(begin);
        if gathering.count != count {
            return false;
        }
        gathering.members.remove(&worker);
        gathering.stall_s = gathering.stall_s.max(stall_s);
        gathering.slices.extend(slices.into_iter().map(|slice| (slice.index, slice)));
        gathering.slices.len() as u64 == count
    }

    /// Writes the manifest of what was gathered, on a thread of its own.
    fn commit(&mut self, step: u64, epoch: u64) {
        let Some(gathering) = self.gathering.remove(&(step, epoch)) else { return };
        let Some((workload, slots)) = &self.task else { return };
        let subject = Subject {
            identity: self.shelf.identity(),
            run: &self.run,
            step,
            kernel_class: &workload.fingerprint,
            noise: gathering.noise,
            layout: &workload.layout,
            slots,
        };
        let manifest = Manifest::new(&subject, gathering.slices.into_values().collect());
        let (shelf, writing, busy) = (self.shelf.clone(), Arc::clone(&self.writing), Arc::clone(&self.busy));
        let (told, stall_s, began) = (self.told.clone(), gathering.stall_s, gathering.began);
        busy.fetch_add(1, Ordering::AcqRel);
        let failed = told.clone();
        let write = move || {
            let one_at_a_time = writing.lock().expect("no holder of this lock panics");
            let result = Manifest::decode(&manifest.encode())
                .map_err(|what| format!("the workers' slices do not make a checkpoint: {what}"))
                .and_then(|_| shelf.commit(&manifest).map_err(|error| error.to_string()))
                .map(|()| (shelf.place(step), manifest.bytes().unwrap_or(0)));
            let is_written = result.is_ok();
            let seconds = began.elapsed().as_secs_f64();
            let stored = Stored { step, result, seconds, stall_s: Some(stall_s) };
            let _ = told.send((Instant::now(), Incoming::State(Told::Stored(stored))));
            if is_written {
                // What cannot be removed now is removed the next time.
                let _ = shelf.prune(&manifest);
            }
            drop(one_at_a_time);
            busy.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("manifest".into()).spawn(write).is_err() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
            let result = Err("no thread could be started to write the manifest".into());
            let stored = Stored { step, result, seconds: 0.0, stall_s: None };
            let _ = failed.send((Instant::now(), Incoming::State(Told::Stored(stored))));
        }
    }

    /// Forgets checkpoints for which this says why they never become whole.
    fn abandon(&mut self, why: impl Fn(u64, &Gathering) -> Option<String>) -> Vec<(u64, String)> {
        let mut abandoned = Vec::new();
        self.gathering.retain(|(step, _), gathering| match why(*step, gathering) {
            Some(why) => {
                abandoned.push((*step, why));
                false
            }
            None => true,
        });
        abandoned
    }
}

impl Run {
    /// A worker wrote its slices.
    pub(super) fn slices_written(&mut self, worker: WorkerId, written: SlicesWritten) {
        let (step, epoch) = (written.step, written.epoch);
        let current = self.machine.membership();
        let is_current = current.epoch == epoch;
        let members = current.active.iter().map(|member| member.worker).filter(|_| is_current).collect();
        let Some(slices) = &mut self.slices else { return };
        if !slices.take(worker, members, written) {
            return;
        }
        // One of an earlier step that is not whole by now is of no use any more.
        let abandoned = slices.abandon(|other, gathering| {
            let (came, count) = (gathering.slices.len(), gathering.count);
            (other < step).then(|| format!("{came} of its {count} slices came before a later one was whole"))
        });
        slices.commit(step, epoch);
        self.abandoned(abandoned);
        self.handle(Event::Received(step));
    }

    /// A worker is gone, and with it the slices that it did not write.
    pub(super) fn slices_lost(&mut self, worker: WorkerId) {
        let Some(slices) = &mut self.slices else { return };
        let abandoned = slices.abandon(|_, gathering| {
            let lost = gathering.members.contains(&worker);
            lost.then(|| format!("worker {worker} went away before its slice was written"))
        });
        self.abandoned(abandoned);
    }

    fn abandoned(&mut self, abandoned: Vec<(u64, String)>) {
        for (step, reason) in abandoned {
            self.write(&Journaled::CheckpointFailed { step, reason: reason.clone() });
            self.handle(Event::Checkpoint(step, Err(reason)));
        }
    }
}
