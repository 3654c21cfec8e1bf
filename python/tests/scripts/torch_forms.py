"""The forms of a training, by the first argument: `steps`, `train`, `long`, `raise`, which fails in its fourth step, or
`break`, which leaves the loop over epochs after the first."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import bellwether.torch as bw

form = sys.argv[1]
torch.manual_seed(0)
samples, labels = torch.randn(64, 8), torch.randint(3, (64,))
model = nn.Linear(8, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
options: dict[str, Any] = {"data": TensorDataset(samples, labels), "batch_size": 16, "virtual_nodes": 4}


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    """The mean loss of a micro-batch."""
    return cross_entropy(model(batch[0]), batch[1])


if form == "train":
    bw.train(model, loss_of, optimizer, steps=12, **options)
elif form == "break":
    run = bw.Run(model, optimizer, **options)
    for epoch, batches in enumerate(run.epochs(100_000)):
        for batch in batches:
            run.backward(loss_of(model, batch))
        print(f"epoch {epoch}")
        break
else:
    run = bw.Run(model, optimizer, **options)
    for batch in run.steps(12 if form != "long" else 100_000):
        if form == "raise" and run.step == 3:
            raise ValueError("this body\nfails")
        run.backward(loss_of(model, batch))
print("sum", sum(p.abs().sum().item() for p in model.parameters()))
