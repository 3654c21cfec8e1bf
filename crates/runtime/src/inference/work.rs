//! What an inference computes, as its caller gives it.

use bellwether_core::InputError;

use super::{Answer, Request};

/// What is computed: how a unit becomes a request, and an answer a result. Called by a thread per worker.
pub trait Work: Send + Sync + 'static {
    /// What the source gives, and is handed to one worker.
    type Unit: Send + Sync + 'static;
    /// What becomes of it.
    type Output: Send + 'static;

    /// What a worker is asked for.
    ///
    /// # Errors
    ///
    /// Returns an error if the unit cannot be understood; the inference ends with it once all results before it are
    /// out.
    fn request(&self, unit: &Self::Unit) -> Result<Request, InputError>;

    /// What becomes of the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer does not fit the unit.
    fn output(&self, unit: &Self::Unit, answer: Answer) -> Result<Self::Output, InputError>;
}
