"""The lead: declares the job, follows the run, and opens its checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from bellwether import _errors
from bellwether._declare import Declaration
from bellwether._native import Journal
from bellwether._role import Role, role

_LOOK_S = 0.2
"""How long a wait for the run's next event lasts before signals are looked at."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of the run, ready to be opened."""

    step: int
    """Steps that it has behind it."""
    path: Path


class Lead:
    """The lead's side of a run."""

    def __init__(self, declaration: Declaration, initial: Iterable[Any]) -> None:
        """Declares the job, and waits until its run began.

        `initial`: float32 arrays, the parameters and then the state in the order of the layout. Leaves by
        SystemExit where the job is only declared, or the run did not begin.
        """
        self._begin = time.time()
        self._run: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, Path] = {}
        self._outcome: str | None = None
        self._stopped = False
        self._was_alive = False
        if role() is Role.DECLARE:
            asked = _channel().get("initial_file")
            if asked is not None:
                _write_weights(asked, initial)
            _write_line(int(_channel()["declare_fd"]), declaration.line(asked))
            raise SystemExit(0)
        folder = self._declare(declaration, initial)
        self.folder = Path(folder)
        self._journal = Journal(folder)
        self._last_step = 0
        signal.signal(signal.SIGINT, self._interrupted)

    def _declare(self, declaration: Declaration, initial: Iterable[Any]) -> str:
        declare, follow = self._channels()
        with tempfile.TemporaryDirectory(prefix="bellwether-") as folder:
            weights = os.path.join(folder, "initial.f32")
            _write_weights(weights, initial)
            _write_line(declare, declaration.line(weights))
            with os.fdopen(follow) as lines:
                line = lines.readline()
        if not line:
            # The command has said why.
            raise SystemExit(1)
        return str(json.loads(line)["run"])

    def _channels(self) -> tuple[int, int]:
        """Where the declaration is written to, and where the run's folder is read from."""
        if role() is Role.LEAD:
            channel = _channel()
            return int(channel["declare_fd"]), int(channel["follow_fd"])
        read, declare = os.pipe()
        follow, write = os.pipe()
        command = [_command(), "run", "--led-by", f"{read}:{write}"]
        # A session of its own: a Ctrl-C is for the lead, which asks the run to stop.
        self._run = subprocess.Popen(command, pass_fds=(read, write), start_new_session=True)
        os.close(read)
        os.close(write)
        return declare, follow

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-C: the run stops with a checkpoint; a second one ends the lead."""
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        print("the run stops at its next step; Ctrl-C again ends this process at once", file=sys.stderr)
        self.stop()

    def stop(self) -> None:
        """Asks the run to stop at its next step."""
        subprocess.Popen([_command(), "stop", str(self.folder)], stdout=subprocess.DEVNULL)

    def checkpoint(self, step: int) -> Checkpoint | None:
        """Waits for the checkpoint after `step` steps; None if the run ended before it, or it was handed out."""
        while step not in self._seen and self._outcome is None:
            self._hear()
        kept = self.folder / "epochs" / f"step-{step:012}.safetensors"
        for path in (kept, self._seen.get(step)):
            if path is not None and path.exists():
                return Checkpoint(step, path)
        return None

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, for whatever reason."""
        return self._outcome is not None

    def done_with(self, checkpoint: Checkpoint) -> None:
        """Removes what the run kept for the lead only."""
        if checkpoint.path.parent.name == "epochs":
            checkpoint.path.unlink(missing_ok=True)

    def parts(self, count: int, steps: int) -> Iterator[tuple[int, Checkpoint]]:
        """The checkpoints of `count` parts of a run, of `steps` each, as they are made; the last is the run's last.

        Those that a lead before this one had are left out. Leaves by SystemExit as `finish` does.
        """
        for part in range(count):
            found = self.checkpoint((part + 1) * steps) if part + 1 < count else self.finish()
            if found is None and self.has_ended:
                found = self.finish()
            if found is not None:
                yield part, found
                self.done_with(found)

    def finish(self) -> Checkpoint:
        """Waits for the end of the run, and returns its last checkpoint.

        Leaves by SystemExit if the run did not come to its end: 0 if it was stopped, 1 if it failed; the command has
        said which.
        """
        while self._outcome is None:
            self._hear()
        if self._run is not None:
            self._run.wait()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._outcome != "finished":
            raise SystemExit(0 if self._outcome == "stopped" else 1)
        found = self.checkpoint(self._last_step)
        if found is None:
            raise _errors.BellwetherError(
                f"{self.folder}: the checkpoint after step {self._last_step} is gone; it was removed after the run"
            )
        return found

    def _hear(self) -> None:
        """Reads the next event of the run, or looks whether the run still goes on."""
        alive = self._journal.is_alive()
        line = self._journal.next(_LOOK_S)
        if line is not None:
            self._take(json.loads(line))
        elif self._was_alive and not alive and self._outcome is None:
            # Its coordinator is gone without an end; the run that is resumed has another lead.
            raise SystemExit(1)
        elif self._run is not None and self._run.poll() not in (None, 0):
            raise SystemExit(1)
        self._was_alive = self._was_alive or alive

    def _take(self, event: dict[str, Any]) -> None:
        """Notes what an event of the journal tells."""
        if event["event"] == "checkpointed":
            self._seen[int(event["step"])] = self.folder / event["path"]
        # A run that was resumed has ended before.
        if event["event"] == "ended" and event["time_s"] >= self._begin:
            self._outcome = str(event["outcome"]).split(":")[0]
            self._last_step = int(event["step"])


def _channel() -> dict[str, Any]:
    """What the command says to a lead."""
    channel: dict[str, Any] = json.loads(os.environ["BELLWETHER_LEAD"])
    return channel


def _write_weights(path: str, arrays: Iterable[Any]) -> None:
    """Writes float32 arrays one after another, as the command reads them."""
    with open(path, "wb") as file:
        file.writelines(array.astype("<f4", copy=False).tobytes() for array in arrays)


def _write_line(descriptor: int, line: str) -> None:
    file: IO[str]
    with os.fdopen(descriptor, "w") as file:
        file.write(line + "\n")


def _command() -> str:
    """The command: ``BELLWETHER_COMMAND``, the one beside the interpreter, or the first on the path."""
    named = os.environ.get("BELLWETHER_COMMAND")
    beside = os.path.join(os.path.dirname(sys.executable), "bellwether")
    found = named or (beside if os.access(beside, os.X_OK) else shutil.which("bellwether"))
    if not found:
        raise _errors.BellwetherError(
            "the command `bellwether` is neither beside this Python nor on the path; install the wheel again, or name "
            "it in BELLWETHER_COMMAND"
        )
    return found
