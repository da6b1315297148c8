"""`truecopy report RECORD`."""

import argparse
import sys
from typing import Any

from truecopy.cli.command import CommandError, ExitCode, path, require_existing
from truecopy.cli.printing import print_record
from truecopy.reports.forms import FORMS

_DRAWN = ("html", "perfetto")
"""Forms that are for a program and not for eyes."""


class Report:
    """Show a record again: in the terminal, as one HTML page, for Perfetto, as Markdown or JSON."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take a record, the form of the report, and where to write it."""
        parser.add_argument(
            "record", metavar="RECORD", type=path, help="what `save` or --json has written"
        )
        parser.add_argument(
            "--format", choices=FORMS,
            default="terminal", help="the form of the report (default: terminal)",
        )  # fmt: skip
        parser.add_argument(
            "--rank", metavar="N", type=int, help="of the traces of several ranks, this one"
        )
        parser.add_argument(
            "--out", metavar="FILE", type=path, help="write it there, and not to the terminal"
        )
        parser.add_argument("--force", action="store_true", help="replace FILE where it exists")

    def run(self, args: argparse.Namespace) -> int:
        """Read the record, make the report, and print or write it; what it found is no finding here."""
        require_existing(args.record)
        _refuse(args)
        from truecopy.reports.forms import text_of
        from truecopy.reports.saved import load

        record = load(args.record)
        if args.rank is not None:
            record = _of_rank(record, args.rank)
        if args.out is not None:
            from truecopy.files.writing import write_text

            write_text(text_of(record, args.format) + "\n", args.out, force=args.force)
        elif args.format == "terminal":
            print_record(record, as_json=False)
        else:
            print(text_of(record, args.format))
        return ExitCode.CLEAN


def _of_rank(record: Any, rank: int) -> Any:
    if record.kind != "traces":
        raise CommandError("--rank is for the traces of several ranks", ExitCode.USAGE)
    return record.of_rank(rank)


def _refuse(args: argparse.Namespace) -> None:
    """Refuse what would be lost or unreadable, before anything heavy is imported."""
    if args.out is None and args.force:
        raise CommandError("--force is for --out FILE, and there is none", ExitCode.USAGE)
    if args.out is None and args.format in _DRAWN and sys.stdout.isatty():
        raise CommandError(
            f"{args.format} is not for a terminal: pass --out FILE, or send the output to one",
            ExitCode.USAGE,
        )
    if args.out is not None and args.out.exists() and not args.force:
        raise CommandError(
            f"{str(args.out)!r} exists, and would be replaced: pass --force", ExitCode.USAGE
        )
