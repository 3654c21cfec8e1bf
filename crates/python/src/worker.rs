//! The class `Worker`: a worker of a run, on a thread of this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::notice::Listening;
use bellwether_runtime::run_dir::read_token;
use bellwether_runtime::worker;
use bellwether_runtime::workload::Workload;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::ask::{Answer, Answerer, Question, Wait, rendezvous};
use crate::buffers::{Buffers, PieceVectors, Vectors};
use crate::declaration::Declaration;
use crate::workload::PythonWorkload;

/// How long a wait for the next question lasts before signals are looked at.
const SLICE: Duration = Duration::from_millis(200);

/// What the command says about the run that a worker joins.
#[derive(Debug, Deserialize)]
struct Options {
    join: String,
    token_file: PathBuf,
    worker: u64,
    listen: SocketAddr,
    orphan_timeout_s: f64,
}

/// A worker of a run, on a thread of this process, which asks the thread that calls `next`.
#[pyclass(frozen)]
pub(crate) struct Worker {
    answerer: Mutex<Answerer>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Worker {
    #[new]
    #[pyo3(signature = (options, declaration, framework, buffers, piece=None, keeps_sums=false))]
    fn new(
        options: &str,
        declaration: &str,
        framework: String,
        buffers: Vectors<'_>,
        piece: Option<PieceVectors<'_>>,
        keeps_sums: bool,
    ) -> PyResult<Worker> {
        let options = read_options(options)?;
        let declaration = Declaration::parse(declaration).map_err(invalid)?;
        let layout = declaration.layout();
        let (parameters, state) = (layout.parameter_count(), layout.state_count());
        let memory = Buffers::new(&buffers, piece.as_ref(), parameters, state)?;
        let (asker, answerer) = rendezvous();
        let ending = asker.ending();
        let build = move |job: &Job, _: &worker::Stages<'_>| -> Result<Box<dyn Workload>, InputError> {
            declaration.agrees(job)?;
            let workload = PythonWorkload::new(asker, memory, &declaration, framework, job);
            Ok(Box::new(workload.keeping_sums(keeps_sums)))
        };
        let thread = start(options, ending, build)?;
        Ok(Worker { answerer: Mutex::new(answerer), thread: Mutex::new(Some(thread)) })
    }

    /// Waits for the next request.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let question = loop {
            match py.detach(|| self.answerer().wait(SLICE)) {
                Wait::Question(question) => break question,
                Wait::Nothing => py.check_signals()?,
                Wait::Gone => return Err(PyRuntimeError::new_err("the worker has ended")),
                Wait::Unanswered => return Err(PyRuntimeError::new_err("the last request was not answered")),
            }
        };
        Ok(match question {
            Question::Gradient { step, node, samples, seed, fresh, sum } => {
                let sum = sum.map(|sum| (sum.position.is_first, sum.position.merges, sum.is_last));
                ("gradient", step, node, samples, seed, fresh, sum).into_pyobject(py)?.into_any()
            }
            Question::Evaluate { samples, fresh } => {
                ("evaluate", samples, fresh).into_pyobject(py)?.into_any()
            }
            Question::Update { step, start, length } => {
                ("update", step, start, length).into_pyobject(py)?.into_any()
            }
            Question::Assigned { step, first, end } => {
                ("assigned", step, first, end).into_pyobject(py)?.into_any()
            }
            Question::Over(result) => {
                self.join(py);
                result.map_err(PyRuntimeError::new_err)?;
                ("over",).into_pyobject(py)?.into_any()
            }
        })
    }

    /// Answers a request for a gradient.
    #[pyo3(signature = (sum, weight, data_wait_s=0.0))]
    fn loss(&self, sum: f64, weight: f64, data_wait_s: f64) -> PyResult<()> {
        self.answer(Answer::Loss { sum, weight, data_wait_s })
    }

    /// Answers a request for an evaluation.
    fn evaluation(&self, loss_sum: f64, correct: u64, predictions: u64) -> PyResult<()> {
        self.answer(Answer::Evaluation { loss_sum, correct, predictions })
    }

    /// Answers a request for an update.
    fn updated(&self) -> PyResult<()> {
        self.answer(Answer::Updated)
    }

    /// Answers any request: it cannot be computed.
    fn failed(&self, what: String, user: bool) -> PyResult<()> {
        self.answer(Answer::Failed { what, user })
    }
}

impl Worker {
    fn answerer(&self) -> std::sync::MutexGuard<'_, Answerer> {
        // A panic while it was held leaves it as it was.
        self.answerer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, answer: Answer) -> PyResult<()> {
        match self.answerer().answer(answer) {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err("there is no request to answer")),
        }
    }

    /// Waits for the end of the thread, which has said its last word.
    fn join(&self, py: Python<'_>) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It has said how it ended; a panic after that changes nothing.
            let _ = py.detach(|| thread.join());
        }
    }
}

fn invalid(error: InputError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn read_options(text: &str) -> PyResult<(worker::Options, PathBuf)> {
    let options: Options = serde_json::from_str(text)
        .map_err(|error| PyValueError::new_err(format!("BELLWETHER_WORKER: {error}")))?;
    let wrong = |what: String| PyValueError::new_err(what);
    let token = read_token(&options.token_file).map_err(|error| wrong(error.to_string()))?;
    let orphan_timeout = Duration::try_from_secs_f64(options.orphan_timeout_s)
        .map_err(|error| wrong(format!("BELLWETHER_WORKER: orphan_timeout_s: {error}")))?;
    let worker = worker::Options {
        coordinator: options.join,
        token,
        worker: options.worker,
        listen: options.listen,
        orphan_timeout,
        notices: Listening::default(),
        leashed: None,
    };
    Ok((worker, options.token_file))
}

/// Starts the runtime's thread, which says at its end how it ended.
fn start(
    (options, _): (worker::Options, PathBuf),
    ending: Sender<Question>,
    build: impl FnOnce(&Job, &worker::Stages<'_>) -> Result<Box<dyn Workload>, InputError> + Send + 'static,
) -> PyResult<JoinHandle<()>> {
    let work = move || {
        let result = worker::run(options, build).map_err(|error| error.to_string());
        // The main thread may be gone with its process.
        let _ = ending.send(Question::Over(result));
    };
    Ok(std::thread::Builder::new().name("bellwether".into()).spawn(work)?)
}
