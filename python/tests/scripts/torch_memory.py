"""A micro-batch that fits into no GPU's memory."""

import torch
from torch import nn

import bellwether.torch as bw

model = nn.Linear(8, 8)
data = torch.utils.data.TensorDataset(torch.zeros(64, 8))
run = bw.Run(model, torch.optim.SGD(model.parameters(), 0.1), data=data, batch_size=8, virtual_nodes=2)
for (x,) in run.steps(4):
    # 4 TB.
    large = torch.empty(1 << 40, device=x.device)
    run.backward(model(x).sum() + large[0])
