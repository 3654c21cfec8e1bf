//! Throughput read from measured tables by type of job, type of device, and number of devices.
//!
//! # Model
//!
//! | table                 | measured by                       | between                | beyond              |
//! |-----------------------|-----------------------------------|------------------------|---------------------|
//! | [`GavelTable`]        | kind of job, type, count          | nothing                | nothing             |
//! | [`ElasticFlowTables`] | network, type, count, batch       | count and batch, below | batch, below        |
//!
//! ```text
//! log T(M)   linear in log M    between two batches M of one count
//! log x(k)   linear in log k    between two counts k, at one batch, each as above
//! T(M)       = T(M0)            below the smallest batch M0: no step is shorter
//! T(M)       = T(M1) M / M1     above the largest batch M1: no sample is faster
//! ```
//!
//! | symbol | meaning                        | unit      |
//! |--------|--------------------------------|-----------|
//! | T      | step                           | s         |
//! | M      | global batch                   | samples   |
//! | k      | devices                        | 1         |
//! | x      | throughput, M / T              | samples/s |
//!
//! A job of Gavel's table is counted in steps: its work is steps, and what is called samples per second elsewhere is
//! steps per second here, whatever its batch. It also holds pairs of jobs that share devices; a zero means that they
//! cannot.
//!
//! # Source
//!
//! Narayanan et al., Gavel, OSDI 2020, and Gu et al., ElasticFlow, ASPLOS 2023, for the tables; the interpolation is
//! this project's.
//!
//! # Assumes
//!
//! A gang over several types of device goes as if all were of the slowest. Where the devices are does not matter,
//! except in Gavel's table where that is [asked for](GavelTable::by_nodes). The interval of a prediction has no width:
//! the tables hold no repetitions.
//!
//! # Valid
//!
//! At what was measured, and between its batches and counts. A count that was not measured (Gavel), or lies outside of
//! those that were (ElasticFlow), is refused; a batch outside is an extrapolation and says so.
//!
//! # Checked by
//!
//! `tests/it/throughput_table.rs`: cells of the published tables, values between them by hand, every text is read or
//! refused.
//!
//! ```
//! use bellwether_model::throughput_table::ElasticFlowTables;
//! let mut tables = ElasticFlowTables::default();
//! tables.add("A100", "net", "global_batch_size,1,4\n64,2,4\n256,1,2\n", "A100/net.csv").unwrap();
//! // 128 lies in the middle of 64 and 256 by logarithm: steps of sqrt(0.5 s 1 s).
//! let (examples_per_s, _) = tables.examples_per_s("A100", "net", 1, 128).unwrap();
//! assert!((examples_per_s - 128.0 / 0.5f64.sqrt()).abs() < 1e-9);
//! ```

mod elasticflow;
mod gavel;

pub use elasticflow::ElasticFlowTables;
pub use gavel::GavelTable;

/// Counts in words.
fn listed<'a>(counts: impl Iterator<Item = &'a u32>) -> String {
    let counts: Vec<String> = counts.map(u32::to_string).collect();
    counts.join(", ")
}
