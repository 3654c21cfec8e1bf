"""Training from a notebook: a function runs by value, in fresh processes, as a script of its own."""

from __future__ import annotations

import codecs
import linecache
import os
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bellwether import _errors
from bellwether._errors import BellwetherError
from bellwether._lead import find_command
from bellwether._role import Role, role

_Result = TypeVar("_Result")

_LOOK_S = 0.2
"""How long a wait for output lasts before the lead is looked after."""

_SCRIPT = '''"""Calls the function that lies beside this file."""

from bellwether._launch import main

main(__file__)
'''


def launch(function: Callable[..., _Result], *arguments: Any, workers: int | str | None = None) -> _Result:
    """Calls `function(*arguments)` as a script of its own, and returns what it returns in the lead.

    The function trains one model, as a script would (`bellwether.torch.Run`, `bellwether.keras.fit`, …). It and what it
    uses of this notebook are sent by value, so its classes need no file; this process is never forked, and trains
    nothing. `workers`: their number, or a range "1..4".

    What the lead prints is shown here. An error in the function is raised here, with the function's traceback. An
    interrupt (Ctrl-C, the stop button) stops the run, and is raised when it has stopped. Raises BellwetherError if the
    run fails for another reason.
    """
    if role() is not Role.ALONE:
        raise _errors.refuse("bellwether.launch in a process of a run", "call the function itself")
    folder = Path(tempfile.mkdtemp(prefix="bellwether-launch-"))
    try:
        script = folder / f"{_name(function)}.py"
        script.write_text(_SCRIPT)
        _send(folder, function, arguments)
        words = [find_command(), "run", "--python", sys.executable, str(script)]
        if workers is not None:
            words += ["--workers", str(workers)]
        result: _Result = _result(folder, _watch(words, folder))
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(script: str) -> None:
    """Calls the function in a process of the run: the script does nothing else."""
    folder = Path(script).resolve().parent
    sent = pickle.loads((folder / "sent.pkl").read_bytes())
    sys.path.extend(path for path in sent["paths"] if path not in sys.path)
    linecache.cache.update(sent["sources"])
    function, arguments = pickle.loads(sent["call"])
    try:
        result = function(*arguments)
    except Exception as error:
        _keep(folder, f"{role().value}-error.pkl", (error, _errors.users_traceback(error)))
        raise
    if role() is Role.LEAD:
        _keep(folder, "result.pkl", result)


def _name(function: Callable[..., Any]) -> str:
    """The name of the run."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in getattr(function, "__name__", ""))
    return kept.strip("-") or "notebook"


def _send(folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Writes the call, and what a new process needs to understand it."""
    import cloudpickle

    # Lines of cells, which stand in no file, for tracebacks.
    linecache.getlines(getattr(getattr(function, "__code__", None), "co_filename", ""))
    sources = {name: entry for name, entry in linecache.cache.items() if not os.path.exists(name)}
    sent = {
        "paths": [os.path.abspath(path) for path in sys.path],
        "sources": {name: entry for name, entry in sources.items() if len(entry) == 4},
        "call": cloudpickle.dumps((function, arguments)),
    }
    (folder / "sent.pkl").write_bytes(pickle.dumps(sent))


def _keep(folder: Path, name: str, value: Any) -> None:
    """Writes a value whole; an error that cannot be sent is sent as its text."""
    import cloudpickle

    try:
        data = cloudpickle.dumps(value)
    except Exception as error:
        if name == "result.pkl":
            raise
        failed, text = value
        data = pickle.dumps((RuntimeError(_errors.describe(failed)), f"{text}(it cannot be sent: {error})\n"))
    part = folder / f"{name}.{os.getpid()}"
    part.write_bytes(data)
    part.rename(folder / name)


def _watch(words: list[str], folder: Path) -> tuple[int, bool]:
    """Runs the command, and shows what it and the lead write. Its exit code, and whether it was interrupted."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    # A session of its own: an interrupt is for this process, which lets the run stop.
    process = subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    interrupts, lead_failed = 0, False
    output = _Output(process)
    try:
        while True:
            try:
                if not output.show():
                    return process.wait(), interrupts > 0
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1:
                    raise
                process.send_signal(signal.SIGINT)
            if not lead_failed and (folder / "lead-error.pkl").exists():
                # Without it the run would train on for no one.
                lead_failed = True
                process.send_signal(signal.SIGINT)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


class _Output:
    """What a process writes, shown by the streams of this one, which a notebook replaces by its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._selector = selectors.DefaultSelector()
        decoder = codecs.getincrementaldecoder("utf-8")
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            assert stream is not None, "both are pipes"
            self._selector.register(stream, selectors.EVENT_READ, (name, decoder(errors="replace")))

    def show(self) -> bool:
        """Shows what has come within a moment; false when all was shown."""
        for key, _ in self._selector.select(_LOOK_S):
            data = os.read(key.fd, 1 << 16)
            name, decoder = key.data
            stream = getattr(sys, name)
            stream.write(decoder.decode(data))
            stream.flush()
            if not data:
                self._selector.unregister(key.fileobj)
        return bool(self._selector.get_map())


class UsersTraceback(Exception):
    """Where an error was raised, in a process of the run."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _result(folder: Path, ended: tuple[int, bool]) -> Any:
    """What the function returned, or raises why it did not."""
    code, was_interrupted = ended
    for name in ("lead-error.pkl", "worker-error.pkl"):
        if (folder / name).exists():
            error, text = _load(folder / name)
            raise error from UsersTraceback(text)
    if (folder / "result.pkl").exists() and code == 0:
        return _load(folder / "result.pkl")
    if was_interrupted:
        raise KeyboardInterrupt
    raise BellwetherError(f"the run did not come to its end (exit code {code}); what it said stands above")


def _load(path: Path) -> Any:
    try:
        return pickle.loads(path.read_bytes())
    except Exception as error:
        what = "".join(traceback.format_exception_only(error)).strip()
        raise BellwetherError(f"what the function returned cannot be read here: {what}") from error
