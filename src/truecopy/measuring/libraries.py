"""The same questions for NumPy, JAX and TensorFlow, where they are installed. None is required.

JAX answers before the work is done, so each of its calls waits for it. The threads of JAX and TensorFlow
are their own; NumPy copies with one.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from truecopy.measuring.cells import DUPLICATES
from truecopy.measuring.methods import Method
from truecopy.measuring.works import STRUCTURES

LIBRARIES = ("torch", "numpy", "jax", "tensorflow")


def is_installed(library: str) -> bool:
    """Whether a library could be imported; does not import it."""
    return importlib.util.find_spec(library) is not None


def methods_of(library: str) -> tuple[Method, ...]:
    """The methods of a library other than torch. Imports it."""
    made: dict[str, Callable[[], dict[tuple[str, str], Callable[..., Any]]]] = {
        "numpy": _numpy, "jax": _jax, "tensorflow": _tensorflow,
    }  # fmt: skip
    return tuple(
        Method(name, call, task.removeprefix("fill "), library, fills=task.startswith("fill "))
        for (task, name), call in made[library]().items()
    )


def converted(source: Any, library: str) -> Any:
    """The work as an array of a library, its values and, in NumPy, its strides as they are."""
    match library:
        case "torch":
            return source
        case "numpy" if isinstance(source, dict):
            return {name: value.numpy() for name, value in source.items()}
        case "numpy":
            return source.numpy()
        case "jax":
            jnp: Any = importlib.import_module("jax.numpy")

            return jnp.array(source.numpy()).block_until_ready()
    tf: Any = importlib.import_module("tensorflow")

    return tf.constant(source.numpy())


def why_not(library: str, shape: str, dtype: str, regime: str, mode: str) -> str | None:
    """Why a library has no such cell, or None where it has."""
    if library == "torch":
        return None
    if mode != "plain":
        return f"{library} knows nothing of torch's {mode}"
    try:
        torch.empty(0, dtype=getattr(torch, dtype)).numpy()
    except TypeError:
        return f"{library} is given its arrays by NumPy, which has no {dtype}"
    if library == "numpy":
        return None
    if regime == "into":
        return f"arrays of {library} cannot be written"
    if shape in STRUCTURES or shape != "contiguous":
        return f"arrays of {library} have no strides"
    if library == "jax" and dtype in ("float64", "int64", "complex128"):
        return f"jax has {dtype} only in a mode of its own"
    return None


def _numpy() -> dict[tuple[str, str], Callable[..., Any]]:
    n = DUPLICATES
    return {
        ("copy", "ndarray.copy"): lambda x: x.copy(order="K"),
        ("copy", "np.copy"): np.copy,
        ("copy", "np.array"): np.array,
        ("copy", "np.asarray"): np.asarray,
        ("copy", "np.ascontiguousarray"): np.ascontiguousarray,
        ("copy", "ndarray.astype"): lambda x: x.astype(x.dtype),
        ("copy", "ndarray.view"): lambda x: x.view(),
        ("copy", "copy.deepcopy (NumPy)"): copy.deepcopy,
        ("copy", "np.empty_like and np.copyto"): _numpy_into_empty,
        ("fill copy", "np.copyto"): np.copyto,
        ("fill copy", "ndarray[...] = x"): lambda kept, x: kept.__setitem__(..., x),
        ("duplicate", "list of ndarray.copy"): lambda x: [x.copy(order="K") for _ in range(n)],
        ("duplicate", "np.stack"): lambda x: np.stack([x] * n),
        ("duplicate", "np.tile"): lambda x: np.tile(x, (n, *[1] * x.ndim)),
        ("duplicate", "np.repeat"): lambda x: np.repeat(x[None], n, axis=0),
        ("duplicate", "np.broadcast_to"): lambda x: np.broadcast_to(x, (n, *x.shape)),
    }


def _numpy_into_empty(source: Any) -> Any:
    made = np.empty_like(source)
    np.copyto(made, source)
    return made


def _jax() -> dict[tuple[str, str], Callable[..., Any]]:
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")

    n, done = DUPLICATES, jax.block_until_ready
    return {
        ("copy", "jax.Array.copy"): lambda x: done(x.copy()),
        ("copy", "jnp.array"): lambda x: done(jnp.array(x)),
        ("copy", "jnp.asarray"): lambda x: done(jnp.asarray(x)),
        ("copy", "jnp.copy"): lambda x: done(jnp.copy(x)),
        ("copy", "jax.device_put"): lambda x: done(jax.device_put(x)),
        ("copy", "copy.deepcopy (JAX)"): lambda x: done(copy.deepcopy(x)),
        ("duplicate", "list of jax.Array.copy"): lambda x: done([x.copy() for _ in range(n)]),
        ("duplicate", "jnp.stack"): lambda x: done(jnp.stack([x] * n)),
        ("duplicate", "jnp.tile"): lambda x: done(jnp.tile(x, (n, 1))),
        ("duplicate", "jnp.repeat"): lambda x: done(jnp.repeat(x[None], n, axis=0)),
        ("duplicate", "jnp.broadcast_to"): lambda x: done(jnp.broadcast_to(x, (n, *x.shape))),
    }


def _tensorflow() -> dict[tuple[str, str], Callable[..., Any]]:
    tf: Any = importlib.import_module("tensorflow")

    n = DUPLICATES
    return {
        ("copy", "tf.raw_ops.DeepCopy"): lambda x: tf.raw_ops.DeepCopy(x=x),
        ("copy", "tf.constant(numpy())"): lambda x: tf.constant(x.numpy()),
        ("copy", "tf.identity"): tf.identity,
        ("copy", "tf.tile by 1"): lambda x: tf.tile(x, [1]),
        ("copy", "tf.convert_to_tensor"): tf.convert_to_tensor,
        ("copy", "copy.deepcopy (TensorFlow)"): copy.deepcopy,
        ("duplicate", "list of tf.raw_ops.DeepCopy"): lambda x: [
            tf.raw_ops.DeepCopy(x=x) for _ in range(n)
        ],
        ("duplicate", "tf.stack"): lambda x: tf.stack([x] * n),
        ("duplicate", "tf.tile"): lambda x: tf.tile(x[None], [n, 1]),
        ("duplicate", "tf.repeat"): lambda x: tf.repeat(x[None], n, axis=0),
        ("duplicate", "tf.broadcast_to"): lambda x: tf.broadcast_to(x, [n, *x.shape]),
    }
