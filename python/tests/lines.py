"""Lines that a user has to write: scripts before and after."""

import difflib
import re
from pathlib import Path


def written(before: str, after: str) -> list[str]:
    """The lines of `after` that are not in `before`; empty ones and comments do not count."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    added = [line[2:] for line in lines if line.startswith("+ ")]
    return [line for line in added if line.strip() and not line.strip().startswith("#")]


def code(path: Path) -> str:
    """A script without its header, and without the place where it stands."""
    text = re.sub(r'^""".*?"""\n+', "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"parents\[\d\]", "parents[…]", text)
