# Environments: torch
"""Micro-batches do not depend on who loads them, nor on resizes."""

import hashlib
import itertools
import random
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from bellwether import BellwetherError
from bellwether import data as by_index
from bellwether._native import SampleOrder
from bellwether._torch_data import Feed, Loading, seed_all

NODES = 4


class Augmented(Dataset[Any]):
    """Samples that draw from all three generators."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + np.random.rand()
        return torch.randn(3) + index + noise, index


def digest(batch: Any) -> str:
    """A micro-batch by its bytes."""
    return hashlib.blake2b(batch[0].numpy().tobytes() + batch[1].numpy().tobytes()).hexdigest()


def feed(processes: int) -> Feed:
    """A worker's feed over the samples above."""
    return Feed(Loading(Augmented(), None), order(), processes, {})


def order() -> SampleOrder:
    """32 samples a step, 8 a virtual node."""
    return SampleOrder(128, 32, NODES, 7)


def take(source: Feed, step: int, node: int) -> str:
    """The digest of a micro-batch, asked for as the runtime does."""
    return digest(source.batch(order().micro_batch(step, node), order().seed(step, node))[0])


class Blocks(unittest.TestCase):
    """An order of two levels: blocks, and the samples of each."""

    def test_an_epoch_visits_every_sample_once_and_block_after_block(self) -> None:
        order = SampleOrder(100, 20, 4, 7, 16)
        orders = []
        for epoch in range(2):
            steps = range(epoch * 5, (epoch + 1) * 5)
            samples = [s for step in steps for node in range(4) for s in order.micro_batch(step, node)]
            self.assertEqual(sorted(samples), list(range(100)))
            blocks = [sample // 16 for sample in samples]
            changes = sum(a != b for a, b in itertools.pairwise(blocks))
            self.assertEqual(changes, 6, "seven blocks, each in one piece")
            orders.append(samples)
        self.assertNotEqual(*orders)
        plain = [
            order.micro_batch(0, 0)
            for order in (SampleOrder(100, 20, 4, 7), SampleOrder(100, 20, 4, 7, None))
        ]
        self.assertEqual(*plain)

    def test_no_block_is_no_order(self) -> None:
        with self.assertRaises(ValueError):
            SampleOrder(100, 20, 4, 7, 0)


class Feeds(unittest.TestCase):
    """Loading ahead of need."""

    def setUp(self) -> None:
        torch.set_num_threads(1)
        plain = feed(0)
        self.wanted = {(step, node): take(plain, step, node) for step in range(6) for node in range(NODES)}

    def test_batches_are_the_same_for_any_number_of_processes(self) -> None:
        self.assertEqual(len(set(self.wanted.values())), len(self.wanted))
        for processes in (1, 2):
            source = feed(processes)
            source.assign(0, range(NODES))
            for (step, node), wanted in self.wanted.items():
                self.assertEqual(
                    take(source, step, node), wanted, f"{processes} processes, step {step}, node {node}"
                )
            self.assertEqual(source.loaded_here, 0)

    def test_a_resize_drops_what_is_stale(self) -> None:
        source = feed(2)
        source.assign(0, range(2, 4))
        for step, nodes in ((0, range(2, 4)), (1, range(2, 4)), (2, range(4)), (3, range(4)), (2, range(1))):
            if step in (2, 3) and nodes != range(2, 4):
                source.assign(step, nodes)
            for node in nodes:
                self.assertEqual(take(source, step, node), self.wanted[step, node])
        self.assertEqual(source.loaded_here, 0)

    def test_another_workers_node_is_loaded_here(self) -> None:
        source = feed(1)
        source.assign(0, range(1))
        self.assertEqual(take(source, 0, 0), self.wanted[0, 0])
        self.assertEqual(take(source, 0, 3), self.wanted[0, 3])
        self.assertEqual(source.loaded_here, 1)
        self.assertEqual(take(source, 1, 0), self.wanted[1, 0])

    def test_a_table_of_tensors_is_taken_by_one_index(self) -> None:
        tensors = TensorDataset(torch.randn(50, 3), torch.arange(50))
        one, other = Loading(tensors, None), Loading(tensors, default_collate)
        for here, there in zip(one([3, 9, 4], 1), other([3, 9, 4], 1), strict=True):
            self.assertTrue(torch.equal(here, there))

    def test_seeds_are_of_all_generators(self) -> None:
        def draw(seed: int) -> tuple[float, float, float]:
            seed_all(seed)
            return torch.rand(1).item(), random.random(), np.random.rand()

        self.assertEqual(draw(2**64 - 1), draw(2**64 - 1))
        self.assertTrue(all(a != b for a, b in zip(draw(1), draw(2), strict=True)))


class ByIndex(unittest.TestCase):
    """What can be trained on."""

    def test_tokens_are_windows_with_their_successors(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokens.bin"
            np.arange(23, dtype=np.uint16).tofile(path)
            windows = by_index.tokens(path, 5)
            self.assertEqual(len(windows), 4)
            here, there = windows[3]
            self.assertEqual((here.tolist(), there.tolist()), ([15, 16, 17, 18, 19], [16, 17, 18, 19, 20]))
            self.assertEqual(windows[-1][0].tolist(), here.tolist())
            self.assertRaises(IndexError, lambda: windows[4])
            with self.assertRaisesRegex(BellwetherError, "holds 23 tokens, and a window needs 24"):
                by_index.tokens(path, 23)

    def test_a_stream_is_refused_with_what_to_do(self) -> None:
        with self.assertRaisesRegex(
            BellwetherError, r"test_torch_data.py:\d+: data \(generator\) has no __len__"
        ):
            by_index.require_map_style((i for i in range(3)), "data")

    def test_digests_tell_data_apart(self) -> None:
        first = TensorDataset(torch.arange(100.0))
        self.assertEqual(by_index.digest(first), by_index.digest(TensorDataset(torch.arange(100.0))))
        for other in (torch.arange(101.0), torch.arange(100.0) + 1, torch.arange(100)):
            self.assertNotEqual(by_index.digest(first), by_index.digest(TensorDataset(other)))

    def test_digests_do_not_depend_on_generators(self) -> None:
        torch.manual_seed(1)
        first = by_index.digest(Augmented(), seed_all)
        torch.manual_seed(2)
        self.assertEqual(by_index.digest(Augmented(), seed_all), first)


if __name__ == "__main__":
    unittest.main()
