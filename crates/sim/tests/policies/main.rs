//! Policies in the simulated cluster: reference results, laws, and equality with their plain twins.

mod common;
mod laws;
mod rigid;
mod twins;
