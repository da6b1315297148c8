"""How commands print a record: as JSON, or as the report that fits the terminal."""

import os
import shutil
import sys
from typing import Any


def print_record(record: Any, *, as_json: bool) -> None:
    """One record on stdout. Colors and the width of the window only where there is a window."""
    if as_json:
        from truecopy.reports.json import dumps

        print(dumps(record))
        return
    from truecopy.reports.terminal import WIDTH, render

    if not sys.stdout.isatty():
        print(render(record))
        return
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    print(render(record, width=max(width, 60), color="NO_COLOR" not in os.environ))
