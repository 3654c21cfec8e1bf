"""Workers' scripts that take their requests from a list, each forked from a process with a warm framework."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Ended:
    """How a script ended."""

    def __init__(self, code: int, said: list[Any], log: str) -> None:
        self.code, self.said, self.log = code, said, log

    @property
    def kinds(self) -> list[str]:
        """The kinds of all answers."""
        return [str(answer[0]) for answer in self.said]

    @property
    def last(self) -> Any:
        """The last answer."""
        return self.said[-1]


class Forks:
    """A process that has imported the framework, and forks for each script."""

    def __init__(self, warm: str) -> None:
        """`warm`: a line of code that imports the framework."""
        self._warm = warm
        self._process: subprocess.Popen[str] | None = None

    def work(self, text: str) -> Ended:
        """Runs a script as a worker."""
        with tempfile.TemporaryDirectory() as folder:
            script, log = Path(folder) / "train.py", Path(folder) / "log"
            script.write_text(text)
            code = self._run([str(log), str(script)])
            lines = log.read_text().splitlines()
        said = [json.loads(line) for line in lines if line.startswith("[")]
        return Ended(code, said, "\n".join(lines))

    def _run(self, command: list[str]) -> int:
        if self._process is None:
            arguments = [sys.executable, str(HERE / "scripted.py"), self._warm]
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()
        return int(json.loads(stdout.readline())[0])

    def end(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
