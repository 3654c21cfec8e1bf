"""A worker's loop: takes requests of the runtime until the run ends. Knows no framework."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from bellwether import _errors
from bellwether._declare import Declaration
from bellwether._native import Worker

PIECE = 65_536
"""Most values of the flat vectors that an own rule updates at once."""


@dataclass(frozen=True)
class Sum:
    """Where a micro-batch stands in a sum of gradients that this process keeps, along the tree of virtual nodes."""

    is_first: bool
    """It begins a sum; what is left of an earlier one counts no more."""
    merges: int
    """Additions that follow: each adds the newest sum to the one before it."""
    is_last: bool
    """The one sum that is left then goes to the run, as a gradient would."""


@dataclass(frozen=True)
class Gradient:
    """Compute the gradient of the sum of these samples' losses."""

    step: int
    node: int
    samples: list[int]
    seed: int
    """Of all randomness in this request."""
    fresh: bool
    """Whether parameters and state changed since the last request."""
    sum: Sum | None = None
    """Where the gradient is added, in place of going to the run by itself."""


@dataclass(frozen=True)
class Evaluate:
    """Compute the losses of these held-out samples."""

    samples: list[int]
    fresh: bool


class Rule(Protocol):
    """An update rule of the user's own, applied to the piece that stands in its buffers."""

    def update(self, step: int, start: int, length: int) -> None:
        """Updates `length` values, which stand at `start` in the flat vector, in place."""


class Session:
    """A worker's session with its run."""

    def __init__(
        self,
        declaration: Declaration,
        framework: str,
        buffers: tuple[Any, Any, Any, Any],
        piece: tuple[Any, Any, list[Any]] | None = None,
        rule: Rule | None = None,
        assigned: Callable[[int, range], None] | None = None,
        keeps_sums: bool = False,
    ) -> None:
        """Joins the run that the environment names.

        `buffers`: parameters, state, gradient and the state that a micro-batch leaves, float32 and writable.
        `piece`: parameters, gradient and slots of `PIECE` values each, for `rule`.
        `assigned`: told the step and the virtual nodes from which on data may be loaded ahead.
        `keeps_sums`: whether requests may ask to add gradients here.
        """
        options = os.environ["BELLWETHER_WORKER"]
        self._worker = Worker(options, declaration.line(), framework, buffers, piece, keeps_sums)
        self._rule = rule
        self._assigned = assigned
        self._open: Gradient | Evaluate | None = None
        self._process = os.getpid()
        _errors.catch(self._died)
        atexit.register(self._left)

    def next(self) -> Gradient | Evaluate:
        """Waits for the next request that the user's code has to answer.

        Leaves by SystemExit: 0 when the run is over, 1 when it refuses this worker.
        """
        while True:
            kind, *rest = self._take()
            if kind == "gradient":
                *rest, place = rest
                self._open = Gradient(*rest, sum=place and Sum(*place))
                return self._open
            if kind == "evaluate":
                self._open = Evaluate(*rest)
                return self._open
            if kind == "update":
                self._update(*rest)
            elif kind == "assigned" and self._assigned is not None:
                step, first, end = rest
                self._assigned(step, range(first, end))

    def loss(self, total: float, weight: float, data_wait_s: float = 0.0) -> None:
        """Answers a gradient: the sum of the losses, and the weight by which the update divides."""
        self._open = None
        self._worker.loss(total, weight, data_wait_s)

    def evaluation(self, total: float, correct: int, predictions: int) -> None:
        """Answers an evaluation: the sum of the losses; right and all predictions, or 0 of both."""
        self._open = None
        self._worker.evaluation(total, correct, predictions)

    @property
    def is_asked(self) -> bool:
        """Whether a request waits for its answer."""
        return self._open is not None

    def _take(self) -> tuple[Any, ...]:
        try:
            request = self._worker.next()
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        if request[0] == "over":
            raise SystemExit(0)
        return request

    def _update(self, step: int, start: int, length: int) -> None:
        try:
            if self._rule is None:
                raise RuntimeError("the run asks for the script's own update rule, and it has none")
            self._rule.update(step, start, length)
        except Exception as error:  # noqa: BLE001 (a rule is user code)
            self._fail(_errors.describe(error), user=True)
        self._worker.updated()

    def _died(self, error: BaseException) -> int | None:
        """An error ends this process: if it stands between a request and its answer, the run is told why."""
        if os.getpid() != self._process or self._open is None:
            return _errors.report(error)
        print(_errors.users_traceback(error), end="", file=sys.stderr, flush=True)
        what = _errors.describe(error)
        if _errors.is_out_of_memory(error):
            count = len(self._open.samples)
            what += f"; the micro-batch of {count} samples does not fit: raise virtual_nodes, which changes the bits"
            print(f"error: {what}", file=sys.stderr, flush=True)
        self._say(what, user=True)
        return 2 if isinstance(error, _errors.BellwetherError) else 1

    def _left(self) -> None:
        """The process ends: if a request waits for its answer, the script left the loop."""
        if os.getpid() == self._process and self._open is not None:
            what = "the script leaves the loop before the run is over; use run.steps(n), or `bellwether stop`"
            print(f"error: {what}", file=sys.stderr, flush=True)
            self._say(what, user=True)

    def _fail(self, what: str, user: bool) -> NoReturn:
        """Ends the process for a reason that the run is told."""
        print(f"error: {what}", file=sys.stderr, flush=True)
        self._say(what, user)
        raise SystemExit(1)

    def _say(self, what: str, user: bool) -> None:
        """Answers everything by this failure until the runtime's thread has ended."""
        self._open = None
        try:
            while True:
                self._worker.failed(what, user)
                while self._worker.next()[0] == "assigned":
                    pass
        except RuntimeError:
            # The run has heard it.
            return
