"""`truecopy compare A B`."""

import argparse
from pathlib import Path
from typing import Any

from truecopy.cli.command import CommandError, ExitCode, require_existing
from truecopy.cli.printing import print_record


class Compare:
    """Show where two checkpoints differ, or what got better and worse between two traces."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take two checkpoints, or two records of one kind."""
        parser.add_argument(
            "first", metavar="A", type=Path, help="a checkpoint, or a record printed with --json"
        )
        parser.add_argument("second", metavar="B", type=Path, help="what to set beside it")
        parser.add_argument(
            "--rtol", type=float, default=0.0, metavar="R",
            help="count |a - b| <= atol + R * |b| as equal (default: equal bits)",
        )  # fmt: skip
        parser.add_argument(
            "--atol", type=float, default=0.0, metavar="T", help="the part that is not relative"
        )
        parser.add_argument(
            "--format", choices=("terminal", "markdown"), default="terminal",
            help="markdown is for the summary of a CI job (default: terminal)",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print the record as JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Read both, and report."""
        if args.json and args.format != "terminal":
            raise CommandError("--json and --format exclude each other", ExitCode.USAGE)
        require_existing(args.first, args.second)
        found = _set_beside(args)
        if args.format == "markdown":
            from truecopy.reports.markdown import markdown

            print(markdown(found))
        else:
            print_record(found, as_json=args.json)
        return ExitCode.CLEAN if found.is_clean else ExitCode.FINDINGS


def _set_beside(args: argparse.Namespace) -> Any:
    """Two traces by line, everything else by path."""
    from truecopy.files.saved_records import kind_of

    kinds = kind_of(args.first), kind_of(args.second)
    if kinds == ("trace", "trace"):
        from truecopy.reports.saved import load
        from truecopy.tracing.comparison import compare_traces

        if args.rtol or args.atol:
            raise CommandError("traces are compared without --rtol and --atol", ExitCode.USAGE)
        names = (str(args.first), str(args.second))
        return compare_traces(load(args.first), load(args.second), names)
    from truecopy.files.beside import set_beside

    return set_beside(args.first, args.second, rtol=args.rtol, atol=args.atol)
