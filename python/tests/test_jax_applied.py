# Environments: jax
"""A JAX model is applied to rows, as the script says."""

import unittest

import applied
from runs import JAX


class Applied(applied.Applied):
    """By the function that the script names."""

    script, imports = "jax_applied", JAX


if __name__ == "__main__":
    unittest.main()
