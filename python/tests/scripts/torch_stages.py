"""What a script may do in a worker before it trains, by the first argument; the second is a folder for traces."""

import multiprocessing
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import bellwether.torch as bw

form, traces = sys.argv[1], Path(sys.argv[2])


def is_first() -> bool:
    """Whether no other worker has come here."""
    try:
        (traces / "first").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if not bw.is_lead():
    if form == "raise":
        raise ValueError("no data on this machine")
    if form == "end":
        sys.exit()
    if form == "never" and is_first():
        while True:
            pass
    if form == "pool":
        # Its processes have the worker's descriptors and signals to begin with.
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, 2]) == [1, 2]
torch.manual_seed(0)
samples, labels = torch.randn(64, 8), torch.randint(3, (64,))
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
run = bw.Run(
    model,
    torch.optim.AdamW(model.parameters(), lr=1e-2),
    data=TensorDataset(samples, labels),
    batch_size=16,
    virtual_nodes=8 if form == "other" and not bw.is_lead() else 4,
    num_workers=2 if form == "loaders" else 0,
)
for x, y in run.steps(100_000 if form == "loaders" else 60):
    if form == "loaders":
        (traces / f"worker-{os.getpid()}").touch()
        time.sleep(0.02)
    if form == "slow":
        time.sleep(0.03)
    run.backward(cross_entropy(model(x), y))
