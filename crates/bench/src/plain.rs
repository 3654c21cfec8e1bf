//! A plain synchronous loop over the same workload, optimizer and collective, without anything elastic: no
//! coordinator, no membership, no reports. It is what the runtime is compared with.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::job::Job;
use bellwether_runtime::channel::{ConnectionKind, Hello, Listener, dial};
use bellwether_runtime::collective::{Collective, CollectivePlan, Member, WakeReceiver, Waker, wake_pair};
use bellwether_runtime::control::Token;
use bellwether_runtime::frame::Stamp;
use bellwether_runtime::mesh::Mesh;
use bellwether_runtime::noise::Noise;
use bellwether_runtime::optimizer::{Optimizer, Update};
use bellwether_runtime::order::{SampleOrder, micro_batch_seed};
use bellwether_runtime::state::{Reduced, TrainingState};
use bellwether_runtime::tree::ranges;
use bellwether_runtime::workload::{MicroBatch, Weights};
use clap::Args;

use crate::failure::Failure;
use crate::folder::Folder;
use crate::programs;

#[derive(Debug, Args)]
pub(super) struct PlainArguments {
    /// The job file
    #[arg(long)]
    job: PathBuf,
    /// Where the members meet and leave their samples
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    workers: u32,
}

/// Time for all members to start and connect.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Control bytes of each all-reduce: as many as one partial sum costs the runtime.
const CONTROL: [u8; 32] = [1; 32];

/// Seconds of one step, boundary to boundary, and of its gradients.
pub(super) type Sample = [f64; 2];

fn failed<E: std::fmt::Display>(error: E) -> Failure {
    Failure::at("plain-member", error)
}

/// Runs the job's steps with `workers` processes; returns the steps of all of them.
pub(super) fn run(folder: &Folder, text: &str, workers: u32) -> Result<Vec<Sample>, Failure> {
    let job = folder.write("plain.toml", text)?;
    let token = Token::random().map_err(failed)?;
    folder.write("plain-token", token.to_text())?;
    for rank in 0..workers {
        // From an earlier round.
        let _ = fs::remove_file(folder.path().join(format!("address-{rank}")));
    }
    let mut children = Vec::new();
    for rank in 0..workers {
        let mut command = programs::member("plain-member")?;
        command.arg("--job").arg(&job).arg("--folder").arg(folder.path());
        command.args(["--rank", &rank.to_string(), "--workers", &workers.to_string()]);
        children.push(command.spawn().map_err(failed)?);
    }
    let ends: Vec<_> = children.iter_mut().map(std::process::Child::wait).collect();
    let mut samples = Vec::new();
    for (rank, end) in ends.into_iter().enumerate() {
        if !end.map_err(failed)?.success() {
            return Err(failed(format!("member {rank} of the plain loop failed")));
        }
        let text = fs::read(folder.path().join(format!("samples-{rank}"))).map_err(failed)?;
        samples.extend(serde_json::from_slice::<Vec<Sample>>(&text).map_err(failed)?);
    }
    Ok(samples)
}

/// One process of the loop.
pub(super) fn member(arguments: &PlainArguments) -> Result<(), Failure> {
    let place = arguments.job.display().to_string();
    let text = fs::read_to_string(&arguments.job).map_err(failed)?;
    let job = bellwether_core::parse::job(&text, &place, &[])?;
    let nodes = job.batch.virtual_nodes;
    if arguments.workers > 1 && arguments.workers != nodes {
        return Err(failed("the plain loop has as many workers as virtual nodes, or one"));
    }
    let samples = train(&job, arguments)?;
    let text = serde_json::to_vec(&samples).map_err(failed)?;
    fs::write(arguments.folder.join(format!("samples-{}", arguments.rank)), text).map_err(failed)
}

/// Connections to the others, and what their sum is made with.
struct Peers {
    mesh: Mesh,
    collective: Collective,
    tag: u64,
    wake: WakeReceiver,
    _waker: Waker,
}

fn connect(arguments: &PlainArguments, length: usize) -> Result<Peers, Failure> {
    let token = fs::read_to_string(arguments.folder.join("plain-token")).map_err(failed)?;
    let token = Token::parse(&token).ok_or_else(|| failed("the token is none"))?;
    let (rank, tag) = (u64::from(arguments.rank), token.job_tag());
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), &token, Arc::new(|_| {})).map_err(failed)?;
    let part = arguments.folder.join(format!("part-{rank}"));
    fs::write(&part, listener.local_addr().to_string()).map_err(failed)?;
    fs::rename(&part, arguments.folder.join(format!("address-{rank}"))).map_err(failed)?;
    let (inbox, deadline) = (listener.inbox(), Instant::now() + START_PATIENCE);
    let mut mesh = Mesh::new();
    for peer in (0..u64::from(arguments.workers)).filter(|peer| *peer != rank) {
        let stream = if peer < rank {
            let address = address_of(arguments, peer, deadline)?;
            let hello = Hello { kind: ConnectionKind::Mesh, worker: rank, epoch: 1, to: None };
            dial(address, &hello, &token, deadline).map_err(failed)?
        } else {
            inbox.take(ConnectionKind::Mesh, 1, peer, deadline).map_err(failed)?
        };
        mesh.insert(peer, stream).map_err(failed)?;
    }
    let shares = ranges(arguments.workers, arguments.workers).into_iter().enumerate();
    let members = shares.map(|(i, nodes)| Member { worker: i as u64, nodes }).collect();
    let plan = CollectivePlan::new(arguments.workers, members, Vec::new(), rank, length).map_err(failed)?;
    let (waker, wake) = wake_pair().map_err(failed)?;
    Ok(Peers { mesh, collective: Collective::new(plan), tag, wake, _waker: waker })
}

fn address_of(arguments: &PlainArguments, peer: u64, deadline: Instant) -> Result<SocketAddr, Failure> {
    let path = arguments.folder.join(format!("address-{peer}"));
    loop {
        if let Ok(text) = fs::read_to_string(&path) {
            return text.parse().map_err(failed);
        }
        if Instant::now() > deadline {
            return Err(failed(format!("member {peer} did not start")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn train(job: &Job, arguments: &PlainArguments) -> Result<Vec<Sample>, Failure> {
    let mut workload = bellwether_workloads::build(job, &|path| fs::read(path))?;
    let order = SampleOrder {
        samples: workload.training_samples(),
        batch: job.batch.size,
        virtual_nodes: arguments.workers,
        seed: job.seed,
        block: job.data.order_block(),
    };
    let total_steps = job.total_steps(order.samples);
    let optimizer = Optimizer::new(job, total_steps);
    let mut state = TrainingState::zeros(workload.layout(), optimizer.slots().len());
    let count = state.parameters.len();
    let length = count + state.model_state.len();
    workload.initialize(job.seed, &mut state.parameters, &mut state.model_state);
    let mut peers = (arguments.workers > 1).then(|| connect(arguments, length)).transpose()?;
    let (mut partial, mut sum) = (vec![0.0; length], vec![0.0; if peers.is_some() { length } else { 0 }]);
    let (mut batch, mut samples) = (Vec::new(), Vec::new());
    for step in 0..total_steps {
        let begun = Instant::now();
        order.micro_batch(step, arguments.rank, &mut batch);
        let (gradient, model_state) = partial.split_at_mut(count);
        let weights = Weights { parameters: &state.parameters, state: &state.model_state, version: step };
        let seed = micro_batch_seed(job.seed, step, arguments.rank);
        let result = workload.gradient(weights, MicroBatch { samples: &batch }, seed, gradient, model_state);
        result.map_err(failed)?;
        model_state.iter_mut().for_each(|value| *value *= batch.len() as f32);
        let compute_s = begun.elapsed().as_secs_f64();
        let sums = match &mut peers {
            Some(Peers { mesh, collective, tag, wake, .. }) => {
                let stamp = Stamp { job: *tag, epoch: 1, step };
                collective.run(mesh, stamp, &CONTROL, &[&partial], &mut sum, wake).map_err(failed)?;
                &sum
            }
            None => &partial,
        };
        let samples_in = order.samples_in(step);
        // No job that is measured clips: the norm does not matter.
        let update = Update::single(step, optimizer.scale(samples_in as f64, 0.0));
        let reduced = Reduced { sums, samples: samples_in, update, noise: Noise::default() };
        state.apply(&mut &optimizer, reduced).map_err(failed)?;
        samples.push([begun.elapsed().as_secs_f64(), compute_s]);
    }
    Ok(samples)
}
