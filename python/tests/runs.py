"""Runs of the command, for tests of whole trainings."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warm import warm

from bellwether._declare import VARIABLES

ROOT = Path(__file__).parents[2]
COMMAND = os.environ.get("BELLWETHER_COMMAND", "bellwether")
EXAMPLES = ROOT / "examples/python"

JAX = "import jax, optax"
KERAS = "import keras"
TORCH = "import torch, torch._dynamo"
"""What scripts import; an optimizer of PyTorch imports the latter."""

takes_long = unittest.skipUnless("BELLWETHER_TEST_ALL" in os.environ, "only by `cargo xtask python --all`")
"""Marks tests for which a change has no time."""


@dataclass
class Trained:
    """How a run ended."""

    code: int
    out: str
    log: str
    folder: Path
    """Where the script ran, and what it left."""
    events: list[dict[str, Any]] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    """The workers that the test killed."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def digest(self) -> str:
        """Of the trained parameters; empty where the run did not come to its end."""
        ended = self.of("ended")
        return ended[-1].get("params_digest") or "" if ended else ""


class Runs(unittest.TestCase):
    """What holds of a run, however slow the machine: a worker may boot through a whole change."""

    def assert_only_the_killed_crashed(self, trained: Trained) -> None:
        """A worker was killed while it trained, and nobody else crashed."""
        self.assertEqual(len(trained.killed), 1, trained.log)
        self.assertEqual([event["worker"] for event in trained.of("crashed")], trained.killed, trained.log)

    def assert_shrank_and_grew(self, trained: Trained) -> None:
        """The run shrank to one worker, and grew to four."""
        sizes = [len(event["workers"]) for event in trained.of("membership")]
        self.assertIn(1, sizes, trained.log)
        self.assertIn(4, sizes[sizes.index(1) :], trained.log)


class Verbs(unittest.TestCase):
    """Calls the command as a user does."""

    folder: Path
    """Where it is called."""
    state: Path
    """Where its runs are."""

    def start(self, *arguments: str, without: Iterable[str] = (), **more: Any) -> subprocess.Popen[str]:
        """Starts a verb, `without` some of this process's variables."""
        environment = environment_without(without) | {"BELLWETHER_STATE_DIR": str(self.state)}
        return subprocess.Popen([COMMAND, *arguments], cwd=self.folder, env=environment, text=True, **more)

    def call(self, *arguments: str, code: int = 0) -> str:
        """Runs a verb to its end; what it printed, or its error."""
        process = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, err)
        return out if code == 0 else err

    def serve(self, slots: int) -> subprocess.Popen[str]:
        """Starts a daemon that knows of no framework, and ends it after the test at the latest."""
        log = self.state / "serve.log"
        with log.open("w") as file:
            daemon = self.start("serve", "--slots", str(slots), without=VARIABLES, stdout=file, stderr=file)
        self.addCleanup(daemon.wait, timeout=30)
        self.addCleanup(daemon.terminate)
        self.wait_for("the daemon", lambda: "serving on" in log.read_text())
        return daemon

    def wait_for(self, what: str, check: Callable[[], Any]) -> Any:
        """Waits until `check` gives something."""
        until = time.monotonic() + 90
        while time.monotonic() < until:
            found = check()
            if found:
                return found
            time.sleep(0.01)
        self.fail(f"{what} did not come: {self.journal()[-3:]}")

    def journal(self, runs: str = "*") -> list[dict[str, Any]]:
        """All events of these runs."""
        return events_of(self.state.glob(f"{runs}/journal.jsonl"))

    def told(self, kind: str, runs: str = "*") -> list[dict[str, Any]]:
        """The events of this kind."""
        return [event for event in self.journal(runs) if event["event"] == kind]


class Place:
    """A folder in which scripts are trained."""

    def __init__(self, framework: str = "", variables: dict[str, str] | None = None) -> None:
        """`framework`: code that imports what the scripts import, once for all of them; without, each process does.

        `variables`: more than this process has.
        """
        self._variables = variables or {}
        self._framework = framework
        self._folder = tempfile.TemporaryDirectory(prefix="bellwether-test-")
        self.path = Path(self._folder.name)
        self._count = 0

    @property
    def python(self) -> str:
        """The interpreter of the scripts."""
        return str(warm(self._framework).python) if self._framework else sys.executable

    def end(self) -> None:
        """Removes it."""
        self._folder.cleanup()

    def environment(self, state: Path) -> dict[str, str]:
        """Of a process of a run; its runs are in `state`."""
        return {**os.environ, **self._variables, "BELLWETHER_STATE_DIR": str(state)}

    def train(
        self,
        script: Path,
        *arguments: str,
        kill_at: int | None = None,
        stop_at: int | None = None,
        alone: bool = False,
    ) -> Trained:
        """Trains a script by `bellwether run`, or `alone` by itself.

        `kill_at`, `stop_at`: a worker is killed, or the run is stopped, when this step was committed.
        """
        self._count += 1
        folder = self.path / str(self._count)
        folder.mkdir()
        command = [COMMAND, "run", "--python", self.python, str(script), *arguments]
        if alone:
            command = [self.python, str(script), *arguments]
        return self._run(folder, command, kill_at, stop_at)

    def resume(self, trained: Trained) -> Trained:
        """Takes a run up again that was stopped."""
        run = next((trained.folder / "state").glob("*/journal.jsonl")).parent.name
        return self._run(trained.folder, [COMMAND, "run", "--resume", run])

    def _run(
        self, folder: Path, command: list[str], kill_at: int | None = None, stop_at: int | None = None
    ) -> Trained:
        environment = self.environment(folder / "state")
        killed: list[int] = []
        with (folder / "out").open("w") as out, (folder / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=log)
            if kill_at is not None and wait_for_step(folder, kill_at, process):
                killed.append(kill_newest(events(folder)))
            if stop_at is not None and wait_for_step(folder, stop_at, process):
                process.send_signal(signal.SIGINT)
            code = wait(process, folder)
        trained = Trained(code, (folder / "out").read_text(), (folder / "log").read_text(), folder)
        trained.events, trained.killed = events(folder), killed
        trained.log += "".join(path.read_text() for path in folder.glob("state/**/worker-*.log"))
        return trained


def wait(process: subprocess.Popen[Any], folder: Path, longest_s: float = 240) -> int:
    """Waits for a run's end; its code. AssertionError with what is known of the run if it takes longer."""
    try:
        return process.wait(timeout=longest_s)
    except subprocess.TimeoutExpired:
        said = [f"not over after {longest_s:.0f} s: {process.args!r}", *processes(os.getpid())]
        for path in (folder / "out", folder / "log", *sorted(folder.glob("state/**/*.log"))):
            said += [f"-- {path.name}", *path.read_text(errors="replace").splitlines()[-40:]]
        said += ["-- journal", *(json.dumps(event) for event in events(folder)[-40:])]
        process.kill()
        raise AssertionError("\n".join(said)) from None


def processes(of: int) -> list[str]:
    """A line for each thread of a process and of those that it started: its name, and where in the kernel it waits."""
    threads = []
    for thread in sorted(Path(f"/proc/{of}/task").glob("*")):
        with contextlib.suppress(OSError):
            name, place = (thread / "comm").read_text().strip(), (thread / "wchan").read_text()
            threads.append(f"process {of}, thread {thread.name}: {name}, in {place}")
            for child in (thread / "children").read_text().split():
                threads += processes(int(child))
    return threads


def environment_without(names: Iterable[str]) -> dict[str, str]:
    """The variables of this process but these."""
    return {name: value for name, value in os.environ.items() if name not in set(names)}


def events(folder: Path) -> list[dict[str, Any]]:
    """What the journals of the runs in a folder tell."""
    return events_of(sorted((folder / "state").glob("**/journal.jsonl")))


def events_of(journals: Iterable[Path]) -> list[dict[str, Any]]:
    """What these journals tell; their last lines may be half written."""
    lines = [line for path in journals for line in path.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


def is_led(run: Path) -> bool:
    """Whether a coordinator lives for the run in this folder: it holds a lock."""
    with (run / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def members(told: list[dict[str, Any]]) -> list[int]:
    """The workers of the last membership that these events tell of, without those that crashed since."""
    memberships = [event["workers"] for event in told if event["event"] == "membership"]
    gone = {event["worker"] for event in told if event["event"] == "crashed"}
    return [worker for worker in memberships[-1] if worker not in gone] if memberships else []


def kill_newest(told: list[dict[str, Any]]) -> int:
    """Kills the newest worker that trains in the run that these events tell of."""
    newest = max(members(told))
    processes = {e["worker"]: e["process"] for e in told if e["event"] == "worker_attached"}
    os.kill(processes[newest], signal.SIGKILL)
    return newest


def wait_for_step(folder: Path, step: int, run: subprocess.Popen[Any]) -> bool:
    """Waits until a step was committed; false if the run ended before."""
    while run.poll() is None:
        if any(event["event"] == "committed" and event["last"] >= step for event in events(folder)):
            return True
        time.sleep(0.01)
    return False
