"""Bellwether: elastic training with the same bits on any number of workers.

Import the module of your framework: ``bellwether.torch``, ``bellwether.jax`` or ``bellwether.keras``. This one
imports none of them.
"""

from bellwether._errors import BellwetherError
from bellwether._role import is_lead

__all__ = ["BellwetherError", "is_lead"]
