"""A training with most of what a run takes: groups, own rule, schedule by epoch, loader processes, metrics, autocast."""

import os
import random
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import bellwether.torch as bw


class Noisy(Dataset[Any]):
    """Points of three classes, moved at random each time that they are loaded."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        point = np.random.default_rng(self.first + index).normal(size=8).astype(np.float32)
        moved = (
            torch.from_numpy(point) + 0.1 * torch.randn(8) + 0.1 * random.random() + 0.1 * np.random.rand()
        )
        return moved, int(point[:3].argmax())


def right(model: nn.Module, batch: Any) -> tuple[int, int]:
    """Right predictions, and all."""
    return int((model(batch[0]).argmax(1) == batch[1]).sum()), len(batch[1])


# The lead's weights are those that count: every worker begins with others.
torch.manual_seed(3 if bw.is_lead() else os.getpid())
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
biases = [p for p in model.parameters() if p.dim() == 1]
matrices = [p for p in model.parameters() if p.dim() > 1]
optimizer = torch.optim.NAdam(
    [{"params": matrices, "weight_decay": 1e-3}, {"params": biases, "lr": 0.02}], lr=0.01
)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
run = bw.Run(
    model,
    optimizer,
    scheduler,
    data=Noisy(0, 300),
    held_out=Noisy(300, 77),
    metrics=right,
    batch_size=32,
    virtual_nodes=4,
    schedule_by="epoch",
    num_workers=2,
    clip_norm=5.0,
    seed=11,
)
for epoch, batches in enumerate(run.epochs(int(sys.argv[1]) if len(sys.argv) > 1 else 4)):
    for points, labels in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(points)
        # Every second label counts twice: the update divides by all weights.
        weights = 1.0 + (labels % 2)
        losses = cross_entropy(scores.float(), labels, reduction="none")
        run.backward((losses * weights).sum() / weights.sum(), weight=float(weights.sum()))
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}: rate {optimizer.param_groups[0]['lr']:g} after step {run.step}")
torch.save(model.state_dict(), "model.pt")
