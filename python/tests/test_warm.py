# Environments: torch
"""The stand-in for Python that the other tests use behaves as Python does."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from warm import warm

SCRIPT = """
import os, sys, time
print(__name__, sys.argv[1:], os.getcwd(), os.environ["WORD"], sys.stdin.read(), "colorsys" in sys.modules, flush=True)
open("process", "w").write(str(os.getpid()))
if sys.argv[1] == "wait":
    time.sleep(60)
sys.exit(int(sys.argv[1]))
"""


class StandIn(unittest.TestCase):
    """A script by the stand-in."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "script.py").write_text(SCRIPT)

    def start(self, *arguments: str, python: str = "") -> subprocess.Popen[str]:
        """The script with these arguments."""
        return subprocess.Popen(
            [python or str(warm("import colorsys").python), str(self.folder / "script.py"), *arguments],
            cwd=self.folder,
            env={**os.environ, "WORD": "one"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def waiting(self) -> tuple[subprocess.Popen[str], int]:
        """A script that waits, and its process."""
        script = self.start("wait")
        assert script.stdin is not None and script.stdout is not None
        script.stdin.close()
        script.stdin = None
        self.addCleanup(script.stdout.close)
        self.wait_for(lambda: (self.folder / "process").exists() and (self.folder / "process").read_text())
        return script, int((self.folder / "process").read_text())

    def wait_for(self, check: Callable[[], object]) -> None:
        """Waits until something holds."""
        until = time.monotonic() + 30
        while not check():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_it_takes_over_what_python_would_have(self) -> None:
        for code in ("0", "3"):
            said, plain = (self.start(code, "x", python=python) for python in ("", sys.executable))
            out, expected = said.communicate("two")[0], plain.communicate("two")[0]
            self.assertEqual(out, expected.replace("False", "True"))
            self.assertEqual((said.returncode, plain.returncode), (int(code), int(code)))

    def test_it_ends_as_its_process_does(self) -> None:
        script, process = self.waiting()
        os.kill(process, signal.SIGSEGV)
        self.assertEqual(script.wait(30), -signal.SIGSEGV)

    def test_signals_are_passed_on(self) -> None:
        script, _ = self.waiting()
        script.send_signal(signal.SIGTERM)
        self.assertEqual(script.wait(30), -signal.SIGTERM)

    def test_its_process_ends_where_it_is_killed(self) -> None:
        script, process = self.waiting()
        script.kill()
        script.wait(30)
        self.wait_for(lambda: not Path(f"/proc/{process}").exists())


if __name__ == "__main__":
    unittest.main()
