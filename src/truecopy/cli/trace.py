"""`truecopy trace SCRIPT` and `truecopy trace -m MODULE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from truecopy.cli.command import CommandError, ExitCode, path, require_existing
from truecopy.cli.printing import print_record


class Trace:
    """Run a program as itself, and show every copy that it made: by line, with the reason."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take a program with its arguments, and what to do with the record."""
        parser.usage = "truecopy trace [options] (SCRIPT | -m MODULE) [ARGS ...]"
        parser.add_argument(
            "-m", dest="module", metavar="MODULE", help="run a module, as `python -m` does"
        )
        parser.add_argument("--out", metavar="FILE", type=path, help="write the record as JSON")
        parser.add_argument(
            "--fail-on",
            metavar="LIMITS",
            default="",
            help="end with 1 where one is passed: hidden-copies=0,peak=1.2GiB "
            "(also hidden-bytes, copies, copied, allocated, growth, nodes)",
        )
        parser.add_argument(
            "--exact", action="store_true", help="use the profiler, and see inside of operations"
        )
        parser.add_argument("--json", action="store_true", help="print the record as JSON")
        parser.add_argument("--quiet", action="store_true", help="print no report")
        parser.add_argument(
            "program",
            metavar="SCRIPT",
            nargs=argparse.REMAINDER,
            help="what to run, and its arguments",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Run it, report, and end with the program's own code, or with 1 where a limit is passed."""
        if args.module is None:
            if not args.program:
                raise CommandError("no program to run: name a script, or -m MODULE", ExitCode.USAGE)
            require_existing(Path(args.program[0]))
        from truecopy.cli.programs import Program
        from truecopy.tracing.limits import read_limits

        limits = read_limits(args.fail_on)
        program = Program.find(args.module, args.program)
        run, code = program.trace(exact=args.exact)
        record = run.record
        if args.out is not None:
            record.save(args.out)
        if not args.quiet:
            print_record(record, as_json=args.json)
        return code or _judge(record, limits)


def _judge(record: object, limits: dict[str, int]) -> int:
    from truecopy.tracing.limits import passed

    broken = passed(record, limits)  # type: ignore[arg-type]
    for one in broken:
        print(f"truecopy trace: {one.name} is {one.got:,}, over {one.limit:,}", file=sys.stderr)
    return ExitCode.FINDINGS if broken else ExitCode.CLEAN
