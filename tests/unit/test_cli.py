"""The frame around every command: exit codes, sentences instead of stacks, closed pipes."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

import pytest

from truecopy import cli, errors
from truecopy.cli.command import CommandError


class Doing:
    """Does what a test wants."""

    def __init__(self, action: Callable[[], int]) -> None:
        self.action = action

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def run(self, args: Namespace) -> int:  # noqa: ARG002 - the Protocol's
        return self.action()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command `doing` that calls what it is given."""

    def run(action: Callable[[], int], *options: str) -> int:
        monkeypatch.setitem(cli.COMMANDS, "doing", Doing(action))
        return cli.main([*options, "doing"])

    return run


def raising(error: BaseException) -> Callable[[], int]:
    def action() -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CommandError("no luck"), 3, "truecopy doing: no luck\n"),
        (CommandError("no luck", 2), 2, "truecopy doing: no luck\n"),
        (errors.UsageError("not so"), 2, "truecopy doing: not so.\n"),
        (errors.CannotRead("not a file"), 3, "truecopy doing: not a file.\n"),
        (OSError(5, "I/O error", "a"), 3, "truecopy doing: [Errno 5] I/O error: 'a'\n"),
        (CommandError("name \x1b[2J"), 3, "truecopy doing: name \\x1b[2J\n"),
        (
            ValueError("a bug"),
            3,
            "truecopy doing: ValueError: a bug (--traceback shows where)\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_a_sentence_and_a_code(
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    """Whatever goes wrong is one sentence on stderr, made safe to print, and an exit code."""
    assert run(raising(error)) == code
    assert capsys.readouterr() == ("", text)


def test_traceback_on_request(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """`--traceback` adds the stack and changes nothing else."""
    assert run(raising(CommandError("no luck")), "--traceback") == 3
    err = capsys.readouterr().err
    assert err.startswith("Traceback ")
    assert err.endswith("truecopy doing: no luck\n")


def test_a_command_decides_its_code(run: Callable[..., int]) -> None:
    """What a command returns is what the shell gets."""
    assert run(lambda: 1) == 1


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["inspct"], "no command is called 'inspct': did you mean inspect?"),
        (["zzz"], "no command is called 'zzz': there are inspect, compact, compare"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_near_misses(capsys: pytest.CaptureFixture[str], argv: list[str], text: str) -> None:
    """A mistyped command is answered with the one that was meant."""
    assert cli.main(argv) == 2
    assert text in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` lists each command with the first words of its docstring."""
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert f"  {name:{max(map(len, cli.COMMANDS))}}  {command.__doc__}" in out


def test_a_closed_pipe_is_quiet() -> None:
    """`truecopy ... | head -1` prints no traceback, not even when Python flushes at exit."""
    script = (
        "import sys\n"
        "from truecopy import cli\n"
        "class Talk:\n"
        "    def add_arguments(self, parser): pass\n"
        "    def run(self, args):\n"
        "        print('line\\n' * 100_000)\n"
        "        return 0\n"
        "cli.COMMANDS['talk'] = Talk()\n"
        "sys.exit(cli.main(['talk']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as talker:
        assert talker.stdout is not None
        assert talker.stderr is not None
        talker.stdout.readline()
        talker.stdout.close()
        assert talker.stderr.read() == ""
    assert talker.returncode == 141
