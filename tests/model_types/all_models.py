"""`make test-models`: the proof on every model type of transformers that the recipe makes tiny.

Writes tests/model_types/result.json. Ends with 1 where a proof fails, or fewer than sixty types were proven.
"""

from __future__ import annotations

import json
import signal
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
WANTED = 60
SECONDS = 20  # for one model; the recipe makes some that are slow for reasons of their own


def main() -> int:
    """Try all types, or those that are named."""
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    names = sys.argv[1:] or sorted(set(CONFIG_MAPPING) & set(MODEL_MAPPING_NAMES))
    proven: dict[str, Any] = {}
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    signal.signal(signal.SIGALRM, _too_long)
    for name in names:
        signal.alarm(SECONDS)
        try:
            _one(name, proven, failed, skipped)
        except TimeoutError:
            skipped[name] = f"longer than {SECONDS} seconds"
        finally:
            signal.alarm(0)
    told = {
        "torch": torch.__version__, "transformers": transformers.__version__,
        "proven": proven, "failed": failed, "not made by the recipe": skipped,
    }  # fmt: skip
    if not sys.argv[1:]:
        (HERE / "result.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{len(proven)} proven, {len(failed)} failed, {len(skipped)} not made by the recipe")
    for name, why in failed.items():
        print(f"  {name}: {why}")
    return int(bool(failed) or (not sys.argv[1:] and len(proven) < WANTED))


def _one(
    name: str, proven: dict[str, Any], failed: dict[str, str], skipped: dict[str, str]
) -> None:
    from proof import prove, run
    from tiny import tiny

    try:
        made = tiny(name)
        if made is None:
            skipped[name] = "too many parameters"
            return
        run(*made)
    except TimeoutError:
        raise
    except Exception as error:  # noqa: BLE001 - configurations that this recipe does not fit
        skipped[name] = f"{type(error).__name__}: {error}"[:100]
        return
    try:
        proven[name] = asdict(prove(*made))
    except TimeoutError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure of ours
        failed[name] = f"{type(error).__name__}: {error}"[:300]


def _too_long(*_: Any) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main())
