//! The functions `simulate`, `predict`, `plan` and `capacity`: named options in, the command's JSON out.

use std::fmt::Display;
use std::path::PathBuf;

use bellwether_answers::options::Options;
use bellwether_answers::{Refusal, capacity, fit, plan, predict, simulate};
use bellwether_core::InputError;
use bellwether_core::fitted::FittedFile;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value};

/// The figures of every policy, as `bellwether simulate --format json` prints them.
#[pyfunction(name = "simulate")]
pub(crate) fn of_simulation(py: Python<'_>, options: &str) -> PyResult<String> {
    let figures = || -> Result<Vec<Map<String, Value>>, Refusal> {
        let request = simulate::Request::of(Options::read(options)?)?;
        let results = request.answer(&request.inputs()?, &mut |_, _| {})?;
        Ok(results.iter().map(simulate::PolicyResult::figures).collect())
    };
    text(&py.detach(figures).map_err(raised)?)
}

/// The answers of `bellwether predict --format json`; those of a whole run where `steps` is given.
#[pyfunction(name = "predict")]
pub(crate) fn of_prediction(py: Python<'_>, options: &str) -> PyResult<String> {
    let answer = || -> Result<PyResult<String>, InputError> {
        let mut options = Options::read(options)?;
        let kind = options.text("kind");
        let request = predict::Request::of(options)?;
        if let predict::Source::Profile(path) = &request.source
            && let Some(file) = fit::read(path)?
        {
            let question = fit::Question::of(file, path, kind.as_deref(), &request)?;
            return Ok(text(&question.answers(question.kind()?)?));
        }
        let model = request.model()?;
        let question = request.question(&model)?;
        Ok(match request.steps {
            Some(steps) => text(&request.whole_run(&request.over(question, steps))?),
            None => text(&request.throughput(&question.reduced(), &mut |_, _| {})?),
        })
    };
    py.detach(answer).map_err(|error| raised(error.into()))?
}

/// The fitted models of `bellwether fit --format json`.
#[pyfunction(name = "fit_model")]
pub(crate) fn of_fit(py: Python<'_>, options: &str) -> PyResult<String> {
    let fitted = || -> Result<FittedFile, Refusal> {
        let mut options = Options::read(options)?;
        let paths = options.list("sources");
        let state_dir = options.text("state_dir").map(PathBuf::from);
        let (bytes, law) = (options.bytes("bytes")?, options.text("law"));
        let law = law.map_or(Ok(fit::Law::Auto), |law| law.parse()).map_err(|error| error.at("--law"))?;
        options.end()?;
        let mut sources = fit::Sources::new();
        for path in paths {
            fit::add(&mut sources, path.as_ref(), state_dir.as_deref())?;
        }
        let file = fit::fit(&sources, bytes, law)?;
        Ok(file)
    };
    text(&py.detach(fitted).map_err(raised)?)
}

/// The plan of `bellwether plan --format json`, and what was assumed.
#[pyfunction(name = "plan")]
pub(crate) fn of_plan(py: Python<'_>, options: &str) -> PyResult<(String, Vec<String>)> {
    let mut notes = Vec::new();
    let found = py.detach(|| {
        let request = plan::Request::of(Options::read(options)?)?;
        request.answer(&mut |note| notes.push(note))
    });
    Ok((text(&found.map_err(raised)?)?, notes))
}

/// The answer of `bellwether capacity --format json`, and what was assumed.
#[pyfunction(name = "capacity")]
pub(crate) fn of_capacity(py: Python<'_>, options: &str) -> PyResult<(String, Vec<String>)> {
    let mut notes = Vec::new();
    let found = py.detach(|| {
        let request = capacity::Request::of(Options::read(options)?)?;
        request.answer(&mut |note| notes.push(note), &mut |_| {})
    });
    Ok((text(&found.map_err(raised)?)?, notes))
}

fn text(answer: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(answer).map_err(broken)
}

fn raised(refusal: Refusal) -> PyErr {
    match refusal {
        Refusal::Broken(what) => broken(what),
        other => PyValueError::new_err(other.to_string()),
    }
}

fn broken(what: impl Display) -> PyErr {
    PyRuntimeError::new_err(what.to_string())
}
