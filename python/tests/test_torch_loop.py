# Environments: torch
"""A worker's loop: what the body may do, what it is told where it does something else, and what the answers are."""

import textwrap
import unittest
from pathlib import Path
from typing import Any

from forks import Ended, Forks

import bellwether

SCRIPT = """
import sys
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
import bellwether.torch as bw

torch.manual_seed(1)
samples, labels = torch.randn(64, 6), torch.randint(3, (64,))
train, held_out = TensorDataset(samples, labels), TensorDataset(samples[:9], labels[:9])
model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
{before}
run = bw.Run(model, optimizer, data=train, batch_size=8, virtual_nodes=2{options})
def main():
    for batches in run.epochs(2):
        for x, y in batches:
{body}
        print("between epochs")
main()
{after}
"""

# The first optimizer of a process imports PyTorch's compiler, which takes seconds.
WARM = "import torch, bellwether.torch; torch.optim.SGD([torch.zeros(1)], lr=1.0)"

BODY = "run.backward(cross_entropy(model(x), y))"


FORKS = Forks(WARM)


def work(
    body: str = BODY, *, optimizer: str = "AdamW", before: str = "", options: str = "", after: str = ""
) -> Ended:
    """Runs a worker's script with this body."""
    text = SCRIPT.format(
        optimizer=optimizer, before=before, options=options, body=textwrap.indent(body, " " * 12), after=after
    )
    return FORKS.work(text)


def tearDownModule() -> None:
    """Nothing forks any more."""
    FORKS.end()


class Loop(unittest.TestCase):
    """What a worker answers."""

    def test_gradients_are_answered_until_the_run_is_over(self) -> None:
        ended = work()
        self.assertEqual(ended.code, 0, ended.log)
        self.assertEqual(ended.kinds, ["framework", *["loss"] * 6, "over"])
        self.assertEqual({answer[2] for answer in ended.said if answer[0] == "loss"}, {4.0})
        # Each micro-batch begins with the run's state: what one leaves is not seen by the next.
        self.assertTrue(all(abs(value) < 1 for answer in ended.said[1:7] for value in answer[4][:4]))
        self.assertIn("; 1 thread; ", ended.said[0][1])

    def test_the_same_script_answers_the_same(self) -> None:
        self.assertEqual(work().said, work().said)

    def test_an_optimizer_of_the_users_updates_pieces(self) -> None:
        ended = work(BODY + "\noptimizer.step()\noptimizer.zero_grad()", optimizer="RAdam")
        self.assertEqual(ended.kinds, ["framework", *["loss", "loss", "updated"] * 3, "over"], ended.log)

    def test_held_out_samples_are_evaluated_by_the_same_body(self) -> None:
        metrics = "lambda m, b: ((m(b[0]).argmax(1) == b[1]).sum(), len(b[1]))"
        ended = work(
            "assert model.training == torch.is_grad_enabled()\n" + BODY,
            options=f", held_out=held_out, metrics={metrics}",
        )
        evaluations = [answer for answer in ended.said if answer[0] == "evaluation"]
        self.assertEqual((len(evaluations), evaluations[0][3]), (3, 3), ended.log)
        self.assertEqual(evaluations[0], evaluations[2])

    def test_weights_are_handed_on(self) -> None:
        ended = work("run.backward(cross_entropy(model(x), y), weight=2.5)")
        self.assertEqual(ended.said[1][2], 2.5)

    def test_samples_that_are_loaded_ahead_are_the_same(self) -> None:
        self.assertEqual(work(options=", num_workers=2").said, work().said)


class Faults(unittest.TestCase):
    """What the run is told, and the user in the log."""

    def assert_fails(self, ended: Ended, what: str, code: int = 1) -> None:
        """The run is told this, as the user's fault."""
        self.assertEqual(ended.last[0], "failed", ended.log)
        self.assertRegex(ended.last[1], what)
        self.assertTrue(ended.last[2])
        self.assertEqual(ended.code, code, ended.log)

    def test_an_exception_is_told_by_its_line(self) -> None:
        ended = work("if run.step == 1:\n    raise ValueError('no\\nway')\n" + BODY)
        self.assert_fails(ended, r"^train.py:20: ValueError: no way$")
        # Nothing of the package; the clone may lie in a folder of that name.
        self.assertNotIn(f"{Path(bellwether.__file__).parent}/", ended.log)
        self.assertIn("line 20, in main\n    raise ValueError", ended.log)

    def test_a_micro_batch_that_does_not_fit(self) -> None:
        ended = work("raise torch.OutOfMemoryError('CUDA out of memory.')")
        self.assert_fails(
            ended, r"^train.py:19: .*CUDA out of memory.; the micro-batch of 4 samples does not fit: raise"
        )

    def test_a_body_without_a_loss(self) -> None:
        self.assert_fails(work("pass"), r"^train.py:18: the loop's body .* without run.backward\(loss\)", 2)

    def test_two_losses(self) -> None:
        self.assert_fails(work(BODY + "\n" + BODY), "called twice in a micro-batch; add the losses", 2)

    def test_a_loss_that_is_none(self) -> None:
        body = "run.backward(cross_entropy(model(x), y, reduction='none'))"
        self.assert_fails(work(body), r"the loss has the shape \(4,\); write loss.mean\(\)", 2)

    def test_leaving_the_loop(self) -> None:
        left = "(leaves the loop|the loop is left) before the run is over"
        self.assert_fails(work("break"), left, 2)
        self.assert_fails(work("return"), left, 0)
        self.assert_fails(work("sys.exit(5)"), left, 5)

    def test_what_belongs_to_the_whole_batch(self) -> None:
        for call, what in {
            "nn.utils.clip_grad_norm_(model.parameters(), 1.0)": "clip_grad_norm_ clips .* write clip_norm=",
            "nn.utils.clip_grad_value_(model.parameters(), 1.0)": "clip_grad_value_ clips",
            "torch.distributed.init_process_group('gloo')": "init_process_group builds a process group; delete it",
            "torch.amp.GradScaler('cpu').scale(model[0].weight.sum())": "GradScaler scales the loss .* bfloat16",
        }.items():
            with self.subTest(call):
                self.assert_fails(work(BODY + "\n" + call), "^train.py:20: " + what, 2)

    def test_a_function_that_was_imported_by_its_name(self) -> None:
        before = "from torch.nn.utils import clip_grad_norm_"
        ended = work(BODY + "\nclip_grad_norm_(model.parameters(), 1.0)", before=before)
        self.assert_fails(ended, "^train.py:20: clip_grad_norm_ clips", 2)

    def test_a_buffer_that_changes(self) -> None:
        before = "model.register_buffer('seen', torch.zeros(3, dtype=torch.int64))"
        ended = work(BODY + "\nmodel.seen += 1", before=before)
        self.assert_fails(ended, "the buffer seen changed in the loop's body", 2)
        before = "model.register_buffer('mean', torch.zeros(3))"
        body = BODY + "\nif model.training: model.mean.add_(1)"
        self.assert_fails(work(body, before=before), r"write state=\['mean'\]", 2)
        self.assertEqual(work(body, before=before, options=", state=['mean']").code, 0)

    def test_a_sample_that_cannot_be_loaded(self) -> None:
        before = textwrap.dedent(
            """\
            class Broken(TensorDataset):
                def __getitem__(self, index):
                    return super().__getitem__(index) if index != 9 else 1 / 0
            train = Broken(samples, labels)"""
        )
        ended = work(before=before)
        self.assert_fails(ended, r"^train.py:\d+: ZeroDivisionError: division by zero$")


class Refusals(unittest.TestCase):
    """What is refused before anything is trained, with the line and what to write."""

    def assert_refuses(self, what: str, **change: Any) -> None:
        """The script ends with this error."""
        ended = work(**change)
        self.assertRegex(ended.log, r"^error: train.py:\d+: .*" + what)
        self.assertEqual(ended.code, 2, ended.log)
        self.assertEqual(ended.kinds, ["failed"], "the run is told")

    def test_models(self) -> None:
        wrap = "class DistributedDataParallel(nn.Sequential): pass\nmodel = DistributedDataParallel(model)"
        for before, what in {
            wrap: "wrapped into DistributedDataParallel; delete it",
            "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)": "1 is SyncBatchNorm, .* write BatchNorm2d",
            "model = nn.Sequential(nn.Embedding(5, 6, sparse=True), model)": "0 has sparse gradients",
            "model.double()": "0.weight is float64, .* write model.float",
            "model[0].weight = nn.Parameter(torch.zeros(4, 6, dtype=torch.complex64))": "0.weight is complex64",
            "model.requires_grad_(False)": "no parameter that is trained",
        }.items():
            with self.subTest(before):
                self.assert_refuses(what, before=before)

    def test_data(self) -> None:
        self.assert_refuses(r"data \(generator\) has no __len__", before="train = (x for x in samples)")
        self.assert_refuses("5 samples, fewer than a batch of 8", before="train = TensorDataset(samples[:5])")
        self.assert_refuses("not cut into 3 equal", options="*0 + 3")

    def test_rules(self) -> None:
        self.assert_refuses(
            "Adafactor looks at whole tensors: its update differs in pieces", optimizer="Adafactor"
        )


if __name__ == "__main__":
    unittest.main()
