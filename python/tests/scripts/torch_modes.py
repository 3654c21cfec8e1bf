"""Trains for as many steps as the first argument says; a micro-batch lasts the second's milliseconds at least.

So a further worker helps, whatever the machine has.
"""

import sys
import time
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import bellwether.torch as bw


def right(model: nn.Module, batch: Any) -> tuple[int, int]:
    """Right predictions, and all of them."""
    found = model(batch[0]).argmax(1) == batch[1]
    return int(found.sum()), len(found)


torch.manual_seed(0)
samples = torch.randn(320, 8)
labels = samples[:, :3].argmax(1)
model = nn.Linear(8, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
run = bw.Run(
    model,
    optimizer,
    data=TensorDataset(samples[:256], labels[:256]),
    batch_size=16,
    virtual_nodes=4,
    held_out=TensorDataset(samples[256:], labels[256:]),
    metrics=right,
)
for x, y in run.steps(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]) / 1e3)
    run.backward(cross_entropy(model(x), y))
