//! A worker that averages with its peers: it holds all parameters itself, and no server does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::channel::resolve;
use crate::gossip::{Gossip, Identity, Shared};
use crate::membership::{Peer, Phase, UnitRecord};
use crate::optimizer::Update;
use crate::transfer::{self, Kind, read, write};
use crate::worker::Worker;
use crate::worker::engine::Fault;
use crate::worker::links::{Connector, LinkError};

/// The averaging under way.
pub(super) struct Averaging {
    gossip: Gossip,
    shared: Arc<Shared>,
    peers: Vec<Peer>,
}

impl Averaging {
    /// Begins from parameters that all workers begin with.
    fn begin(phase: &Phase, seed: u64, parameters: &[f32], connector: &Connector) -> Result<Self, LinkError> {
        let shared = Arc::new(Shared::new(parameters));
        let identity =
            Identity { me: connector.me, token: connector.token.clone(), epoch: phase.epoch, seed };
        let gossip = Gossip::start(Arc::clone(&connector.inbox), identity, Arc::clone(&shared))?;
        let mut averaging = Averaging { gossip, shared, peers: Vec::new() };
        averaging.meet(&phase.peers);
        if phase.late {
            // The initial values would take the others back. Where no peer answers, averaging brings it along in time.
            let _ = phase.peers.iter().find(|peer| averaging.gossip.copy_from(peer.worker).is_ok());
        }
        Ok(averaging)
    }

    /// Averages with these from now on.
    fn meet(&mut self, peers: &[Peer]) {
        if self.peers == peers {
            return;
        }
        self.peers = peers.to_vec();
        let known = peers.iter().filter_map(|peer| Some((peer.worker, resolve(&peer.address).ok()?)));
        self.gossip.set_peers(&known.collect::<BTreeMap<_, _>>());
    }
}

impl Worker {
    /// Loads the state that the phase begins with, and lets peers in.
    pub(super) fn begin_averaging(&mut self, phase: &Phase) -> Result<Averaging, LinkError> {
        let step = phase.checkpoint.ok_or(LinkError::NoCheckpoint)?;
        let mut stream = self.connector.state_stream(phase.epoch, &self.data_address)?;
        let mut state = write(&self.engine.state);
        let mut receive = || {
            transfer::send_mark(&mut stream, Kind::Fetch, step)?;
            let begin = transfer::receive_header(&mut stream)?;
            transfer::receive_whole(&mut stream, begin, &mut state)
        };
        receive().map_err(LinkError::broken(format!("the state after step {step} did not arrive")))?;
        Averaging::begin(phase, self.engine.seed(), &state.parameters, &self.connector)
    }

    /// Computes a unit, applies its gradient to this worker's parameters, and averages them with a peer's.
    pub(super) fn average(&mut self, unit: u64, averaging: &mut Averaging) -> Result<UnitRecord, Fault> {
        if let Some(phase) = self.member.phase() {
            averaging.meet(&phase.peers);
        }
        let began = Instant::now();
        self.engine.workload.take_data_wait_s();
        let (step, nodes) = self.units.of(unit);
        let samples = self.engine.unit_samples(step, nodes.clone());
        if samples == 0 {
            return Ok(UnitRecord { unit, ..UnitRecord::default() });
        }
        let share = samples as f64 / self.units.batch as f64;
        self.read_own(averaging);
        let gradient = self.engine.unit_held(step, nodes)?;
        let data_wait_s = self.engine.workload.take_data_wait_s();
        let compute_s = (began.elapsed().as_secs_f64() - data_wait_s).max(0.0);
        // The mean over the workers moves by the mean of their updates: together they go as far as a step of the batch.
        let together = (share * (averaging.peers.len() + 1) as f64).min(1.0);
        let rate_factor = self.units.rate.factor(together);
        let update = Update { rate_factor, ..Update::single(step, self.engine.unit_scale(samples)) };
        let (engine, rule) = (&self.engine, &self.unit_rule);
        averaging.shared.update(|range, values| engine.update_held(rule, update, range, values));
        let exchanging = Instant::now();
        let peer = averaging.gossip.peer_after(unit);
        let _waits = peer.map(|peer| self.engine.progress.held_up_by([peer].into_iter()));
        // A peer that is gone is left out.
        let _ = averaging.gossip.exchange(unit);
        Ok(UnitRecord {
            unit,
            samples: gradient.samples,
            loss_sum: gradient.loss_sum,
            duration_s: began.elapsed().as_secs_f64(),
            compute_s,
            data_wait_s,
            wait_s: exchanging.elapsed().as_secs_f64(),
            ..UnitRecord::default()
        })
    }

    /// Sends this worker's whole state to the coordinator.
    pub(super) fn send_own(&mut self, step: u64, averaging: &Averaging) -> Result<(), LinkError> {
        self.read_own(averaging);
        write(&self.engine.state).step = step;
        let epoch = self.member.membership().epoch;
        let mut stream = self.connector.state_stream(epoch, &self.data_address)?;
        let state = read(&self.engine.state);
        transfer::send_mark(&mut stream, Kind::Part, step)
            .and_then(|()| transfer::send_whole(&mut stream, &state))
            .map_err(LinkError::broken("the state could not be handed over"))
    }

    /// Copies what this worker's parameters are now to where it computes.
    pub(super) fn read_own(&mut self, averaging: &Averaging) {
        averaging.shared.read(&mut write(&self.engine.state).parameters);
    }
}
