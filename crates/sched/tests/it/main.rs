//! Tests of plans, policies, programs and control: golden values, laws, and yardsticks.

mod autoscale;
mod batch;
mod bottleneck;
mod capacity;
mod choice;
mod evolution;
mod fleet;
mod gavel_programs;
mod goodput;
mod library;
mod mapping;
mod options;
mod packed_program;
mod plan;
mod plan_ways;
mod promise;
mod shares;
mod stragglers;
mod synchronise;
mod tune;
