//! Tests of the performance models: values by hand, laws, and published measurements.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests, helpers included")]

mod accuracy_asynchronous;
mod accuracy_colocation;
mod apart;
mod batch_times;
mod coarse_bad_input;
mod coarse_calibrate;
mod coarse_laws;
mod coarse_reference;
mod colocation;
mod convergence;
mod curve_breaks;
mod early_end;
mod elastic;
mod elastic_jobs;
mod event;
mod event_laws;
mod event_profiles;
mod gpu_laws;
mod gpu_placement;
mod gpu_published;
mod gpu_sharing;
mod hybrid;
mod import;
mod memory;
mod named;
mod observed;
mod observed_steps;
mod pieces;
mod predict;
mod profiles;
mod regression;
mod rescale;
mod scaling;
mod shared_links;
mod speedup;
mod staleness;
mod tables;
mod throughput_table;
mod transient;
mod transient_jobs;
mod transient_published;
