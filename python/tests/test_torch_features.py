# Environments: torch
"""A training with most of what a run takes keeps its bits too, and its checkpoint opens in plain PyTorch."""

import unittest
from pathlib import Path

import torch
from runs import TORCH, Place, Runs, Trained, takes_long
from torch import nn

import bellwether.torch as bw

SCRIPT = Path(__file__).parent / "scripts/torch_features.py"


class Features(Runs):
    """One script, trained by changing workers."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place(TORCH)
        cls.plain = cls.place.train(SCRIPT, "--workers", "1")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def test_the_schedule_goes_by_epochs(self) -> None:
        self.assertEqual(self.plain.code, 0, self.plain.log)
        lines = [line for line in self.plain.out.splitlines() if line.startswith("epoch")]
        self.assertEqual(lines[0], "epoch 0: rate 0.01 after step 10")
        self.assertEqual(lines[3], "epoch 3: rate 0.005 after step 40")

    def test_resizes_and_a_crash_keep_the_bits(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "3", "--resize", "8:1,16:4", kill_at=22)
        self.assert_only_the_killed_crashed(trained)
        self.assert_shrank_and_grew(trained)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)
        evaluated = [(event["loss"], event["accuracy"]) for event in trained.of("evaluated")]
        self.assertEqual(evaluated, [(e["loss"], e["accuracy"]) for e in self.plain.of("evaluated")])

    def test_gradients_in_bfloat16_have_bits_of_their_own_on_any_workers(self) -> None:
        bfloat16 = ("--set", "exchange.precision=bf16")
        alone = self.place.train(SCRIPT, "--workers", "1", *bfloat16)
        self.assertEqual(alone.code, 0, alone.log)
        self.assertNotEqual(alone.digest, self.plain.digest)
        trained = self.place.train(SCRIPT, "--workers", "3", *bfloat16, kill_at=12)
        self.assert_only_the_killed_crashed(trained)
        self.assertEqual(trained.digest, alone.digest, trained.log)

    @takes_long
    def test_a_killed_worker_keeps_the_bits(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "2", kill_at=12)
        self.assert_only_the_killed_crashed(trained)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)

    def test_a_run_that_stopped_goes_on(self) -> None:
        stopped = self.place.train(SCRIPT, "--workers", "1", stop_at=15)
        self.assertEqual(stopped.of("ended")[-1]["outcome"], "stopped", stopped.log)
        trained = self.place.resume(stopped)
        self.assertEqual(trained.code, 0, trained.log)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)
        self.assertIn("after step 40", trained.out)

    def test_the_checkpoint_opens_in_plain_pytorch(self) -> None:
        path = Path(self.plain.of("checkpointed")[-1]["path"])
        model = nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3)
        )
        groups = [
            {"params": [p for p in model.parameters() if p.dim() == dim or (dim == 2 and p.dim() > 1)]}
            for dim in (2, 1)
        ]
        optimizer = torch.optim.NAdam(groups, lr=0.005)
        self.assertEqual(bw.load(model, path, optimizer), 40)
        saved = torch.load(self.plain.folder / "model.pt", weights_only=True)
        self.assertEqual(list(saved), list(model.state_dict()))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, saved[name]), name)
        state = optimizer.state[next(model.parameters())]
        self.assertEqual(int(state["step"]), 40)
        self.assertGreater(float(state["exp_avg_sq"].sum()), 0.0)
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()

    def test_a_checkpoint_of_another_model_is_refused(self) -> None:
        path = Path(self.plain.of("checkpointed")[-1]["path"])
        with self.assertRaisesRegex(bw.BellwetherError, "parameters/1.bias is not in the model"):
            bw.load(nn.Sequential(nn.Linear(8, 32)), path)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(32), nn.ReLU(), nn.ReLU(), nn.Linear(32, 3))
        with self.assertRaisesRegex(
            bw.BellwetherError, r"0.weight is \(32, 8\) there and \(16, 8\) in the model"
        ):
            bw.load(model, path)


if __name__ == "__main__":
    unittest.main()
