//! The function `give_verdict`: whether a run goes on after a step at which its workers wait.

use std::path::PathBuf;

use bellwether_runtime::control::Answer;
use bellwether_runtime::control::client::Control;
use bellwether_runtime::run_dir::RunDir;
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;

/// Lets the run in `folder` go on after `step`, or ends it there for the reason `ends`. Whether that is followed, and
/// why not; `ConnectionError` where no coordinator answers.
#[pyfunction]
pub(crate) fn give_verdict(
    py: Python<'_>,
    folder: PathBuf,
    step: u64,
    ends: Option<String>,
) -> PyResult<(bool, String)> {
    let answer = py.detach(|| ask(&RunDir::at(folder), step, ends.as_deref()));
    let Answer { accepted, message } = answer.map_err(PyConnectionError::new_err)?;
    Ok((accepted, message))
}

fn ask(run: &RunDir, step: u64, ends: Option<&str>) -> Result<Answer, String> {
    let endpoint = run.endpoint().ok_or("its coordinator does not listen")?;
    let token = run.token().map_err(|error| error.to_string())?;
    let mut control =
        Control::connect(&endpoint.control.to_string(), &token).map_err(|error| error.to_string())?;
    control.verdict(step, ends).map_err(|error| error.to_string())
}
