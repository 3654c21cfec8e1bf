"""A pytree of JAX as flat vectors, and the gradient of a micro-batch; what decides JAX's bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bellwether import _errors
from bellwether._checkpoint import cut
from bellwether._declare import Layout, Tensors
from bellwether._machine import instructions

Vector = NDArray[np.float32]

_FUNCTIONS_MOST = 8
"""Loss functions that a run compiles; more are one that is made anew in every micro-batch."""


def begin() -> None:
    """Lets JAX see one processor, unless it was used before: several threads give other bits from call to call."""
    from jax._src import xla_bridge

    if not xla_bridge.backends_are_initialized():
        os.environ.setdefault("NPROC", "1")


def be_deterministic() -> None:
    """Refuses a worker whose bits would depend on the machine's load (jax#39741)."""
    processors = os.environ.get("NPROC")
    if processors != "1" and jax.default_backend() == "cpu":
        raise _errors.refuse(
            f"NPROC is {processors or 'not set'}, and JAX gives other results on several processor threads",
            "leave it unset, so that the command sets NPROC=1 before Python begins; or set NPROC=1 there",
        )


def kernel_class() -> str:
    """Versions, device, threads and flags that decide bits."""
    import jaxlib

    device = jax.devices()[0]
    parts = [f"jax {jax.__version__}", f"jaxlib {jaxlib.__version__}"]
    if device.platform == "cpu":
        parts += [f"cpu {instructions()}", "1 thread"]
    else:
        parts += [str(device.device_kind), str(device.client.platform_version).replace("\n", " ")]
    parts += [f"matmul {jax.config.jax_default_matmul_precision or 'default'}"]
    parts += [f"x64 {bool(jax.config.jax_enable_x64):d}", f"random {jax.config.jax_default_prng_impl}"]
    flags = ("XLA_FLAGS", "JAX_CPU_ENABLE_ASYNC_DISPATCH", "JAX_DISABLE_JIT")
    parts += [f"{flag}={os.environ[flag]}" for flag in flags if os.environ.get(flag)]
    return "; ".join(parts)


def key_of(seed: int) -> Any:
    """A key of JAX from a seed of 64 bits."""
    words = np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
    return jax.random.wrap_key_data(np.tile(words, _key_words() // 2))


def _key_words() -> int:
    return 4 if str(jax.config.jax_default_prng_impl).endswith("rbg") else 2


class Recorder:
    """JAX's profiler, for a trace that TensorBoard and Perfetto read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: Any = None

    def start(self) -> None:
        """Records from here on."""
        jax.profiler.start_trace(self._folder)

    def mark(self, step: int) -> None:
        """A micro-batch of this step begins."""
        self._close()
        self._open = jax.profiler.StepTraceAnnotation("train", step_num=step)
        self._open.__enter__()

    def stop(self) -> None:
        """Writes what was recorded."""
        self._close()
        jax.profiler.stop_trace()

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)


class Tree:
    """A pytree of float32 arrays, and its leaves by name."""

    def __init__(self, tree: Any, what: str) -> None:
        """`what` it is, for errors. Raises BellwetherError for leaves that are no float32 arrays."""
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self.tensors: Tensors = []
        self.leaves: list[Any] = []
        for path, leaf in leaves:
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
            if not hasattr(leaf, "dtype"):
                leaf = jnp.asarray(leaf)
            if leaf.dtype != np.float32:
                raise _errors.refuse(
                    f"{name} in {what} is {leaf.dtype}, and {what} are float32",
                    "write jax.tree.map(lambda leaf: leaf.astype('float32'), …), and compute in bfloat16 inside the "
                    "loss function",
                )
            self.tensors.append((name, tuple(leaf.shape)))
            self.leaves.append(leaf)
        names = [name for name, _ in self.tensors]
        twice = (
            next((name for name in names if names.count(name) > 1), None)
            if len(set(names)) < len(names)
            else None
        )
        if twice is not None:
            raise _errors.refuse(f"two leaves of {what} have the name {twice}", "rename one of the keys")

    def arrays(self) -> list[Vector]:
        """The leaves as NumPy arrays."""
        return [np.asarray(leaf) for leaf in self.leaves]

    def build(self, leaves: list[Any]) -> Any:
        """A pytree of the same structure."""
        return jax.tree_util.tree_unflatten(self._structure, leaves)

    def place(self, vector: Vector) -> Any:
        """A flat vector as a pytree on the device. JAX may keep what it is given, so it is given a copy."""
        # A program takes all leaves at once, where each alone would cost as much as a hundred thousand values.
        return self.build(_bring(cut(vector.copy(), self.tensors)))

    def named(self, tensors: dict[str, Vector], kind: str) -> Any:
        """The tensors ``KIND/NAME`` of a checkpoint as a pytree on the device."""
        return self.build([jnp.asarray(tensors[f"{kind}/{name}"]) for name, _ in self.tensors])


@jax.jit  # type: ignore[untyped-decorator]
def _bring(leaves: list[Any]) -> list[Any]:
    """Arrays on the device."""
    return leaves


def joined(tree: Any) -> Any:
    """The leaves of a pytree as one flat vector."""
    leaves = [leaf.reshape(-1) for leaf in jax.tree_util.tree_leaves(tree)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros(0, jnp.float32)


class Vectors:
    """Parameters and state of a model, and the flat vectors that the runtime knows."""

    def __init__(self, params: Any, state: Any) -> None:
        self.parameters = Tree(params, "parameters")
        self.state = Tree(state, "state")
        self.has_state = state is not None
        if not self.parameters.tensors:
            raise _errors.refuse("the parameters hold no array", "give the pytree that is trained")
        self.layout = Layout(self.parameters.tensors, self.state.tensors)
        self._compiled: dict[int, tuple[Any, Any]] = {}
        self.buffers: tuple[Vector, Vector, Vector, Vector] | None = None
        self._now: tuple[Any, Any] | None = None

    def attach(self) -> tuple[Vector, Vector, Vector, Vector]:
        """The vectors that the runtime reads and writes: parameters, state, gradient, and the state that is left."""
        counts = (self.layout.parameter_count, self.layout.state_count)
        p, s = (np.zeros(count, np.float32) for count in counts)
        self.buffers = (p, s, np.zeros_like(p), np.zeros_like(s))
        return self.buffers

    def begin(self, fresh: bool) -> None:
        """Before a micro-batch: the run's weights and state to the device, if they changed."""
        assert self.buffers is not None, "attached before"
        if fresh or self._now is None:
            self._now = self.parameters.place(self.buffers[0]), self.state.place(self.buffers[1])

    @property
    def now(self) -> tuple[Any, Any]:
        """Parameters and state on the device."""
        assert self._now is not None, "a micro-batch has begun"
        return self._now

    def gradient(self, loss_fn: Callable[..., Any], batch: Any, key: Any, weight: float) -> float:
        """Computes the gradient of the loss times `weight` into the run's vectors; returns that loss."""
        assert self.buffers is not None, "attached before"
        compute, _ = self._functions(loss_fn)
        total, gradient, left = compute(*self.now, batch, key, np.float32(weight))
        self.buffers[2][:] = np.asarray(gradient)
        self.buffers[3][:] = np.asarray(left)
        return float(total)

    def loss(self, loss_fn: Callable[..., Any], batch: Any, key: Any) -> float:
        """The loss alone."""
        _, evaluate = self._functions(loss_fn)
        return float(evaluate(*self.now, batch, key))

    def _functions(self, loss_fn: Callable[..., Any]) -> tuple[Any, Any]:
        """The compiled gradient and loss of a loss function."""
        known = self._compiled.get(id(loss_fn))
        if known is not None:
            return known[1]  # type: ignore[no-any-return]
        if len(self._compiled) == _FUNCTIONS_MOST:
            raise _errors.refuse(
                "the loss function is another one in every micro-batch, and each is compiled",
                "define it outside of the loop",
            )

        def call(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
            arguments = (params, state, batch, key) if self.has_state else (params, batch, key)
            returned = loss_fn(*arguments)
            return self._checked(returned)

        def compute(params: Any, state: Any, batch: Any, key: Any, weight: Any) -> tuple[Any, Any, Any]:
            def total(params: Any) -> tuple[Any, Any]:
                loss, left = call(params, state, batch, key)
                return loss * weight, left

            (loss, left), gradient = jax.value_and_grad(total, has_aux=True)(params)
            return loss, joined(gradient), joined(left)

        def evaluate(params: Any, state: Any, batch: Any, key: Any) -> Any:
            return call(params, state, batch, key)[0]

        functions = jax.jit(compute), jax.jit(evaluate)
        # The function is kept, so that no other one gets its place in memory.
        self._compiled[id(loss_fn)] = (loss_fn, functions)
        return functions

    def _checked(self, returned: Any) -> tuple[Any, Any]:
        """Loss and state of what the loss function returned; refuses what is something else."""
        loss, left = returned, None
        if self.has_state:
            if not (isinstance(returned, tuple) and len(returned) == 2):
                raise _errors.refuse(
                    "the loss function returns no pair", "with state=… it returns (loss, state)"
                )
            loss, left = returned
            shapes = [tuple(np.shape(leaf)) for leaf in jax.tree_util.tree_leaves(left)]
            if shapes != [shape for _, shape in self.state.tensors]:
                raise _errors.refuse(
                    "the state that the loss function returns is not shaped as the one it was given",
                    "return the same pytree with new values",
                )
        if isinstance(loss, tuple) or np.shape(loss) != ():
            shape = f"the shape {np.shape(loss)}" if not isinstance(loss, tuple) else "several parts"
            raise _errors.refuse(f"the loss has {shape}", "return its mean over the batch, as in loss.mean()")
        return loss, left
