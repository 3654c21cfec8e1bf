# Environments: torch
"""PyTorch learns on this machine's processor, beside the empty libraries that stand in for CUDA."""

import unittest

import torch
from samples import CLASSES, FEATURES, table


class Environment(unittest.TestCase):
    """What the other tests with PyTorch build on."""

    def test_a_model_learns(self) -> None:
        samples, labels = map(torch.from_numpy, table())
        model = torch.nn.Linear(FEATURES, CLASSES)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(samples), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.7 * losses[0])

    def test_there_is_no_gpu(self) -> None:
        self.assertFalse(torch.cuda.is_available())


if __name__ == "__main__":
    unittest.main()
