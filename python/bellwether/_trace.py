"""Records some steps of a worker by its framework's own profiler, where `profile --framework-trace` asks for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Recorder(Protocol):
    """A framework's profiler."""

    def start(self) -> None:
        """Records from here on."""

    def mark(self, step: int) -> None:
        """A micro-batch of this step begins."""

    def stop(self) -> None:
        """Writes what was recorded."""


@dataclass
class Trace:
    """The steps that are recorded, and how far that is."""

    recorder: Recorder
    first: int
    steps: int
    is_open: bool = False

    def at(self, step: int) -> bool:
        """Before a micro-batch of this step is computed; returns whether more of them are wanted."""
        if self.is_open and step >= self.first + self.steps:
            self.recorder.stop()
            return False
        if not self.is_open and step >= self.first:
            self.recorder.start()
            self.is_open = True
        if self.is_open:
            self.recorder.mark(step)
        return True


def of_environment(make: Callable[[str], Recorder]) -> Trace | None:
    """What this worker is asked to record: `make` gives the profiler that writes into a folder."""
    asked = os.environ.get("BELLWETHER_TRACE")
    if asked is None:
        return None
    told = json.loads(asked)
    return Trace(make(told["folder"]), told["first"], told["steps"])
