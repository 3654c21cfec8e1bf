"""JAX models on Bellwether, with any element-wise optimizer of Optax.

    params = bw.train(loss_fn, params, optimizer, (x, y), epochs=10, batch_size=64, virtual_nodes=8)

`loss_fn(params, batch, key)` returns the mean loss of a batch. In a worker `train` computes gradients until the run
ends, and the process ends with it; in the lead it waits for that end, and returns the trained parameters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bellwether import _errors

try:
    import jax
except ModuleNotFoundError as error:
    raise _errors.missing(error, "'bellwether[jax]'") from None

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bellwether import _checkpoint, _trace
from bellwether._arrays import Samples, check_sizes, rare_sizes
from bellwether._declare import Declaration
from bellwether._errors import BellwetherError
from bellwether._jax_model import Recorder, Tree, Vectors, be_deterministic, begin, kernel_class, key_of
from bellwether._jax_rules import OwnRule
from bellwether._lead import Checkpoint, Lead, Listeners
from bellwether._loop import Evaluate, Gradient, Session, builds, join
from bellwether._role import Role, is_lead, role

__all__ = ["BellwetherError", "Run", "is_lead", "load", "load_optimizer", "train"]

begin()

LossFunction = Callable[..., Any]
"""``(params, batch, key) -> loss``; with state ``(params, state, batch, key) -> (loss, state)``."""

Predict = Callable[..., Any]
"""``(params, rows) -> scores``; with state ``(params, state, rows) -> scores``."""


class Run:
    """Training of one pytree of parameters, by any number of workers."""

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        *,
        data: Any,
        batch_size: int,
        virtual_nodes: int,
        state: Any = None,
        clip_norm: float | None = None,
        held_out: Any = None,
        seed: int = 0,
        name: str | None = None,
        workers: int | str | None = None,
        order_block: int | None = None,
        predict: Predict | None = None,
        stop: dict[str, Any] | None = None,
        exchange: str | None = None,
        optimizer_copies: int | None = None,
    ) -> None:
        """What is trained, and how a step is cut.

        `params`: any pytree of float32 arrays. `optimizer`: of Optax, with its schedule inside.
        `data`, `held_out`: arrays of equal length (an array, a tuple or a dictionary of them), or anything with a
        length and an index.
        `batch_size`: samples of an optimizer step, over all workers, in `virtual_nodes` equal parts.
        `state`: a pytree of float32 statistics that a step changes; they are averaged over the virtual nodes.
        `clip_norm`: largest norm of the gradient of the whole batch.
        `workers`: their number, or a range "1..4".
        `order_block`: samples that lie next to each other, such as those of a shard, and are visited together: blocks are
        permuted, and the samples inside of each; decides bits.
        `predict`: what `bellwether infer` computes of rows, an array of float32 of shape (rows, numbers): for each row the
        scores of its classes (before the softmax), or one number. It is compiled.
        `stop`: what ends the run before its last step, as the table `[stop]` of a job file: ``{"patience": 5}``, for
        example, of evaluations whose loss is no lower. The accuracy is not known.
        `exchange`: numbers in which gradients are summed over virtual nodes and travel, "f32" or "bf16", which takes half
        the bytes; decides bits.

        `optimizer_copies`: workers that hold each part of the optimizer's state, which they share then; decides no bits.
        None: each worker holds the whole.

        Raises BellwetherError, which names the line and what to write, for what cannot be trained so.
        """
        builds()
        self._data = Samples(data, "data")
        self._held_out = Samples(held_out, "held_out") if held_out is not None else None
        check_sizes(len(self._data), batch_size, virtual_nodes)
        self._vectors = Vectors(params, state)
        self._rule = OwnRule(optimizer, self._vectors.parameters, role() is Role.WORKER)
        self._sizes = (batch_size, virtual_nodes)
        self._clip_norm, self._seed = clip_norm, seed
        self._name, self._workers = name, workers
        self._order_block = order_block
        self._predict = jax.jit(predict) if predict is not None else None
        self._stop = stop
        self._exchange = exchange
        self._optimizer_copies = optimizer_copies
        self._batches: _Batches | None = None
        self._is_used = False
        self._lead: Lead | None = None
        self._listeners = Listeners()
        self.params = params
        """In the lead: the parameters of the epoch that was trained last."""
        self.state = state
        """In the lead: the statistics of that epoch."""
        self.epoch = 0
        """In the lead: the epoch that was trained last, counted from 0."""
        self.step = 0
        """In a worker: the step of the present micro-batch. In the lead: the steps trained so far."""

    def epochs(self, count: int, *, hold: bool = False) -> Iterable[Iterable[tuple[Any, Any]]]:
        """The micro-batches of so many epochs, each with a key.

        In a worker it yields once, all micro-batches of the run. In the lead it yields once per epoch, when that
        epoch is trained and its weights are in `params`, and no micro-batches. Leaves by SystemExit in a worker when
        the run is over, and in the lead if it was stopped (0) or failed (1).

        `hold`: after each epoch the workers wait until the lead comes to the next one. A `break`, or `stop`, ends the
        run with that epoch's parameters.
        """
        declaration = self._declare(epochs=count, hold=hold)
        return self._work(declaration) if role() is Role.WORKER else self._follow(declaration, count)

    def steps(self, count: int) -> Iterable[tuple[Any, Any]]:
        """The micro-batches of so many optimizer steps, each with a key, as one loop.

        In the lead it yields nothing, and ends when the run has, with the trained weights in `params`.
        """
        declaration = self._declare(steps=count)
        if role() is Role.WORKER:
            return self._join(declaration)
        for _ in self._follow(declaration, 1):
            pass
        return ()

    def stop(self, reason: str = "the script ends it") -> None:
        """In the lead, in a loop over ``run.epochs(…, hold=True)``: the run ends with this epoch and its parameters.

        The loop ends when it comes to the next epoch; what follows it runs as usual. `reason` is for people.
        """
        if self._lead is not None:
            self._lead.end(reason)

    def on_evaluation(self, call: Callable[[int, float, float | None], object]) -> None:
        """In the lead, calls ``call(step, loss, accuracy)`` for each evaluation of the held-out data.

        It is called while the lead waits for the run, between two epochs; `accuracy` is None.
        """
        self._listeners.evaluated.append(call)

    def on_checkpoint(self, call: Callable[[int, Path], object]) -> None:
        """In the lead, calls ``call(step, path)`` for each checkpoint, while the lead waits for the run."""
        self._listeners.checkpointed.append(call)

    def gradient(self, loss_fn: LossFunction, batch: Any, key: Any, weight: float | None = None) -> None:
        """Computes the gradient of a micro-batch, whose loss is the mean over its samples, or over `weight` of
        anything (valid tokens).

        `loss_fn(params, batch, key)` returns the loss; with state `loss_fn(params, state, batch, key)` returns the
        loss and the new state. It is compiled, so it depends on its arguments only.
        """
        if self._batches is None:
            raise _errors.refuse(
                "run.gradient outside of the loop", "call it in the loop over run.epochs or run.steps"
            )
        self._batches.gradient(loss_fn, batch, key, weight)

    def _declare(
        self, epochs: int | None = None, steps: int | None = None, hold: bool = False
    ) -> Declaration:
        if self._is_used:
            raise _errors.refuse(
                "a Run is trained once, and this one was", "make another Run for another training"
            )
        self._is_used = True
        batch_size, virtual_nodes = self._sizes
        per_epoch = -(-len(self._data) // batch_size)
        return Declaration(
            layout=self._vectors.layout,
            batch_size=batch_size,
            virtual_nodes=virtual_nodes,
            training_samples=len(self._data),
            held_out_samples=len(self._held_out) if self._held_out is not None else 0,
            optimizer=self._rule.declaration(self._clip_norm),
            epochs=epochs,
            steps=steps,
            seed=self._seed,
            name=self._name,
            workers=self._workers,
            device="cpu" if jax.default_backend() == "cpu" else "cuda",
            evaluate_every=per_epoch if self._held_out is not None else None,
            checkpoint_every=per_epoch if epochs is not None else None,
            order_block=self._order_block,
            stop=self._stop,
            exchange=self._exchange,
            optimizer_copies=self._optimizer_copies,
            verdict_every=per_epoch if hold else 0,
        )

    def _work(self, declaration: Declaration) -> Iterator[Iterable[tuple[Any, Any]]]:
        """In a worker: once, all micro-batches."""
        yield self._join(declaration)
        raise _errors.refuse(
            "the loop is left before the run is over",
            "use run.steps(n) for a shorter run, or `bellwether stop`",
        )

    def _join(self, declaration: Declaration) -> _Batches:
        be_deterministic()
        self._rule.warm()
        session = join(
            declaration,
            f"{kernel_class()}; data {self._data.digest()}",
            self._vectors.attach(),
            self._rule.piece,
            self._rule,
            predict=self._scores,
        )
        self._batches = _Batches(self, session)
        return self._batches

    def _scores(self, rows: NDArray[np.float32], fresh: bool) -> NDArray[np.float32]:
        """In a worker: what the model says of rows."""
        if self._predict is None:
            raise _errors.refuse(
                "the script does not say how its model is applied to rows",
                "write predict=… in bellwether.jax.Run",
            )
        self._vectors.begin(fresh)
        params, state = self._vectors.now
        trees = (params, state) if self._vectors.has_state else (params,)
        scores = np.asarray(self._predict(*trees, jnp.asarray(rows)), np.float32)
        return scores.reshape(len(scores), -1)

    def _follow(self, declaration: Declaration, parts: int) -> Iterator[Iterable[tuple[Any, Any]]]:
        """In the lead: once per epoch, when it is trained."""
        trees = (self._vectors.parameters, self._vectors.state)
        initial = (array for tree in trees for array in tree.arrays())
        lead = self._lead = Lead(declaration, initial, listeners=self._listeners)
        for part, checkpoint in lead.parts(parts, declaration.steps_per_epoch):
            self._open(checkpoint)
            self.epoch = part
            yield ()

    def _open(self, checkpoint: Checkpoint) -> None:
        tensors, self.step = _checkpoint.read(checkpoint.path)
        self.params = self._vectors.parameters.named(tensors, "parameters")
        self.state = self._vectors.state.named(tensors, "state")


class _Batches:
    """The micro-batches of a worker, until the run ends."""

    def __init__(self, run: Run, session: Session) -> None:
        self._run, self._session = run, session
        self._request: Gradient | Evaluate | None = None
        self._loss: tuple[float, float] | None = None
        self._waited = 0.0
        self._batch: Any = None
        self._compiled_for: list[LossFunction] = []
        """Loss functions that are compiled for every size of a micro-batch."""
        self._trace = _trace.of_environment(Recorder)

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> tuple[Any, Any]:
        """Answers for the micro-batch before, and waits for the next one. Leaves by SystemExit after the last."""
        if self._request is not None:
            self._answer(self._request)
        request = self._request = self._session.next()
        self._loss = None
        if self._trace is not None and isinstance(request, Gradient) and not self._trace.at(request.step):
            self._trace = None
        self._run._vectors.begin(request.fresh)
        begin = time.perf_counter()
        if isinstance(request, Gradient):
            self._run.step, seed, data = request.step, request.seed, self._run._data
        else:
            assert self._run._held_out is not None, "only a job with held-out samples is evaluated"
            seed, data = 0, self._run._held_out
        batch = self._batch = data.batch(request.samples, seed)
        self._waited = time.perf_counter() - begin
        return batch, key_of(seed)

    def gradient(self, loss_fn: LossFunction, batch: Any, key: Any, weight: float | None) -> None:
        """Computes the gradient of a loss, or the loss alone where the held-out set is evaluated."""
        if self._request is None:
            raise _errors.refuse("run.gradient outside of the loop", "call it once in the loop's body")
        if self._loss is not None:
            raise _errors.refuse(
                "run.gradient is called twice in a micro-batch",
                "add the losses in one function, and call it once",
            )
        factor = float(len(self._request.samples) if weight is None else weight)
        vectors = self._run._vectors
        if isinstance(self._request, Gradient):
            self._compile_ahead(loss_fn, batch)
            self._loss = vectors.gradient(loss_fn, batch, key, factor), factor
        else:
            self._loss = vectors.loss(loss_fn, batch, key) * factor, factor

    def _compile_ahead(self, loss_fn: LossFunction, batch: Any) -> None:
        """Compiles a loss function for the other sizes of a micro-batch, if the loop's body left this one as it was."""
        if any(loss_fn is known for known in self._compiled_for) or batch is not self._batch:
            return
        self._compiled_for.append(loss_fn)
        data = self._run._data
        for size in rare_sizes(len(data), *self._run._sizes):
            rare = data.batch(list(range(size)), 0)
            self._run._vectors.gradient(loss_fn, rare, key_of(0), float(size))

    def _answer(self, request: Gradient | Evaluate) -> None:
        if self._loss is None:
            raise _errors.refuse(
                "the loop's body ended a micro-batch without run.gradient(loss_fn, batch, key)",
                "call it once in it",
            )
        total, weight = self._loss
        if isinstance(request, Gradient):
            self._session.loss(total, weight, self._waited)
        else:
            self._session.evaluation(total, 0, 0)


def train(
    loss_fn: LossFunction,
    params: Any,
    optimizer: Any,
    data: Any,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    state: Any = None,
    on_epoch: Callable[[int, Any], object] | None = None,
    **options: Any,
) -> Any:
    """Trains parameters in one call, and returns them; with `state` the pair of both.

    `options` are those of `Run`, of which `batch_size` and `virtual_nodes` are needed; exactly one of `epochs` and
    `steps` is given. With `on_epoch` the workers wait after each epoch until ``on_epoch(epoch, params)`` has returned
    in the lead; False ends the run there. In a worker it does not return.
    """
    if (epochs is None) == (steps is None):
        raise _errors.refuse("exactly one of epochs and steps is needed", "write epochs=3, for example")
    if on_epoch is not None and epochs is None:
        raise _errors.refuse("on_epoch is called for epochs", "write epochs=3, for example, instead of steps")
    run = Run(params, optimizer, data=data, state=state, **options)
    holds = on_epoch is not None
    parts = run.epochs(epochs, hold=holds) if epochs is not None else [run.steps(steps or 0)]
    for batches in parts:
        for batch, key in batches:
            run.gradient(loss_fn, batch, key)
        if on_epoch is not None and on_epoch(run.epoch, run.params) is False:
            run.stop(f"on_epoch returned False after epoch {run.epoch}")
    return run.params if state is None else (run.params, run.state)


def load(params: Any, checkpoint: str | os.PathLike[str], *, state: Any = None) -> Any:
    """The parameters of a checkpoint, as a pytree like `params`; with `state` the pair of both.

    `checkpoint` is a file of a run's folder `checkpoints`. Raises BellwetherError if its tensors are not those of the
    pytrees, and names the first that is not.
    """
    tensors, _ = _checkpoint.read(checkpoint)
    vectors = Vectors(params, state)
    _checkpoint.check(tensors, vectors.layout, checkpoint)
    loaded = vectors.parameters.named(tensors, "parameters")
    return loaded if state is None else (loaded, vectors.state.named(tensors, "state"))


def load_optimizer(optimizer: Any, params: Any, checkpoint: str | os.PathLike[str]) -> Any:
    """Optax's state of a checkpoint, with which a plain loop goes on: what ``optimizer.init(params)`` was."""
    tensors, step = _checkpoint.read(checkpoint)
    tree = Tree(params, "parameters")
    return OwnRule(optimizer, tree, is_tested=True).state(tree, tensors, step)
