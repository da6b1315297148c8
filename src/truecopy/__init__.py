"""Is this a copy, or the same memory? Check it, and make exactly the copies you mean.

Every name below is loaded from its module when it is first used, so that `import truecopy` costs
nothing, and a program that only asks for `truecopy --help` never waits for torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truecopy.capturing.capture import Capture, capture
    from truecopy.capturing.store import SavedCapture
    from truecopy.copying.api import copy, deepcopy, plan
    from truecopy.copying.duplicates.api import duplicate
    from truecopy.copying.plan import Plan
    from truecopy.errors import (
        CannotCopy,
        CannotRead,
        CannotWrite,
        NonLeaf,
        NotCaptured,
        NotEnoughMemory,
        NotIndependent,
        PointsBack,
        StillShared,
        StructureMismatch,
        TruecopyError,
        TruecopyWarning,
        UsageError,
    )
    from truecopy.memory.aliases import Aliases, aliases
    from truecopy.memory.holders import Holder, who_shares
    from truecopy.memory.relation import Relation, assert_independent, relate
    from truecopy.structure.kinds import register
    from truecopy.tracing.api import Trace, trace

__version__ = "0.1.0.dev0"

__all__ = [
    "Aliases",
    "CannotCopy",
    "CannotRead",
    "CannotWrite",
    "Capture",
    "Holder",
    "NonLeaf",
    "NotCaptured",
    "NotEnoughMemory",
    "NotIndependent",
    "Plan",
    "PointsBack",
    "Relation",
    "SavedCapture",
    "StillShared",
    "StructureMismatch",
    "Trace",
    "TruecopyError",
    "TruecopyWarning",
    "UsageError",
    "__version__",
    "aliases",
    "assert_independent",
    "capture",
    "copy",
    "deepcopy",
    "duplicate",
    "plan",
    "register",
    "relate",
    "trace",
    "who_shares",
]

_HOMES = {
    "Aliases": "truecopy.memory.aliases",
    "CannotCopy": "truecopy.errors",
    "CannotRead": "truecopy.errors",
    "CannotWrite": "truecopy.errors",
    "Capture": "truecopy.capturing.capture",
    "Holder": "truecopy.memory.holders",
    "NonLeaf": "truecopy.errors",
    "NotCaptured": "truecopy.errors",
    "NotEnoughMemory": "truecopy.errors",
    "NotIndependent": "truecopy.errors",
    "Plan": "truecopy.copying.plan",
    "PointsBack": "truecopy.errors",
    "Relation": "truecopy.memory.relation",
    "SavedCapture": "truecopy.capturing.store",
    "StillShared": "truecopy.errors",
    "StructureMismatch": "truecopy.errors",
    "Trace": "truecopy.tracing.api",
    "TruecopyError": "truecopy.errors",
    "TruecopyWarning": "truecopy.errors",
    "UsageError": "truecopy.errors",
    "aliases": "truecopy.memory.aliases",
    "assert_independent": "truecopy.memory.relation",
    "capture": "truecopy.capturing.capture",
    "copy": "truecopy.copying.api",
    "deepcopy": "truecopy.copying.api",
    "duplicate": "truecopy.copying.duplicates.api",
    "plan": "truecopy.copying.api",
    "register": "truecopy.structure.kinds",
    "relate": "truecopy.memory.relation",
    "trace": "truecopy.tracing.api",
    "who_shares": "truecopy.memory.holders",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module, once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'truecopy' has no attribute {name!r}")
    value = getattr(_import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return __all__
