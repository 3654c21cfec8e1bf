//! Several parameter servers: every step visits all of them at once and waits for the last.

use bellwether_core::InputError;

use super::{ClosedNetwork, PLACE};
use crate::common::check;

/// A server whose demand reaches this share of the largest delays steps beside it and is kept as a station.
const KEPT_SHARE: f64 = 0.8;

/// How the bytes of the parameters are spread over servers, each with a link of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    shares: Vec<f64>,
}

impl Shares {
    /// Bytes that each server holds, in any unit.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no server; negative bytes; no bytes at all.
    pub fn new(bytes: &[f64]) -> Result<Shares, InputError> {
        for &held in bytes {
            check::negative(PLACE, "what a server holds, in bytes,", held)?;
        }
        let total: f64 = bytes.iter().sum();
        if bytes.is_empty() || total <= 0.0 || !total.is_finite() {
            return Err(InputError::new(PLACE, "the servers hold no parameters")
                .hint("name at least one server, and how many bytes each holds"));
        }
        Ok(Shares { shares: bytes.iter().map(|held| held / total).collect() })
    }

    /// The same for each of `servers`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no server, or more than a million.
    pub fn equal(servers: u32) -> Result<Shares, InputError> {
        check::servers(PLACE, servers)?;
        Ok(Shares { shares: vec![1.0 / f64::from(servers); servers as usize] })
    }

    /// The share of the server that holds most: the speed-up from more servers is at most its reciprocal.
    pub fn largest(&self) -> f64 {
        self.shares.iter().copied().fold(0.0, f64::max)
    }

    /// Number of servers.
    pub fn count(&self) -> usize {
        self.shares.len()
    }
}

/// The network of a step that computes `delay_s`, then visits all servers at once, each for its share of
/// `visits_s` (seconds that one server with all parameters would need: for its downlink, its uplink, its
/// update).
///
/// A visit takes as long as its slowest server. Servers within 20 % of the largest share are stations of
/// their own, as a step may have to wait at either; what they add to a lone step is taken off the delay,
/// so that a lone step takes `delay_s` plus the slowest server's time, as it does. Where the delay is
/// smaller than that, the largest alone remains. Smaller servers are always done before the largest.
///
/// # Errors
///
/// Returns an error for negative seconds, or none at all.
pub fn fork_join(delay_s: f64, visits_s: &[f64], shares: &Shares) -> Result<ClosedNetwork, InputError> {
    check::negative(PLACE, "the delay in seconds", delay_s)?;
    let largest = shares.largest();
    let kept: Vec<f64> =
        shares.shares.iter().copied().filter(|share| *share >= KEPT_SHARE * largest).collect();
    let total_s: f64 = visits_s.iter().sum();
    let added_s = total_s * (kept.iter().sum::<f64>() - largest);
    if added_s > delay_s {
        let demands_s: Vec<f64> = visits_s.iter().map(|visit_s| visit_s * largest).collect();
        return ClosedNetwork::new(delay_s, &demands_s);
    }
    let demands_s: Vec<f64> =
        visits_s.iter().flat_map(|visit_s| kept.iter().map(move |share| visit_s * share)).collect();
    ClosedNetwork::new(delay_s - added_s, &demands_s)
}
