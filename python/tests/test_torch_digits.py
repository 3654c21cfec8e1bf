# Environments: torch
"""The PyTorch example: few lines changed, and the same bits on any workers, through crashes and resizes."""

import difflib
import re
import unittest
from pathlib import Path

import torch
from runs import EXAMPLES, Place, Trained
from torch import nn

HERE = Path(__file__).parent
SCRIPT = EXAMPLES / "torch_digits.py"
CHANGED_MOST = 7


def written(before: str, after: str) -> list[str]:
    """The lines of `after` that are not in `before`; empty ones and comments do not count."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    added = [line[2:] for line in lines if line.startswith("+ ")]
    return [line for line in added if line.strip() and not line.strip().startswith("#")]


def code(path: Path) -> str:
    """A script without its header, and without the place where it stands."""
    text = re.sub(r'^""".*?"""\n+', "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"parents\[\d\]", "parents[…]", text)


class Lines(unittest.TestCase):
    """What a user has to write."""

    def test_few_lines_change(self) -> None:
        lines = written(code(HERE / "before/torch_digits.py"), code(SCRIPT))
        self.assertLessEqual(len(lines), CHANGED_MOST, lines)


class Digits(unittest.TestCase):
    """The example, trained through the command."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place()
        cls.plain = cls.place.train(SCRIPT, "--workers", "1")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def assert_same(self, trained: Trained) -> None:
        """The run ended with the digest and the output of the one with one worker."""
        self.assertEqual(trained.code, 0, trained.log)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)
        self.assertEqual(accuracies(trained), accuracies(self.plain))

    def test_one_worker_learns(self) -> None:
        self.assertEqual(self.plain.code, 0, self.plain.log)
        self.assertEqual(len(accuracies(self.plain)), 5, self.plain.out)
        self.assertGreater(accuracies(self.plain)[-1], 0.85)

    def test_two_workers(self) -> None:
        self.assert_same(self.place.train(SCRIPT, "--workers", "2"))

    def test_three_then_one_then_four(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "3", "--resize", "30:1,60:4")
        self.assert_same(trained)
        self.assertEqual([(event["from"], event["to"]) for event in trained.of("resized")], [(3, 1), (1, 4)])

    def test_a_killed_worker(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "2", kill_at=20)
        self.assert_same(trained)
        self.assertEqual(len(trained.of("crashed")), 1)

    def test_by_itself(self) -> None:
        self.assert_same(self.place.train(SCRIPT, alone=True))

    def test_the_saved_model_is_a_plain_one(self) -> None:
        state = torch.load(self.plain.folder / "model.pt", weights_only=True)
        torch.manual_seed(1)
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
        )
        model.load_state_dict(state, strict=True)
        self.assertEqual(int(state["1.num_batches_tracked"]), 115)


def accuracies(trained: Trained) -> list[float]:
    """What the script printed, by epoch."""
    return [float(found) for found in re.findall(r"^epoch \d: accuracy (\S+)$", trained.out, re.MULTILINE)]


if __name__ == "__main__":
    unittest.main()
