"""`truecopy compact IN OUT`."""

import argparse

from truecopy.cli.command import CommandError, ExitCode, path, require_existing
from truecopy.cli.printing import print_record


class Compact:
    """Write a checkpoint again without the bytes that nobody reaches; ties are kept."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take a checkpoint and a place for the smaller one."""
        parser.add_argument("source", metavar="IN", type=path, help="the checkpoint to read")
        parser.add_argument("target", metavar="OUT", type=path, help="the file to write")
        parser.add_argument("--force", action="store_true", help="replace OUT where it exists")
        parser.add_argument("--json", action="store_true", help="print the record as JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Read, write, verify what was written, and report."""
        require_existing(args.source)
        if args.target.exists() and not args.force:
            raise CommandError(
                f"{str(args.target)!r} exists, and would be replaced: pass --force",
                ExitCode.USAGE,
            )
        from truecopy.files.compaction import compact

        print_record(compact(args.source, args.target, force=args.force), as_json=args.json)
        return ExitCode.CLEAN
