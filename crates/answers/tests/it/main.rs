//! Tests of questions that are answered without a run.

mod capacity;
mod predict;
