"""The frame of every page: data that cannot do anything, and two files beside it, named by their hashes."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

_FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>truecopy</title>
<style>{style}</style>
</head>
<body>
<noscript><p class="noscript">This page draws itself with JavaScript, which is off.
<code>truecopy report RECORD</code> prints the same in a terminal.</p></noscript>
<script id="data" type="application/json">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(data: Any, *, shown_by: str) -> str:
    """A page of its own for JSON-able data, shown by `{shown_by}.js` and `{shown_by}.css` of this room.

    The data stands in a block that no browser runs, and the scripts put it on the page as text alone.
    The policy in the head allows this one script and this one style, by their hashes, and no request.
    """
    style = _file("page.css") + _file(f"{shown_by}.css")
    script = f'"use strict";\n{_file("page.js")}{_file(f"{shown_by}.js")}'
    policy = (
        f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return _FRAME.format(policy=policy, style=style, script=script, data=embedded(data))


def embedded(data: Any) -> str:
    """JSON that ends no script block and starts none: `<`, `>`, `&` and all beyond ASCII are escaped."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _file(name: str) -> str:
    return resources.files("truecopy.reports.html").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
