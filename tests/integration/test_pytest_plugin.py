"""The pytest plugin, in runs of pytest in processes of their own.

It is loaded by its module: its entry point is seen once the package is installed again, and must not
load it a second time.
"""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

OPTIONS = (
    "-p", "no:truecopy", "-p", "truecopy.integrations.pytest_plugin", "-p", "no:cacheprovider",
    "--strict-markers", "-W", "error",
)  # fmt: skip


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(tests)
    return pytester.runpytest_subprocess(*OPTIONS, *options)


def test_it_costs_nothing_until_it_is_used(pytester: pytest.Pytester) -> None:
    """A suite that does not use it imports neither torch nor numpy."""
    result = run(
        pytester,
        """
        import sys

        def test_nothing_was_imported():
            assert "truecopy.integrations.pytest_plugin" in sys.modules
            assert not {"torch", "numpy", "rich", "truecopy.tracing"} & set(sys.modules)
        """,
    )
    result.assert_outcomes(passed=1)


def test_limits(pytester: pytest.Pytester) -> None:
    """A test that passes a limit fails with the line; nearer markers go before those of class and module.

    A marker that means nothing fails its test too.
    """
    result = run(
        pytester,
        """
        import unittest
        import pytest, torch

        pytestmark = pytest.mark.truecopy(hidden_copies=0)
        X = torch.zeros(64, 96)

        @pytest.fixture
        def made():
            yield X.t().reshape(-1)  # what a fixture does is not the test's
            X.t().reshape(-1)

        def test_hidden():
            flat = X.t().reshape(-1)

        def test_clean(made):
            assert made.shape == (6144,)

        @pytest.mark.truecopy(hidden_copies=1, allocated="24 KiB")
        def test_nearer():
            X.t().reshape(-1)

        class TestCopies:
            pytestmark = pytest.mark.truecopy(copies=0)

            def test_of_class(self):
                X.clone()

            def test_of_class_and_module(self):
                X.t()

        class TestOld(unittest.TestCase):
            def test_unittest(self):
                X.t().reshape(-1)

        @pytest.mark.truecopy(growth=0)
        def test_growth():
            kept = []
            for i in range(8):
                kept.append(X + i)

        def test_fixture(truecopy_expect):
            with truecopy_expect(peak="1 KiB"):
                X + 1

        def test_own_failure():
            X.t().reshape(-1)
            assert X.sum() == 1

        @pytest.mark.xfail(raises=AssertionError, strict=True)
        def test_expected():
            X.t().reshape(-1)

        def test_skipped():
            X.t().reshape(-1)
            pytest.skip("none here")

        @pytest.mark.truecopy(0)
        def test_positional(): pass

        @pytest.mark.truecopy(peek=0)
        def test_wrong_name(): pass

        @pytest.mark.truecopy(peak="1 parsec")
        def test_unit(): pass
        """,
    )
    result.assert_outcomes(passed=3, failed=9, xfailed=1, skipped=1)
    shown = result.stdout.str()
    for name in ("hidden", "of_class", "unittest", "growth", "fixture", "own_failure"):
        assert f"test_{name} - " in shown
    assert "`flat = X.t().reshape(-1)`" in shown
    assert "reshape copied: strides (1, 96) cannot be viewed as (6144,)" in shown
    assert "`kept.append(X + i)`" in shown
    assert "test_own_failure - assert" in shown
    for word in ("without a name", "unexpected keyword argument 'peek'", "is no number of bytes"):
        assert word in shown


def test_results_that_share_memory(pytester: pytest.Pytester) -> None:
    """Told at the line, or at the end if they came to share later; by the names of the test."""
    result = run(
        pytester,
        """
        import torch

        def test_at_once(truecopy_independent):
            first = torch.zeros(4)
            second = first[1:]
            truecopy_independent(first, second)
            raise RuntimeError("not reached")

        def test_later(truecopy_independent):
            ours, theirs = {"w": torch.zeros(4)}, {"w": torch.zeros(4)}
            truecopy_independent(ours)
            truecopy_independent(other=theirs)
            ours["w"] = theirs["w"].view(2, 2)

        def test_each_with_each(truecopy_independent):
            base = torch.zeros(9)
            truecopy_independent(base[:3], base[3:6], base[5:])

        def test_apart(truecopy_independent):
            base = torch.zeros(9)
            rows = base.view(3, 3)
            truecopy_independent(*rows)
            truecopy_independent(rows.clone(), "no tensor")

        def test_one_result_given_twice(truecopy_independent):
            first, second = torch.zeros(4), torch.zeros(4)
            truecopy_independent(first, second)
            truecopy_independent(first, torch.zeros(4))
        """,
    )
    result.assert_outcomes(passed=2, failed=3)
    shown = result.stdout.str()
    assert "NotIndependent: `first and second`" in shown
    assert "NotIndependent: `ours['w'] and other['w']`" in shown
    assert "NotIndependent: `result 1 and result 2`" in shown


def test_the_page(pytester: pytest.Pytester) -> None:
    """The examples of docs/pytest.md do what the page says, and fail with the text that it shows."""
    page = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text()
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    tests = [text for language, text in blocks if language == "python"]
    shown = [text for language, text in blocks if language == "text"]
    pytester.makepyfile(test_flatten="\n".join(tests))
    result = pytester.runpytest_subprocess(*OPTIONS)

    result.assert_outcomes(passed=1, failed=2)
    said = " ".join(result.stdout.str().replace(f"{pytester.path}/", "").split()).replace("E ", "")
    for text in shown:
        assert " ".join(text.removeprefix("E").split()) in said
