# Environments: torch
"""The example that fine-tunes a language model: what it has learned from one text helps with another."""

import re
import subprocess
import unittest

from runs import COMMAND, EXAMPLES, ROOT, TORCH, Place, Trained

SCRIPT = EXAMPLES / "finetune_text.py"
FIRST, SECOND = ROOT / "examples/data/harbour.txt", ROOT / "LICENSE"
BYTES = 2000
"""Of the second text: a part of it is enough to learn from."""


def bits(trained: Trained) -> list[float]:
    """Bits per byte before the training, and after each epoch."""
    return [float(number) for number in re.findall(r"([\d.]+) bits per byte", trained.out)]


def said(trained: Trained) -> list[str]:
    """What the script has printed; the command's own lines tell times."""
    return [line for line in trained.out.splitlines() if "per byte" in line or "it writes" in line]


class FineTune(unittest.TestCase):
    """One test, as the page says it."""

    def test_weights_of_one_text_are_a_start_for_another(self) -> None:
        place = Place(TORCH)
        self.addCleanup(place.end)
        first = place.train(SCRIPT, "--workers", "1", "--", str(FIRST), "--epochs", "1")
        self.assertEqual(first.code, 0, first.log)
        weights = first.folder / "harbour.safetensors"
        command = [COMMAND, "export", "finetune_text", "-o", str(weights)]
        subprocess.run(command, check=True, env=place.environment(first.folder / "state"))
        second = place.path / "second.txt"
        second.write_bytes(SECOND.read_bytes()[:BYTES])
        more = ["--", str(second), "--weights", str(weights), "--epochs", "1"]
        one = place.train(SCRIPT, "--workers", "1", *more)
        two = place.train(SCRIPT, "--workers", "2", *more)
        self.assertEqual((one.code, two.code), (0, 0), one.log + two.log)
        self.assertEqual(said(one), said(two))
        self.assertEqual(one.digest, two.digest)
        self.assertNotEqual(one.digest, "")
        learned, tuned = bits(first), bits(one)
        self.assertEqual((len(learned), len(tuned)), (2, 2))
        self.assertLess(learned[-1], learned[0])
        self.assertLess(tuned[0], learned[0], "the weights were not those of the first text")
        self.assertLess(tuned[1], tuned[0])
        self.assertIn("it writes:", said(one)[-1])


if __name__ == "__main__":
    unittest.main()
