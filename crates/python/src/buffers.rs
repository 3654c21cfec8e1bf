//! Python's vectors: buffers of `f32` that numpy arrays and tensors offer.

use std::ops::Range;

use bellwether_runtime::workload::{Layout, tensor_ranges};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice};

use crate::workload::{Memory, Place};

/// Values of a piece of the flat vectors that an own rule updates at once, at most.
pub(crate) const PIECE: usize = 65_536;

/// The vectors that Python shares with the runtime's thread.
pub(crate) struct Buffers {
    parameters: PyBuffer<f32>,
    state: PyBuffer<f32>,
    gradient: PyBuffer<f32>,
    /// Its parts, tensor by tensor.
    tensors: Vec<PyBuffer<f32>>,
    state_out: PyBuffer<f32>,
    piece: Option<Piece>,
}

struct Piece {
    parameters: PyBuffer<f32>,
    gradient: PyBuffer<f32>,
    slots: Vec<PyBuffer<f32>>,
}

/// Parameters, state, gradient and the state that a micro-batch leaves, as Python hands them over.
pub(crate) type Vectors<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Parameters, gradient and slots of a piece, as Python hands them over.
pub(crate) type PieceVectors<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>);

impl Buffers {
    /// Takes the vectors, which must have this layout's lengths.
    pub(crate) fn new(
        vectors: &Vectors<'_>,
        piece: Option<&PieceVectors<'_>>,
        layout: &Layout,
    ) -> PyResult<Buffers> {
        let (parameters, state) = (layout.parameter_count(), layout.state_count());
        let piece = piece.map(|(parameters, gradient, slots)| {
            PyResult::Ok(Piece {
                parameters: buffer(parameters, "piece.parameters", PIECE)?,
                gradient: buffer(gradient, "piece.gradient", PIECE)?,
                slots: slots
                    .iter()
                    .map(|slot| buffer(slot, "piece.slots", PIECE))
                    .collect::<PyResult<_>>()?,
            })
        });
        Ok(Buffers {
            parameters: buffer(&vectors.0, "parameters", parameters)?,
            state: buffer(&vectors.1, "state", state)?,
            gradient: buffer(&vectors.2, "gradient", parameters)?,
            tensors: tensors(&vectors.2, layout)?,
            state_out: buffer(&vectors.3, "state_out", state)?,
            piece: piece.transpose()?,
        })
    }

    fn at(&self, place: Place) -> Result<&PyBuffer<f32>, String> {
        let piece = || self.piece.as_ref().ok_or("the script brought no rule of its own");
        Ok(match place {
            Place::Parameters => &self.parameters,
            Place::State => &self.state,
            Place::Gradient => &self.gradient,
            Place::Tensor(tensor) => self.tensors.get(tensor).ok_or("the layout has fewer tensors")?,
            Place::StateOut => &self.state_out,
            Place::PieceParameters => &piece()?.parameters,
            Place::PieceGradient => &piece()?.gradient,
            Place::PieceSlot(slot) => {
                piece()?.slots.get(slot).ok_or("the script's rule has fewer slots than the run's")?
            }
        })
    }
}

/// The parts of a vector, tensor by tensor.
fn tensors(vector: &Bound<'_, PyAny>, layout: &Layout) -> PyResult<Vec<PyBuffer<f32>>> {
    let view = PyMemoryView::from(vector)?;
    let part = |range: Range<usize>| {
        // A slice of a vector in memory ends before the largest number that Python takes here.
        let slice = PySlice::new(vector.py(), range.start as isize, range.end as isize, 1);
        buffer(&view.get_item(slice)?, "gradient", range.len())
    };
    tensor_ranges(layout).into_iter().map(part).collect()
}

fn buffer(object: &Bound<'_, PyAny>, name: &str, length: usize) -> PyResult<PyBuffer<f32>> {
    let wrong = |what: String| PyValueError::new_err(format!("{name}: {what}"));
    let buffer =
        PyBuffer::<f32>::get(object).map_err(|error| wrong(format!("no buffer of float32: {error}")))?;
    let found = buffer.item_count();
    if found != length {
        return Err(wrong(format!("{found} values where {length} are needed")));
    }
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(wrong("the buffer is not writable and contiguous".into()));
    }
    Ok(buffer)
}

impl Memory for Buffers {
    fn put(&self, place: Place, values: &[f32]) -> Result<(), String> {
        let buffer = self.at(place)?;
        let length = fitting(buffer, values.len())?;
        Python::attach(|py| match values.len() == length {
            true => buffer.copy_from_slice(py, values),
            // Only the last piece is shorter, and buffers are copied whole or not at all.
            false => {
                let mut padded = values.to_vec();
                padded.resize(length, 0.0);
                buffer.copy_from_slice(py, &padded)
            }
        })
        .map_err(|error| error.to_string())
    }

    fn take(&self, place: Place, out: &mut [f32]) -> Result<(), String> {
        let buffer = self.at(place)?;
        let length = fitting(buffer, out.len())?;
        Python::attach(|py| match out.len() == length {
            true => buffer.copy_to_slice(py, out),
            false => buffer.to_vec(py).map(|values| out.copy_from_slice(&values[..out.len()])),
        })
        .map_err(|error| error.to_string())
    }
}

/// The length of a buffer that has room for this many values.
fn fitting(buffer: &PyBuffer<f32>, values: usize) -> Result<usize, String> {
    let length = buffer.item_count();
    let text = || format!("{values} values do not fit into a buffer of {length}");
    (values <= length).then_some(length).ok_or_else(text)
}
