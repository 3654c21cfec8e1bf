//! State on its way: to newcomers, from sources, to the coordinator's checkpoint and back.

use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Worker;
use super::incoming::Incoming;
use super::links::LinkError;
use super::session::Event;
use crate::channel::Stream;
use crate::membership::member::Effect;
use crate::membership::{FromWorker, Load, Membership};
use crate::state::TrainingState;
use crate::transfer::{self, Kind, read, write};

/// How long training may wait until the coordinator takes a checkpoint that another will follow.
const PERIODIC: Duration = Duration::from_secs(1);

/// How long the coordinator may take to answer at the end.
const LAST: Duration = Duration::from_secs(6);

/// A coordinator that takes nothing for this long in the middle of a checkpoint gets no more of it.
const STALL: Duration = Duration::from_secs(10);

impl Worker {
    pub(super) fn load(&mut self, membership: &Membership, load: Load) -> Result<u64, LinkError> {
        let epoch = membership.epoch;
        self.engine.begin_shards(membership);
        match load {
            Load::Fresh => {
                self.engine.initialize();
                Ok(0)
            }
            Load::Checkpoint(step) if self.slices.is_some() => self.load_slices(step),
            Load::Checkpoint(step) => {
                let mut stream = self.connector.state_stream(epoch, &self.data_address)?;
                let mut receive = || {
                    transfer::send_mark(&mut stream, Kind::Fetch, step)?;
                    let begin = transfer::receive_header(&mut stream)?;
                    self.engine.receive_whole(&mut stream, begin)
                };
                let what = format!("the checkpoint of step {step} did not arrive");
                receive().map_err(LinkError::broken(what))?;
                self.engine.touched();
                Ok(step)
            }
        }
    }

    /// Streams the state to every shadow, each of its sources a share of the chunks.
    pub(super) fn send_state(&self, membership: &Membership, streams: Vec<(u64, Stream)>) {
        let begin = transfer::Header::begin(self.member.step(), read(&self.engine.state).noise);
        for (shadow, mut stream) in streams {
            let sources = membership.peers(shadow);
            let Some(rank) = sources.iter().position(|(source, _)| *source == self.connector.me) else {
                continue;
            };
            let stride = sources.len();
            let state = Arc::clone(&self.engine.state);
            let send = move || {
                // A shadow that dies is noticed by the coordinator; nothing is lost here.
                let _ = transfer::send_live(&mut stream, &state, begin, rank, stride);
            };
            // Without a thread the shadow never catches up, and is dropped.
            let _ = std::thread::Builder::new().name("state-out".into()).spawn(send);
        }
    }

    pub(super) fn receive_state(&mut self, streams: Vec<Stream>) {
        self.engine.drop_shards();
        let mailbox = Arc::clone(&self.connection.mailbox);
        if let Some(old) = self.incoming.take() {
            old.close();
        }
        if let Some(state) = Arc::get_mut(&mut self.engine.state) {
            // Memory in use already is the quickest; what it holds is overwritten chunk by chunk.
            state.get_mut().expect("no holder of this lock panics").step = 0;
        } else {
            // The threads of an earlier attempt may still hold the old state.
            let zeros = {
                let state = read(&self.engine.state);
                TrainingState {
                    step: 0,
                    parameters: vec![0.0; state.parameters.len()],
                    slots: vec![vec![0.0; state.parameters.len()]; state.slots.len()],
                    model_state: vec![0.0; state.model_state.len()],
                    noise: state.noise,
                }
            };
            self.engine.state = Arc::new(RwLock::new(zeros));
        }
        let notify = Arc::new(move || mailbox.put(Event::Stream));
        match Incoming::start(streams, Arc::clone(&self.engine.state), notify) {
            Ok(incoming) => self.incoming = Some(incoming),
            Err(error) => {
                self.connection.say(FromWorker::Failed { what: format!("cannot receive state: {error}") })
            }
        }
    }

    pub(super) fn begin_shadow(&mut self) {
        match self.incoming.as_ref().and_then(|incoming| incoming.begun()) {
            Some(begin) => {
                self.reporter.forget();
                self.member.shadow_began(begin.step);
                let mut state = write(&self.engine.state);
                (state.step, state.noise) = (begin.step, begin.noise());
            }
            None => self.connection.mailbox.wait(Duration::from_millis(100)),
        }
    }

    /// Looks whether the shadow's state is complete, or will never be.
    pub(super) fn check_stream(&mut self) -> Vec<Effect> {
        let Some(incoming) = &self.incoming else { return vec![] };
        if let Some(why) = incoming.failure() {
            let epoch = self.member.membership().epoch;
            return self.member.failed(epoch, None, format!("the state did not come: {why}"));
        }
        if incoming.complete() && self.member.is_shadow() && incoming.begun().is_some() {
            self.engine.touched();
            return self.member.shadow_complete();
        }
        vec![]
    }

    /// Begins a checkpoint at this boundary, or the last one once more.
    pub(super) fn checkpoint(&mut self) {
        if self.slices.is_some() {
            self.write_slices();
        } else {
            self.upload_part(if self.member.is_finished() { LAST } else { PERIODIC });
        }
        self.member.checkpointed();
    }

    /// Begins the checkpoint of the last step, as far as it is this worker's.
    pub(super) fn last_checkpoint(&mut self) {
        if self.slices.is_some() {
            self.write_slices();
        } else {
            self.upload_part(LAST);
        }
    }

    /// Sends what of the state is this worker's to send: the first member the whole, or all but the slots that the
    /// members share, of which each sends those that it owns.
    fn upload_part(&mut self, patience: Duration) {
        self.finish_upload();
        let is_member = self.member.membership().rank(self.connector.me).is_some();
        if self.engine.sharded.is_some() && is_member {
            let (step, owned) = (self.member.step(), self.engine.owned_shards());
            let slots = Arc::clone(&self.engine.sharded.as_ref().expect("they are shared").slots);
            let thread = self.upload(patience, slots, move |stream, slots| {
                transfer::send_shards(stream, step, slots, &owned)
            });
            self.uploads.extend(thread);
        }
        if self.member.membership().rank(self.connector.me) == Some(0) {
            let state = Arc::clone(&self.engine.state);
            let thread = self.upload(patience, state, transfer::send_whole);
            self.uploads.extend(thread);
        }
    }

    /// Sends something of the state to the coordinator while the next gradients are computed; the next update waits for
    /// it, because it is the state of one step, but no longer than `patience` for an answer. The coordinator is told
    /// when the sending fails.
    fn upload<T: Send + std::marker::Sync + 'static>(
        &mut self,
        patience: Duration,
        held: Arc<RwLock<T>>,
        send: impl FnOnce(&mut Stream, &T) -> std::io::Result<()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let (epoch, step) = (self.member.membership().epoch, self.member.step());
        let (connector, address) = (self.connector.clone(), self.data_address.clone());
        let (called, answered) = std::sync::mpsc::channel();
        let call = move || {
            // A sender that gave up does not hear of this.
            let _ = called.send(connector.state_stream(epoch, &address));
        };
        // Without a thread no call comes, which the other end of the channel notices.
        let _ = std::thread::Builder::new().name("checkpoint-call".into()).spawn(call);
        let (started, running) = std::sync::mpsc::channel();
        let say = self.connection.voice();
        let send = move || {
            let held = read(&held);
            let _ = started.send(());
            let sent = answered
                .recv_timeout(patience)
                .map_err(|_| format!("the coordinator's data plane did not answer within {patience:?}"))
                .and_then(|stream| stream.map_err(|e| e.to_string()))
                .and_then(|mut stream| {
                    stream.set_write_timeout(Some(STALL)).map_err(|e| e.to_string())?;
                    send(&mut stream, &held).map_err(|e| format!("the transfer broke off: {e}"))
                });
            if let Err(why) = sent {
                say(FromWorker::CheckpointFailed { step, why });
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(send).ok();
        // The lock is held from here on: no update can come between.
        if running.recv().is_err() {
            let why = "no thread could be started to send it".to_string();
            self.connection.say(FromWorker::CheckpointFailed { step, why });
        }
        thread
    }

    pub(super) fn finish_upload(&mut self) {
        for upload in self.uploads.drain(..) {
            let _ = upload.join();
        }
    }
}
