# Environments: torch
"""Each worker sees one GPU, and one that takes another's place sees the same: no GPU is needed to see that."""

import unittest
from pathlib import Path

from runs import TORCH, Place, Runs

SCRIPT = """
import json, os, torch, torch.nn as nn, bellwether.torch as bw
torch.manual_seed(0)
model = nn.Linear(4, 1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
run = bw.Run(model, torch.optim.SGD(model.parameters(), 0.01), data=data, batch_size=8, virtual_nodes=4, device="cpu")
batches = run.steps(400)
if not bw.is_lead():
    with open("seen", "a") as seen:
        print(json.loads(os.environ["BELLWETHER_WORKER"])["worker"], os.environ["CUDA_VISIBLE_DEVICES"], file=seen)
for x, y in batches:
    run.backward((model(x) - y).square().mean())
"""


class GpuPlace(Place):
    """Its machine seems to have two GPUs."""

    def environment(self, state: Path) -> dict[str, str]:
        """Numbers that no machine has."""
        return {**super().environment(state), "CUDA_VISIBLE_DEVICES": "9031,9032"}


class Gpus(Runs):
    """Runs of a script that computes on the processor, and says what it sees."""

    def test_each_worker_sees_a_gpu_of_its_own_and_so_does_the_one_after_it(self) -> None:
        place = GpuPlace(TORCH)
        self.addCleanup(place.end)
        script = place.path / "sees.py"
        script.write_text(SCRIPT)
        trained = place.train(script, "--workers", "2", kill_at=20)
        self.assertEqual(trained.code, 0, trained.log)
        lines = (trained.folder / "seen").read_text().splitlines()
        seen = {int(worker): gpu for worker, gpu in (line.split() for line in lines)}
        self.assert_only_the_killed_crashed(trained)
        started = range(1, 3)
        newcomer = next(e["worker"] for e in trained.of("worker_attached") if e["worker"] not in started)
        self.assertEqual({seen[worker] for worker in started}, {"9031", "9032"})
        self.assertEqual(seen[newcomer], seen[trained.killed[0]])


if __name__ == "__main__":
    unittest.main()
