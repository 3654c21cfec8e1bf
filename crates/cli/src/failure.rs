//! How a verb fails, and with which exit code.

use std::fmt;
use std::process::ExitCode;

use bellwether_answers::Refusal;
use bellwether_core::InputError;
use bellwether_render::plot::PlotError;

/// A verb could not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad input or environment: exit code 2.
    Input(InputError),
    /// The honest answer is no: exit code 1.
    No(String),
    /// A law of ours is broken: exit code 3.
    Broken(String),
}

impl Failure {
    /// Something in the environment failed at `place`.
    pub(crate) fn at(place: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::Input(InputError::new(place, why.to_string()))
    }

    /// 1 for an honest no, 2 for bad input or environment, 3 for a broken law of ours.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) => ExitCode::from(2),
            Failure::No(_) => ExitCode::from(1),
            Failure::Broken(_) => ExitCode::from(3),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Failure::Input(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Input(error) => Failure::Input(error),
            Refusal::No(reason) => Failure::No(reason),
            Refusal::Broken(what) => Failure::Broken(what),
            Refusal::Run(error) => error.into(),
        }
    }
}

impl From<PlotError> for Failure {
    fn from(error: PlotError) -> Self {
        Failure::at("--plot", error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(error) => error.fmt(f),
            Failure::No(reason) | Failure::Broken(reason) => f.write_str(reason),
        }
    }
}
