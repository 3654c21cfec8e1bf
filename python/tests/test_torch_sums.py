# Environments: torch
"""Sums of gradients that PyTorch keeps have the bits of the runtime's additions."""

import unittest

import numpy as np
import torch
from torch import nn

from bellwether._errors import BellwetherError
from bellwether._loop import Sum
from bellwether._torch_model import Vectors

TREES = {
    # Merges after each leaf: the canonical trees of so many leaves.
    1: (0,),
    2: (0, 1),
    3: (0, 1, 1),
    4: (0, 1, 0, 2),
    7: (0, 1, 0, 2, 0, 1, 2),
    8: (0, 1, 0, 2, 0, 1, 0, 3),
}


def model() -> nn.Module:
    """With state, and a parameter that some micro-batches leave without a gradient."""
    torch.manual_seed(5)
    layers = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 3))
    layers.register_parameter("spare", nn.Parameter(torch.ones(4)))
    return layers


def micro_batch(layers: nn.Module, node: int) -> None:
    """Gradients of widely different sizes, so that the order of additions shows in the bits."""
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(node))
    loss = layers(x).square().sum() * 10.0 ** (node % 5 * 3 - 6)
    if node % 3 == 1:
        loss = loss - layers.get_parameter("spare").sum() * 1e-41
    loss.backward()


def alone(node: int) -> list[np.ndarray]:
    """The gradient of a micro-batch, and the state that it left times its samples."""
    layers = model()
    vectors = Vectors(layers, [])
    buffers = vectors.attach(torch.device("cpu"))
    vectors.begin(True, 0)
    micro_batch(layers, node)
    vectors.finish(5, None)
    return [buffers[2].copy(), buffers[3] * np.float32(5)]


def by_definition(first: int, merges: tuple[int, ...]) -> list[np.ndarray]:
    """The sums along a tree, by NumPy."""
    stack: list[list[np.ndarray]] = []
    for leaf, count in enumerate(merges):
        stack.append(alone(first + leaf))
        for _ in range(count):
            right = stack.pop()
            stack[-1] = [a + b for a, b in zip(stack[-1], right, strict=True)]
    (sums,) = stack
    return sums


class Sums(unittest.TestCase):
    """Trees of several sizes, one after the other in the same buffers."""

    def test_sums_have_the_bits_of_their_definition(self) -> None:
        layers = model()
        vectors = Vectors(layers, [])
        buffers = vectors.attach(torch.device("cpu"))
        self.assertTrue(vectors.keeps_sums)
        for leaves, merges in TREES.items():
            for last in range(leaves):
                if last not in (0, leaves - 1):
                    continue
                # A sum that is given up leaves nothing behind.
                for leaf in range(last + 1):
                    vectors.begin(leaf == 0, 0)
                    micro_batch(layers, leaf)
                    vectors.finish(5, Sum(leaf == 0, merges[leaf], leaf + 1 == leaves))
            for kept, expected in zip(buffers[2:], by_definition(0, merges), strict=True):
                self.assertEqual(kept.tobytes(), expected.tobytes(), leaves)

    def test_sums_that_go_in_parts_have_the_same_bits(self) -> None:
        layers = model()
        vectors = Vectors(layers, [])
        buffers = vectors.attach(torch.device("cpu"))
        sizes = [parameter.numel() for _, parameter in vectors.parameters]
        given: list[tuple[int, bytes]] = []

        def part(number: int) -> np.ndarray:
            return buffers[2][sum(sizes[:number]) : sum(sizes[: number + 1])]

        # The first only looks on, at a sum of one leaf.
        for round, (leaves, merges) in enumerate([(1, (0,)), *TREES.items(), *TREES.items()]):
            given.clear()
            for leaf in range(leaves):
                last = leaf + 1 == leaves
                place = Sum(leaf == 0, merges[leaf], last, in_parts=last)
                vectors.begin(
                    leaf == 0, 0, place, lambda number: given.append((number, part(number).tobytes()))
                )
                micro_batch(layers, leaf)
                vectors.finish(5, place)
            expected = by_definition(0, merges)
            for kept, values in zip(buffers[2:], expected, strict=True):
                self.assertEqual(kept.tobytes(), values.tobytes(), leaves)
            order = [number for number, _ in given]
            if round:
                self.assertLess(order.index(6), order.index(1), "the last layer comes before the first")
            else:
                self.assertEqual(order, [])
            self.assertTrue(
                all(part(number).tobytes() == then for number, then in given), "none changed after that"
            )
            if round:
                self.assertEqual(len(given), len(sizes) - ((leaves - 1) % 3 != 1))

    def test_gradients_that_change_are_taken_at_the_end(self) -> None:
        def train(vectors: Vectors, layers: nn.Module, changes: bool) -> list[int]:
            given: list[int] = []
            place = Sum(True, 0, True, in_parts=True)
            vectors.begin(True, 0, place, given.append)
            micro_batch(layers, 0)
            if changes:
                gradient = layers.get_parameter("0.weight").grad
                assert gradient is not None
                gradient.mul_(2.0)
            vectors.finish(5, place)
            return given

        layers = model()
        vectors = Vectors(layers, [])
        buffers = vectors.attach(torch.device("cpu"))
        for _ in range(2):
            self.assertEqual(train(vectors, layers, changes=True), [])
        first = sum(p.numel() for name, p in vectors.parameters if name == "spare")
        doubled = 2.0 * alone(0)[0][first : first + 54]
        self.assertEqual(buffers[2][first : first + 54].tobytes(), doubled.tobytes())

        layers = model()
        vectors = Vectors(layers, [])
        vectors.attach(torch.device("cpu"))
        self.assertEqual(train(vectors, layers, changes=False), [])
        self.assertEqual(len(train(vectors, layers, changes=False)), 6)
        with self.assertRaisesRegex(BellwetherError, "0.weight changed .* overlap=False"):
            train(vectors, layers, changes=True)

    def test_numbers_that_are_flushed_are_left_to_the_runtime(self) -> None:
        vectors = Vectors(model(), [])
        vectors.attach(torch.device("cpu"))
        if not torch.set_flush_denormal(True):
            self.skipTest("this processor keeps subnormal numbers")
        self.addCleanup(torch.set_flush_denormal, False)
        self.assertFalse(vectors.keeps_sums)


if __name__ == "__main__":
    unittest.main()
