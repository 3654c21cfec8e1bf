//! Where machines may come from.

use bellwether_core::machines::Pool;
use bellwether_core::plan::{Basis, Market};

/// Seconds for which a machine may wait beyond the time that it usually takes to come, and how many such times.
const PATIENCE_S: f64 = 60.0;
const PATIENCE_TIMES: f64 = 3.0;

/// Machines that may be had.
#[derive(Debug, Clone, PartialEq)]
pub struct Supply {
    /// What kind, and how it is rented.
    pub pool: Pool,
    /// Where it stands, if that is known.
    pub region: Option<String>,
    /// Devices of one, each a worker.
    pub devices: u32,
    /// Dollars per hour of one.
    pub dollars_per_hour: f64,
    /// Most machines of the kind at once, however they are rented.
    pub limit: Option<u32>,
    /// Seconds for which one may wait before another pool stands in.
    pub patience_s: f64,
}

impl Supply {
    /// What nothing is known of.
    pub(super) fn unknown() -> Supply {
        let pool = Pool { machine: "unknown".into(), market: Market::OnDemand };
        Supply { pool, region: None, devices: 1, dollars_per_hour: 0.0, limit: None, patience_s: PATIENCE_S }
    }

    pub(super) fn dollars_per_device(&self) -> f64 {
        self.dollars_per_hour / f64::from(self.devices.max(1))
    }
}

/// What a plan may use, the most work for a dollar first.
pub fn supplies(basis: &Basis) -> Vec<Supply> {
    let mut rated: Vec<(f64, Supply)> = Vec::new();
    for kind in &basis.kinds {
        let Some(alone) = kind.examples_per_s.first() else { continue };
        for market in [Market::OnDemand, Market::Transient] {
            let Some(dollars_per_hour) = kind.dollars_per_hour(market) else { continue };
            let supply = Supply {
                pool: Pool { machine: kind.machine.clone(), market },
                region: kind.region.clone(),
                devices: kind.devices,
                dollars_per_hour,
                limit: kind.limit,
                patience_s: PATIENCE_S + PATIENCE_TIMES * kind.provision_s,
            };
            rated.push((dollars_per_hour / alone, supply));
        }
    }
    rated.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.pool.cmp(&b.1.pool)));
    rated.into_iter().map(|(_, supply)| supply).collect()
}
