"""Errors: what is wrong, where in the user's script, and what to write instead."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_FOREIGN = tuple(
    os.path.abspath(path) + os.sep
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class BellwetherError(Exception):
    """Something that Bellwether cannot do as it is written; the text says what to write instead."""


def _is_users(path: str) -> bool:
    """Whether a source file is the user's: neither ours, nor Python's, nor an installed package's."""
    if path.startswith("<"):
        return False
    path = os.path.abspath(path)
    return not path.startswith(_FOREIGN) and not path.startswith(_PACKAGE + os.sep)


def caller() -> str:
    """``train.py:16``: the line of the user's script that is being executed; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def refuse(what: str, instead: str = "") -> BellwetherError:
    """An error with the user's line: ``train.py:3: WHAT; INSTEAD``."""
    place = caller()
    text = f"{place}: {what}" if place else what
    return BellwetherError(f"{text}; {instead}" if instead else text)


def user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """The frames of a traceback that are the user's own, outermost first."""
    return [frame for frame in traceback.extract_tb(trace) if _is_users(frame.filename)]


def describe(error: BaseException, place: str) -> str:
    """``train.py:24: ValueError: what it says (PLACE)``, by the user's innermost line."""
    if isinstance(error, BellwetherError):
        # It names its line itself.
        return f"{error} ({place})" if place else str(error)
    frames = user_frames(error.__traceback__)
    line = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    message = "".join(traceback.format_exception_only(error)).strip()
    return f"{line}{message} ({place})" if place else f"{line}{message}"


def users_traceback(error: BaseException) -> str:
    """The traceback with the user's own frames only."""
    frames = user_frames(error.__traceback__)
    head = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*head, *traceback.format_exception_only(error)])


Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def catch(handle: Callable[[BaseException], int]) -> None:
    """Lets `handle` see an error that ends the process; what it returns becomes the exit code.

    The interpreter's own hook cannot set the exit code, so this one ends the process, after all output is written.
    """

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            previous(kind, error, trace)
            return
        code = handle(error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

    previous: Hook = sys.excepthook
    sys.excepthook = hook


def report(error: BaseException) -> int:
    """Writes an error that ends a lead to stderr; returns the exit code: 2 for what Bellwether refuses."""
    if isinstance(error, BellwetherError):
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("".join(traceback.format_exception(error)), end="", file=sys.stderr)
    return 1
