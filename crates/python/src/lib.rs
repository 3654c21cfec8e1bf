//! The module `bellwether._native`: a worker of a run inside a Python process.
//!
//! A worker of a Python job is the user's own process. The [runtime's worker](bellwether_runtime::worker) runs on a
//! thread of it, with a workload (`workload`) that asks the Python main thread for everything that only
//! the user's code can compute. All user code runs on the main thread, where signals, debuggers and frameworks expect
//! it; the runtime's threads need no interpreter, so a worker that holds the interpreter's lock for a minute still
//! answers its coordinator.
//!
//! The session with the run begins before the script does (`prepare`): the run follows what its workers do from the
//! first line on. `forks` keeps its connections from those whom the script forks.
//!
//! `ask`, `declaration`, `probe` and `workload` know no Python and are tested without an interpreter.
//! `worker`, `forks`, `order`, `journal`, `verdict` and `answers` are what Python sees.

mod answers;
mod ask;
mod buffers;
mod declaration;
mod forks;
mod journal;
mod order;
mod prepare;
mod probe;
mod verdict;
mod worker;
mod workload;

/// The native part of Bellwether.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::answers::{of_capacity, of_fit, of_plan, of_prediction, of_simulation};
    #[pymodule_export]
    use crate::forks::{forget_connections, hold_connections, release_connections};
    #[pymodule_export]
    use crate::journal::Journal;
    #[pymodule_export]
    use crate::order::SampleOrder;
    #[pymodule_export]
    use crate::verdict::give_verdict;
    #[pymodule_export]
    use crate::worker::Worker;
}
