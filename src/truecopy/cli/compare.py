"""`truecopy compare A B`."""

import argparse

from truecopy.cli.command import CommandError, ExitCode, path, require_existing
from truecopy.cli.printing import print_record


class Compare:
    """Show where two checkpoints differ, or what got better and worse between two traces."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take two checkpoints, or two records of one kind."""
        parser.add_argument(
            "first", metavar="A", type=path, help="a checkpoint, or a record printed with --json"
        )
        parser.add_argument("second", metavar="B", type=path, help="what to set beside it")
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
        from truecopy.comparing.beside import set_beside

        found = set_beside(args.first, args.second, rtol=args.rtol, atol=args.atol)
        if args.format == "markdown":
            from truecopy.reports.markdown import markdown

            print(markdown(found))
        else:
            print_record(found, as_json=args.json)
        return ExitCode.CLEAN if found.is_clean else ExitCode.FINDINGS
