"""A Python that begins with what it imports: most of the time of a short training is the import of its framework.

`python warm.py SOCKET CODE` runs a line of code that imports a framework, and then forks for each program that connects
to SOCKET, a stand-in for Python written by :func:`stand_in`. The child takes over the stand-in's command line,
environment, folder and open files, and runs the script or module; the stand-in passes signals on, and ends as it does.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

STAND_IN = """#!{python} -ISE
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
own = server.fileno()
server.connect({path!r})
files = [int(name) for name in os.listdir("/proc/self/fd")]
files = [file for file in files if file != own and os.path.exists(f"/proc/self/fd/{{file}}")]
said = json.dumps([sys.argv, dict(os.environ), os.getcwd(), files]).encode()
socket.send_fds(server, [len(said).to_bytes(8, "little")], files)
server.sendall(said)
process = int.from_bytes(server.recv(8), "little")
if process == 0:
    sys.exit("the warm Python is gone")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(process, number))
status = int(server.recv(8) or 1)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""

LIKE_THE_COMMAND = {
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "NPROC": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""What the command sets before Python begins."""


class Warm:
    """A process that has imported a framework, and a stand-in for Python whose programs are forked from it."""

    def __init__(self, code: str) -> None:
        """`code`: a line that imports the framework."""
        self._folder = tempfile.TemporaryDirectory(prefix="bellwether-warm-")
        path = Path(self._folder.name) / "socket"
        self.python = Path(self._folder.name) / "python"
        self.python.write_text(STAND_IN.format(python=sys.executable, path=str(path)))
        self.python.chmod(0o755)
        environment = {**os.environ, **LIKE_THE_COMMAND}
        command = [sys.executable, __file__, str(path), code]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        # Waited for, it is a part of the tests' processor time.
        unittest.addModuleCleanup(self.end)

    def end(self) -> None:
        """Ends the process, and all that was forked from it."""
        self._process.communicate()
        self._folder.cleanup()


@functools.cache
def warm(code: str) -> Warm:
    """One that ends with the tests of this file."""
    return Warm(code)


class Server:
    """Forks for the stand-ins."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """Processes and their stand-ins, by descriptors that tell when the former end."""

    def serve(self) -> list[str]:
        """Returns the command line in a child, and leaves when the input ends."""
        while True:
            stand_ins = [stand_in for _, stand_in in self._children.values()]
            files: list[Any] = [0, self._listener, *self._children, *stand_ins]
            ready = select.select(files, [], [])[0]
            if 0 in ready:
                for process, _ in self._children.values():
                    os.kill(process, signal.SIGKILL)
                os._exit(0)
            for ended in [one for one in self._children if one in ready]:
                self._tell(ended)
            for process, stand_in in self._children.values():
                if stand_in in ready:
                    # It says nothing after its first words: it was killed.
                    os.kill(process, signal.SIGKILL)
            if self._listener in ready:
                command = self._fork()
                if command:
                    return command

    def _fork(self) -> list[str]:
        """The command line in the child, and nothing in the server."""
        stand_in, _ = self._listener.accept()
        length, files, _, _ = socket.recv_fds(stand_in, 8, 64)
        said = b""
        while len(said) < int.from_bytes(length, "little"):
            said += stand_in.recv(1 << 16)
        process = os.fork()
        if process == 0:
            # Its number may be that of a file of the stand-in, and nothing may close that later.
            for own in (self._listener, stand_in, *(other for _, other in self._children.values())):
                own.detach()
            return take_over(json.loads(said), files)
        for file in files:
            os.close(file)
        self._children[os.pidfd_open(process)] = process, stand_in
        stand_in.sendall(process.to_bytes(8, "little"))
        return []

    def _tell(self, ended: int) -> None:
        """Tells a stand-in how its process ended."""
        process, stand_in = self._children.pop(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            stand_in.sendall(str(status).encode())
        stand_in.close()
        os.close(ended)


def take_over(said: Any, files: list[int]) -> list[str]:
    """Makes this process what the stand-in was; its command line."""
    (python, *arguments), environment, folder, names = said
    held = [fcntl.fcntl(file, fcntl.F_DUPFD, 500) for file in files]
    os.closerange(0, 500)
    for file, name in zip(held, names, strict=True):
        os.dup2(file, name)
    os.closerange(500, 600)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.executable = python
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return list(arguments)


def run(arguments: list[str]) -> int:
    """Runs a script or a module with its arguments; the code with which it ends."""
    try:
        if arguments[0] == "-m":
            sys.path[0], sys.argv = os.getcwd(), arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0], sys.argv = os.path.dirname(arguments[0]), arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        return ended.code or 0
    return 0


def leave(code: int) -> None:
    """Ends as Python does, but for taking all modules apart, which takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main() -> None:
    """Imports, serves, and is a program in each child."""
    _, path, code = sys.argv
    exec(code)  # noqa: S102 (the test's own words)
    server = Server(path)
    # What is not looked at in a child need not be copied for it.
    gc.freeze()
    print("ready", flush=True)
    leave(run(server.serve()))


if __name__ == "__main__":
    main()
