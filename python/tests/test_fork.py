# Environments: torch
"""The fork server: workers that begin with everything imported."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

SCRIPT = """
import os, sys
print("argv", sys.argv[1:], "role", os.environ["BELLWETHER_ROLE"], "main", __name__)
print("loaded", "torch" in loaded, "leader", os.getsid(0) == os.getpid())
sys.exit(int(sys.argv[1]))
"""
KNOWN_AT_START = "import sys\nloaded = set(sys.modules)\n"


class Server(unittest.TestCase):
    """Asked over its pipes, as the command asks it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="bellwether-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "train.py").write_text(KNOWN_AT_START + SCRIPT)

    def start(self, *modules: str, **environment: str) -> None:
        """Starts one that has imported these."""
        self.server = subprocess.Popen(
            [sys.executable, "-m", "bellwether._fork"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        )
        self.addCleanup(self.stop)
        self.ask({"import": list(modules)})

    def stop(self) -> None:
        """It ends with its input."""
        if self.server.stdin is not None and self.server.stdout is not None:
            self.server.stdin.close()
            self.assertEqual(self.server.wait(timeout=30), 0)
            self.server.stdout.close()

    def ask(self, request: dict[str, Any]) -> None:
        """Writes a request."""
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        self.server.stdin.flush()

    def hear(self) -> dict[str, int]:
        """Reads an answer about a worker."""
        assert self.server.stdout is not None
        while True:
            answer: dict[str, int] = json.loads(self.server.stdout.readline())
            if "importing" not in answer:
                return answer

    def worker(self, number: int, *arguments: str) -> tuple[int, str]:
        """Runs the script as a worker: how it ended, and what it said."""
        log = self.folder / f"worker-{number}.log"
        command = [sys.executable, str(self.folder / "train.py"), *arguments]
        environment = {"BELLWETHER_ROLE": "worker"}
        self.ask({"id": number, "command": command, "environment": environment, "log": str(log)})
        started = self.hear()
        self.assertEqual(started["id"], number)
        ended = self.hear()
        self.assertEqual(ended["id"], number)
        return os.waitstatus_to_exitcode(ended["ended"]), log.read_text()

    def test_a_worker_is_the_script_with_what_was_imported(self) -> None:
        """Its arguments, its environment, its log, its session and its exit code are its own."""
        self.start("torch", "no_such_module")
        for number, code in ((1, 0), (2, 3)):
            ended, said = self.worker(number, str(code), "--fast")
            self.assertEqual(ended, code, said)
            self.assertIn(f"argv ['{code}', '--fast'] role worker main __main__", said)
            self.assertIn("loaded True leader True", said)

    def test_it_says_what_it_imports_and_when_it_has_done_so(self) -> None:
        """An import that does not end has a name."""
        self.start("wave", "no_such_module")
        assert self.server.stdout is not None
        said = [json.loads(self.server.stdout.readline()) for _ in range(3)]
        self.assertEqual([answer["importing"] for answer in said], ["wave", "no_such_module", None])

    def test_a_script_that_fails_says_where(self) -> None:
        """As if it had been started."""
        self.start()
        (self.folder / "train.py").write_text("\nraise ValueError('mine')\n")
        ended, said = self.worker(1)
        self.assertEqual(ended, 1)
        self.assertIn("train.py", said)
        self.assertIn("ValueError: mine", said)

    def test_a_process_with_threads_is_not_forked(self) -> None:
        """The worker begins with a fresh interpreter."""
        (self.folder / "threads.py").write_text(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        )
        self.start(
            "threads", "torch", PYTHONPATH=f"{self.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        )
        ended, said = self.worker(1, "0")
        self.assertEqual(ended, 0, said)
        self.assertIn("loaded False leader True", said)

    def test_workers_outlive_it(self) -> None:
        """It ends with the coordinator that asks it; a worker looks for another coordinator."""
        self.start()
        done = self.folder / "done"
        (self.folder / "train.py").write_text(
            f"import os, time\nwhile os.getppid() == {self.server.pid}: time.sleep(0.01)\nopen('{done}', 'w').close()\n"
        )
        command = [sys.executable, str(self.folder / "train.py")]
        self.ask({"id": 1, "command": command, "environment": {}, "log": str(self.folder / "log")})
        self.hear()
        self.stop()
        for _ in range(1000):
            if done.exists():
                break
            subprocess.run(["sleep", "0.02"], check=True)
        self.assertTrue(done.exists(), (self.folder / "log").read_text())


if __name__ == "__main__":
    unittest.main()
