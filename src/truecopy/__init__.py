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
        BrokenExpectation,
        CannotCopy,
        CannotRead,
        CannotWrite,
        MemoryWritten,
        NonLeaf,
        NotCaptured,
        NotEnoughMemory,
        NotIndependent,
        Orphaned,
        PointsBack,
        StillShared,
        StructureMismatch,
        TieLost,
        TornSnapshot,
        TruecopyError,
        TruecopyWarning,
        UsageError,
        WrittenTo,
    )
    from truecopy.explaining.facts import Explanation
    from truecopy.explaining.lookup import explain
    from truecopy.measuring.api import bench
    from truecopy.measuring.record import BenchResult
    from truecopy.memory.aliases import Aliases, aliases
    from truecopy.memory.holders import Holder, who_shares
    from truecopy.memory.relation import Relation, assert_independent, relate
    from truecopy.snapshots.best import Best
    from truecopy.snapshots.changes import Change
    from truecopy.snapshots.snapshot import Snapshot
    from truecopy.structure.kinds import register
    from truecopy.tracing.api import Trace, trace
    from truecopy.tracing.expecting import expect
    from truecopy.tracing.watching import Watch, Write, watch

__version__ = "0.1.0.dev0"

__all__ = [
    "Aliases",
    "BenchResult",
    "Best",
    "BrokenExpectation",
    "CannotCopy",
    "CannotRead",
    "CannotWrite",
    "Capture",
    "Change",
    "Explanation",
    "Holder",
    "MemoryWritten",
    "NonLeaf",
    "NotCaptured",
    "NotEnoughMemory",
    "NotIndependent",
    "Orphaned",
    "Plan",
    "PointsBack",
    "Relation",
    "SavedCapture",
    "Snapshot",
    "StillShared",
    "StructureMismatch",
    "TieLost",
    "TornSnapshot",
    "Trace",
    "TruecopyError",
    "TruecopyWarning",
    "UsageError",
    "Watch",
    "Write",
    "WrittenTo",
    "__version__",
    "aliases",
    "assert_independent",
    "bench",
    "capture",
    "copy",
    "deepcopy",
    "duplicate",
    "expect",
    "explain",
    "plan",
    "register",
    "relate",
    "trace",
    "watch",
    "who_shares",
]

_HOMES = {
    "Aliases": "truecopy.memory.aliases",
    "BenchResult": "truecopy.measuring.record",
    "Best": "truecopy.snapshots.best",
    "BrokenExpectation": "truecopy.errors",
    "CannotCopy": "truecopy.errors",
    "CannotRead": "truecopy.errors",
    "CannotWrite": "truecopy.errors",
    "Capture": "truecopy.capturing.capture",
    "Change": "truecopy.snapshots.changes",
    "Explanation": "truecopy.explaining.facts",
    "Holder": "truecopy.memory.holders",
    "MemoryWritten": "truecopy.errors",
    "NonLeaf": "truecopy.errors",
    "NotCaptured": "truecopy.errors",
    "NotEnoughMemory": "truecopy.errors",
    "NotIndependent": "truecopy.errors",
    "Orphaned": "truecopy.errors",
    "Plan": "truecopy.copying.plan",
    "PointsBack": "truecopy.errors",
    "Relation": "truecopy.memory.relation",
    "SavedCapture": "truecopy.capturing.store",
    "Snapshot": "truecopy.snapshots.snapshot",
    "StillShared": "truecopy.errors",
    "StructureMismatch": "truecopy.errors",
    "TieLost": "truecopy.errors",
    "TornSnapshot": "truecopy.errors",
    "Trace": "truecopy.tracing.api",
    "TruecopyError": "truecopy.errors",
    "TruecopyWarning": "truecopy.errors",
    "UsageError": "truecopy.errors",
    "Watch": "truecopy.tracing.watching",
    "Write": "truecopy.tracing.watching",
    "WrittenTo": "truecopy.errors",
    "aliases": "truecopy.memory.aliases",
    "assert_independent": "truecopy.memory.relation",
    "bench": "truecopy.measuring.api",
    "capture": "truecopy.capturing.capture",
    "copy": "truecopy.copying.api",
    "deepcopy": "truecopy.copying.api",
    "duplicate": "truecopy.copying.duplicates.api",
    "expect": "truecopy.tracing.expecting",
    "explain": "truecopy.explaining.lookup",
    "plan": "truecopy.copying.api",
    "register": "truecopy.structure.kinds",
    "relate": "truecopy.memory.relation",
    "trace": "truecopy.tracing.api",
    "watch": "truecopy.tracing.watching",
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
