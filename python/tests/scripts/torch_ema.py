"""Trains with a moving average of the weights, and prints both."""

import hashlib

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

import bellwether.torch as bw


def digest(model: nn.Module) -> str:
    """Of the weights that the model has now."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


torch.manual_seed(2)
samples = torch.randn(64, 6)
model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
data = TensorDataset(samples, samples.sum(1, keepdim=True))
run = bw.Run(model, optimizer, data=data, batch_size=16, virtual_nodes=4, ema=0.8)
for x, y in run.steps(24):
    run.backward(mse_loss(model(x), y))
before = digest(model)
with run.averaged():
    print("average", digest(model))
assert digest(model) == before, "the weights are there again"
print("weights", before)
