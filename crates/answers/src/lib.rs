//! Questions that are answered without a run: [`simulate`], [`predict`], [`plan`] and [`capacity`]; and [`fit`], which
//! makes models of measurements.
//!
//! Each module has a `Request`: what is asked, with the files that it names. The command fills requests from its
//! arguments, and the module for Python from named [`options`]; what decides is here or below, once. Nothing here
//! prints.

use std::fmt;

use bellwether_core::InputError;
use bellwether_runtime::run_dir::RunDirError;

pub mod capacity;
pub mod fit;
pub mod models;
pub mod network;
pub mod options;
pub mod plan;
pub mod predict;
pub mod simulate;
mod table;

/// A question has no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The input is bad, or the environment.
    Input(InputError),
    /// The honest answer is no.
    No(String),
    /// A law of ours is broken.
    Broken(String),
    /// A run that is named cannot be found.
    Run(RunDirError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Input(error) => error.fmt(f),
            Refusal::No(reason) | Refusal::Broken(reason) => f.write_str(reason),
            Refusal::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<InputError> for Refusal {
    fn from(error: InputError) -> Refusal {
        Refusal::Input(error)
    }
}

impl From<RunDirError> for Refusal {
    fn from(error: RunDirError) -> Refusal {
        Refusal::Run(error)
    }
}
