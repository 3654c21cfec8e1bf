//! Servers, clients and work that every test needs.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_core::job::{Job, Optimizer as Update, Schedule};
use bellwether_core::parse;
use bellwether_core::plan::TransmissionOrder;
use bellwether_runtime::channel::Stream;
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::parameters::{
    Client, ClientOptions, Phase, Rule, Server, ServerOptions, ShardMap, Told, UnitAccount, Work,
};
use bellwether_runtime::state::TrainingState;
use bellwether_runtime::workload::{Layout, Tensor, TensorExchange, tensor_ranges};

pub(crate) const JOB: u64 = 0x5e1f;

/// Both ends of a connection.
pub(crate) fn pair() -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let here = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let there = listener.accept().expect("a connection").0;
    for stream in [&here, &there] {
        stream.set_nodelay(true).expect("a socket has options");
    }
    (Stream::unprotected(here), Stream::unprotected(there))
}

pub(crate) fn layout(parameters: &[usize], state: &[usize]) -> Layout {
    let tensor = |length: &usize| Tensor { name: format!("of {length}"), shape: vec![*length] };
    Layout { parameters: parameters.iter().map(tensor).collect(), state: state.iter().map(tensor).collect() }
}

pub(crate) fn optimizer(rule: Update) -> Optimizer {
    let text = "name='x'\nsteps=100\n[model]\nkind='mlp'\nhidden=[]\n[data]\nkind='digits'\n\
                [batch]\nsize=8\nvirtual_nodes=4\n[optimizer]\nkind='sgd'\nlearning_rate=0.1";
    let schedule = Schedule::Cosine { warm_up_steps: 2, floor: 0.1 };
    let job =
        Job { optimizer: rule, schedule, ..parse::job(text, "", &[]).expect("a good job file").into_job() };
    Optimizer::new(&job, 100)
}

/// Subtracts gradients as they are.
pub(crate) fn plain() -> Optimizer {
    let text = "name='x'\nsteps=100\n[model]\nkind='mlp'\nhidden=[]\n[data]\nkind='digits'\n\
                [batch]\nsize=8\nvirtual_nodes=4\n[optimizer]\nkind='sgd'\nlearning_rate=1.0\nmomentum=0.0";
    Optimizer::new(&parse::job(text, "", &[]).expect("a good job file"), 100)
}

pub(crate) struct Group {
    pub(crate) map: Arc<ShardMap>,
    pub(crate) layout: Layout,
    pub(crate) optimizer: Optimizer,
    pub(crate) units_per_step: u32,
    pub(crate) order: TransmissionOrder,
    pub(crate) servers: Vec<Server>,
    pub(crate) told: Vec<Mutex<Receiver<Told>>>,
}

impl Group {
    pub(crate) fn start(layout: Layout, servers: u32, units_per_step: u32, optimizer: Optimizer) -> Group {
        let map = Arc::new(ShardMap::new(&layout, servers));
        let order = TransmissionOrder::Fifo;
        let mut group =
            Group { map, layout, optimizer, units_per_step, order, servers: Vec::new(), told: Vec::new() };
        for me in 0..servers {
            let (server, told) = group.server(me);
            group.servers.push(server);
            group.told.push(Mutex::new(told));
        }
        group
    }

    pub(crate) fn server(&self, me: u32) -> (Server, Receiver<Told>) {
        let (sender, receiver) = channel();
        let options = ServerOptions {
            map: Arc::clone(&self.map),
            me,
            job: JOB,
            slots: self.optimizer.slots().len(),
            units_per_step: self.units_per_step,
            order: self.order.clone(),
        };
        let server = Server::start(options, move |told| {
            // A test that has enough hears no more.
            let _ = sender.send(told);
        });
        (server, receiver)
    }

    pub(crate) fn phase(&self, number: u64, rule: Rule, step: u64) -> Phase {
        Phase { number, rule, step, optimizer: self.optimizer.clone() }
    }

    /// Loads zeros everywhere, and begins phase 1 at step 0.
    pub(crate) fn begin(&self, rule: Rule) {
        for server in &self.servers {
            server.load(&self.zeros());
            server.begin(self.phase(1, rule, 0));
        }
    }

    /// What the servers told so far.
    pub(crate) fn heard(&self) -> Vec<Told> {
        let told = self.told.iter().map(|told| told.lock().expect("no panic"));
        told.flat_map(|told| told.try_iter().collect::<Vec<_>>()).collect()
    }

    /// A connection to a server, by its worker.
    pub(crate) fn dial(&self, server: &Server, worker: u64) -> Stream {
        let (here, there) = pair();
        server.serve(there, worker).expect("a connection can be served");
        here
    }

    pub(crate) fn client(&self, worker: u64) -> Client {
        self.client_with(worker, Duration::ZERO)
    }

    pub(crate) fn client_with(&self, worker: u64, patience: Duration) -> Client {
        self.client_over(self.servers.iter().map(|server| self.dial(server, worker)).collect(), patience)
    }

    pub(crate) fn client_over(&self, streams: Vec<Stream>, patience: Duration) -> Client {
        let options =
            ClientOptions { map: Arc::clone(&self.map), job: JOB, order: self.order.clone(), patience };
        Client::new(options, streams).expect("a client")
    }

    pub(crate) fn whole(&self) -> TrainingState {
        self.whole_of(&self.servers)
    }

    pub(crate) fn whole_of(&self, servers: &[Server]) -> TrainingState {
        let mut whole = TrainingState::zeros(&self.layout, self.optimizer.slots().len());
        for (number, server) in (0..).zip(servers) {
            let shard = server.shard();
            whole.step = shard.step;
            self.map.gather(&shard, number, &mut whole);
        }
        whole
    }

    pub(crate) fn zeros(&self) -> TrainingState {
        TrainingState::zeros(&self.layout, self.optimizer.slots().len())
    }

    /// A unit that is applied for itself.
    pub(crate) fn each(&self, unit: u64) -> Work {
        let step = unit / u64::from(self.units_per_step);
        Work { phase: 1, unit, step, together: false, scale: 1.0, share: 1.0, samples: 8 }
    }

    /// Pulls everything, and pushes `gradient` for every parameter.
    pub(crate) fn unit(&self, client: &mut Client, work: Work, gradient: f32) -> Result<UnitAccount, String> {
        self.unit_of(client, work, &|_, out| out.fill(gradient))
    }

    /// As [`unit`](Group::unit), with a gradient (then the model state) that depends on the parameters.
    pub(crate) fn unit_of(
        &self,
        client: &mut Client,
        work: Work,
        gradient: &dyn Fn(&[f32], &mut [f32]),
    ) -> Result<UnitAccount, String> {
        client.begin(work).map_err(|fault| fault.to_string())?;
        let ranges = tensor_ranges(&self.layout);
        let count = self.layout.parameter_count();
        let mut parameters = vec![0.0; count];
        for (tensor, range) in ranges.iter().enumerate() {
            client.pull(tensor, &mut parameters[range.clone()]).map_err(|fault| fault.to_string())?;
        }
        client.state().map_err(|fault| fault.to_string())?;
        let mut out = vec![0.0; count + self.layout.state_count()];
        gradient(&parameters, &mut out);
        for (tensor, range) in ranges.iter().enumerate().rev() {
            client.push(tensor, &out[range.clone()]).map_err(|fault| fault.to_string())?;
        }
        client.give_state(&out[count..]).map_err(|fault| fault.to_string())?;
        client.finish().map_err(|fault| fault.to_string())
    }
}
