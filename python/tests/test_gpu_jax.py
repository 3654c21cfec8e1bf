# Environments: gpu
"""JAX on a GPU: the same bits on any workers that share it."""

import importlib.util
import os
import unittest
from pathlib import Path

from runs import EXAMPLES, Place, Runs


def has_gpu() -> bool:
    """Whether JAX is there and computes on a GPU."""
    if importlib.util.find_spec("jax") is None:
        return False
    import jax

    return bool(jax.default_backend() == "gpu")


class GpuPlace(Place):
    """Its workers share one GPU, so none takes all of its memory."""

    def environment(self, state: Path) -> dict[str, str]:
        """The variables of a run."""
        return {**super().environment(state), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@unittest.skipUnless(has_gpu(), "JAX computes on no GPU here")
class Bits(Runs):
    """The example of the digits."""

    def test_workers_and_a_crash_keep_the_bits(self) -> None:
        place = GpuPlace()
        self.addCleanup(place.end)
        one = place.train(EXAMPLES / "jax_digits.py", "--workers", "1")
        self.assertEqual(one.code, 0, one.log)
        resized = place.train(
            EXAMPLES / "jax_digits.py", "--workers", "2", "--resize", "30:1,60:2", kill_at=75
        )
        self.assert_only_the_killed_crashed(resized)
        self.assertEqual(resized.digest, one.digest, resized.log)
        print(
            f"digits: digest {one.digest[:16]} with 1 worker, and 2 to 1 to 2 with a crash, on {os.uname().machine}"
        )


if __name__ == "__main__":
    unittest.main()
