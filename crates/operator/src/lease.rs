//! Leader election: of several operators one works, the one that holds a Lease.
//!
//! An operator that takes the Lease from another counts up its transitions. That number goes with every decision that
//! is written
//! ([fencing](crate::controller)), so that one who lost the Lease without noticing cannot overwrite its successor's.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::{Instant, sleep, timeout};

/// How long a Lease holds from its last renewal on, and the time between two renewals.
const HOLDS: Duration = Duration::from_secs(15);
const PERIOD: Duration = Duration::from_secs(4);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(5);

/// A Lease that is held.
#[derive(Debug)]
pub struct Held {
    api: Api<Lease>,
    name: String,
    holder: String,
    lease: Lease,
    renewed_at: Instant,
}

/// What to do about a Lease as it was found.
#[derive(Debug, PartialEq)]
enum Step {
    /// Write this.
    Take(LeaseSpec),
    /// Another holds it: look again later.
    Wait,
}

/// `seen_for`: how long the Lease has not changed, by this process's own clock.
fn step(spec: &LeaseSpec, holder: &str, seen_for: Duration, now: Timestamp) -> Step {
    let other = spec.holder_identity.as_deref().filter(|other| !other.is_empty());
    let holds_s = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    // By how long nothing was renewed while we looked, for the clocks of machines differ.
    if other.is_some_and(|other| other != holder) && seen_for < Duration::from_secs(holds_s) {
        return Step::Wait;
    }
    let is_ours = other == Some(holder);
    let transitions = spec.lease_transitions.unwrap_or(0);
    Step::Take(LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: i32::try_from(HOLDS.as_secs()).ok(),
        acquire_time: spec.acquire_time.clone().filter(|_| is_ours).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_ours { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    })
}

/// Waits until the Lease of this name is ours.
///
/// # Errors
///
/// Returns an error if the API server refuses what is needed for it.
pub async fn acquire(api: Api<Lease>, name: &str, holder: &str) -> Result<Held> {
    let mut seen: Option<(String, Instant)> = None;
    loop {
        match attempt(&api, name, holder, &mut seen).await {
            Ok(Some(lease)) => {
                let (name, holder) = (name.to_owned(), holder.to_owned());
                return Ok(Held { api, name, holder, lease, renewed_at: Instant::now() });
            }
            Ok(None) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                return Err(kube::Error::Api(status))
                    .with_context(|| format!("the Lease {name} cannot be used"));
            }
            // A server that is away comes back.
            Err(_) => {}
        }
        sleep(PERIOD / 2).await;
    }
}

async fn attempt(
    api: &Api<Lease>,
    name: &str,
    holder: &str,
    seen: &mut Option<(String, Instant)>,
) -> kube::Result<Option<Lease>> {
    let Some(mut lease) = api.get_opt(name).await? else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let empty = Lease { metadata, spec: Some(LeaseSpec::default()) };
        // Another may be faster.
        return match api.create(&PostParams::default(), &empty).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            made => made.map(|_| None),
        };
    };
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    let since = match seen {
        Some((known, since)) if *known == version => *since,
        _ => seen.insert((version, Instant::now())).1,
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let Step::Take(spec) = step(&spec, holder, since.elapsed(), Timestamp::now()) else { return Ok(None) };
    lease.spec = Some(spec);
    match api.replace(name, &PostParams::default(), &lease).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        replaced => replaced.map(Some),
    }
}

impl Held {
    /// The number that goes with decisions.
    pub fn transitions(&self) -> u64 {
        let spec = self.lease.spec.as_ref();
        spec.and_then(|spec| spec.lease_transitions)
            .and_then(|number| u64::try_from(number).ok())
            .unwrap_or(0)
    }

    /// Renews the Lease for as long as that is possible; returns why it is not any more.
    ///
    /// # Errors
    ///
    /// Always: it is another's, or could not be renewed before it ran out.
    pub async fn keep(mut self) -> Result<std::convert::Infallible> {
        loop {
            sleep(PERIOD).await;
            let mut next = self.lease.clone();
            if let Some(spec) = &mut next.spec {
                spec.renew_time = Some(MicroTime(Timestamp::now()));
            }
            let replaced = timeout(CALL, self.api.replace(&self.name, &PostParams::default(), &next)).await;
            match replaced {
                Ok(Ok(lease)) => (self.lease, self.renewed_at) = (lease, Instant::now()),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => self.look().await?,
                _ => {}
            }
            if self.renewed_at.elapsed() + CALL > HOLDS {
                bail!(
                    "the Lease {} could not be renewed for {} s",
                    self.name,
                    HOLDS.as_secs() - CALL.as_secs()
                );
            }
        }
    }

    /// Somebody else wrote the Lease.
    async fn look(&mut self) -> Result<()> {
        if let Ok(Ok(lease)) = timeout(CALL, self.api.get(&self.name)).await {
            let holder =
                lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
            if holder != self.holder {
                bail!("the Lease {} is held by {holder} now", self.name);
            }
            self.lease = lease;
        }
        Ok(())
    }

    /// Lets another take it at once.
    pub async fn give_up(api: Api<Lease>, name: &str, holder: &str) {
        let Ok(Ok(mut lease)) = timeout(CALL, api.get(name)).await else { return };
        let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_deref() == Some(holder))
        else {
            return;
        };
        spec.holder_identity = Some(String::new());
        // Where that fails, it runs out.
        let _ = timeout(CALL, api.replace(name, &PostParams::default(), &lease)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    fn taken(step: Step) -> Option<i32> {
        match step {
            Step::Take(spec) => spec.lease_transitions,
            Step::Wait => None,
        }
    }

    #[test]
    fn a_lease_is_taken_when_it_has_run_out_and_each_change_of_hands_counts() {
        let now = Timestamp::now();
        let after = |spec: &LeaseSpec, seconds| taken(step(spec, "b", Duration::from_secs(seconds), now));
        assert_eq!(after(&LeaseSpec::default(), 0), Some(1), "the first one");
        assert_eq!(after(&spec("a", 3), 14), None);
        assert_eq!(after(&spec("a", 3), 15), Some(4));
        assert_eq!(after(&spec("", 4), 0), Some(5), "given up");
        assert_eq!(after(&spec("b", 5), 0), Some(5), "its own");
        assert_eq!(
            after(&LeaseSpec { lease_duration_seconds: Some(-1), ..spec("a", i32::MAX) }, 1),
            Some(i32::MAX)
        );
    }
}
