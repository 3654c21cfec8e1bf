"""A small network with batch normalisation and dropout on the digits, with held-out samples that workers evaluate."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import bellwether.torch as bw

DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
digits = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = digits[:, :64].reshape(-1, 1, 8, 8) / 16, digits[:, 64].long()
torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
run = bw.Run(
    model,
    optimizer,
    data=TensorDataset(images[:1438], labels[:1438]),
    held_out=TensorDataset(images[1438:], labels[1438:]),
    metrics=lambda model, batch: (int((model(batch[0]).argmax(1) == batch[1]).sum()), len(batch[1])),
    batch_size=64,
    virtual_nodes=8,
)
for batches in run.epochs(2):
    for x, y in batches:
        run.backward(F.cross_entropy(model(x), y))
torch.save(model.state_dict(), "model.pt")
