"""Errors: what is wrong, where in the user's script, and what to write instead."""

from __future__ import annotations

import functools
import os
import sys

# What only types need is not imported: `import bellwether` must cost next to nothing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from traceback import FrameSummary
    from types import FrameType, TracebackType

    Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


_LONGEST = 500

_TYPED = ("<stdin", "<python-input", "<ipython-input")
"""Names of code that stands in no file: it was typed, or comes from a notebook."""


class BellwetherError(Exception):
    """Something that Bellwether cannot do as it is written; the text says what to write instead."""


class InputError(BellwetherError, ValueError):
    """A question that cannot be answered as it is put: bad options, files that cannot be used."""


class MissingFramework(BellwetherError, ModuleNotFoundError):
    """A framework that is not installed beside this Python."""


def _is_users(path: str) -> bool:
    """Whether a source file is the user's: neither ours, nor Python's, nor an installed package's."""
    if path.startswith("<"):
        return path.startswith(_TYPED)
    path = os.path.abspath(path)
    return not path.startswith((*_foreign(), _PACKAGE + os.sep))


@functools.cache
def _foreign() -> tuple[str, ...]:
    """The folders of Python's own sources and of installed packages."""
    import sysconfig

    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(os.path.abspath(path) + os.sep for path in paths)


def caller() -> str:
    """``train.py:16``: the line of the user's script that is being executed; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def main_line() -> str:
    """``train.py:16``: the user's line at which the main thread stands; empty where there is none."""
    import threading

    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


_LEAVES = ("POP_TOP", "POP_ITER", "END_FOR", "RETURN_VALUE", "RETURN_CONST")
"""Instructions by which a loop is left and its iterator dropped; none of them raises an error."""


def is_leaving() -> bool:
    """Whether the user's innermost line leaves a loop by itself, as `break` does, and not because of an error.

    False also where that cannot be told. For a generator that is closed: what closes it says nothing of why.
    """
    import dis

    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or frame.f_lasti < 0:
        return False
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in _LEAVES


def refuse(what: str, instead: str = "") -> BellwetherError:
    """An error with the user's line: ``train.py:3: WHAT; INSTEAD``."""
    place = caller()
    text = f"{place}: {what}" if place else what
    return BellwetherError(f"{text}; {instead}" if instead else text)


def missing(error: ModuleNotFoundError, wanted: str) -> ModuleNotFoundError:
    """What to install, where a framework is missing; the error itself where it is something else."""
    name = str(error.name)
    if name not in ("torch", "jax", "keras", "tensorflow"):
        return error
    if _handle is None:
        catch(report)
    place = caller()
    what = f"{name} is not installed beside {sys.executable}; pip install {wanted}"
    return MissingFramework(f"{place}: {what}" if place else what, name=name)


def user_frames(trace: TracebackType | None) -> list[FrameSummary]:
    """The frames of a traceback that are the user's own, outermost first."""
    import traceback

    return [frame for frame in traceback.extract_tb(trace) if _is_users(frame.filename)]


def describe(error: BaseException) -> str:
    """``train.py:24: ValueError: what it says``, by the user's innermost line."""
    if isinstance(error, BellwetherError):
        # It names its line itself.
        return str(error)
    import traceback

    frames = user_frames(error.__traceback__)
    line = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    # One line, and not more of it than a person reads: the log has the rest.
    message = " ".join("".join(traceback.format_exception_only(error)).split())[:_LONGEST]
    return f"{line}{message}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a framework found no room on its device; each has its own error for that."""
    kind = type(error).__name__
    return kind in ("OutOfMemoryError", "ResourceExhaustedError") or "RESOURCE_EXHAUSTED" in str(error)


def users_traceback(error: BaseException) -> str:
    """The traceback with the user's own frames only; a refusal's is its text."""
    if isinstance(error, BellwetherError):
        return f"error: {error}\n"
    import traceback

    frames = user_frames(error.__traceback__)
    head = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*head, *traceback.format_exception_only(error)])


def catch(handle: Callable[[BaseException], int | None]) -> None:
    """Lets `handle` see an error that ends the process; what it returns becomes the exit code.

    The interpreter's own hook cannot set the exit code, so this one ends the process, after all output is written.
    Where it returns None, the error goes the usual way. The last `handle` counts.
    """
    global _handle
    if _handle is None:
        _install(sys.excepthook)
    _handle = handle


_handle: Callable[[BaseException], int | None] | None = None


def _install(previous: Hook) -> None:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        code = _handle(error) if _handle is not None and not issubclass(kind, KeyboardInterrupt) else None
        if code is None:
            previous(kind, error, trace)
            return
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

    sys.excepthook = hook


def report(error: BaseException) -> int | None:
    """Writes what Bellwether refuses to stderr, in a line and not as a traceback; its exit code is 2."""
    if not isinstance(error, BellwetherError):
        return None
    print(f"error: {error}", file=sys.stderr)
    return 2
