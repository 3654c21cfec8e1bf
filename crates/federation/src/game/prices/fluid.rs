//! The market without queues: what is left over goes to who needs it.

use super::Performance;

/// A member of the fluid market.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Site {
    /// Servers that it owns; more than 0.
    pub servers: u32,
    /// Servers that its own requests would keep busy, on average.
    pub load: f64,
}

/// What each member gains if each shares this many servers. A member serves its own first and lends what it has left
/// and shares; what all have left is parted among who needs it in proportion to the need, and taken in proportion to
/// what is left. A busy server completes `service_per_s` requests per second.
///
/// The limit of large members whose requests arrive evenly; without chance no request waits.
pub fn fluid(sites: &[Site], service_per_s: f64, shared: &[u32]) -> Vec<Performance> {
    let spare = |(site, &shared): (&Site, &u32)| {
        let idle = (f64::from(site.servers) - site.load).max(0.0);
        idle.min(f64::from(shared))
    };
    let spares: Vec<f64> = sites.iter().zip(shared).map(spare).collect();
    let needs: Vec<f64> = sites.iter().map(|site| (site.load - f64::from(site.servers)).max(0.0)).collect();
    let (left, needed): (f64, f64) = (spares.iter().sum(), needs.iter().sum());
    let traded = left.min(needed);
    let part = |of: f64, all: f64| if all > 0.0 { traded * of / all } else { 0.0 };
    let performance = |((site, &spare), &need): ((&Site, &f64), &f64)| {
        let (lent, borrowed) = (part(spare, left), part(need, needed));
        let own = site.load.min(f64::from(site.servers));
        Performance {
            lent,
            borrowed,
            forwarded_per_s: (need - borrowed) * service_per_s,
            utilisation: (own + lent) / f64::from(site.servers),
        }
    };
    sites.iter().zip(&spares).zip(&needs).map(performance).collect()
}
