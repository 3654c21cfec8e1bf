"""What compiled code depends on in this machine."""

from __future__ import annotations

import platform
from pathlib import Path

_INSTRUCTIONS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")


def instructions() -> str:
    """The vector instructions of this processor, which compiled code takes."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    lines = [line for line in text.splitlines() if line.startswith(("flags", "Features"))]
    known = set(lines[0].split(":", 1)[1].split()) if lines else set()
    found = [name for name in _INSTRUCTIONS if name in known]
    return f"{platform.machine()} {' '.join(found)}".strip()
