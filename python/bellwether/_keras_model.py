"""A Keras model as flat vectors, and the gradient of a micro-batch, by TensorFlow or JAX."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from bellwether import _checkpoint, _errors
from bellwether._declare import Layout
from bellwether._machine import instructions
from bellwether.data import mix

Vector = NDArray[np.float32]

BACKENDS = ("tensorflow", "jax")

_TINY = 1e-38
"""The least share of which a logarithm is taken."""


def backend() -> str:
    """The back end of Keras in this process. Raises BellwetherError for one that cannot be trained with."""
    name = str(keras.backend.backend())
    if name not in BACKENDS:
        raise _errors.refuse(
            f"Keras computes by {name} here",
            "set KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax before Python begins",
        )
    return name


def begin(is_worker: bool) -> None:
    """Before the first tensor: lets the back end compute the same bits for the same micro-batch."""
    if backend() == "jax":
        from bellwether import _jax_model

        _jax_model.begin()
    elif is_worker:
        import tensorflow as tf

        try:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        except RuntimeError:
            # `be_deterministic` says so, with the line at which the model is trained.
            return
        tf.config.experimental.enable_op_determinism()


def be_deterministic() -> None:
    """Refuses a worker in which something was computed before `begin`."""
    if backend() == "jax":
        from bellwether import _jax_model

        _jax_model.be_deterministic()
        return
    import tensorflow as tf

    if tf.config.threading.get_intra_op_parallelism_threads() != 1:
        raise _errors.refuse(
            "TensorFlow made its threads before bellwether.keras was imported",
            "import bellwether.keras with the other modules, before the first tensor or model",
        )


def kernel_class() -> str:
    """Versions, device, threads and flags that decide bits."""
    policy = keras.config.dtype_policy().name
    if backend() == "jax":
        from bellwether import _jax_model

        return f"keras {keras.__version__} {policy}; {_jax_model.kernel_class()}"
    import tensorflow as tf

    parts = [f"keras {keras.__version__} {policy}", f"tensorflow {tf.__version__}"]
    devices = tf.config.list_physical_devices("GPU")
    if devices:
        details = tf.config.experimental.get_device_details(devices[0])
        build = tf.sysconfig.get_build_info()
        parts += [str(details.get("device_name")), f"capability {details.get('compute_capability')}"]
        parts += [f"{key} {build.get(f'{key}_version')}" for key in ("cuda", "cudnn")]
    else:
        parts += [f"cpu {instructions()}"]
    parts += ["1 thread", "deterministic"]
    flags = ("TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "XLA_FLAGS", "ONEDNN_MAX_CPU_ISA")
    parts += [f"{flag}={os.environ[flag]}" for flag in flags if os.environ.get(flag)]
    return "; ".join(parts)


def device() -> str:
    """Where the workers compute, as the job has it."""
    if backend() == "jax":
        import jax

        return "cpu" if jax.default_backend() == "cpu" else "cuda"
    import tensorflow as tf

    return "cuda" if tf.config.list_physical_devices("GPU") else "cpu"


class TensorFlowRecorder:
    """TensorFlow's profiler, for a trace that TensorBoard reads."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: Any = None

    def start(self) -> None:
        """Records from here on."""
        import tensorflow as tf

        tf.profiler.experimental.start(self._folder)

    def mark(self, step: int) -> None:
        """A micro-batch of this step begins."""
        import tensorflow as tf

        self._close()
        self._open = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
        self._open.__enter__()

    def stop(self) -> None:
        """Writes what was recorded."""
        import tensorflow as tf

        self._close()
        tf.profiler.experimental.stop()

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)


def recorder(folder: str) -> Any:
    """The profiler of the back end."""
    if backend() == "jax":
        from bellwether import _jax_model

        return _jax_model.Recorder(folder)
    return TensorFlowRecorder(folder)


class Vectors:
    """The variables of a model, and the flat vectors that the runtime knows."""

    def __init__(self, model: Any) -> None:
        """`model` is built. Raises BellwetherError for variables that cannot be trained."""
        self.model = model
        frozen = _frozen(model)
        weights = [(_name(model, v), v) for v in model.non_trainable_weights]
        self.parameters = [(_name(model, v), v) for v in model.trainable_variables]
        self.state = [(n, v) for n, v in weights if id(v) not in frozen and v.dtype == "float32"]
        self.fixed = [(n, v) for n, v in weights if id(v) in frozen or v.dtype != "float32"]
        known = {id(v) for v in model.non_trainable_weights}
        # What is no weight is the state of a generator of random numbers.
        self.seeds = [v for v in model.non_trainable_variables if id(v) not in known]
        self._check()
        self.layout = Layout(
            [(name, tuple(v.shape)) for name, v in self.parameters],
            [(name, tuple(v.shape)) for name, v in self.state],
        )

    def _check(self) -> None:
        if not self.parameters:
            raise _errors.refuse(
                "the model has no variable that is trained", "set trainable = True on some layer"
            )
        names = [name for name, _ in [*self.parameters, *self.state]]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _errors.refuse(f"two variables have the name {twice}", "give the layers names of their own")
        for name, variable in self.parameters:
            if variable.dtype != "float32":
                raise _errors.refuse(
                    f"{name} is {variable.dtype}, and variables are trained as float32",
                    'write keras.mixed_precision.set_global_policy("mixed_bfloat16") to compute in bfloat16',
                )
            if variable.constraint is not None:
                raise _errors.refuse(
                    f"{name} has a constraint, which looks at the whole tensor", "use a regularizer, or none"
                )

    def initial(self) -> list[Vector]:
        """The weights as they are: all parameters, then all state."""
        return [np.asarray(_numpy(v), np.float32) for _, v in [*self.parameters, *self.state]]

    def fixed_digest(self) -> str:
        """16 hexadecimal digits of all that no step changes; workers must agree on it."""
        hasher = hashlib.blake2b(digest_size=8)
        for name, variable in self.fixed:
            value = np.ascontiguousarray(_numpy(variable))
            hasher.update(f"{name} {value.dtype} {value.shape}".encode())
            hasher.update(value.tobytes())
        return hasher.hexdigest()

    def load(self, tensors: dict[str, Vector]) -> None:
        """A checkpoint's weights into the model."""
        for kind, ours in (("parameters", self.parameters), ("state", self.state)):
            for name, variable in ours:
                variable.assign(tensors[f"{kind}/{name}"])


def _name(model: Any, variable: Any) -> str:
    """The path of a variable, without the model's own name."""
    return str(variable.path).removeprefix(f"{model.name}/").replace("/", ".")


def _frozen(model: Any) -> set[int]:
    """The variables of layers that are not trained, and those of data that a layer was adapted to before."""
    frozen: set[int] = set()
    for layer in model._flatten_layers():
        own = [*layer._trainable_variables, *layer._non_trainable_variables]
        if not layer.trainable or isinstance(layer, keras.layers.Normalization):
            frozen |= {id(variable) for variable in own}
    return frozen


def _numpy(variable: Any) -> Any:
    return keras.ops.convert_to_numpy(variable)


class Rows:
    """How a model is applied to rows of numbers."""

    def __init__(self, predict: Callable[[Any, Any], Any] | None, x: Any) -> None:
        """`predict`: the script's own way; without it rows have the shape of a sample's `x`."""
        self._predict = predict
        leaves = _leaves(x)
        self._like = np.asarray(leaves[0][:1]) if len(leaves) == 1 else None

    def scores(self, model: Any, rows: Vector) -> Any:
        """What the model says of each row: scores of its classes, or one number."""
        if self._predict is not None:
            return self._predict(model, rows)
        like = self._like
        if like is None or rows.shape[1] != like.size:
            what = f"{like.size} numbers" if like is not None else "several parts"
            raise _errors.refuse(
                f"a row has {rows.shape[1]} numbers, and a sample of the model has {what}",
                "leave the column of the labels out, or write predict=… in bellwether.keras.fit",
            )
        arguments = {"training": False} if _arguments(model) else {}
        scores = model(rows.reshape(len(rows), *like.shape[1:]).astype(like.dtype), **arguments)
        # The probabilities of scores are their softmax: of what is a probability already, its logarithm.
        is_share = getattr(model.layers[-1], "activation", None) is keras.activations.softmax
        return keras.ops.log(keras.ops.maximum(scores, _TINY)) if is_share else scores


class Steps:
    """Gradients of micro-batches in a worker."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        counts = (vectors.layout.parameter_count, vectors.layout.state_count)
        p, s = (np.zeros(count, np.float32) for count in counts)
        self.buffers = (p, s, np.zeros_like(p), np.zeros_like(s))
        self._compute = _by_jax(vectors) if backend() == "jax" else _by_tensorflow(vectors)

    def gradient(self, batch: Any, seed: int, fresh: bool) -> float:
        """Computes the gradient of the sum of the losses into the run's vectors; returns that sum."""
        vectors = self._vectors
        if fresh:
            self._put(vectors.parameters, self.buffers[0], vectors.layout.parameters)
        self._put(vectors.state, self.buffers[1], vectors.layout.state)
        for place, variable in enumerate(vectors.seeds):
            word = mix(seed, place)
            variable.assign(np.array([word >> 32, word & 0xFFFFFFFF], np.uint32).astype(variable.dtype))
        x, y, sample_weight = batch
        count = len(next(part for part in _leaves(x)))
        total, gradient, left = self._compute(x, y, sample_weight, np.float32(count))
        self.buffers[2][:] = np.asarray(gradient)
        self.buffers[3][:] = np.asarray(left)
        return float(total)

    def scores(self, rows: Rows, values: Vector, fresh: bool) -> Vector:
        """What the model says of rows, in inference mode."""
        vectors = self._vectors
        if fresh:
            self._put(vectors.parameters, self.buffers[0], vectors.layout.parameters)
            self._put(vectors.state, self.buffers[1], vectors.layout.state)
        scores = np.asarray(_numpy(rows.scores(vectors.model, values)), np.float32)
        return scores.reshape(len(scores), -1)

    def _put(self, variables: list[tuple[str, Any]], vector: Vector, tensors: Any) -> None:
        """Sets variables to the parts of a vector. The back end may keep what it is given, so it is given copies."""
        for (_, variable), part in zip(variables, _checkpoint.cut(vector, tensors), strict=True):
            variable.assign(part.copy())


def _leaves(tree: Any) -> list[Any]:
    return list(keras.tree.flatten(tree))


def _arguments(model: Any) -> dict[str, bool]:
    return {"training": True} if getattr(model, "_call_has_training_arg", True) else {}


def _by_tensorflow(vectors: Vectors) -> Any:
    import tensorflow as tf

    model = vectors.model
    arguments = _arguments(model)
    trained = [variable.value for _, variable in vectors.parameters]

    def flat(tensors: list[Any]) -> Any:
        return tf.concat([tf.reshape(t, [-1]) for t in tensors], 0) if tensors else tf.zeros([0])

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any, sample_weight: Any, count: Any) -> Any:
        with tf.GradientTape() as tape:
            predicted = model(x, **arguments)
            loss = model.compute_loss(x=x, y=y, y_pred=predicted, sample_weight=sample_weight, training=True)
            total = loss * count
        gradients = tape.gradient(total, trained, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return total, flat(gradients), flat([variable.value for _, variable in vectors.state])

    def compute(x: Any, y: Any, sample_weight: Any, count: Any) -> Any:
        given = keras.tree.map_structure(
            lambda part: None if part is None else tf.constant(part), (x, y, sample_weight)
        )
        total, gradient, left = step(*given, tf.constant(count))
        return total.numpy(), gradient.numpy(), left.numpy()

    return compute


def _by_jax(vectors: Vectors) -> Any:
    import jax

    from bellwether._jax_model import joined

    model = vectors.model
    places = {id(v): place for place, v in enumerate(model.non_trainable_variables)}
    kept = [places[id(variable)] for _, variable in vectors.state]

    def step(trained: Any, others: Any, metrics: Any, scales: Any, batch: Any, count: Any) -> Any:
        def total(trained: Any) -> Any:
            loss, (_, _, left, _) = model.compute_loss_and_updates(
                trained, others, metrics, *batch, training=True, optimizer_variables=scales
            )
            return loss * count, left

        (loss, left), gradient = jax.value_and_grad(total, has_aux=True)(trained)
        return loss, joined(gradient), joined([left[place] for place in kept])

    compiled = jax.jit(step)

    # Keras walks through all layers for each of these lists.
    groups = [
        list(model.trainable_variables),
        list(model.non_trainable_variables),
        list(model.metrics_variables),
        list(model.optimizer.variables),
    ]

    def compute(x: Any, y: Any, sample_weight: Any, count: Any) -> Any:
        values = [[variable.value for variable in group] for group in groups]
        return compiled(*values, (x, y, sample_weight), count)

    return compute
