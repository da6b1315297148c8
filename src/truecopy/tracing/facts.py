"""What a trace found, as frozen facts: plain numbers, words, and places in source files.

Bytes are bytes of storages unless a name says otherwise. An *event* is one call of the user, or one
operation that no call of theirs asked for (in a backward pass, say); events are counted from 0 in the
order in which they began. Words have one meaning each:

    origin   "same" | "view" | "new" | "adopted" | "lazy" | "unknown"          one for each output
    effect   "mutated" | "resized" | "replaced"      one for each argument that is not "untouched"
    phase    "forward" | "backward" | "recompute" | "optimizer"
    owner    "parameter" | "buffer" | "gradient" | "optimizer state" | "saved for backward" |
             "activation" | "input" | "temporary" | "other"
"""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.encoding import in_tables, written_once

ORIGINS = ("same", "view", "new", "adopted", "lazy", "unknown")
EFFECTS = ("mutated", "resized", "replaced")
PHASES = ("forward", "backward", "recompute", "optimizer")
OWNERS = (
    "parameter", "buffer", "gradient", "optimizer state", "saved for backward", "activation",
    "input", "temporary", "other",
)  # fmt: skip


@written_once
@dataclass(frozen=True, slots=True)
class Site:
    """One place in a source file: as exact as Python keeps it."""

    file: str  # as Python names it; "<stdin>" and the like are possible
    line: int  # 0 where Python does not tell
    end_line: int
    column: int  # of the first character, from 0; -1 where Python does not tell
    end_column: int
    function: str  # qualified name of the function around it
    text: str  # the source line without its indentation; empty where it cannot be read

    @property
    def place(self) -> str:
        """`file:line`, as terminals make links of it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole run in numbers."""

    events: int  # calls of the user, and operations that belong to no call
    operations: int  # dispatched by torch, those inside of calls too
    same: int  # events that returned their argument itself, and did nothing
    allocated_bytes: int  # of storages born while the trace ran, each once
    freed_bytes: int  # of those and of earlier ones, freed while it ran
    copied_bytes: int  # written by copying, asked for or not
    read_bytes: int  # read by copying; less than was written where a tensor was expanded
    hidden_copies: int
    hidden_bytes: int  # written by hidden copies, a part of copied_bytes
    start_bytes: int  # of storages that existed before, as far as they were met
    end_bytes: int  # alive when the trace ended
    would_be_bytes: int  # of meta and fake tensors: no memory, in no other number
    raised: int  # events that ended in an exception
    seconds: float
    own_bytes: int  # what the trace itself held when it ended
    copies: int = 0  # operations that copied bytes, asked for or not


@dataclass(frozen=True, slots=True)
class Line:
    """All that one source line did, over the whole run."""

    site: Site
    modules: tuple[str, ...]  # paths of the modules that ran it: "layers.0.attn"; "" outside of all
    phases: tuple[str, ...]
    calls: tuple[tuple[str, int], ...]  # name of what was called, how often; most often first
    origins: tuple[tuple[str, int], ...]  # how many outputs were of which origin
    effects: tuple[tuple[str, int], ...]
    events: int
    operations: int
    allocated_bytes: int
    copied_bytes: int
    read_bytes: int
    hidden_copies: int
    hidden_bytes: int
    peak_bytes: int  # of what this line had allocated, alive at the peak of the run
    raised: int
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """Hidden copies of one kind at one line: what was copied, why, and what would avoid it."""

    site: Site
    module: str
    phase: str
    call: str  # what the user called: "reshape"; in backward the node: "CloneBackward0"
    operation: str  # what copied: "aten::clone"
    inside: str  # the kernel or composite that made it on its own; empty where the call is it
    reason: str  # "strides (1, 96) cannot be viewed as (6144,)"
    advice: str  # the cheapest change that avoids it; empty where none is known
    count: int
    nbytes: int  # written, all of them together
    read_bytes: int
    amplification: float  # bytes written for each byte that the source has in memory
    forward: Site | None  # in backward and recompute: the line that made the node
    event: int  # the first of them


@dataclass(frozen=True, slots=True)
class Owner:
    """Memory alive at the peak that one line allocated as one class."""

    site: Site | None  # None for what existed before
    module: str
    owner: str  # its class, see OWNERS
    nbytes: int
    storages: int
    saved_by: str = ""  # the autograd node that keeps it: "ExpBackward0"


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was alive at once, and who held it."""

    nbytes: int
    event: int  # -1 where the trace began at its peak
    site: Site | None
    module: str
    phase: str
    iteration: int  # -1 outside of all
    temporary_bytes: int  # of it, freed before the call that allocated them had ended
    owners: tuple[Owner, ...]  # largest first; together all of it
    unattributed_bytes: int = 0  # the exact tier: of the allocator's total, known to no owner


@dataclass(frozen=True, slots=True)
class Churn:
    """A line that allocates the same bytes again and again, and drops them each time."""

    site: Site
    module: str
    call: str
    nbytes: int  # each time
    count: int
    per_iteration: float  # how often in one iteration; 0 where no iterations were found
    instead: str  # "a.add_(1)", "torch.add(..., out=...)"; empty where there is no other way
    why_not: str  # why it cannot be in place: "needed for backward", "another alias is alive"
    saves_bytes: int  # allocated less over the run, if changed


@dataclass(frozen=True, slots=True)
class Habit:
    """A way of copying for which there is a better one."""

    site: Site
    module: str
    what: str  # "torch.tensor(t)"
    why: str
    instead: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One round of a loop: marked with `t.step()`, or found."""

    number: int  # from 0
    first_event: int
    last_event: int
    allocated_bytes: int
    copied_bytes: int
    peak_bytes: int
    end_bytes: int  # alive at its end
    survived_bytes: int  # born in it, alive at the end of the next
    nodes: int  # autograd nodes made in it, alive at the end of the next


@dataclass(frozen=True, slots=True)
class Survivor:
    """What a line leaves behind in each iteration: a leak, if it was not meant."""

    site: Site
    module: str
    what: str  # "bytes" | "nodes"
    amount: int  # bytes, or autograd nodes, over all iterations
    per_iteration: float
    iterations: int
    holders: tuple[str, ...]  # paths of who holds it, as far as they were found


@in_tables
@dataclass(frozen=True, slots=True)
class Event:
    """One call of the user, or one operation that belongs to no call."""

    index: int
    call: str  # "reshape", "Tensor.add_"; in backward the operation: "aten::mul"
    site: Site | None
    module: str
    phase: str
    parent: int  # the event inside of which it ran; -1 for none
    node: str  # in backward the autograd node: "MulBackward0"; else empty
    forward: Site | None  # in backward and recompute: the line that made the node
    origins: tuple[str, ...]
    effects: tuple[tuple[str, str], ...]  # argument, effect; untouched ones are not listed
    raised: str  # the exception's name; else empty
    operations: int
    allocated_bytes: int
    copied_bytes: int
    read_bytes: int
    hidden_bytes: int
    live_bytes: int  # alive when it ended
    storage: int  # number of the storage of its first output; -1 for none
    start_ns: int  # from the beginning of the trace
    stop_ns: int


@in_tables
@dataclass(frozen=True, slots=True)
class Moment:
    """Memory over a stretch of events: the record keeps a bounded number of stretches."""

    first_event: int
    last_event: int
    low_bytes: int
    high_bytes: int
    copied_bytes: int  # since the beginning
    stop_ns: int
    by_owner: tuple[int, ...]  # bytes at high_bytes, one for each of OWNERS


@in_tables
@dataclass(frozen=True, slots=True)
class StorageLife:
    """One block of memory: where it came from, how long it lived, who looked at it."""

    number: int  # as in Event.storage
    nbytes: int  # the most that it had
    device: str
    owner: str
    site: Site | None  # None where it existed before
    module: str
    birth: int  # event; -1 where it existed before
    death: int  # event; -1 where it was alive at the end
    saved_by: str = ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that the trace could not see, and how often it met it."""

    what: str  # "other threads"
    count: int
    why: str
