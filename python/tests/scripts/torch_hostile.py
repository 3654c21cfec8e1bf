"""What a script may do to its run, by the first argument. The second is a folder in which its workers leave traces."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import bellwether.torch as bw

MOMENT = 3
"""The step at which something happens."""
form, traces = sys.argv[1], Path(sys.argv[2])


def leave_child() -> None:
    """Forks a process that outlives this one, and holds all that this one has open."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    (traces / f"child-{child}").touch()


def is_first() -> bool:
    """Whether no other worker has come here."""
    try:
        (traces / "first").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def act() -> None:
    """What happens in the midst of the run."""
    if form == "segv" and is_first():
        leave_child()
        os.kill(os.getpid(), signal.SIGSEGV)
    if form == "exit":
        sys.exit(5)
    if form == "vanish":
        os._exit(7)
    if form == "close":
        os.closerange(3, 1000)
    if form == "hang" and is_first():
        time.sleep(600)
    if form == "print" and is_first():
        leave_child()
        for _ in range(100):
            sys.stdout.write(("x" * 1023 + "\n") * 1024)


if form == "close-early":
    os.closerange(3, 1000)
torch.manual_seed(0)
samples, labels = torch.randn(64, 8), torch.randint(3, (64,))
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
run = bw.Run(model, optimizer, data=TensorDataset(samples, labels), batch_size=16, virtual_nodes=4)
for x, y in run.steps(24):
    if run.step == MOMENT:
        act()
    if form == "seed" or (form == "seed-later" and run.step >= MOMENT):
        torch.manual_seed(time.time_ns())
    run.backward(cross_entropy(model(x), y))
