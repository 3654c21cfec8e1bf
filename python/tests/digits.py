"""The examples on the digits that come with Bellwether: few lines changed, and the same bits on any workers."""

import re
import subprocess
import unittest
from pathlib import Path
from typing import Any, ClassVar

from lines import code, written
from runs import COMMAND, EXAMPLES, Place, Runs, Trained, takes_long
from safetensors.numpy import load_file

BEFORE = Path(__file__).parent / "before"


class Lines(unittest.TestCase):
    """What a user has to write."""

    example: ClassVar[str]
    """The script's name."""
    changed_most: ClassVar[int]
    """Most lines that may be written."""

    def test_few_lines_change(self) -> None:
        lines = written(code(BEFORE / self.example), code(EXAMPLES / self.example))
        self.assertLessEqual(len(lines), self.changed_most, lines)


class Digits(Runs):
    """An example, trained by itself, and by the command through resizes and crashes."""

    example: ClassVar[str]
    """The script's name."""
    imports: ClassVar[str]
    """What it imports: once for all processes but those of the first run."""
    told: ClassVar[str]
    """A pattern of what it prints of its training, without times."""
    lines: ClassVar[int]
    """How often it prints that."""
    accuracy_least: ClassVar[float]
    """What it reaches at least."""
    resize: ClassVar[str] = "30:1,60:4"
    """The schedule 3→1→4."""
    kill_at: ClassVar[int] = 75
    """The step, after both resizes, at which a worker is killed."""

    alone: ClassVar[bool] = True
    """Whether the first run is by itself; or by the command with one worker, which has less to compile."""
    first_with: ClassVar[dict[str, str]] = {}
    """Variables of the first run."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        first = Place(variables=cls.first_with)
        cls.addClassCleanup(first.end)
        words = () if cls.alone else ("--workers", "1")
        cls.plain = first.train(EXAMPLES / cls.example, *words, alone=cls.alone)
        cls.place = Place(cls.imports)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    @classmethod
    def train(cls, *arguments: str, kill_at: int | None = None) -> Trained:
        """Trains the example."""
        return cls.place.train(EXAMPLES / cls.example, *arguments, kill_at=kill_at)

    def assert_same(self, trained: Trained) -> None:
        """The run ended with the digest and the output of the first."""
        self.assertEqual(trained.code, 0, trained.log)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)
        self.assertEqual(self.said(trained), self.said(self.plain))

    def said(self, trained: Trained) -> list[str]:
        """What the script printed of its training."""
        return re.findall(self.told, trained.out, re.MULTILINE)

    def exported(self) -> dict[str, Any]:
        """The weights of the first run, as `export` writes them."""
        path = self.plain.folder / "model.safetensors"
        command = [COMMAND, "export", Path(self.example).stem, "-o", str(path)]
        subprocess.run(command, check=True, env=self.place.environment(self.plain.folder / "state"))
        return load_file(path)

    def test_one_worker_learns(self) -> None:
        self.assertEqual(self.plain.code, 0, self.plain.log)
        self.assertEqual(len(self.said(self.plain)), self.lines, self.plain.out)
        self.assertGreater(accuracy(self.plain.out), self.accuracy_least)

    def test_three_then_one_then_four(self) -> None:
        trained = self.train("--workers", "3", "--resize", self.resize, kill_at=self.kill_at)
        self.assert_same(trained)
        self.assert_shrank_and_grew(trained)
        self.assert_only_the_killed_crashed(trained)

    @takes_long
    def test_one_worker_by_the_command(self) -> None:
        self.assert_same(self.train("--workers", "1"))

    @takes_long
    def test_two_workers(self) -> None:
        self.assert_same(self.train("--workers", "2"))

    @takes_long
    def test_one_of_two_is_killed(self) -> None:
        trained = self.train("--workers", "2", kill_at=20)
        self.assert_same(trained)
        self.assert_only_the_killed_crashed(trained)


def accuracy(out: str) -> float:
    """The last accuracy that a script printed, or -1 where it printed none."""
    found = re.findall(r"accuracy (\S+)$", out, re.MULTILINE)
    return float(found[-1]) if found else -1.0
