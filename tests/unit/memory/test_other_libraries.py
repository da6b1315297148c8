"""JAX and TensorFlow, the real packages, each in a process of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = str(Path(__file__).parents[3] / "src")

JAX = """
import warnings
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
print(sorted(h.path for h in tc.who_shares(x)), sorted(h.path for h in tc.who_shares(t)))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    copied = tc.copy({"x": x, "t": t, "n": n})
print(type(copied["x"]) is type(x), tc.relate(copied, {"x": x, "t": t}).kind, bool((copied["x"] == x).all()))
print([str(one.message) for one in told], tc.relate(copied["t"], copied["n"]).kind)
"""

TENSORFLOW = """
import os, warnings
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
print("__main__.x" in [h.path for h in tc.who_shares(t)], "__main__.t" in [h.path for h in tc.who_shares(x)])
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    copied = tc.copy({"x": x, "t": t})
equal = copied["x"].numpy().tolist() == n.tolist()
print(type(copied["x"]) is type(x), tc.relate(copied, {"x": x, "t": t}).kind, equal)
print([str(one.message) for one in told])
"""

SCRIPTS = {"jax": JAX, "tensorflow": TENSORFLOW}
LOST = "obj['x'] of the copy is not tied to obj['t']: {} makes memory of its own, and takes none"
EXPECTED = {
    "jax": [
        "identical overlapping disjoint",
        "identical disjoint",
        "1",
        "['__main__.n', '__main__.t'] ['__main__.n', '__main__.x']",
        "True disjoint True",
        f"[{LOST.format('ArrayImpl')!r}] identical",
    ],
    "tensorflow": [
        "identical overlapping disjoint",
        "True disjoint",
        "1",
        "unknown unknown",
        "[1.0, 2.0] False [b'a', b'b']",
        "True True",
        "True disjoint True",
        f"[{LOST.format('EagerTensor')!r}]",
    ],
}
ran: set[str] = set()


@pytest.mark.parametrize("library", SCRIPTS)
def test_arrays_of_another_library(library: str) -> None:
    """CPU arrays are exact to the byte, shared with torch and numpy or not, bfloat16 too.

    They are found as holders, and copied into memory of their own; that a bridge to torch ends there is said.
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
