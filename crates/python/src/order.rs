//! The class `SampleOrder`: which samples a virtual node takes in a step.

use std::num::NonZeroU64;

use bellwether_runtime::order;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Which samples a virtual node takes in a step, and the seed of its randomness: a pure function.
#[pyclass(frozen)]
pub(crate) struct SampleOrder(order::SampleOrder);

#[pymethods]
impl SampleOrder {
    #[new]
    #[pyo3(signature = (samples, batch, virtual_nodes, seed, block=None))]
    fn new(
        samples: u64,
        batch: u64,
        virtual_nodes: u32,
        seed: u64,
        block: Option<NonZeroU64>,
    ) -> PyResult<SampleOrder> {
        if samples == 0 || batch == 0 || virtual_nodes == 0 {
            return Err(PyValueError::new_err("samples, batch and virtual_nodes must be at least 1"));
        }
        Ok(SampleOrder(order::SampleOrder { samples, batch, virtual_nodes, seed, block }))
    }

    /// Steps of an epoch; the last one takes what is left.
    #[getter]
    fn steps_per_epoch(&self) -> u64 {
        self.0.steps_per_epoch()
    }

    /// The indices of a virtual node's samples, in order.
    fn micro_batch(&self, step: u64, node: u32) -> PyResult<Vec<u64>> {
        let mut samples = Vec::new();
        self.checked(node)?.micro_batch(step, node, &mut samples);
        Ok(samples)
    }

    /// The seed of all randomness of a virtual node in a step.
    fn seed(&self, step: u64, node: u32) -> PyResult<u64> {
        Ok(order::micro_batch_seed(self.checked(node)?.seed, step, node))
    }
}

impl SampleOrder {
    fn checked(&self, node: u32) -> PyResult<&order::SampleOrder> {
        if node >= self.0.virtual_nodes {
            let what = format!("virtual node {node} of {}: they are counted from 0", self.0.virtual_nodes);
            return Err(PyValueError::new_err(what));
        }
        Ok(&self.0)
    }
}
