"""The native part: a worker on a thread of this process, the order of samples, a run's journal, and answers."""

from collections.abc import Sequence
from typing import Any, final

__all__ = ["Journal", "SampleOrder", "Worker", "give_verdict", "plan", "predict", "simulate"]

@final
class Worker:
    """A worker of a run, on a thread of this process; it asks the thread that calls `next`."""

    def __new__(
        cls,
        options: str,
        declaration: str,
        framework: str,
        buffers: tuple[Any, Any, Any, Any],
        piece: tuple[Any, Any, Sequence[Any]] | None = None,
    ) -> Worker: ...
    def next(self) -> tuple[Any, ...]:
        """Waits for the next request; RuntimeError if the run refuses this worker or ends it before its end."""

    def loss(self, sum: float, weight: float, data_wait_s: float = 0.0) -> None:
        """Answers a request for a gradient."""

    def evaluation(self, loss_sum: float, correct: int, predictions: int) -> None:
        """Answers a request for an evaluation."""

    def updated(self) -> None:
        """Answers a request for an update."""

    def failed(self, what: str, user: bool) -> None:
        """Answers any request: it cannot be computed."""

    @property
    def data_wait_s(self) -> float:
        """Seconds that went by for want of data."""

@final
class SampleOrder:
    """Which samples a virtual node takes in a step, and the seed of its randomness: a pure function."""

    def __new__(cls, samples: int, batch: int, virtual_nodes: int, seed: int) -> SampleOrder: ...
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

def give_verdict(folder: str, step: int, ends: str | None = None) -> tuple[bool, str]:
    """Lets a run go on after a step, or ends it there: whether that is followed, and why not.

    ConnectionError where no coordinator answers.
    """

def simulate(options: str) -> str:
    """The figures of every policy, as `bellwether simulate --format json` prints them; ValueError for bad input."""

def predict(options: str) -> str:
    """The answers of `bellwether predict --format json`; ValueError for bad input."""

def plan(options: str) -> tuple[str, list[str]]:
    """The plan of `bellwether plan --format json`, and what was assumed; ValueError for bad input."""
