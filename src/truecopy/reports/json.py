"""Any record as JSON text."""

from __future__ import annotations

import json
from typing import Any


def dumps(record: Any) -> str:
    """A record in its envelope, keys in the record's own order, names in ASCII.

    Escapes leave no control character for a terminal to obey; NaN and infinity, which JSON has
    not, are the record's to write as text.
    """
    return json.dumps(record.to_json(), indent=2, ensure_ascii=True, allow_nan=False)
