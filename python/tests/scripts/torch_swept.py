"""A small network on the digits whose learning rate and width are arguments, as a sweep sets them."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import bellwether.torch as bw

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--width", type=int, default=16)
parser.add_argument(
    "--pause", type=float, default=0.0, help="milliseconds of each part of a batch, for tests"
)
parser.add_argument("--patience", type=int)
arguments = parser.parse_args()
DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
digits = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
inputs, labels = digits[:, :64] / 16, digits[:, 64].long()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, arguments.width), nn.ReLU(), nn.Linear(arguments.width, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate, momentum=0.9)
run = bw.Run(
    model,
    optimizer,
    data=TensorDataset(inputs[:1438], labels[:1438]),
    held_out=TensorDataset(inputs[1438:], labels[1438:]),
    metrics=lambda model, batch: (int((model(batch[0]).argmax(1) == batch[1]).sum()), len(batch[1])),
    batch_size=64,
    virtual_nodes=4,
    stop={"patience": arguments.patience} if arguments.patience else None,
)
for batches in run.epochs(9):
    for x, y in batches:
        time.sleep(arguments.pause / 1000)
        run.backward(F.cross_entropy(model(x), y))
