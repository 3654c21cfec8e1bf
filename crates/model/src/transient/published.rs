//! Measured lifetimes and start-up times of transient servers on Google Compute Engine.
//!
//! Source: S. Li, R. J. Walls and T. Guo, CM-DARE, ICDCS 2020, arXiv 2004.03072, with its published notebooks
//! (<https://github.com/cake-lab/CM-DARE>, Apache-2.0): 396 servers, which live at most 24 hours.

use bellwether_core::ParseError;

use super::law::Law;

/// The provider ends every transient server after these seconds.
const LIMIT_S: f64 = 24.0 * HOUR_S;
const HOUR_S: f64 = 3600.0;

/// Hours of life at which the regional tables count.
const HOURS: [u32; 7] = [1, 2, 3, 6, 12, 18, 24];

/// Device, region, servers, and how many of them were revoked within each of [`HOURS`].
type Region = (&'static str, &'static str, u32, [u32; 7]);

const REGIONS: [Region; 12] = [
    ("k80", "us-east1", 30, [14, 14, 14, 14, 14, 14, 14]),
    ("k80", "us-central1", 48, [5, 5, 7, 8, 13, 22, 27]),
    ("k80", "us-west1", 48, [2, 2, 7, 8, 9, 10, 11]),
    ("k80", "europe-west1", 30, [12, 12, 14, 14, 16, 20, 20]),
    ("p100", "us-east1", 30, [6, 12, 19, 19, 20, 20, 21]),
    ("p100", "us-central1", 30, [8, 10, 10, 10, 14, 16, 16]),
    ("p100", "us-west1", 30, [5, 9, 9, 13, 16, 20, 20]),
    ("p100", "europe-west1", 30, [0, 2, 4, 5, 7, 7, 8]),
    ("v100", "us-central1", 30, [20, 20, 20, 20, 20, 20, 20]),
    ("v100", "us-west1", 30, [9, 15, 16, 22, 22, 22, 22]),
    ("v100", "europe-west4", 30, [2, 5, 5, 6, 7, 11, 13]),
    ("v100", "asia-east1", 30, [7, 9, 11, 14, 14, 14, 14]),
];

/// What is known of a device over all regions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Its name, in small letters.
    pub name: &'static str,
    /// Servers whose lifetime was observed.
    pub servers: u32,
    /// How many of them were revoked in each hour of their life.
    pub revoked: [u32; 24],
    /// Seconds from the request of a transient server until it runs, at the beginning of a job (mean over regions; for
    /// V100 none was published, this is that of a replacement).
    pub provision_s: f64,
    /// The same, requested at once after a revocation.
    pub replacement_s: f64,
}

/// The devices whose lifetimes are known.
pub const DEVICES: [Device; 3] = [
    Device {
        name: "k80",
        servers: 156,
        revoked: [33, 0, 9, 1, 0, 1, 6, 0, 1, 0, 0, 1, 2, 1, 1, 10, 0, 0, 0, 0, 2, 0, 0, 4],
        provision_s: 83.25,
        replacement_s: 70.3,
    },
    Device {
        name: "p100",
        servers: 120,
        revoked: [19, 14, 9, 0, 5, 0, 4, 2, 0, 2, 2, 0, 0, 0, 5, 1, 0, 0, 0, 1, 0, 0, 0, 1],
        provision_s: 91.15,
        replacement_s: 67.3,
    },
    Device {
        name: "v100",
        servers: 120,
        revoked: [38, 11, 3, 8, 0, 2, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        provision_s: 70.9,
        replacement_s: 70.9,
    },
];

/// Network, and seconds that a worker of it takes to join on a new server and on one that was used before.
pub const JOINS: [(&str, f64, f64); 4] = [
    ("resnet-15", 75.6, 14.8),
    ("resnet-32", 78.7, 19.0),
    ("shake-shake-small", 89.1, 29.4),
    ("shake-shake-big", 90.8, 30.6),
];

/// The device of this name.
///
/// # Errors
///
/// Returns an error for an unknown device; it lists the known ones.
pub fn device(name: &str) -> Result<&'static Device, ParseError> {
    let found = DEVICES.iter().find(|device| device.name == name);
    found.ok_or_else(|| ParseError::one_of("device with published lifetimes", name, devices()))
}

/// Names of the devices whose lifetimes are known.
pub fn devices() -> impl Iterator<Item = &'static str> {
    DEVICES.iter().map(|device| device.name)
}

/// Regions in which lifetimes of a device are known.
pub fn regions(device: &str) -> impl Iterator<Item = &'static str> {
    REGIONS.iter().filter(move |row| row.0 == device).map(|row| row.1)
}

/// Lifetimes of a device in one region, by straight lines between seven hours of life.
///
/// # Errors
///
/// Returns an error for an unknown device or region; it lists the known ones.
pub fn regional(name: &str, region: &str) -> Result<Law, ParseError> {
    device(name)?;
    let row = REGIONS.iter().find(|row| row.0 == name && row.1 == region);
    let (_, _, servers, revoked) = row.ok_or_else(|| {
        let what = format!("region with published lifetimes of {name}");
        ParseError::one_of(what, region, regions(name))
    })?;
    let points = HOURS.iter().zip(revoked);
    let points: Vec<(f64, f64)> = points
        .map(|(hour, gone)| (f64::from(*hour) * HOUR_S, f64::from(*gone) / f64::from(*servers)))
        .collect();
    Ok(Law::points(&points, LIMIT_S).expect("the published counts never fall"))
}

/// Lifetimes of a device over all regions, by straight lines between full hours of life.
///
/// # Errors
///
/// Returns an error for an unknown device; it lists the known ones.
pub fn hourly(name: &str) -> Result<Law, ParseError> {
    let device = device(name)?;
    let mut gone = 0;
    let points: Vec<(f64, f64)> = (1u32..)
        .zip(device.revoked)
        .map(|(hour, revoked)| {
            gone += revoked;
            (f64::from(hour) * HOUR_S, f64::from(gone) / f64::from(device.servers))
        })
        .collect();
    Ok(Law::points(&points, LIMIT_S).expect("the published counts never fall"))
}
