"""Keras models on Bellwether, by the TensorFlow or the JAX back end.

    bw.fit(model, x, y, batch_size=64, virtual_nodes=8, epochs=5, validation_data=(x_val, y_val))

The model is compiled as ever. In a worker `fit` computes gradients until the run ends, and the process ends with it;
in the lead it validates and calls the callbacks once per epoch, and leaves the trained weights in the model.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from bellwether import _errors

try:
    import keras
except ModuleNotFoundError as error:
    raise _errors.missing(error, "'bellwether[keras]' tensorflow") from None

from bellwether import _checkpoint, _keras_model, _trace
from bellwether._arrays import Samples, check_sizes, rare_sizes
from bellwether._declare import Declaration
from bellwether._errors import BellwetherError
from bellwether._keras_model import Rows, Steps, Vectors
from bellwether._keras_rules import OwnRule
from bellwether._lead import Lead
from bellwether._loop import Gradient, builds, join
from bellwether._role import Role, computes, is_lead, role

__all__ = ["BellwetherError", "fit", "is_lead", "load"]

_keras_model.begin(computes())

_MEASURED_S = 5.0
"""How long an epoch's measurements are waited for; they may be missing where a run was resumed."""

_STEERING = {
    "LearningRateScheduler": "compile with a schedule of keras.optimizers.schedules",
    "ReduceLROnPlateau": "compile with a schedule of keras.optimizers.schedules",
    "BackupAndRestore": "leave it out: `bellwether resume` goes on from the run's own checkpoints",
    "SwapEMAWeights": "leave it out: averages of weights come later",
}


def fit(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int,
    virtual_nodes: int,
    epochs: int,
    validation_data: Any = None,
    callbacks: Iterable[Any] | None = None,
    sample_weight: Any = None,
    validation_batch_size: int | None = None,
    verbose: int | str = "auto",
    seed: int = 0,
    name: str | None = None,
    workers: int | str | None = None,
    order_block: int | None = None,
    hold: bool | None = None,
    predict: Callable[[Any, Any], Any] | None = None,
    exchange: str | None = None,
    optimizer_copies: int | None = None,
) -> Any:
    """Trains a compiled model, as ``model.fit`` does, on any number of workers.

    `x`, `y`, `sample_weight`: arrays, or lists and dictionaries of arrays, with the samples along their first axis.
    `batch_size`: samples of an optimizer step, over all workers, in `virtual_nodes` equal parts.
    `callbacks`: are called at epochs, in the lead; their `logs` hold the mean loss of the epoch, and all of
    `validation_data`. Batches are computed elsewhere, so nothing is called for them.
    `workers`: their number, or a range "1..4".
    `order_block`: samples that lie next to each other, such as those of a shard, and are visited together: blocks are
    permuted, and the samples inside of each; decides bits.
    `hold`: whether the workers wait after each epoch until its callbacks were called, so that one that sets
    ``model.stop_training``, as EarlyStopping does, ends the run there. Without it: if a callback does so.
    `predict`: what `bellwether infer` computes of rows of float32, ``predict(model, rows)``; without it the model itself,
    where each row has the shape of a sample's `x`.
    `exchange`: numbers in which gradients are summed over virtual nodes and travel, "f32" or "bf16", which takes half the
    bytes; decides bits.

    `optimizer_copies`: workers that hold each part of the optimizer's state, which they share then; decides no bits.
    None: each worker holds the whole.

    Returns the history. In a worker it does not return; in the lead it leaves by SystemExit if the run was stopped
    (0) or failed (1). Raises BellwetherError, which names the line and what to write, for what cannot be trained so.
    """
    builds()
    _keras_model.backend()
    given = list(callbacks or ())
    _check(model, given)
    samples = Samples((x, y, sample_weight), "the data")
    check_sizes(len(samples), batch_size, virtual_nodes)
    _build(model, samples)
    vectors = Vectors(model)
    rule = OwnRule(model.optimizer, vectors, role() is Role.WORKER)
    per_epoch = -(-len(samples) // batch_size)
    holds = any(map(_stops, given)) if hold is None else hold
    declaration = Declaration(
        layout=vectors.layout,
        batch_size=batch_size,
        virtual_nodes=virtual_nodes,
        training_samples=len(samples),
        held_out_samples=0,
        optimizer=rule.declaration(),
        epochs=epochs,
        seed=seed,
        name=name,
        workers=workers,
        device=_keras_model.device(),
        checkpoint_every=per_epoch,
        order_block=order_block,
        exchange=exchange,
        optimizer_copies=optimizer_copies,
        verdict_every=per_epoch if holds else 0,
    )
    if role() is Role.WORKER:
        _work(declaration, vectors, rule, samples, Rows(predict, x))
    lead = Lead(declaration, vectors.initial())
    verbosity = 2 if verbose == "auto" else int(verbose)
    calls = keras.callbacks.CallbackList(
        given,
        add_history=True,
        add_progbar=verbosity != 0,
        verbose=verbosity,
        epochs=epochs,
        steps=per_epoch,
        model=model,
    )
    validation = (validation_data, validation_batch_size or batch_size)
    _follow(lead, declaration, vectors, rule, calls, validation)
    return model.history


def _check(model: Any, callbacks: list[Any]) -> None:
    """Refuses models and callbacks that steer what happens elsewhere."""
    if getattr(model, "optimizer", None) is None:
        raise _errors.refuse("the model is not compiled", "write model.compile(optimizer=…, loss=…) before")
    if not type(model).train_step.__module__.startswith("keras."):
        raise _errors.refuse(
            f"{type(model).__name__} has a train_step of its own, which updates the weights itself",
            "override compute_loss, or train by bellwether.jax",
        )
    for loss in keras.tree.flatten(model.loss):
        if getattr(loss, "reduction", "sum_over_batch_size") != "sum_over_batch_size":
            raise _errors.refuse(
                f'{type(loss).__name__} has reduction="{loss.reduction}", and a batch is computed in parts',
                'write reduction="sum_over_batch_size"',
            )
    for callback in callbacks:
        for kind in type(callback).__mro__:
            if kind.__name__ in _STEERING:
                raise _errors.refuse(
                    f"{type(callback).__name__} steers the training while it goes on",
                    _STEERING[kind.__name__],
                )


def _stops(callback: Any) -> bool:
    """Whether a callback may end the training after an epoch: its code names `stop_training`.

    What is called for batches is left out: it is never called.
    """
    named = [pair for kind in type(callback).__mro__ for pair in vars(kind).items()]
    codes = [
        getattr(call, "__code__", None)
        for name, call in [*named, *vars(callback).items()]
        if "_batch_" not in name
    ]
    while codes:
        code = codes.pop()
        if code is not None and "stop_training" in (*code.co_names, *code.co_consts):
            return True
        codes += [inner for inner in getattr(code, "co_consts", ()) if hasattr(inner, "co_names")]
    return False


def _build(model: Any, samples: Samples) -> None:
    """Makes the variables of a model whose layers do not know their input yet, and those of its loss."""
    model._symbolic_build(data_batch=samples.batch([0], 0))


def _work(
    declaration: Declaration, vectors: Vectors, rule: OwnRule, samples: Samples, rows: Rows
) -> NoReturn:
    """In a worker: computes until the run ends."""
    _keras_model.be_deterministic()
    rule.warm()
    steps = Steps(vectors)
    kernel_class = f"{_keras_model.kernel_class()}; data {samples.digest()}; fixed {vectors.fixed_digest()}"
    predict = functools.partial(steps.scores, rows)
    session = join(declaration, kernel_class, steps.buffers, rule.piece, rule, predict=predict)
    trace = _trace.of_environment(_keras_model.recorder)
    rare = rare_sizes(len(samples), declaration.batch_size, declaration.virtual_nodes)
    while True:
        request = session.next()
        assert isinstance(request, Gradient), "the lead validates"
        while rare:
            size = rare.pop()
            steps.gradient(samples.batch(list(range(size)), 0), 0, request.fresh)
        if trace is not None and not trace.at(request.step):
            trace = None
        begin = time.perf_counter()
        batch = samples.batch(request.samples, request.seed)
        waited = time.perf_counter() - begin
        total = steps.gradient(batch, request.seed, request.fresh)
        session.loss(total, float(len(request.samples)), waited)


def _follow(
    lead: Lead,
    declaration: Declaration,
    vectors: Vectors,
    rule: OwnRule,
    calls: Any,
    validation: tuple[Any, int],
) -> None:
    """In the lead: validates and calls back when an epoch is trained."""
    model, epochs = vectors.model, declaration.epochs or 0
    model.stop_training = False
    logs: dict[str, Any] = {}
    calls.on_train_begin()
    for epoch, checkpoint in lead.parts(epochs, declaration.steps_per_epoch):
        calls.on_epoch_begin(epoch)
        tensors, step = _checkpoint.read(checkpoint.path)
        vectors.load(tensors)
        rule.restore(vectors, tensors, step)
        logs = _training_logs(lead.folder, declaration, epoch) | _validated(model, *validation)
        calls.on_epoch_end(epoch, logs)
        if model.stop_training and epoch + 1 < epochs:
            lead.end(f"a callback set model.stop_training after epoch {epoch + 1}")
            if lead.has_ended:
                break
            model.stop_training = False
    calls.on_train_end(logs)


def _validated(model: Any, data: Any, batch_size: int) -> dict[str, Any]:
    """The losses and metrics on the validation set, named as Keras names them."""
    if data is None:
        return {}
    values = model.evaluate(
        data[0],
        data[1],
        sample_weight=data[2] if len(data) > 2 else None,
        batch_size=batch_size,
        verbose=0,
        return_dict=True,
    )
    return {f"val_{key}": value for key, value in values.items()}


def _training_logs(folder: Path, declaration: Declaration, epoch: int) -> dict[str, Any]:
    """The mean loss over the samples of an epoch, as the run measured it."""
    per_epoch, size = declaration.steps_per_epoch, declaration.batch_size
    end = time.monotonic() + _MEASURED_S
    losses = _losses(folder, range(epoch * per_epoch, (epoch + 1) * per_epoch))
    while len(losses) < per_epoch and time.monotonic() < end:
        # The run writes an epoch's checkpoint a moment before its last measurements.
        time.sleep(0.02)
        losses = _losses(folder, range(epoch * per_epoch, (epoch + 1) * per_epoch))
    counts = {step: min(size, declaration.training_samples - step % per_epoch * size) for step in losses}
    total = sum(counts.values())
    return {"loss": sum(losses[step] * counts[step] for step in sorted(losses)) / total} if total else {}


def _losses(folder: Path, steps: range) -> dict[int, float]:
    """The mean loss of each of these steps, as far as they are measured."""
    losses: dict[int, float] = {}
    with (folder / "metrics.jsonl").open() as lines:
        for line in lines:
            row = json.loads(line) if line.endswith("\n") else {}
            # A step that was done again has two rows, of which the last one counts.
            if row.get("step") in steps and row.get("loss") is not None:
                losses[row["step"]] = row["loss"]
    return losses


def load(model: Any, checkpoint: str | os.PathLike[str]) -> int:
    """Puts a checkpoint of a run into a plain model, and the optimizer's state into the one it is compiled with.

    `checkpoint` is a file of a run's folder `checkpoints`. The model is built. Returns the steps that it has behind
    it. Raises BellwetherError if its tensors are not those of the model, and names the first that is not.
    """
    tensors, step = _checkpoint.read(checkpoint)
    vectors = Vectors(model)
    _checkpoint.check(tensors, vectors.layout, checkpoint)
    vectors.load(tensors)
    if getattr(model, "optimizer", None) is not None:
        OwnRule(model.optimizer, vectors, is_tested=True).restore(vectors, tensors, step)
    return step
