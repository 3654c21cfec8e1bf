"""Early stopping after the third epoch of four steps, by the first argument: `stop`, `break`, `train`, `slow` (the lead
takes its time after the second epoch), `fails` (it fails after the third, once), or `free`, whose workers do not wait."""

import sys
import time
from pathlib import Path
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
data = TensorDataset(samples, labels)
options: dict[str, Any] = {"data": data, "batch_size": 16, "virtual_nodes": 4, "held_out": data}


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    """The mean loss of a micro-batch."""
    return cross_entropy(model(batch[0]), batch[1])


def told(epoch: int, _: nn.Module) -> bool:
    """Prints the epoch; whether training goes on."""
    print("epoch", epoch)
    return epoch < 2


if form == "train":
    bw.train(model, loss_of, optimizer, epochs=1000, on_epoch=told, **options)
else:
    run = bw.Run(model, optimizer, **options)
    run.on_evaluation(lambda step, loss, _: print("evaluated", step, loss > 0))
    run.on_checkpoint(lambda step, path: print("checkpointed", step, path.exists()))
    for epoch, batches in enumerate(run.epochs(1000, hold=form != "free")):
        for batch in batches:
            run.backward(loss_of(model, batch))
        print("epoch", epoch)
        if form == "slow" and epoch == 1:
            time.sleep(2)
        if form == "fails" and epoch == 2 and not Path("failed").exists():
            Path("failed").touch()
            raise ValueError("the lead fails")
        if form == "break" and epoch == 2:
            break
        if epoch == 2:
            run.stop("nothing\nis gained")
print("sum", sum(p.abs().sum().item() for p in model.parameters()))
