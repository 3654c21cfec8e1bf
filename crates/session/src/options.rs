//! The one place where a coordinator's options are filled.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Model};
use bellwether_core::plan::Synchronisation;
use bellwether_runtime::coordinator::{MeasureLinks, Options};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::run_dir::RunDir;

use crate::error::RunError;

/// Where a coordinator listens that is not to be reached from other machines.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long a run waits for what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timeouts {
    /// Silence after which a worker counts as lost; a broken connection counts at once.
    pub heartbeat: Duration,
    /// How long committed steps that only lost workers hold wait for these, before the run goes back to its
    /// checkpoint.
    pub grace: Duration,
    /// How long the workers hold the state when the checkpoint of the last step cannot be written; then the
    /// run fails.
    pub last_checkpoint: Duration,
}

impl Default for Timeouts {
    /// 5 s of silence, 4 s of grace, 5 min for the last checkpoint.
    fn default() -> Timeouts {
        Timeouts {
            heartbeat: Duration::from_secs(5),
            grace: Duration::from_secs(4),
            last_checkpoint: Duration::from_secs(300),
        }
    }
}

/// Those of a run in `run` of one worker that joins by hand, without a director.
pub(crate) fn options(
    run: &RunDir,
    job: CheckedJob,
    description: &WorkloadDescription,
    listen: SocketAddr,
) -> Result<Options, RunError> {
    let Timeouts { heartbeat, grace, last_checkpoint } = Timeouts::default();
    Ok(Options {
        run: run.name.clone(),
        folder: run.path.clone(),
        token: run.token()?,
        listen,
        data_listen: SocketAddr::new(listen.ip(), 0),
        workers: 1,
        min_workers: 1,
        max_workers: 1,
        schedule: Vec::new(),
        spawn: None,
        spawn_server: None,
        synchronisation: Synchronisation::default(),
        workload: Some(description.clone()),
        initial_weights: None,
        offers_checkpoints: matches!(job.model, Model::Python { .. }),
        speeds: BTreeMap::new(),
        director: None,
        heartbeat_timeout: heartbeat,
        grace,
        last_checkpoint_wait: last_checkpoint,
        accept_other_data: false,
        plain_transport: None,
        expected_step_s: None,
        replaces_alone: false,
        measure_links: MeasureLinks::Never,
        job,
    })
}

/// Refuses an address at which this machine cannot listen now.
///
/// # Errors
///
/// Such an address, as the option `listen`.
pub(crate) fn is_free(address: SocketAddr) -> Result<(), RunError> {
    TcpListener::bind(address).map(drop).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => "another program has the port; choose another one",
            _ => "name an address of this machine",
        };
        RunError::Option(InputError::new("listen", format!("cannot listen on {address}: {error}")).hint(hint))
    })
}

/// Refuses an address that stands for all of a machine's: it cannot be told to others.
///
/// # Errors
///
/// Returns an error for such an address, as the option `listen`.
pub fn reachable(address: SocketAddr) -> Result<(), RunError> {
    if address.ip().is_unspecified() {
        let what = format!("{} is not an address that others can reach", address.ip());
        return Err(RunError::Option(
            InputError::new("listen", what)
                .hint("name one address of this machine, for example its address in your private network"),
        ));
    }
    Ok(())
}
