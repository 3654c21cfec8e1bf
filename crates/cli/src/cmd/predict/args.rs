//! The arguments of `bellwether predict`.

use std::path::PathBuf;

use bellwether_answers::network::Network;
use bellwether_answers::predict::{
    BATCH, NODES_PER_UPDATE, Request, SERVERS, STEPS, Source, device, order, reduce, switch,
};
use bellwether_core::job::{Reduce, SyncPolicy, WorkerRange};
use bellwether_core::prediction::Protocol;
use bellwether_core::units::{BytesPerSecond, Seconds};
use bellwether_model::predict::{self, DeviceSpec, SendOrder};
use clap::{Args, ValueEnum};

use crate::options::{TableFormat, of_u32, picture};

#[derive(Debug, Args)]
pub(crate) struct PredictArguments {
    /// The profile, made by `bellwether profile`, or models that `bellwether fit` made
    #[arg(value_name = "PROFILE|FITTED", required_unless_present = "network")]
    pub(crate) profile: Option<PathBuf>,
    /// In place of a profile a network that was never run, for example
    /// operations=1.7G,tensors=104,bytes=7.4MB,device=k80: its step and checkpoint times by regression over networks
    /// that were
    #[arg(long, value_name = "KEY=VALUE,…", conflicts_with_all = ["profile", "kind"])]
    pub(crate) network: Option<Network>,
    /// Measured networks (network,device,operations,tensors,parameter_bytes,step_s,checkpoint_s in CSV) in place of the
    /// 20 that come with this program
    #[arg(long, value_name = "TABLE.csv", requires = "network")]
    pub(crate) known: Option<PathBuf>,
    /// Write the estimate of the network as a profile, which `plan`, `simulate` and `submit` take
    #[arg(short, long, value_name = "FILE.json", requires = "network")]
    pub(crate) output: Option<PathBuf>,
    /// Of several kinds of job that fitted models are of, this one
    #[arg(long, value_name = "NAME")]
    pub(crate) kind: Option<String>,
    /// Numbers of workers to answer for [default: 1..64, or as many as there are virtual nodes]
    #[arg(long, value_name = "N|MIN..MAX")]
    pub(crate) workers: Option<WorkerRange>,
    /// Who waits for whom: bsp, asp, ssp:K, gossip or local:H
    #[arg(long, value_name = "PROTOCOL", default_value_t = Protocol::Bsp)]
    pub(crate) protocol: Protocol,
    /// A whole run whose protocol may change: a protocol, switch:SHARE[:PROTOCOL], or a table as in the job file
    /// ({switch_at = 0.0625}); how long it is say --steps
    #[arg(long, value_name = "POLICY", conflicts_with = "protocol", requires = "steps")]
    pub(crate) sync: Option<SyncPolicy>,
    /// A whole run that is synchronous for this share of the steps and asynchronous after it
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["protocol", "sync"], requires = "steps", value_parser = switch)]
    pub(crate) switch_at: Option<SyncPolicy>,
    /// Steps of the whole run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(STEPS))]
    pub(crate) steps: Option<u64>,
    /// Time for which each switch stalls the run
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) switch_time: Seconds,
    /// Where gradients are summed while all wait for all: all-reduce or servers [default: servers if --servers says so]
    #[arg(long, value_name = "WHERE", value_parser = reduce)]
    pub(crate) reduce: Option<Reduce>,
    /// Virtual nodes whose gradients make one update through servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(of_u32(NODES_PER_UPDATE)))]
    pub(crate) nodes_per_update: u32,
    /// Parameter servers [default: 0 for bsp and gossip, else 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(of_u32(SERVERS)))]
    pub(crate) servers: Option<u32>,
    /// Bandwidth of each worker's and server's link, in each direction [default: as measured]
    #[arg(long, value_name = "RATE")]
    pub(crate) bandwidth: Option<BytesPerSecond>,
    /// Latency of a link [default: as measured]
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<Seconds>,
    /// A device and its speed relative to the profiled one, or the profile of the same job that was measured on it;
    /// with counts, the workers are exactly these
    #[arg(long, value_name = "NAME=SPEED|PROFILE.json[:COUNT]", value_parser = device)]
    pub(crate) device: Vec<DeviceSpec>,
    /// Samples per step: of all workers together where they wait for each other, else of each update
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(BATCH))]
    pub(crate) batch: Option<u64>,
    /// How closely to look: auto takes the coarse model wherever there is one
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) model: Fidelity,
    /// Order in which parts are sent, for the fine-grained model: fifo, round-robin:BYTES, tic or tac
    #[arg(long, value_name = "ORDER", default_value = "fifo", value_parser = order)]
    pub(crate) order: SendOrder,
    /// Seed of the fine-grained model's random draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: TableFormat,
    /// Draw throughput over workers
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    pub(crate) plot: Option<PathBuf>,
    /// Write the execution that the fine-grained model imagines for the most workers, for Perfetto or Chrome
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
}

/// How closely `predict` looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fidelity {
    /// Every operation of every worker.
    Fine,
    /// Formulas over phases.
    Coarse,
    /// The coarse model wherever there is one.
    Auto,
}

impl From<Fidelity> for predict::Fidelity {
    fn from(fidelity: Fidelity) -> predict::Fidelity {
        match fidelity {
            Fidelity::Fine => predict::Fidelity::Fine,
            Fidelity::Coarse => predict::Fidelity::Coarse,
            Fidelity::Auto => predict::Fidelity::Auto,
        }
    }
}

impl PredictArguments {
    /// Whether several workers are asked for, which needs a link.
    pub(super) fn asks_for_workers(&self) -> bool {
        self.workers.is_some() || self.bandwidth.is_some() || self.steps.is_some()
    }

    /// What is asked.
    pub(super) fn request(&self) -> Request {
        Request {
            source: match &self.network {
                Some(network) => Source::Network(network.clone(), self.known.clone()),
                None => Source::Profile(self.profile.clone().unwrap_or_default()),
            },
            workers: self.workers,
            protocol: self.protocol,
            sync: self.sync.clone().or_else(|| self.switch_at.clone()),
            steps: self.steps,
            switch_time: Some(self.switch_time),
            reduce: self.reduce,
            nodes_per_update: self.nodes_per_update,
            servers: self.servers,
            bandwidth: self.bandwidth,
            latency: self.latency,
            devices: self.device.clone(),
            batch: self.batch,
            fidelity: self.model.into(),
            order: self.order,
            seed: self.seed,
        }
    }
}
