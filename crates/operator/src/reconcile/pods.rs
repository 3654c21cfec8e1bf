//! The pods of a job, as far as decisions depend on them.

pub use crate::pod::Final;

/// What a pod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It leads the run, and computes nothing.
    Coordinator,
    /// It trains.
    Worker,
    /// It holds parameters.
    Server,
}

impl Role {
    /// As it stands in labels.
    pub fn label(self) -> &'static str {
        match self {
            Role::Coordinator => "coordinator",
            Role::Worker => "worker",
            Role::Server => "server",
        }
    }

    /// From a label.
    pub fn of_label(label: &str) -> Option<Role> {
        [Role::Coordinator, Role::Worker, Role::Server].into_iter().find(|role| role.label() == label)
    }
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It has no node yet, or its containers do not run yet.
    Pending,
    /// Its containers run.
    Running {
        /// Whether it says that it is ready.
        ready: bool,
    },
    /// Its containers have ended.
    Ended,
}

/// How the container of a pod ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exit {
    /// Its exit code; absent where the pod was taken away without one.
    pub code: Option<i32>,
    /// `OOMKilled`, `Evicted`, `NodeLost` …, where Kubernetes says so.
    pub reason: String,
    /// What a coordinator said last.
    pub word: Option<Final>,
    /// Whether the pod was taken away: preempted, evicted, drained.
    pub is_disrupted: bool,
    /// When, in seconds since the Unix epoch.
    pub at_s: f64,
}

impl Exit {
    /// Whether the job itself is to blame: neither its node nor a more important pod.
    pub fn is_fault(&self) -> bool {
        let by_memory = self.reason == "OOMKilled";
        // 143: it got SIGTERM. 137: SIGKILL, which comes from outside unless memory ran out.
        let by_signal = matches!(self.code, None | Some(137 | 143));
        !self.is_disrupted && (by_memory || !by_signal) && self.code != Some(0)
    }

    /// For an event: what the pod did.
    pub fn sentence(&self) -> String {
        match (self.code, self.reason.as_str()) {
            (Some(0), _) => "ended".into(),
            (Some(code), "" | "Error") => format!("ended with exit code {code}"),
            (Some(code), reason) => format!("ended with exit code {code} ({reason})"),
            (None, "") => "was taken away".into(),
            (None, reason) => format!("was taken away ({reason})"),
        }
    }
}

/// A pod of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSeen {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its place among the pods of its role.
    pub rank: u32,
    /// The allocation for which it was created.
    pub generation: u64,
    /// The node on which it is, or has to be; empty where that is open.
    pub node: String,
    /// How far it is.
    pub life: Life,
    /// Whether it was told to go.
    pub is_deleting: bool,
    /// Whether Kubernetes is about to take it away.
    pub is_disrupted: bool,
    /// How it ended, if it did.
    pub exit: Option<Exit>,
    /// What it waits for, in Kubernetes' words.
    pub waits_for: Option<String>,
    /// Its address, once it has one.
    pub address: Option<std::net::IpAddr>,
    /// When it was created, in seconds since the Unix epoch.
    pub created_s: f64,
}

impl PodSeen {
    /// Whether it works or will, and was not told to go.
    pub fn is_live(&self) -> bool {
        self.life != Life::Ended && !self.is_deleting
    }

    /// Whether it takes room on its node.
    pub fn holds_its_node(&self) -> bool {
        self.life != Life::Ended
    }

    /// Whether it works.
    pub fn is_ready(&self) -> bool {
        self.is_live() && self.life == Life::Running { ready: true }
    }
}
