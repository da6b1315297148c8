"""What users' CI takes from here: action.yml, the pre-commit hook, and the example project that uses both."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci"
COPYING = "(weights @ value).transpose(1, 2)"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example project, in a place of its own."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project"))


def make_worse(project: Path) -> None:
    """A change that copies more in each step."""
    source = (project / "train.py").read_text()
    assert source.count(COPYING) == 1
    (project / "train.py").write_text(
        source.replace(COPYING, f"{COPYING}.contiguous().mT.reshape(2, 8, 4, 8)")
    )


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def environment(project: Path, **more: str) -> dict[str, str]:
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ, "PATH": commands, "RUNNER_TEMP": str(project.parent),
        "GITHUB_STEP_SUMMARY": str(project.parent / "summary.md"), **more,
    }  # fmt: skip


def run_action(project: Path, *, first: int = 0, **given: str) -> tuple[int, str]:
    """The steps of action.yml as a runner takes them; the code of the last, and the job's summary."""
    action = parsed(ROOT / "action.yml")
    inputs = {name: one.get("default") for name, one in action["inputs"].items()} | given
    assert all(type(value) is str for value in inputs.values()), "required, and not given"
    code = 0
    for step in action["runs"]["steps"][first:]:
        env = {
            name: inputs[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, value in step["env"].items()
        }
        code = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=project, env=environment(project, **env), check=False,
        ).returncode  # fmt: skip
        if code:
            break
    summary = project.parent / "summary.md"
    return code, summary.read_text() if summary.exists() else ""


def the_step_of_the_example() -> dict[str, str]:
    """What the example's workflow gives the action."""
    (job,) = parsed(EXAMPLE / "workflow.yml")["jobs"].values()
    given: dict[str, str] = job["steps"][-1]["with"]
    return given


def test_nothing_got_worse(project: Path) -> None:
    """The example is as its baseline says: the job passes, and its summary says so."""
    code, summary = run_action(project, **the_step_of_the_example())
    assert code == 0
    assert summary.startswith("### `baseline.json` and ")
    assert "no worse" in summary


def test_something_got_worse(project: Path) -> None:
    """A line that copies more fails the job, and the summary names it; asked to only tell, it passes."""
    make_worse(project)
    code, summary = run_action(project, **the_step_of_the_example())
    assert code == 1
    assert "**worse**" in summary
    assert "`train.py:22`" in summary
    only_tell = {**the_step_of_the_example(), "fail-on-worse": "false"}
    assert run_action(project, first=1, **only_tell)[0] == 0
    # a baseline that is missing is no clean run, whatever was asked
    assert run_action(project, first=1, **{**only_tell, "baseline": "no.json"})[0] == 3


def test_the_hook(project: Path) -> None:
    """The hook, with the arguments of the example's configuration, passes, and fails where it should."""
    (hook,) = parsed(ROOT / ".pre-commit-hooks.yaml")
    (configured,) = parsed(EXAMPLE / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert configured["id"] == hook["id"]
    command = [*shlex.split(hook["entry"]), *configured["args"]]

    def run() -> int:
        return subprocess.run(
            command, cwd=project, env=environment(project), check=False, stdout=subprocess.DEVNULL
        ).returncode

    assert run() == 0
    make_worse(project)
    assert run() == 1
