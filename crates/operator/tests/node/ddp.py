"""Trains a small network with PyTorch's DistributedDataParallel, from its own checkpoint on."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

BATCH = 256


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def main() -> None:
    steps, path = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    done = 0
    if os.path.exists(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["step"]
    parallel = nn.parallel.DistributedDataParallel(model)
    for step in range(done + 1, steps + 1):
        # The whole batch follows from the step, and each process takes its part of it.
        torch.manual_seed(step)
        images = torch.randn(BATCH, 1, 16, 16)
        classes = images.flatten(1)[:, :10].argmax(1)
        loss = nn.functional.cross_entropy(parallel(images[rank::size]), classes[rank::size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 20 == 0 or step == steps:
                kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(kept, path + ".new")
                os.replace(path + ".new", path)
    dist.barrier()
    dist.destroy_process_group()


main()
