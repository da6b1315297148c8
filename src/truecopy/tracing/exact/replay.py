"""The run once more, in order, into a ledger: what every line did, and what was alive when.

Nodes are entered and left as the program did it; what runs inside of a node knows its scope: the line
of the user, the module, the phase, the kernel around it. An event is the outermost operation that a
call in C has made, or that an operator or a node of a backward pass has run.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from truecopy.tracing import sites, storages
from truecopy.tracing.copies import COPYING, UNKNOWN_SHAPE, is_hidden
from truecopy.tracing.exact.copying import Copied, base_of
from truecopy.tracing.exact.frames import Frames
from truecopy.tracing.exact.kinship import Kinship
from truecopy.tracing.exact.memory import Allocations
from truecopy.tracing.exact.origins import told_by
from truecopy.tracing.exact.profiling import STEP
from truecopy.tracing.exact.recorded import recorded_in
from truecopy.tracing.exact.tree import ALLOCATION, C_CALL, OPERATION, PYTHON, Node
from truecopy.tracing.facts import Site
from truecopy.tracing.ledger import Ledger
from truecopy.tracing.lines import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE, LineOfCode
from truecopy.tracing.nodes import ACCUMULATOR, Nodes
from truecopy.tracing.rounds import MARKED, STRONG, WEAK

REGION = "Torch-Compiled Region"
"""How torch names the range of a compiled region."""

_ENGINE = "autograd::engine::evaluate_function: "
_BACKWARD_CALL = "run_backward"
_NAME_IN_C = re.compile(r"<built-in (?:function|method) (\w+)")


class Scope:
    """Where a node runs."""

    __slots__ = (
        "around", "call", "caller", "copied", "forward", "frame", "in_checkpoint", "is_bare", "is_user",
        "line", "node", "parent", "path", "phase", "placed", "root", "user",
    )  # fmt: skip

    def __init__(self, nowhere: LineOfCode) -> None:
        self.line = nowhere  # of the user's code
        self.frame: Node | None = None  # of Python, the innermost
        self.user: Node | None = None  # of the user, the innermost
        self.is_user = False  # whether the innermost is the user's
        self.is_bare = False  # whether no call has told the line since that frame began
        self.placed: dict[int, Site | None] = {}  # lines of operators in that frame
        self.path = ""
        self.root = 0  # the outermost module
        self.phase = FORWARD
        self.in_checkpoint = False
        self.node = ""
        self.forward: LineOfCode | None = None
        self.parent = -1
        self.call = ""  # in C, that is running
        self.caller: Node | None = None  # its node
        self.around: tuple[Node, ...] = ()  # operations that are running, the outermost first
        self.copied: Copied | None = None

    def inner(self) -> Scope:
        """The scope of something inside, the same so far."""
        made = Scope.__new__(Scope)
        made.around, made.call, made.caller, made.copied = (
            self.around, self.call, self.caller, self.copied,
        )  # fmt: skip
        made.forward, made.frame, made.in_checkpoint = self.forward, self.frame, self.in_checkpoint
        made.is_bare, made.is_user, made.line, made.node = (
            self.is_bare, self.is_user, self.line, self.node,
        )  # fmt: skip
        made.parent, made.path, made.phase, made.placed = (
            self.parent, self.path, self.phase, self.placed,
        )  # fmt: skip
        made.root, made.user = self.root, self.user
        return made


class Replay:
    """A profile on its way into a ledger."""

    def __init__(
        self,
        opener: CodeType | None,
        kinship: Kinship,
        paths: Callable[[int, int, str], str],
        shape_asked: Callable[[int], tuple[int, ...] | None],
    ) -> None:
        """`paths` names a module by the outermost one, itself and its class."""
        self.memory = Allocations()
        self.ledger = Ledger(opener, self.memory)
        self.ledger.nodes = Nodes(0)
        self.frames = Frames()
        self.operators = 0  # that have the line of their function alone
        self.regions = 0
        self._opener = opener
        self._kinship = kinship
        self._paths = paths
        self._shape_asked = shape_asked
        self._lines: dict[Site, LineOfCode] = {}
        self._places: dict[Any, Any] = {}  # that may be the heads of loops
        self._owner: Node | None = None  # of the event that is open
        self._copies: list[Copied] = []
        self._born: dict[int, storages.Block] = {}  # in the event, by number of the allocation
        self._loose: list[
            tuple[storages.Block, int]
        ] = []  # allocated before the operation they are for
        self._backwards: dict[int, tuple[LineOfCode, int, int]] = {}  # by identity of the call

    def run(self, roots: list[Node]) -> Ledger:
        """Go through a profile."""
        ledger = self.ledger
        ledger.started = min((root.start for root in roots), default=0)
        ledger.stopped = max((root.stop for root in roots), default=0)
        scopes: dict[int, list[Scope]] = defaultdict(lambda: [Scope(ledger.nowhere)])
        for _, entered, node in _in_order(roots):
            stack = scopes[node.thread]
            if entered:
                stack.append(self._enter(node, stack[-1]))
            else:
                self._leave(node, stack.pop(), stack[-1])
        self._settle(Scope(ledger.nowhere), ledger.stopped)
        ledger.owners.end_step()
        return ledger

    # --- nodes ------------------------------------------------------------------------------------

    def _enter(self, node: Node, outer: Scope) -> Scope:
        match node.kind:
            case kind if kind == ALLOCATION:
                self._memory_moves(node, outer)
                return outer
            case kind if kind == PYTHON:
                return self._enter_python(node, outer)
            case kind if kind == C_CALL:
                return self._enter_c(node, outer) if node.children else outer
            case kind if kind == OPERATION:
                return self._enter_operation(node, outer)
        return outer

    def _leave(self, node: Node, scope: Scope, outer: Scope) -> None:
        if node.kind == OPERATION:
            self._leave_operation(node, scope, outer)
        elif node.kind in (PYTHON, C_CALL):
            if self._loose and scope.is_user:
                self._settle(scope, node.stop)
            if scope.phase == OPTIMIZER != outer.phase:
                self.ledger.owners.end_step()
            if id(node) in self._backwards:
                self._end_backward(node)
        if self._owner is node:
            self._close(node.stop)

    def _enter_python(self, node: Node, outer: Scope) -> Scope:
        if not node.children:
            return outer
        scope = self._called(node, outer)
        scope.frame = node
        kind = self.frames.kind(node)
        scope.is_user = kind == sites.USER
        if kind == sites.OPTIMIZER and not scope.node:
            scope.phase = OPTIMIZER
        elif kind == sites.CHECKPOINT and scope.node:
            scope.in_checkpoint = True
        if node.module is not None:
            self._enter_module(node.module, scope)
        if scope.is_user:
            if scope.in_checkpoint:
                scope.phase = RECOMPUTE
            scope.user = node
            scope.is_bare = True
            scope.line = self._line(self.frames.site(node, node.line))
            scope.placed = self.frames.lines_in(node)
        if self._owner is None:
            scope.call = ""
        return scope

    def _enter_c(self, node: Node, outer: Scope) -> Scope:
        scope = self._called(node, outer)
        if self._owner is None:
            name = _NAME_IN_C.match(node.name)
            scope.call, scope.caller = name[1] if name else node.name, node
            if scope.call == _BACKWARD_CALL:
                self._begin_backward(node, scope)
        return scope

    def _called(self, node: Node, outer: Scope) -> Scope:
        """The scope of what a frame calls: if it is the user's, the line is told."""
        if self._loose and outer.is_user:
            self._settle(outer, node.start)
        scope = outer.inner()
        if outer.is_user and outer.frame is not None and node.call_line:
            scope.line = self._line(self.frames.site(outer.frame, node.call_line))
            scope.is_bare = scope.is_user = False
        return scope

    def _enter_module(self, module: tuple[int, str], scope: Scope) -> None:
        identity, cls = module
        if not scope.path:
            scope.root = identity
            self._pass(STRONG, scope.line, identity, self.ledger.events)
        scope.path = self._paths(scope.root, identity, cls)

    def _enter_operation(self, node: Node, outer: Scope) -> Scope:
        name, ledger = node.name, self.ledger
        scope = outer.inner()
        if node.is_backward or name.startswith(_ENGINE):
            scope.node = name.removeprefix(_ENGINE)
            scope.phase, scope.call, scope.in_checkpoint = BACKWARD, "", False
            found = None if scope.node == ACCUMULATOR else ledger.nodes.find(node.sequence)[0]
            scope.forward = found
            scope.is_user = scope.is_bare = False
            return scope
        if "::" not in name or name.startswith("profiler::"):
            if name.startswith(STEP):
                ledger.rounds.pass_by(MARKED, name.removeprefix(STEP), ledger.events)
            self.regions += name.startswith(REGION)
            return scope
        if self._is_again(node, outer):
            return scope
        self._run(node, scope)
        scope.around = (*outer.around, node)
        scope.is_user = False
        return scope

    def _is_again(self, node: Node, outer: Scope) -> bool:
        """Whether a mode in Python has handed an operation on: it is in the profile twice."""
        return bool(outer.around) and outer.around[-1].name == node.name and (
            outer.frame is not None and outer.frame.start > outer.around[-1].start
        )  # fmt: skip

    def _run(self, node: Node, scope: Scope) -> None:
        ledger, current = self.ledger, self.ledger.current
        if self._owner is None:
            self._open(node, scope)
        ledger.operations += 1
        current.operations += 1
        if node.sequence >= 0:
            ledger.nodes.note(node.sequence, current.line, current.index)
        if not scope.around:
            for tensor in recorded_in(node.inputs):
                self.memory.meet_recorded(tensor)
        base = base_of(node)
        if scope.copied is None and base in COPYING:
            scope.copied = Copied(node, base, scope.around, current.allocated)
            self._copies.append(scope.copied)
        if base == "copy_" and scope.copied is not None:
            scope.copied.wrote(node)

    def _leave_operation(self, node: Node, scope: Scope, outer: Scope) -> None:
        if scope.copied is not None and scope.copied.node is node:
            scope.copied.ended(self.ledger.current.allocated)
        if self._copies and not outer.around and scope.around:
            self._tell_copies()

    # --- memory -----------------------------------------------------------------------------------

    def _memory_moves(self, node: Node, scope: Scope) -> None:
        memory = self.memory
        if node.size <= 0:
            memory.gave_back(node)
            return
        block = memory.gave(node)
        owner = self._kinship.owners.get(node.allocation)
        if owner is None and scope.phase in (FORWARD, RECOMPUTE):
            block.saved_by = self._kinship.read_by.get(node.allocation, "")
            owner = storages.SAVED if block.saved_by else None
        if owner is not None:
            memory.belongs(block, owner)
        if self._owner is None and scope.call:
            self._open(node, scope)
        if self._owner is None:
            self._loose.append((block, node.allocation))
        else:
            self._attach(block, node.allocation)

    def _attach(self, block: storages.Block, number: int) -> None:
        current = self.ledger.current
        block.line, block.path, block.birth = current.line, current.path, current.index
        block.origin = "new"
        current.born.append(block)
        current.allocated += block.nbytes
        self._born[number] = block

    def _settle(self, scope: Scope, now: int) -> None:
        """What was allocated, and no operation came for it: it is an event of its own."""
        if self._loose and self._owner is None:
            node = Node(ALLOCATION, "", now, now)
            self._open(node, scope)
            self._close(now)

    # --- events -----------------------------------------------------------------------------------

    def _open(self, node: Node, scope: Scope) -> None:
        ledger, current = self.ledger, self.ledger.current
        current.clear()
        self._born.clear()
        current.line, current.phase, current.path = scope.line, scope.phase, scope.path
        current.node, current.forward, current.parent = scope.node, scope.forward, scope.parent
        current.index = self.memory.event = ledger.events
        current.start = node.start
        if scope.is_bare and node.kind == OPERATION:
            self._find_operator(node, scope)
        if scope.node:
            current.function = node.name
        else:
            current.function = scope.call or base_of(node) or "allocation"
        self._owner = self._owner_of(node, scope)
        user = scope.user
        if self._opener is not None and user is not None and not scope.node:
            names = self._opener.co_name, self._opener.co_filename
            if (user.function, self.frames.file(user.file)) == names:
                self._pass(WEAK, current.line, current.function, current.index)
        for block, number in self._loose:
            self._attach(block, number)
            if node.kind == OPERATION:  # a number as a tensor: it goes with the operation
                current.born.remove(block)
        self._loose.clear()

    def _find_operator(self, node: Node, scope: Scope) -> None:
        found = scope.placed.get(id(node))
        if found is None:
            self.operators += 1
        else:
            self.ledger.current.line = self._line(found)

    def _owner_of(self, node: Node, scope: Scope) -> Node:
        """With whose end the event ends: a call in C has all that runs in it."""
        return scope.caller if scope.call and scope.caller is not None else node

    def _close(self, stop: int) -> None:
        ledger, current = self.ledger, self.ledger.current
        self._owner = None
        alive = [block for block in current.born if block.death < 0]
        storage = alive[-1].number if alive else -1
        origins, effects = told_by(current.function, bool(alive))
        current.touched += effects
        if current.node == ACCUMULATOR:
            for block in alive:
                self.memory.belongs(block, storages.GRADIENT)
        if current.phase != BACKWARD:
            ledger.owners.outlive(None)
        ledger.close_event(origins, storage, stop)

    def _begin_backward(self, node: Node, scope: Scope) -> None:
        ledger = self.ledger
        index = ledger.events
        self._backwards[id(node)] = scope.line, index, node.start
        self._pass(STRONG, scope.line, _BACKWARD_CALL, index)
        ledger.events += 1
        scope.parent = index
        scope.phase = BACKWARD
        scope.call = ""

    def _end_backward(self, node: Node) -> None:
        ledger, current = self.ledger, self.ledger.current
        current.clear()
        current.line, index, current.start = self._backwards.pop(id(node))
        current.phase, current.node, current.forward, current.parent = BACKWARD, "", None, -1
        current.function, current.path = "backward", ""
        events, ledger.events, current.index = ledger.events, index, index
        ledger.close_event((), -1, node.stop)
        ledger.events = events

    # --- copies -----------------------------------------------------------------------------------

    def _tell_copies(self) -> None:
        """The outermost operation is over: it has kept what it hands out, and dropped the rest."""
        current = self.ledger.current
        for one in self._copies:
            written = one.written
            self.ledger.copying.note(written)
            call = one.inside or one.asked or current.call
            result = one.pairs[0][0] if one.pairs else None
            if (
                result is None
                or not is_hidden(one.operation, call, written, result)
                or one.is_the_result(self._born)
            ):
                continue
            found = self.ledger.copying.hide(one.operation, call, written, result)
            found.call, found.inside = current.call, one.inside
            if found.reason.endswith(UNKNOWN_SHAPE):
                shape = self._shape_asked(one.viewed_as())
                self.ledger.copying.viewed_as("another shape" if shape is None else shape)
        self._copies.clear()

    def _pass(self, strength: int, line: LineOfCode, what: object, event: int) -> None:
        """A line is passed that may be the head of a loop: what it does there tells its places apart."""
        place = self._places.setdefault((id(line), what), (line, what))
        self.ledger.rounds.pass_by(strength, place, event)

    def _line(self, site: Site) -> LineOfCode:
        line = self._lines.get(site)
        if line is None:
            line = self._lines[site] = LineOfCode(None, 0, site)
            self.ledger.lines[id(line), 0] = line
        return line


def _in_order(roots: list[Node]) -> Iterator[tuple[int, bool, Node]]:
    """Beginnings and ends of all nodes as they came: those of several threads between each other."""
    threads: dict[int, list[Node]] = defaultdict(list)
    for root in roots:
        threads[root.thread].append(root)
    if len(threads) == 1:
        return _of_thread(roots)
    return heapq.merge(*map(_of_thread, threads.values()), key=lambda step: step[0])


def _of_thread(roots: list[Node]) -> Iterator[tuple[int, bool, Node]]:
    now = 0
    waiting: list[tuple[bool, Node]] = [(True, root) for root in reversed(roots)]
    while waiting:
        entered, node = waiting.pop()
        now = max(now, node.start if entered else node.stop)
        yield now, entered, node
        if entered:
            waiting.append((False, node))
            waiting += [(True, child) for child in reversed(node.children)]
