//! The class `Worker`: a worker of a run, on a thread of this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::inference;
use bellwether_runtime::notice::{Listening, Source};
use bellwether_runtime::run_dir::{CoordinatorAddress, read_token};
use bellwether_runtime::worker::{self, Leash, leash, leave_on_signals};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::process::{Signal, getpid, kill_process};
use serde::Deserialize;

use crate::ask::{Answer, Answerer, Parts, Question, Wait, rendezvous};
use crate::buffers::{Buffers, PieceVectors, Vectors};
use crate::declaration::Declaration;
use crate::prepare::{Declared, News, Waiting};

/// How long a wait for the next question lasts before signals are looked at.
const SLICE: Duration = Duration::from_millis(200);

/// How long the interpreter has for a last word before the process is ended without it.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held leaves what is in it as it was.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the command says about the run that a worker joins.
#[derive(Debug, Deserialize)]
struct Options {
    join: String,
    token_file: PathBuf,
    worker: u64,
    listen: SocketAddr,
    orphan_timeout_s: f64,
    ticket: Option<PathBuf>,
    /// As `--notices` of the command names them.
    notices: Vec<String>,
    notice_interval_s: f64,
    /// Whether it joins an inference.
    #[serde(default)]
    infer: bool,
}

/// A worker of a run, on a thread of this process, which asks the thread that calls `next`.
#[pyclass(frozen)]
pub(crate) struct Worker {
    answerer: Mutex<Answerer>,
    parts: Parts,
    news: Sender<News<Buffers>>,
    script: Arc<Mutex<Script>>,
    /// Held until the script has said what it trains: signals are its own until then.
    leash: Mutex<Option<Leash>>,
    /// Whether SIGTERM is a notice of the provider's.
    terminate_is_notice: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How far the script is, for what becomes of its process when there is no run for it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// It waits for the run to let it in, or for requests: it hears of the end.
    Listens,
    /// It runs, and hears nothing.
    Runs,
    /// It runs, and its process is being ended.
    IsOver,
}

#[pymethods]
impl Worker {
    /// Joins the run; returns when the run has let this worker in.
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Worker> {
        let (mut options, infers) = read_options(options)?;
        let (leash, leashed) = leash();
        options.leashed = Some(leashed);
        let (asker, answerer) = rendezvous();
        let (enter, enters) = channel();
        let (news, heard) = channel();
        let script = Arc::new(Mutex::new(Script::Listens));
        let runs = Arc::clone(&script);
        let entered = Box::new(move || {
            *lock(&runs) = Script::Runs;
            // The main thread may be gone with its process.
            let _ = enter.send(());
        });
        let waiting = Waiting { entered, news: heard, asker, place: users_place };
        let terminate_is_notice = options.notices.sources.contains(&Source::Sigterm);
        let thread = start((options, infers), waiting, Arc::clone(&script))?;
        let worker = Worker {
            parts: answerer.parts(),
            answerer: Mutex::new(answerer),
            news,
            script,
            leash: Mutex::new(Some(leash)),
            terminate_is_notice,
            thread: Mutex::new(Some(thread)),
        };
        let enters = Mutex::new(enters);
        loop {
            match py.detach(|| lock(&enters).recv_timeout(SLICE)) {
                Ok(()) => break,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                // It has ended, and says why.
                Err(RecvTimeoutError::Disconnected) => {
                    worker.next(py)?;
                    return Err(PyRuntimeError::new_err("the run needs no worker any more"));
                }
            }
        }
        Ok(worker)
    }

    /// The script makes what it trains from here on.
    fn builds(&self) {
        // The thread that was to hear of it may be gone.
        let _ = self.news.send(News::Builds);
    }

    /// Says what the script trains, in this line of it; from here on the runtime asks.
    #[pyo3(signature = (declaration, line, framework, buffers, piece=None, keeps_sums=false))]
    fn declare(
        &self,
        declaration: &str,
        line: String,
        framework: String,
        buffers: Vectors<'_>,
        piece: Option<PieceVectors<'_>>,
        keeps_sums: bool,
    ) -> PyResult<()> {
        let declaration = Declaration::parse(declaration).map_err(invalid)?;
        let memory = Buffers::new(&buffers, piece.as_ref(), &declaration.layout())?;
        self.listens()?;
        if let Some(leash) = lock(&self.leash).take() {
            leave_on_signals(leash, self.terminate_is_notice, |_| {})?;
        }
        let declared = Declared { declaration, line, framework, memory, keeps_sums };
        // One that is gone has left its last word for `next`.
        let _ = self.news.send(News::Declares(Box::new(declared)));
        Ok(())
    }

    /// Says that the script failed before it said what it trains; returns when the run has heard it.
    fn fails(&self, py: Python<'_>, what: String) -> PyResult<()> {
        self.listens()?;
        let _ = self.news.send(News::Failed(what));
        self.join(py);
        Ok(())
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
                let sum = sum.map(|sum| (sum.is_first, sum.merges, sum.is_last, sum.in_parts));
                ("gradient", step, node, samples, seed, fresh, sum).into_pyobject(py)?.into_any()
            }
            Question::Evaluate { samples, fresh } => {
                ("evaluate", samples, fresh).into_pyobject(py)?.into_any()
            }
            Question::Predict { values, width, fresh } => {
                let values = PyBytes::new(py, bytemuck::cast_slice(&values));
                ("predict", values, width, fresh).into_pyobject(py)?.into_any()
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

    /// Before the answer to a request for a gradient whose sum may come in parts: that of this tensor is complete, and
    /// stays as it is.
    fn part(&self, tensor: usize) {
        self.parts.is_complete(tensor);
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

    /// Answers a request for a prediction: a buffer of float32, the same number of values for each sample.
    fn scores(&self, py: Python<'_>, scores: &Bound<'_, PyAny>) -> PyResult<()> {
        let wrong = |error: PyErr| PyValueError::new_err(format!("scores: no buffer of float32: {error}"));
        let scores = PyBuffer::<f32>::get(scores).map_err(wrong)?.to_vec(py)?;
        self.answer(Answer::Scores(scores))
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
    fn answerer(&self) -> MutexGuard<'_, Answerer> {
        lock(&self.answerer)
    }

    /// The script hears of the end from here on.
    fn listens(&self) -> PyResult<()> {
        let mut script = lock(&self.script);
        if *script == Script::IsOver {
            return Err(PyRuntimeError::new_err("the run needs no worker any more"));
        }
        *script = Script::Listens;
        Ok(())
    }

    fn answer(&self, answer: Answer) -> PyResult<()> {
        match self.answerer().answer(answer) {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err("there is no request to answer")),
        }
    }

    /// Waits for the end of the thread, which has said its last word.
    fn join(&self, py: Python<'_>) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // It has said how it ended; a panic after that changes nothing.
            let _ = py.detach(|| thread.join());
        }
    }
}

fn invalid(error: InputError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What a worker is told, and whether it joins an inference.
fn read_options(text: &str) -> PyResult<(worker::Options, bool)> {
    let options: Options = serde_json::from_str(text)
        .map_err(|error| PyValueError::new_err(format!("BELLWETHER_WORKER: {error}")))?;
    let wrong = |what: String| PyValueError::new_err(what);
    let token = read_token(&options.token_file).map_err(|error| wrong(error.to_string()))?;
    let time = |name: &str, time_s: f64| {
        Duration::try_from_secs_f64(time_s)
            .map_err(|error| wrong(format!("BELLWETHER_WORKER: {name}: {error}")))
    };
    let orphan_timeout = time("orphan_timeout_s", options.orphan_timeout_s)?;
    let interval = time("notice_interval_s", options.notice_interval_s)?;
    let sources = options.notices.iter().map(|word| word.parse()).collect::<Result<_, _>>();
    let sources = sources.map_err(|error| wrong(format!("BELLWETHER_WORKER: notices: {error}")))?;
    let coordinator = match options.ticket {
        Some(ticket) => CoordinatorAddress::told(ticket).map_err(invalid)?,
        None => CoordinatorAddress::fixed(options.join),
    };
    let worker = worker::Options {
        coordinator,
        token,
        worker: options.worker,
        listen: options.listen,
        orphan_timeout,
        notices: Listening { sources, interval, ..Listening::default() },
        leashed: None,
    };
    Ok((worker, options.infer))
}

/// Starts the runtime's thread, which says at its end how it ended.
fn start(
    (options, infers): (worker::Options, bool),
    waiting: Waiting<Buffers>,
    script: Arc<Mutex<Script>>,
) -> PyResult<JoinHandle<()>> {
    let ending = waiting.asker.ending();
    let work = move || {
        let result = if infers {
            let (coordinator, token) = (options.coordinator.now(), options.token);
            let options = inference::worker::Options { coordinator, token, worker: options.worker };
            inference::worker::run(&options, |job: &Job, _: &str| waiting.workload(job, None))
        } else {
            let build = |job: &Job, stages: &worker::Stages<'_>| waiting.workload(job, Some(stages));
            worker::run(options, build)
        };
        let result = result.map_err(|error| error.to_string());
        // The main thread may be gone with its process.
        let _ = ending.say(result.clone());
        let is_deaf = {
            let mut script = lock(&script);
            let runs = *script == Script::Runs;
            if runs {
                *script = Script::IsOver;
            }
            runs
        };
        if is_deaf {
            end_process(result);
        }
    };
    Ok(std::thread::Builder::new().name("bellwether".into()).spawn(work)?)
}

/// Ends this process, whose script still does what no run waits for.
fn end_process(result: Result<(), String>) {
    // A script that keeps the interpreter to itself cannot be ended through it.
    let kill = || {
        std::thread::sleep(LAST_WORDS);
        let _ = kill_process(getpid(), Signal::KILL);
    };
    if std::thread::Builder::new().spawn(kill).is_err() {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    Python::attach(|py| {
        let over = || py.import("bellwether._loop")?.call_method1("is_over", (result.err(),));
        // What it says is for people; the process ends in any case.
        let _ = over();
    });
}

/// The user's line at which the main thread stands, unless the interpreter does not tell in time.
fn users_place() -> Option<String> {
    let (say, said) = channel();
    let ask = move || {
        let line = Python::attach(|py| -> PyResult<String> {
            py.import("bellwether._errors")?.call_method0("main_line")?.extract()
        });
        // The thread that asked may have given it up.
        let _ = say.send(line.ok().filter(|line| !line.is_empty()));
    };
    std::thread::Builder::new().name("place".into()).spawn(ask).ok()?;
    said.recv_timeout(LAST_WORDS / 2).ok().flatten()
}
