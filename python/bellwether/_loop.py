"""A worker's loop: takes requests of the runtime until the run ends. Knows no framework."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from bellwether import _errors
from bellwether._declare import Declaration
from bellwether._native import Worker, forget_connections, hold_connections, release_connections
from bellwether._role import Role, role

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
    in_parts: bool = False
    """Its tensors may go one by one, as soon as each is complete: see `Session.part`."""


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


Predict = Callable[[NDArray[np.float32], bool], NDArray[np.float32]]
"""``(values, fresh) -> scores``: a row of numbers for each sample; `fresh` as in requests."""


class Rule(Protocol):
    """An update rule of the user's own, applied to the piece that stands in its buffers."""

    def update(self, step: int, start: int, length: int) -> None:
        """Updates `length` values, which stand at `start` in the flat vector, in place."""


class Session:
    """A worker's session with its run: it begins before the script does, so that the run follows what it does."""

    def __init__(self, options: str) -> None:
        """Joins the run that `options` name. Leaves by SystemExit where it lets nobody in."""
        self._process = os.getpid()
        self._rule: Rule | None = None
        self._assigned: Callable[[int, range], None] | None = None
        self._predict: Predict | None = None
        self._open: Gradient | Evaluate | None = None
        self._has_declared = self._is_told = False
        try:
            self._worker = Worker(options)
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        os.register_at_fork(
            before=hold_connections, after_in_parent=release_connections, after_in_child=_leave_to_parent
        )
        _errors.catch(self._died)
        atexit.register(self._left)

    def builds(self) -> None:
        """The script makes what it trains from here on."""
        if not self._has_declared:
            self._worker.builds()

    def declare(
        self,
        declaration: Declaration,
        framework: str,
        buffers: tuple[Any, Any, Any, Any],
        piece: tuple[Any, Any, list[Any]] | None,
        rule: Rule | None,
        assigned: Callable[[int, range], None] | None,
        keeps_sums: bool,
        predict: Predict | None,
    ) -> None:
        """Says what is trained, and with what; see `join`."""
        try:
            self._worker.declare(declaration.line(), _errors.caller(), framework, buffers, piece, keeps_sums)
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        self._rule, self._assigned, self._predict = rule, assigned, predict
        self._has_declared = True

    def next(self) -> Gradient | Evaluate:
        """Waits for the next request that the user's code has to answer.

        Leaves by SystemExit: 0 when the run is over, 1 when it refuses this worker.
        """
        while True:
            kind, *rest = self._take()
            if kind == "gradient":
                step, node, samples, seed, fresh, place = rest
                self._open = Gradient(step, node, samples, seed, fresh, Sum(*place) if place else None)
                return self._open
            if kind == "evaluate":
                self._open = Evaluate(*rest)
                return self._open
            if kind == "update":
                self._update(*rest)
            elif kind == "predict":
                self._answer_prediction(*rest)
            elif kind == "assigned" and self._assigned is not None:
                step, first, end = rest
                self._assigned(step, range(first, end))

    def part(self, tensor: int) -> None:
        """Of a sum that may go in parts: that of this tensor is in its buffer, and stays as it is."""
        self._worker.part(tensor)

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
            self._is_told = True
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        if request[0] == "over":
            self._is_told = True
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

    def _answer_prediction(self, values: bytes, width: int, fresh: bool) -> None:
        try:
            if self._predict is None:
                raise RuntimeError("the run asks for a prediction, and there is none")
            rows = np.frombuffer(values, np.float32).reshape(-1, width)
            scores = np.ascontiguousarray(self._predict(rows, fresh), np.float32)
            if len(scores) != len(rows):
                raise _errors.refuse(
                    f"the model gives {len(scores)} outputs for {len(rows)} rows",
                    "let it give one for each row",
                )
        except Exception as error:  # noqa: BLE001 (a model is user code)
            self._fail(_errors.describe(error), user=True)
        self._worker.scores(scores.reshape(-1))

    def _died(self, error: BaseException) -> int | None:
        """An error ends this process: if it keeps the run from what it waits for, the run is told why."""
        if os.getpid() != self._process or self._is_told:
            return _errors.report(error)
        print(_errors.users_traceback(error), end="", file=sys.stderr, flush=True)
        what = _errors.describe(error)
        if self._open is not None and _errors.is_out_of_memory(error):
            count = len(self._open.samples)
            what += f"; the micro-batch of {count} samples does not fit: raise virtual_nodes, which changes the bits"
            print(f"error: {what}", file=sys.stderr, flush=True)
        self._say(what, user=True, is_asked=self._open is not None)
        return 2 if isinstance(error, _errors.BellwetherError) else 1

    def _left(self) -> None:
        """The process ends: if the run waits for it, the script left too early."""
        if os.getpid() != self._process or self._is_told:
            return
        if self._open is None and getattr(sys, "last_type", None) is KeyboardInterrupt:
            return
        what = "the script leaves the loop before the run is over; use run.steps(n), or `bellwether stop`"
        if not self._has_declared:
            what = (
                "the script ends in a worker before it trains anything; every worker has to come to its training, "
                "so guard what only the lead does by bellwether.is_lead()"
            )
        print(f"error: {what}", file=sys.stderr, flush=True)
        self._say(what, user=True, is_asked=self._open is not None)

    def _fail(self, what: str, user: bool) -> NoReturn:
        """Ends the process for a reason that the run is told."""
        print(f"error: {what}", file=sys.stderr, flush=True)
        self._say(what, user, is_asked=True)
        raise SystemExit(1)

    def _say(self, what: str, user: bool, is_asked: bool) -> None:
        """Answers everything by this failure until the runtime's thread has ended; `is_asked` if a request is open."""
        self._open, self._is_told = None, True
        try:
            if not self._has_declared:
                self._worker.fails(what)
                return
            while True:
                while not is_asked:
                    is_asked = self._worker.next()[0] != "assigned"
                self._worker.failed(what, user)
                is_asked = False
        except RuntimeError:
            # The run has heard it, or is over.
            return


_session: Session | None = None
"""That of this process, if it is a worker and has one."""

_WORKER = "BELLWETHER_WORKER"
"""The variable that says which run a worker joins."""

_PROCESS = "BELLWETHER_WORKER_PROCESS"
"""The variable that says which process is the worker: those that it starts inherit the others, too."""


def begin() -> Session | None:
    """Opens the session of this process with its run, if it is a worker; once."""
    global _session
    number = str(os.getpid())
    is_worker = role() is Role.WORKER and _WORKER in os.environ
    if not is_worker or os.environ.get(_PROCESS, number) != number:
        return None
    if _session is None:
        os.environ[_PROCESS] = number
        _session = Session(os.environ[_WORKER])
    return _session


def builds() -> None:
    """The script makes what it trains from here on, in whatever process this is."""
    session = begin()
    if session is None:
        _errors.catch(_errors.report)
    else:
        session.builds()


def join(
    declaration: Declaration,
    framework: str,
    buffers: tuple[Any, Any, Any, Any],
    piece: tuple[Any, Any, list[Any]] | None = None,
    rule: Rule | None = None,
    assigned: Callable[[int, range], None] | None = None,
    keeps_sums: bool = False,
    predict: Predict | None = None,
) -> Session:
    """Says what this worker trains, and with what; from then on the run asks.

    `buffers`: parameters, state, gradient and the state that a micro-batch leaves, float32 and writable.
    `piece`: parameters, gradient and slots of `PIECE` values each, for `rule`.
    `assigned`: told the step and the virtual nodes from which on data may be loaded ahead.
    `keeps_sums`: whether requests may ask to add gradients here.
    `predict`: applies the model to rows of numbers.
    """
    session = begin()
    if session is None:
        raise _errors.refuse(
            "this process was started by a worker, and is none itself",
            'let it not come here: guard the script by `if __name__ == "__main__":`',
        )
    session.declare(declaration, framework, buffers, piece, rule, assigned, keeps_sums, predict)
    return session


def is_over(error: str | None) -> None:
    """Ends this process, whose script still does what no run waits for. Called on another thread than the script's."""
    print(f"error: {error}" if error else "the run is over", file=sys.stderr, flush=True)
    os._exit(1 if error else 0)


def _leave_to_parent() -> None:
    """In a process that a worker has forked: its connections and its signals are the worker's alone.

    The worker's end would not be seen as long as another process held its connections, and a signal that ends others
    would not end this process.
    """
    for descriptor in forget_connections():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if handler is not None:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, handler)
