"""A worker's script without a run: its requests come from a list, and its answers go to a list.

`python scripted.py CODE` runs a line of code that imports a framework, and then scripts that are named
on stdin as workers. What a script answers is written to its log, a line of JSON each.
"""

import gc
import json
import os
import sys
from typing import Any

from warm import leave, run

import bellwether._loop

STEPS, NODES = 3, 2


class ScriptedWorker:
    """Stands in for `bellwether._native.Worker`."""

    def __init__(self, _options: str) -> None:
        self._has_failed = False

    def builds(self) -> None:
        """The script makes what it trains."""

    def fails(self, what: str) -> None:
        """The script failed before it said what it trains."""
        self.failed(what, True)

    def declare(
        self,
        declaration: str,
        _line: str,
        framework: str,
        buffers: Any,
        piece: Any = None,
        _keeps_sums: bool = False,
    ) -> None:
        """What is trained is known: its requests follow."""
        self._job = json.loads(declaration)["job"]
        self._buffers, self._piece = buffers, piece
        self._requests = iter(self._list())
        self._last: tuple[Any, ...] = ()
        buffers[0][:] = 0.125
        say("framework", framework)

    def _list(self) -> list[tuple[Any, ...]]:
        samples = self._job["batch"]["size"] // self._job["batch"]["virtual_nodes"]
        requests: list[tuple[Any, ...]] = [("assigned", 0, 0, NODES)]
        for step in range(STEPS):
            for node in range(NODES):
                wanted = [step * 8 + node * samples + place for place in range(samples)]
                requests.append(("gradient", step, node, wanted, 100 * step + node, node == 0, None))
            if self._piece is not None:
                requests.append(("update", step, 0, len(self._buffers[0])))
            if self._job["data"]["held_out_samples"]:
                requests.append(("evaluate", [0, 1, 2], False))
        return [*requests, ("over",)]

    def next(self) -> tuple[Any, ...]:
        """The next request; an error after a failure, as of a run that has ended."""
        if self._has_failed:
            raise RuntimeError("the run has ended")
        self._last = next(self._requests)
        if self._last[0] == "over":
            say("over")
        return self._last

    def loss(self, total: float, weight: float, _data_wait_s: float = 0.0) -> None:
        """Answers a gradient."""
        gradient, state = self._buffers[2], self._buffers[3]
        say("loss", total, weight, float(abs(gradient).sum()), state.tolist())

    def evaluation(self, total: float, correct: int, predictions: int) -> None:
        """Answers an evaluation."""
        say("evaluation", total, correct, predictions)

    def updated(self) -> None:
        """Answers an update."""
        say("updated", float(abs(self._piece[0]).sum()))

    def failed(self, what: str, user: bool) -> None:
        """Answers anything."""
        self._has_failed = True
        say("failed", what, user)


def say(*what: Any) -> None:
    """Writes a line."""
    print(json.dumps(what), flush=True)


def serve() -> list[str]:
    """Forks for each line of stdin: a script's log, and its command line. Returns in the child, to run it.

    The framework is imported once, which takes most of the time of a short script.
    """
    for line in sys.stdin:
        log, *command = json.loads(line)
        child = os.fork()
        if child == 0:
            file = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, 1)
            os.dup2(file, 2)
            return list(command)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.exit()


def main() -> None:
    """Runs scripts as workers."""
    exec(sys.argv[1])  # noqa: S102 (the test's own words)
    options = {"join": "", "token_file": "", "worker": 2, "listen": "127.0.0.1:0", "orphan_timeout_s": 1.0}
    os.environ |= {"BELLWETHER_ROLE": "worker", "BELLWETHER_WORKER": json.dumps(options)}
    setattr(bellwether._loop, "Worker", ScriptedWorker)  # noqa: B010 (it is not meant to be replaced)
    gc.freeze()
    leave(run(serve()))


if __name__ == "__main__":
    main()
