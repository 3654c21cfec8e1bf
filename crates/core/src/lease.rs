//! A lease as a file: the machines that were asked for, written before they are.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::InputError;
use crate::machines::{Pool, is_lease};
use crate::plan::Plan;

/// Version of the file format that this program writes and reads.
pub const LEASE_VERSION: u32 = 1;

/// The machines of one holder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Version of the format, [`LEASE_VERSION`].
    pub version: u32,
    /// Its word, which is in the tag of each machine.
    pub lease: String,
    /// Who gives the machines: the name of a provider.
    pub provider: String,
    /// Where the provider gives them, if it may speak to several clusters: its machines are looked for there, whatever
    /// the user's configuration says by then. Empty where there is one place only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The folder of the run that holds them.
    pub run: String,
    /// When it began, in seconds since 1970: a deadline counts from here.
    pub began_s: f64,
    /// The plan that is carried out.
    pub plan: Box<Plan>,
    /// All machines that were ever asked for.
    pub machines: Vec<Row>,
}

/// A machine that was requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its number in the lease.
    pub number: u64,
    /// What kind, and how it is rented.
    pub pool: Pool,
    /// Dollars per hour.
    pub dollars_per_hour: f64,
    /// When it was requested, in seconds since 1970.
    pub requested_s: f64,
    /// When it was first seen to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_s: Option<f64>,
    /// When it was seen to be over, of one that had run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
    /// How it ended; absent while it may be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Whether the provider ever listed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_seen: bool,
    /// The workers that it is for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub workers: BTreeSet<u64>,
}

impl Lease {
    /// Reads a lease; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for JSON that is not of this form, another version, or a word that cannot be a lease's.
    pub fn read(text: &str, place: &str) -> Result<Lease, InputError> {
        let hint = "only runs with --provision write leases; `bellwether machines` lists them";
        let lease: Lease = serde_json::from_str(text)
            .map_err(|e| InputError::new(place, format!("invalid lease: {e}")).hint(hint))?;
        if lease.version != LEASE_VERSION {
            let what =
                format!("a lease of version {}, and this program reads {LEASE_VERSION}", lease.version);
            return Err(InputError::new(place, what).hint("use the release that wrote it"));
        }
        if !is_lease(&lease.lease) {
            let what = format!("`{}` cannot be the word of a lease", lease.lease.escape_debug());
            return Err(InputError::new(place, what).hint(hint));
        }
        Ok(lease)
    }

    /// Machines that may be there.
    pub fn open(&self) -> impl Iterator<Item = &Row> {
        self.machines.iter().filter(|row| row.over.is_none())
    }

    /// Dollars that all machines have cost until a moment.
    pub fn dollars(&self, now_s: f64) -> f64 {
        self.machines.iter().map(|row| row.dollars(now_s)).sum()
    }
}

impl Row {
    /// Dollars that it has cost until a moment.
    pub fn dollars(&self, now_s: f64) -> f64 {
        let Some(from_s) = self.running_s else { return 0.0 };
        (self.ended_s.unwrap_or(now_s) - from_s).max(0.0) / 3600.0 * self.dollars_per_hour
    }
}
