# Environments: torch
"""The sources in Python have types that hold, and one format."""

import subprocess
import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).parents[1]


class Sources(unittest.TestCase):
    """Each test runs a checker with the settings of `pyproject.toml`."""

    def assert_content(self, *arguments: str) -> None:
        """The checker finds nothing."""
        command = [sys.executable, "-m", *arguments]
        ended = subprocess.run(command, check=False, cwd=FOLDER, capture_output=True, text=True)
        said = f"{' '.join(arguments)} in {FOLDER}:\n{ended.stdout}{ended.stderr}"
        self.assertEqual(ended.returncode, 0, said)

    def test_types_hold(self) -> None:
        self.assert_content("mypy", "--cache-dir", f"{sys.prefix}/mypy-cache", ".")

    def test_nothing_is_unused_or_out_of_order(self) -> None:
        self.assert_content("ruff", "check", "--no-cache", ".")

    def test_files_are_formatted(self) -> None:
        self.assert_content("ruff", "format", "--no-cache", "--diff", ".")


if __name__ == "__main__":
    unittest.main()
