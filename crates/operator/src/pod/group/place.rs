//! The place of a pod in its set, and the environment that tells it to a script.

use std::net::SocketAddr;

use anyhow::bail;

use super::{Backend, Result, Settings};
use crate::exchange::{Member, Wish};

/// Where the first process of a script listens, unless it is told.
const TORCHRUN_PORT: u16 = 29500;

/// Where each process of TensorFlow listens.
const TENSORFLOW_PORT: u16 = 2222;

/// The place of a pod among the members of its set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The pod's rank.
    pub(super) rank: u32,
    /// All of them, by rank.
    members: Vec<Member>,
}

impl Place {
    /// The place of the pod with these settings; `None` while members are missing.
    ///
    /// # Errors
    ///
    /// Members that cannot be a set, or without this pod.
    pub(super) fn find(wish: &Wish, settings: &Settings) -> Result<Option<Place>> {
        let mut members = wish.members.clone();
        members.sort_by_key(|member| member.rank);
        if members.is_empty() || members.len() < wish.size as usize {
            return Ok(None);
        }
        if members.len() > wish.size as usize
            || !(0..).zip(&members).all(|(rank, member)| member.rank == rank)
        {
            bail!(
                "{} pods are members of a set of {}, or their ranks are not 0, 1, …",
                members.len(),
                wish.size
            );
        }
        let rank = match settings.rank {
            Some(rank) => members.get(rank as usize).map(|member| member.rank),
            None => {
                let own = settings.address()?;
                members.iter().find(|member| member.address == own).map(|member| member.rank)
            }
        };
        match rank {
            Some(rank) => Ok(Some(Place { rank, members })),
            None => bail!("this pod is not a member of its set"),
        }
    }

    /// The variables that tell it.
    pub(super) fn environment(&self, backend: Backend, settings: &Settings) -> Vec<(&'static str, String)> {
        let mut variables = match backend {
            Backend::Torchrun => self.torchrun(settings),
            Backend::Tensorflow => {
                vec![("TF_CONFIG", self.tensorflow(settings.port.unwrap_or(TENSORFLOW_PORT)))]
            }
        };
        if std::env::var_os("PYTHONUNBUFFERED").is_none() {
            // What it prints is followed.
            variables.push(("PYTHONUNBUFFERED", "1".into()));
        }
        variables
    }

    /// What PyTorch's processes find, and what `torchrun` takes for its options: then it starts as many processes as
    /// the pod has slots, and tells each its own rank.
    fn torchrun(&self, settings: &Settings) -> Vec<(&'static str, String)> {
        let port = settings.port.unwrap_or(TORCHRUN_PORT).to_string();
        let master = self.members[0].address.to_string();
        let (count, rank) = (self.members.len().to_string(), self.rank.to_string());
        vec![
            ("RANK", rank.clone()),
            ("WORLD_SIZE", count.clone()),
            ("LOCAL_RANK", "0".into()),
            ("MASTER_ADDR", master.clone()),
            ("MASTER_PORT", port.clone()),
            ("PET_NNODES", count),
            ("PET_NODE_RANK", rank),
            ("PET_NPROC_PER_NODE", settings.slots.to_string()),
            ("PET_MASTER_ADDR", master),
            ("PET_MASTER_PORT", port),
        ]
    }

    fn tensorflow(&self, port: u16) -> String {
        let address = |member: &Member| SocketAddr::new(member.address, port).to_string();
        let workers: Vec<String> = self.members.iter().map(address).collect();
        serde_json::json!({
            "cluster": { "worker": workers },
            "task": { "type": "worker", "index": self.rank },
        })
        .to_string()
    }
}
