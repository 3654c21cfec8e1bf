//! Bellwether as a library: what a program needs to train, predict, plan and simulate.
//!
//! Each module is one thing that you can do; its types are those of the crates behind this one.
#![doc = ""]
#![doc = include_str!("../README.md")]

/// The job: what is trained, how, and by how many workers.
pub mod job {
    pub use bellwether_core::InputError;
    pub use bellwether_core::job::*;
    pub use bellwether_core::parse::job as parse;
    pub use bellwether_core::units::{Bytes, Seconds};
}

/// What a job trains: the trait that a model of one's own implements, and the built-in models.
pub mod workload {
    pub use bellwether_runtime::workload::{
        Evaluation, Layout, Leaf, LeafResult, Loss, MicroBatch, Tensor, TensorExchange, Weights, Workload,
        WorkloadError,
    };
    pub use bellwether_workloads::build as built_in;
}

/// Runs: train a job elastically, steer it while it goes on, take it up again, and read what it left.
pub mod session {
    pub use bellwether_core::plan::Plan;
    pub use bellwether_core::record::{Event, RunFailure, RunOutcome, StepRecord, Summary};
    pub use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
    pub use bellwether_runtime::run_dir::{RunDir, RunDirError, StateDir};
    pub use bellwether_session::{
        Autoscale, Builder, Note, Observe, Program, Progress, Role, RunError, Session, Sharing, Spawn,
        Timeouts, Vanishing, apply_plan,
    };
}

/// Profiles: measure a job for a moment, or read what was measured before.
pub mod profile {
    pub use bellwether_core::profile::*;
    pub use bellwether_session::profile::{How, measure};
}

/// Predictions: how fast a job would be on machines that it has never run on.
pub mod predict {
    pub use bellwether_core::prediction::*;
    pub use bellwether_model::predict::ProfileModel;
    pub use bellwether_model::speedup::{Law, Speedup};
}

pub mod federate;

/// Performance models by the texts that name them, and the files behind these.
pub mod models {
    pub use bellwether_answers::models::*;
}

/// Plans: which machines one job should have, at a price, on servers that may vanish.
pub mod plan {
    pub use bellwether_core::plan::*;
    pub use bellwether_sched::plan::{Catalogue, Machine, Question, Transient, duration, plan};
}

/// Scheduling policies: the trait that a policy of one's own implements, what it sees, and the registry that names
/// it.
pub mod policy {
    pub use bellwether_core::cluster::{
        Allocation, Batch, ClusterView, Job, JobId, JobView, Node, NodeId, Share,
    };
    pub use bellwether_core::policy::*;
    pub use bellwether_sched::decision_builder::DecisionBuilder;
    pub use bellwether_sched::free_devices::FreeDevices;
    pub use bellwether_sched::options::Options;
    pub use bellwether_sched::policy::About;
    pub use bellwether_sched::registry::Registry;
}

pub mod simulate;

pub mod serve;

/// The client of a daemon: submit jobs, follow and steer them, on this machine or from another one.
pub mod client {
    pub use bellwether_client::{Act, Client, ClientError, Endpoint, Event, Events};
    pub use bellwether_serve::api::body::{Limits, Submit};
    pub use bellwether_serve::snapshot::{ClusterState, DecisionState, JobState, Phase};
}
