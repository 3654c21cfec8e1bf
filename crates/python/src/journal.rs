//! The class `Journal`: what happened in a run, line by line, as it happens.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bellwether_runtime::journal;
use bellwether_runtime::run_dir::RunDir;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

/// How long a wait lasts before the file is looked at again: a fifth of the time in which a person notices.
const LOOK: Duration = Duration::from_millis(20);

/// Follows the journal of a run that may go on.
#[pyclass(frozen)]
pub(crate) struct Journal {
    run: RunDir,
    follower: Mutex<Follower>,
}

struct Follower {
    tail: journal::Tail,
    /// Lines that were read and not handed out.
    waiting: VecDeque<String>,
}

#[pymethods]
impl Journal {
    #[new]
    fn new(folder: PathBuf) -> Journal {
        let run = RunDir::at(folder);
        let follower = Follower { tail: run.follow_journal(), waiting: VecDeque::new() };
        Journal { run, follower: Mutex::new(follower) }
    }

    /// Whether a coordinator of the run lives.
    fn is_alive(&self) -> bool {
        self.run.is_alive().unwrap_or(false)
    }

    /// The next event as JSON; `None` when none came within `timeout_s` seconds.
    fn next(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<String>> {
        let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
        let begin = Instant::now();
        loop {
            if let Some(line) = py.detach(|| self.look())? {
                return Ok(Some(line));
            }
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            py.detach(|| std::thread::sleep(left.min(LOOK)));
            py.check_signals()?;
        }
    }
}

impl Journal {
    fn look(&self) -> PyResult<Option<String>> {
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        if follower.waiting.is_empty() {
            let lines = follower.tail.read().map_err(|error| PyOSError::new_err(error.to_string()))?;
            for line in lines {
                let text = serde_json::to_string(&line);
                follower.waiting.push_back(text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?);
            }
        }
        Ok(follower.waiting.pop_front())
    }
}
