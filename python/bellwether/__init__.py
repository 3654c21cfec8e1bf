"""Bellwether: elastic training with the same bits on any number of workers.

Import the module of your framework: ``bellwether.torch``, ``bellwether.jax`` or ``bellwether.keras``. This one
imports none of them, and the native module only in workers and when one of its functions is used.
"""

from bellwether._errors import BellwetherError, InputError
from bellwether._role import Role, is_lead, role

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bellwether._answers import capacity, fit_model, plan, predict, predict_run, simulate
    from bellwether._launch import launch
    from bellwether._sweep import Objective, sweep

__all__ = [
    "BellwetherError",
    "InputError",
    "Objective",
    "capacity",
    "fit_model",
    "is_lead",
    "launch",
    "plan",
    "predict",
    "predict_run",
    "simulate",
    "sweep",
]

_ANSWERS = ("capacity", "fit_model", "plan", "predict", "predict_run", "simulate")
_PLACES = {name: "_answers" for name in _ANSWERS} | {
    "launch": "_launch",
    "Objective": "_sweep",
    "sweep": "_sweep",
}


if role() is Role.WORKER:
    # The run follows what a worker does from its first line on; one that was forked has begun already.
    from bellwether._loop import begin

    begin()


def __getattr__(name: str) -> object:
    """Imports what costs time when it is used."""
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(f"bellwether.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
