"""`truecopy bench`."""

import argparse
import importlib.util
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from truecopy.cli.command import CommandError, ExitCode
from truecopy.cli.printing import print_record

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


class Bench:
    """Measure what each way of copying costs here, and which of them make copies."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take methods, axes, a budget, and what to do with the result."""
        parser.add_argument(
            "--method", action="append", metavar="NAME",
            help="a method, FILE.py:FUNCTION, or copies, duplicates, uses, numpy, jax, tensorflow, all",
        )  # fmt: skip
        for name, example in (
            (
                "sizes",
                "1024,2^10,16MiB,2^0..2^20,2^0.. (elements, bytes, powers of two, what fits)",
            ),
            ("shapes", "contiguous,transposed,strided,expanded,channels_last,one_big,many_small"),
            ("dtypes", "float32,bfloat16,int64"),
            ("regimes", "recycled,fresh,into"),
            ("threads", "1,2"),
            ("modes", "plain,requires_grad,no_grad,inference"),
        ):
            parser.add_argument(f"--{name}", type=_list, metavar="A,B", help=example)
        parser.add_argument("--device", default="cpu", help="where the tensors are (default: cpu)")
        parser.add_argument(
            "--budget", type=_seconds, metavar="30s", help="time for everything: 30s, 2m"
        )
        parser.add_argument("--seed", type=int, default=0, help="of the order in the rounds")
        parser.add_argument(
            "--advise", action="store_true", help="which method for which case, in words"
        )
        parser.add_argument("--json", action="store_true", help="print the record as JSON")
        parser.add_argument(
            "--save", type=Path, metavar="FILE.json",
            help="written after every round; goes on where a killed run stopped",
        )  # fmt: skip
        parser.add_argument(
            "--plot", type=Path, metavar="FILE", help="the ratio over size, PNG or SVG"
        )
        parser.add_argument(
            "--time-plot", type=Path, metavar="FILE", help="time over size, PNG or SVG"
        )
        parser.add_argument("--html", type=Path, metavar="FILE", help="one page with everything")
        parser.add_argument("--force", action="store_true", help="replace files that exist")
        parser.add_argument(
            "--list", action="store_true", help="name the methods, and measure nothing"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Measure, print, and write what was asked for."""
        began = time.perf_counter()
        _refuse_outputs(args)
        if args.list:
            return _list_methods()
        from truecopy.measuring.api import bench

        with _progress() as tell:
            found = bench(
                args.method, sizes=args.sizes, shapes=args.shapes, regimes=args.regimes,
                threads=_whole_numbers(args.threads), budget=args.budget, dtypes=args.dtypes,
                modes=args.modes, device=args.device, seed=args.seed, save=args.save,
                force=args.force, progress=tell, spent=time.perf_counter() - began,
            )  # fmt: skip
        print_record(found, as_json=args.json)
        if args.advise:
            from truecopy.measuring.advice import advise

            print(f"\n{advise(found)}", file=sys.stderr if args.json else sys.stdout)
        _write(args, found)
        return ExitCode.CLEAN


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _seconds(text: str) -> float:
    found = _BUDGET.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 30s, 2m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def _whole_numbers(texts: list[str] | None) -> list[int] | None:
    if texts is None:
        return None
    for text in texts:
        if not text.isdigit():
            raise CommandError(f"--threads takes whole numbers, not {text!r}", ExitCode.USAGE)
    return [int(text) for text in texts]


def _refuse_outputs(args: argparse.Namespace) -> None:
    """Before minutes of measuring: files that would be replaced, names and tools that do not fit."""
    for path in (args.plot, args.time_plot):
        if path is None:
            continue
        if path.suffix not in (".png", ".svg"):
            raise CommandError(f"a plot is a .png or a .svg, not {str(path)!r}", ExitCode.USAGE)
        if importlib.util.find_spec("matplotlib") is None:
            raise CommandError("plots need matplotlib: pip install 'truecopy[plot]'")
    outputs = [path for path in (args.plot, args.time_plot, args.html) if path is not None]
    for path in outputs:
        if path.exists() and not args.force:
            raise CommandError(
                f"{str(path)!r} exists, and would be replaced: pass --force", ExitCode.USAGE
            )
    for path in [*outputs, *([args.save] if args.save else [])]:
        if not path.absolute().parent.is_dir():
            raise CommandError(
                f"cannot write {str(path)!r}: there is no such directory", ExitCode.USAGE
            )


def _write(args: argparse.Namespace, found: Any) -> None:
    for path, kind in ((args.plot, "ratio"), (args.time_plot, "time")):
        if path is not None:
            from truecopy.reports.benches.plots import save_plot

            save_plot(found, path, kind=kind, force=args.force)
    if args.html is not None:
        from truecopy.files.writing import write_text
        from truecopy.reports.benches.page import html

        write_text(html(found) + "\n", args.html, force=args.force)


def _list_methods() -> int:
    from truecopy.measuring.finding import every_method
    from truecopy.measuring.libraries import LIBRARIES, is_installed

    for library in LIBRARIES:
        if not is_installed(library):
            print(f"{library}: not installed")
            continue
        print(f"{library}:")
        for method in every_method(library):
            form = "into a kept destination" if method.fills else "returns new memory"
            print(f"  {method.name:32} {method.task:10} {form}")
    return ExitCode.CLEAN


@contextmanager
def _progress() -> Iterator[Callable[[Any], None] | None]:
    """A bar with the time left on the terminal, and nothing where there is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        BarColumn(), TextColumn("{task.percentage:3.0f} %"),
        TextColumn("at most {task.fields[left]:.0f} s left"), TextColumn("{task.description}", markup=False),
    )  # fmt: skip
    # Drawn when a round is over, by nobody in between: a thread that draws would be measured.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task("", total=1.0, left=0.0)

        def tell(now: Any) -> None:
            text = f"cell {now.cell} of {now.cells}, round {now.rounds}: {now.title}"
            bar.update(task, completed=now.part, left=now.seconds_left, description=text)
            bar.refresh()

        yield tell
