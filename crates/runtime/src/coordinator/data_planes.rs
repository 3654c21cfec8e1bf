//! What the coordinator listens on: the control plane, the data plane, and the queue both end in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::checkpoints::{Checkpoints, Offer};
use super::turns::Incoming;
use super::{CoordinatorError, Options, system};
use crate::channel::{ConnectionKind, Inbox, InboxError, Listener, raise_descriptor_limit};
use crate::checkpoint::Store;
use crate::control::generated as wire;
use crate::control::server::{Input, Inputs, Server};
use crate::probe;
use crate::run_dir::RunDir;

/// Which workers measure their link to the coordinator's data plane before they train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasureLinks {
    /// None.
    Never,
    /// Those on other machines than the coordinator's.
    OfOtherMachines,
    /// All, for a profile: every second step then exchanges its gradients only once all are computed.
    Profile,
}

/// Everything that listens for the coordinator, and the queue it all ends in.
pub(super) struct Planes {
    /// What came, and when.
    pub(super) incoming: Receiver<(Instant, Incoming)>,
    pub(super) server: Server,
    pub(super) data: Listener,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) status: watch::Sender<wire::Status>,
    /// Puts what threads of the coordinator have done into the queue.
    pub(super) told: Sender<(Instant, Incoming)>,
}

impl Planes {
    pub(super) fn open(options: &Options, store: Store) -> Result<Planes, CoordinatorError> {
        raise_descriptor_limit();
        let (sender, incoming) = channel();
        let told = sender.clone();
        let heard = sender.clone();
        let inputs: Inputs =
            Arc::new(move |input| heard.send((Instant::now(), Incoming::Control(input))).is_ok());
        let (status, watched) =
            watch::channel(wire::Status { run: options.run.clone(), ..Default::default() });
        let place = |what: &str, address: SocketAddr| system(format!("listen on {address} for {what}"));
        let server = Server::start(options.listen, options.token.clone(), Arc::clone(&inputs), watched)
            .map_err(place("the control plane", options.listen))?;
        let on_refusal = Arc::new(move |refusal: crate::channel::Refusal| {
            let peer = refusal.peer.map_or("this machine".into(), |p| p.to_string());
            let reason = format!("on the data plane: it {}", refusal.reason);
            inputs(Input::Refused { peer, reason });
        });
        let token = &options.token;
        let data = Listener::bind(options.data_listen, token, on_refusal)
            .map_err(place("the data plane", options.data_listen))?;
        data.set_number(0);
        let holds = !options.job.sync.waits_for_all() || options.synchronisation.reduce_at_servers;
        let folder = RunDir::at(&options.folder).offered_checkpoints();
        let offer = options.offers_checkpoints.then_some(Offer { folder });
        let checkpoints = Checkpoints::start(store, offer, holds, data.inbox(), move |told| {
            let _ = sender.send((Instant::now(), Incoming::State(told)));
        })
        .map_err(system("start a thread"))?;
        if options.measure_links != MeasureLinks::Never {
            serve_probes(data.inbox()).map_err(system("start a thread"))?;
        }
        Ok(Planes { incoming, server, data, checkpoints, status, told })
    }
}

/// Lets workers measure their link to this machine, one after another so that none disturbs another.
fn serve_probes(inbox: Arc<Inbox>) -> std::io::Result<()> {
    let serve = move || {
        loop {
            match inbox.take_any(ConnectionKind::Probe, Instant::now() + Duration::from_secs(3600)) {
                // The measuring worker notices a probe that fails.
                Ok((_, stream)) => drop(probe::serve(stream)),
                Err(InboxError::TimedOut) => {}
                Err(InboxError::Closed) => return,
            }
        }
    };
    std::thread::Builder::new().name("probes".into()).spawn(serve).map(|_| ())
}
