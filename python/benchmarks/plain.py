"""A plain training loop that accumulates the gradients of a batch: what the runtime is compared with.

``python plain.py CASE STEPS TIMES [DEVICE]``: writes when each step began to a file TIMES.PROCESS.
"""

import sys

import torch
from models import Clock, case
from torch.utils.data import default_collate

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
trained = case(name)
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
trained.model.to(device)
size = trained.batch_size // trained.virtual_nodes
generator = torch.Generator().manual_seed(1)
clock = Clock(times)
order: list[int] = []
for step in range(steps):
    if len(order) < trained.batch_size:
        order = torch.randperm(len(trained.data), generator=generator).tolist()
    batch, order = order[: trained.batch_size], order[trained.batch_size :]
    clock.begins(step)
    trained.optimizer.zero_grad()
    for node in range(trained.virtual_nodes):
        samples = default_collate([trained.data[i] for i in batch[node * size : (node + 1) * size]])
        samples = [tensor.to(device, non_blocking=True) for tensor in samples]
        (trained.loss(trained.model, samples) / trained.virtual_nodes).backward()
    trained.optimizer.step()
    if device != "cpu":
        # What a device was told to do is done before the next step's clock starts.
        torch.cuda.synchronize()
