"""The fork server of a run: imports what the script imports once, and then forks a worker within milliseconds.

``python -m bellwether._fork`` reads requests from its input, one JSON object per line, and writes what became of them
to its output. It ends when its input does; its workers go on.

Requests: ``{"import": [MODULE, …]}`` and ``{"id": 1, "command": [PYTHON, SCRIPT, …], "environment": {…},
"log": FILE}``. Answers to the former: ``{"importing": MODULE}`` before each, and ``{"importing": null}`` after the last;
to the latter: ``{"id": 1, "process": PID}``, and later ``{"id": 1, "ended": STATUS}`` (as of :func:`os.waitpid`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

LOOK_S = 0.05
"""Time between two looks at whether a worker has ended."""


def main() -> None:
    """Serves requests until the input ends. In a worker it returns when the script does."""
    start = _Server().serve()
    if start is not None:
        # This is a worker now: the script runs on an empty stack, as if it had been started.
        start()


def _import(modules: list[str]) -> None:
    """Imports what can be imported; the script itself says what is wrong with the rest."""
    for module in modules:
        if module in sys.modules:
            continue
        _answer({"importing": module})
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    _answer({"importing": None})


def _answer(answer: dict[str, Any]) -> None:
    """Writes a line, unless nobody listens any more."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")


def _is_forkable() -> bool:
    """Whether a child would have all that this process has: a fork takes along one thread, and no GPU."""
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    torch = sys.modules.get("torch")
    return threads == 1 and not (torch is not None and torch.cuda.is_initialized())


class _Server:
    def __init__(self) -> None:
        self._input = b""
        self._workers: dict[int, int] = {}
        """Requests by process."""
        self._fresh: dict[int, subprocess.Popen[bytes]] = {}
        """Processes that could not be forked."""

    def serve(self) -> Callable[[], None] | None:
        """Returns what a worker has to do in the worker's process, and None when the input has ended."""
        while True:
            readable, _, _ = select.select([0], [], [], LOOK_S)
            if readable:
                data = os.read(0, 1 << 16)
                if not data:
                    return None
                *lines, self._input = (self._input + data).split(b"\n")
                for line in lines:
                    start = self._start(json.loads(line))
                    if start is not None:
                        return start
            self._reap()

    def _start(self, request: dict[str, Any]) -> Callable[[], None] | None:
        if "import" in request:
            _import(request["import"])
            return None
        if not _is_forkable():
            self._start_fresh(request)
            return None
        process = os.fork()
        if process == 0:
            return lambda: _become(request)
        self._workers[process] = request["id"]
        _answer({"id": request["id"], "process": process})
        return None

    def _start_fresh(self, request: dict[str, Any]) -> None:
        with open(request["log"], "ab") as log:
            child = subprocess.Popen(
                request["command"],
                env=os.environ | request["environment"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._fresh[child.pid] = child
        self._workers[child.pid] = request["id"]
        _answer({"id": request["id"], "process": child.pid})

    def _reap(self) -> None:
        for process in list(self._workers):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                request = self._workers.pop(process)
                self._fresh.pop(process, None)
                _answer({"id": request, "ended": status})


def _become(request: dict[str, Any]) -> None:
    """Runs the script in this process, as if it had been started."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(log)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(request["environment"])
    _, script, *arguments = request["command"]
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    _begin()
    runpy.run_path(script, run_name="__main__")


def _begin() -> None:
    """Opens the worker's session, so that the run follows what the script does from its first line on."""
    # Not before the fork: it is no worker's process until then.
    from bellwether._loop import begin

    begin()


if __name__ == "__main__":
    main()
