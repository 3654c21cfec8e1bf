//! Policies in the simulated cluster: reference results, laws, and equality with their plain twins.

mod common;
mod d3l;
mod deadlines;
mod elastic;
mod laws;
mod live;
mod queues;
mod queues_settle;
mod rigid;
mod twins;
mod upheaval;
mod ways;
mod wfs;
