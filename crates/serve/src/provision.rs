//! Machines of a job's own, which a provider gives: such a job takes none of the daemon's slots, and no policy sees it.

use std::net::SocketAddr;

use bellwether_core::InputError;
use bellwether_core::job::CheckedJob;
use bellwether_core::plan::Plan;
use bellwether_session::machines::{ProviderKind, carried_out};
use bellwether_session::{RunError, apply_plan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where machines of a job's own come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provision {
    /// Who gives them.
    #[schemars(extend("enum" = ["here", "slurm", "kubernetes", "skypilot"]))]
    pub provider: String,
    /// The plan that chose them, as `bellwether plan --format json` writes it.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub plan: Box<Plan>,
    /// Address and port of the daemon's machine that they reach; needed by `kubernetes` and `skypilot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

impl Provision {
    /// The provider.
    ///
    /// # Errors
    ///
    /// Returns an error for a name that no provider has.
    pub fn kind(&self) -> Result<ProviderKind, InputError> {
        ProviderKind::named(&self.provider).map_err(|error| error.at("provider"))
    }

    /// The job as the plan lets it be trained, and what of the plan is carried out.
    ///
    /// # Errors
    ///
    /// Returns an error for a plan that chose nothing, that is of another job or of an earlier program, or whose
    /// machines the provider cannot be asked for; and for an address that is missing.
    pub fn checked(self, job: CheckedJob) -> Result<(CheckedJob, Provision), InputError> {
        let kind = self.kind()?;
        self.plan.check("plan")?;
        let job = apply_plan(&self.plan, job, None).map_err(|error| match error {
            RunError::Input(error) | RunError::Option(error) => error,
            error => InputError::new("plan", error.to_string()),
        })?;
        let plan = Box::new(carried_out(kind, &self.plan)?);
        if self.listen.is_none() && kind.needs_address() {
            let what = format!("the machines of {} cannot find the coordinator on loopback", kind.name());
            return Err(InputError::new("listen", what)
                .hint("name an address of the daemon's machine that they reach: --listen HOST:PORT"));
        }
        Ok((job, Provision { plan, ..self }))
    }

    /// Workers that the plan chose.
    pub fn workers(&self) -> u32 {
        self.plan.chosen().map_or(1, |chosen| chosen.workers)
    }
}
