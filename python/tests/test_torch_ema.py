# Environments: torch
"""The moving average of the weights is the same for any workers, and what its formula says."""

import unittest
from pathlib import Path

import numpy as np
import torch
from runs import TORCH, Place, Trained

from bellwether._torch_rules import OwnRule, Table

SCRIPT = Path(__file__).parent / "scripts/torch_ema.py"


def said(trained: Trained) -> list[str]:
    """The digests that the lead prints."""
    return [line for line in trained.out.splitlines() if line.startswith(("average", "weights"))]


class Average(unittest.TestCase):
    """The rule by itself, and one script on several numbers of workers."""

    def test_it_follows_the_weights_by_its_formula(self) -> None:
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 40))
        optimizer = torch.optim.AdamW([parameter], lr=0.1)
        rule = OwnRule(optimizer, [("p", parameter)], Table([[0.1]]), ema=0.75)
        self.assertEqual(rule.slots[-1], "ema")
        weights = parameter.detach().numpy().copy()
        expected = weights.copy()
        slots = [np.zeros(40, np.float32) for _ in rule.slots]
        for step in range(5):
            rule.apply(step, 0, weights, slots, np.cos(np.arange(40) + step).astype(np.float32))
            expected = expected + np.float32(0.25) * (weights - expected)
            np.testing.assert_array_equal(slots[-1], expected)
        self.assertGreater(float(abs(weights - expected).max()), 0.01)

    def test_any_workers_keep_the_same_average(self) -> None:
        place = Place(TORCH)
        self.addCleanup(place.end)
        one = place.train(SCRIPT, "--workers", "1")
        self.assertEqual((one.code, len(said(one))), (0, 2), one.log)
        self.assertNotEqual(said(one)[0].split()[1], said(one)[1].split()[1])
        other = place.train(SCRIPT, "--workers", "3", "--resize", "8:1,16:4")
        self.assertEqual((said(other), other.digest), (said(one), one.digest), other.log)


if __name__ == "__main__":
    unittest.main()
