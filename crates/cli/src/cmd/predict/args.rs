//! The arguments of `bellwether predict`.

use std::path::PathBuf;

use bellwether_core::ParseError;
use bellwether_core::job::{Reduce, SyncPolicy, WorkerRange};
use bellwether_core::prediction::Protocol;
use bellwether_core::units::{Bytes, BytesPerSecond, Seconds};
use bellwether_model::predict::{self, DeviceSpec, SendOrder};
use clap::{Args, ValueEnum};

use crate::options::{TableFormat, picture};

#[derive(Debug, Args)]
pub(crate) struct PredictArguments {
    /// The profile, made by `bellwether profile`
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: PathBuf,
    /// Numbers of workers to answer for [default: 1..64, or as many as there are virtual nodes]
    #[arg(long, value_name = "N|MIN..MAX")]
    pub(crate) workers: Option<WorkerRange>,
    /// Who waits for whom: bsp, asp, ssp:K or gossip
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) steps: Option<u64>,
    /// Time for which each switch stalls the run
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) switch_time: Seconds,
    /// Where gradients are summed while all wait for all: all-reduce or servers [default: servers if --servers says so]
    #[arg(long, value_name = "WHERE", value_parser = reduce)]
    pub(crate) reduce: Option<Reduce>,
    /// Virtual nodes whose gradients make one update through servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes_per_update: u32,
    /// Parameter servers [default: 0 for bsp and gossip, else 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) servers: Option<u32>,
    /// Bandwidth of each worker's and server's link, in each direction [default: as measured]
    #[arg(long, value_name = "RATE")]
    pub(crate) bandwidth: Option<BytesPerSecond>,
    /// Latency of a link [default: as measured]
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<Seconds>,
    /// A device and its speed relative to the profiled one; with counts, the workers are exactly these
    #[arg(long, value_name = "NAME=SPEED[:COUNT]", value_parser = device)]
    pub(crate) device: Vec<DeviceSpec>,
    /// Samples per step: of all workers together where they wait for each other, else of each update
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
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

fn device(text: &str) -> Result<DeviceSpec, ParseError> {
    let expected = "NAME=SPEED or NAME=SPEED:COUNT, for example p100=2.3 or k80=1:4";
    let wrong = || ParseError::new("device", text, expected);
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (speed, count) = match rest.split_once(':') {
        Some((speed, count)) => (speed, Some(count.parse().map_err(|_| wrong())?)),
        None => (rest, None),
    };
    let speed: f64 = speed.parse().map_err(|_| wrong())?;
    if name.is_empty() || !(speed.is_finite() && speed > 0.0) || count.is_some_and(|c: u32| c > 100_000) {
        return Err(wrong());
    }
    Ok(DeviceSpec { name: name.into(), speed, count })
}

fn switch(text: &str) -> Result<SyncPolicy, ParseError> {
    format!("switch:{text}").parse()
}

fn reduce(text: &str) -> Result<Reduce, ParseError> {
    match text {
        "all-reduce" => Ok(Reduce::AllReduce),
        "servers" => Ok(Reduce::Servers),
        _ => Err(ParseError::one_of("place", text, ["all-reduce", "servers"])),
    }
}

fn order(text: &str) -> Result<SendOrder, ParseError> {
    match text {
        "fifo" => Ok(SendOrder::Fifo),
        "tic" => Ok(SendOrder::Tic),
        "tac" => Ok(SendOrder::Tac),
        _ => match text.strip_prefix("round-robin:").map(str::parse) {
            Some(Ok(Bytes(bytes))) if bytes > 0 => Ok(SendOrder::RoundRobin(Bytes(bytes))),
            _ => Err(ParseError::new("order", text, "fifo, round-robin:1MiB, tic or tac")),
        },
    }
}
