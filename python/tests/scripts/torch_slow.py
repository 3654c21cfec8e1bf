"""Samples that take 5 ms each to be loaded: PROCESSES that load them, COMPUTING in ms of a micro-batch, STEPS, BLOCK."""

import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import bellwether.torch as bw

processes, computing_ms, steps, block = (int(word) for word in sys.argv[1:])


class Slow(Dataset[Any]):
    """A store that answers slowly."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=generator), torch.tensor([float(index % 2)])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
run = bw.Run(
    model,
    torch.optim.AdamW(model.parameters(), 1e-2),
    data=Slow(),
    batch_size=16,
    virtual_nodes=4,
    num_workers=processes,
    device="cpu",
    order_block=block or None,
)
for x, y in run.steps(steps):
    time.sleep(computing_ms / 1000)
    run.backward((model(x) - y).square().mean())
