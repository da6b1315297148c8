"""JAX and TensorFlow, the real packages, each in a process of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = str(Path(__file__).parents[3] / "src")

JAX = """
import jax, jax.numpy as jnp, numpy as np, torch
import truecopy as tc
jax.config.update("jax_platforms", "cpu")
x = jnp.arange(64.0)
n = np.from_dlpack(x)
t = torch.utils.dlpack.from_dlpack(x)
half = jnp.zeros(64, jnp.bfloat16)
h = torch.utils.dlpack.from_dlpack(half)
print(tc.relate(x, n).kind, tc.relate(x, t[3:]).kind, tc.relate(x, x + 1).kind)
print(tc.relate(half, h).kind, tc.relate(x, torch.zeros(64)).kind)
print(len(tc.aliases({"x": x, "t": t, "own": x + 1}).groups))
"""

TENSORFLOW = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, torch
import tensorflow as tf
import truecopy as tc
x = tf.range(64.0)
t = torch.utils.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(x))
n = x.numpy()
shares = np.shares_memory(n, t.numpy())
print(tc.relate(x, t).kind, tc.relate(x, t[3:]).kind, tc.relate(x, x + 1).kind)
print(tc.relate(x, n).shares_memory == shares, tc.relate(x, torch.zeros(64)).kind)
print(len(tc.aliases({"x": x, "t": t, "own": x + 1}).groups))
variable, words = tf.Variable([1.0, 2.0]), tf.constant(["a", "b"])
print(tc.relate(variable, t).kind, tc.relate(words, t).kind)
copied = tc.copy([variable, words])
print(copied[0].numpy().tolist(), copied[0] is variable, copied[1].numpy().tolist())
"""

SCRIPTS = {"jax": JAX, "tensorflow": TENSORFLOW}
EXPECTED = {
    "jax": ["identical overlapping disjoint", "identical disjoint", "1"],
    "tensorflow": [
        "identical overlapping disjoint",
        "True disjoint",
        "1",
        "unknown unknown",
        "[1.0, 2.0] False [b'a', b'b']",
    ],
}
ran: set[str] = set()


@pytest.mark.parametrize("library", SCRIPTS)
def test_arrays_of_another_library(library: str) -> None:
    """CPU arrays are exact to the byte, shared with torch and numpy or not, bfloat16 too.

    TensorFlow's variables and strings are unknown: asked for DLPack, they would end the process.
    """
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPTS[library]],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": SOURCES, "PATH": "", "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == EXPECTED[library]
    ran.add(library)


def test_what_is_installed_was_really_run(request: pytest.FixtureRequest) -> None:
    """A skip means that a package is missing, and nothing else."""
    if not all(f"[{library}]" in str(request.session.items) for library in SCRIPTS):
        pytest.skip("only a part of this file was asked for")
    assert ran == {library for library in SCRIPTS if importlib.util.find_spec(library)}
