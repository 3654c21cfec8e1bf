# Environments: torch
"""The PyTorch example: few lines changed, and the same bits on any workers, through crashes and resizes."""

import unittest

import digits
import torch
from runs import TORCH
from torch import nn

EXAMPLE = "torch_digits.py"


class Lines(digits.Lines):
    """What a user has to write."""

    example, changed_most = EXAMPLE, 7


class Digits(digits.Digits):
    """The example, trained through the command."""

    example, imports = EXAMPLE, TORCH
    told, lines, accuracy_least = r"^epoch \d: accuracy \S+$", 5, 0.85

    def test_the_saved_model_is_a_plain_one(self) -> None:
        state = torch.load(self.plain.folder / "model.pt", weights_only=True)
        torch.manual_seed(1)
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
        )
        model.load_state_dict(state, strict=True)
        self.assertEqual(int(state["1.num_batches_tracked"]), 115)


if __name__ == "__main__":
    unittest.main()
