"""The lead: declares the job, follows the run, and opens its checkpoints."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from bellwether import _errors
from bellwether._declare import Declaration, canonical
from bellwether._native import Journal, give_verdict
from bellwether._role import Role, role

_STOP_S = 60.0
"""How long a run that was left is waited for to stop."""

_LOOK_S = 0.2
"""How long a wait for the run's next event lasts before signals are looked at."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of the run, ready to be opened."""

    step: int
    """Steps that it has behind it."""
    path: Path


@dataclass
class Listeners:
    """What the user's code in the lead wants to hear of, while it waits for the run."""

    evaluated: list[Callable[[int, float, float | None], object]] = field(default_factory=list)
    """Called with the step, the held-out loss, and the accuracy where it applies."""
    checkpointed: list[Callable[[int, Path], object]] = field(default_factory=list)
    """Called with the step and the file."""


@dataclass(frozen=True)
class Plain:
    """What a plain model has beside the tensors of a checkpoint, for `bellwether export`."""

    save: Callable[[Path, dict[str, str]], None]
    """Writes what is never trained into a file with these metadata, in the format safetensors."""
    tied: dict[str, str] = field(default_factory=dict)
    """Other names of tensors of the layout."""
    counters: list[str] = field(default_factory=list)
    """Names of tensors that count steps."""
    format: str = "np"


def _save_nothing(path: Path, metadata: dict[str, str]) -> None:
    from safetensors.numpy import save_file

    save_file({}, path, metadata=metadata)


class Lead:
    """The lead's side of a run."""

    def __init__(
        self,
        declaration: Declaration,
        initial: Iterable[Any],
        plain: Plain | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        """Declares the job, and waits until its run began.

        `initial`: float32 arrays, the parameters and then the state in the order of the layout. Leaves by
        SystemExit where the job is only declared, or the run did not begin.
        """
        self._begin = time.time()
        self._run: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, Path] = {}
        self._earlier: set[int] = set()
        """Steps whose checkpoints came before this lead did."""
        self._outcome: str | None = None
        self._has_begun = False
        """Whether its coordinator has."""
        self._stopped = False
        self._was_alive = False
        self._open: str | None = None
        """Where the user's loop over parts of the run stands, while it has not come to its end."""
        self._holds = declaration.verdict_every > 0
        self._due: int | None = None
        """The step on which the user's loop decides now."""
        self._verdicts: dict[int, str | None] = {}
        """By step: why the run ends there, or None where it goes on."""
        self._listeners = listeners or Listeners()
        self._told: set[tuple[str, int]] = set()
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
        self._describe(declaration, plain or Plain(_save_nothing))
        signal.signal(signal.SIGINT, self._interrupted)
        atexit.register(self._left)

    def _describe(self, declaration: Declaration, plain: Plain) -> None:
        """Writes what `bellwether export` needs beside a checkpoint."""
        rows = declaration.layout.json()
        metadata = {
            "format": plain.format,
            "layout": canonical([rows["parameters"], rows["state"]]),
            "tied": canonical(plain.tied),
            "counters": canonical(plain.counters),
        }
        part = self.folder / f"plain.{os.getpid()}.part"
        plain.save(part, metadata)
        part.rename(self.folder / "plain.safetensors")

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
        command = [find_command(), "run", "--led-by", f"{read}:{write}"]
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
        subprocess.Popen([find_command(), "stop", str(self.folder)], stdout=subprocess.DEVNULL)

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
            # Leaves here if the run has another lead by now, which may want it.
            while self._hear(0.0):
                pass
            checkpoint.path.unlink(missing_ok=True)

    def parts(self, count: int, steps: int) -> Iterator[tuple[int, Checkpoint]]:
        """The checkpoints of `count` parts of a run, of `steps` each, as they are made; the last is the run's last.

        Those that a lead before this one had are left out, and those that 64 later ones have followed before this lead
        came to them. A run that holds waits after each part for what follows here: the next part lets it go on, and
        leaving the loop ends it. Leaves by SystemExit as `finish` does.
        """
        for part in range(count):
            step = (part + 1) * steps
            found = self.checkpoint(step) if part + 1 < count else self.finish()
            if found is None and self.has_ended:
                # Leaves here if the run did not come to its end.
                self.finish()
            if found is None:
                if step not in self._earlier:
                    print(
                        f"note: epoch {part} is left out: its weights are not kept any more", file=sys.stderr
                    )
                if self._holds and part + 1 < count and self.decide(step) is not None:
                    return
                continue
            if part + 1 < count:
                self._due = step
                self._open = (
                    f"{_errors.caller()}: the script leaves the loop after {part + 1} of {count} epochs"
                )
            try:
                yield part, found
            except GeneratorExit:
                if self._holds and _errors.is_leaving():
                    self._leave()
                raise
            self.done_with(found)
            if self._holds and part + 1 < count and self.decide(step) is not None:
                return
            self._open = self._due = None

    def decide(self, step: int, ends: str | None = None) -> str | None:
        """Lets the run go on after `step`, or ends it there; what was decided before counts.

        Why the run ends there, once it has; None where it goes on. Leaves by SystemExit as `finish` does.
        """
        while step not in self._verdicts and not self.has_ended:
            try:
                accepted, why = give_verdict(str(self.folder), step, ends)
            except ConnectionError:
                # It is busy, or gone; the journal tells which.
                accepted, why = True, ""
            # The journal has it before the answer comes.
            while step not in self._verdicts and not self.has_ended and self._hear():
                pass
            if not accepted and step not in self._verdicts and not self.has_ended:
                # The run is shorter than the script declared.
                if ends is not None:
                    print(f"note: the run does not end after step {step}: {why}", file=sys.stderr)
                return None
        decided = self._verdicts.get(step)
        if decided is not None or self.has_ended:
            self._open = self._due = None
            self.finish()
        elif ends is not None:
            print(f"note: the run goes on after step {step}: it was decided before", file=sys.stderr)
        return decided

    def end(self, reason: str) -> None:
        """Ends the run at the part that the user's loop is at, for this reason."""
        reason = " ".join(reason.split()) or "the script ends it"
        if not self._holds:
            self.stop()
            raise _errors.refuse(
                "the run has gone on meanwhile, for its workers do not wait for the lead; it is stopped",
                "write hold=True",
            )
        if self._due is not None:
            self.decide(self._due, reason)

    def _leave(self) -> bool:
        """The script leaves the loop of a run that holds: that ends the run. False where it was decided otherwise."""
        where = self._open or _errors.caller()
        return self._due is None or self.decide(self._due, where) is not None

    def _left(self) -> None:
        """The process ends: in the midst of the loop only if the script left it, or failed and said so.

        What follows the loop has been executed by then: nothing in the loop can see every `break` that leaves it. A
        run that holds ends where it was left.
        """
        if self._open is None or hasattr(sys, "last_type") or self._holds and self._leave():
            return
        then = "write hold=True to end it there" if not self._holds else "it was decided that it goes on"
        what = f"{self._open}, before the run is over; {then}, use run.steps(n), or `bellwether stop`"
        print(f"error: {what}; the run is stopped", file=sys.stderr)
        self.stop()
        if self._run is not None:
            self._run.wait(_STOP_S)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(2)

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

    def _hear(self, patience_s: float = _LOOK_S) -> bool:
        """Reads the next event of the run, or looks whether the run still goes on. Whether there was one."""
        alive = self._journal.is_alive()
        line = self._journal.next(patience_s)
        if line is not None:
            self._take(json.loads(line))
        elif self._outcome is None:
            has_failed = self._run is not None and self._run.poll() not in (None, 0)
            if has_failed or (self._was_alive and not alive):
                # Its coordinator is gone without an end; the run that is resumed has another lead.
                raise SystemExit(1)
        self._was_alive = self._was_alive or alive
        return line is not None

    def _take(self, event: dict[str, Any]) -> None:
        """Notes what an event of the journal tells. Leaves by SystemExit where the run was resumed without this lead."""
        if event["event"] == "coordinator_started" and event["time_s"] >= self._begin:
            if self._has_begun:
                raise SystemExit(1)
            self._has_begun = True
        if event["event"] == "checkpointed":
            self._seen[int(event["step"])] = self.folder / event["path"]
            if event["time_s"] < self._begin:
                self._earlier.add(int(event["step"]))
        if event["event"] == "verdict":
            self._verdicts[int(event["step"])] = event.get("ends")
        if event["time_s"] >= self._begin:
            self._tell(event)
        # A run that was resumed has ended before.
        if event["event"] == "ended" and event["time_s"] >= self._begin:
            self._outcome = str(event["outcome"]).split(":")[0]
            self._last_step = int(event["step"])

    def _tell(self, event: dict[str, Any]) -> None:
        """Tells the user's code of an event, once, also where the run did a step again."""
        step = int(event.get("step", 0))
        if event["event"] not in ("evaluated", "checkpointed") or (event["event"], step) in self._told:
            return
        self._told.add((event["event"], step))
        if event["event"] == "evaluated":
            for evaluated in self._listeners.evaluated:
                evaluated(step, float(event["loss"]), event.get("accuracy"))
            return
        offered = self.folder / "epochs" / f"step-{step:012}.safetensors"
        path = offered if offered.exists() else self.folder / event["path"]
        if path.exists():
            for checkpointed in self._listeners.checkpointed:
                checkpointed(step, path)


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
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(line + "\n")
    except OSError as error:
        raise _errors.refuse(
            f"the pipe on which the command waits for the job is closed ({error.strerror})",
            "leave open what the script did not open itself",
        ) from None


def find_command() -> str:
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
