"""What a command is, and how it says that it cannot go on. Imports nothing heavy."""

import argparse
from enum import IntEnum
from pathlib import Path
from typing import Protocol


class ExitCode(IntEnum):
    """What `truecopy` tells the shell."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    COULD_NOT_LOOK = 3


class Command(Protocol):
    """One word after `truecopy`: the class name in lower case; its docstring is the help text."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of this command to its own parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return an exit code; raise CommandError where it cannot be done."""


class CommandError(Exception):
    """A sentence for the user, and the exit code that goes with it."""

    def __init__(self, message: str, exit_code: int = ExitCode.COULD_NOT_LOOK) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def path(text: str) -> Path:
    """A path from an argument; an empty one is a shell's variable without a value, not the directory."""
    if not text:
        raise argparse.ArgumentTypeError("a name is needed, and this one is empty")
    return Path(text)


def require_existing(*paths: Path) -> None:
    """Refuse paths where nothing is, before anything heavy is imported to read them."""
    for one in paths:
        if not one.exists():
            what = "a link to nothing" if one.is_symlink() else "no such file or directory"
            raise CommandError(f"cannot look at {str(one)!r}: there is {what}")
