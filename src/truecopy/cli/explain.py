"""`truecopy explain NAME`."""

import argparse
from pathlib import Path

from truecopy.cli.command import CommandError, ExitCode
from truecopy.cli.printing import print_record


class Explain:
    """Show what an operation of torch does with memory: when a view, when a copy, and the usual trap."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take one name, or a place for the page of all."""
        parser.add_argument(
            "name", metavar="NAME", nargs="?", help="reshape, torch.Tensor.contiguous, F.relu, add_"
        )
        parser.add_argument(
            "--page",
            metavar="FILE",
            type=Path,
            help="write all operations as one page to search in",
        )
        parser.add_argument("--force", action="store_true", help="replace FILE where it exists")
        parser.add_argument("--json", action="store_true", help="print the record as JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Look it up, and report."""
        if (args.name is None) == (args.page is None):
            raise CommandError("pass a NAME, or --page FILE for all of them", ExitCode.USAGE)
        if args.page is not None:
            return _write_page(args.page, force=args.force)
        from truecopy.explaining.lookup import explain

        print_record(explain(args.name), as_json=args.json)
        return ExitCode.CLEAN


def _write_page(path: Path, *, force: bool) -> int:
    if path.exists() and not force:
        raise CommandError(
            f"{str(path)!r} exists, and would be replaced: pass --force", ExitCode.USAGE
        )
    from truecopy.explaining.lookup import all_explanations
    from truecopy.files.writing import write_text
    from truecopy.reports.operations import html

    write_text(html(all_explanations()) + "\n", path, force=force)
    return ExitCode.CLEAN
