"""What this process is: a worker, a lead, or a program that only says what it would train."""

from __future__ import annotations

import enum
import os


class Role(enum.Enum):
    """The part of a process in a run; the command sets it."""

    LEAD = "lead"
    """Declares the job, follows the run, and is where the script goes on."""
    WORKER = "worker"
    """Computes until the run ends."""
    DECLARE = "declare"
    """Declares the job, and ends."""
    ALONE = ""
    """Started as ``python train.py``: becomes the lead of a run that it starts."""


def role() -> Role:
    """The role of this process, from ``BELLWETHER_ROLE``."""
    return Role(os.environ.get("BELLWETHER_ROLE", ""))


def is_lead() -> bool:
    """Whether what must happen once (downloads, logs) happens in this process: true outside of workers."""
    return role() is not Role.WORKER


def computes() -> bool:
    """Whether gradients are computed in this process, or in those that are forked from it."""
    import sys

    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return role() is Role.WORKER or getattr(spec, "name", "") == "bellwether._fork"
