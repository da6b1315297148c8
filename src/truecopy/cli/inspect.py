"""`truecopy inspect FILE`."""

import argparse

from truecopy.cli.command import ExitCode, path, require_existing
from truecopy.cli.printing import print_record


class Inspect:
    """Show what is in a checkpoint: who shares memory, and how many bytes nobody reaches."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take one checkpoint."""
        parser.add_argument(
            "file",
            metavar="FILE",
            type=path,
            help=".pt, .pth, .safetensors, .npz, or a directory of shards",
        )
        parser.add_argument("--json", action="store_true", help="print the record as JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Read, and report; unreached bytes are a finding, a tie is not."""
        require_existing(args.file)
        from truecopy.files.inspection import inspect
        from truecopy.files.reading import read

        found = inspect(read(args.file))
        print_record(found, as_json=args.json)
        return ExitCode.CLEAN if found.is_clean else ExitCode.FINDINGS
