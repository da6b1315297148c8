"""The command `truecopy`. Answers `--help` and mistakes without importing torch, numpy or rich."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from inspect import cleandoc

from truecopy import __version__
from truecopy.cli.command import Command, CommandError, ExitCode
from truecopy.cli.compact import Compact
from truecopy.cli.compare import Compare
from truecopy.cli.inspect import Inspect
from truecopy.cli.trace import Trace

COMMANDS: dict[str, Command] = {
    type(command).__name__.lower(): command
    for command in (Inspect(), Compact(), Compare(), Trace())
}

# As a shell would name the signal that ended us: 128 + SIGINT, 128 + SIGPIPE.
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 clean, 1 findings, 2 usage, 3 could not look."""
    try:
        code = _answer(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone, and Python would complain once more when it flushes
        # at exit: https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def _answer(argv: Sequence[str]) -> int:
    try:
        chosen = _parser().parse_args(argv)
        name = chosen.command
        command = COMMANDS[name]
        args = _parser_of(name, command).parse_args(chosen.arguments)
    except SystemExit as done:  # argparse has printed help, a version, or what was wrong
        return int(done.code or 0)
    try:
        return command.run(args)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - the edge of the program: a sentence, not a stack
        if chosen.traceback or args.traceback:
            traceback.print_exc()
        return _explain(name, error)


def _explain(name: str, error: Exception) -> int:
    """Print what went wrong, and return the exit code that says so."""
    from truecopy.errors import TruecopyError, UsageError

    code: int = ExitCode.COULD_NOT_LOOK
    if isinstance(error, CommandError):
        code = error.exit_code
    elif isinstance(error, UsageError):
        code = ExitCode.USAGE
    text = str(error)
    if not isinstance(error, CommandError | TruecopyError | OSError):
        text = f"{type(error).__name__}: {text} (--traceback shows where)"
    print(f"truecopy {name}: {_printable(text)}", file=sys.stderr)
    return code


def _printable(text: str) -> str:
    """Show control characters instead of obeying them: names come from files, files from anyone."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:{width}}  {_help_of(command)}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="truecopy",
        usage="truecopy [-h] [--version] [--traceback] COMMAND ...",
        description="Is this a copy, or the same memory?",
        epilog="commands:\n"
        + "\n".join(lines)
        + "\n\n`truecopy COMMAND --help` tells more about one."
        + "\nexit codes: 0 clean, 1 findings, 2 usage, 3 could not look",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"truecopy {__version__}")
    _add_traceback(parser)
    parser.add_argument("command", metavar="COMMAND", type=_command, help="one of those below")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS
    )
    return parser


def _parser_of(name: str, command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"truecopy {name}", description=_help_of(command), allow_abbrev=False
    )
    _add_traceback(parser)
    command.add_arguments(parser)
    return parser


def _add_traceback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")


def _help_of(command: Command) -> str:
    return cleandoc(command.__doc__ or "")


def _command(name: str) -> str:
    """Return the name of a command as it is; refuse any other, with the nearest that there is."""
    if name in COMMANDS:
        return name
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
    raise argparse.ArgumentTypeError(f"no command is called {name!r}: {hint}")
