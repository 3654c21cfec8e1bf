//! The jobs on which faults fall.

use std::fmt;
use std::str::FromStr;

use bellwether_core::ParseError;
use bellwether_core::units::Bytes;

use crate::jobs::Synthetic;

/// A job, and how its workers keep together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// The synthetic device.
    Synthetic,
    /// The same, each third step verified.
    Verified,
    /// The same through two parameter servers.
    Servers,
    /// The same through a server that has a replica.
    Replica,
    /// A network that learns digits, with momentum.
    Digits,
    /// The same through two servers.
    DigitsServers,
    /// The same with batches that grow at given steps.
    Goodput,
}

impl Case {
    pub(super) const ALL: &[Case] = &[
        Case::Synthetic,
        Case::Verified,
        Case::Servers,
        Case::Replica,
        Case::Digits,
        Case::DigitsServers,
        Case::Goodput,
    ];

    fn name(self) -> &'static str {
        match self {
            Case::Synthetic => "synthetic",
            Case::Verified => "verified",
            Case::Servers => "servers",
            Case::Replica => "replica",
            Case::Digits => "digits",
            Case::DigitsServers => "digits-servers",
            Case::Goodput => "goodput",
        }
    }

    pub(super) fn has_servers(self) -> bool {
        matches!(self, Case::Servers | Case::Replica | Case::DigitsServers)
    }

    /// Whether the device can be told not to sleep.
    fn is_synthetic(self) -> bool {
        matches!(self, Case::Synthetic | Case::Verified | Case::Servers | Case::Replica)
    }

    /// The job file. Its run lasts some seconds unless it is a `quiet` one, for the digest only.
    pub(super) fn text(self, quiet: bool) -> String {
        let job = match self.is_synthetic() {
            true => Synthetic {
                step_ms: if quiet { 0 } else { 10 },
                parameters: Bytes(64 << 10),
                virtual_nodes: 4,
                steps: 200,
                adam: true,
            }
            .text(),
            false => "name = \"bench\"\nseed = 7\nsteps = 1500\n\
                [model]\nkind = \"mlp\"\nhidden = [48]\n[data]\nkind = \"digits\"\n\
                [batch]\nsize = 32\nvirtual_nodes = 8\n\
                [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.05\nmomentum = 0.9\n\
                [evaluation]\nevery_steps = 500\n"
                .into(),
        };
        let more = match self {
            Case::Servers | Case::DigitsServers => "[sync]\nreduce = \"servers\"\nservers = 2\n",
            Case::Replica => "[sync]\nreduce = \"servers\"\nreplica = true\n",
            Case::Goodput => "[mode.goodput]\nmax_batch = 128\nschedule = [[100, 2], [300, 4], [700, 3]]\n",
            Case::Synthetic | Case::Verified | Case::Digits => "",
        };
        let first = match self {
            Case::Verified => "verify_every = 3\non_mismatch = \"quarantine\"\n",
            _ => "",
        };
        format!("{first}{job}{more}")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Case {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let names = || Case::ALL.iter().map(|case| case.name());
        let found = Case::ALL.iter().find(|case| case.name() == text);
        found.copied().ok_or_else(|| ParseError::one_of("case", text, names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_job() {
        for case in Case::ALL {
            assert_eq!(case.name().parse(), Ok(*case));
            for quiet in [false, true] {
                let job = bellwether_core::parse::job(&case.text(quiet), "bench", &[]).unwrap();
                assert_eq!(job.name, "bench");
            }
        }
    }
}
