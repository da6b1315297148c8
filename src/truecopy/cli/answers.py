"""`truecopy answers [TOPIC]`."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from truecopy.answers.topics import TOPICS, load
from truecopy.cli.command import ExitCode
from truecopy.cli.printing import print_record


class Answers:
    """Answer the five old questions on copying, with every proof run on this installation."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take one topic, or none for all of them."""
        parser.add_argument(
            "topic", metavar="TOPIC", nargs="?", type=_topic,
            help="one of " + ", ".join(TOPICS) + " (default: all)",
        )  # fmt: skip
        parser.add_argument(
            "--seconds", type=_seconds, default=1.0, metavar="S",
            help="how long to measure for each claim about time (default: 1)",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print the record as JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Run the proofs, and report; a verdict that is not so here is a finding."""
        with _logs_apart() as announce:
            from truecopy.answers.running import run

            chosen = [args.topic] if args.topic else list(TOPICS)
            found = run([load(topic) for topic in chosen], seconds=args.seconds, announce=announce)
        print_record(found, as_json=args.json)
        return ExitCode.CLEAN if found.is_clean else ExitCode.FINDINGS


def _topic(name: str) -> str:
    """Return the name of a topic as it is; refuse any other, with the nearest that there is."""
    if name in TOPICS:
        return name
    near = get_close_matches(name.lower(), TOPICS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TOPICS)}"
    raise argparse.ArgumentTypeError(f"no topic is called {name!r}: {hint}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds between 0 and 3600")
    return seconds


@contextmanager
def _logs_apart() -> Iterator[Callable[[str], None]]:
    """What libraries log from below Python goes nowhere; a line on a terminal tells how far we are.

    torch's profiler and TensorFlow write to the descriptor itself, and no option of theirs stops it.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield lambda _what: None
        return
    window = os.isatty(kept)

    def announce(what: str) -> None:
        if window:
            os.write(kept, f"\r\x1b[K{what}".encode())

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield announce
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        announce("")
        os.close(nowhere)
        os.close(kept)
