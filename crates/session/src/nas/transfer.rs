//! Weights of a supernet for one that was split off from it.

use bellwether_runtime::workload::{Layout, tensor_ranges};

/// A supernet has no tensor for its part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the supernet has no tensor `{name}` of shape {shape:?}")]
pub struct TransferError {
    /// The tensor that is wanted.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// Copies the parameters that both have, byte by byte; those of operations that were dropped stay behind.
///
/// - `from`: layout and flat parameters of the parent, `parameter_count` values.
/// - `to`: layout of the part, of which the parent has every tensor by name and shape.
///
/// # Errors
///
/// Returns the first tensor that the parent lacks.
///
/// # Panics
///
/// When there are fewer parameters than the parent's layout says.
pub fn transfer((from, parameters): (&Layout, &[f32]), to: &Layout) -> Result<Vec<f32>, TransferError> {
    let ranges = tensor_ranges(from);
    let mut values = Vec::with_capacity(to.parameter_count());
    for tensor in &to.parameters {
        let place = from.parameters.iter().position(|own| own == tensor);
        let lacks = || TransferError { name: tensor.name.clone(), shape: tensor.shape.clone() };
        values.extend_from_slice(&parameters[ranges[place.ok_or_else(lacks)?].clone()]);
    }
    Ok(values)
}
