"""What an integration ties in is imported with it, and by nothing else."""

import subprocess
import sys

import pytest

OTHERS = {"lightning", "transformers", "accelerate"}


def packages_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    "code",
    [
        "import truecopy, truecopy.integrations, truecopy.integrations.best_of_run",
        "import torch, truecopy as tc; tc.Best(mode='min', x=torch.ones(1)).offer(1.0)",
    ],
)
def test_nothing_is_imported_unasked(code: str) -> None:
    """Neither the package nor the verbs import Lightning, transformers or accelerate."""
    assert not packages_after(code) & OTHERS


def test_this_test_can_fail() -> None:
    """One who imports the integration has its package."""
    found = packages_after("import truecopy.integrations.lightning")
    assert "lightning" in found
