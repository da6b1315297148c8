"""CPython's own tests of `copy.deepcopy`, with `truecopy.deepcopy` in its place."""

import json
import subprocess
import sys

import pytest

# The module's name is bound in `copy` before the tests are loaded; they call `copy.deepcopy`.
RUN = """
import copy, json, sys, unittest
if sys.argv[1] == "ours":
    import truecopy
    copy.deepcopy = truecopy.deepcopy
else:
    copy.deepcopy = lambda x, memo=None: x
from test import test_copy
suite = unittest.defaultTestLoader.loadTestsFromModule(test_copy)
result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(suite)
print(json.dumps({
    "ran": result.testsRun,
    "wrong": [str(test) for test, _ in (*result.failures, *result.errors)],
    "skipped": len(result.skipped),
}))
"""


def run(which: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", RUN, which], capture_output=True, text=True, check=True, timeout=250
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(autouse=True)
def _tests_are_here() -> None:
    pytest.importorskip("test.test_copy", reason="this Python comes without its own tests")


def test_deepcopy_passes_the_tests_of_the_standard_library() -> None:
    """`tc.deepcopy` is a drop-in: every test of the module that tests deepcopy holds."""
    result = run("ours")
    assert result["wrong"] == []
    assert result["ran"] > 70
    assert result["skipped"] == 0


def test_the_tests_of_the_standard_library_can_fail() -> None:
    """A deepcopy that returns its argument is found out, so the test above tests something."""
    assert len(run("identity")["wrong"]) > 20
