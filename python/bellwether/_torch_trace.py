"""PyTorch's profiler, for a trace that Chrome, Perfetto and `bellwether profile --import` read."""

from __future__ import annotations

import os

import torch
from torch.profiler import ProfilerActivity, profile, schedule

_NO_END = 1 << 30
"""More micro-batches than are recorded: the end is said."""


class Recorder:
    """Records micro-batches, each as a step of the profiler, with the shapes of all operands."""

    def __init__(self, folder: str) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._file = os.path.join(folder, "trace.json")
        # The profiler's own first work is not recorded: one micro-batch warms it up.
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=1, active=_NO_END),
            on_trace_ready=self._write,
            record_shapes=True,
        )
        self._is_first = True

    def start(self) -> None:
        """Records from here on."""
        self._profile.start()

    def mark(self, step: int) -> None:
        """A micro-batch begins."""
        if not self._is_first:
            self._profile.step()
        self._is_first = False

    def stop(self) -> None:
        """Writes what was recorded."""
        self._profile.stop()

    def _write(self, recorded: profile) -> None:
        recorded.export_chrome_trace(self._file)
