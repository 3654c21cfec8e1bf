# Environments: gpu
"""PyTorch on a GPU: the same bits on any workers that share it, how much is copied, how fast it is, what does not fit."""

import sys
import unittest
from pathlib import Path

import torch
from runs import ROOT, Place, Runs, Trained
from torch import nn

from bellwether._loop import Sum
from bellwether._torch_model import Vectors

BENCHMARKS = ROOT / "python/benchmarks"
SCRIPTS = Path(__file__).parent / "scripts"
CASES = [(case, precision) for case in ("resnet50", "transformer-25m") for precision in ("f32", "bf16")]
NODES = 8


class Bits(Runs):
    """Trainings of which one worker, two workers and a crash leave the same bytes."""

    def setUp(self) -> None:
        self.place = Place()
        self.addCleanup(self.place.end)

    def train(self, case: str, precision: str, *options: str, kill_at: int | None = None) -> Trained:
        script = ["--", case, "12", str(self.place.path / "times"), "cuda", precision]
        return self.place.train(BENCHMARKS / "elastic.py", *options, *script, kill_at=kill_at)

    def test_workers_and_a_crash_keep_the_bits(self) -> None:
        for case, precision in CASES:
            with self.subTest(case=case, precision=precision):
                one = self.train(case, precision, "--workers", "1")
                self.assertEqual(one.code, 0, one.log)
                resized = self.train(case, precision, "--workers", "2", "--resize", "3:1,6:2", kill_at=8)
                self.assert_only_the_killed_crashed(resized)
                self.assertEqual(resized.digest, one.digest, resized.log)
                print(
                    f"{case} {precision}: digest {one.digest[:16]} with 1 worker, and 2 to 1 to 2 with a crash"
                )

    def test_what_does_not_fit_says_what_to_do(self) -> None:
        trained = self.place.train(SCRIPTS / "torch_memory.py", "--workers", "1")
        self.assertNotEqual(trained.code, 0)
        self.assertIn("does not fit: raise virtual_nodes", trained.log)


class Copies(unittest.TestCase):
    """What travels between the GPU and this process."""

    def test_a_subtree_of_virtual_nodes_costs_one_copy_of_the_gradient(self) -> None:
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        vectors = Vectors(model, [])
        device = torch.device("cuda")
        vectors.attach(device)
        self.assertTrue(vectors.keeps_sums)
        bytes_of_gradient = 4 * vectors.layout.parameter_count
        # As in a tree of eight leaves.
        places = [
            Sum(node == 0, merges, node == NODES - 1) for node, merges in enumerate((0, 1, 0, 2, 0, 1, 0, 3))
        ]
        for place, most in ((False, NODES), (True, 1)):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                for node in range(NODES):
                    vectors.begin(node == 0, 0)
                    model(torch.ones(4, 512, device=device)).sum().backward()
                    vectors.finish(4, places[node] if place else None)
                torch.cuda.synchronize()
            copies = [event for event in profile.events() if "memcpy dtoh" in event.name.lower()]
            print(f"sums on the GPU {place}: {len(copies)} copies from it for {NODES} virtual nodes")
            self.assertGreater(bytes_of_gradient, 1_000_000)
            self.assertEqual(len(copies), most)


class Speed(unittest.TestCase):
    """A training beside PyTorch's own loop, in pairs. It reports, and refuses nothing: another program may be busy."""

    def test_a_step_beside_a_plain_loop(self) -> None:
        sys.path.insert(0, str(BENCHMARKS))
        import compare

        for case in ("resnet50", "transformer-25m"):
            place = Place()
            self.addCleanup(place.end)
            for pair in range(3):
                reference = compare.reference("overhead", case, "25", 1, place.path, "cuda")
                theirs = compare.timed(reference, place.path)
                ours = compare.timed(compare.elastic(case, "25", 1, place.path, "cuda"), place.path)
                ratio = ours["step_ms"] / theirs["step_ms"]
                print(
                    f"{case}, pair {pair}: {ours['step_ms']:.1f} / {theirs['step_ms']:.1f} ms = {ratio:.3f}"
                )


if __name__ == "__main__":
    unittest.main()
