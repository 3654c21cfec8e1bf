"""The native part: a worker on a thread of this process, the order of samples, a run's journal, and answers."""

from collections.abc import Sequence
from typing import Any, final

__all__ = [
    "Journal",
    "SampleOrder",
    "Worker",
    "capacity",
    "fit_model",
    "forget_connections",
    "give_verdict",
    "hold_connections",
    "plan",
    "predict",
    "release_connections",
    "simulate",
]

@final
class Worker:
    """A worker of a run, on a thread of this process; it asks the thread that calls `next`."""

    def __new__(cls, options: str) -> Worker:
        """Joins the run; returns when it has let this worker in, RuntimeError if it does not."""

    def builds(self) -> None:
        """The script makes what it trains from here on."""

    def declare(
        self,
        declaration: str,
        line: str,
        framework: str,
        buffers: tuple[Any, Any, Any, Any],
        piece: tuple[Any, Any, Sequence[Any]] | None = None,
        keeps_sums: bool = False,
    ) -> None:
        """Says what the script trains, in this line of it; RuntimeError if no run waits for it any more."""

    def fails(self, what: str) -> None:
        """Says that the script failed before it said what it trains; returns when the run has heard it."""

    def next(self) -> tuple[Any, ...]:
        """Waits for the next request; RuntimeError if the run refuses this worker or ends it before its end."""

    def part(self, tensor: int) -> None:
        """Before the answer to a request whose sum may come in parts: that of this tensor is complete, and stays so."""

    def loss(self, sum: float, weight: float, data_wait_s: float = 0.0) -> None:
        """Answers a request for a gradient."""

    def evaluation(self, loss_sum: float, correct: int, predictions: int) -> None:
        """Answers a request for an evaluation."""

    def scores(self, scores: Any) -> None:
        """Answers a request for a prediction: a buffer of float32, the same number of values for each sample."""

    def updated(self) -> None:
        """Answers a request for an update."""

    def failed(self, what: str, user: bool) -> None:
        """Answers any request: it cannot be computed."""

@final
class SampleOrder:
    """Which samples a virtual node takes in a step, and the seed of its randomness: a pure function."""

    def __new__(
        cls, samples: int, batch: int, virtual_nodes: int, seed: int, block: int | None = None
    ) -> SampleOrder: ...
    @property
    def steps_per_epoch(self) -> int: ...
    def micro_batch(self, step: int, node: int) -> list[int]: ...
    def seed(self, step: int, node: int) -> int: ...

@final
class Journal:
    """Follows the journal of a run that may go on."""

    def __new__(cls, folder: str) -> Journal: ...
    def next(self, timeout_s: float) -> str | None:
        """The next event as JSON; None when none came in that time."""

    def is_alive(self) -> bool:
        """Whether a coordinator of the run lives."""

def hold_connections() -> None:
    """Before a fork: no connection of the run is opened or closed until it is over."""

def release_connections() -> None:
    """After a fork, in the process that forked."""

def forget_connections() -> list[int]:
    """After a fork, in the new process: the descriptors of connections that it has to close."""

def give_verdict(folder: str, step: int, ends: str | None) -> tuple[bool, str]:
    """Lets a run go on after a step, or ends it there: whether that is followed, and why not.

    ConnectionError where no coordinator answers.
    """

def simulate(options: str) -> str:
    """The figures of every policy, as `bellwether simulate --format json` prints them; ValueError for bad input."""

def predict(options: str) -> str:
    """The answers of `bellwether predict --format json`; ValueError for bad input."""

def fit_model(options: str) -> str:
    """The fitted models of `bellwether fit --format json`; ValueError for bad input."""

def plan(options: str) -> tuple[str, list[str]]:
    """The plan of `bellwether plan --format json`, and what was assumed; ValueError for bad input."""

def capacity(options: str) -> tuple[str, list[str]]:
    """The answer of `bellwether capacity --format json`, and what was assumed; ValueError for bad input."""
